"""Do logs with copies=1 stay on two disks when the tree changes under them?"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from braid.broker.log_copies import LogCopies
from braid.protocol.messages import Ask, Done, DropDurable, Failed, SubscribeDurable
from tests.broker.test_log_copies import (
    LONG_US,
    expected,
    keeper_of,
    lose_data,
    publish,
    reading,
    rows_of,
    star,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.broker.wire import Network


def operate(network: Network, names: Sequence[str], **arguments: str) -> None:
    """Have the first broker of a path moved from the second to the last."""
    operator = network.client(f"operator {''.join(names)}", names[0])
    operator.ask(Ask(1, "reconfigure", arguments))
    network.run(us=5_000_000)
    assert not operator.answers(Failed), operator.answers(Failed)
    (done,) = operator.answers(Done)
    assert json.loads(done.text)["outcome"] == "finished", done.text
    network.leave(operator)


def shift(network: Network, moving: str, old: str, new: str, **more: str) -> None:
    operate(network, (moving, old, new), operation="shift", moving=moving, old=old, new=new, **more)


def delta_move(network: Network, *path: str) -> None:
    operate(network, path, operation="delta", path=",".join(path))


def others(keeper: str) -> list[str]:
    return [name for name in "BCD" if name != keeper]


def copies_at(network: Network, name: str) -> list[int]:
    """How far the copies reach that a broker has on its disk."""
    return [log.next_offset for log in network.stores[name].state().logs if log.origin]


def beside(network: Network, neighbours: Iterable[str]) -> None:
    """From its next start on A is configured for the place that it has."""
    network.settings["A"] = replace(network.settings["A"], neighbours=tuple(neighbours))


def nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no row gets from a log to its keeper."""
    monkeypatch.setattr(LogCopies, "_pump", lambda self, log: None)


def keeper_moves(network: Network, keeper: str) -> None:
    shift(network, keeper, "A", others(keeper)[0])


def keeper_moves_as_printed(network: Network, keeper: str) -> None:
    shift(network, keeper, "A", others(keeper)[0], by="three-phase")


def keeper_moves_by_delta(network: Network, keeper: str) -> None:
    delta_move(network, keeper, "A", others(keeper)[0])


def all_others_are_drained(network: Network, keeper: str) -> None:
    """A drain of the owner's place: everything around it hangs on one neighbour, which is not the keeper."""
    stays, other = others(keeper)
    shift(network, other, "A", stays)
    shift(network, keeper, "A", stays)


def two_links_are_exchanged(network: Network, keeper: str) -> None:
    """What an exchange comes down to: a leaf comes nearer while the keeper goes."""
    first, second = others(keeper)
    shift(network, keeper, "A", first)
    shift(network, second, "A", first)
    shift(network, second, first, "A")


MOVES = [
    keeper_moves,
    keeper_moves_as_printed,
    keeper_moves_by_delta,
    all_others_are_drained,
    two_links_are_exchanged,
]


@pytest.mark.parametrize("move", MOVES)
def test_another_keeper_takes_over_when_the_tree_changes(move: Any) -> None:
    network = star()
    reader = reading(network)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    first = keeper_of(network)
    move(network, first)
    publisher = publish(network, first, range(6, 11))
    network.run(us=LONG_US)
    second = keeper_of(network)
    assert second in network.cores["A"]._links.links
    assert publisher.cares == [*range(6, 11)]
    assert rows_of(reader) == expected(range(1, 11))
    assert copies_at(network, second) == [10]
    assert copies_at(network, first) == [], "one copy is enough"
    lose_data(network)
    beside(network, network.neighbours["A"])
    network.start("A")
    again = network.client("reader", "A")
    again.ask(SubscribeDurable(2, "log", ""))
    network.run(us=LONG_US)
    assert not again.answers(Failed)
    assert rows_of(again) == expected(range(1, 11))


def test_the_former_keeper_keeps_its_copy_until_the_next_one_has_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = star()
    reader = reading(network)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    first = keeper_of(network)
    nothing_is_copied(monkeypatch)
    keeper_moves(network, first)
    publisher = publish(network, "A", range(6, 11))
    network.run(us=LONG_US)
    assert keeper_of(network) in others(first)
    assert copies_at(network, first) == [5], "the second copy of what was confirmed"
    assert publisher.cares == [], "the disk of one broker is not enough"
    assert rows_of(reader) == expected(range(1, 6))
    monkeypatch.undo()
    network.run(us=5_000_000)
    assert publisher.cares == [*range(6, 11)]
    assert rows_of(reader) == expected(range(1, 11))
    assert copies_at(network, first) == []
    assert copies_at(network, keeper_of(network)) == [10]


def test_the_former_keeper_asks_again_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = star()
    reading(network)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    first = keeper_of(network)
    nothing_is_copied(monkeypatch)
    keeper_moves(network, first)
    beyond = others(first)[0]
    network.kill(first)
    network.settings[first] = replace(network.settings[first], neighbours=(beyond,), expected=())
    network.start(first)
    network.run(us=LONG_US)
    assert copies_at(network, first) == [5]
    monkeypatch.undo()
    network.run(us=LONG_US)
    assert copies_at(network, first) == []


def test_an_owner_that_lost_its_disk_too_early_says_where_its_rows_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the next keeper has everything, a lost disk is the second loss; the rows stay where they are."""
    network = star()
    reading(network)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    first = keeper_of(network)
    nothing_is_copied(monkeypatch)
    keeper_moves(network, first)
    lose_data(network)
    monkeypatch.undo()
    beside(network, others(first))
    network.start("A")
    network.run(us=LONG_US)
    publish(network, "A", range(6, 20), "another")
    network.run(us=LONG_US)
    assert copies_at(network, first) == [5], "the log has as many rows by now, but others"
    noted = [note.fields.get("at") for name, note in network.notes if name == "A" and note.level != "info"]
    assert noted.count(first) == 1, "it is said where the rows are, once"
    lacking = [note.fields["rows"] for _, note in network.notes if note.what.endswith("was not complete")]
    assert lacking == [5]


def test_a_log_that_was_dropped_after_its_keeper_had_moved_goes_there_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = star()
    reader = reading(network)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    first = keeper_of(network)
    nothing_is_copied(monkeypatch)
    keeper_moves(network, first)
    monkeypatch.undo()
    network.hold(others(first)[0], "A")
    network.hold(others(first)[1], "A")
    reader.ask(DropDurable(2, "log"))
    network.run(us=500_000)
    network.release(others(first)[0], "A")
    network.release(others(first)[1], "A")
    network.run(us=LONG_US)
    assert [copies_at(network, name) for name in "BCD"] == [[], [], []]
    assert not network.stores["A"].state().logs


def test_a_dropped_log_is_forgotten_with_a_keeper_that_is_given_up() -> None:
    network = star()
    reader = reading(network)
    first = keeper_of(network)
    network.kill(first)
    reader.ask(DropDurable(2, "log"))
    network.run(us=2_000_000)
    assert network.stores["A"].state().logs, "its keeper has to hear of it"
    operator = network.client("operator", "A")
    operator.ask(Ask(1, "forget", {"neighbour": first}))
    network.run(us=2_000_000)
    assert operator.answers(Done), operator.answers(Failed)
    assert not network.stores["A"].state().logs
