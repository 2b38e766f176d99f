"""Which filters of a file does each publication of another file match?

A filter line is `{"id": ..., "filter": "SQL"}`, `{"id": ..., "pattern": {...}}` (an EventBridge
pattern) or just a JSON string with the SQL; without an id, the line number is the id. A publication
line is an object of attributes, nested objects becoming dotted names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from braid.cli.json_lines import (
    OnError,
    decode,
    encode_lines,
    input_name,
    open_input,
    open_output,
    read_batches,
)
from braid.errors import BraidError, ConfigurationError, FilterError, PublicationError
from braid.language import Filter, flatten
from braid.language.patterns import filter_from_pattern
from braid.matching import FilterIndex

__all__ = ["MatchSummary", "match_lines"]

_BATCH_MAX = 1024
# Publications times filters in one batch: bounds the memory for listed matches to some 100 MB.
_PAIRS_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class MatchSummary:
    """What a run saw, for people; the answers themselves are in the output."""

    filters: int
    publications: int
    matching: int
    skipped: int

    def __str__(self) -> str:
        text = (
            f"{self.publications:,} publications, {self.matching:,} matched one of {self.filters:,} filters"
        )
        return f"{text}; {self.skipped:,} lines skipped" if self.skipped else text


def match_lines(
    filters: str,
    publications: str,
    output: str = "-",
    *,
    counts: bool = False,
    only_matching: bool = False,
    on_error: OnError = OnError.STOP,
    report: Callable[[str], None],
    advance: Callable[[int], None],
) -> MatchSummary:
    """Answer every publication line with one output line, in order.

    Args:
        filters, publications, output: file names; `-` is standard input or output.
        counts: say how many filters match instead of which.
        only_matching: leave out publications that match nothing.
        on_error: stop at the first bad line (after answering all before it), or skip such lines.
        report: is told about every skipped line.
        advance: is told after each batch how many bytes of publications have been answered.
    """
    if filters == publications == "-":
        raise ConfigurationError("filters and publications cannot both come from standard input")
    reader = _Reader(on_error, report)
    ids, index = _read_index(filters, reader)
    lines_max = min(_BATCH_MAX, max(16, _PAIRS_MAX // max(1, len(ids))))
    seen = matching = 0
    with open_input(publications) as source, open_output(output, (filters, publications)) as sink:
        for batch in read_batches(source, lines_max):
            numbers, rows, failure = reader.publications(input_name(publications), batch)
            if counts:
                answers = [
                    {"line": number, "count": count}
                    for number, count in zip(numbers, index.count_batch(rows).tolist(), strict=True)
                ]
                hits = sum(answer["count"] > 0 for answer in answers)
            else:
                listed = [
                    {"line": number, "matches": [ids[row] for row in sorted(found)]}
                    for number, found in zip(numbers, index.match_batch(rows), strict=True)
                ]
                hits = sum(bool(answer["matches"]) for answer in listed)
                answers = listed
            if only_matching:
                answers = [answer for answer in answers if answer.get("count") or answer.get("matches")]
            # Flushed batch by batch: whoever reads a pipe sees answers when they are known, and a
            # bad line further on takes nothing back.
            sink.write(encode_lines(answers))
            sink.flush()
            seen += len(rows)
            matching += hits
            if failure is not None:
                raise failure
            advance(sum(len(line) + 1 for _, line in batch))
    return MatchSummary(len(ids), seen, matching, reader.skipped)


class _Reader:
    """Turns lines into filters and publications, and knows what to do with bad ones."""

    def __init__(self, on_error: OnError, report: Callable[[str], None]) -> None:
        self._on_error = on_error
        self._report = report
        self.skipped = 0

    def handle(self, error: BraidError) -> None:
        """Raise it or count it, as the user chose."""
        if self._on_error is OnError.STOP:
            raise error
        self.skipped += 1
        self._report(str(error))

    def publications(
        self, name: str, batch: list[tuple[int, bytes]]
    ) -> tuple[list[int], list[dict[str, Any]], BraidError | None]:
        """Line numbers and attributes of a batch, up to the failure that ends the run, if any."""
        numbers: list[int] = []
        rows: list[dict[str, Any]] = []
        for number, line in batch:
            try:
                attributes = flatten(decode(line))
            except ValueError as reason:
                try:
                    self.handle(PublicationError(f"{name}:{number}: {reason}"))
                except PublicationError as failure:
                    return numbers, rows, failure
            else:
                numbers.append(number)
                rows.append(attributes)
        return numbers, rows, None


def _read_index(filters: str, reader: _Reader) -> tuple[list[str | int], FilterIndex[int]]:
    """The ids in the order of the file, and an index whose keys are their positions."""
    places: dict[str | int, int] = {}
    entries: list[tuple[int, Filter]] = []
    name = input_name(filters)
    with open_input(filters) as source:
        for batch in read_batches(source, _BATCH_MAX):
            for number, line in batch:
                try:
                    identity, read = _filter_of(line, number)
                    if identity in places:
                        raise FilterError(f"the id {identity!r} is already that of line {places[identity]}")
                except ValueError as reason:
                    reader.handle(FilterError(f"{name}:{number}: {reason}"))
                else:
                    places[identity] = number
                    entries.append((len(entries), read))
    index: FilterIndex[int] = FilterIndex()
    index.add_many(entries)
    return list(places), index


def _filter_of(line: bytes, number: int) -> tuple[str | int, Filter]:
    content = decode(line)
    if isinstance(content, str):
        return number, Filter(content)
    if not isinstance(content, dict):
        raise FilterError('expected {"id": ..., "filter": "..."}, {"id": ..., "pattern": {...}} or a string')
    unknown = content.keys() - {"id", "filter", "pattern"}
    if unknown:
        raise FilterError(f"unknown key {min(unknown)!r}; a filter line has id, filter and pattern")
    identity = content.get("id", number)
    if isinstance(identity, bool) or not isinstance(identity, (str, int)):
        raise FilterError("an id must be a string or an integer")
    if ("filter" in content) == ("pattern" in content):
        raise FilterError("expected either a filter or a pattern")
    if "pattern" in content:
        # Read again from its own text: only there can a key that occurs twice be seen.
        return identity, filter_from_pattern(bytes(_pattern_text(line)["pattern"]).decode())
    if not isinstance(content["filter"], str):
        raise FilterError("the filter must be a string of SQL")
    return identity, Filter(content["filter"])


_pattern_text = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
