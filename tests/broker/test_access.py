"""Is nothing permitted that the grant does not allow, and is every refusal clear?"""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.broker.access import (
    BURST_US,
    FEW_PUBLICATIONS,
    AccessPolicy,
    Grant,
    Limits,
    Principal,
    RateLimiter,
    hashed_token,
    is_token_hash,
)
from braid.errors import (
    AccessDeniedError,
    AuthenticationError,
    ConfigurationError,
    PublicationError,
    RequestRefusedError,
)
from braid.language import Filter, Range
from tests.language.strategies import Maker, makers


def publisher(text: str | None, **more: Any) -> Principal:
    return Principal("alice", Grant(publish=None if text is None else Filter(text), **more))


def subscriber(text: str | None, **more: Any) -> Principal:
    return Principal("alice", Grant(subscribe=None if text is None else Filter(text), **more))


def may_publish(principal: Principal, attributes: dict[str, Any]) -> bool:
    permitted = principal.permitted_rows([attributes])
    return permitted is None or bool(permitted[0])


# Publications.


def test_everything_and_nothing() -> None:
    batch: list[dict[str, Any]] = [{"a": 1}, {"a": Range(1, 2)}, {}]
    assert publisher("TRUE").permitted_rows(batch) is None
    assert publisher("a = 1 OR TRUE").permitted_rows(batch) is None
    assert publisher(None).permitted_rows(batch).tolist() == [False, False, False]  # type: ignore[union-attr]
    assert publisher("FALSE").permitted_rows(batch).tolist() == [False] * 3  # type: ignore[union-attr]
    assert publisher(None).permitted_rows([]) is None


@pytest.mark.parametrize("size", [1, FEW_PUBLICATIONS - 1, FEW_PUBLICATIONS, 300])
@given(maker=makers())
def test_points_are_permitted_exactly_when_they_match(size: int, maker: Maker) -> None:
    granted = Filter(maker.filter())
    few = [maker.publication() for _ in range(min(size, 8))]
    batch = list(itertools.islice(itertools.cycle(few), size))
    permitted = Principal("alice", Grant(publish=granted)).permitted_rows(batch)
    expected = [granted.matches(attributes) for attributes in few]
    if permitted is None:
        assert all(expected)
    else:
        assert permitted.tolist() == list(itertools.islice(itertools.cycle(expected), size))
        assert not permitted.all()


def some_points(extent: Range, generator: random.Random) -> list[int | float]:
    """Integers and doubles of a range: the ends, what lies next to them, and some between."""
    low, high = max(extent.low, -1e6), min(extent.high, 1e6)
    candidates: list[int | float] = [extent.low, extent.high, float(extent.low), float(extent.high)]
    candidates += [math.nextafter(extent.low, math.inf), math.nextafter(extent.high, -math.inf)]
    candidates += [math.ceil(low), math.floor(high), generator.uniform(low, high)]
    candidates += [generator.randint(math.ceil(low) - 1, math.floor(high) + 1) for _ in range(3)]
    return [each for each in candidates if extent.low <= each <= extent.high]


def check_ranges(maker: Maker) -> list[tuple[bool, bool]]:
    """For some publications with ranges: were they permitted, and would a single point have been enough?"""
    granted = Filter(maker.filter())
    principal = Principal("alice", Grant(publish=granted))
    answers = []
    for _ in range(4):
        attributes = dict(maker.publication())
        for name in maker.random.sample(["i", "j", "x", "y", "s"], 2):
            attributes[name] = maker.range()
        answers.append((may_publish(principal, attributes), granted.matches(attributes)))
        if not answers[-1][0]:
            continue
        for _ in range(20):
            point = {
                name: maker.random.choice(some_points(value, maker.random))
                if isinstance(value, Range)
                else value
                for name, value in attributes.items()
            }
            assert granted.matches(point), (granted.text, attributes, point)
    return answers


@given(maker=makers(wild=False))
def test_ranges_are_permitted_only_if_every_point_matches(maker: Maker) -> None:
    check_ranges(maker)


def test_the_same_for_seeded_grants() -> None:
    maker = Maker(random.Random("access/ranges"), wild=False, arithmetic=1, depth=2)
    answers = [answer for _ in range(400) for answer in check_ranges(maker)]
    assert answers.count((True, True)) > 100
    assert answers.count((False, True)) > 50
    assert answers.count((False, False)) > 100


RANGES: list[tuple[str, dict[str, Any], bool]] = [
    ("zone = 1", {"zone": Range(1, 9)}, False),
    ("zone = 1", {"zone": Range(1, 1)}, True),
    ("zone BETWEEN 1 AND 9", {"zone": Range(1, 9)}, True),
    ("zone BETWEEN 1 AND 9", {"zone": Range(1, 9.5)}, False),
    ("zone > 1 AND zone < 9", {"zone": Range(1, 9)}, False),
    ("zone IN (1, 2, 3)", {"zone": Range(1, 3)}, False),  # 1.5 is a point of it
    ("zone <> 5", {"zone": Range(1, 9)}, False),
    ("zone < 5 OR zone >= 5", {"zone": Range(1, 9)}, True),
    ("zone < 5 AND side = 'a' OR zone >= 5", {"zone": Range(1, 9), "side": "a"}, True),
    ("zone < 5 AND side = 'a' OR zone >= 5", {"zone": Range(1, 9), "side": "b"}, False),
    ("zone < 5 AND side IS NULL OR zone >= 5", {"zone": Range(1, 9)}, True),
    ("zone IS NOT NULL", {"zone": Range(-math.inf, math.inf)}, True),
    ("zone >= 0", {"zone": Range(0, math.inf)}, True),
    ("side = 'a'", {"side": "a", "zone": Range(1, 9)}, True),
    ("side = 'a'", {"zone": Range(1, 9)}, False),
    ("i = 9007199254740993", {"i": 9007199254740993, "zone": Range(1, 9)}, True),
    ("i = 9007199254740993", {"i": 9007199254740992, "zone": Range(1, 9)}, False),
    ("zone = 9007199254740993", {"zone": Range(9007199254740993, 9007199254740993)}, True),
    # What ties attributes together is decided if it looks at points only, and otherwise refused.
    ("name LIKE '%x' AND zone < 10", {"name": "ax", "zone": Range(1, 9)}, True),
    ("name LIKE '%x' AND zone < 10", {"name": "ay", "zone": Range(1, 9)}, False),
    ("low < 2 * high", {"low": 1, "high": 1, "zone": Range(1, 9)}, True),
    ("low < 2 * high", {"low": 1, "high": Range(5, 9)}, False),
    ("side IS NULL AND low + zone IS NULL", {"low": 1, "zone": Range(1, 9)}, False),
    ("side IS NULL AND low + zone IS NULL", {"low": 1, "zone": "a", "high": Range(1, 9)}, True),
]


@pytest.mark.parametrize(("granted", "attributes", "answer"), RANGES)
def test_ranges(granted: str, attributes: dict[str, Any], answer: bool) -> None:
    principal = publisher(granted)
    assert may_publish(principal, attributes) is answer
    # The same among many, where the points go through the index.
    batch = [attributes, *([{"side": "nowhere"}] * FEW_PUBLICATIONS), attributes]
    permitted = principal.permitted_rows(batch)
    assert permitted is not None
    assert permitted.tolist() == [answer, *([False] * FEW_PUBLICATIONS), answer]


def test_a_range_in_disguise_is_a_range() -> None:
    class Stretch(Range):
        """A range by another name."""

    for size in (1, FEW_PUBLICATIONS):
        permitted = publisher("zone = 1").permitted_rows([{"zone": Stretch(1, 9)}] * size)
        assert permitted is not None
        assert not permitted.any()


def test_values_that_cannot_be_published_are_named() -> None:
    with pytest.raises(PublicationError, match="'a'"):
        publisher("a = 1").permitted_rows([{"a": [1]}])  # type: ignore[dict-item]


def test_a_refused_publication_shows_the_grant_and_no_values() -> None:
    error = publisher("zone = 1").refused_publication({"zone": Range(1, 9), "note": "hush"})
    assert str(error) == (
        "'alice' may publish what satisfies: zone = 1 (at every point of its ranges); "
        "a publication with the attributes note, zone is beyond that"
    )
    assert error.code == "denied"
    assert "may publish nothing" in str(publisher(None).refused_publication({}))


# Subscriptions and advertisements.


@given(maker=makers(), narrow=st.booleans())
def test_no_subscription_reaches_beyond_the_grant(maker: Maker, narrow: bool) -> None:
    granted_text, asked_text = maker.filter(), maker.filter()
    if maker.random.random() < 0.3:
        asked_text = f"({asked_text}) AND ({granted_text})"
    granted, asked = Filter(granted_text), Filter(asked_text)
    grant = Grant(publish=granted, subscribe=granted, narrow=narrow)
    principal = Principal("alice", grant)
    for permitted_filter in (principal.permitted_subscription, principal.permitted_advertisement):
        batch = [maker.publication() for _ in range(6)]
        wanted = [granted.matches(each) and asked.matches(each) for each in batch]
        try:
            permitted = permitted_filter(asked)
        except AccessDeniedError:
            assert not granted.covers(asked)
            assert not narrow or not any(wanted), (granted.text, asked.text)
            continue
        assert [permitted.matches(each) for each in batch] == wanted, (granted.text, asked.text)
        assert narrow or permitted is asked


@given(maker=makers(wild=False))
def test_a_narrowed_subscription_hears_ranges_only_if_they_touch_the_grant(maker: Maker) -> None:
    granted, asked = Filter(maker.filter()), Filter(maker.filter())
    try:
        permitted = Principal("alice", Grant(subscribe=granted, narrow=True)).permitted_subscription(asked)
    except AccessDeniedError:
        return
    attributes = {**maker.publication(), "i": maker.range(), "x": maker.range()}
    if permitted.matches(attributes):
        assert granted.matches(attributes)
        assert asked.matches(attributes)


def test_a_covered_subscription_is_left_as_it_is() -> None:
    asked = Filter("price > 20 AND symbol = 'ACME'")
    assert subscriber("price > 10").permitted_subscription(asked) is asked
    assert subscriber("TRUE").permitted_subscription(asked) is asked


def test_a_subscription_beyond_the_grant_is_refused_with_both_texts() -> None:
    with pytest.raises(AccessDeniedError) as raised:
        subscriber("price > 10").permitted_subscription(Filter("price > 5"))
    assert str(raised.value) == (
        "'alice' asked to subscribe: price > 5; it may only subscribe within: price > 10; "
        "add that condition to the request"
    )
    with pytest.raises(AccessDeniedError, match="may not subscribe at all"):
        publisher("TRUE").permitted_subscription(Filter("price > 5"))
    with pytest.raises(AccessDeniedError, match="may not advertise at all"):
        subscriber("TRUE").permitted_advertisement(Filter("price > 5"))


def test_narrowing() -> None:
    narrowed = subscriber("price > 10", narrow=True)
    assert narrowed.permitted_subscription(Filter("price > 5")) == Filter("price > 10")
    assert narrowed.permitted_subscription(Filter("symbol = 'A'")) == Filter("price > 10 AND symbol = 'A'")
    with pytest.raises(AccessDeniedError, match="nothing in common"):
        narrowed.permitted_subscription(Filter("price < 5"))
    advertiser = publisher("price > 10", narrow=True)
    assert advertiser.permitted_advertisement(Filter("TRUE")) == Filter("price > 10")


def test_a_narrowed_filter_that_would_be_too_large_is_refused() -> None:
    long = Filter(f"name <> '{'x' * 600_000}'")
    with pytest.raises(AccessDeniedError, match="too large") as raised:
        subscriber(f"symbol <> '{'y' * 600_000}'", narrow=True).permitted_subscription(long)
    assert len(str(raised.value)) < 2_000


def test_operating() -> None:
    publisher("TRUE", operate=True).require_operate("routing table")
    with pytest.raises(AccessDeniedError, match="'routing table' needs that"):
        publisher("TRUE").require_operate("routing table")


# Who is it?

ALICE = Principal("alice", Grant(subscribe=Filter("TRUE")))
BROKER = Principal("broker-a", Grant(link=True))
GUEST = Principal("anonymous", Grant())


def policy(**more: Any) -> AccessPolicy:
    return AccessPolicy(
        {"alice": ALICE, "broker-a": BROKER},
        {
            hashed_token("open sesame"): "alice",
            hashed_token("second"): "alice",
            hashed_token("b"): "broker-a",
        },
        {"alice.example": "alice", "broker-a.example": "broker-a"},
        **more,
    )


def test_tokens_and_certificates() -> None:
    known = policy()
    assert known.authenticate("open sesame", None, "client") is ALICE
    assert known.authenticate("second", None, "client") is ALICE
    assert known.authenticate(None, "alice.example", "client") is ALICE
    assert known.authenticate("b", None, "broker") is BROKER
    assert known.authenticate(None, "broker-a.example", "broker") is BROKER
    assert known.authenticate("b", "alice.example", "client") is BROKER  # a token decides
    assert not known.is_open


@pytest.mark.parametrize("anonymous", [None, GUEST])
@pytest.mark.parametrize(
    ("token", "certificate"),
    [
        ("wrong", None),
        ("", None),
        ("wrong", "alice.example"),
        ("alice", None),
        (hashed_token("open sesame"), None),
        ("open sesame" + "x" * 10_000, None),
        ("\ud800", None),
        (None, "mallory.example"),
        (None, ""),
        (None, "alice"),
    ],
)
def test_unknown_credentials_all_look_alike(
    token: str | None, certificate: str | None, anonymous: Principal | None
) -> None:
    with pytest.raises(AuthenticationError) as raised:
        policy(anonymous=anonymous).authenticate(token, certificate, "client")
    assert str(raised.value) == "this broker does not accept this token or certificate"
    assert raised.value.code == "authentication"


def test_without_credentials() -> None:
    with pytest.raises(AuthenticationError, match="got neither"):
        policy().authenticate(None, None, "client")
    assert policy(anonymous=GUEST).authenticate(None, None, "client") is GUEST


def test_credentials_of_a_kind_that_is_not_known_are_not_looked_at() -> None:
    tokens_only = AccessPolicy({"alice": ALICE}, {hashed_token("t"): "alice"}, anonymous=GUEST)
    assert tokens_only.authenticate(None, "some.example", "client") is GUEST
    assert tokens_only.authenticate("t", "some.example", "client") is ALICE
    certificates_only = AccessPolicy({"alice": ALICE}, {}, {"alice.example": "alice"})
    assert certificates_only.authenticate("t", "alice.example", "client") is ALICE
    with pytest.raises(AuthenticationError, match="does not accept"):
        certificates_only.authenticate("t", None, "client")


def test_roles() -> None:
    with pytest.raises(AccessDeniedError, match="'alice' may not connect as a broker"):
        policy().authenticate("second", None, "broker")
    with pytest.raises(AuthenticationError, match="'client' or 'broker', not 'king'"):
        policy().authenticate("second", None, "king")


def test_the_open_policy_allows_everything_to_everybody() -> None:
    known = AccessPolicy.open()
    assert known.is_open
    assert not AccessPolicy().is_open
    for token, certificate, role in itertools.product((None, "x"), (None, "y"), ("client", "broker")):
        principal = known.authenticate(token, certificate, role)
        assert principal.permitted_rows([{"a": 1}]) is None
        assert str(principal.permitted_subscription(Filter("a = 1"))) == "a = 1"
        principal.require_operate("anything")


def test_a_policy_that_does_not_hold_together() -> None:
    with pytest.raises(ConfigurationError, match="no such principal"):
        AccessPolicy({}, {hashed_token("t"): "alice"})
    with pytest.raises(ConfigurationError, match="certificate belongs to 'alice'"):
        AccessPolicy({}, {}, {"alice.example": "alice"})
    with pytest.raises(ConfigurationError, match="is called 'alice'"):
        AccessPolicy({"bob": ALICE})
    with pytest.raises(ConfigurationError, match="stored as") as raised:
        AccessPolicy({"alice": ALICE}, {"open sesame": "alice"})
    assert "sesame" not in str(raised.value)


def test_a_policy_cannot_be_changed_from_outside() -> None:
    principals, tokens = {"alice": ALICE}, {hashed_token("t"): "alice"}
    known = AccessPolicy(principals, tokens)
    tokens[hashed_token("u")] = "alice"
    with pytest.raises(AuthenticationError):
        known.authenticate("u", None, "client")


def test_hashes() -> None:
    known = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
    assert hashed_token("foo") == known
    assert is_token_hash(known)
    for wrong in (known.upper(), known[7:], known + "\n", known[:-1], "foo"):
        assert not is_token_hash(wrong)


# Limits.


def test_limits_are_positive_whole_numbers() -> None:
    for wrong in (0, -1, 1.5, True, None):
        with pytest.raises(ConfigurationError, match="subscriptions_max must be a whole number"):
            Limits(subscriptions_max=wrong)  # type: ignore[arg-type]


def test_counted_limits() -> None:
    limits = Limits(connections_max=2, subscriptions_max=3)
    limits.require_connection(1)
    limits.require_subscription(2)
    for refuse in (lambda: limits.require_connection(2), lambda: limits.require_subscription(3)):
        with pytest.raises(RequestRefusedError) as raised:
            refuse()
        assert raised.value.code == "limit"


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    limiter = RateLimiter(Limits(publications_per_second_max=10, bytes_per_second_max=1_000_000))
    assert [limiter.take(1, 10, 0) for _ in range(10)] == [0] * 10
    assert limiter.take(1, 10, 0) == 100_000
    assert limiter.take(1, 10, 100_000) == 100_000
    assert limiter.take(0, 1_000_000, 300_000) == 0  # bytes are counted on their own
    assert limiter.take(0, 1_000, 300_000) == 1_000
    # However long the silence, only a second's worth is saved up.
    assert limiter.take(10, 0, 10**12) == 0
    assert limiter.take(1, 0, 10**12) == 100_000
    assert limiter.take(0, 0, 0) == 100_000  # a clock that goes back changes nothing
    with pytest.raises(ValueError, match="less than nothing"):
        limiter.take(-1, 0, 0)


takes = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 5_000), st.integers(0, 3_000_000)), min_size=1, max_size=40
)


@given(takes, st.integers(1, 50), st.integers(1, 5_000))
def test_whoever_waits_keeps_to_the_limits(
    reads: list[tuple[int, int, int]], publications_rate: int, bytes_rate: int
) -> None:
    limiter = RateLimiter(
        Limits(publications_per_second_max=publications_rate, bytes_per_second_max=bytes_rate)
    )
    now_us = 0
    history: list[tuple[int, int, int]] = []
    for publications, size, pause_us in reads:
        now_us += pause_us
        history.append((now_us, publications, size))
        now_us += limiter.take(publications, size, now_us)
    for first, last in itertools.combinations_with_replacement(range(len(history)), 2):
        span_us = history[last][0] - history[first][0]
        for column, rate in ((1, publications_rate), (2, bytes_rate)):
            # The last read is let through before it is paid for.
            taken = sum(row[column] for row in history[first:last])
            assert taken * 1_000_000 <= rate * (span_us + BURST_US)


@given(takes, st.integers(1, 50))
def test_nobody_waits_longer_than_needed(reads: list[tuple[int, int, int]], rate: int) -> None:
    """One microsecond less would still be a debt."""
    limits = Limits(publications_per_second_max=rate)
    limiter, allowance, before_us, now_us = RateLimiter(limits), rate * BURST_US, 0, 0
    for publications, _, pause_us in reads:
        now_us += pause_us
        allowance = min(rate * BURST_US, allowance + rate * (now_us - before_us)) - publications * 1_000_000
        before_us = now_us
        wait_us = limiter.take(publications, 0, now_us)
        assert allowance + rate * wait_us >= 0
        assert wait_us == 0 or allowance + rate * (wait_us - 1) < 0
