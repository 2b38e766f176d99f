"""How is a value of a scenario read, so that a mistake is found where it stands?

A `Section` is one table of the file. Whoever reads it asks for each key by name and kind; whatever was not
asked for in the end is not known. Every complaint names file, line and key and says what would be accepted.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from typing import TYPE_CHECKING, Any, NoReturn

from braid.errors import ConfigurationError
from braid.pipeline.experiments.scenario_lines import Place, key_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = ["DURATION_UNITS", "Document", "Section", "parse_duration"]

DURATION_UNITS: Mapping[str, int] = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
}
_DURATION = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")

_MISSING: Any = object()


def parse_duration(text: str) -> int:
    """Microseconds of `250ms`, `12s`, `1.5min`.

    Raises:
        ValueError: it is no duration, or has another unit; the message says which there are.
    """
    units = ", ".join(DURATION_UNITS)
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f'must be a number with a unit ({units}), such as "250ms", not {text!r}')
    number, unit = found.groups()
    if unit not in DURATION_UNITS:
        close = difflib.get_close_matches(unit, DURATION_UNITS, n=1)
        hint = f"; did you mean {number}{close[0]}?" if close else ""
        problem = f"{unit!r} is no unit" if unit else "the unit is missing"
        raise ValueError(f"{problem} in {text!r}: units are {units}{hint}")
    us = float(number) * DURATION_UNITS[unit]
    if us != round(us):
        raise ValueError(f"{text!r} is not a whole number of microseconds")
    return round(us)


class Document:
    """A scenario file: its text, its values, and where each of them stands."""

    def __init__(self, text: str, file: str, folder: Path) -> None:
        self.file = file
        self.folder = folder
        """Paths in the file are relative to this."""
        try:
            self.values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"scenario {file} is not valid TOML: {error}") from None
        self._lines = key_lines(text)

    @classmethod
    def read(cls, path: Path) -> Document:
        """Open a file, or a `ConfigurationError` that says why it cannot be read."""
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"scenario {path} is not valid TOML: {error}") from None
        except OSError as error:
            raise ConfigurationError(
                f"the scenario {path} cannot be read: {error.strerror or error}"
            ) from None
        return cls(text, str(path), path.parent)

    def top(self) -> Section:
        """The table that everything is in."""
        return Section(self, (), self.values)

    def line(self, place: Place) -> int | None:
        """Where something stands; of what is not written down, where the table around it begins."""
        while place:
            if place in self._lines:
                return self._lines[place]
            place = place[:-1]
        return None

    def fail(self, place: Place, problem: str) -> NoReturn:
        """Complain about what stands at a place."""
        line = self.line(place)
        where = f"scenario {self.file}" + (f", line {line}" if line is not None else "")
        raise ConfigurationError(f"{where}{_described(place)}: {problem}")


def _described(place: Place) -> str:
    names = [str(each) if isinstance(each, str) else f"number {each + 1}" for each in place]
    if not names:
        return ""
    if isinstance(place[-1], int):
        return f", {' '.join(names)}"
    table = " ".join(names[:-1])
    return f", key {names[-1]!r}" + (f" of [{table}]" if table else "")


class Section:
    """One table, read key by key."""

    def __init__(self, document: Document, place: Place, values: Mapping[str, Any]) -> None:
        self._document = document
        self.place = place
        self.values = values
        self._known: dict[str, None] = {}

    @property
    def folder(self) -> Path:
        """What paths are relative to."""
        return self._document.folder

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def fail(self, key: str | None, problem: str) -> NoReturn:
        """Complain about a key, or about the table itself."""
        self._document.fail(self.place if key is None else (*self.place, key), problem)

    def knows(self, keys: Iterable[str]) -> None:
        """These keys are allowed here."""
        self._known.update(dict.fromkeys(keys))

    def finish(self) -> None:
        """Everything that is allowed has been asked for: the rest is a mistake."""
        for key in self.values:
            if key not in self._known:
                close = difflib.get_close_matches(key, self._known, n=1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                self.fail(key, f"is not known; {hint}allowed are {', '.join(self._known) or 'none'}")

    # Kinds of values. Without a default a key must be there.

    def text(self, key: str, default: Any = _MISSING) -> Any:
        """Text in quotes."""
        return self._value(key, default, (str,), "text in quotes")

    def boolean(self, key: str, default: Any = _MISSING) -> Any:
        """True or false."""
        return self._value(key, default, (bool,), "true or false")

    def integer(self, key: str, default: Any = _MISSING, *, least: int = 0) -> Any:
        """A whole number."""
        value = self._value(key, default, (int,), f"a whole number of at least {least}")
        if type(value) is int and key in self.values and value < least:
            self.fail(key, f"must be a whole number of at least {least}, not {value}")
        return value

    def number(
        self, key: str, default: Any = _MISSING, *, least: float = 0.0, most: float = float("inf")
    ) -> Any:
        """Any number within bounds."""
        allowed = (
            f"a number from {least:g} to {most:g}"
            if most < float("inf")
            else f"a number of at least {least:g}"
        )
        value = self._value(key, default, (int, float), allowed)
        if key in self.values and not least <= value <= most:
            self.fail(key, f"must be {allowed}, not {value}")
        return value

    def choice(self, key: str, choices: Sequence[str], default: Any = _MISSING) -> Any:
        """One of a few words."""
        value = self.text(key, default)
        if key in self.values and value not in choices:
            close = difflib.get_close_matches(value, choices, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            self.fail(
                key,
                f"must be one of {', '.join(choices)}, not {value!r}"
                + (f"; {hint}".rstrip() if hint else ""),
            )
        return value

    def duration_us(self, key: str, default: Any = _MISSING, *, least: int | None = 0) -> Any:
        """Time: `key = "250ms"`, or microseconds as `key_us = 250_000`."""
        plain = f"{key}_us"
        if key in self.values and plain in self.values:
            self.fail(plain, f"{key!r} says the same; give one of them")
        if plain in self.values:
            self.knows([key])
            return self.integer(plain, least=least if least is not None else -(2**62))
        self.knows([plain])
        text = self._value(key, default, (str,), 'a duration in quotes, such as "250ms"')
        if key not in self.values:
            return text
        return self._duration(key, text, least)

    def _duration(self, key: str, text: str, least: int | None) -> int:
        try:
            us = parse_duration(text)
        except ValueError as problem:
            self.fail(key, str(problem))
        if least is not None and us < least:
            self.fail(key, f"must be at least {least} us, not {text}")
        return us

    def texts(self, key: str, default: Any = _MISSING, *, count: int | None = None) -> Any:
        """A list of words."""
        wanted = "a list of texts" if count is None else f"a list of {count} texts"
        value = self._value(key, default, (list,), wanted)
        if key in self.values and (
            not all(isinstance(each, str) for each in value) or (count is not None and len(value) != count)
        ):
            self.fail(key, f"must be {wanted}, not {value!r}")
        return value

    def table(self, key: str) -> Section:
        """A table below this one; an empty one if it is not there."""
        value = self._value(key, {}, (dict,), f"a table, [{'.'.join(map(str, (*self.place, key)))}]")
        return Section(self._document, (*self.place, key), value)

    def tables(self, key: str) -> list[Section]:
        """An array of tables."""
        value = self._value(key, [], (list,), f"an array of tables, [[{key}]]")
        for number, each in enumerate(value):
            if not isinstance(each, dict):
                self._document.fail((*self.place, key, number), f"must be a table, not {each!r}")
        return [
            Section(self._document, (*self.place, key, number), each) for number, each in enumerate(value)
        ]

    def _value(self, key: str, default: Any, kinds: tuple[type, ...], wanted: str) -> Any:
        self.knows([key])
        if key not in self.values:
            if default is _MISSING:
                self.fail(None, f"{key!r} is missing; it must be {wanted}")
            return default
        value = self.values[key]
        # True is an int for Python, but nobody who writes it means a number.
        if type(value) not in kinds:
            self.fail(key, f"must be {wanted}, not {value!r}")
        return value
