"""Which filters can have a publication in common with this one?

An exact answer compares normal forms, so most pairs are told apart before: filters that want a certain
word of an attribute are kept under that word, and the spans of numbers are compared by their ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from braid.language.values import float_to_ordinal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braid.language.filters import Filter
    from braid.language.value_sets import ValueSet

__all__ = ["OverlapIndex"]

# A longer list of words tells two filters apart less often than it costs to compare.
WORDS_MAX = 16


class _Profile(NamedTuple):
    """What is quickly compared of a filter with one box; of another filter, nothing."""

    filter: Filter
    words: dict[str, frozenset[str]]
    """The strings an attribute must be one of."""
    spans: dict[str, tuple[int, int]]
    """The doubles, by ordinal, between which an attribute must be, if it must be a number."""

    def apart(self, other: _Profile) -> bool:
        """Whether they surely have nothing in common."""
        for name, (low, high) in self.spans.items():
            span = other.spans.get(name)
            if span is not None and (span[1] <= low or high <= span[0]):
                return True
        for name, words in self.words.items():
            theirs = other.words.get(name)
            if theirs is not None and words.isdisjoint(theirs):
                return True
        return False


class OverlapIndex:
    """Filters under keys; `find` names those that intersect a given one.

    As exact as `Filter.intersects`: with residual conditions it may name too many, never too few.
    """

    def __init__(self) -> None:
        self._profiles: dict[str, _Profile] = {}
        self._loose: dict[str, None] = {}
        self._pinned: dict[str, dict[str, dict[str, None]]] = {}
        """Attribute, then the one word it must be, then keys."""

    def __len__(self) -> int:
        return len(self._profiles)

    def __contains__(self, key: object) -> bool:
        return key in self._profiles

    def add(self, key: str, filter: Filter) -> None:
        """Add a filter under a new key."""
        profile = self._profiles[key] = _profile(filter)
        pin = _pin(profile)
        if pin is None:
            self._loose[key] = None
        else:
            self._pinned.setdefault(pin[0], {}).setdefault(pin[1], {})[key] = None

    def remove(self, key: str) -> None:
        """Remove the filter under a key."""
        pin = _pin(self._profiles.pop(key))
        if pin is None:
            del self._loose[key]
            return
        name, word = pin
        del self._pinned[name][word][key]
        if not self._pinned[name][word]:
            del self._pinned[name][word]
            if not self._pinned[name]:
                del self._pinned[name]

    def find(self, filter: Filter) -> Iterator[str]:
        """The keys of the filters that intersect this one."""
        profile = _profile(filter)
        for key in self._possible(profile):
            candidate = self._profiles[key]
            if not candidate.apart(profile) and candidate.filter.intersects(filter):
                yield key

    def _possible(self, profile: _Profile) -> Iterator[str]:
        yield from self._loose
        for name, by_word in self._pinned.items():
            wanted = profile.words.get(name)
            if wanted is None:
                for keys in by_word.values():
                    yield from keys
            else:
                for word in sorted(wanted & by_word.keys()):
                    yield from by_word[word]


def _pin(profile: _Profile) -> tuple[str, str] | None:
    """The first attribute that must be one certain word."""
    pins = [(name, next(iter(words))) for name, words in profile.words.items() if len(words) == 1]
    return min(pins, default=None)


def _profile(filter: Filter) -> _Profile:
    words: dict[str, frozenset[str]] = {}
    spans: dict[str, tuple[int, int]] = {}
    if len(filter.terms) == 1:
        for name, values in filter.terms[0].box.items():
            if values.null or values.booleans:
                continue
            if values.strings:
                listed = None if values.integers or values.floats else _words(values)
                if listed is not None:
                    words[name] = listed
            else:
                spans[name] = _span(values)
    return _Profile(filter, words, spans)


def _span(values: ValueSet) -> tuple[int, int]:
    """The smallest interval of doubles around a set of numbers.

    Integers take part as their nearest doubles: rounding keeps their order, so an integer in two sets is
    within both spans.
    """
    lows = [values.floats[0][0]] if values.floats else []
    highs = [values.floats[-1][1]] if values.floats else []
    if values.integers:
        lows.append(float_to_ordinal(float(values.integers[0][0])))
        highs.append(float_to_ordinal(float(values.integers[-1][1] - 1)) + 1)
    return min(lows), max(highs)


def _words(values: ValueSet) -> frozenset[str] | None:
    """The strings a set consists of, if they are a short list."""
    if len(values.strings) > WORDS_MAX or any(high != low + "\0" for low, high in values.strings):
        return None
    return frozenset(low for low, _ in values.strings)
