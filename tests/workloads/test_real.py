"""Do workloads from real data say what the data says?

Small files in the form of the real ones show the rules; the real ones are read where they are.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pytest

import braid
from braid.errors import ConfigurationError
from braid.workloads import attribute_rows, workload
from braid.workloads.datasets import MESSAGES, QUOTES, dataset

if TYPE_CHECKING:
    from pathlib import Path

TRACE = "src dst time\n3 4 30\n1 2 10\n2 1 20\n1 3 40\n5 5 50\n1 2 60\n"


@pytest.fixture
def messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(tmp_path / MESSAGES, "wt", encoding="ascii") as file:
        file.write(TRACE)
    monkeypatch.setenv("BRAID_DATA", str(tmp_path))


@pytest.fixture
def quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    with tarfile.open(tmp_path / QUOTES, "w:gz") as archive:
        for symbol, count in (("AAA", 600), ("BBB", 300), ("CCC", 100)):
            lines = "".join(
                f"[class,'STOCK'],[symbol,'{symbol}'],[open,1.5],[high,2.5],[low,1],[close,{price:.2f}],"
                f"[volume,{volume}],[date,'{28 - day % 28}-Dec-04']\n"
                for day, (price, volume) in enumerate(
                    zip(random.uniform(5, 50, count), random.integers(1, 10**6, count), strict=True)
                )
            )
            member = tarfile.TarInfo(f"stockquotes/{symbol}")
            member.size = len(lines)
            archive.addfile(member, io.BytesIO(lines.encode()))
    monkeypatch.setenv("BRAID_DATA", str(tmp_path))


@pytest.mark.usefixtures("messages")
@pytest.mark.parametrize("placement", ["hash", "community"])
def test_contacts_subscribe_to_each_other_and_messages_keep_their_order(placement: str) -> None:
    made = workload("multipath.DT-FB", brokers=3, placement=placement)
    asked = [(row["client"], row["filter"]) for row in made.local("subscriptions").to_pylist()]
    assert asked == [
        ("u1", "author = 'u2'"),
        ("u1", "author = 'u3'"),
        ("u2", "author = 'u1'"),
        ("u3", "author = 'u1'"),
        ("u3", "author = 'u4'"),
        ("u4", "author = 'u3'"),
    ]
    sent = [
        (row["client"], row["sequence"], row["attributes"]["recipient"])
        for row in made.local("publications").to_pylist()
    ]
    assert sent == [
        ("u1", 1, "u2"),
        ("u2", 1, "u1"),
        ("u3", 1, "u4"),
        ("u1", 2, "u3"),
        ("u5", 1, "u5"),
        ("u1", 3, "u2"),
    ]
    homes = defaultdict(set)
    for table in ("subscriptions", "publications"):
        for row in made.local(table).to_pylist():
            homes[row["client"]].add(row["broker"])
    assert all(len(brokers) == 1 for brokers in homes.values())


@pytest.mark.usefixtures("messages")
def test_one_subscription_per_broker_asks_for_the_same() -> None:
    single, joint = (
        workload("multipath.DT-FB", brokers=2, subscriptions_of=of).local("subscriptions").to_pylist()
        for of in ("user", "broker")
    )
    wanted = defaultdict(set)
    for row in single:
        wanted[row["broker"]].add(row["filter"].removeprefix("author = "))
    assert len(joint) == len(wanted) == len({row["client"] for row in joint})
    for row in joint:
        listed = row["filter"].removeprefix("author IN (").removesuffix(")")
        assert set(listed.split(", ")) == wanted[row["broker"]]


@pytest.mark.usefixtures("messages")
def test_a_short_run_takes_the_first_messages_and_a_short_trace_ends_early() -> None:
    short = workload("multipath.DT-FB", brokers=3, rate_per_minute=60, duration_s=2)
    assert short.local("publications").column("at_us").to_pylist() == [0, 1_000_000]
    assert short.tables["subscriptions"].rows == 6
    long = workload("multipath.DT-FB", brokers=3, rate_per_minute=60, duration_s=600)
    assert long.local("publications").column("at_us").to_pylist() == [
        second * 1_000_000 for second in range(6)
    ]


@pytest.mark.usefixtures("quotes")
def test_quotes_come_by_day_with_their_own_publisher() -> None:
    made = workload("quotes", brokers=10, publishers=2, subscribers=4, duration_s=10)
    rows = made.local("publications").to_pylist()
    days = [int(row["attributes"]["date"].split("-")[0]) for row in rows]
    assert days == sorted(days)
    assert len(rows) == 600
    publishers: dict[str, set[str]] = defaultdict(set)
    numbers: Counter[str] = Counter()
    for row in rows:
        publishers[row["attributes"]["symbol"]].add(row["client"])
        numbers[row["client"]] += 1
        assert row["sequence"] == numbers[row["client"]]
    assert publishers == {"AAA": {"P000"}, "BBB": {"P001"}, "CCC": {"P000"}}
    assert set(attribute_rows(made.local("publications"))[0]) == {
        "class",
        "symbol",
        "open",
        "high",
        "low",
        "close",
        "volume",
        "date",
    }
    # All quotes are published when there is time for them, and not a second longer.
    everything = workload("quotes", brokers=10, publishers=2, subscribers=4)
    assert everything.tables["publications"].rows == 1_000


@pytest.mark.usefixtures("quotes")
def test_filters_over_quotes_have_their_forms_and_match_their_bands() -> None:
    made = workload("quotes", brokers=10, publishers=2, subscribers=4, subscriptions=2_000)
    texts = made.local("subscriptions").column("filter").to_pylist()
    forms = Counter(("symbol" in text, "volume" in text) for text in texts)
    assert forms[True, False] / 2_000 == pytest.approx(0.4, abs=0.04)
    assert forms[True, True] / 2_000 == pytest.approx(0.4, abs=0.04)
    assert forms[False, True] / 2_000 == pytest.approx(0.2, abs=0.04)
    symbols = Counter(text.split("'")[1] for text in texts if "symbol" in text)
    assert symbols["AAA"] / symbols.total() == pytest.approx(0.6, abs=0.05)
    index = braid.FilterIndex()
    for number, text in enumerate(texts):
        index.add(number, braid.Filter(text))
    found = index.match_batch(attribute_rows(made.local("publications")))
    # A band of a symbol holds 2 to 30 % of its quotes.
    plain = {number for number, text in enumerate(texts) if "symbol = 'AAA'" in text and "volume" not in text}
    hits = np.mean([len(each & plain) for each in found])
    assert hits / len(plain) == pytest.approx(0.6 * 0.16, abs=0.02)


def test_missing_data_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_DATA", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"CollegeMsg\.txt\.gz is missing: .* set BRAID_DATA"):
        workload("multipath.DT-FB")
    with pytest.raises(ConfigurationError, match=r"stockquotes\.tar\.gz is missing: .* set BRAID_DATA"):
        workload("quotes")
    with gzip.open(tmp_path / MESSAGES, "wt", encoding="ascii") as file:
        file.write("src dst time\n1 2 yesterday\n")
    with pytest.raises(ConfigurationError, match="is not lines of source, target and time"):
        workload("multipath.DT-FB")


def real(name: str) -> None:
    """Skip the test where the data is absent."""
    try:
        dataset(name)
    except ConfigurationError as problem:
        pytest.skip(str(problem))


def test_the_real_trace_has_its_published_size() -> None:
    real(MESSAGES)
    made = workload("multipath.DT-FB", duration_s=2_000)
    assert made.tables["publications"].rows == 59_835
    assert made.tables["subscriptions"].rows == 2 * 13_838
    assert {row["role"] for row in made.local("brokers").to_pylist()} == {"both"}


def test_friends_sit_together_when_placed_by_community() -> None:
    real(MESSAGES)
    together = {}
    for placement in ("hash", "community"):
        made = workload("multipath.DT-FB", placement=placement, brokers=20)
        home = {row["client"]: row["broker"] for row in made.local("subscriptions").to_pylist()}
        pairs = [
            (row["client"], row["filter"].split("'")[1]) for row in made.local("subscriptions").to_pylist()
        ]
        together[placement] = np.mean([home[reader] == home[author] for reader, author in pairs])
    assert together["hash"] == pytest.approx(1 / 20, abs=0.02)
    assert together["community"] > 1.5 * together["hash"]


@pytest.mark.slow
def test_the_real_quotes_have_their_published_size() -> None:
    real(QUOTES)
    made = workload("quotes", duration_s=10)
    assert made.tables["publications"].rows == 600
    everything = workload("quotes", duration_s=10_000)
    assert everything.tables["publications"].rows == 245_190
