"""Who takes little at a time is not taken for one who takes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.protocol import Frame, PublicationBatch
from braid.protocol.batch import encode_record
from braid.protocol.inputs import Received, Writable
from braid.protocol.messages import Acknowledgement, Subscribe
from tests.broker.test_turns import Driver, publication

if TYPE_CHECKING:
    from braid.broker.parties import Client

STALL_US = 4_000_000
RECORD = encode_record({"price": 50, "text": "x" * 10_000}, 0)


def held_up() -> tuple[Driver, Client]:
    """A broker whose client 9 was sent all that it has room for, over a slow line; others wait for it."""
    broker = Driver(stall_us_max=STALL_US, client_queue_bytes_max=100_000)
    reader, writer = broker.client(9), broker.client(1)
    broker.ask(reader, Subscribe(1, "mine", "price > 40"))
    broker.ask(writer, publication(1, "c1"))
    for first in range(2, 602, 20):
        broker.ask(writer, PublicationBatch.of("c1", range(first, first + 20), [RECORD] * 20))
    broker.tell(Writable(reader, False))
    party = next(each for each in broker.core._connections.clients if each.name == "c9")
    assert party.behind
    return broker, party


@pytest.mark.parametrize("takes", [True, False])
def test_a_client_on_a_slow_line_is_not_sent_away(takes: bool) -> None:
    """A window may take far longer on the line than anybody may keep others waiting who takes nothing."""
    broker, party = held_up()
    sent, received = party.channel.sent, 1
    for _ in range(20):
        broker.now_us += 1_000_000
        if takes:
            received += 1
            assert received < sent
            heard = Acknowledgement(received, received, 1 << 22)  # it asks for no more meanwhile
            broker.tell(Received(9, [Frame(0, heard)]))
        broker.turns(1)
    assert party.channel.sent == sent, "the line takes nothing"
    assert (9 in broker.closed) == (not takes)
