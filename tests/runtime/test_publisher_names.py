"""Whose is a publisher's name, and what becomes of publications that are taken for repetitions?"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from braid.broker.access import AccessPolicy, Grant, Principal, hashed_token
from braid.runtime.connecting import connect
from tests.runtime.fake_broker import DEADLINE_S
from tests.runtime.test_client_with_broker import RunningBroker, line_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.net

HUGE = 2**62


@asynccontextmanager
async def guarded() -> AsyncIterator[RunningBroker]:
    """A broker that knows two principals, one called like the other with a dot and more."""
    principals = {name: Principal(name, Grant.everything()) for name in ("till", "till.sub")}
    access = AccessPolicy(
        principals,
        {hashed_token(name): name for name in principals},
        anonymous=Principal("anonymous", Grant.everything()),
    )
    broker = RunningBroker("A", access=access)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@pytest.mark.parametrize("silencer", [None, "till"], ids=["anonymous", "till"])
async def test_nobody_silences_the_publisher_of_another_principal(silencer: str | None) -> None:
    async with guarded() as broker, connect(broker.address, token="till") as reader:
        quotes = await reader.subscribe("n >= 0")
        # What the victim is going to be called, in whatever way the silencer could bring about.
        for name, publisher in (
            ("till.sub", "till.sub.quotes"),
            ("sub", "sub.quotes"),
            ("quotes", "quotes"),
            ("till.sub/quotes", "till.sub/quotes"),
        ):
            async with connect(
                broker.address, name=name, publisher=publisher, token=silencer, first_sequence=HUGE
            ) as client:
                await (await client.publish({"n": 0}))
                assert (await quotes.get(DEADLINE_S))["n"] == 0
        async with connect(broker.address, name="quotes", publisher="quotes", token="till.sub") as victim:
            receipt = await victim.publish({"n": 1}, delivery="acknowledged")
            await receipt
            assert not receipt.discarded
            publication = await quotes.get(DEADLINE_S)
            assert (publication["n"], publication.publisher) == (1, "till.sub/quotes")


@pytest.mark.parametrize("delivery", ["fast", "acknowledged"])
async def test_a_program_that_runs_again_is_heard_again(delivery: str) -> None:
    async with line_of("A", "B") as brokers, connect(brokers[1].address) as reader:
        plain = await reader.subscribe("n >= 0")
        durable = await reader.subscribe("n >= 0", durable="log")
        for first in (1, HUGE, 1, 1):
            async with connect(brokers[0].address, publisher="job", first_sequence=first) as client:
                receipts = [await client.publish({"n": number}, delivery=delivery) for number in range(3)]
                for receipt in receipts:
                    await receipt
                assert [receipt.status for receipt in receipts] == ["delivered"] * 3
            for subscription in (plain, durable):
                rows = [await subscription.get(DEADLINE_S) for _ in range(3)]
                assert [row["n"] for row in rows] == [0, 1, 2]
                assert {row.publisher for row in rows} == {"job"}
                assert {row.epoch for row in rows} == {client.epoch}
                assert [row.sequence for row in rows] == [first, first + 1, first + 2]


@pytest.mark.parametrize("delivery", ["fast", "acknowledged"])
async def test_a_batch_job_that_is_tried_again_with_its_epoch_is_recognised(delivery: str) -> None:
    async with line_of("A") as brokers, connect(brokers[0].address) as reader:
        found = await reader.subscribe("n >= 0")
        for attempt in range(2):
            async with connect(brokers[0].address, publisher="job", epoch="monday") as client:
                receipts = [await client.publish({"n": number}, delivery=delivery) for number in range(5)]
                if attempt:
                    # The second attempt gets further than the first.
                    receipts.append(await client.publish({"n": 5}, delivery=delivery))
                for receipt in receipts:
                    await receipt
                assert [receipt.discarded for receipt in receipts] == [bool(attempt)] * 5 + [False] * attempt
                assert client.discards == 5 * attempt
        assert [(await found.get(DEADLINE_S))["n"] for _ in range(6)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("delivery", ["fast", "acknowledged"])
async def test_what_is_too_old_to_be_told_from_a_repetition_has_no_receipt_of_delivery(delivery: str) -> None:
    async with line_of("A") as brokers, connect(brokers[0].address) as reader:
        found = await reader.subscribe("n >= 0")
        for first in (HUGE, 1):
            async with connect(
                brokers[0].address, publisher="job", epoch="monday", first_sequence=first
            ) as client:
                receipt = await client.publish({"n": first}, delivery=delivery)
                assert receipt.status == "waiting"
                await receipt
                assert receipt.status == ("discarded" if first == 1 else "delivered")
        assert (await found.get(DEADLINE_S))["n"] == HUGE
        assert (found.statistics().queued, found.statistics().waiting) == (0, 0)


async def test_anonymous_clients_cannot_use_each_others_names() -> None:
    async with line_of("A") as brokers, connect(brokers[0].address) as reader:
        found = await reader.subscribe("n >= 0")
        async with (
            connect(brokers[0].address, publisher="quotes") as victim,
            connect(brokers[0].address, publisher="quotes", epoch=victim.epoch, first_sequence=HUGE) as eve,
        ):
            await (await eve.publish({"n": 0}))
            receipt = await victim.publish({"n": 1})
            await receipt
            assert not receipt.discarded
            assert [(await found.get(DEADLINE_S))["n"] for _ in range(2)] == [0, 1]


async def test_a_secret_keeps_an_anonymous_name_over_restarts() -> None:
    async with line_of("A") as brokers, connect(brokers[0].address) as reader:
        found = await reader.subscribe("n >= 0")
        outcomes = []
        for secret in ("mine", "mine", "another"):
            async with connect(brokers[0].address, publisher="job", epoch="monday", secret=secret) as client:
                receipt = await client.publish({"n": 1})
                await receipt
                outcomes.append(receipt.discarded)
        assert outcomes == [False, True, False]
        rows = [await found.get(DEADLINE_S) for _ in range(2)]
        assert rows[0].publisher == rows[1].publisher
        assert rows[0].epoch != rows[1].epoch
