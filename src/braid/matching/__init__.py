"""Who is interested? Matching publications against any number of filters."""

from braid.matching import naive
from braid.matching.index import FilterIndex, GroupMatrix, IndexStatistics
from braid.matching.matcher import Matcher, OwnMatching
from braid.matching.shared import SharedMatching

__all__ = [
    "FilterIndex",
    "GroupMatrix",
    "IndexStatistics",
    "Matcher",
    "OwnMatching",
    "SharedMatching",
    "naive",
]
