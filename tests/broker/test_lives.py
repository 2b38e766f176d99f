"""Are the lives of links, clients and soft links what their tables say?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from braid.broker.access import AccessPolicy, RateLimiter, RequestRate
from braid.broker.client_life import CLIENT_LIFE, ClientStage, ClientStep
from braid.broker.delta_move_life import MOVE_LIFE
from braid.broker.exchange_life import EXCHANGE_LIFE
from braid.broker.link_life import LINK_LIFE, LinkStage, LinkStep
from braid.broker.operation_life import OPERATION_LIFE
from braid.broker.parties import Client, Link, Party, SoftLink
from braid.broker.soft_link_life import SOFT_LINK_LIFE, SoftLinkStage, SoftLinkStep
from braid.errors import InvariantViolated, UnknownStepError
from braid.protocol import ChannelSettings
from braid.protocol.inputs import Drain
from braid.protocol.messages import Reach, Subscribe, TablesComplete, TablesIncomplete
from tests.broker.wire import Network

if TYPE_CHECKING:
    from braid.broker.life import Life

LIVES: tuple[Life, ...] = (LINK_LIFE, CLIENT_LIFE, SOFT_LINK_LIFE, OPERATION_LIFE, MOVE_LIFE, EXCHANGE_LIFE)
DOCUMENT = Path(__file__).parents[2] / "docs" / "lives.md"

OPENING = """# Lives

Where a link, a client, a soft link, an operation, a delta-move or an exchange of links is in its life is its
*stage*, and what happens to it is a *step*. The tables in `broker/link_life.py`, `broker/client_life.py`,
`broker/soft_link_life.py`, `broker/operation_life.py`, `broker/delta_move_life.py` and
`broker/exchange_life.py` say which stage follows; a step that a stage does not know is a mistake of ours
(`UnknownStepError`): it is written to the log with the story that led there, costs that one connection, and
the link begins anew. The diagrams below are drawn from the tables;
`BRAID_REWRITE=1 pytest tests/broker/test_lives.py` draws them anew.
"""


def drawn() -> str:
    parts = [f"## The life of {life.title}\n\n{life.drawn()}\n" for life in LIVES]
    return "\n".join([OPENING, *parts])


def new_link() -> Link:
    return Link("B", ChannelSettings(), lambda party: None)


def new_soft(*, outgoing: bool) -> SoftLink:
    return SoftLink("C", ChannelSettings(), lambda party: None, outgoing=outgoing)


def new_client() -> Client:
    principal = AccessPolicy.open().authenticate(None, None, "client", 0)
    limiter = RateLimiter(principal.limits, RequestRate(principal.limits.requests_per_second_together_max))
    return Client("alice", "A/1", principal, limiter, ChannelSettings(), lambda party: None)


def test_the_document_shows_the_tables() -> None:
    if os.environ.get("BRAID_REWRITE", "") not in ("", "0"):
        DOCUMENT.write_text(drawn())
    assert DOCUMENT.read_text() == drawn()


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.title)
def test_every_stage_can_be_reached_and_every_step_is_used(life: Life) -> None:
    stages, steps = type(life.first[0]), {type(step) for _, step in life.table}.pop()
    reached = set(life.first)
    while more := {after for (stage, _), after in life.table.items() if stage in reached} - reached:
        reached |= more
    assert reached == set(stages)
    assert {step for _, step in life.table} == set(steps)


@pytest.mark.parametrize(
    ("party", "step", "names"),
    [
        (new_link(), LinkStep.CONFIRMED, ("a link", "CONFIRMED", "DOWN", "<Link B DOWN>")),
        (new_client(), ClientStep.DISCONNECTED, ("a client", "DISCONNECTED", "GONE", "alice")),
        (new_soft(outgoing=True), SoftLinkStep.WANTED, ("a soft link", "WANTED", "DIALLING", "C")),
    ],
)
def test_what_cannot_happen_is_named(party: Party, step: LinkStep, names: tuple[str, ...]) -> None:
    if isinstance(party, Client):
        party.left()
    before = party.stage
    with pytest.raises(UnknownStepError) as caught:
        party.step(step)
    assert all(name in str(caught.value) for name in names), caught.value
    assert party.stage is before


def test_what_follows_from_a_link_s_stage_is_read_from_it() -> None:
    link = new_link()
    assert (link.down, link.complete, link.holding, link.channel.holding) == (True, False, True, True)
    link.step(LinkStep.BEGUN)
    link.connection = 1
    assert (link.down, link.complete, link.holding) == (False, False, True)
    link.step(LinkStep.COMPLETE)
    assert (link.complete, link.holding, link.current) == (True, True, True)
    link.step(LinkStep.CONFIRMED)
    assert (link.stage, link.holding, link.channel.holding) == (LinkStage.OPEN, False, False)
    link.outstanding.told_subscription("A/1/x", 7)
    link.outstanding.catch_up()
    assert not link.current, "it has not confirmed what it was told"
    link.step(LinkStep.DISCONNECTED)
    assert (link.stage, link.connection, link.channel.holding) == (LinkStage.SUSPENDED, None, True)


def test_a_client_that_was_sent_away_has_no_connection_until_it_has_gone() -> None:
    client = new_client()
    client.connection = 1
    client.send_away()
    assert (client.stage, client.connection) == (ClientStage.ENDING, None)
    client.left()
    assert client.stage is ClientStage.GONE


def test_a_soft_link_that_is_wanted_again_is_up_again() -> None:
    soft = new_soft(outgoing=True)
    for step in (SoftLinkStep.ENTERED, SoftLinkStep.UNWANTED, SoftLinkStep.WANTED):
        soft.step(step)
    assert soft.stage is SoftLinkStage.UP


def test_hearsay_about_a_neighbour_is_forgotten_when_it_comes_back() -> None:
    """Otherwise nobody would be warned the next time it is said to be elsewhere."""
    network = Network()
    network.start("A")
    network.start("B", neighbours=("A",))
    network.start("C", neighbours=("A",))
    network.run(us=2_000_000)
    links = network.cores["A"]._links

    def warnings() -> int:
        return sum("said to be elsewhere" in note.what for _, note in network.notes)

    for times in (1, 2):
        network.kill("C")
        network.run(us=10_000)
        for _ in range(2):
            links.reaches(links.links["B"], Reach(["C"], []))
            links.reaches(links.links["B"], Reach([], []))
            network.run(us=1_000_000)
        assert warnings() == times
        network.start("C")
        network.run(us=10_000_000)
        assert links.links["C"].stage is LinkStage.OPEN


@pytest.mark.parametrize(
    ("stage", "step"),
    [(LinkStage.OPEN, LinkStep.INCOMPLETE), (LinkStage.OPEN, LinkStep.DISCONNECTED)],
    ids=["by a message", "by the end of its connection"],
)
def test_a_step_that_is_missing_costs_one_link_and_not_the_broker(
    monkeypatch: pytest.MonkeyPatch, stage: LinkStage, step: LinkStep
) -> None:
    network = Network()
    network.start("A", store=True)
    network.start("B", neighbours=("A",), store=True)
    network.start("C", neighbours=("A",), store=True)
    network.run(us=2_000_000)
    readers = [network.client(f"reader {name}", name) for name in "BC"]
    for reader in readers:
        reader.ask(Subscribe(1, "1", "n > 0"))
    network.run(us=1_000_000)
    network.validate_every = 10**9
    core = network.cores["A"]
    with monkeypatch.context() as patch:
        patch.delitem(LINK_LIFE.table, (stage, step))
        if step is LinkStep.INCOMPLETE:
            network.cores["B"]._turn.tell(network.cores["B"]._links.links["A"], TablesIncomplete())
            network.run(us=1_000)
        else:
            network.cut("A", "B")
            network.step()
    told = [note for name, note in network.notes if name == "A" and "mistake in this broker" in note.what]
    assert [note.fields["party"] for note in told] == ["B"]
    assert told[0].fields["story"]
    assert step.name in told[0].fields["mistake"]
    publisher = network.client("p", "A")
    publisher.publish({"n": 1}, acknowledged=True)
    network.run(us=20_000_000)
    assert {link.stage for link in core._links.links.values()} == {LinkStage.OPEN}
    assert [reader.values("n") for reader in readers] == [[1], [1]]
    assert publisher.channel.idle
    with pytest.raises(InvariantViolated, match=step.name):
        core.validate()


@pytest.mark.parametrize("message", [TablesComplete, TablesIncomplete])
def test_a_neighbour_that_speaks_on_after_our_goodbye_does_no_harm(message: type) -> None:
    network = Network()
    network.start("A")
    network.start("B", neighbours=("A",))
    network.run(us=2_000_000)
    network.hold("B", "A")
    network.cores["B"]._turn.tell(network.cores["B"]._links.links["A"], message())
    network.run(us=1_000)
    network.tell("A", Drain())
    network.step()
    network.release("B", "A")
    network.run(us=5_000_000)
    assert "A" in network.drained
