"""What does the asker want to know?

The engine finds matches in two shapes: packed bits for a whole block, and single pairs (publication,
filter) that needed a second look. An `Answer` takes in both and turns them into just what was asked:
all keys, counts, or destinations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from braid.matching.columns import BoolArray, IntArray, WordArray
    from braid.matching.lookup import Lookup
    from braid.matching.sight import FirstSight

__all__ = ["Answer", "Counts", "Destinations", "GroupLayout", "Pairs", "Renumbered", "SlotBlock", "set_bits"]


class SlotBlock(Protocol):
    """What an answer needs to know of a block: whose bit is whose."""

    @property
    def slots(self) -> npt.NDArray[np.int32]:
        """The slot of each filter in the index, in the order of the bits."""
        ...

    @property
    def groups(self) -> GroupLayout | None:
        """How the bits fall into destinations, if they do so in long runs."""
        ...

    @property
    def repeated(self) -> WordArray | None:
        """The bits of filters that have several boxes and so could be found more than once."""
        ...


class GroupLayout:
    """Filters of a block in runs of one destination: which words, and which of their bits.

    A word that two destinations share is listed for both, with a mask each. The first words of all
    destinations come first, then the second words of those that have one, and so on: each of these
    courses is added to the result in one go.
    """

    __slots__ = ("_courses", "_masks", "_words", "groups")

    def __init__(self, groups: npt.NDArray[np.int32]) -> None:
        """`groups`: the destination of each bit, ascending; below zero for none."""
        starts = np.flatnonzero(np.concatenate([[True], np.diff(groups) != 0]))
        ends = np.append(starts[1:], len(groups))
        named = groups[starts] >= 0
        starts, ends = starts[named], ends[named]
        first, last = starts // 64, (ends - 1) // 64
        longest_first = np.argsort(first - last, kind="stable")
        starts, ends, first, last = (each[longest_first] for each in (starts, ends, first, last))
        self.groups: npt.NDArray[np.int32] = groups[starts]
        counts = np.bincount(last - first + 1)[::-1].cumsum()[::-1][1:]
        self._courses: list[int] = counts.tolist()
        course = np.repeat(np.arange(len(counts)), counts)
        run = np.concatenate([np.arange(count) for count in counts]) if len(counts) else course
        words = first[run] + course
        every = ~np.uint64(0)
        low = np.maximum(starts[run] - words * 64, 0).astype(np.uint64)
        high = np.minimum(ends[run] - words * 64, 64).astype(np.uint64)
        self._words: npt.NDArray[np.int32] = words.astype(np.int32)
        self._masks: WordArray = (every << low) & (every >> (np.uint64(64) - high))

    def reached(self, bits: WordArray) -> BoolArray:
        """For each destination and publication: whether some filter of it matched."""
        # Publications side by side: each step then runs along contiguous memory.
        pieces = np.ascontiguousarray(bits.T)[self._words]
        pieces &= self._masks[:, np.newaxis]
        start = len(self.groups)
        found = pieces[:start]
        for count in self._courses[1:]:
            found[:count] |= pieces[start : start + count]
            start += count
        return np.asarray(found != 0)

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        return self.groups.nbytes + self._words.nbytes + self._masks.nbytes


class Answer(Protocol):
    """Takes in matches as they are found."""

    def add_bits(self, block: SlotBlock, publications: IntArray, bits: WordArray) -> None:
        """One line of bits per publication."""
        ...

    def add_pairs(self, publications: IntArray, slots: IntArray, *, once: bool = False) -> None:
        """Single matches; `once` promises that none of them is found again."""
        ...

    def add_destinations(self, lookup: Lookup, sight: FirstSight) -> None:
        """Destinations that a look at one attribute tells; the filters themselves will be found later."""
        ...

    def undecided(self, publications: IntArray) -> BoolArray | None:
        """For which of these publications further matches still matter; None for all of them."""
        ...

    def open_questions(self, publications: IntArray, slots: IntArray) -> BoolArray | None:
        """Which of these candidates still matter; None for all of them."""
        ...


def set_bits(bits: WordArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The (line, column) of every bit that is set, in no particular order."""
    words = bits.ravel()
    place = np.flatnonzero(words)
    words = words[place]
    places, offsets = [place[:0]], [place[:0]]
    while len(words):
        # Each turn takes the lowest bit of every word that has one left.
        rest = words & (words - np.uint64(1))
        places.append(place)
        offsets.append(np.bitwise_count((words ^ rest) - np.uint64(1)).astype(np.int64))
        left = rest != 0
        words, place = rest[left], place[left]
    lines, word = np.divmod(np.concatenate(places), bits.shape[1])
    return lines, word * 64 + np.concatenate(offsets)


class Pairs:
    """Every match, as arrays of publications and slots."""

    def __init__(self) -> None:
        self._publications: list[IntArray] = []
        self._slots: list[IntArray] = []

    def add_bits(self, block: SlotBlock, publications: IntArray, bits: WordArray) -> None:
        lines, columns = set_bits(bits)
        self.add_pairs(publications[lines], block.slots[columns])

    def add_pairs(self, publications: IntArray, slots: IntArray, *, once: bool = False) -> None:
        self._publications.append(publications)
        self._slots.append(slots)

    def add_destinations(self, lookup: Lookup, sight: FirstSight) -> None:
        pass

    def undecided(self, publications: IntArray) -> BoolArray | None:
        return None

    def open_questions(self, publications: IntArray, slots: IntArray) -> BoolArray | None:
        return None

    def result(self) -> tuple[IntArray, IntArray]:
        """Publications ascending, and the slot of each match. A slot may repeat for a publication."""
        if not self._publications:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        publications = np.concatenate(self._publications)
        few = len(publications) > 0 and publications.max() < 2**16
        # Small numbers are sorted by their digits, several times as quickly.
        order = np.argsort(publications.astype(np.uint16) if few else publications, kind="stable")
        return publications[order], np.concatenate(self._slots)[order]


class Counts:
    """How many filters each publication satisfies."""

    def __init__(self, size: int) -> None:
        self._counts = np.zeros(size, np.int64)
        self._repeatable = Pairs()

    def add_bits(self, block: SlotBlock, publications: IntArray, bits: WordArray) -> None:
        if block.repeated is not None:
            self._repeatable.add_bits(block, publications, bits & block.repeated)
            bits = bits & ~block.repeated
        self._counts[publications] += np.bitwise_count(bits).sum(axis=1, dtype=np.int64)

    def add_pairs(self, publications: IntArray, slots: IntArray, *, once: bool = False) -> None:
        if once:
            self._counts += np.bincount(publications, minlength=len(self._counts))
        else:
            self._repeatable.add_pairs(publications, slots)

    def add_destinations(self, lookup: Lookup, sight: FirstSight) -> None:
        pass

    def undecided(self, publications: IntArray) -> BoolArray | None:
        return None

    def open_questions(self, publications: IntArray, slots: IntArray) -> BoolArray | None:
        return None

    def result(self) -> npt.NDArray[np.int64]:
        """One count per publication."""
        publications, slots = self._repeatable.result()
        if len(publications):
            unique = np.unique(publications.astype(np.int64) << 32 | slots)
            self._counts += np.bincount(unique >> 32, minlength=len(self._counts))
        return self._counts


class Destinations:
    """Which destinations have at least one matching filter. Filters without one do not count."""

    def __init__(self, size: int, groups: int, used: BoolArray, group_of_slot: npt.NDArray[np.int32]) -> None:
        """
        Args:
            size: how many publications there are.
            groups: how many destinations there are.
            used: which of them have any filter.
            group_of_slot: the destination of each filter.
        """
        self._groups = groups
        self._group_of_slot = group_of_slot
        words = max(1, (groups + 63) // 64)
        self._reached = np.zeros((size, words), np.uint64)
        self._all = np.zeros(words * 64, np.bool_)
        self._all[:groups] = used
        self._all = np.packbits(self._all, bitorder="little").view(np.uint64)

    def add_bits(self, block: SlotBlock, publications: IntArray, bits: WordArray) -> None:
        if block.groups is None:
            lines, columns = set_bits(bits)
            self.add_pairs(publications[lines], block.slots[columns])
            return
        spread = np.zeros((self._reached.shape[1] * 64, len(publications)), np.bool_)
        spread[block.groups.groups] = block.groups.reached(bits)
        # Turned round first: bits are packed several times as quickly along contiguous memory.
        octets = np.packbits(np.ascontiguousarray(spread.T), axis=1, bitorder="little")
        self._reached[publications] |= octets.view(np.uint64)

    def add_pairs(self, publications: IntArray, slots: IntArray, *, once: bool = False) -> None:
        groups = self._group_of_slot[slots]
        named = groups >= 0
        groups, publications = groups[named], publications[named]
        if len(groups) > self._reached.size:  # then it is quicker to go through all of it once
            flags = np.zeros((len(self._reached), self._reached.shape[1] * 64), np.bool_)
            flags[publications, groups] = True
            self._reached |= np.packbits(flags, axis=1, bitorder="little").view(np.uint64)
            return
        bits = np.uint64(1) << (groups % 64).astype(np.uint64)
        np.bitwise_or.at(self._reached, (publications, groups // 64), bits)

    def add_destinations(self, lookup: Lookup, sight: FirstSight) -> None:
        reached = sight.reached(lookup.cells(sight.axis))
        self._reached[:, : reached.shape[1]] |= reached

    def undecided(self, publications: IntArray) -> BoolArray | None:
        reached = self._reached[publications]
        if reached.shape[1] == 1:
            return np.asarray(reached[:, 0] != self._all[0])
        return np.asarray((reached != self._all).any(axis=1))

    def open_questions(self, publications: IntArray, slots: IntArray) -> BoolArray | None:
        groups = self._group_of_slot[slots]
        words = self._reached[publications, groups // 64]
        unreached = (words >> (groups % 64).astype(np.uint64)) & np.uint64(1) == 0
        return np.asarray(unreached & (groups >= 0))

    def result(self) -> BoolArray:
        """One line per publication, one column per destination."""
        flags = np.unpackbits(self._reached.view(np.uint8), axis=1, bitorder="little")
        return flags[:, : self._groups].view(np.bool_)


class Renumbered:
    """Passes answers on for some of the publications, by their places in the whole batch."""

    def __init__(self, answer: Answer, places: IntArray) -> None:
        self._answer = answer
        self._places = places

    def add_bits(self, block: SlotBlock, publications: IntArray, bits: WordArray) -> None:
        self._answer.add_bits(block, self._places[publications], bits)

    def add_pairs(self, publications: IntArray, slots: IntArray, *, once: bool = False) -> None:
        self._answer.add_pairs(self._places[publications], slots, once=once)

    def add_destinations(self, lookup: Lookup, sight: FirstSight) -> None:
        pass  # it only saves time, and batches with ranges are rare

    def undecided(self, publications: IntArray) -> BoolArray | None:
        return self._answer.undecided(self._places[publications])

    def open_questions(self, publications: IntArray, slots: IntArray) -> BoolArray | None:
        return self._answer.open_questions(self._places[publications], slots)
