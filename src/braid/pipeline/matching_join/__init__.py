"""Which filters does each row of a large table satisfy?

`match_join` joins a table of publications with a table of filters on Spark, with the matching engine inside
Arrow batches. See docs/matching-join.md.
"""

from braid.pipeline.matching_join.join import How, JoinSettings, Strategy, match_join

__all__ = ["How", "JoinSettings", "Strategy", "match_join"]
