"""Publications as they are matched: read once, however many peers of a process they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from braid.language.publication import plain_attributes
from braid.language.values import Range

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from braid.language.values import Value
    from braid.p2p.dmm.messages import Content
    from braid.p2p.space import Box, Space

__all__ = ["Arrival", "Arrivals"]

# A publication comes to a peer again and again within some seconds; so many are kept.
KEPT_MAX: Final = 16

_PAIRS: Final = (tuple, list)


class Arrival:
    """A publication, ready to be matched."""

    __slots__ = ("_boxes", "_marks", "attributes", "content", "ranged")

    def __init__(self, content: Content) -> None:
        self.content = content
        attributes: Mapping[str, Any] = content.attributes
        self.ranged = False
        """Whether it has ranges."""
        for value in attributes.values():
            if type(value) in _PAIRS:
                self.ranged = True
                attributes = {
                    name: Range(*value) if type(value) in _PAIRS else value
                    for name, value in attributes.items()
                }
                break
        self.attributes: Mapping[str, Value] = plain_attributes(attributes)[0]
        self._boxes: dict[str, Box] = {}
        self._marks: dict[Hashable, tuple[str, int, Hashable]] = {}

    def box(self, space: Space) -> Box:
        """Where it lies in a space."""
        box = self._boxes.get(space.name)
        if box is None:
            box = self._boxes[space.name] = space.box_of(self.attributes)
        return box

    def mark(self, place: Hashable) -> tuple[str, int, Hashable]:
        """What tells that it has been at a place before: its id and the place."""
        mark = self._marks.get(place)
        if mark is None:
            mark = self._marks[place] = (self.content.publisher, self.content.sequence, place)
        return mark


class Arrivals:
    """The latest publications, by the very message that each came in."""

    __slots__ = ("_kept_max", "_known")

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        """`kept_max`: so many publications are kept with all that they carry."""
        self._kept_max = kept_max
        self._known: dict[int, Arrival] = {}

    def of(self, content: Content) -> Arrival:
        """A publication, ready to be matched."""
        # What is kept lives, so nothing else has its number.
        arrival = self._known.get(id(content))
        if arrival is None:
            arrival = self._known[id(content)] = Arrival(content)
            if len(self._known) > self._kept_max:
                del self._known[next(iter(self._known))]
        return arrival
