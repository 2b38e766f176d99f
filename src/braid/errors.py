"""Whose fault was it, and what should happen next?

    BraidError
      ConfigurationError       asked for something that cannot be built or does not exist here
      FilterError              a filter that cannot be used
        FilterSyntaxError      its text breaks the grammar; carries the position and what was expected
        PatternError           a JSON event pattern that cannot be read as a filter
      PublicationError         attributes or a body that cannot be published; names the attribute
      IndexKeyError            a key of a filter index that is taken, or that is not there
      BusError                 trouble with the embedded bus
        BusClosedError         it was closed
        PublishTimeoutError    a publisher's time was up before a full queue had room
        PublishDeadlockError   a publisher would have waited for ever
        SlowConsumerError      a subscription was ended because its consumer fell too far behind
      NetworkError             trouble with brokers, links and connections
        RemoteProtocolError    the peer broke the rules: close that link, keep everything else
        LocalProtocolError     we tried an illegal step: a mistake on our side
          UnknownStepError     a step in the life of a link or a client that its table does not know
        InvariantViolated      something that must never happen did; carries the story that led there
        ConnectionLostError    the connection is gone and will not come back
        RequestRefusedError    the broker understood a request and said no
          AuthenticationError  it does not know us, or not by this token or certificate
          AccessDeniedError    it knows us, and what we asked for is not granted
          UnreachedError       a subscription could not be told to the whole network in time
        StoreError             the durable store could not do what was asked
        DirectoryError         the directory of brokers could not do what was asked
      TraceError               a trace cannot be written any more

Every message says what was wrong, where, and where possible what to do instead.
"""

from __future__ import annotations

__all__ = [
    "AccessDeniedError",
    "AuthenticationError",
    "BraidError",
    "BusClosedError",
    "BusError",
    "ConfigurationError",
    "ConnectionLostError",
    "DirectoryError",
    "FilterError",
    "FilterSyntaxError",
    "IndexKeyError",
    "InvariantViolated",
    "LocalProtocolError",
    "NetworkError",
    "PatternError",
    "PublicationError",
    "PublishDeadlockError",
    "PublishTimeoutError",
    "RemoteProtocolError",
    "RequestRefusedError",
    "SlowConsumerError",
    "StoreError",
    "TraceError",
    "UnknownStepError",
    "UnreachedError",
]


class BraidError(Exception):
    """The root of everything Braid raises on purpose."""


class ConfigurationError(BraidError, ValueError):
    """Something was asked for that cannot be built, or that is not available on this machine."""


class FilterError(BraidError, ValueError):
    """A filter that cannot be used."""


class FilterSyntaxError(FilterError):
    """The text of a filter breaks the grammar.

    Attributes:
        text: the whole filter text.
        position: offset of the offending token in characters, from 0.
        line, column: the same place for people, both from 1.
        found: the offending piece of text ("end of filter" at the end).
        expected: what would have been accepted there.
    """

    def __init__(self, text: str, position: int, found: str, expected: str, hint: str = "") -> None:
        self.text = text
        self.position = position
        self.line = text.count("\n", 0, position) + 1
        self.column = position - (text.rfind("\n", 0, position) + 1) + 1
        self.found = found
        self.expected = expected
        self.hint = hint
        super().__init__(self._message())

    def _message(self) -> str:
        start = self.text.rfind("\n", 0, self.position) + 1
        end = self.text.find("\n", self.position)
        line = self.text[start : end if end >= 0 else len(self.text)]
        # A window keeps the message readable when one line holds a machine-written filter.
        offset = max(0, self.column - 1 - 40)
        window = line[offset : offset + 80].replace("\t", " ")
        caret = " " * (self.column - 1 - offset) + "^"
        message = (
            f"line {self.line}, column {self.column}: found {self.found}, "
            f"expected {self.expected}\n  {window}\n  {caret}"
        )
        return f"{message}\n  hint: {self.hint}" if self.hint else message

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.text, self.position, self.found, self.expected, self.hint))


class PatternError(FilterError):
    """A JSON event pattern that cannot be read as a filter; the message names the path in it."""


class PublicationError(BraidError, ValueError):
    """Attributes or a body that cannot be published; the message names the attribute."""


class IndexKeyError(BraidError, KeyError):
    """A key of a filter index that is already taken, or that is not there."""

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return str(self.args[0]) if self.args else ""


class BusError(BraidError):
    """Trouble with the embedded bus."""


class BusClosedError(BusError):
    """The bus or the subscription was closed."""


class SlowConsumerError(BusError):
    """The subscription was ended because its consumer fell too far behind, as it had asked for."""


class PublishTimeoutError(BusError, TimeoutError):
    """A publisher waited for room, and its time was up.

    On a bus, queues of subscriptions were full: what could be handed over stays handed over, the rest was
    taken back and will not arrive. In the network, too much was on its way to the broker: nothing was
    published.

    Attributes:
        delivered: hand-overs of the call that did happen.
        undelivered: hand-overs that were taken back.
        full: names of the subscriptions whose queues stayed full; none in the network.
    """

    def __init__(self, timeout_s: float, delivered: int, undelivered: int, full: tuple[str, ...]) -> None:
        self.timeout_s = timeout_s
        self.delivered = delivered
        self.undelivered = undelivered
        self.full = full
        if full:
            message = (
                f"no room after {timeout_s:g} s in the full queue of {', '.join(map(repr, full))}: "
                f"{delivered} of {delivered + undelivered} deliveries were made and the rest was taken back; "
                "read faster, ask for a larger queue_size, or subscribe with when_full='drop_oldest'"
            )
        else:
            message = (
                f"no room after {timeout_s:g} s: too much is on its way to the broker already, and nothing "
                "more was published; publish more slowly, or allow for a larger outgoing_bytes_max"
            )
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.timeout_s, self.delivered, self.undelivered, self.full))


class PublishDeadlockError(BusError):
    """A publisher would have waited for ever, because the one who could make room waits for it.

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


class NetworkError(BraidError):
    """Trouble with brokers, links and connections."""


class RemoteProtocolError(NetworkError):
    """The peer broke the rules; its link is closed and nothing else is touched."""


class LocalProtocolError(NetworkError):
    """We tried a step that the protocol does not allow here: a mistake on our side."""


class UnknownStepError(LocalProtocolError):
    """Something was to happen to a link, a client or a soft link that cannot happen in its stage.

    Attributes:
        who: whose life it is.
    """

    def __init__(self, message: str, who: object) -> None:
        self.who = who
        super().__init__(message)


class InvariantViolated(NetworkError):
    """Something that must never happen did.

    Attributes:
        story: the recent inputs and effects that led there, oldest first.
    """

    def __init__(self, message: str, story: tuple[str, ...] = ()) -> None:
        self.story = story
        super().__init__("\n  ".join((message, *story)))


class ConnectionLostError(NetworkError, ConnectionError):
    """The connection to the broker is gone and will not come back by itself."""


class RequestRefusedError(NetworkError):
    """The broker understood a request and said no.

    Attributes:
        code: a short word for programs, such as `limit` or `denied`.
    """

    def __init__(self, message: str, code: str = "refused") -> None:
        self.code = code
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self), self.code))


class AuthenticationError(RequestRefusedError):
    """The broker does not know us, or not by this token or certificate."""

    def __init__(self, message: str, code: str = "authentication") -> None:
        super().__init__(message, code)


class UnreachedError(RequestRefusedError, TimeoutError):
    """Links were down, and there was no more time to wait: the subscription is not in force.

    The message names the missing links.
    """

    def __init__(self, message: str, code: str = "unreached") -> None:
        super().__init__(message, code)


class AccessDeniedError(RequestRefusedError):
    """The broker knows us, and what we asked for is not granted."""

    def __init__(self, message: str, code: str = "denied") -> None:
        super().__init__(message, code)


class StoreError(NetworkError):
    """The durable store could not do what was asked."""

    temporary: bool = False
    """Whether the same may succeed later, such as when there is room on the disk again."""


class DirectoryError(NetworkError):
    """The directory of brokers could not do what was asked."""


class TraceError(BraidError):
    """A trace cannot be written any more; the message names the file and says why."""
