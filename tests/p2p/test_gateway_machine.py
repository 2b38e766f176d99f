"""A broker and its peer in one process: their link outlives whatever happens to the process."""

from __future__ import annotations

import pytest

from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings
from braid.p2p.dht.ring import Ring, RingSettings
from braid.p2p.dmm import Dmm, DmmSettings
from braid.p2p.gateway import GatewaySettings, PeeredBroker, PeersLink
from braid.p2p.peer import Peer
from braid.p2p.turn import Turn
from braid.protocol.effects import Note
from braid.protocol.inputs import Tick


@pytest.mark.parametrize("alone", [True, False])
def test_a_process_that_stood_still_keeps_the_link_between_its_halves(alone: bool) -> None:
    broker = BrokerCore(BrokerSettings(broker_id="A"), incarnation="this process", seed=1)
    turn = Turn()
    dht = Ring(turn, "127.0.0.1:1", RingSettings())
    dmm = Dmm(turn, dht, DmmSettings(gateways=True))
    link = PeersLink("A.peers", broker.incarnation, None, 1 << 20)
    machine = PeeredBroker(broker, Peer(turn, dht, dmm), dmm, link, GatewaySettings(alone=alone))
    now_us, notes = 0, []
    for pause_us in [0] * 50 + [6_000_000] + [0] * 50 + [60_000_000] + [0] * 50:
        due_us = machine.next_deadline_us()
        now_us = max(now_us, due_us or 0) + pause_us
        notes += [each.what for each in machine.handle(Tick(), now_us) if isinstance(each, Note)]
        assert link.up
    assert any("stood still" in each for each in notes)
    assert not any("has ended" in each for each in notes)
