"""What was made of a text before, and need not be made again?

A memory is bounded by the characters of its texts, not by their number: a few long texts would otherwise
keep as much as thousands of ordinary ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Memory"]

Made = TypeVar("Made")

# What it costs to remember anything at all, in characters.
_ENTRY = 32
# A text that alone takes more than such a part of a memory is not kept, if nothing else is said: it would
# push out too many others.
_PART = 8


class Memory(Generic[Made]):
    """A function of texts that remembers its answers, up to so many characters of texts.

    >>> lengths = Memory(len, characters_max=1_000)
    >>> lengths("abc"), lengths("abc"), lengths.characters < 1_000
    (3, 3, True)

    It has two halves. What is asked for is put into the young one; when that is full it becomes the old one,
    and the old one, with what nobody has asked for since, is dropped. Nothing is counted twice or taken
    out singly, so threads may share a memory without a lock: at worst something is made once more.
    """

    __slots__ = ("_half_max", "_make", "_old", "_part", "_young", "_young_characters")

    def __init__(self, make: Callable[..., Made], *, characters_max: int, part: int = _PART) -> None:
        self._make = make
        self._part = part
        self._half_max = characters_max // 2
        self._young: dict[tuple[str, ...], Made] = {}
        self._old: dict[tuple[str, ...], Made] = {}
        self._young_characters = 0

    def __call__(self, *texts: str) -> Made:
        """What `make` makes of these texts."""
        made = self._young.get(texts)
        if made is not None:
            return made
        made = self._old.get(texts)
        if made is None:
            made = self._make(*texts)
        cost = _ENTRY + sum(map(len, texts))
        if cost * self._part <= self._half_max * 2:
            if self._young_characters + cost > self._half_max:
                self._old, self._young, self._young_characters = self._young, {}, 0
            self._young[texts] = made
            self._young_characters += cost
        return made

    @property
    def characters(self) -> int:
        """What it holds at present."""
        return sum(_ENTRY + sum(map(len, texts)) for half in (self._young, self._old) for texts in half)

    def clear(self) -> None:
        """Forget everything."""
        self._young, self._old, self._young_characters = {}, {}, 0
