"""What does a publisher send?

A publication is a flat mapping of attribute names to values, plus an optional body: bytes with a
content type that are carried and never matched. Nested JSON is flattened to dotted names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from braid.errors import PublicationError
from braid.language.values import INT_MAX, INT_MIN, Range, Value, plain_number

__all__ = ["Attributes", "Publication", "checked_attributes", "flatten", "plain_attributes"]

Attributes = Mapping[str, Value]

# Deep enough for any document people exchange, shallow enough for the interpreter's stack.
DEPTH_MAX = 64


@dataclass(frozen=True, slots=True)
class Publication:
    """What a subscriber receives: `publication["price"]`, `publication.body`, who sent it and when.

    `publisher`, `epoch` and `sequence` together are its id. Numbers rise by one per publisher and epoch;
    every run of a publishing program has an epoch of its own, unless it goes on with a former one.
    """

    attributes: Attributes
    body: bytes = b""
    content_type: str = ""
    publisher: str = ""
    sequence: int = 0
    published_at_us: int = 0
    epoch: str = ""

    def __getitem__(self, name: str) -> Value:
        return self.attributes[name]

    def get(self, name: str, default: Value | None = None) -> Value | None:
        """The value of an attribute, or `default` where it is absent."""
        return self.attributes.get(name, default)


def checked_attributes(attributes: Mapping[str, Any]) -> dict[str, Value]:
    """A private copy of `attributes`, or a `PublicationError` that names what is wrong.

    An attribute whose value is None is absent: the language makes no difference between the two.
    """
    if not isinstance(attributes, Mapping):
        raise PublicationError(
            f"attributes must be a mapping of names to values, not {type(attributes).__name__}"
        )
    checked: dict[str, Value] = {}
    for name, value in attributes.items():
        kind = type(value)
        if type(name) is not str or not name:
            raise PublicationError(f"an attribute's name must be a non-empty string, not {name!r}")
        if not name.isascii():
            _require_unicode(name, name)
        if kind is str:
            _require_unicode(name, value)
        elif kind is int:
            if not INT_MIN <= value <= INT_MAX:
                raise PublicationError(f"attribute {name!r}: the integer {value} does not fit into 64 bits")
        elif value is None:
            continue
        elif kind is not float and kind is not bool and kind is not Range:
            value = _converted(name, value)
        checked[name] = value
    return checked


def plain_attributes(attributes: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The attributes with values of the language's own types only, and whether there are ranges.

    They are given back as they are if that is so already, which is the usual case and quick; otherwise
    they are checked and converted.
    """
    ranged = False
    try:
        values = attributes.values()
    except AttributeError:
        return checked_attributes(attributes), False  # which says what is wrong with it
    for value in values:
        kind = type(value)
        if kind is int:
            if not INT_MIN <= value <= INT_MAX:
                return checked_attributes(attributes), ranged
        elif kind is Range:
            ranged = True
        elif kind not in _PLAIN:
            return plain_attributes(checked_attributes(attributes))
    return attributes, ranged


_PLAIN = frozenset({str, float, bool, type(None)})


def flatten(document: Mapping[str, Any]) -> dict[str, Value]:
    """Attributes of a nested JSON object: `{"a": {"b": 1}}` becomes `{"a.b": 1}`.

    An object with exactly the numbers `low` and `high` under the single key `$range` is a `Range`.
    Lists cannot be matched and are refused; put them into the body.
    """
    if not isinstance(document, Mapping):
        raise PublicationError(f"a publication must be a JSON object, not {_json_name(document)}")
    flat: dict[str, Any] = {}
    _flatten_into(flat, "", document, DEPTH_MAX)
    return checked_attributes(flat)


def _flatten_into(flat: dict[str, Any], prefix: str, document: Mapping[Any, Any], depth: int) -> None:
    if depth == 0:
        raise PublicationError(f"attribute {prefix[:60]!r}...: nested deeper than {DEPTH_MAX} levels")
    for key, value in document.items():
        if not isinstance(key, str) or not key:
            where = f" inside {prefix[:-1]!r}" if prefix else ""
            raise PublicationError(f"an attribute's name must be a non-empty string, not {key!r}{where}")
        name = prefix + key
        if isinstance(value, Mapping):
            if set(value) == {"$range"}:
                value = _range_of(name, value["$range"])
            else:
                _flatten_into(flat, name + ".", value, depth - 1)
                continue
        if name in flat:
            raise PublicationError(f"attribute {name!r} is given twice, once nested and once dotted")
        flat[name] = value


def _range_of(name: str, ends: object) -> Range:
    if not isinstance(ends, Mapping) or set(ends) != {"low", "high"}:
        raise PublicationError(f'attribute {name!r}: a range is {{"$range": {{"low": 1, "high": 2}}}}')
    try:
        return Range(ends["low"], ends["high"])
    except PublicationError as error:
        raise PublicationError(f"attribute {name!r}: {error}") from None


def _converted(name: str, value: Any) -> Value:
    """Values of other types that mean one of ours: NumPy scalars, enumerations, subclasses."""
    if isinstance(value, str):
        _require_unicode(name, value)
        return str.__str__(value)  # an enumeration's own str() would be its name
    plain = plain_number(value)
    if isinstance(plain, int):
        return plain if isinstance(plain, bool) else checked_attributes({name: int(plain)})[name]
    if isinstance(plain, float):
        return float(plain)
    if isinstance(plain, Range):
        return Range(plain.low, plain.high)
    raise PublicationError(
        f"attribute {name!r}: {_json_name(value)} is not a value that can be matched; use an integer, "
        "float, string, boolean or Range, and put anything else into the body"
    )


def _require_unicode(name: str, value: str) -> None:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise PublicationError(
                f"attribute {name!r}: character {error.start} is half of a surrogate pair, not text"
            ) from None


def _json_name(value: object) -> str:
    names = {list: "a list", dict: "an object", str: "a string", type(None): "null"}
    return names.get(type(value), f"a value of type {type(value).__name__}")
