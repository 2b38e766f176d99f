"""In which line of a TOML file does a key stand?

The reader of the standard library gives values without their places, and an error that names no line makes
people search. This goes through a text that is known to be valid TOML and notes where every key and every
element of an array begins; it never looks at what values mean.
"""

from __future__ import annotations

import re
from typing import TypeAlias

__all__ = ["Place", "key_lines"]

Place: TypeAlias = tuple[str | int, ...]
"""Keys and positions in arrays from the top of the document, such as `("faults", 2, "at")`."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]\}\n#]+")
_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})', re.DOTALL),
    re.compile(r"'''.*?'''(?:'{0,2})", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)


def key_lines(text: str) -> dict[Place, int]:
    """The line (from 1) of every table, key and array element of a valid TOML document."""
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self.lines: dict[Place, int] = {}
        self._tables: dict[Place, int] = {}
        """How many elements each array of tables has so far."""

    def document(self) -> None:
        table: Place = ()
        while True:
            self._skip(_BLANK)
            if self._position >= len(self._text):
                return
            if self._peek("[["):
                table = self._header("[[", "]]")
            elif self._peek("["):
                table = self._header("[", "]")
            else:
                self._pair(table)

    def _header(self, opening: str, closing: str) -> Place:
        line = self._line()
        self._position += len(opening)
        names = self._names()
        self._position += len(closing)
        place: Place = ()
        for number, name in enumerate(names):
            place = (*place, name)
            last = number == len(names) - 1
            if opening == "[[" and last:
                self.lines.setdefault(place, line)
                self._tables[place] = self._tables.get(place, -1) + 1
            # A table below an array of tables belongs to the latest element of that array.
            if place in self._tables:
                place = (*place, self._tables[place])
            self.lines.setdefault(place, line)
        return place

    def _pair(self, table: Place) -> None:
        line = self._line()
        place = table
        for name in self._names():
            place = (*place, name)
            self.lines.setdefault(place, line)
        self._position += 1  # the equals sign
        self._skip(_SPACE)
        self._value(place)

    def _names(self) -> list[str]:
        """A dotted key, up to whatever ends it."""
        names = []
        while True:
            self._skip(_SPACE)
            names.append(self._name())
            self._skip(_SPACE)
            if not self._peek("."):
                return names
            self._position += 1

    def _name(self) -> str:
        for quoted in _STRINGS[2:]:
            found = quoted.match(self._text, self._position)
            if found:
                self._position = found.end()
                return found.group()[1:-1]
        found = _BARE.match(self._text, self._position)
        if found is None:
            raise ValueError(f"line {self._line()}: no key here; the text is not valid TOML")
        self._position = found.end()
        return found.group()

    def _value(self, place: Place) -> None:
        if self._peek("["):
            self._position += 1
            self._elements(place)
        elif self._peek("{"):
            self._position += 1
            self._inline_table(place)
        else:
            for kind in (*_STRINGS, _SCALAR):
                found = kind.match(self._text, self._position)
                if found:
                    self._position = found.end()
                    return

    def _elements(self, place: Place) -> None:
        number = 0
        while self._inside("]"):
            element = (*place, number)
            self.lines[element] = self._line()
            self._value(element)
            number += 1

    def _inline_table(self, place: Place) -> None:
        while self._inside("}"):
            self._pair(place)

    def _inside(self, closing: str) -> bool:
        """Go to the next thing between brackets, or behind the closing one."""
        self._skip(_BLANK)
        if self._peek(","):
            self._position += 1
            self._skip(_BLANK)
        if self._position >= len(self._text):
            return False
        if self._peek(closing):
            self._position += 1
            return False
        return True

    def _peek(self, what: str) -> bool:
        return self._text.startswith(what, self._position)

    def _skip(self, what: re.Pattern[str]) -> None:
        found = what.match(self._text, self._position)
        if found:
            self._position = found.end()

    def _line(self) -> int:
        return self._text.count("\n", 0, self._position) + 1
