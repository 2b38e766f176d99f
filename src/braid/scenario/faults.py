"""What can go wrong in a simulation, when, and for how long?

A `Fault` is one line of a plan: at this time, this happens to this broker or between these two. Most of them
can say how long they last; the plan then also says what ends them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.sim import World

__all__ = ["VOCABULARY", "Fault", "FaultKind", "Side", "schedule_faults"]

Subject = Literal["pair", "sides", "broker", "either"]
"""What a fault happens to: two brokers, two brokers or groups of them, one broker, one or two."""

Side: TypeAlias = str | tuple[str, ...]
"""A broker, or several that are on the same side."""


@dataclass(frozen=True)
class FaultKind:
    """What a fault is about, and what it can be told."""

    meaning: str
    subject: Subject
    needs: tuple[str, ...] = ()
    """Arguments that must be given."""
    takes: tuple[str, ...] = ()
    """Arguments that may be given."""
    ends_with: str | None = None
    """What undoes it (with no arguments but `ends_told`); None for what is over at once."""
    ends_told: Mapping[str, Any] = field(default_factory=dict)


VOCABULARY: Mapping[str, FaultKind] = {
    "partition": FaultKind("nothing crosses between two brokers or groups", "sides", ends_with="repair"),
    "repair": FaultKind("ends a partition", "sides"),
    "hold": FaultKind("what is sent between two brokers waits on its way", "pair", ends_with="release"),
    "release": FaultKind("ends a hold: what was kept arrives, in order", "pair"),
    "crash": FaultKind(
        "a broker ends at once and keeps only its store", "broker", takes=("silent",), ends_with="restart"
    ),
    "restart": FaultKind("a broker starts again", "broker", takes=("keep_store",)),
    "lose": FaultKind(
        "the next frames from the first to the second vanish, and the connection breaks",
        "pair",
        needs=("count",),
    ),
    "duplicate": FaultKind(
        "the next frames from the first to the second arrive twice", "pair", needs=("count",)
    ),
    "delay": FaultKind(
        "everything between two brokers takes longer",
        "pair",
        needs=("extra_us",),
        ends_with="delay",
        ends_told={"extra_us": 0},
    ),
    "throttle": FaultKind(
        "a broker's uplink, or what is between two, carries only so much",
        "either",
        takes=("bytes_per_s", "messages_per_s"),
        ends_with="throttle",
    ),
}
"""All faults by name."""

_ABOUT = {
    "pair": "two brokers",
    "sides": "two brokers or groups",
    "broker": "one broker",
    "either": "one broker or two",
}


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, or right again. Time 0 is when publishing starts."""

    at_us: int
    fault: str
    subject: tuple[Side, ...]
    """One broker, or the two ends."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    lasts_us: int | None = None
    """After so long it is undone; None: it stays as it is."""

    def __post_init__(self) -> None:
        kind = VOCABULARY.get(self.fault)
        if kind is None:
            raise ConfigurationError(f"there is no fault {self.fault!r}; there are {', '.join(VOCABULARY)}")
        counts = {"pair": (2,), "sides": (2,), "broker": (1,), "either": (1, 2)}[kind.subject]
        names = self.brokers
        grouped = any(not isinstance(side, str) for side in self.subject)
        if (
            len(self.subject) not in counts
            or len(set(names)) != len(names)
            or (grouped and kind.subject != "sides")
        ):
            about = _ABOUT[kind.subject]
            raise ConfigurationError(f"a {self.fault} is about {about}, different ones; not {self.subject}")
        for name in kind.needs:
            if name not in self.arguments:
                raise ConfigurationError(f"a {self.fault} needs {name!r}")
        for name in self.arguments:
            if name not in (*kind.needs, *kind.takes):
                allowed = ", ".join((*kind.needs, *kind.takes)) or "nothing"
                raise ConfigurationError(f"a {self.fault} takes {allowed}, not {name!r}")
        if self.lasts_us is not None and kind.ends_with is None:
            raise ConfigurationError(f"a {self.fault} is over at once, so it cannot last")

    @property
    def brokers(self) -> tuple[str, ...]:
        """Everybody it names."""
        return tuple(name for side in self.subject for name in ((side,) if isinstance(side, str) else side))

    @property
    def end(self) -> Fault | None:
        """What undoes it, if it says how long it lasts."""
        kind = VOCABULARY[self.fault]
        if self.lasts_us is None or kind.ends_with is None:
            return None
        return Fault(self.at_us + self.lasts_us, kind.ends_with, self.subject, kind.ends_told)

    def perform(self, world: World) -> None:
        """Let it happen now."""
        subject: tuple[Any, ...] = self.subject
        if self.fault == "throttle" and len(subject) == 2:
            subject = (subject,)  # a link is one thing that is throttled
        getattr(world, self.fault)(*subject, **self.arguments)

    def __str__(self) -> str:
        ends = " - ".join(side if isinstance(side, str) else ",".join(side) for side in self.subject)
        return f"{self.fault} {ends}" + "".join(f" {name}={value}" for name, value in self.arguments.items())


def schedule_faults(world: World, faults: tuple[Fault, ...], start_us: int) -> int:
    """Put a plan into a world, and return how many things are going to happen.

    Raises:
        ConfigurationError: a fault names a broker that is not there.
    """
    plan = [each for fault in faults for each in (fault, fault.end) if each is not None]
    for fault in plan:
        for name in fault.brokers:
            world.host(name)
        world.at(max(0, start_us + fault.at_us), partial(fault.perform, world))
    return len(plan)
