"""How does a JSON event pattern, as Amazon EventBridge uses them, read as a filter?

    {"price": [{"numeric": [">", 10]}], "symbol": ["ACME", {"prefix": "AC"}]}

becomes `price > 10 AND (symbol = 'ACME' OR symbol LIKE 'AC%' ESCAPE '!')`. Every field must hold
(AND), any entry of its list will do (OR), and nested objects become dotted names.

| in the list of a field                         | holds when the attribute                    |
|------------------------------------------------|---------------------------------------------|
| `"text"`, `12.5`, `true`                       | equals it                                   |
| `null`, `{"exists": false}`                    | is absent (null and absent are one here)    |
| `{"exists": true}`                             | is present                                  |
| `{"prefix": "a"}`, `{"suffix": "z"}`           | is a string that begins or ends so          |
| `{"wildcard": "a*z"}`                          | is a string of that form (`\\*`, `\\\\` escape) |
| `{"numeric": [">=", 1, "<", 9]}`               | is a number within those bounds             |
| `{"anything-but": ...}`                        | is present and anything else, of any kind   |

`anything-but` takes a string, a number, a list of strings, a list of numbers, or a prefix, suffix
or wildcard (or a list of them). `"$or": [{...}, {...}]` joins patterns of several fields.

Not supported, because the language has no way to say it: `equals-ignore-case` and `cidr`. They and
everything malformed raise a `PatternError` that names the place in the pattern.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from braid.errors import FilterError, PatternError
from braid.language.filters import Filter
from braid.language.likes import CANONICAL_ESCAPE, escape_like
from braid.language.text import literal_text, name_text
from braid.language.values import INT_MAX, INT_MIN

__all__ = ["filter_from_pattern", "pattern_to_sql"]

# As deep as the publications that a pattern can be asked about.
DEPTH_MAX = 64

_MATCHERS = ("prefix", "suffix", "wildcard", "anything-but", "numeric", "exists")
_NOT_EXPRESSIBLE = {
    "equals-ignore-case": "comparison without regard to case",
    "cidr": "matching IP addresses against a network",
}
_LOWER, _UPPER = (">", ">="), ("<", "<=")

# Present as a value of that kind: every value of a kind lies in these bounds, NaN included.
_IS_STRING = "{name} >= ''"
_IS_NUMBER = "{name} < 0 OR {name} >= 0"
_IS_BOOLEAN = "{name} IN (TRUE, FALSE)"


def filter_from_pattern(pattern: Mapping[str, Any] | str) -> Filter:
    """The filter that an event pattern describes; `pattern` is the object or its JSON text."""
    text = pattern_to_sql(pattern)
    try:
        return Filter(text)
    except FilterError as error:
        raise PatternError(f"$: the pattern cannot be used as a filter: {error}") from error


def pattern_to_sql(pattern: Mapping[str, Any] | str) -> str:
    """The same as filter text, for people who want to keep the filter instead of the pattern."""
    document = _parsed(pattern) if isinstance(pattern, str) else pattern
    if not isinstance(document, Mapping):
        _refuse("$", f"a pattern must be an object, not {_kind(document)}")
    return " AND ".join(_joined(condition) for condition in _fields(document, "$", "", DEPTH_MAX, {}))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except PatternError:
        raise
    except json.JSONDecodeError as error:
        _refuse("$", f"not JSON: {error}")
    except RecursionError:
        _refuse("$", f"nested deeper than {DEPTH_MAX} levels")
    except ValueError as error:  # an integer with more digits than Python is willing to read
        _refuse("$", f"not JSON that can be read: {error}")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON readers keep the last of two equal keys; here that would quietly lose a condition."""
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            _refuse("$", f"the key {json.dumps(key)} occurs twice in one object")
        members[key] = value
    return members


def _fields(
    document: Mapping[Any, Any], path: str, prefix: str, depth: int, seen: dict[str, str]
) -> list[list[str]]:
    """One condition per field, each a list of alternatives; `seen` maps names to their paths."""
    if depth == 0:
        _refuse(path, f"nested deeper than {DEPTH_MAX} levels")
    if not document:
        _refuse(path, "an empty object says nothing; name at least one field")
    conditions: list[list[str]] = []
    for key, value in document.items():
        if not isinstance(key, str) or not key:
            _refuse(path, f"a field's name must be a non-empty string, not {key!r}")
        _require_unicode(key, path)
        place = f"{path}.{key}"
        name = prefix + key
        if key == "$or":
            conditions.append(_alternatives(value, place, prefix, depth))
        elif isinstance(value, Mapping):
            conditions += _fields(value, place, name + ".", depth - 1, seen)
        elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            if name in seen:
                _refuse(place, f"the field {name!r} is given twice, the first time at {seen[name]}")
            seen[name] = place
            conditions.append(_matchers(value, name_text(name), place))
        else:
            _refuse(place, f"must be an object or a list of matchers, not {_kind(value)}")
    return conditions


def _alternatives(patterns: Any, path: str, prefix: str, depth: int) -> list[str]:
    """`"$or": [{...}, {...}]`: one of several patterns, each with its own fields."""
    if not isinstance(patterns, Sequence) or isinstance(patterns, (str, bytes)) or len(patterns) < 2:
        _refuse(path, "must be a list of at least two patterns")
    terms = []
    for position, pattern in enumerate(patterns):
        place = f"{path}[{position}]"
        if not isinstance(pattern, Mapping):
            _refuse(place, f"must be a pattern (an object), not {_kind(pattern)}")
        conditions = _fields(pattern, place, prefix, depth - 1, {})
        term = " AND ".join(_joined(condition) for condition in conditions)
        terms.append(f"({term})" if len(conditions) > 1 else term)
    return terms


def _matchers(entries: Sequence[Any], name: str, path: str) -> list[str]:
    """The alternatives of one field, literals of one kind together so that they make one IN."""
    if not entries:
        _refuse(path, "an empty list matches nothing; give at least one value or matcher")
    literals: dict[str, list[str]] = {}
    terms: list[str] = []
    for position, entry in enumerate(entries):
        place = f"{path}[{position}]"
        if isinstance(entry, Mapping):
            terms.append(_matcher(entry, name, place))
        elif entry is None:
            terms.append(f"{name} IS NULL")
        else:
            literals.setdefault(_kind(entry), []).append(_literal(entry, place))
    return [_one_of(name, values) for values in literals.values()] + terms


def _matcher(entry: Mapping[Any, Any], name: str, path: str) -> str:
    key, operand = _single(entry, path)
    place = f"{path}.{key}"
    if key in _STRING_FORMS:
        return _like(name, _form(key, operand, place))
    if key == "numeric":
        return _numeric(operand, name, place)
    if key == "anything-but":
        return _anything_but(operand, name, place)
    if key == "exists":
        if not isinstance(operand, bool):
            _refuse(place, f"must be true or false, not {_kind(operand)}")
        return f"{name} IS NOT NULL" if operand else f"{name} IS NULL"
    _refuse_matcher(key, path, _MATCHERS)


def _numeric(operand: Any, name: str, path: str) -> str:
    """`["=", 1]`, `[">", 1]` or `[">", 1, "<=", 9]`."""
    if not isinstance(operand, Sequence) or isinstance(operand, str) or len(operand) not in (2, 4):
        _refuse(path, 'must be a comparison such as [">", 0] or a range such as [">", 0, "<=", 5]')
    bounds: dict[str, tuple[str, Any]] = {}
    for position in range(0, len(operand), 2):
        operator, value = operand[position], operand[position + 1]
        if operator not in ("=", *_LOWER, *_UPPER):
            _refuse(f"{path}[{position}]", f"must be one of = < <= > >=, not {operator!r}")
        if _kind(value) != "a number":
            _refuse(f"{path}[{position + 1}]", f"must be a number, not {_kind(value)}")
        _literal(value, f"{path}[{position + 1}]")
        side = "lower" if operator in _LOWER else "upper" if operator in _UPPER else "equal"
        if side in bounds or (len(operand) == 4 and side == "equal"):
            _refuse(path, "a range takes one lower bound (> or >=) and one upper bound (< or <=)")
        bounds[side] = operator, value
    if len(bounds) == 2:
        (above, low), (below, high) = bounds["lower"], bounds["upper"]
        if low > high or (low == high and (above, below) != (">=", "<=")):
            _refuse(path, f"no number lies in this range: {above} {low} and {below} {high}")
    terms = [f"{name} {operator} {_literal(value, path)}" for operator, value in bounds.values()]
    return f"({' AND '.join(terms)})" if len(terms) > 1 else terms[0]


def _anything_but(operand: Any, name: str, path: str) -> str:
    """Present and different: values of another kind are different too, which SQL's <> is not."""
    if isinstance(operand, Mapping):
        key, excluded = _single(operand, path)
        place = f"{path}.{key}"
        if key not in _STRING_FORMS:
            _refuse_matcher(key, path, tuple(_STRING_FORMS))
        likes = [_form(key, *each) for each in _listed(excluded, place)]
        # A suffix or prefix of nothing is part of every string; the mistake is worth a message.
        if "%" in likes:
            _refuse(place, "excludes every string; give at least one character")
        strings = " AND ".join(_like(name, like, negated=True) for like in likes)
        return _either(name, strings, _IS_NUMBER, _IS_BOOLEAN)
    entries = _listed(operand, path)
    kinds = {_kind(entry) for entry, _ in entries}
    if not kinds <= {"a string", "a number"}:
        _refuse(path, "takes a string, a number, a list of either, or a prefix, suffix or wildcard")
    if len(kinds) > 1:
        _refuse(path, "a list must hold strings only or numbers only")
    different = _none_of(name, [_literal(*entry) for entry in entries])
    return _either(name, different, _IS_NUMBER if kinds == {"a string"} else _IS_STRING, _IS_BOOLEAN)


def _listed(operand: Any, path: str) -> list[tuple[Any, str]]:
    """One operand or a list of them, each with its path."""
    if not isinstance(operand, Sequence) or isinstance(operand, (str, bytes)):
        return [(operand, path)]
    if not operand:
        _refuse(path, "an empty list excludes nothing; give at least one value")
    return [(entry, f"{path}[{position}]") for position, entry in enumerate(operand)]


def _form(key: str, operand: Any, path: str) -> str:
    """The LIKE pattern of a prefix, suffix or wildcard."""
    if isinstance(operand, Mapping):
        inner, _ = _single(operand, path)
        _refuse_matcher(inner, path, ())
    if not isinstance(operand, str):
        _refuse(path, f"must be a string, not {_kind(operand)}")
    _require_unicode(operand, path)
    return _STRING_FORMS[key](operand, path)


def _wildcard(operand: str, path: str) -> str:
    like = []
    position = 0
    while position < len(operand):
        character = operand[position]
        if character == "\\":
            position += 1
            character = operand[position : position + 1]
            if character not in ("*", "\\"):
                _refuse(path, r"a backslash may only stand before * or another backslash")
            like.append(escape_like(character))
        elif character == "*":
            if like and like[-1] == "%":
                _refuse(path, "two wildcards * in a row; one says the same")
            like.append("%")
        else:
            like.append(escape_like(character))
        position += 1
    return "".join(like)


_STRING_FORMS: dict[str, Callable[[str, str], str]] = {
    "prefix": lambda operand, _: escape_like(operand) + "%",
    "suffix": lambda operand, _: "%" + escape_like(operand),
    "wildcard": _wildcard,
}


def _like(name: str, like: str, negated: bool = False) -> str:
    return f"{name} {'NOT ' if negated else ''}LIKE {literal_text(like)} ESCAPE '{CANONICAL_ESCAPE}'"


def _one_of(name: str, literals: list[str]) -> str:
    return f"{name} = {literals[0]}" if len(literals) == 1 else f"{name} IN ({', '.join(literals)})"


def _none_of(name: str, literals: list[str]) -> str:
    return f"{name} <> {literals[0]}" if len(literals) == 1 else f"{name} NOT IN ({', '.join(literals)})"


def _either(name: str, term: str, *kinds: str) -> str:
    return " OR ".join([term, *(kind.format(name=name) for kind in kinds)])


def _joined(alternatives: list[str]) -> str:
    """Alternatives as one operand of AND; parentheses only where they change the meaning."""
    text = " OR ".join(alternatives)
    return f"({text})" if " OR " in text else text


def _literal(value: Any, path: str) -> str:
    if isinstance(value, str):
        _require_unicode(value, path)
        return literal_text(str(value))
    if isinstance(value, bool):
        return literal_text(value)
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            _refuse(path, "the integer does not fit into 64 bits")
        return literal_text(int(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            _refuse(path, f"{value} is not a number that JSON knows")
        return literal_text(float(value))
    _refuse(path, f"must be a string, number, true, false, null or a matcher, not {_kind(value)}")


def _single(entry: Mapping[Any, Any], path: str) -> tuple[Any, Any]:
    if len(entry) != 1:
        keys = ", ".join(map(repr, entry)) or "none"
        _refuse(path, f"a matcher is an object with exactly one key, not {keys}")
    return next(iter(entry.items()))


def _refuse_matcher(key: Any, path: str, known: Iterable[str]) -> NoReturn:
    if key in _NOT_EXPRESSIBLE:
        _refuse(f"{path}.{key}", f"{_NOT_EXPRESSIBLE[key]} ({key}) cannot be expressed in a filter")
    accepted = f"expected one of {', '.join(known)}" if known else "expected a string"
    _refuse(f"{path}.{key}", f"unknown matcher {key!r}; {accepted}")


def _require_unicode(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        _refuse(path, f"character {error.start} is half of a surrogate pair, not text")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, (list, tuple)) else f"a value of type {type(value).__name__}"


def _refuse(path: str, reason: str) -> NoReturn:
    raise PatternError(f"{path}: {reason}")
