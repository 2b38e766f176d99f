"""How does an index travel to another process without being built again there?

`pack` gives the bytes of an index, `unpack` makes it anew from them: arrays as they are, and of each filter
only its text, which is parsed if the filter has to be evaluated one by one. Opening a packed index takes a
few hundredths of what building it takes. Like every pickle, the bytes are for processes that trust each
other and run the same version.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from braid.language.filters import Filter
from braid.language.parser import parse
from braid.matching.index import HANDFUL

if TYPE_CHECKING:
    from braid.language.expressions import Condition
    from braid.matching.index import FilterIndex

__all__ = ["pack", "unpack", "unread_filter"]


def pack(index: FilterIndex[Any]) -> bytes:
    """The index as bytes, after all merging that is under way; segments that rest are left as they are."""
    if index._tail and len(index) > HANDFUL:
        index._seal()
    index._finish_work()
    held = index._filters
    originals = list(held)
    # Segments share this very list, so that it is changed for a moment instead of being replaced.
    held[:] = [each if each is None else each.text for each in originals]  # type: ignore[misc]
    try:
        return pickle.dumps(index, protocol=5)
    finally:
        held[:] = originals


def unpack(packed: bytes) -> FilterIndex[Any]:
    """The index from its bytes."""
    index: FilterIndex[Any] = pickle.loads(packed)
    index._filters[:] = [each if each is None else unread_filter(str(each)) for each in index._filters]
    return index


class _UnreadFilter(Filter):
    """A filter whose text has been parsed before, elsewhere, and is parsed here when it is needed."""

    __slots__ = ("_parsed",)

    _parsed: Condition | None

    @property
    def condition(self) -> Condition:  # type: ignore[override]
        """What the text says."""
        if self._parsed is None:
            object.__setattr__(self, "_parsed", parse(self.text))
        return self._parsed  # type: ignore[return-value]


def unread_filter(text: str) -> Filter:
    """A filter from a text that is known to be right; it is parsed when somebody asks what it says."""
    made = _UnreadFilter.__new__(_UnreadFilter)
    for name in ("_terms", "_canonical", "_parsed"):
        object.__setattr__(made, name, None)
    object.__setattr__(made, "text", text)
    return made
