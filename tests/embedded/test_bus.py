"""Does the bus deliver exactly what was asked for, and say clearly what cannot be?"""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.embedded import Bus, BusReceipt, BusSubscription, open
from braid.errors import BusClosedError, ConfigurationError, FilterSyntaxError, PublicationError
from braid.language import Filter, Publication, Range

TEXTS = [
    "price > 10",
    "price BETWEEN 5 AND 15 AND symbol = 'ACME'",
    "symbol LIKE 'A%' OR halted",
    "volume IS NULL",
    "NOT (price > 10)",
    "price * 2 < volume",
    "symbol IN ('ACME', 'ZINC') AND NOT halted",
]
ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        "symbol": st.sampled_from(["ACME", "ZINC", "ARGO"]),
        "price": st.one_of(st.integers(0, 20), st.floats(0, 20), st.just(Range(8, 12))),
        "volume": st.one_of(st.none(), st.integers(0, 40)),
        "halted": st.booleans(),
    },
)


def numbers(subscription: BusSubscription) -> list[int]:
    """The numbers of all that is queued, once the bus is closed."""
    return [publication.sequence for publication in subscription]


@given(batches=st.lists(st.lists(ATTRIBUTES, min_size=1, max_size=5), max_size=6), late=st.integers(0, 5))
def test_each_subscriber_gets_exactly_what_a_naive_twin_says(batches: list[list[dict]], late: int) -> None:
    conditions = [Filter(text) for text in TEXTS]
    expected: list[list[int]] = [[] for _ in conditions]
    with open() as bus:
        subscriptions = [bus.subscribe(condition) for condition in conditions[:4]]
        sequence = 0
        for turn, batch in enumerate(batches):
            if turn == late:
                subscriptions += [bus.subscribe(condition) for condition in conditions[4:]]
            receipt = bus.publish(batch[0]) if len(batch) == 1 else bus.publish_batch(batch)
            assert receipt.sequence == sequence + 1
            assert receipt.published == len(batch)
            delivered = 0
            for attributes in batch:
                sequence += 1
                for position, _ in enumerate(subscriptions):
                    if conditions[position].matches(attributes):
                        expected[position].append(sequence)
                        delivered += 1
            assert receipt.delivered == delivered
    assert [numbers(subscription) for subscription in subscriptions] == expected[: len(subscriptions)]


def test_a_publication_arrives_whole() -> None:
    with open("desk") as bus, bus.subscribe("price > 10") as quotes:
        receipt = bus.publish({"price": 12, "note": None}, b"{}", "application/json", publisher="feed")
        publication = quotes.get(timeout_s=0)
    assert receipt == BusReceipt("feed", 1, 1, 1)
    assert publication.attributes == {"price": 12}
    assert (publication.body, publication.content_type) == (b"{}", "application/json")
    assert (publication.publisher, publication.sequence) == ("feed", 1)
    assert publication.published_at_us > 0


def test_numbers_run_per_publisher_without_gaps() -> None:
    with open("desk") as bus:
        quotes = bus.subscribe("price > 0")
        bus.publish({"price": 1})
        bus.publish({"price": 1}, publisher="feed")
        bus.publish_batch([{"price": 0}, {"price": 2}, {"price": 3}])
        assert bus.publish({"price": 1}, publisher="feed").sequence == 2
    ids = [(publication.publisher, publication.sequence) for publication in quotes]
    assert ids == [("desk", 1), ("feed", 1), ("desk", 3), ("desk", 4), ("feed", 2)]


def test_an_empty_batch_is_published_as_nothing() -> None:
    with open() as bus:
        assert bus.publish_batch([]) == BusReceipt("local", 1, 0, 0)
        assert bus.publish({}).sequence == 1
        assert bus.statistics().published == 1


def test_a_batch_may_hold_publications_with_bodies() -> None:
    with open() as bus:
        everything = bus.subscribe("price >= 0")
        bus.publish_batch([Publication({"price": 1}, b"one", "text/plain", "other", 99), {"price": 2}])
    first, second = everything
    assert (first.body, first.content_type, first.publisher, first.sequence) == (
        b"one",
        "text/plain",
        "local",
        1,
    )
    assert (second.body, second.sequence) == (b"", 2)


def test_nothing_is_delivered_after_unsubscribing() -> None:
    with open() as bus:
        quotes = bus.subscribe("price > 0")
        bus.publish({"price": 1})
        quotes.close()
        quotes.close()
        assert bus.publish({"price": 2}).delivered == 0
        assert quotes.closed
        assert list(quotes) == []
        with pytest.raises(BusClosedError, match="subscription-1"):
            quotes.get()
        assert quotes.statistics().discarded == 1


def test_a_subscription_that_nobody_holds_is_closed() -> None:
    with open() as bus:
        bus.subscribe("price > 0", queue_size=1)
        for _ in range(3):
            assert bus.publish({"price": 1}).delivered == 0
        assert bus.statistics().subscriptions == ()


def test_get_gives_up_in_time_and_loses_nothing() -> None:
    with open() as bus:
        quotes = bus.subscribe("price > 0", name="quotes")
        for _ in range(3):
            with pytest.raises(TimeoutError, match="'quotes'"):
                quotes.get(timeout_s=0)
        bus.publish({"price": 1})
        assert quotes.get(timeout_s=0)["price"] == 1


def test_a_bad_filter_changes_nothing() -> None:
    with open() as bus:
        with pytest.raises(FilterSyntaxError):
            bus.subscribe("price >")
        assert bus.statistics().subscriptions == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"queue_size": 0}, "queue_size"),
        ({"queue_size": 1.5}, "queue_size"),
        ({"queue_size": True}, "queue_size"),
        ({"when_full": "explode"}, "'block', 'drop_oldest', 'disconnect'"),
        ({"name": ""}, "name"),
        ({"callback": 7}, "callable"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: dict, message: str) -> None:
    with open() as bus:
        with pytest.raises(ConfigurationError, match=message):
            bus.subscribe("price > 0", **arguments)
        assert bus.statistics().subscriptions == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attributes": {"price": [1]}}, "'price'"),
        ({"attributes": {"quote": {"price": 1}}}, "'quote'"),
        ({"attributes": "price"}, "mapping"),
        ({"attributes": {}, "body": "text"}, "encode"),
        ({"attributes": {}, "content_type": None}, "content type"),
    ],
)
def test_publications_that_cannot_be_are_refused(arguments: dict, message: str) -> None:
    with open() as bus:
        with pytest.raises(PublicationError, match=message):
            bus.publish(**arguments)
        assert bus.publish({}).sequence == 1


def test_a_batch_is_published_whole_or_not_at_all() -> None:
    with open() as bus:
        quotes = bus.subscribe("price > 0")
        with pytest.raises(PublicationError, match="publication 1 of the batch: attribute 'price'"):
            bus.publish_batch([{"price": 1}, {"price": object()}])
        with pytest.raises(TimeoutError):
            quotes.get(timeout_s=0)


def test_a_publisher_needs_a_name_and_a_timeout_a_sign() -> None:
    with pytest.raises(ConfigurationError, match="name of a bus"):
        Bus("")
    with open() as bus:
        with pytest.raises(ConfigurationError, match="publisher"):
            bus.publish({}, publisher="")
        with pytest.raises(ConfigurationError, match="timeout"):
            bus.publish({}, timeout_s=-1)


def test_subscribers_cannot_change_each_others_attributes() -> None:
    with open() as bus:
        quotes = bus.subscribe("price > 0")
        original = {"price": 1}
        bus.publish(original)
        original["price"] = 2
        attributes = quotes.get().attributes
    for change in (
        lambda: attributes.update(price=3),
        lambda: attributes.__setitem__("price", 3),
        lambda: attributes.__ior__({"price": 3}),
        lambda: attributes.pop("price"),
        attributes.clear,
    ):
        with pytest.raises(TypeError, match="copy"):
            change()
    assert attributes == {"price": 1}
    assert json.loads(json.dumps(attributes)) == {"price": 1}
    assert pickle.loads(pickle.dumps(attributes)) == {"price": 1}
    assert {**attributes, "price": 4} == {"price": 4}


def test_statistics_account_for_every_publication() -> None:
    with open() as bus:
        read = bus.subscribe("price > 0", name="read")
        dropping = bus.subscribe("price > 1", name="dropping", queue_size=1, when_full="drop_oldest")
        gone = bus.subscribe("price > 0", name="gone")
        bus.publish_batch([{"price": 1}, {"price": 2}, {"price": 3}, {"price": 0}])
        read.get()
        gone.close()
        statistics = bus.statistics()
    assert (statistics.published, statistics.matched, statistics.delivered) == (4, 8, 1)
    assert (statistics.queued, statistics.dropped, statistics.discarded) == (3, 1, 3)
    by_name = {entry.name: entry for entry in statistics.subscriptions}
    assert set(by_name) == {"read", "dropping"}
    assert (by_name["read"].delivered, by_name["read"].queued) == (1, 2)
    assert (by_name["dropping"].dropped, by_name["dropping"].queued) == (1, 1)
    assert by_name["dropping"].filter == "price > 1"
    assert json.loads(json.dumps(statistics.to_json()))["subscriptions"][0]["name"] == "read"
    assert dropping.statistics().dropped == 1


def test_people_can_read_what_they_hold() -> None:
    with open("desk") as bus:
        quotes = bus.subscribe(Filter("price > 0"), name="quotes")
        assert repr(bus) == "<Bus 'desk' open>"
        assert repr(quotes) == "<BusSubscription 'quotes' open: price > 0>"
        assert quotes.filter == Filter("price > 0")
    assert repr(bus) == "<Bus 'desk' closed>"
    assert repr(quotes) == "<BusSubscription 'quotes' closed: price > 0>"


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", True, 1j])
async def test_every_timeout_is_checked(seconds: object) -> None:
    with open() as bus:
        quotes = bus.subscribe("price > 0")
        awaited = await bus.for_tasks.subscribe("price < 0")
        bus.publish({"price": 1})
        for call in (
            lambda: bus.publish({}, timeout_s=seconds),
            lambda: bus.publish_batch([{}], timeout_s=seconds),
            lambda: bus.close(timeout_s=seconds),
            lambda: quotes.get(seconds),
            lambda: quotes.get_many(2, seconds),
            lambda: quotes.close(seconds),
        ):
            with pytest.raises(ConfigurationError, match="a timeout is"):
                call()
        for coroutine in (
            bus.for_tasks.publish({}, timeout_s=seconds),
            bus.for_tasks.publish_batch([{}], timeout_s=seconds),
            bus.for_tasks.close(timeout_s=seconds),
            awaited.get(seconds),
            awaited.get_many(2, seconds),
            awaited.close(seconds),
        ):
            with pytest.raises(ConfigurationError, match="a timeout is"):
                await coroutine
        assert (bus.closed, quotes.closed, awaited.closed) == (False, False, False)
        assert quotes.get(timeout_s=10**400)["price"] == 1


@pytest.mark.parametrize("condition", [5, None, b"price > 0", ["price > 0"]])
def test_subscribing_needs_a_filter_or_its_text(condition: object) -> None:
    with open() as bus, pytest.raises(ConfigurationError, match="a filter or its text, not"):
        bus.subscribe(condition)


async def test_a_publication_can_be_published_again() -> None:
    with open("desk") as bus:
        quotes = bus.subscribe("price > 0")
        bus.publish(Publication({"price": 1}, b"body", "text/plain", "someone", 17))
        received = quotes.get(timeout_s=0)
        bus.publish_batch([received])
        await bus.for_tasks.publish(received)
        for sequence, publication in enumerate(
            [received, quotes.get(timeout_s=0), quotes.get(timeout_s=0)], 1
        ):
            assert (publication["price"], publication.body) == (1, b"body")
            assert publication.content_type == "text/plain"
            assert (publication.publisher, publication.sequence) == ("desk", sequence)
        for parts in ({"body": b"other"}, {"content_type": "other"}):
            with pytest.raises(PublicationError, match="its own body"):
                bus.publish(received, **parts)


@pytest.mark.parametrize("batch", [{"price": 1}, Publication({"price": 1}), "price", b"price", 5, None])
def test_a_batch_is_an_iterable_of_publications(batch: object) -> None:
    with open() as bus:
        with pytest.raises(PublicationError, match="a batch is an iterable of publications"):
            bus.publish_batch(batch)
        assert bus.statistics().published == 0


def test_an_error_handler_is_a_plain_function() -> None:
    async def on_error(*_: object) -> None: ...

    for handler, reason in ((5, "callable, not int"), (on_error, "a plain function")):
        with pytest.raises(ConfigurationError, match=reason):
            open(on_error=handler)
        with open() as bus:
            with pytest.raises(ConfigurationError, match=reason):
                bus.subscribe("price > 0", print, on_error=handler)
            assert bus.statistics().subscriptions == ()


async def test_several_can_be_read_at_once() -> None:
    with open() as bus:
        quotes = bus.subscribe("price > 0")
        awaited = await bus.for_tasks.subscribe("price > 0")
        bus.publish_batch([{"price": price} for price in (1, 2, 3)])
        assert [row["price"] for row in quotes.get_many(2)] == [1, 2]
        assert [row["price"] for row in quotes.get_many(2)] == [3]
        assert [row["price"] for row in await awaited.get_many(5)] == [1, 2, 3]
        for problem in (0, True, "3"):
            with pytest.raises(ConfigurationError, match="count_max"):
                quotes.get_many(problem)  # type: ignore[arg-type] # that is the point
        with pytest.raises(TimeoutError):
            quotes.get_many(2, timeout_s=0)
