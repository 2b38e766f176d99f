"""How do many records become columns without looking at them one by one?

Most records of a log have the same attributes in the same order. For those, one step of the reading is one
operation on an array with an entry for each record: compare the name of the next attribute, look at the kind
of its value, fetch the value, move on. What does not fit (another order, a value of another type than its
column, a range) is left for reading one by one; so nothing here decides what such values mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PADDING", "Columns", "Strings", "read_columns"]

# Bytes behind the records, so that a number of 64 bits can be fetched at the last of them.
PADDING = 16

_NIL, _FALSE, _TRUE = 0xC0, 0xC2, 0xC3
# How many bytes a number has that follows its kind, and whether it has a sign.
_NUMBERS = {
    0xCC: (1, False),
    0xCD: (2, False),
    0xCE: (4, False),
    0xCF: (8, False),
    0xD0: (1, True),
    0xD1: (2, True),
    0xD2: (4, True),
    0xD3: (8, True),
}
_DOUBLE = 0xCB
# How many bytes the length has that follows the kind, and what follows that.
_LENGTHS = {0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0), 0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1)}
_TEXTS = (0xD9, 0xDA, 0xDB)
_BINARIES = (0xC4, 0xC5, 0xC6)
_PUBLISHED, _BODY, _TYPE = range(3)


@dataclass
class Strings:
    """Where the value of each record lies among the bytes."""

    starts: Any
    ends: Any


@dataclass
class Columns:
    """What was read of some records."""

    rows: Any
    """Which records these are."""
    values: dict[str, Any]
    """By attribute: numbers as an array, or `Strings`. Attributes that no record has are missing."""
    valid: dict[str, Any]
    """By attribute: whether each record has it; missing where all do."""
    published_at_us: Any
    body: Strings | None
    content_type: Strings | None


class _Reader:
    """Places among the bytes, one for each record that still fits."""

    def __init__(self, data: Any, rows: Any, starts: Any, ends: Any) -> None:
        self.data = data
        # A number of 64 bits from any byte on.
        self.words = np.ndarray((len(data) - 7,), ">u8", data, strides=(1,))
        self.rows = rows
        self.at = starts
        self.ends = ends
        # By attribute; what every record has beside its attributes, by a number.
        self.values: dict[str | int, Any] = {}
        self.valid: dict[str | int, Any] = {}

    def keep(self, fits: Any) -> None:
        """Go on with those records only that fit."""
        if fits.all():
            return
        self.rows, self.at, self.ends = self.rows[fits], self.at[fits], self.ends[fits]
        self.valid = {name: valid[fits] for name, valid in self.valid.items()}
        self.values = {
            name: Strings(found.starts[fits], found.ends[fits]) if isinstance(found, Strings) else found[fits]
            for name, found in self.values.items()
        }

    def move(self, lengths: Any) -> None:
        """Go on behind so many bytes, with the records that have as many."""
        self.at = self.at + lengths
        self.keep(self.at <= self.ends)

    def expect(self, text: bytes) -> None:
        """Go on behind these bytes, with the records that have them here."""
        self.keep(self.at + len(text) <= self.ends)
        for start in range(0, len(text), 8):
            part = text[start : start + 8]
            wanted = int.from_bytes(part, "big")
            found = self.words[self.at + start].astype(np.uint64) >> np.uint64(64 - 8 * len(part))
            self.keep(found == np.uint64(wanted))
        self.at = self.at + len(text)

    def kinds(self) -> tuple[Any, list[int]]:
        """The kind of the value that each record has next, and which kinds there are."""
        self.keep(self.at < self.ends)
        kinds = self.data[self.at]
        return kinds, np.flatnonzero(np.bincount(kinds, minlength=256)).tolist()

    def following(self, places: Any, size: int, signed: bool) -> Any:
        """The numbers of so many bytes behind the kind."""
        words = self.words[places + 1].astype(np.uint64)
        if signed:
            return words.view(np.int64) >> np.int64(64 - 8 * size)
        return (words >> np.uint64(64 - 8 * size)).view(np.int64)

    def number(self, wanted: type, name: str | int) -> None:
        """The next value, as whole numbers, numbers or truth values."""
        kinds, present = self.kinds()
        fits = np.zeros(256, bool)
        fits[_NIL] = True
        if wanted is bool:
            fits[[_FALSE, _TRUE]] = True
        else:
            fits[:0x80] = fits[0xE0:] = True
            fits[[*_NUMBERS]] = True
            fits[_DOUBLE] = wanted is float
        if not fits[present].all():
            self.keep(fits[kinds])
            kinds, present = self.kinds()
        if wanted is bool:
            self._take(name, kinds == _TRUE, kinds != _NIL, 1)
            return
        values = kinds.astype(np.int8).astype(np.float64 if wanted is float else np.int64)
        sizes = np.ones(len(kinds), np.int64)
        valid = None if _NIL not in present else kinds != _NIL
        small = None
        for kind in present:
            if kind not in _NUMBERS and kind != _DOUBLE:
                continue
            size, signed = _NUMBERS.get(kind, (8, False))
            chosen = slice(None) if len(present) == 1 else np.flatnonzero(kinds == kind)
            found = self.following(self.at[chosen], size, signed)
            if kind == _DOUBLE:
                found = found.view(np.float64)
            elif kind == 0xCF:
                small = np.ones(len(kinds), bool)
                small[chosen] = found >= 0  # what a signed number holds
            values[chosen] = found
            sizes[chosen] = 1 + size
        if small is not None:
            values, sizes = values[small], sizes[small]
            valid = None if valid is None else valid[small]
            self.keep(small)
        self._take(name, values, valid, sizes)

    def _take(self, name: str | int, values: Any, valid: Any, sizes: Any) -> None:
        self.values[name] = values
        if valid is not None:
            self.valid[name] = valid
        self.move(sizes)

    def text(self, name: str | int, kinds_wanted: tuple[int, ...] = _TEXTS) -> None:
        """The next value, as text, or as bytes."""
        starts, ends, nil = self._span(kinds_wanted)
        self.values[name] = Strings(starts, ends)
        if nil is not None:
            self.valid[name] = ~nil
        self.at = ends
        self.keep(ends <= self.ends)

    def _span(self, wanted: tuple[int, ...]) -> tuple[Any, Any, Any]:
        kinds, present = self.kinds()
        fits = np.zeros(256, bool)
        fits[_NIL] = True
        fits[[*wanted]] = True
        if wanted is _TEXTS:
            fits[0xA0:0xC0] = True
        if not fits[present].all():
            self.keep(fits[kinds])
            kinds, present = self.kinds()
        lengths = (kinds & 0x1F).astype(np.int64)
        starts = self.at + 1
        for kind in present:
            if kind in _LENGTHS:
                size, _ = _LENGTHS[kind]
                chosen = np.flatnonzero(kinds == kind)
                lengths[chosen] = self.following(self.at[chosen], size, False)
                starts[chosen] += size
        nil = None
        if _NIL in present:
            nil = kinds == _NIL
            lengths[nil] = 0
        return starts, starts + lengths, nil

    def skip(self) -> None:
        """Pass over the next value, whatever it is."""
        kinds, present = self.kinds()
        sizes = np.ones(len(kinds), np.int64)
        fits = np.ones(len(kinds), bool)
        for kind in present:
            if kind < 0x80 or kind >= 0xE0 or kind in (_NIL, _FALSE, _TRUE):
                continue
            chosen = np.flatnonzero(kinds == kind)
            if 0xA0 <= kind < 0xC0:
                sizes[chosen] = 1 + (kind & 0x1F)
            elif kind in _NUMBERS or kind == _DOUBLE:
                sizes[chosen] = 1 + _NUMBERS.get(kind, (8, False))[0]
            elif kind in _LENGTHS:
                size, more = _LENGTHS[kind]
                sizes[chosen] = 1 + size + more + self.following(self.at[chosen], size, False)
            else:
                fits[chosen] = False
        if not fits.all():
            sizes = sizes[fits]
            self.keep(fits)
        self.move(sizes)


def read_columns(
    data: Any,
    rows: Any,
    starts: Any,
    ends: Any,
    *,
    wanted: Mapping[str, type],
    body: bool,
) -> Columns:
    """Read the records that look like the first of these; `rows` of the answer says which they are.

    Args:
        data: the records, one after the other, with `PADDING` bytes behind them.
        rows: the numbers of the records.
        starts: where each begins.
        ends: where each ends.
        wanted: the attributes to read, as `bool`, `int`, `float` or `str`.
        body: whether to read what is carried as well.
    """
    first = bytes(data[starts[0] : ends[0]])
    reader = _Reader(data, rows, starts, ends)
    try:
        fields = msgspec.msgpack.decode(first, type=list[msgspec.Raw])
        names = [*msgspec.msgpack.decode(fields[0], type=dict[str, msgspec.Raw])]
    except msgspec.MsgspecError:
        fields = []
    if len(fields) not in (2, 4):
        return Columns(rows[:0], {}, {}, rows[:0], None, None)
    reader.expect(first[: _header(first)])
    for name in names:
        reader.expect(msgspec.msgpack.encode(name))
        kind = wanted.get(name)
        if kind is None:
            reader.skip()
        elif kind is str:
            reader.text(name)
        else:
            reader.number(kind, name)
    reader.number(int, _PUBLISHED)
    if body and len(fields) == 4:
        reader.text(_BODY, _BINARIES)
        reader.text(_TYPE)
    for part in (_PUBLISHED, _BODY, _TYPE):
        if part in reader.valid:
            reader.keep(reader.valid[part])
    found = reader.values
    return Columns(
        reader.rows,
        {name: values for name, values in found.items() if isinstance(name, str)},
        {name: valid for name, valid in reader.valid.items() if isinstance(name, str)},
        found[_PUBLISHED],
        found.get(_BODY),
        found.get(_TYPE),
    )


def _header(record: bytes) -> int:
    """Where the first attribute of a record begins."""
    return 2 if record[1] < 0x90 else 4 if record[1] == 0xDE else 6
