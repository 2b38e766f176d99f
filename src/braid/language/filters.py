"""What does a subscriber ask for?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.language.covering import Steps, covers, intersects
from braid.language.evaluate import evaluate
from braid.language.explain import Explanation, explain
from braid.language.expressions import And, Condition, Not, Or, attribute_names
from braid.language.normal_form import Term, normal_form, term_text
from braid.language.parser import TEXT_LENGTH_MAX, parse
from braid.language.publication import plain_attributes
from braid.language.ranges import some_point_satisfies
from braid.language.stack import with_room
from braid.language.text import condition_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.language.values import Value

__all__ = ["Filter"]


class Filter:
    """A predicate over publications, written as an SQL condition.

    >>> f = Filter("symbol = 'ACME' AND price > 10")
    >>> f.matches({"symbol": "ACME", "price": 12.5})
    True
    >>> f.covers(Filter("symbol = 'ACME' AND price BETWEEN 11 AND 12"))
    True
    >>> str(Filter("NOT (price <= 10 OR symbol <> 'ACME')"))
    "price > 10 AND symbol = 'ACME'"

    A missing attribute is NULL, comparing values of different kinds is unknown, and only TRUE
    matches. Two filters are equal when they have the same normal form; the text of that form is
    `str(f)`, and `f.text` is what was written: what a filter is sent, stored and pickled as, because it
    is never longer than what was accepted. Filters are immutable and hashable.

    Functions, sub-queries, CASE, regular expressions and lists as values are not supported.
    """

    __slots__ = ("_canonical", "_terms", "condition", "text")

    text: str
    condition: Condition
    _terms: tuple[Term, ...] | None
    _canonical: str | None

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "condition", parse(text))
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "_terms", None)
        object.__setattr__(self, "_canonical", None)

    @classmethod
    def from_condition(cls, condition: Condition) -> Filter:
        """A filter from conditions that are already parsed.

        They are written down and read again: what a filter may be, its length and depth, is decided
        in one place, and a filter that exists can always be sent somewhere else as text.
        """
        try:
            text = condition_text(condition)
        except RecursionError:
            text = with_room(condition_text, condition)
        return cls(text)

    def matches(self, attributes: Mapping[str, Value | None]) -> bool:
        """Whether a publication with these attributes satisfies the filter.

        With `Range` values: whether some point of the publication does. A value that no publication
        can have raises a `PublicationError`.
        """
        plain, ranged = plain_attributes(attributes)
        if ranged:
            return some_point_satisfies(self.terms, plain)
        try:
            return evaluate(self.condition, plain) is True
        except RecursionError:
            return with_room(evaluate, self.condition, plain) is True

    def covers(self, other: Filter, *, steps: Steps | None = None) -> bool:
        """Whether every publication that satisfies `other` satisfies this filter.

        Exact for filters made of boxes; with residual conditions never wrongly True. `steps` bounds the work
        where many such questions are asked: beyond it the answer is False.
        """
        wider, narrower = self.terms, _filter(other).terms
        try:
            return covers(wider, narrower, steps)
        except RecursionError:
            return with_room(covers, wider, narrower, steps)

    def intersects(self, other: Filter) -> bool:
        """Whether some publication without ranges can satisfy both filters.

        (One with ranges may satisfy filters that have nothing in common, each at another point.)
        Exact for filters made of boxes; with residual conditions never wrongly False.
        """
        first, second = self.terms, _filter(other).terms
        try:
            return intersects(first, second)
        except RecursionError:
            return with_room(intersects, first, second)

    def explain(self, attributes: Mapping[str, Value | None]) -> Explanation:
        """Which conditions held, which failed and which were unknown."""
        plain = plain_attributes(attributes)[0]
        try:
            return explain(self.condition, plain)
        except RecursionError:
            return with_room(explain, self.condition, plain)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The normal form: a union of boxes, each perhaps with a residual condition."""
        if self._terms is None:
            try:
                terms = normal_form(self.condition)
            except RecursionError:
                terms = with_room(normal_form, self.condition)
            object.__setattr__(self, "_terms", terms)
        return self._terms  # type: ignore[return-value]

    @property
    def satisfiable(self) -> bool:
        """False when the conditions contradict each other, so that nothing can match."""
        return bool(self.terms)

    @property
    def attributes(self) -> frozenset[str]:
        """The names of the attributes the filter looks at."""
        return frozenset(attribute_names(self.condition))

    def __and__(self, other: Filter) -> Filter:
        return Filter.from_condition(And((self.condition, other.condition)))

    def __or__(self, other: Filter) -> Filter:
        return Filter.from_condition(Or((self.condition, other.condition)))

    def __invert__(self) -> Filter:
        inner = self.condition
        return Filter.from_condition(inner.condition if isinstance(inner, Not) else Not(inner))

    def __str__(self) -> str:
        if self._canonical is None:
            terms = self.terms
            try:
                canonical = _terms_text(terms)
            except RecursionError:
                canonical = with_room(_terms_text, terms)
            # Most filters are written the way we would write them; then one string is enough. And what
            # could not be read again for its length is shown as it was written.
            as_written = canonical == self.text or len(canonical) > TEXT_LENGTH_MAX
            object.__setattr__(self, "_canonical", self.text if as_written else canonical)
        return self._canonical  # type: ignore[return-value]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filter):
            return NotImplemented
        return self.text == other.text or str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Filter cannot be changed; make a new one instead of setting {name!r}")

    def __reduce__(self) -> tuple[type[Filter], tuple[str]]:
        return (Filter, (self.text,))


def _terms_text(terms: tuple[Term, ...]) -> str:
    return " OR ".join(map(term_text, terms)) or "FALSE"


def _filter(other: Filter) -> Filter:
    if not isinstance(other, Filter):
        raise TypeError(f"a Filter is compared with a Filter, not with {type(other).__name__}")
    return other
