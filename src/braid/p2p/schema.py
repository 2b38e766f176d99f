"""Which domain does an attribute have, for every peer alike?

Without a schema it depends on the attribute's name and kind alone: numbers lie where their doubles lie,
strings where their first eight bytes say, booleans take one bit. A network may have a schema instead, fixed
when it begins: bounds, granularity, lengths. All its peers have the same one, which they tell by its digest.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

from braid.errors import ConfigurationError
from braid.language.values import INT_MAX, INT_MIN, Range
from braid.p2p.zcode import BooleanDomain, Domain, FloatDomain, IntegerDomain, OrdinalDomain, StringDomain

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BOOLEAN", "KINDS", "NUMBER", "STRING", "Dimension", "NetworkSchema", "kind_of"]

NUMBER: Final = "number"
STRING: Final = "string"
BOOLEAN: Final = "boolean"
KINDS: Final = (NUMBER, STRING, BOOLEAN)

Dimension: TypeAlias = tuple[str, str]
"""An attribute as an axis of a space: its name and its kind."""

_DEFAULTS: Final[Mapping[str, Domain]] = {
    NUMBER: OrdinalDomain(),
    STRING: StringDomain(),
    BOOLEAN: BooleanDomain(),
}


def kind_of(value: object) -> str:
    """The kind of a publication's value."""
    if isinstance(value, bool):
        return BOOLEAN
    return STRING if isinstance(value, str) else NUMBER


class NetworkSchema:
    """What all peers of a network know of attributes before the first of them is used.

    >>> schema = NetworkSchema({
    ...     "price": {"kind": "float", "low": 0, "high": 1000, "granularity": 0.01},
    ...     "amount": {"kind": "integer", "low": 1, "high": 256},
    ...     "symbol": {"kind": "string", "length_max": 4},
    ...     "urgent": {"kind": "boolean"},
    ... })
    >>> schema.domain("amount", "number").bits
    8
    >>> len(schema.digest)
    32
    """

    __slots__ = ("_domains", "digest", "dimensions")

    def __init__(self, attributes: Mapping[str, Mapping[str, object]] | None = None) -> None:
        """Read a schema.

        Args:
            attributes: by name the `kind` (`integer`, `float`, `string` or `boolean`) and, where it is not
            to be
                the whole of that kind, `low` and `high`, `granularity` (of a float), `length_max` (of a
                string, in bytes).

        Raises:
            ConfigurationError: names the attribute and what is wrong with it.
        """
        self._domains: dict[Dimension, Domain] = {}
        for name, described in sorted((attributes or {}).items()):
            try:
                dimension_kind, domain = _read(described)
            except ConfigurationError as error:
                raise ConfigurationError(f"schema, attribute {name!r}: {error}") from None
            self._domains[name, dimension_kind] = domain
        self.dimensions: tuple[Dimension, ...] = tuple(self._domains)
        """The attributes that it names, in the order of their names."""
        words = "\n".join(f"{name!r} {kind} {domain!r}" for (name, kind), domain in self._domains.items())
        self.digest: str = blake2b(words.encode(), digest_size=16).hexdigest()
        """Equal where schemas are. Peers with another one are refused."""

    def domain(self, name: str, kind: str) -> Domain:
        """Where the values of an attribute lie."""
        return self._domains.get((name, kind)) or _DEFAULTS[kind]

    def extent(self, name: str, kind: str, value: object) -> tuple[int, int]:
        """The first and the last place of a value, which may be a `Range`."""
        place = self.domain(name, kind).place
        if isinstance(value, Range):
            return place(value.low), place(value.high)
        found = place(value)
        return found, found


_ALLOWED: Final = {
    "integer": ("low", "high"),
    "float": ("low", "high", "granularity"),
    "string": ("length_max",),
    "boolean": (),
}


def _read(described: Mapping[str, object]) -> tuple[str, Domain]:
    kind = described.get("kind")
    allowed = _ALLOWED.get(kind) if isinstance(kind, str) else None
    if allowed is None:
        raise ConfigurationError(f"its kind is one of {', '.join(_ALLOWED)}, not {kind!r}")
    for key, value in described.items():
        if key != "kind" and key not in allowed:
            raise ConfigurationError(f"{key!r} means nothing for the kind {kind}")
        if key != "kind" and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ConfigurationError(f"{key} is a number, not {value!r}")
    if kind == "boolean":
        return BOOLEAN, BooleanDomain()
    if kind == "string":
        return STRING, StringDomain(_whole(described, "length_max", 8))
    if kind == "integer":
        return NUMBER, IntegerDomain(_whole(described, "low", INT_MIN), _whole(described, "high", INT_MAX))
    given = [key for key in allowed if key in described]
    if not given:
        return NUMBER, OrdinalDomain()
    if len(given) < len(allowed):
        raise ConfigurationError(f"a float has all of {', '.join(allowed)} or none of them")
    low, high, granularity = (float(described[key]) for key in allowed)  # type: ignore[arg-type]
    return NUMBER, FloatDomain(low, high, granularity)


def _whole(described: Mapping[str, object], key: str, default: int) -> int:
    value = described.get(key, default)
    if not isinstance(value, int):
        raise ConfigurationError(f"{key} is a whole number, not {value!r}")
    return value
