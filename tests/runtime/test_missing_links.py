"""What does a subscriber hear while links of the network are down?"""

from __future__ import annotations

import pytest

from braid.errors import RequestRefusedError, UnreachedError
from braid.runtime.connecting import connect, connect_sync
from tests.runtime.fake_broker import DEADLINE_S, until
from tests.runtime.test_client_with_broker import line_of

pytestmark = pytest.mark.net


@pytest.mark.parametrize("durable", [None, "log"])
async def test_the_error_names_the_missing_links(durable: str | None) -> None:
    async with (
        line_of("A", "B", "C") as brokers,
        connect(brokers[0].address, request_timeout_s=1.0) as client,
    ):
        await brokers[2].stop()
        await until(lambda: brokers[0].core._links.links["B"].missing == ("B to C",))
        with pytest.raises(UnreachedError, match="B to C") as caught:
            await client.subscribe("n > 0", durable=durable)
        assert isinstance(caught.value, RequestRefusedError)
        assert isinstance(caught.value, TimeoutError)
        partial = await client.subscribe("n > 0", durable=durable, partial=True)
        assert partial.missing == ("B to C",)
        await client.publish({"n": 1})
        assert (await partial.get(DEADLINE_S))["n"] == 1


async def test_the_answer_comes_as_soon_as_the_link_is_back() -> None:
    async with line_of("A", "B") as brokers, connect(brokers[0].address) as client:
        await brokers[1].stop()
        await until(lambda: not brokers[0].core._links.links["B"].current)
        await brokers[1].start()
        subscription = await client.subscribe("n > 0")
        assert subscription.missing == ()
        async with connect(brokers[1].address) as publisher:
            for number in range(1, 101):
                await publisher.publish({"n": number}, delivery="acknowledged")
            await publisher.flush(DEADLINE_S)
        assert [(await subscription.get(DEADLINE_S))["n"] for _ in range(100)] == list(range(1, 101))


async def test_without_asyncio_it_is_the_same() -> None:
    import asyncio

    async with line_of("A", "B") as brokers:
        await brokers[1].stop()
        await until(lambda: not brokers[0].core._links.links["B"].current)

        def use() -> tuple[str, ...]:
            with connect_sync(brokers[0].address, request_timeout_s=1.0) as client:
                with pytest.raises(UnreachedError, match="A to B"):
                    client.subscribe("n > 0")
                return client.subscribe("n > 0", partial=True).missing

        assert await asyncio.to_thread(use) == ("A to B",)
