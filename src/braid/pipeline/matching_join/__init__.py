"""Which filters does each row of a large table satisfy?

`match_join` joins a table of publications with a table of filters on Spark, with the matching engine inside
Arrow batches, and a `FilterSet` keeps filters ready for many such joins. See docs/matching-join.md.
"""

from braid.pipeline.matching_join.filter_set import FilterSet
from braid.pipeline.matching_join.join import How, JoinSettings, Strategy, match_join

__all__ = ["FilterSet", "How", "JoinSettings", "Strategy", "match_join"]
