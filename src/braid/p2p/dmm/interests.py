"""Where does a filter lie? Its terms as boxes in spaces of attributes.

Every term of the normal form is placed by itself; a filter of too many terms is placed as one, by the
smallest box around them. An attribute is an axis if the term cannot hold without it and takes values of one
kind only; what a term says beyond its box is decided with the whole filter, where publications are matched.

- DMM: the axes are those of the network's schema; a term that says nothing of one takes its whole width.
- DMM-AR: the axes are the attributes that the term needs. If they may have several kinds, the term is placed
  once for each kind of the first of them. A term that needs none lies in the catch-all space, which has no
  axis and a single region.

All of this follows from the filter's text, so peers tell each other the text, and peers of one process may
share one `Interests`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from braid.language.covering import covers
from braid.language.filters import Filter
from braid.language.intervals import TOP
from braid.language.value_sets import ValueSet, union_of
from braid.language.values import ordinal_before, ordinal_to_float
from braid.p2p.dmm.arrivals import Arrivals
from braid.p2p.schema import BOOLEAN, NUMBER, STRING, NetworkSchema, kind_of
from braid.p2p.space import AXES_MAX, AXIS_NAME_LENGTH_MAX, GATHERED, SPACES_KEPT_MAX, Spaces, box_within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.language.intervals import Intervals
    from braid.language.normal_form import Term
    from braid.language.values import Value
    from braid.p2p.dmm.arrivals import Arrival
    from braid.p2p.dmm.messages import Entry
    from braid.p2p.dmm.settings import DmmSettings
    from braid.p2p.schema import Dimension
    from braid.p2p.space import Box, Space

__all__ = ["CATCH_ALL", "GATHERED", "GATHERED_AXIS", "Interest", "Interests", "Place", "has_all"]

CATCH_ALL: Final = ""
"""The name of the space without axes."""
# Where entries lie that are told to gateways.
GATHERED_AXIS: Final = -2

# So many filters are remembered with their places, some kilobytes each; further ones are read again when they
# are needed.
KEPT_MAX: Final = 20_000


class Place:
    """One entry of a filter: a box in a space, and the term that it is for."""

    __slots__ = ("box", "sides", "space", "term")

    def __init__(self, space: Space, box: Box, term: Term | None) -> None:
        self.space = space
        self.box = box
        self.sides = tuple((box[low], box[low + 1]) for low in range(0, len(box), 2))
        """The same, one box for each axis alone."""
        self.term = term
        """None if the box is for all terms together."""


class Interest:
    """A filter and its places."""

    __slots__ = ("_boxes", "filter", "places")

    def __init__(self, wanted: Filter, places: tuple[Place, ...]) -> None:
        self.filter = wanted
        self.places = places
        self._boxes = (
            tuple(tuple(term.box.items()) for term in wanted.terms)
            if not any(term.residual for term in wanted.terms)
            else None
        )
        """The terms, if they say nothing beyond their boxes: then these decide, and quickly."""

    def is_satisfied(self, attributes: Mapping[str, Value], *, ranged: bool) -> bool:
        """Whether a publication satisfies the filter."""
        if self._boxes is None or ranged:
            return self.filter.matches(attributes)
        get = attributes.get
        for box in self._boxes:
            for name, values in box:
                if not values.accepts(get(name)):
                    break
            else:
                return True
        return False


class Interests:
    """Reads filters, and answers what can be asked of entries."""

    __slots__ = ("_kept_max", "_known", "_settings", "arrivals", "spaces", "whole")

    def __init__(
        self,
        settings: DmmSettings,
        schema: NetworkSchema | None = None,
        arrivals: Arrivals | None = None,
        *,
        kept_max: int = KEPT_MAX,
        spaces_max: int = SPACES_KEPT_MAX,
    ) -> None:
        """A simulation keeps more for its many peers than one peer does.

        Args:
            settings: how to match.
            schema: of the network.
            arrivals: reads publications.
            kept_max: so many filters are remembered, the oldest forgotten first.
            spaces_max: so many spaces likewise.
        """
        self._settings = settings
        self._kept_max = kept_max
        self.arrivals = arrivals or Arrivals()
        self.spaces = Spaces(schema or NetworkSchema(), spaces_max)
        self.whole = self.spaces.of(self.spaces.schema.dimensions)
        """The one space of DMM."""
        self._known: dict[str, Interest] = {}

    def of(self, text: str) -> Interest:
        """The filter of a text and its places.

        Raises:
            FilterError: it is none.
        """
        interest = self._known.get(text)
        if interest is None:
            wanted = Filter(text)
            interest = self._known[text] = Interest(wanted, self._places(wanted))
            if len(self._known) > self._kept_max:
                del self._known[next(iter(self._known))]
        return interest

    def place(self, entry: Entry) -> Place:
        """Where an entry lies in its own space."""
        return self.of(entry.text).places[entry.term]

    def box(self, entry: Entry) -> Box:
        """Where an entry lies in the space that its table is for."""
        place = self.of(entry.text).places[entry.term]
        if entry.axis >= 0:
            return place.sides[entry.axis]
        return place.box if entry.axis != GATHERED_AXIS else ()

    def fits(self, entry: Entry, space: Space) -> bool:
        """Whether an entry that came from elsewhere belongs into a table of this space."""
        places = self.of(entry.text).places
        if not 0 <= entry.term < len(places):
            return False
        home = places[entry.term].space
        if entry.axis == GATHERED_AXIS or space.name == GATHERED:
            return entry.axis == GATHERED_AXIS and space.name == GATHERED
        if entry.axis < 0:
            return home.name == space.name
        return entry.axis < len(home.axes) and space.axes == (home.axes[entry.axis],)

    def covers(self, wider: Entry, narrower: Entry) -> bool:
        """Whether whoever gets all that the one entry asks for in a table gets what the other asks for."""
        first = self.of(wider.text).places[wider.term]
        second = self.of(narrower.text).places[narrower.term]
        if wider.axis >= 0:
            outer, inner = (
                first.sides[wider.axis],
                second.box if narrower.axis < 0 else second.sides[narrower.axis],
            )
            if not box_within(inner, outer):
                return False
            if self._settings.attribute_root == "primary":
                return True
            if self._settings.attribute_root == "names":
                return set(first.space.axes) <= set(second.space.axes)
        elif first.space.name == second.space.name and not box_within(second.box, first.box):
            return False
        if first.term is None or second.term is None:
            return wider.text == narrower.text
        return covers((first.term,), (second.term,))

    def matches(self, entry: Entry, arrival: Arrival) -> bool:
        """Whether a publication is to be passed on for an entry of a table."""
        interest = self.of(entry.text)
        if entry.axis < 0 or self._settings.attribute_root == "full":
            return interest.is_satisfied(arrival.attributes, ranged=arrival.ranged)
        home = interest.places[entry.term]
        box = arrival.box(home.space.side(entry.axis))
        low, high = home.sides[entry.axis]
        if low > box[1] or box[0] > high:
            return False
        return self._settings.attribute_root == "primary" or has_all(home.space, arrival.attributes)

    def spaces_of(self, attributes: Mapping[str, Value]) -> list[Space]:
        """The spaces that a publication is looked for in, without the catch-all space."""
        if self._settings.algorithm == "DMM":
            return [self.whole]
        return [
            self.spaces.of([(name, kind_of(value))])
            for name, value in attributes.items()
            if len(name) <= AXIS_NAME_LENGTH_MAX
        ]

    # Places.

    def _places(self, wanted: Filter) -> tuple[Place, ...]:
        terms = wanted.terms
        if len(terms) > self._settings.terms_max:
            return self._place(_needed_by_all(terms), None)
        return tuple(place for term in terms for place in self._place(_needed(term), term))

    def _place(self, needed: Mapping[str, ValueSet], term: Term | None) -> tuple[Place, ...]:
        if self._settings.algorithm == "DMM":
            return (self._place_in(self.whole, needed, term),)
        axes: list[Dimension] = []
        needed = {name: values for name, values in needed.items() if len(name) <= AXIS_NAME_LENGTH_MAX}
        for name, values in sorted(needed.items()):
            kinds = _kinds(values)
            if len(kinds) == 1 and len(axes) < AXES_MAX:
                axes.append((name, kinds[0]))
        if axes or not needed:
            return (self._place_in(self.spaces.of(axes), needed, term),)
        name = min(needed)
        return tuple(
            self._place_in(self.spaces.of([(name, kind)]), needed, term) for kind in _kinds(needed[name])
        )

    def _place_in(self, space: Space, needed: Mapping[str, ValueSet], term: Term | None) -> Place:
        box = list(space.whole)
        for axis, (name, kind) in enumerate(space.axes):
            values = needed.get(name)
            # In DMM a term may ask for another kind than the schema names; that axis says nothing then.
            if values is not None and (_kinds(values) == [kind] or self._settings.algorithm == "DMM-AR"):
                box[2 * axis : 2 * axis + 2] = self._extent(name, kind, values)
        return Place(space, tuple(box), term)

    def _extent(self, name: str, kind: str, values: ValueSet) -> tuple[int, int]:
        """The first and the last place of the values of one kind."""
        place = self.spaces.schema.domain(name, kind).place
        ends: list[int] = []
        if kind == NUMBER:
            for low, high in _ends(values.integers):
                ends += (place(low), place(high - 1))
            for low, high in _ends(values.floats):
                ends += (place(ordinal_to_float(low)), place(ordinal_to_float(ordinal_before(high))))
        elif kind == STRING:
            for low, high in _ends(values.strings):
                last = (1 << self.spaces.schema.domain(name, kind).bits) - 1 if high is TOP else place(high)
                ends += (place(low), last)
        else:
            for low, high in _ends(values.booleans):
                ends += (place(low), place(high - 1))
        return min(ends), max(ends)


def has_all(space: Space, attributes: Mapping[str, Value]) -> bool:
    """Whether a publication has all attributes of a space, each with a value of the right kind."""
    for name, kind in space.axes:
        value = attributes.get(name)
        if value is None or kind_of(value) != kind:
            return False
    return True


def _ends(intervals: Intervals) -> list[tuple[Any, Any]]:
    """The first and the last of some intervals, as one around them all."""
    return [(intervals[0][0], intervals[-1][1])] if intervals else []


def _kinds(values: ValueSet) -> list[str]:
    kinds = []
    if values.integers or values.floats:
        kinds.append(NUMBER)
    if values.strings:
        kinds.append(STRING)
    if values.booleans:
        kinds.append(BOOLEAN)
    return kinds


def _needed(term: Term) -> dict[str, ValueSet]:
    """The attributes without which a term cannot hold."""
    return {name: values for name, values in term.box.items() if not values.null}


def _needed_by_all(terms: Sequence[Term]) -> dict[str, ValueSet]:
    """The attributes without which no term of these can hold, with the values that some of them take."""
    each = [_needed(term) for term in terms]
    names = set(each[0]).intersection(*each[1:])
    return {name: union_of([needed[name] for needed in each]) for name in names}
