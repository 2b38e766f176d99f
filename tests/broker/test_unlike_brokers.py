"""Brokers that speak other versions of the protocol refuse each other at the greeting, and say why."""

from __future__ import annotations

import msgspec
import pytest

from braid.protocol import Frame
from braid.protocol.messages import PROTOCOL_VERSION, Hello, Subscribe, Welcome
from tests.broker.wire import Network


def unlike(network: Network, broker: str, version: int) -> None:
    """A broker greets with another version, whether it dials or is dialled."""

    def change(name: str, other: str, frame: Frame) -> Frame:
        if name == broker and isinstance(frame.body, Hello | Welcome):
            return Frame(frame.sequence, msgspec.structs.replace(frame.body, version=version))
        return frame

    network.change = change


def said(network: Network, broker: str) -> set[str]:
    """The reasons that a broker gives for what went wrong."""
    return {str(note.fields.get("reason")) for name, note in network.notes if name == broker}


@pytest.mark.parametrize("version", [PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1], ids=["older", "newer"])
@pytest.mark.parametrize(("other", "like"), [("B", "A"), ("A", "B")], ids=["who dials", "who is dialled"])
def test_an_unlike_broker_is_refused_with_the_reason(other: str, like: str, version: int) -> None:
    network = Network()
    unlike(network, other, version)
    network.start("A")
    network.start("B", neighbours=("A",))
    network.run(us=10_000_000)
    reason = f"version {PROTOCOL_VERSION} of the protocol is spoken here, not {version}"
    assert any(reason in each for each in said(network, like))
    assert any(reason in each for each in said(network, other)), "it hears why it is refused"
    assert {core.statistics()["links_up"] for core in network.cores.values()} == {0}
    # Its clients are served all the same.
    for name in ("A", "B"):
        client = network.client(f"client-{name}", name)
        client.ask(Subscribe(1, "1", "TRUE", partial=True))
        network.run(us=100_000)
        client.publish({"n": 1})
        network.run(us=100_000)
        assert client.values("n") == [1]
    # Brought to the same release, they link.
    network.change = None
    network.run(us=60_000_000)
    assert network.cores["A"].statistics()["links_up"] == 1
