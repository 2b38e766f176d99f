"""With many threads at once: is everything delivered, once, and in its publisher's order?"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from functools import partial

import pytest

from braid.embedded import open
from braid.language import Filter, Publication
from tests.embedded.helpers import Background, no_threads_left

PUBLISHERS = 4
ROUNDS = 60
CONDITIONS = [Filter(text) for text in ("n % 2 = 0", "n < 30", "publisher = 'p1'", "n >= 0", "n > 1000")]


@pytest.mark.parametrize("queue_size", [1, 7, 10_000])
def test_concurrent_publishers_and_all_kinds_of_subscribers(queue_size: int) -> None:
    seen: dict[int, list[Publication]] = defaultdict(list)
    expected: dict[int, set[tuple[str, int]]] = defaultdict(set)
    start = threading.Barrier(PUBLISHERS)
    guard = threading.Lock()

    def publish(position: int) -> int:
        draws = random.Random(position)
        name, sequence, delivered = f"p{position}", 0, 0
        start.wait()
        for _ in range(ROUNDS):
            batch = [{"n": draws.randrange(60), "publisher": name} for _ in range(draws.randrange(1, 5))]
            receipt = (
                bus.publish(batch[0], publisher=name)
                if len(batch) == 1
                else bus.publish_batch(batch, publisher=name)
            )
            assert receipt.sequence == sequence + 1
            delivered += receipt.delivered
            for attributes in batch:
                sequence += 1
                with guard:
                    for key, condition in enumerate(CONDITIONS):
                        if condition.matches(attributes):
                            expected[key].add((name, sequence))
        return delivered

    with no_threads_left():
        with open() as bus:
            readers = []
            for key, condition in enumerate(CONDITIONS):
                if key % 2:
                    bus.subscribe(condition, seen[key].append, queue_size=queue_size)
                else:
                    subscription = bus.subscribe(condition, queue_size=queue_size)
                    readers.append(Background(partial(seen[key].extend, subscription)))
            publishers = [Background(partial(publish, position)) for position in range(PUBLISHERS)]
            delivered = sum(publisher.result() for publisher in publishers)
        for reader in readers:
            reader.result()

    assert delivered == sum(map(len, expected.values())) == bus.statistics().delivered
    for key, publications in seen.items():
        ids = [(publication.publisher, publication.sequence) for publication in publications]
        assert len(ids) == len(set(ids))
        assert set(ids) == expected[key]
        for position in range(PUBLISHERS):
            sequences = [sequence for name, sequence in ids if name == f"p{position}"]
            assert sequences == sorted(sequences)


def test_subscribing_and_unsubscribing_under_load() -> None:
    stop = threading.Event()

    def publish(position: int) -> None:
        n = 0
        while not stop.is_set():
            bus.publish({"n": n}, publisher=f"p{position}")
            n += 1

    def come_and_go() -> None:
        for turn in range(40):
            with bus.subscribe("n >= 0", queue_size=2) as subscription:
                # Published from elsewhere: this thread must be free to make room for it.
                mark = Background(lambda turn=turn: bus.publish({"n": turn}, publisher=f"mark {turn}"))
                while subscription.get(timeout_s=60).publisher != f"mark {turn}":
                    pass
                assert mark.result().delivered == 1

    with no_threads_left(), open() as bus:
        publishers = [Background(partial(publish, position)) for position in range(2)]
        come_and_go()
        stop.set()
        for publisher in publishers:
            publisher.result()
        assert bus.statistics().subscriptions == ()
        total = bus.statistics()
    assert total.matched == total.delivered + total.discarded
