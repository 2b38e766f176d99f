"""What does a filter come down to?

Every filter is a union of terms. A term is a *box* (per attribute the set of acceptable values) plus
a *residual*: conditions that tie attributes together or look inside strings, checked after the box.
The box always contains everything the residual can accept, so it is safe to look at it alone.

NOT is first pushed down to the leaves, which three-valued logic allows: a filter asks only whether
its condition is TRUE. Then conjunctions intersect boxes and disjunctions collect them. What that would
multiply beyond measure stays residual instead, so that a form is about as large as what was written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from braid.language.evaluate import compared, evaluate
from braid.language.expressions import (
    And,
    Attribute,
    Between,
    Comparison,
    Condition,
    Holds,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    ValueExpression,
    attribute_names,
)
from braid.language.likes import canonical_like, like_prefix
from braid.language.text import KnownTexts, condition_text, value_set_text, value_text
from braid.language.value_sets import (
    ANYTHING,
    NOT_NULL,
    NOTHING,
    NULL_ONLY,
    NUMBERS,
    STRINGS,
    ValueSet,
    compared_with,
    intersection_of,
    strings_with_prefix,
    union_of,
    values_between,
)
from braid.language.weights import condition_weight, expression_weight, values_weight

__all__ = [
    "TERMS_MAX",
    "WEIGHT_MAX",
    "Box",
    "Term",
    "box_covers",
    "leaf_values",
    "normal_form",
    "term_text",
    "terms_intersect",
    "terms_intersection",
]

Box: TypeAlias = Mapping[str, ValueSet]

# A conjunction that would multiply out to more than this keeps its alternatives as residuals, all of
# them, which is slower and never wrong. (Multiplying out some of them would give a text that, parsed
# again, multiplies out the others.)
TERMS_MAX = 1024
# A plain list of alternatives may be longer than a product.
ALTERNATIVES_MAX = 16_384
# What terms may weigh together, about the characters of their text, where that is more than twice what was
# written: 2,665 characters of ten alternatives with long names would multiply out to 1.4 million.
WEIGHT_MAX = 131_072
# The same for what one list of values makes of its operand.
LISTED_MAX = 4_096
# Dropping covered terms compares every pair, attribute by attribute.
ABSORBED_MAX = 512
ABSORBED_STEPS_MAX = 1_000_000
# Going through terms once more to merge them, as long as that merges any.
MERGED_STEPS_MAX = 200_000
# A conjunction that says more than this of one attribute is not narrowed down bound by bound.
PLAIN_MAX = 32

_NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_ORDERS = {"<": 1, "=": 2, "<=": 3, ">": 4, "<>": 5, ">=": 6}
_OPERATORS = {orders: operator for operator, orders in _ORDERS.items()}
_TRUE, _FALSE = And(()), Or(())


@dataclass(frozen=True, slots=True)
class Term:
    """A box and what must hold beyond it. Attributes the box does not name may be anything."""

    box: Box
    residual: tuple[Condition, ...] = ()


def normal_form(condition: Condition) -> tuple[Term, ...]:
    """The terms of a filter, simplified and in a fixed order; none when nothing can satisfy it."""
    plain = _plain_terms(condition)
    if plain is not None:
        return plain
    terms = _terms(_without_not(condition, negated=False), _Known())
    return tuple(sorted(_absorbed(terms), key=term_text)) if len(terms) > 1 else tuple(terms)


def term_text(term: Term) -> str:
    """The canonical text of one term."""
    implied = _bounds_of_all(term.residual, _Known()) if term.residual else {}
    written = [
        value_set_text(name, values)
        for name, values in sorted(term.box.items())
        if implied.get(name) != values
    ]
    parts = [(condition_text(part), isinstance(part, Or)) for part in term.residual]
    everything = written + parts
    if len(everything) == 1:
        return everything[0][0]
    return " AND ".join(f"({text})" if loose else text for text, loose in everything) or "TRUE"


class _Known:
    """What was found out about conditions while one form is made. They stand inside each other, and would be
    gone through again at each level."""

    __slots__ = ("bounds", "texts")

    def __init__(self) -> None:
        self.bounds: dict[int, tuple[Condition, Box]] = {}
        """By identity, with the condition itself, so that it stays the only one with this identity."""
        self.texts: KnownTexts = {}

    def text(self, condition: Condition) -> str:
        return condition_text(condition, self.texts)


def terms_intersection(first: Term, second: Term, known: _Known | None = None) -> Term | None:
    """What satisfies both terms, None when nothing can (as far as boxes and simple residuals tell)."""
    box = dict(first.box)
    if not _narrow(box, second.box):
        return None
    if not second.residual:
        return Term(box, first.residual)
    residual = _combined_residual(first.residual + second.residual, known or _Known())
    return None if residual is None else Term(box, residual)


def terms_intersect(first: Term, second: Term) -> bool:
    """Whether something can satisfy both (as far as boxes and simple residuals tell)."""
    for name, values in second.box.items():
        existing = first.box.get(name)
        if existing is not None and existing.disjoint(values):
            return False
    residual = first.residual + second.residual
    return len(residual) < 2 or _joint_orders(residual) is not None


def _narrow(box: dict[str, ValueSet], other: Box) -> bool:
    """Make `box` its intersection with `other`; False when nothing is left of it."""
    for name, values in other.items():
        existing = box.get(name)
        if existing is not None:
            values = existing.intersection(values)
        if not values:
            return False
        box[name] = values
    return True


# Negation normal form.


def _without_not(condition: Condition, negated: bool) -> Condition:
    """The same condition (or its negation) from AND, OR and leaves that are sets or residuals."""
    if isinstance(condition, Not):
        return _without_not(condition.condition, not negated)
    if isinstance(condition, (And, Or)):
        parts = [_without_not(part, negated) for part in condition.conditions]
        return _all_of(parts) if isinstance(condition, And) != negated else _any_of(parts)
    if isinstance(condition, Comparison):
        operator = _NEGATED[condition.operator] if negated else condition.operator
        return _comparison(operator, condition.left, condition.right)
    if isinstance(condition, Holds):
        return _comparison("=", condition.operand, Literal(not negated))
    negated = negated != condition.negated
    if isinstance(condition, IsNull):
        return _is_null(condition.operand, negated)
    if isinstance(condition, Like):
        return _like(condition, negated)
    if isinstance(condition, Between):
        operand = condition.operand
        if negated:
            return _any_of(
                [_comparison("<", operand, condition.low), _comparison(">", operand, condition.high)]
            )
        return _all_of(
            [_comparison(">=", operand, condition.low), _comparison("<=", operand, condition.high)]
        )
    return _in_list(condition, negated)


def _all_of(parts: Iterable[Condition]) -> Condition:
    """A conjunction without conjunctions directly inside it, and without constants."""
    flat: list[Condition] = []
    for part in parts:
        if isinstance(part, And):
            flat += part.conditions
        elif part == _FALSE:
            return _FALSE
        else:
            flat.append(part)
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def _any_of(parts: Iterable[Condition]) -> Condition:
    """A disjunction without disjunctions directly inside it, and without constants."""
    flat: list[Condition] = []
    for part in parts:
        if isinstance(part, Or):
            flat += part.conditions
        elif part == _TRUE:
            return _TRUE
        else:
            flat.append(part)
    return flat[0] if len(flat) == 1 else Or(tuple(flat))


def _comparison(operator: str, left: ValueExpression, right: ValueExpression) -> Condition:
    if isinstance(left, Literal):
        if isinstance(right, Literal):
            return _TRUE if compared(operator, left.value, right.value) else _FALSE
        operator, left, right = _MIRRORED[operator], right, left
    if isinstance(right, Literal):
        # Nothing compares with NULL, and only a number compares with the result of arithmetic.
        comparable = right.value is not None if isinstance(left, Attribute) else _is_number(right.value)
        return Comparison(operator, left, right) if comparable else _FALSE
    if left == right and isinstance(left, Attribute):
        return IsNull(left, negated=True) if operator in ("=", "<=", ">=") else _FALSE
    if value_text(left) > value_text(right):
        operator, left, right = _MIRRORED[operator], right, left
    return Comparison(operator, left, right)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_null(operand: ValueExpression, negated: bool) -> Condition:
    if isinstance(operand, Literal):
        return _TRUE if (operand.value is None) != negated else _FALSE
    return IsNull(operand, negated)


def _like(condition: Like, negated: bool) -> Condition:
    if isinstance(condition.operand, Attribute):
        return Like(condition.operand, *canonical_like(condition.pattern, condition.escape), negated)
    # The operand is a literal, or arithmetic, which never yields a string.
    outcome = isinstance(condition.operand, Literal) and evaluate(
        Like(condition.operand, condition.pattern, condition.escape, negated), {}
    )
    return _TRUE if outcome else _FALSE


def _in_list(condition: InList, negated: bool) -> Condition:
    plain = isinstance(condition.operand, Attribute) and all(
        isinstance(item, Literal) for item in condition.items
    )
    # Written out, the operand would stand beside each item.
    if plain or expression_weight(condition.operand) * len(condition.items) > LISTED_MAX:
        return InList(condition.operand, condition.items, negated)
    if negated:
        return _all_of(_comparison("<>", condition.operand, item) for item in condition.items)
    return _any_of(_comparison("=", condition.operand, item) for item in condition.items)


# Leaves.


def leaf_values(leaf: Condition) -> tuple[str, ValueSet] | None:
    """The attribute and the set a leaf is about, None when it needs a residual."""
    if isinstance(leaf, Comparison):
        if isinstance(leaf.left, Attribute) and isinstance(leaf.right, Literal):
            return leaf.left.name, compared_with(leaf.operator, leaf.right.value)
    elif isinstance(leaf, IsNull):
        if isinstance(leaf.operand, Attribute):
            return leaf.operand.name, NOT_NULL if leaf.negated else NULL_ONLY
    elif isinstance(leaf, InList) and isinstance(leaf.operand, Attribute):
        literals = [item.value for item in leaf.items if isinstance(item, Literal)]
        if len(literals) < len(leaf.items):
            return None
        if not leaf.negated:
            return leaf.operand.name, union_of(compared_with("=", literal) for literal in literals)
        # Not in a list with NULL, or of values of two kinds, is never TRUE.
        kinds = {_KINDS.get(type(literal)) for literal in literals}
        if len(kinds) > 1 or None in kinds:
            return leaf.operand.name, NOTHING
        listed = union_of(compared_with("=", literal) for literal in literals)
        return leaf.operand.name, compared_with("<>", literals[0]).difference(listed)
    elif isinstance(leaf, Like) and isinstance(leaf.operand, Attribute):
        prefix, form = like_prefix(leaf.pattern, leaf.escape)
        if form != "general":
            values = compared_with("=", prefix) if form == "exact" else strings_with_prefix(prefix)
            return leaf.operand.name, STRINGS.difference(values) if leaf.negated else values
    return None


_KINDS = {int: "number", float: "number", str: "string", bool: "boolean"}


def _bounds(condition: Condition, known: _Known) -> Box:
    """Per attribute, all values with which the condition can be TRUE."""
    if isinstance(condition, (And, Or)):
        found = known.bounds.get(id(condition))
        if found is None:
            bounds = _bounds_of_all if isinstance(condition, And) else _bounds_of_any
            found = known.bounds[id(condition)] = (condition, bounds(condition.conditions, known))
        return found[1]
    leaf = leaf_values(condition)
    if leaf is not None:
        return {leaf[0]: leaf[1]}
    if isinstance(condition, Like) and isinstance(condition.operand, Attribute):
        prefix, _ = like_prefix(condition.pattern, condition.escape)
        return {condition.operand.name: STRINGS if condition.negated else strings_with_prefix(prefix)}
    if isinstance(condition, Comparison):
        both_plain = isinstance(condition.left, Attribute) and isinstance(condition.right, Attribute)
        return dict.fromkeys(attribute_names(condition), NOT_NULL if both_plain else NUMBERS)
    if isinstance(condition, IsNull) and condition.negated:
        return dict.fromkeys(attribute_names(condition), NUMBERS)
    return {}


def _bounds_of_all(conditions: Iterable[Condition], known: _Known) -> Box:
    return _common_box(_bounds(condition, known) for condition in conditions)


def _bounds_of_any(conditions: Iterable[Condition], known: _Known) -> Box:
    alternatives = [_bounds(part, known) for part in conditions]
    names = set.intersection(*(set(each) for each in alternatives)) if alternatives else set()
    return {name: union_of(each[name] for each in alternatives) for name in sorted(names)}


def _common_box(boxes: Iterable[Box]) -> dict[str, ValueSet]:
    """What all of these leave of each attribute, perhaps nothing."""
    sets: dict[str, list[ValueSet]] = {}
    for box in boxes:
        for name, values in box.items():
            sets.setdefault(name, []).append(values)
    return {name: each[0] if len(each) == 1 else intersection_of(each) for name, each in sets.items()}


def _as_residual(condition: Condition, known: _Known) -> list[Term]:
    bounds = _bounds(condition, known)
    if not all(bounds.values()):
        return []
    return [Term({name: v for name, v in bounds.items() if v != ANYTHING}, (condition,))]


def _combined_residual(conditions: tuple[Condition, ...], known: _Known) -> tuple[Condition, ...] | None:
    """Sorted, without repeats, comparisons of the same two sides merged; None if they contradict."""
    if len(conditions) < 2:
        return conditions
    orders = _joint_orders(conditions)
    if orders is None:
        return None
    by_text: dict[str, Condition] = {}
    for condition in conditions:
        if not isinstance(condition, Comparison):
            by_text.setdefault(known.text(condition), condition)
    for sides, allowed in orders.items():
        merged = Comparison(_OPERATORS[allowed], *sides)
        by_text[known.text(merged)] = merged
    return tuple(condition for _, condition in sorted(by_text.items(), key=itemgetter(0)))


def _joint_orders(
    conditions: tuple[Condition, ...],
) -> dict[tuple[ValueExpression, ValueExpression], int] | None:
    """How the two sides of comparisons may compare; None if that leaves no way."""
    orders: dict[tuple[ValueExpression, ValueExpression], int] = {}
    for condition in conditions:
        if isinstance(condition, Comparison):
            sides = (condition.left, condition.right)
            orders[sides] = orders.get(sides, 7) & _ORDERS[condition.operator]
    return None if 0 in orders.values() else orders


# Terms.


def _plain_terms(condition: Condition) -> tuple[Term, ...] | None:
    """The one term of a plain conjunction of bounds; None for anything else, or if nothing satisfies it.

    Most filters are such conjunctions, and the general way, whose result this is, takes four times as
    long.
    """
    box: dict[str, ValueSet] = {}
    parts = condition.conditions if isinstance(condition, And) else (condition,)
    if len(parts) > PLAIN_MAX:
        return None
    for part in parts:
        if isinstance(part, Comparison) and isinstance(part.right, Literal):
            operand, values = part.left, compared_with(part.operator, part.right.value)
        elif (
            isinstance(part, Between)
            and not part.negated
            and isinstance(part.low, Literal)
            and isinstance(part.high, Literal)
        ):
            operand, values = part.operand, values_between(part.low.value, part.high.value)
        else:
            return None
        if not isinstance(operand, Attribute) or not _narrow(box, {operand.name: values}):
            return None
    return (Term(box),)


def _terms(condition: Condition, known: _Known) -> list[Term]:
    if isinstance(condition, And):
        return _product(condition.conditions, known)
    if isinstance(condition, Or):
        return _sum(condition, known)
    leaf = leaf_values(condition)
    if leaf is None:
        return _as_residual(condition, known)
    return [Term({leaf[0]: leaf[1]})] if leaf[1] else []


def _sum(condition: Or, known: _Known) -> list[Term]:
    """The terms of all alternatives, or the whole as a residual if those are too many or too large."""
    collected: list[Term] = []
    weight, weight_max = 0, WEIGHT_MAX
    for part in condition.conditions:
        terms = _terms(part, known)
        collected += terms
        if len(terms) > 1:  # a single one is no more than was written
            weight += sum(map(_weight, terms))
        if weight > weight_max:
            weight_max = max(weight_max, 2 * condition_weight(condition))
        # Before they are merged, twice as many are let through as may be left.
        if weight > weight_max or len(collected) > 2 * ALTERNATIVES_MAX:
            return _as_residual(condition, known)
    merged = _merged(collected, known)
    return merged if len(merged) <= ALTERNATIVES_MAX else _as_residual(condition, known)


def _product(conditions: tuple[Condition, ...], known: _Known) -> list[Term]:
    boxes: list[Box] = []
    residual: list[Condition] = []
    factors: list[list[Term]] = []
    alternatives: list[Condition] = []
    for condition in conditions:
        terms = _terms(condition, known)
        if len(terms) > 1:
            factors.append(terms)
            alternatives.append(condition)
        elif not terms:
            return []
        else:
            boxes.append(terms[0].box)
            residual += terms[0].residual
    if factors and _multiplies_too_much(Term(_common_box(boxes), tuple(residual)), factors, conditions):
        factors = []
        residual += alternatives
        boxes.append(_bounds_of_all(alternatives, known))
    box = _common_box(boxes)
    combined = _combined_residual(tuple(residual), known)
    if combined is None or not all(box.values()):
        return []
    product = [Term(box, combined)]
    for terms in factors:
        pairs = (terms_intersection(left, right, known) for left in product for right in terms)
        product = [term for term in pairs if term is not None]
    return _merged(product, known)


def _multiplies_too_much(common: Term, factors: list[list[Term]], conditions: tuple[Condition, ...]) -> bool:
    """Whether one term for each choice out of `factors` would be too many, or weigh too much together."""
    count = math.prod(map(len, factors))
    if count > TERMS_MAX:
        return True
    weight = count * _weight(common)
    for terms in factors:
        weight += count // len(terms) * sum(map(_weight, terms))
    return weight > WEIGHT_MAX and weight > 2 * sum(map(condition_weight, conditions))


def _weight(term: Term) -> int:
    """About how many characters its text has."""
    weight = sum(len(name) + values_weight(values) for name, values in term.box.items())
    return weight + sum(map(condition_weight, term.residual)) if term.residual else weight


def _merged(terms: list[Term], known: _Known) -> list[Term]:
    """Without repeats, and with terms that differ in one attribute only made into one."""
    if len(terms) < 2:
        return terms
    # Terms that merge have the same residual and constrain the same attributes. A merged term may
    # lose an attribute, so the sizes are gone through downwards.
    groups: dict[tuple[object, frozenset[str]], list[Term]] = {}
    sizes: list[dict[tuple[object, frozenset[str]], list[Term]]]
    sizes = [{} for _ in range(max(len(term.box) for term in terms) + 1)]
    for term in terms:
        groups = sizes[len(term.box)]
        groups.setdefault((tuple(map(known.text, term.residual)), frozenset(term.box)), []).append(term)
    result: list[Term] = []
    for size in range(len(sizes) - 1, -1, -1):
        for (residual, names), group in sizes[size].items():
            for term in _merged_group(sorted(names), group):
                if len(term.box) == size:
                    result.append(term)
                else:
                    groups = sizes[len(term.box)]
                    groups.setdefault((residual, frozenset(term.box)), []).append(term)
    return result


def _merged_group(names: list[str], terms: list[Term]) -> list[Term]:
    """Terms with one residual, over the same attributes."""
    if len(terms) == 1:
        return terms
    terms = list({frozenset(term.box.items()): term for term in terms}.values())
    before = steps = 0
    while len(terms) not in (1, before) and steps <= MERGED_STEPS_MAX:
        before = len(terms)
        steps += before * len(names)
        for name in names:
            terms = _merged_along(name, terms)
    return terms


def _merged_along(name: str, terms: list[Term]) -> list[Term]:
    groups: dict[frozenset[tuple[str, ValueSet]], list[Term]] = {}
    result: list[Term] = []
    for term in terms:
        if name in term.box:
            groups.setdefault(frozenset(item for item in term.box.items() if item[0] != name), []).append(
                term
            )
        else:
            result.append(term)
    for group in groups.values():
        if len(group) == 1:
            result += group
            continue
        box = dict(group[0].box)
        box[name] = union_of(term.box[name] for term in group)
        if box[name] == ANYTHING:
            del box[name]
        result.append(Term(box, group[0].residual))
    return result


def _absorbed(terms: list[Term]) -> list[Term]:
    """Without the terms that another one covers."""
    steps = len(terms) * sum(1 + len(term.box) for term in terms)
    if len(terms) > ABSORBED_MAX or steps > ABSORBED_STEPS_MAX:
        return terms
    numbers: dict[Condition, int] = {}
    kept: list[tuple[Term, frozenset[int]]] = []
    # Fewer conditions cover more, so most terms meet what covers them when their turn comes.
    for term in sorted(terms, key=lambda term: (len(term.residual), len(term.box))):
        residual = frozenset([numbers.setdefault(each, len(numbers)) for each in term.residual])
        if not any(theirs <= residual and box_covers(other.box, term.box) for other, theirs in kept):
            kept = [
                (other, theirs)
                for other, theirs in kept
                if not (residual <= theirs and box_covers(term.box, other.box))
            ]
            kept.append((term, residual))
    return [term for term, _ in kept]


def box_covers(wider: Box, narrower: Box) -> bool:
    """Whether everything within `narrower` is within `wider`."""
    for name, values in wider.items():
        theirs = narrower.get(name)
        if theirs is None or not values.covers(theirs):
            return False
    return True
