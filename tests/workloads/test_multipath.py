"""Do the multipath datasets match as often as designed, and does the plain tree carry what the paper says?"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

import braid
from braid.errors import ConfigurationError
from braid.sim.topologies import topology
from braid.workloads import Workload, attribute_rows, workload
from braid.workloads.multipath import brokers_per_class, interests

SEEDS = range(1, 6)
PUBLICATIONS = 36_000


def subtree_edges(links: list[tuple[str, str]], broker: str, wanted: frozenset[str]) -> int:
    """How many links join a broker with all that want its publication: the messages of plain forwarding."""
    neighbours: dict[str, list[str]] = defaultdict(list)
    for left, right in links:
        neighbours[left].append(right)
        neighbours[right].append(left)

    def edges(at: str, came_from: str | None) -> tuple[int, bool]:
        below = [edges(each, at) for each in neighbours[at] if each != came_from]
        count = sum(used + 1 for used, needed in below if needed)
        return count, at in wanted or any(needed for _, needed in below)

    return edges(broker, None)[0]


def messages_and_deliveries(made: Workload, seed: int) -> tuple[float, float]:
    """Messages between brokers and deliveries that 36,000 publications cause on C1, all classes alike."""
    brokers = topology("C1", seed).brokers
    place = {broker: number for number, broker in enumerate(brokers)}
    links = [(place[left], place[right]) for left, right in topology("C1", seed).links]
    # One side of every link, found by removing it; a message crosses when someone behind it wants it.
    behind = np.zeros((len(links), len(brokers)), dtype=bool)
    for number, (left, right) in enumerate(links):
        reached = {right}
        while True:
            more = {
                b if a in reached else a
                for a, b in links
                if {a, b} != {left, right} and ((a in reached) != (b in reached))
            }
            if not more:
                break
            reached |= more
        behind[number, sorted(reached)] = True
    known = interests(seed, made.parameters)
    classes = known.wanted.shape[1]
    wanted = np.zeros((len(known.publishers) * classes, len(brokers)), dtype=np.int64)
    wanted[:, known.subscribers] = known.wanted.reshape(-1, len(known.subscribers))
    publisher = np.repeat(known.publishers, classes)
    found = behind.astype(np.int64) @ wanted.T
    crossed = np.where(behind[:, publisher], wanted.sum(axis=1) - found, found) > 0
    return crossed.sum() * PUBLICATIONS / len(wanted), wanted.sum() * PUBLICATIONS / len(wanted)


def test_the_two_ways_to_count_messages_agree() -> None:
    made = workload("multipath.DT1", seed=2)
    known = interests(2, made.parameters)
    network = topology("C1", 2)
    total = sum(
        subtree_edges(
            list(network.links),
            network.brokers[known.publishers[publisher]],
            frozenset(network.brokers[each] for each in known.subscribers[known.wanted[publisher, kind]]),
        )
        for publisher in range(60)
        for kind in range(60)
    )
    messages, _ = messages_and_deliveries(made, 2)
    assert messages == pytest.approx(total * PUBLICATIONS / 3_600)


@pytest.mark.parametrize(
    ("name", "deliveries", "yield_min", "yield_max", "forwarders"),
    [
        ("multipath.DT1", 348_000, 0.37, 0.39, 559_000),
        ("multipath.DT2", 1_034_000, 0.50, 0.52, 1_010_000),
    ],
)
def test_plain_forwarding_on_c1_has_the_yield_of_the_paper(
    name: str, deliveries: int, yield_min: float, yield_max: float, forwarders: int
) -> None:
    counts = np.array([messages_and_deliveries(workload(name, seed=seed), seed) for seed in SEEDS])
    messages, delivered = counts.mean(axis=0)
    assert delivered == pytest.approx(deliveries, rel=0.001)
    assert yield_min <= float(np.mean(counts[:, 1] / counts[:, 0])) <= yield_max
    assert messages - delivered == pytest.approx(forwarders, rel=0.05)


@pytest.mark.parametrize(("name", "mean"), [("multipath.DT1", 580 / 60), ("multipath.DT2", 1_723 / 60)])
def test_a_round_of_classes_matches_exactly_as_many_brokers_as_designed(name: str, mean: float) -> None:
    made = workload(name, seed=4, duration_s=60)
    answers = matching_brokers(made)
    assert len(answers) == 3_600
    assert np.mean([len(brokers) for brokers in answers]) == pytest.approx(mean)
    subscribers = {row["broker"] for row in made.local("brokers").to_pylist() if row["role"] == "subscriber"}
    assert set().union(*answers) == subscribers


def matching_brokers(made: Workload) -> list[set[str]]:
    """The brokers whose subscriptions match, publication by publication, by the matching engine."""
    index = braid.FilterIndex()
    subscriptions = made.local("subscriptions").to_pylist()
    for number, row in enumerate(subscriptions):
        index.add(number, braid.Filter(row["filter"]))
    return [
        {subscriptions[number]["broker"] for number in numbers}
        for numbers in index.match_batch(attribute_rows(made.local("publications")))
    ]


def test_dt1_has_about_as_many_subscriptions_as_the_paper() -> None:
    for seed in SEEDS:
        assert workload("multipath.DT1", seed=seed).tables["subscriptions"].rows == pytest.approx(
            6_500, rel=0.05
        )


def test_publications_are_numbered_and_in_order_and_every_class_is_published_alike() -> None:
    made = workload("multipath.DT1", duration_s=60)
    rows = made.local("publications").to_pylist()
    by_client: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_client[row["client"]].append(row)
    assert [row["at_us"] for row in rows] == sorted(row["at_us"] for row in rows)
    assert len(by_client) == 60
    for client, sent in by_client.items():
        assert [row["sequence"] for row in sent] == list(range(1, 61))
        assert {row["attributes"]["source"] for row in sent} == {client}
        assert Counter(row["attributes"]["class"] for row in sent) == Counter(range(1, 61))
        assert len({row["broker"] for row in sent}) == 1
    roles = Counter(row["role"] for row in made.local("brokers").to_pylist())
    assert roles == {"publisher": 60, "subscriber": 60}


def test_sizes_of_classes_follow_zipf_below_the_cap() -> None:
    sizes = brokers_per_class(60, 1.2, 28.72, 60)
    assert sizes.sum() == 1_723
    assert sizes.max() == 60
    free = np.flatnonzero(sizes < 60)[:20]
    expected = sizes[free[0]] * ((free + 1) / (free[0] + 1)) ** -1.2
    assert sizes[free] == pytest.approx(expected, abs=1.2)


def test_a_rate_gives_its_number_of_publications() -> None:
    for rate, count in ((3_600, 36_000), (72_000, 720_000), (7_200, 72_000)):
        assert workload("multipath.DT1", rate_per_minute=rate).tables["publications"].rows == count


@pytest.mark.parametrize(
    ("name", "brokers", "share"),
    [("multipath.DT3", 250, 20.15 / 125), ("multipath.DT4", 21, 0.2), ("multipath.DT5", 21, 0.5)],
)
def test_the_other_datasets_are_as_dense_as_they_say(name: str, brokers: int, share: float) -> None:
    made = workload(name)
    known = interests(1, made.parameters)
    assert made.tables["brokers"].rows == brokers
    assert known.wanted.mean() == pytest.approx(share, abs=0.002)


def test_dt4_matches_by_the_engine_as_designed() -> None:
    answers = matching_brokers(workload("multipath.DT4", duration_s=20))
    assert np.mean([len(brokers) for brokers in answers]) == pytest.approx(2.0, rel=0.03)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"publishers": 100},
            "publishers (100) and subscribers (60) need a broker each, and there are only 120",
        ),
        ({"matching_mean": 61}, "matching_mean is more than 0 and at most the 60 subscribers, not 61.0"),
        ({"matching_mean": 0}, "matching_mean is more than 0"),
        ({"classes": 2.5}, "multipath.DT1: classes is a whole number from 1 to 10000, not 2.5"),
        ({"classes": True}, "multipath.DT1: classes is a whole number from 1 to 10000, not True"),
        ({"exponent": "steep"}, "multipath.DT1: exponent is a number from 0 to 10, not 'steep'"),
        ({"rate_per_minute": float("nan")}, "rate_per_minute is a number from 0 to 1e+09, not nan"),
        ({"spread": "random"}, "multipath.DT1: spread is 'even' or 'poisson', not 'random'"),
        ({"classs": 3}, "multipath.DT1 has no parameter 'classs'; did you mean 'classes'?"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as problem:
        workload("multipath.DT1", **parameters)
    assert message in str(problem.value)


def test_an_unknown_workload_gets_a_suggestion() -> None:
    with pytest.raises(
        ConfigurationError, match=r"no workload 'multipath.dt2'; did you mean 'multipath.DT2'\?"
    ):
        workload("multipath.dt2")
    with pytest.raises(ConfigurationError, match=r"known are multipath\.DT1, .*, siena, quotes"):
        workload("zzz")
