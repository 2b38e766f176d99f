"""Does what one turn does with tables stay small when they are long? Work is counted, not timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.language.filters import Filter
from braid.routing import RoutingTables
from braid.routing.anchored_entries import AnchoredEntries
from braid.routing.entries import Entries
from braid.routing.movable_tables import ENTRIES_PER_STEP, LOOKED_AT_PER_STEP

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRIES = 10_000


@pytest.fixture(scope="module")
def filters() -> list[tuple[str, Filter]]:
    return [(f"s{number}", Filter(f"n = {number}")) for number in range(ENTRIES)]


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """What a method is called with from now on."""
    calls: list[Any] = []
    method: Callable[..., Any] = getattr(owner, name)

    def call(self: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        return method(self, *arguments)

    monkeypatch.setattr(owner, name, call)
    return calls


def from_old(filters: list[tuple[str, Filter]]) -> RoutingTables:
    """All of them came from one neighbour."""
    tables = RoutingTables()
    tables.add_link("old")
    tables.subscribe(filters, "old", link=True)
    return tables


def test_a_neighbour_is_renamed_without_anything_being_indexed_anew(
    filters: list[tuple[str, Filter]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = from_old(filters)
    tables.reached_here([])
    indexed = [counted(monkeypatch, type(tables.matcher), name) for name in ("add_many", "remove")]
    tables.rename_link("old", "new")
    assert indexed == [[], []]
    found = tables.destinations([{"n": 7}, {"n": ENTRIES}])
    assert [
        (str(found.groups[column]), row) for row, column in zip(*found.matrix.nonzero(), strict=True)
    ] == [("new", 0)]
    assert tables.origin_of("s7") == "new"
    tables.remove_link("new")
    assert not tables.destinations([{"n": 7}]).matrix.any()


def test_one_that_hears_everything_again_is_not_told_at_once_what_that_is(
    filters: list[tuple[str, Filter]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = from_old(filters)
    tables.add_link("new", muted=True)
    tables.advertise([("a", Filter("TRUE"))], "new", link=True)
    looked_at = counted(monkeypatch, Entries, "get")
    listed = counted(monkeypatch, Entries, "items_elsewhere")
    tables.unmute("new")
    assert looked_at == []
    assert len(listed) == 1, "advertisements alone"
    told = 0
    for _ in range(20):
        looked_at.clear()
        tells = tables.step()
        assert len(tells) == ENTRIES_PER_STEP
        assert len(looked_at) <= 3 * ENTRIES_PER_STEP
        told += len(tells)
    assert told == 20 * ENTRIES_PER_STEP


def test_what_is_its_own_is_passed_by_in_few_steps(
    filters: list[tuple[str, Filter]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = from_old(filters)
    looked_at = counted(monkeypatch, Entries, "get")
    assert tables.advertise([("a", Filter("TRUE"))], "old", link=True) == []
    assert len(looked_at) <= LOOKED_AT_PER_STEP + 1
    steps = 0
    while tables.unfinished:
        looked_at.clear()
        assert tables.step() == []
        assert len(looked_at) <= LOOKED_AT_PER_STEP
        steps += 1
    assert steps <= ENTRIES / LOOKED_AT_PER_STEP + 1


def test_a_session_that_begins_anew_is_not_told_everything_in_one_turn(
    filters: list[tuple[str, Filter]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = from_old(filters)
    tables.add_link("new")
    tables.share("old", "new")  # told apart, so that nothing is compared
    told = tables.tell_apart("new", [key for key, _ in filters], [])
    assert len(told) == ENTRIES
    asked = counted(monkeypatch, AnchoredEntries, "told_entry")
    listed = counted(monkeypatch, AnchoredEntries, "told")
    tells = tables.tell_anew("new")
    assert len(tells) == len(asked) == ENTRIES_PER_STEP
    assert len(listed) == 1, "advertisements alone"
    while tables.telling("new"):
        asked.clear()
        tells += tables.step()
        assert len(asked) <= LOOKED_AT_PER_STEP
    assert {tell.key for tell in tells} == {key for key, _ in filters}
