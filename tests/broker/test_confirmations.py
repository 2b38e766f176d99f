"""Is whoever waits for confirmations released by its own, and not by those of others?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.confirmations import Outstanding
from braid.broker.events import EVENTS, Announced, Events
from braid.broker.waiters import Announcement, Waiter, WaiterKind

if TYPE_CHECKING:
    from collections.abc import Callable


def telling(announced: Callable[[Announced], None]) -> Events:
    """Events of which only announcements are heard."""
    events = Events()
    hear = (lambda broker, event: announced(event),)
    events.use({kind: hear if kind is Announced else () for kind in EVENTS}, None)
    return events


def waiting(request: int, events: Events) -> Announcement:
    return Announcement(Waiter(WaiterKind.CLIENT_ADVERTISEMENT, request=request), events)


def test_who_is_released_may_advertise_and_waits_for_that() -> None:
    outstanding = Outstanding()
    released: list[int] = []

    def announced(event: Announced) -> None:
        released.append(event.waiter.request)
        if released == [1]:
            outstanding.told_advertisement("b", 2)
            outstanding.follow(waiting(2, events), session=True)

    events = telling(announced)
    outstanding.told_advertisement("a", 1)
    outstanding.follow(waiting(1, events), session=True)
    outstanding.confirmed(1)
    assert released == [1]
    outstanding.confirmed(2)
    assert released == [1, 2]


def test_what_waits_is_released_in_order_and_never_early() -> None:
    outstanding = Outstanding()
    released: list[int] = []
    events = telling(lambda event: released.append(event.waiter.request))
    for request in (1, 2, 3):
        outstanding.told_advertisement(str(request), request)
        outstanding.follow(waiting(request, events), session=True)
    outstanding.confirmed(2)
    outstanding.confirmed(3)
    assert released == []
    outstanding.confirmed(1)
    assert released == [1, 2, 3]


def test_a_lost_session_moves_those_who_wait_and_copies_nobody() -> None:
    outstanding = Outstanding()
    released: list[int] = []
    events = telling(lambda event: released.append(event.waiter.request))
    outstanding.told_advertisement("a", 1)
    outstanding.follow(waiting(1, events), session=True)
    for session in range(2, 6):
        outstanding.session_lost()
        assert not outstanding.confirmed(1)
        outstanding.told_advertisement("a", session)
        outstanding.session_begun()
    assert released == []
    outstanding.confirmed(5)
    assert released == [1]
