"""Who is interested? Matching publications against any number of filters."""

from braid.matching import naive
from braid.matching.index import FilterIndex, GroupMatrix, IndexStatistics

__all__ = ["FilterIndex", "GroupMatrix", "IndexStatistics", "naive"]
