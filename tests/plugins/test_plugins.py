"""Parts of other distributions that are wrong: who asks for them hears why, and others start."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from typing import TYPE_CHECKING

import pytest

from braid import plugins
from braid.adaptation.topology import TopologySettings, add_policy
from braid.adaptation.topology.settings import OTHER_POLICIES
from braid.broker.settings import STRATEGIES, BrokerSettings, add_strategy
from braid.errors import ConfigurationError, InvariantViolated
from braid.p2p.dht import OTHER_DHTS, add_dht
from braid.routing import PATHS, ForwardingStrategy, OverlayMap, WorkingMap, straight_to_anchors
from braid.runtime.directory import add_directory, open_directory
from braid.runtime.directory.urls import OTHER_DIRECTORIES
from braid.server.peer_settings import PeerSettings
from braid.server.settings import ServerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOOD = ForwardingStrategy(straight_to_anchors)
NO_STRATEGY = 7


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """What is added here is forgotten again."""
    registries = (STRATEGIES, PATHS, OTHER_POLICIES, OTHER_DHTS, OTHER_DIRECTORIES)
    kept = [dict(each) for each in registries]
    plugins._problems.cache_clear()
    yield
    plugins._problems.cache_clear()
    for each, before in zip(registries, kept, strict=True):
        each.clear()
        each.update(before)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(*entries: tuple[str, str, str]) -> None:
        found = EntryPoints(EntryPoint(name, value, group) for group, name, value in entries)
        monkeypatch.setattr(plugins, "entry_points", lambda *, group: found.select(group=group))

    return install


def test_a_part_that_cannot_be_imported_harms_only_who_asks_for_it(installed: Callable[..., None]) -> None:
    installed(("braid.forwarding_strategies", "S9", "there_is_no_such_module:S9"))
    assert ServerSettings.of(broker_id="A", strategy="S2").broker.strategy == "S2"
    with pytest.raises(ConfigurationError, match=r"plug-in S9 of .*there_is_no_such_module"):
        ServerSettings.of(broker_id="A", strategy="S9")


@pytest.mark.parametrize(
    ("group", "table", "key", "value"),
    [
        ("forwarding_strategies", "broker", "strategy", "odd"),
        ("topology_policies", "topology", "policy", "odd"),
        ("dhts", "peers", "dht", "odd"),
        ("directories", "directory", "url", "odd://here"),
    ],
)
def test_a_part_of_the_wrong_kind_is_named(
    installed: Callable[..., None], group: str, table: str, key: str, value: str
) -> None:
    installed((f"braid.{group}", "odd", f"{__name__}:NO_STRATEGY"))
    with pytest.raises(ConfigurationError, match=r"plug-in odd of .*it is a int"):
        ServerSettings.of(
            {"broker": {"broker_id": "A"}, table: {key: value}}
            if table != "broker"
            else {"broker": {"broker_id": "A", key: value}}
        )


def test_what_is_there_already_keeps_its_name(installed: Callable[..., None]) -> None:
    before = PATHS["S2"]
    installed(("braid.forwarding_strategies", "S2", f"{__name__}:GOOD"))
    with pytest.raises(ConfigurationError, match="there is a forwarding strategy S2 already"):
        ServerSettings.of(broker_id="A", strategy="S2")
    assert PATHS["S2"] is before


def test_what_is_not_known_says_what_is() -> None:
    add_strategy("S9", GOOD)
    add_policy("odd", lambda settings: pytest.fail("not asked for"))
    add_dht("odd", lambda turn, address: pytest.fail("not asked for"))
    with pytest.raises(ConfigurationError, match="S9; 'S8' is none"):
        BrokerSettings(broker_id="A", strategy="S8")
    with pytest.raises(ConfigurationError, match="exact, odd; not 'even'"):
        TopologySettings(policy="even")
    with pytest.raises(ConfigurationError, match="pastry, ring, odd; not 'even'"):
        PeerSettings(dht="even")


def test_an_added_directory_gets_the_whole_url() -> None:
    seen: list[str] = []

    def opened(url: str, settings: object) -> object:
        seen.append(url)
        return open_directory("memory:")

    add_directory("odd", opened)  # type: ignore[arg-type]
    open_directory("odd://a/b")
    assert seen == ["odd://a/b"]
    with pytest.raises(ConfigurationError, match="already"):
        add_directory("zk", opened)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="cannot stand before"):
        add_directory("No Scheme", opened)  # type: ignore[arg-type]


def test_a_strategy_sees_further_than_its_neighbours() -> None:
    with pytest.raises(ConfigurationError, match="2 to 255"):
        add_strategy("S9", ForwardingStrategy(straight_to_anchors, delta=1))


LINE = WorkingMap(OverlayMap.of_links("A", [("A", "B"), ("B", "C"), ("C", "D")]), ("B", "D"))


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        (0b00, "no copy goes towards D"),
        (0b11, "D would get it twice, because it lies beyond B"),
        (0b100, "links that there are not"),
    ],
)
def test_a_strategy_that_would_lose_or_double_is_stopped(chosen: int, problem: str) -> None:
    paths = ForwardingStrategy(lambda working, anchors: chosen).checked("S9")
    with pytest.raises(InvariantViolated, match=problem):
        paths(LINE, 0b10)


@pytest.mark.parametrize("anchors", [0b01, 0b10, 0b11])
def test_a_right_answer_passes(anchors: int) -> None:
    assert GOOD.checked("S9")(LINE, anchors) == straight_to_anchors(LINE, anchors)
