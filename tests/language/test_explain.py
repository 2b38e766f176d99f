"""Does an explanation tell the truth, readably?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given

from braid.language import Filter, Range
from braid.language.evaluate import evaluate
from braid.language.expressions import Condition, conditions_within
from tests.language.strategies import Maker, makers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braid.language.explain import Step


def pairs(condition: Condition, step: Step) -> Iterator[tuple[Condition, Step]]:
    yield condition, step
    for inner, part in zip(conditions_within(condition), step.parts, strict=True):
        yield from pairs(inner, part)


@given(makers())
def test_every_step_has_the_outcome_of_its_condition(maker: Maker) -> None:
    each = Filter(maker.filter())
    attributes = maker.publication()
    explanation = each.explain(attributes)
    assert (explanation.outcome is True) is each.matches(attributes)
    for condition, step in pairs(each.condition, explanation.root):
        assert step.outcome is evaluate(condition, attributes), step.text
        assert Filter(step.text).matches(attributes) is (step.outcome is True)
    leaves = list(explanation.root.leaves())
    assert len(leaves) == len(explanation.held) + len(explanation.failed) + len(explanation.unknown)
    assert json.loads(json.dumps(explanation.to_json()))["matches"] is each.matches(attributes)


@given(makers(exact=True, wild=False))
def test_an_explanation_of_ranges_agrees_with_matching(maker: Maker) -> None:
    each = Filter(maker.filter())
    attributes: dict[str, Any] = {**maker.publication(), "x": maker.range(), "i": maker.range()}
    assert (each.explain(attributes).outcome is True) is each.matches(attributes)


TEXT = "symbol = 'ACME' AND (price > 10 OR NOT volume BETWEEN 1 AND 9) AND venue LIKE 'X%'"


def test_the_text_is_readable() -> None:
    explanation = Filter(TEXT).explain({"symbol": "ACME", "price": 9.5, "volume": 5})
    assert str(explanation) == (
        "does not match\n"
        "  - all of:\n"
        "    + symbol = 'ACME'   (symbol is 'ACME')\n"
        "    - at least one of:\n"
        "      - price > 10   (price is 9.5)\n"
        "      - not:\n"
        "        + volume BETWEEN 1 AND 9   (volume is 5)\n"
        "    ? venue LIKE 'X%'   (venue is absent)"
    )
    assert explanation.held == ["symbol = 'ACME'", "volume BETWEEN 1 AND 9"]
    assert explanation.failed == ["price > 10"]
    assert explanation.unknown == ["venue LIKE 'X%'"]


def test_the_outcomes_are_told_apart() -> None:
    each = Filter("price > 10")
    assert str(each.explain({"price": 11})) == "matches\n  + price > 10   (price is 11)"
    assert str(each.explain({"price": 9})) == "does not match\n  - price > 10   (price is 9)"
    assert str(each.explain({})) == "does not match (unknown)\n  ? price > 10   (price is absent)"
    assert str(each.explain({"price": "9"})) == "does not match (unknown)\n  ? price > 10   (price is '9')"
    assert str(Filter("TRUE").explain({})) == "matches\n  + TRUE"


def test_ranges_are_shown_and_decided() -> None:
    each = Filter("length < 2 * height")
    explanation = each.explain({"length": Range(5, 9), "height": Range(1, 3)})
    assert str(explanation) == "matches\n  + length < 2 * height   (length is 5 to 9, height is 1 to 3)"
    assert each.explain({"length": Range(7, 9), "height": Range(1, 3)}).outcome is False
    assert each.explain({"length": Range(7, 9)}).outcome is None


def test_plain_data_for_programs() -> None:
    explanation = Filter("a = 1 AND NOT b").explain({"a": 1})
    assert explanation.to_json() == {
        "matches": False,
        "outcome": "unknown",
        "held": ["a = 1"],
        "failed": [],
        "unknown": ["b"],
        "steps": {
            "condition": "a = 1 AND NOT b",
            "outcome": "unknown",
            "parts": [
                {"condition": "a = 1", "outcome": "held", "because": "a is 1"},
                {
                    "condition": "NOT b",
                    "outcome": "unknown",
                    "parts": [{"condition": "b", "outcome": "unknown", "because": "b is absent"}],
                },
            ],
        },
    }


def test_unknown_comes_before_failed_when_no_point_of_a_range_decides() -> None:
    explanation = Filter("price > 10 AND NOT urgent").explain({"price": Range(1, 20)})
    assert explanation.outcome is None
    assert not explanation
    assert Filter("price > 10 OR urgent").explain({"price": Range(1, 5)}).outcome is None
    assert Filter("price > 30 AND urgent").explain({"price": Range(1, 20)}).outcome is False


def test_parts_that_hold_at_different_points_only() -> None:
    explanation = Filter("a < 6 AND a > 11").explain({"a": Range(5, 12)})
    assert explanation.outcome is False
    assert "all of, at one point:" in str(explanation)
