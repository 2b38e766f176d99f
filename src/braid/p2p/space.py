"""A space of some attributes, its regions, and the keys of those.

The tree of regions halves the space by one attribute after the other, in the order of their names, leaving
out those whose codes are used up (with domains of equal length this is the interleaving of Figure 3 of the
infrastructure-free paper). A region is named by its z-code, a string of bits, and belongs to the peer that
owns the hash of space and code.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

from braid.errors import RemoteProtocolError
from braid.p2p.dht.identifiers import KEY_BYTES
from braid.p2p.schema import KINDS, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from braid.language.values import Value
    from braid.p2p.dht.identifiers import Key
    from braid.p2p.schema import Dimension, NetworkSchema

__all__ = [
    "AXES_MAX",
    "AXIS_NAME_LENGTH_MAX",
    "GATHERED",
    "SPACES_KEPT_MAX",
    "Box",
    "Space",
    "Spaces",
    "box_within",
    "boxes_meet",
    "name_of",
]

Box: TypeAlias = tuple[int, ...]
"""The first and the last place on each axis of a space, one pair after the other."""

AXES_MAX = 16
"""More attributes than this are not axes, unless the network's schema has more: they would hardly ever be
halved by."""
AXIS_NAME_LENGTH_MAX = 1_024
"""Nor are those whose names are longer."""
# A name is some words, even of so many attributes.
NAME_LENGTH_MAX = 65_536
# A space is made again when it is needed; this only bounds what is remembered.
SPACES_KEPT_MAX = 4_096
# The name of the space in which peers tell gateways what they want. It has no axes and no publications.
GATHERED = "*"


class Space:
    """Some attributes as axes."""

    __slots__ = ("_bits", "_halvings", "_places", "_schema", "_sides", "axes", "depth", "name", "root_key")

    def __init__(self, name: str, axes: tuple[Dimension, ...], schema: NetworkSchema) -> None:
        self.name = name
        """What peers call it: the axes, written down."""
        self.axes = axes
        self._bits = tuple(schema.domain(*axis).bits for axis in axes)
        self._places = tuple((name, kind, schema) for name, kind in axes)
        self._halvings: tuple[array[int], array[int]] | None = None
        self.depth = sum(self._bits)
        """How long the code of a point is."""
        self.root_key = self.key("")
        """Where its root belongs."""
        self._schema = schema
        self._sides: dict[int, Space] = {}

    @property
    def _order(self) -> tuple[array[int], array[int]]:
        """Which axis halves the regions of each depth, and for the how manieth time.

        Made when a region is first looked at: whoever invents names of spaces costs little more than these.
        """
        if self._halvings is None:
            axes, levels = array("H"), array("H")
            for level in range(max(self._bits, default=0)):
                for axis, bits in enumerate(self._bits):
                    if level < bits:
                        axes.append(axis)
                        levels.append(level)
            self._halvings = axes, levels
        return self._halvings

    @property
    def whole(self) -> Box:
        """All of it."""
        return tuple(end for bits in self._bits for end in (0, (1 << bits) - 1))

    def box_of(self, attributes: Mapping[str, Value]) -> Box:
        """Where a publication lies. Without a value of the axis's kind it takes the whole width of that
        axis."""
        ends: list[int] = []
        for bits, (name, kind, schema) in zip(self._bits, self._places, strict=True):
            value = attributes.get(name)
            if value is None or kind_of(value) != kind:
                ends += (0, (1 << bits) - 1)
            else:
                ends += schema.extent(name, kind, value)
        return tuple(ends)

    def side(self, axis: int) -> Space:
        """The space of one axis alone."""
        side = self._sides.get(axis)
        if side is None:
            side = Space(name_of([self.axes[axis]]), (self.axes[axis],), self._schema)
            self._sides[axis] = side
        return side

    def enclosing(self, box: Box) -> str:
        """The code of the smallest region around a box."""
        shared = [
            bits - (box[2 * axis] ^ box[2 * axis + 1]).bit_length() for axis, bits in enumerate(self._bits)
        ]
        code = []
        for axis, level in zip(*self._order, strict=True):
            if level >= shared[axis]:
                break
            code.append("1" if box[2 * axis] >> self._bits[axis] - 1 - level & 1 else "0")
        return "".join(code)

    def region(self, code: str) -> Box:
        """The box of a region."""
        ends = list(self.whole)
        for bit, axis, level in zip(code, *(self._order if code else ((), ())), strict=False):
            half = 1 << self._bits[axis] - 1 - level
            if bit == "1":
                ends[2 * axis] += half
            else:
                ends[2 * axis + 1] -= half
        return tuple(ends)

    def require_code(self, code: str) -> None:
        """Raise a `RemoteProtocolError` for what is no code of a region of this space."""
        if len(code) > self.depth or code.strip("01"):
            raise RemoteProtocolError(f"{code[:100]!r} is no region of the space {self.name[:100]!r}")

    def key(self, code: str) -> Key:
        """Where the region of a code belongs."""
        return blake2b(f"{self.name}\n{code}".encode(), digest_size=KEY_BYTES).digest()


def boxes_meet(first: Box, second: Box) -> bool:
    """Whether two boxes of one space have a point in common."""
    for low in range(0, len(first), 2):  # a loop, since this is asked most often of all
        if first[low] > second[low + 1] or second[low] > first[low + 1]:
            return False
    return True


def box_within(inner: Box, outer: Box) -> bool:
    """Whether one box lies inside another."""
    for low in range(0, len(inner), 2):
        if inner[low] < outer[low] or inner[low + 1] > outer[low + 1]:
            return False
    return True


class Spaces:
    """The spaces that a peer has heard of, by name. They follow from their names, so peers may share one of
    these."""

    __slots__ = ("_axes_max", "_kept_max", "_known", "_name_length_max", "schema")

    def __init__(self, schema: NetworkSchema, kept_max: int = SPACES_KEPT_MAX) -> None:
        """`kept_max`: so many are remembered, the oldest forgotten first."""
        self.schema = schema
        self._kept_max = kept_max
        self._axes_max = max(AXES_MAX, len(schema.dimensions))
        self._name_length_max = max(NAME_LENGTH_MAX, len(name_of(schema.dimensions)))
        self._known: dict[str, Space] = {}

    def of(self, axes: Iterable[Dimension]) -> Space:
        """The space of these axes."""
        return self.named(name_of(axes))

    def named(self, name: str) -> Space:
        """The space of a name.

        Raises:
            RemoteProtocolError: it is no name of a space.
        """
        space = self._known.get(name)
        if space is None:
            if len(name) > self._name_length_max:
                raise RemoteProtocolError(f"the name of a space has {len(name):,} characters")
            axes = _axes(name, self._axes_max) if name != GATHERED else ()
            space = self._known[name] = Space(name, axes, self.schema)
            if len(self._known) > self._kept_max:
                del self._known[next(iter(self._known))]
        return space


def name_of(axes: Iterable[Dimension]) -> str:
    """What peers call the space of these axes."""
    return ";".join(f"{kind}={_quoted(name)}" for name, kind in sorted(axes))


def _quoted(name: str) -> str:
    return name.replace("%", "%25").replace(";", "%3B")


def _axes(name: str, axes_max: int) -> tuple[Dimension, ...]:
    axes: list[Dimension] = []
    for piece in name.split(";") if name else ():
        kind, _, quoted = piece.partition("=")
        if kind not in KINDS or not quoted or len(axes) >= axes_max:
            raise RemoteProtocolError(f"{name[:100]!r} is not the name of a space of attributes")
        axes.append((quoted.replace("%3B", ";").replace("%25", "%"), kind))
    return tuple(axes)
