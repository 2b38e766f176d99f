"""Have the synthetic workloads the distributions that the papers state?"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest

import braid
from braid.errors import ConfigurationError
from braid.workloads import Workload, attribute_rows, workload
from braid.workloads.availability import value_shares
from braid.workloads.draws import zipf_shares
from braid.workloads.siena import (
    ATTRIBUTES_PER_MESSAGE,
    CONSTRAINTS_PER_FILTER,
    INTEGER_OPERATORS,
    STRING_OPERATORS,
    WORDS,
)


def subscriptions(made: Workload) -> list[dict[str, Any]]:
    return made.local("subscriptions").to_pylist()


def publications(made: Workload) -> list[dict[str, Any]]:
    return made.local("publications").to_pylist()


def matches(made: Workload, publication_count: int = 200) -> list[set[int]]:
    """Numbers of the matching subscriptions of the first publications, by the engine."""
    index = braid.FilterIndex()
    for number, row in enumerate(subscriptions(made)):
        index.add(number, braid.Filter(row["filter"]))
    return index.match_batch(attribute_rows(made.local("publications").slice(0, publication_count)))


def sequences_are_whole(rows: list[dict[str, Any]]) -> bool:
    """True when times ascend and the publications of each client are numbered 1, 2, 3, ..."""
    seen: Counter[str] = Counter()
    for row in rows:
        seen[row["client"]] += 1
        if row["sequence"] != seen[row["client"]]:
            return False
    return all(first["at_us"] <= second["at_us"] for first, second in itertools.pairwise(rows))


class TestCovering:
    def test_levels_add_predicates_and_double(self) -> None:
        made = workload("multipath.DT-C", subscriptions=6_000)
        predicates = Counter(row["filter"].count("BETWEEN") for row in subscriptions(made))
        assert [predicates[level] / 6_000 for level in range(4)] == pytest.approx(
            [1 / 15, 2 / 15, 4 / 15, 8 / 15], abs=0.02
        )

    def test_filters_are_covered_by_those_above_them_and_by_no_others(self) -> None:
        made = workload("multipath.DT-C", subscriptions=60, topics=2, branching=2)
        texts = sorted({row["filter"] for row in subscriptions(made)})
        for wide, narrow in itertools.permutations(texts, 2):
            assert braid.Filter(wide).covers(braid.Filter(narrow)) == narrow.startswith(f"{wide} AND ")

    def test_most_subscriptions_are_covered_by_another(self) -> None:
        texts = {row["filter"] for row in subscriptions(workload("multipath.DT-C"))}
        covered = [text for text in texts if text.split(" AND ")[0] in texts and " AND " in text]
        assert len(covered) / len(texts) > 0.95

    def test_a_level_matches_as_often_as_its_slices_are_wide(self) -> None:
        made = workload("multipath.DT-C", subscriptions=3_000, topics=5)
        expected = (
            3_000 / 5 * sum(share / 4**level for level, share in enumerate((1 / 15, 2 / 15, 4 / 15, 8 / 15)))
        )
        found = [len(each) for each in matches(made, 1_000)]
        assert np.mean(found) == pytest.approx(expected, rel=0.1)
        assert sequences_are_whole(publications(made))

    def test_one_level_has_topics_only(self) -> None:
        made = workload("multipath.DT-C", depth=1, subscriptions=20, duration_s=1)
        assert all(re.fullmatch(r"topic = 'T\d\d'", row["filter"]) for row in subscriptions(made))


class TestSelfOrganising:
    SETTINGS: ClassVar[dict[str, Any]] = {
        "types": 20,
        "duration_ticks": 20_000,
        "publication_gap_ticks": 50.0,
        "tick_us": 1_000,
    }

    def test_nine_brokers_want_a_type_at_any_time(self) -> None:
        made = workload("selforganising", **self.SETTINGS)
        rows = subscriptions(made)
        for at_us in (0, 1, 3_333_333, 10_000_000, 19_999_999):
            for kind in range(20):
                there = [
                    row["broker"]
                    for row in rows
                    if row["filter"] == f"type = {kind}"
                    and row["at_us"] <= at_us
                    and (row["until_us"] is None or at_us < row["until_us"])
                ]
                assert len(there) == len(set(there)) == 9

    def test_subscriptions_last_exponentially_long(self) -> None:
        made = workload("selforganising", **self.SETTINGS)
        rows = subscriptions(made)
        # Every subscription begins as another one ends, so their number tells the mean length without bias.
        assert len(rows) == pytest.approx(20 * 9 * (1 + 20_000 / 2_500), rel=0.1)
        begun_early = [row for row in rows if row["at_us"] < 2_500_000]
        long = [
            row
            for row in begun_early
            if row["until_us"] is None or row["until_us"] - row["at_us"] > 2_500_000
        ]
        assert len(long) / len(begun_early) == pytest.approx(np.exp(-1), abs=0.07)
        assert [row["at_us"] for row in rows] == sorted(row["at_us"] for row in rows)
        assert len({row["client"] for row in rows}) == len({row["key"] for row in rows}) == len(rows)

    def test_publishers_publish_at_their_rate(self) -> None:
        made = workload("selforganising", **self.SETTINGS)
        rows = publications(made)
        assert len(rows) == 20 * 20_000 / 50
        assert sequences_are_whole(rows)
        per_type = Counter(row["attributes"]["type"] for row in rows)
        assert sorted(per_type) == list(range(20))
        assert min(per_type.values()) > 300
        gaps = np.diff([row["at_us"] for row in rows])
        assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)

    def test_defaults_are_those_of_the_paper(self) -> None:
        made = workload("selforganising")
        assert made.tables["brokers"].rows == 100
        assert made.tables["publications"].rows == 750_000
        # "approximately 50 notifications per issued subscription"
        assert 750_000 / made.tables["subscriptions"].rows == pytest.approx(50, rel=0.1)

    def test_more_subscribers_than_brokers_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="at most the number of brokers, 5, not 9"):
            workload("selforganising", brokers=5)
        assert (
            workload("selforganising", brokers=9, types=2, duration_ticks=5_000).tables["subscriptions"].rows
            > 18
        )


class TestAvailability:
    @pytest.mark.parametrize("degree", [0.1, 1.0, 4.0])
    @pytest.mark.parametrize("bias", ["low", "high"])
    def test_values_follow_their_zipf_distribution(self, degree: float, bias: str) -> None:
        made = workload(
            "availability",
            subscribers=10_000,
            subscription_degree=degree,
            subscription_bias=bias,
            duration_s=0,
        )
        asked = Counter(int(row["filter"].removeprefix("attribute > ")) for row in subscriptions(made))
        shares = np.array([asked[value] / 10_000 for value in range(1, 21)])
        expected = zipf_shares(20, degree) if bias == "low" else zipf_shares(20, degree)[::-1]
        assert shares == pytest.approx(expected, abs=0.015)

    @pytest.mark.parametrize(
        ("publication_bias", "subscription_bias"), [("high", "low"), ("low", "high"), ("high", "high")]
    )
    def test_the_fanout_is_what_the_two_distributions_make_it(
        self, publication_bias: str, subscription_bias: str
    ) -> None:
        made = workload(
            "availability",
            publication_bias=publication_bias,
            subscription_bias=subscription_bias,
            rate_per_minute=6_000,
        )
        published, asked = value_shares(20, 1.0, publication_bias), value_shares(20, 1.0, subscription_bias)
        expected = 1_000 * sum(published[value] * asked[:value].sum() for value in range(20))
        assert np.mean([len(each) for each in matches(made, 1_000)]) == pytest.approx(expected, rel=0.1)

    def test_places_are_exact_or_skewed(self) -> None:
        even = workload("availability", brokers=4, per_broker=25, subscribers=7)
        assert Counter(row["broker"] for row in subscriptions(even)) == dict.fromkeys(
            ["B000", "B001", "B002", "B003"], 25
        )
        skewed = workload("availability", brokers=4, subscribers=1_000, skew=0.8)
        assert sorted(Counter(row["broker"] for row in subscriptions(skewed)).items()) == [
            ("B000", 800),
            ("B001", 160),
            ("B002", 32),
            ("B003", 8),
        ]

    def test_distinct_filters_cover_nothing_and_match_what_names_them(self) -> None:
        made = workload("availability", brokers=3, per_broker=40, distinct=True)
        filters = [braid.Filter(row["filter"]) for row in subscriptions(made)]
        assert len(set(filters)) == 120
        assert not any(f.covers(g) for f in filters[:20] for g in filters[:20] if f is not g)
        sizes = [len(each) for each in matches(made, 120)]
        assert max(sizes) == 1
        assert 0.5 < np.mean(sizes) < 1.0

    def test_sizes_of_the_paper(self) -> None:
        made = workload("availability", publishers=1_000, subscribers=10_000)
        assert made.tables["subscriptions"].rows == 10_000
        assert len({row["client"] for row in publications(made)}) == 500
        assert sequences_are_whole(publications(workload("availability", rate_per_minute=9_000)))
        with pytest.raises(ConfigurationError, match="publication_bias is 'low' or 'high', not 'middle'"):
            workload("availability", publication_bias="middle")


class TestInfrastructureFree:
    def test_uniform_subscriptions_take_one_to_five_ranges(self) -> None:
        rows = subscriptions(workload("infrastructurefree.uniform", subscriptions=4_000))
        bounds = [re.findall(r"(a\d+) BETWEEN (\d+) AND (\d+)", row["filter"]) for row in rows]
        sizes = Counter(map(len, bounds))
        assert [sizes[size] / 4_000 for size in range(1, 6)] == pytest.approx([0.2] * 5, abs=0.03)
        names = Counter(name for each in bounds for name, _, _ in each)
        assert [names[f"a{each}"] / 12_000 for each in range(1, 11)] == pytest.approx([0.1] * 10, abs=0.02)
        ends = np.array([[int(low), int(high)] for each in bounds for _, low, high in each])
        assert (ends[:, 0] <= ends[:, 1]).all()
        assert (ends.min(), ends.max()) == (1, 256)
        # The smaller and the larger of two uniform draws.
        assert ends.mean(axis=0) == pytest.approx([1 + 255 / 3, 1 + 255 * 2 / 3], abs=4)

    def test_publications_take_one_to_ten_values(self) -> None:
        made = workload("infrastructurefree.uniform", publish_s=300)
        rows = attribute_rows(made.local("publications"))
        sizes = Counter(map(len, rows))
        assert [sizes[size] / 3_000 for size in range(1, 11)] == pytest.approx([0.1] * 10, abs=0.025)
        values = [value for row in rows for value in row.values()]
        assert all(isinstance(value, int) and 1 <= value <= 256 for value in values)
        assert np.mean(values) == pytest.approx(128.5, abs=3)

    def test_wide_publications_are_ranges(self) -> None:
        made = workload("infrastructurefree.uniform", publication_width=10, publish_s=10)
        values = [value for row in attribute_rows(made.local("publications")) for value in row.values()]
        assert all(value == 256 or value.high in (value.low + 10, 256) for value in values)
        assert len(matches(made, 20)) == 20

    def test_matches_are_those_of_the_conditions(self) -> None:
        made = workload("infrastructurefree.zipf", subscriptions=300, publish_s=10)
        filters = [
            re.findall(r"(a\d+) BETWEEN (\d+) AND (\d+)", row["filter"]) for row in subscriptions(made)
        ]
        for row, found in zip(
            attribute_rows(made.local("publications").slice(0, 50)), matches(made, 50), strict=True
        ):
            assert found == {
                number
                for number, bounds in enumerate(filters)
                if all(name in row and int(low) <= row[name] <= int(high) for name, low, high in bounds)
            }

    def test_zipf_draws_attributes_and_values_by_rank(self) -> None:
        made = workload("infrastructurefree.zipf", subscriptions=4_000, predicates_max=1, publish_s=300)
        names = Counter(row["filter"].split()[0] for row in subscriptions(made))
        shares = [names[f"a{each}"] / 4_000 for each in range(1, 11)]
        assert shares == pytest.approx(zipf_shares(10, 1.0), abs=0.025)
        values = [value for row in attribute_rows(made.local("publications")) for value in row.values()]
        assert values.count(1) / len(values) == pytest.approx(zipf_shares(256, 1.0)[0], abs=0.01)

    def test_times_are_those_of_the_paper(self) -> None:
        made = workload("infrastructurefree.uniform")
        assert [row["at_us"] for row in subscriptions(made)[:3]] == [0, 10_000, 20_000]
        rows = publications(made)
        assert len(rows) == 1_000
        assert sequences_are_whole(rows)
        assert 50_000_000 <= rows[0]["at_us"] < 60_000_000
        mine = [row["at_us"] for row in rows if row["client"] == "P007"]
        assert np.diff(mine).tolist() == [10_000_000] * 9
        roles = Counter(row["role"] for row in made.local("brokers").to_pylist())
        assert roles == {"publisher": 100, "subscriber": 1_000, "none": 3_900}


class TestSiena:
    def test_tables_of_weights_are_followed(self) -> None:
        made = workload("siena", subscriptions=6_000, duration_s=50)
        filters = [row["filter"].split(" AND ") for row in subscriptions(made)]
        sizes = Counter(map(len, filters))
        for size, weight in CONSTRAINTS_PER_FILTER.items():
            assert sizes[size] / 6_000 == pytest.approx(weight / 100, abs=0.025)
        messages = Counter(map(len, attribute_rows(made.local("publications"))))
        for size, weight in ATTRIBUTES_PER_MESSAGE.items():
            assert messages[size] / 3_000 == pytest.approx(weight / 100, abs=0.03)
        constraints = [constraint.split(" ", 2) for each in filters for constraint in each]
        self.assert_shares([sign for _, sign, value in constraints if value.isdigit()], INTEGER_OPERATORS)
        self.assert_shares(
            [
                {"'": sign, "%": "prefix"}.get(
                    value[-2] if sign == "LIKE" and value[1] != "%" else value[0], sign
                )
                if sign != "LIKE" or value[1] != "%"
                else "substring"
                if value.endswith("%'")
                else "suffix"
                for _, sign, value in constraints
                if value.startswith("'")
            ],
            STRING_OPERATORS,
        )

    @staticmethod
    def assert_shares(found: list[str], weights: dict[str, int]) -> None:
        counted = Counter(found)
        for operator, weight in weights.items():
            assert counted[operator] / len(found) == pytest.approx(weight / 100, abs=0.025)

    def test_names_follow_zipf_and_types_agree(self) -> None:
        made = workload("siena", subscriptions=500, duration_s=20)
        rows = attribute_rows(made.local("publications"))
        present = Counter(name for row in rows for name in row)
        assert present["n00"] > present["n05"] > present["n20"]
        for row in rows:
            for name, value in row.items():
                assert isinstance(value, int if int(name[1:]) % 2 == 0 else str)
        found = [len(each) for each in matches(made, 500)]
        assert 0 < np.mean(found) < 100
        assert len(set(WORDS)) == len(WORDS)

    def test_too_few_names_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="siena: names is a whole number from 11 to 1000, not 5"):
            workload("siena", names=5)
