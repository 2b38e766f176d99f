"""Why did a publish call on the embedded bus not finish?"""

from __future__ import annotations

from braid.errors import BusError

__all__ = ["PublishDeadlockError", "PublishTimeoutError"]


class PublishTimeoutError(BusError, TimeoutError):
    """A publisher waited for room in a subscription's queue, and its time was up.

    What could be handed over stays handed over; the rest was taken back and will not arrive.

    Attributes:
        delivered: hand-overs of the call that did happen.
        undelivered: hand-overs that were taken back.
        full: names of the subscriptions whose queues stayed full.
    """

    def __init__(self, timeout_s: float, delivered: int, undelivered: int, full: tuple[str, ...]) -> None:
        self.timeout_s = timeout_s
        self.delivered = delivered
        self.undelivered = undelivered
        self.full = full
        super().__init__(
            f"no room after {timeout_s:g} s in the full queue of {', '.join(map(repr, full))}: "
            f"{delivered} of {delivered + undelivered} deliveries were made and the rest was taken back; "
            "read faster, ask for a larger queue_size, or subscribe with when_full='drop_oldest'"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.timeout_s, self.delivered, self.undelivered, self.full))


class PublishDeadlockError(BusError):
    """A publisher would have waited for ever, because whoever could make room waits for it.

    The rest of the call was taken back; `delivered`, `undelivered` and `full` are those of
    `PublishTimeoutError`.
    """

    def __init__(self, reason: str, delivered: int, undelivered: int, full: tuple[str, ...]) -> None:
        self.reason = reason
        self.delivered = delivered
        self.undelivered = undelivered
        self.full = full
        super().__init__(
            f"the queue of {', '.join(map(repr, full))} is full and a wait would never end: {reason}. "
            f"{delivered} of {delivered + undelivered} deliveries were made and the rest was taken back"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.reason, self.delivered, self.undelivered, self.full))
