"""Who is interested, found the plain way?

One evaluation per filter, straight from the definition. It is the oracle the index is compared with.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from braid.language.filters import Filter
    from braid.language.values import Value

__all__ = ["match", "match_batch"]

Key = TypeVar("Key", bound=Hashable)


def match(filters: Mapping[Key, Filter], attributes: Mapping[str, Value | None]) -> set[Key]:
    """The keys of the filters that the publication satisfies."""
    return {key for key, candidate in filters.items() if candidate.matches(attributes)}


def match_batch(filters: Mapping[Key, Filter], batch: Sequence[Mapping[str, Value | None]]) -> list[set[Key]]:
    """One answer per publication of the batch."""
    return [match(filters, attributes) for attributes in batch]
