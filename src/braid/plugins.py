"""Parts of brokers and peers that other distributions bring, found through entry points.

A distribution offers a part by an entry point in one of these groups; the entry's name is what people write
in settings and options.

| group | what the entry point is | where it is chosen |
|---|---|---|
| `braid.forwarding_strategies` | a `braid.routing.ForwardingStrategy` | `strategy` |
| `braid.topology_policies` | called with `TopologySettings`, gives a `TopologyPolicy` | `[topology] policy` |
| `braid.directories` | called with a URL and `DirectorySettings`, gives a `Directory` | the URL's scheme |
| `braid.dhts` | called with a peer's turn and its address, gives a `Dht` | `[peers] dht` |

They are looked for once in a process, before settings are read. A part that cannot be loaded harms only those
who ask for it.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from braid.adaptation.topology import add_policy
from braid.broker.settings import add_strategy
from braid.errors import ConfigurationError
from braid.p2p.dht import add_dht
from braid.routing import ForwardingStrategy
from braid.runtime.directory import add_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.metadata import EntryPoint

__all__ = ["GROUPS", "load_plugins"]


def _add_strategy(name: str, part: Any) -> None:
    if not isinstance(part, ForwardingStrategy):
        raise ConfigurationError(
            f"it is a {type(part).__name__}, and should be a braid.routing.ForwardingStrategy"
        )
    add_strategy(name, part)


def _called(add: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
    """The same for parts that are made by calling something."""

    def checked(name: str, part: Any) -> None:
        if not callable(part):
            raise ConfigurationError(f"it is a {type(part).__name__}, and should be something to call")
        add(name, part)

    return checked


GROUPS: Final[Mapping[str, Callable[[str, Any], None]]] = {
    "braid.forwarding_strategies": _add_strategy,
    "braid.topology_policies": _called(add_policy),
    "braid.directories": _called(add_directory),
    "braid.dhts": _called(add_dht),
}


def load_plugins(**chosen: object) -> None:
    """Make all parts known that are installed.

    Args:
        chosen: what settings ask for, by the group's last word: `forwarding_strategies="S9"`.

    Raises:
        ConfigurationError: one of those is installed and cannot be used; the message says why.
    """
    problems = _problems()
    for group, name in chosen.items():
        problem = problems.get((f"braid.{group}", str(name)))
        if problem is not None:
            raise ConfigurationError(problem)


@cache
def _problems() -> Mapping[tuple[str, str], str]:
    """Add everything, once; what was wrong with some parts, by group and name."""
    problems = {}
    for group, add in GROUPS.items():
        for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
            problem = _added(entry, add)
            if problem:
                problems[group, entry.name] = problem
    return problems


def _added(entry: EntryPoint, add: Callable[[str, Any], None]) -> str:
    brought_by = entry.dist.name if entry.dist is not None else entry.value
    try:
        add(entry.name, entry.load())
    except Exception as error:  # whatever it raises, brokers that do not ask for it start
        return (
            f"the plug-in {entry.name} of {brought_by} cannot be used: {str(error) or type(error).__name__}"
        )
    return ""
