"""Do the parts of the dashboard that make sense of a network make the right sense of it?"""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.cli.connection_options import Door
from braid.dashboard.covering import FILTERS_MAX, covering_forest
from braid.dashboard.guard import Guard, Refusal
from braid.dashboard.history import CHANGES_MAX, POINTS_MAX, History, changes_between
from braid.dashboard.picture import picture_of
from braid.dashboard.trial import FILTER_LENGTH_MAX, filter_report
from braid.dashboard.viewers import NEWS_MAX, Viewers
from braid.errors import RequestRefusedError
from braid.language import Filter
from tests.dashboard.feeds import FeedWatch, tree_links

LINE = [("A", "B"), ("B", "C"), ("C", "D")]


# Pictures.


def two_pictures(watch: FeedWatch) -> tuple[dict, dict]:
    first, second = watch.look_now(), watch.look_now()
    return picture_of(None, first, 1), picture_of(first, second, 2)


def test_rates_are_what_has_grown_and_unknown_where_there_is_nothing_to_compare() -> None:
    watch = FeedWatch(LINE)
    before = watch.look_now()
    now = watch.look_now()
    assert all(broker["received"] is None for broker in picture_of(None, before, 1)["brokers"])
    picture = picture_of(before, now, 2)
    for broker in picture["brokers"]:
        grown = (
            now.network.named(broker["id"]).statistics["counters"]["received"]
            - before.network.named(broker["id"]).statistics["counters"]["received"]
        )
        assert broker["received"] == grown
    assert picture["totals"]["received"] == pytest.approx(
        sum(each["received"] for each in picture["brokers"])
    )


def test_a_broker_that_was_started_again_has_no_rate() -> None:
    watch = FeedWatch(LINE)
    before, now = watch.look_now(), watch.look_now()
    now.network.named("B").overlay["incarnation"] = "B-2"
    rates = {broker["id"]: broker["received"] for broker in picture_of(before, now, 2)["brokers"]}
    assert rates["B"] is None
    assert rates["A"] is not None


def test_a_link_is_one_line_whoever_speaks_of_it_and_down_if_one_says_so() -> None:
    watch = FeedWatch(LINE)
    watch.failed = {"C"}
    _, picture = two_pictures(watch)
    assert [(link["a"], link["b"], link["up"]) for link in picture["links"]] == [
        ("A", "B", True),
        ("B", "C", False),
        ("C", "D", False),
    ]
    assert not picture["complete"]


# History.


def test_a_shift_is_told_as_a_move_and_not_as_two_links() -> None:
    watch = FeedWatch(LINE)
    _, before = two_pictures(watch)
    watch.links = [("A", "B"), ("B", "C"), ("B", "D")]
    _, now = two_pictures(watch)
    assert [(change["kind"], change["text"]) for change in changes_between(before, now)] == [
        ("move", "D moved from C to B.")
    ]


def test_failures_and_repairs_are_told_once() -> None:
    watch = FeedWatch(LINE)
    history = History()
    history.add(two_pictures(watch)[1], None)
    watch.failed = {"D"}
    told = [change["text"] for change in history.add(two_pictures(watch)[1], None)]
    assert told == ["D does not answer: connection refused.", "The link from C to D is down."]
    assert history.add(two_pictures(watch)[1], None) == []
    watch.failed = set()
    assert [change["text"] for change in history.add(two_pictures(watch)[1], 1.5)] == [
        "D is back.",
        "The link from C to D is up again.",
    ]
    assert history.points[-1]["latency_ms"] == 1.5


def test_a_network_that_answers_no_more_is_no_crowd_of_departures() -> None:
    watch = FeedWatch(LINE)
    _, before = two_pictures(watch)
    watch.problem = "nobody listens"
    _, silent = two_pictures(watch)
    assert [change["kind"] for change in changes_between(before, silent)] == ["failure"]
    assert changes_between(silent, silent) == []
    assert [change["kind"] for change in changes_between(silent, before)] == ["repair"]


def test_what_is_remembered_is_bounded() -> None:
    watch, history = FeedWatch(LINE), History()
    for number in range(max(CHANGES_MAX, POINTS_MAX) + 5):
        watch.failed = {"D"} if number % 2 else set()
        history.add(two_pictures(watch)[1], None)
    assert (len(history.changes), len(history.points)) == (CHANGES_MAX, POINTS_MAX)
    numbers = [change["number"] for change in history.changes]
    assert numbers == sorted(set(numbers))


# Viewers.


async def test_a_slow_viewer_gets_the_latest_picture_and_bounded_news() -> None:
    viewers = Viewers(viewers_max=2)
    with viewers.viewer() as slow:
        for number in range(1000):
            viewers.show(b"picture %d" % number)
            viewers.tell(b"news %d" % number)
        found = await slow.next(1.0)
        assert found is not None
        assert found[-1] == b"picture 999"
        assert len(found) == NEWS_MAX + 1
        assert slow.skipped == 999
        assert await slow.next(0.001) == []
        with viewers.viewer(), pytest.raises(RequestRefusedError, match="2 viewers"), viewers.viewer():
            pass
        viewers.end()
        assert await slow.next(1.0) is None
    assert len(viewers) == 0


# Covering.


def wanted(*filters: str) -> list[dict]:
    return [
        {"filter": text, "client": f"c{number}", "broker": "A", "durable": False, "cut": False}
        for number, text in enumerate(filters)
    ]


def test_what_is_covered_stands_below() -> None:
    forest = covering_forest(wanted("x > 20", "x > 10", "x > 10", "y = 1", "x > 30 AND y = 1"))
    tree = forest["trees"][0]
    assert (tree["filter"], tree["count"], tree["below"][0]["filter"]) == ("x > 10", 2, "x > 20")
    assert tree["below"][0]["below"][0]["filter"] == "x > 30 AND y = 1"
    assert [each["filter"] for each in forest["trees"]] == ["x > 10", "y = 1"]


@given(st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("<>="), st.integers(0, 4)), max_size=14))
def test_the_forest_agrees_with_every_pair(parts: list[tuple[str, str, int]]) -> None:
    """Each filter is there once; below another one it is covered by it; no root by a wider root."""
    filters = [f"{name} {sign} {bound}" for name, sign, bound in parts]
    forest = covering_forest(wanted(*filters))
    seen: list[str] = []

    def walk(node: dict, above: list[str]) -> None:
        seen.append(node["filter"])
        assert all(Filter(wider).covers(Filter(node["filter"])) for wider in above)
        for below in node["below"]:
            walk(below, [*above, node["filter"]])

    for tree in forest["trees"]:
        walk(tree, [])
    assert sorted(seen) == sorted(set(filters))
    roots = [Filter(tree["filter"]) for tree in forest["trees"]]
    for place, root in enumerate(roots):
        assert not any(other.covers(root) for other in roots[:place])


def test_many_filters_and_unreadable_ones_are_listed_all_the_same() -> None:
    many = wanted(*(f"x = {number}" for number in range(FILTERS_MAX + 20)), "what is this")
    forest = covering_forest(many)
    assert forest["filters"] == FILTERS_MAX + 21
    assert len(forest["trees"]) == FILTERS_MAX + 21
    assert forest["compared"] == FILTERS_MAX


# Filters as they are typed.


def test_the_real_parser_says_where_a_filter_goes_wrong() -> None:
    assert filter_report("price > 10 and 1 = 1")["ok"]
    found = filter_report("price >\n")
    assert (found["ok"], found["line"], found["column"]) == (False, 2, 1)
    assert found["message"].startswith("found end of filter, expected")
    assert not filter_report("x = 1 OR " * FILTER_LENGTH_MAX)["ok"]


@given(st.text(max_size=60))
def test_any_text_has_an_answer(text: str) -> None:
    report = filter_report(text)
    assert report["ok"] or report["message"]


# Who may come in.


def guard(
    host: str = "127.0.0.1", token: str | None = None, *, known: tuple[str | None, ...] = ("right",)
) -> Guard:
    async def admits(given: str | None) -> bool:
        return given in known

    return Guard(host, ("braid.example",), Door(token), "127.0.0.1:1", admits)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:80"},
        {"host": ""},
        {},
        {"host": "[::"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "8.8.8.8"},
        {"host": "127.0.0.1:1", "origin": "http://evil.example"},
        {"host": "127.0.0.1:1", "origin": "null"},
        {"host": "127.0.0.1:1", "origin": "http://127.0.0.1:2"},
        {"host": "127.0.0.1:1", "origin": "https://127.0.0.1:1"},
        {"host": "127.0.0.1:1", "sec-fetch-site": "cross-site"},
        {"host": "127.0.0.1:1", "sec-fetch-site": "same-site"},
    ],
)
def test_requests_from_elsewhere_are_turned_away(headers: dict[str, str]) -> None:
    with pytest.raises(Refusal):
        guard().check_request(headers, "http", changes=False)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:7080"},
        {"host": "localhost:7080", "origin": "http://localhost:7080", "sec-fetch-site": "same-origin"},
        {"host": "[::1]:7080", "sec-fetch-site": "none"},
        {"host": "Braid.Example"},
    ],
)
def test_our_own_page_and_no_page_are_answered(headers: dict[str, str]) -> None:
    guard().check_request(headers, "http", changes=False)
    with pytest.raises(Refusal, match="JSON"):
        guard().check_request(headers, "http", changes=True)
    guard().check_request(
        {**headers, "content-type": "application/json; charset=utf-8"}, "http", changes=True
    )


async def test_who_may_look_and_who_may_change() -> None:
    # Brokers that ask nobody: on loopback anybody may do both.
    await guard(known=(None,)).check_looking(None)
    assert (await guard(known=(None,)).door_for(None)).token is None
    # A dashboard with a token of its own shows things on loopback, and lends its token to nobody.
    await guard(token="own", known=("own", "right")).check_looking(None)
    with pytest.raises(Refusal, match="needed for this"):
        await guard(token="own", known=("own", "right")).door_for(None)
    assert (await guard(token="own", known=("own", "right")).door_for("right")).token == "right"
    # Without one, every viewer needs a token that the brokers accept.
    with pytest.raises(Refusal, match="needed to see"):
        await guard().check_looking(None)
    with pytest.raises(Refusal, match="do not let"):
        await guard().check_looking("wrong")
    await guard().check_looking("right")
    # Beyond loopback the dashboard's own token opens nothing.
    with pytest.raises(Refusal, match="needed to see"):
        await guard("0.0.0.0", token="own", known=("own",)).check_looking(None)
    with pytest.raises(Refusal):
        await guard("0.0.0.0", known=(None,)).door_for(None)
    for odd in ("", "x" * 5000):
        with pytest.raises(Refusal):
            await guard(known=(odd,)).door_for(odd)


async def test_a_token_is_judged_once_in_a_while_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    async def admits(token: str | None) -> bool:
        asked.append(token)
        return len(asked) == 1

    door = Guard("0.0.0.0", (), Door(), "127.0.0.1:1", admits)
    await door.check_looking("right")
    await door.check_looking("right")
    assert asked == ["right"]
    now_s[0] += 16
    with pytest.raises(Refusal):
        await door.check_looking("right")
    await asyncio.sleep(0)


def test_a_large_feed_is_a_tree() -> None:
    links = tree_links(120)
    assert len(links) == 119
    assert len({name for link in links for name in link}) == 120
