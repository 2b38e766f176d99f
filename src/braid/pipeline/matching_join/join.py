"""How is a table of publications joined with a table of filters?

    match_join(publications, filters, how="counts")         publication, count
    match_join(publications, filters, how="destinations")   publication, destinations (an array)
    match_join(publications, filters, how="pairs")          publication, filter

The answer is that of evaluating every filter on every publication, NULL and all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from braid.errors import ConfigurationError
from braid.pipeline.matching_join.answering import Asker, How, combined
from braid.pipeline.matching_join.by_index import Limit, built_filters, join_by_index, quickly_built_filters
from braid.pipeline.matching_join.by_split import filter_problems, join_by_slices
from braid.pipeline.matching_join.by_zcode import join_by_zcodes
from braid.pipeline.matching_join.filter_set import FilterSet
from braid.pipeline.matching_join.problems import OnError, judge
from braid.pipeline.matching_join.tables import TEXT, filter_table, publication_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from braid.pipeline.matching_join.tables import FilterTable, PublicationTable

__all__ = ["How", "JoinSettings", "Strategy", "match_join"]

Strategy = Literal["auto", "index", "split", "zcode"]


@dataclass(frozen=True, kw_only=True)
class JoinSettings:
    """What a join may use."""

    filters_bytes_max: int = 1 << 30
    """Memory that the filters may take in one Python worker. Beyond it they are split, and publications
    travel once to every slice."""
    filter_bytes: int = 1_000
    """Memory of one filter beside its text: about 400 bytes in an index, twice that while it is opened."""
    slice_filter_bytes: int = 3_000
    """The same where a worker also parses the filters, as it does with a slice of its own."""
    shard_filters_max: int = 100_000
    """Filters that one task parses and indexes. Fewer: more tasks at once, and more shards to ask."""
    shard_filters_min: int = 5_000
    """Fewer than this are not worth a task of their own."""


def match_join(
    publications: DataFrame,
    filters: DataFrame | FilterSet,
    *,
    filter_column: str = "filter",
    key_column: str = "id",
    publication_key_column: str | None = None,
    how: How = "counts",
    destination_column: str | None = None,
    attributes: str | Sequence[str] | None = None,
    keep: Sequence[str] = (),
    strategy: Strategy = "auto",
    on_error: OnError = "stop",
    report: Callable[[str], None] | None = None,
    settings: JoinSettings | None = None,
) -> DataFrame:
    """Which filters does each publication satisfy?

    The filters are read and indexed at once, by Spark tasks; the publications when the result is used.

    Args:
        publications: a row per publication. Attributes are booleans, numbers and strings; fields of nested
            structs have dotted names; NULL is an absent attribute, and so is a column that is not there.
        filters: a row per filter, or a `FilterSet` of them; then `filter_column`, `destination_column`,
            `on_error` and `report` have no meaning, and the join goes by index.
        filter_column: the filters' SQL text.
        key_column: what names a filter, and a publication too unless `publication_key_column` is given.
            Keys may repeat: every row counts for itself.
        publication_key_column: what names a publication.
        how: `counts` gives a row per publication with the number of matching filters, `destinations` a row
            per publication with the sorted destinations of matching filters, `pairs` a row per match.
        destination_column: of the filters: where a match goes, a string or an integer. A filter whose
            destination is NULL reaches no destination.
        attributes: where the publications' attributes are: None for all columns but the key, the name of a
            struct column whose fields they are, or a list of columns.
        keep: columns of the publications that the answer has as well, behind `publication`.
        strategy: `auto` chooses; `index`, `split` and `zcode` insist. All give the same rows.
        on_error: what a filter that cannot be read does: stop the join, or be left out.
        report: is told about every filter that is left out.
        settings: what the join may use.

    Raises:
        ConfigurationError: a column is missing or has a type that filters cannot compare, or publications
            are a stream and the filters do not fit into a worker.
        FilterError: a filter cannot be read; the message names its key and the position.
    """
    chosen = settings or JoinSettings()
    for name, value, kind in (
        ("how", how, How),
        ("strategy", strategy, Strategy),
        ("on_error", on_error, OnError),
    ):
        if value not in get_args(kind):
            allowed = ", ".join(get_args(kind))
            raise ConfigurationError(f"{name}={value!r} is not known; choose one of {allowed}")
    publication_key = key_column if publication_key_column is None else publication_key_column
    asked = publication_table(publications, key=publication_key, attributes=attributes, keep=keep)
    if isinstance(filters, FilterSet):
        return asked.answered(_join_ready(asked, filters, how, strategy))
    _refuse_streams(publications, filters, strategy)
    offered = filter_table(
        filters, key=key_column, text=filter_column, destination=destination_column, how=how
    )
    asker = Asker(how, asked.key_type, offered.key_type, offered.destination_type)

    def judged(problems: list[str]) -> None:
        judge(problems, on_error, report)

    parallelism = _parallelism(publications)
    if strategy in ("auto", "index"):
        share = chosen.filters_bytes_max // parallelism
        limit = Limit(chosen.shard_filters_max, share, chosen.filter_bytes)
        quickly = quickly_built_filters(offered, parallelism, limit)
        if quickly is not None:
            judged(quickly.problems)
            return asked.answered(join_by_index(asked, quickly, asker))
    size = _size(offered)
    if strategy == "auto":
        strategy = "index" if size.bytes(chosen.filter_bytes) <= chosen.filters_bytes_max else "split"
        _refuse_streams(publications, filters, strategy)
    if strategy == "index":
        built = built_filters(offered, _shards(size.filters, parallelism, chosen))
        judged(built.problems)
        return asked.answered(join_by_index(asked, built, asker))
    if strategy == "zcode":
        shards = _shards(size.filters, parallelism, chosen)
        return asked.answered(join_by_zcodes(asked, offered, asker, judged, shards))
    judged(filter_problems(offered))
    slices = max(1, math.ceil(size.bytes(chosen.slice_filter_bytes) / chosen.filters_bytes_max))
    sharing = max(1, math.ceil(parallelism / slices))
    parts = join_by_slices(asked, offered, replace(asker, partial=True), slices=slices, parts=sharing)
    return asked.answered(combined(parts, how))


def _join_ready(asked: PublicationTable, filters: FilterSet, how: How, strategy: Strategy) -> DataFrame:
    """With filters that are read and indexed."""
    if strategy not in ("auto", "index"):
        raise ConfigurationError(f"a FilterSet is an index, so it cannot be joined by {strategy!r}")
    if how == "destinations" and filters.destination_type is None:
        raise ConfigurationError(
            'how="destinations" needs a FilterSet that was built with destination_column=...'
        )
    asker = Asker(how, asked.key_type, filters.key_type, filters.destination_type)
    return join_by_index(asked, filters.built, asker, filters.shards_for(asked.frame))


def _refuse_streams(publications: DataFrame, filters: DataFrame, strategy: Strategy) -> None:
    if filters.isStreaming:
        raise ConfigurationError(
            "filters are a table and not a stream; join within foreachBatch, and give it a FilterSet that is "
            "refreshed there"
        )
    if publications.isStreaming and strategy in ("split", "zcode"):
        raise ConfigurationError(
            f"a stream of publications cannot be joined by {strategy!r}: it would be shuffled, and its rows "
            "counted, without an end. A stream is joined by 'index', with filters that fit into a worker "
            "(filters_bytes_max of JoinSettings), or batch by batch within foreachBatch"
        )


@dataclass(frozen=True, slots=True)
class _Size:
    filters: int
    text_bytes: int

    def bytes(self, filter_bytes: int) -> int:
        return self.filters * filter_bytes + self.text_bytes


def _size(filters: FilterTable) -> _Size:
    from pyspark.sql import functions as F

    row = filters.rows.agg(F.count("*").alias("filters"), F.sum(F.octet_length(TEXT)).alias("text")).first()
    return _Size(0, 0) if row is None else _Size(row.filters, row.text or 0)


def _parallelism(frame: DataFrame) -> int:
    try:
        return int(frame.sparkSession.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context to ask
        return 1


def _shards(filters: int, parallelism: int, settings: JoinSettings) -> int:
    """As many as keep all cores busy, unless they would be tiny, and as many as none gets too large."""
    useful = min(parallelism, math.ceil(filters / settings.shard_filters_min))
    return max(1, useful, math.ceil(filters / settings.shard_filters_max))
