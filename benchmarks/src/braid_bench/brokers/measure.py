"""What does a broker spend on a message, how many does it manage, and how long do they take?

A `Session` is one contender in one scenario: its server runs, everyone is connected and subscribed. Sessions
of all contenders stay open side by side and take turns, so that what disturbs one disturbs its rivals too;
the median of the turns counts. Processor time is the server's own, over all its processes.
"""

from __future__ import annotations

import statistics
from contextlib import contextmanager
from dataclasses import dataclass, fields
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from braid.errors import ConfigurationError
from braid_bench.brokers.contender import Guaranteeing, ManyPublishers
from braid_bench.brokers.load import WrongDeliveriesError, closed_loop, paced, require_silence
from braid_bench.brokers.workload import expected_deliveries, make_interests, make_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from braid_bench.brokers.contender import Contender, Delivery, Publisher, Subscriber
    from braid_bench.brokers.workload import Interest

__all__ = [
    "Figures",
    "Latency",
    "Measurement",
    "Scenario",
    "Session",
    "measure_closed_loop",
    "measure_latency",
    "median_of",
    "messages_for",
    "warm_up",
]

# Different messages in one session; they are published over and over.
_POOL = 1_000
# A turn ends by itself long before; one that does not has lost messages.
_TURN_SECONDS_MAX = 120.0
_TURN_MESSAGES_MIN = 20
# Between two looks at the clock while a server warms up.
_WARM_UP_STEP = 10_000


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One kind of work."""

    name: str
    title: str
    connections: int
    """Subscribing connections."""
    subscriptions: int | None = None
    """Content subscriptions, spread over the connections; None: every connection gets every message."""
    topology: str = "one"
    outstanding: tuple[int, ...] = (250,)
    """Bounds of the closed loop to be measured, one after another."""
    latency: bool = False
    """Whether the time from publishing to delivery is measured too."""
    publishers: int = 0
    """So many publish in turn on the publishing connection, each message by itself; 0: one does, and what it
    publishes at once goes together."""
    delivery: Delivery = "fast"
    """What the publisher waits for."""

    def left_out(self, contender: Contender) -> str | None:
        """Why this contender takes no part, or None when it does."""
        if self.topology not in contender.topologies:
            return f"{contender.name} is not measured as {self.topology}"
        if self.subscriptions is not None and contender.filter_form is None:
            return f"{contender.name} has no filtering by content"
        if self.publishers and not isinstance(contender, ManyPublishers):
            return f"{contender.name} does not tell the publishers on a connection apart"
        if self.delivery != "fast" and not isinstance(contender, Guaranteeing):
            return f"{contender.name} is not measured with {self.delivery} delivery"
        return contender.missing()


@dataclass(frozen=True, slots=True)
class Measurement:
    """One closed loop, or the median over several."""

    server_us_per_message: float
    """Processor time of the server for one published message, in microseconds."""
    server_us_per_delivery: float
    messages_per_second: float
    """By the wall clock: on a busy machine, a lower bound."""
    messages: int
    deliveries: int
    client_cpu_share: float
    """Processor seconds of the load client per second of wall time; near 1 the client was the bottleneck."""
    server_cpu_share: float
    memory_bytes: int
    """Resident memory of the server after the turn."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Time from publishing to delivery at a steady rate, in microseconds; or the median over turns."""

    p50_us: float
    p99_us: float
    server_us_per_message: float
    messages: int


Figures = TypeVar("Figures", Measurement, Latency)


class Session:
    """A contender that is ready to work: server running, connections open, subscriptions in force."""

    def __init__(self, contender: Contender, scenario: Scenario, seed: int) -> None:
        if scenario.delivery != "fast":
            if not isinstance(contender, Guaranteeing):
                raise ConfigurationError(f"{contender.name} gives no receipts")
            contender = contender.delivering(scenario.delivery)
        self.contender = contender
        self.scenario = scenario
        self.publisher: Publisher | None = None
        self.subscribers: list[Subscriber] = []
        self.server = contender.start(scenario.topology)
        try:
            self._connect(seed)
        except BaseException:
            self.close()
            raise

    def _connect(self, seed: int) -> None:
        scenario, connections = self.scenario, self.scenario.connections
        messages = make_messages(_POOL, seed, quotes=scenario.subscriptions is not None)
        shares: list[list[Interest] | None] = [None] * connections
        self.expected = np.ones((_POOL, connections), dtype=np.int64)
        if scenario.subscriptions is not None:
            if self.contender.filter_form is None:
                raise ConfigurationError(f"{self.contender.name} cannot filter by content")
            interests = make_interests(scenario.subscriptions, seed)
            shares = [interests[number::connections] for number in range(connections)]
            self.expected = expected_deliveries(
                [message.quote for message in messages if message.quote is not None],
                interests,
                connections,
                self.contender.filter_form,
                self.contender.once_per,
            )
        started = perf_counter()
        for share in shares:
            self.subscribers.append(self.contender.subscriber(self.server, share))
        self.publisher = self._open_publisher()
        self.set_up_seconds = perf_counter() - started
        self.idle_memory_bytes = self.server.memory_bytes()
        self.encoded = [self.publisher.encode(message) for message in messages]

    def _open_publisher(self) -> Publisher:
        if not self.scenario.publishers:
            return self.contender.publisher(self.server)
        if not isinstance(self.contender, ManyPublishers):
            raise ConfigurationError(f"{self.contender.name} does not tell publishers apart")
        return self.contender.publishers(self.server, self.scenario.publishers)

    def work(self, messages: int) -> tuple[list[bytes], NDArray[np.int64]]:
        """So many messages, and how often each must arrive where."""
        rows = np.arange(messages) % _POOL
        return [self.encoded[row] for row in rows.tolist()], self.expected[rows]

    def require_publisher(self) -> Publisher:
        """The publishing connection."""
        if self.publisher is None:
            raise ConfigurationError(f"the session of {self.contender.name} is closed")
        return self.publisher

    def close(self) -> None:
        """Close the connections and stop the server."""
        for each in self.subscribers:
            each.close()
        if self.publisher is not None:
            self.publisher.close()
        self.subscribers, self.publisher = [], None
        self.server.stop()


def measure_closed_loop(session: Session, outstanding: int, messages: int) -> Measurement:
    """One turn with at most `outstanding` messages under way."""
    encoded, expected = session.work(messages)
    publisher = session.require_publisher()
    with _named(session):
        require_silence(session.subscribers)
    before = session.server.cpu_seconds()
    with _named(session):
        run = closed_loop(publisher, session.subscribers, encoded, expected, outstanding, _TURN_SECONDS_MAX)
    spent = session.server.cpu_seconds() - before
    deliveries = int(expected.sum())
    return Measurement(
        server_us_per_message=1e6 * spent / messages,
        server_us_per_delivery=1e6 * spent / max(deliveries, 1),
        messages_per_second=messages / run.wall_seconds,
        messages=messages,
        deliveries=deliveries,
        client_cpu_share=run.client_cpu_seconds / run.wall_seconds,
        server_cpu_share=spent / run.wall_seconds,
        memory_bytes=session.server.memory_bytes(),
    )


def measure_latency(session: Session, rate_per_second: float, seconds: float) -> Latency:
    """One turn at a steady rate."""
    encoded, expected = session.work(max(1, round(rate_per_second * seconds)))
    publisher = session.require_publisher()
    before = session.server.cpu_seconds()
    with _named(session):
        times = paced(publisher, session.subscribers, encoded, expected, rate_per_second, _TURN_SECONDS_MAX)
    spent = session.server.cpu_seconds() - before
    p50, p99 = np.percentile(times, [50, 99]) * 1e6
    return Latency(float(p50), float(p99), 1e6 * spent / len(encoded), len(encoded))


@contextmanager
def _named(session: Session) -> Iterator[None]:
    """Wrong deliveries in here are reported with who made them, and where."""
    try:
        yield
    except WrongDeliveriesError as error:
        who = f"{session.contender.name} in {session.scenario.name}"
        raise WrongDeliveriesError(f"{who}: {error}") from error


def warm_up(session: Session, outstanding: int, seconds: float) -> None:
    """Work that does not count, for servers that get faster with it."""
    messages_for(
        session, outstanding, turn_seconds=seconds, messages_max=_WARM_UP_STEP, trial_seconds=seconds
    )


def messages_for(
    session: Session, outstanding: int, *, turn_seconds: float, messages_max: int, trial_seconds: float
) -> int:
    """How many messages make a turn of about `turn_seconds`, found by a trial of about `trial_seconds`.

    A fast broker gets `messages_max`, one that needs milliseconds for each gets few.
    """
    started = perf_counter()
    count, rate = _TURN_MESSAGES_MIN, 0.0
    while (left := trial_seconds - (perf_counter() - started)) > 0 or not rate:
        # Doubling finds the rate without a step that outlasts the trial by much; the rest, too short for a
        # good estimate, is left unused.
        if rate and count > rate * left:
            break
        rate = measure_closed_loop(session, outstanding, count).messages_per_second
        count = min(2 * count, messages_max)
    return max(_TURN_MESSAGES_MIN, min(messages_max, int(rate * turn_seconds)))


def median_of(turns: Sequence[Figures]) -> Figures:
    """Every figure's median over the turns."""
    first = turns[0]
    medians = {
        field.name: type(getattr(first, field.name))(
            statistics.median(getattr(turn, field.name) for turn in turns)
        )
        for field in fields(first)
    }
    return type(first)(**medians)
