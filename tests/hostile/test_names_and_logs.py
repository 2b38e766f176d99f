"""What can somebody do to others with very many names, durable subscriptions and rows? Nothing they notice.

Each test says what the broker keeps because of it, and what an innocent client saw. What the same costs, in
memory of a real broker and in the innocent client's time, is measured by `attacks` and `principals`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from braid.broker.access import AccessPolicy, Grant, Limits, Principal, hashed_token
from braid.errors import RequestRefusedError
from braid.protocol.messages import Done, PublishRefused, Subscribe, SubscribeDurable
from braid.runtime.connecting import connect
from tests.broker.wire import Network
from tests.cli.broker_process import running_broker

if TYPE_CHECKING:
    from pathlib import Path

NAMES = 101_000
DEADLINE_S = 30.0


def world() -> Network:
    principals = {name: Principal(name, Grant.everything()) for name in ("mallory", "anna", "otto")}
    network = Network(codec=False)
    access = AccessPolicy(principals=principals, tokens={hashed_token(name): name for name in principals})
    network.start("A", store=True, access=access)
    network.run(us=1_000_000)
    return network


@pytest.mark.slow
def test_very_many_names_of_one_client_make_nobody_else_forgotten() -> None:
    network = world()
    reader = network.client("otto", "A", token="otto")
    reader.ask(Subscribe(1, "1", "who = 'anna'"))
    anna = network.client("anna", "A", token="anna")
    network.run(us=10_000)
    anna.publish({"who": "anna"}, acknowledged=True)
    mallory = network.client("mallory", "A", token="mallory")
    network.run(us=10_000)
    for number in range(NAMES):
        mallory.sequence = 0
        mallory.publish({"who": "mallory"}, publisher=f"mallory/{number}", receipt=False)
        if number % 1000 == 0:
            network.run(us=10_000)
    network.run(us=100_000)
    refused = sum(len(message.sequences) for message in mallory.answers(PublishRefused))
    assert refused == NAMES - Limits().publishers_max
    assert len(network.cores["A"]._publish.seen) <= Limits().publishers_max + 2
    # Anna's connection breaks, and she sends again what may not have arrived.
    network.leave(anna)
    again = network.client("anna", "A", token="anna")
    again.publish({"who": "anna"}, acknowledged=True)
    network.run(us=100_000)
    assert reader.values("who") == ["anna"]
    assert again.cares == [1]


def test_the_logs_of_others_stay_whole_while_somebody_stores_too_much() -> None:
    principals = {
        "mallory": Principal("mallory", Grant.everything(), Limits(stored_rows_max=1000)),
        "anna": Principal("anna", Grant.everything()),
    }
    network = Network(codec=False)
    access = AccessPolicy(principals=principals, tokens={hashed_token(name): name for name in principals})
    network.start("A", store=True, access=access)
    mallory = network.client("mallory", "A", token="mallory")
    anna = network.client("anna", "A", token="anna")
    for number in range(20):
        mallory.ask(SubscribeDurable(number, f"log-{number}", "TRUE"))
    anna.ask(SubscribeDurable(1, "hers", "TRUE"))
    network.run(us=100_000)
    network.leave(anna)
    for number in range(100):
        mallory.publish(*({"n": 10 * number + n} for n in range(10)), receipt=False)
        network.run(us=1_000)
    network.run(us=1_000_000)
    kept = {log.name: log.next_offset - log.first_offset for log in network.stores["A"].state().logs}
    assert kept.pop("anna/hers") == 1000
    assert sum(kept.values()) <= 1000
    again = network.client("anna", "A", token="anna")
    again.ask(SubscribeDurable(1, "hers", ""))
    network.run(us=100_000)
    assert [row.attributes["n"] for _, _, row in again.stored] == list(range(1000))
    assert len(again.answers(Done)) == 1


@pytest.mark.net
async def test_durable_subscriptions_are_counted_across_connections(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.write_text(
        f'[principals.mallory]\nsubscribe = "TRUE"\ntokens = ["{hashed_token("m")}"]\n'
        "[principals.mallory.limits]\nsubscriptions_max = 5\n"
        f'[principals.anna]\nsubscribe = "TRUE"\npublish = "TRUE"\ntokens = ["{hashed_token("a")}"]\n',
        encoding="utf-8",
    )
    access.chmod(0o600)
    with running_broker("A", "--access", str(access), "--data-dir", str(tmp_path / "data")) as broker:
        answers = []
        for number in range(60):
            async with connect(broker.address, token="m") as mallory:
                try:
                    await mallory.subscribe("TRUE", durable=f"log-{number}")
                    answers.append("made")
                except RequestRefusedError as error:
                    answers.append(error.code)
        assert answers == ["made"] * 5 + ["limit"] * 55
        async with asyncio.timeout(DEADLINE_S), connect(broker.address, token="a") as anna:
            log = await anna.subscribe("n = 1", durable="log-0")
            await anna.publish({"n": 1}, delivery="acknowledged")
            assert (await log.get())["n"] == 1
