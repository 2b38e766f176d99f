"""Who reads a durable subscription: the first who asked, until it goes or another one takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.errors import StoreError
from braid.protocol.messages import Done, Failed, SubscribeDurable
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from braid.protocol.log import LogRow


@pytest.fixture
def network() -> Network:
    network = Network()
    network.start("A", store=True)
    return network


def read(network: Network, client: WireClient, *, takeover: bool = False) -> list[str]:
    """Ask for the log; the codes of what was refused to this client so far."""
    client.ask(SubscribeDurable(1, "log", "n >= 0", takeover=takeover))
    network.run(us=100_000)
    return [answer.code for answer in client.answers(Failed)]


def test_a_client_that_comes_back_is_no_second_reader(network: Network) -> None:
    """Its former connection is dead, and the broker has not noticed that yet."""
    before = network.client("reader", "A")
    assert read(network, before) == []
    again = network.client("reader", "A")
    assert read(network, again) == []
    assert len(again.answers(Done)) == 1
    network.client("writer", "A").publish({"n": 1})
    network.run(us=100_000)
    assert (len(before.stored), len(again.stored)) == (0, 1)


def test_another_client_is_refused_also_under_the_same_name(network: Network) -> None:
    reader = network.client("reader", "A")
    assert read(network, reader) == []
    for second in (network.client("other", "A"), network.client("reader", "A", incarnation="another start")):
        assert read(network, second) == ["taken"]
    network.client("writer", "A").publish({"n": 1})
    network.run(us=100_000)
    assert len(reader.stored) == 1


def test_another_client_takes_over_by_its_own_choice_and_the_first_hears_of_it(network: Network) -> None:
    reader, other = network.client("reader", "A"), network.client("other", "A")
    assert read(network, reader) == []
    assert read(network, other, takeover=True) == []
    assert [answer.code for answer in reader.answers(Failed)] == ["taken"]
    network.client("writer", "A").publish({"n": 1})
    network.run(us=100_000)
    assert (len(reader.stored), len(other.stored)) == (0, 1)


def test_rows_that_were_asked_for_by_a_former_connection_leave_no_gap_for_the_next(network: Network) -> None:
    """The store is slow: when it answers, the reader is back and goes on further down."""
    network.start("B", store=True, durable_window_bytes=200, durable_tail_bytes=0)
    reader = network.client("reader", "B")
    reader.settles = False
    assert read(network, reader) == []
    network.client("writer", "B").publish(*({"n": number} for number in range(60)))
    network.run(us=100_000)
    assert 0 < len(reader.stored) < 60
    network.frozen_stores.add("B")
    reader.settles = True
    reader.receive([])  # there is room for more, which is asked for
    network.run(us=100_000)
    again = network.client("reader", "B")
    read(network, again)
    network.frozen_stores.clear()
    network.run(us=100_000)
    assert [offset for _, offset, _ in again.stored] == list(range(60))


def test_rows_that_the_store_could_not_read_are_asked_for_again(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been behind with its work, and nothing else may come that would have it asked again."""
    network.start("B", store=True, durable_tail_bytes=0)
    reader = network.client("reader", "B")
    assert read(network, reader) == []
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> list[tuple[int, LogRow]]:
            raise StoreError("the store is behind")

        patch.setattr(network.stores["B"], "read", refuse)
        network.client("writer", "B").publish({"n": 1})
        network.run(us=5_000_000)
        assert reader.stored == []
    network.run(us=5_000_000)
    assert len(reader.stored) == 1
    assert sum(note.what == "a log could not be read" for _, note in network.notes) == 1
