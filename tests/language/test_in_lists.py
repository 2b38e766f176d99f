"""Is a long list of strings, which is looked up, the same as one that is gone through?"""

from __future__ import annotations

import copy
import pickle

from hypothesis import given
from hypothesis import strategies as st

from braid.language import Filter
from braid.language.evaluate import evaluate
from braid.language.expressions import Attribute, Comparison, InList, Literal, Or

values = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from(["", "a", "b", "zz"])
literals = st.lists(
    st.sampled_from(["", "a", "b", "c", 1, None]) | st.text(max_size=2), min_size=8, max_size=20
)


@given(items=literals | literals.map(lambda items: [str(item) for item in items]), value=values)
def test_a_list_is_its_comparisons_one_or_the_other(items: list[str | int | None], value: object) -> None:
    attribute = Attribute("x")
    listed = InList(attribute, tuple(Literal(item) for item in items))
    assert (listed.words is not None) == all(isinstance(item, str) for item in items)
    one_or_other = Or(tuple(Comparison("=", attribute, Literal(item)) for item in items))
    attributes = {} if value is None else {"x": value}
    assert evaluate(listed, attributes) is evaluate(one_or_other, attributes)  # type: ignore[arg-type]
    outside = InList(attribute, listed.items, negated=True)
    inside = evaluate(listed, attributes)  # type: ignore[arg-type]
    assert evaluate(outside, attributes) is (None if inside is None else not inside)  # type: ignore[arg-type]


def test_a_list_can_be_copied_and_sent() -> None:
    text = "x IN (" + ", ".join(f"'{number}'" for number in range(40)) + ")"
    filter = Filter(text)
    for other in (copy.deepcopy(filter), pickle.loads(pickle.dumps(filter))):
        assert other == filter
        assert other.matches({"x": "7"})
        assert not other.matches({"x": "70"})
