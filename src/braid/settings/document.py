"""Tables of settings, read key by key, so that a mistake is found where it stands.

A `Document` is a TOML file, or values that a program gives; a `Section` is one of its tables. Whoever reads
it asks for each key by name and kind; whatever was not asked for in the end is not known, and that is an
error: a misspelt limit would be no limit. msgspec checks the values. Every complaint names file, line and key
and says what would be accepted.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

import msgspec

from braid.errors import ConfigurationError
from braid.settings.lines import Place, key_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
    """Settings as somebody gave them, and where each of them stands."""

    def __init__(
        self, values: Mapping[str, Any], name: str, folder: Path, lines: Mapping[Place, int] | None = None
    ) -> None:
        """
        Args:
            values: what was given.
            name: what complaints call it.
            folder: paths in it are relative to this.
            lines: where each key stands, if that is known.
        """
        self.values = values
        self.name = name
        self.folder = folder
        self._lines = lines or {}

    @classmethod
    def read(cls, path: Path, kind: str) -> Document:
        """Open a TOML file, or a `ConfigurationError` that says why it cannot be read."""
        try:
            return cls.parse(path.read_bytes().decode("utf-8"), kind, str(path), path.parent)
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"the {kind} {path} is not valid TOML: {error}") from None
        except OSError as error:
            raise ConfigurationError(f"the {kind} {path} cannot be read: {error.strerror or error}") from None

    @classmethod
    def parse(cls, text: str, kind: str, file: str, folder: Path) -> Document:
        """A document from the text of a TOML file."""
        text = text.replace("\r\n", "\n")
        try:
            return cls(tomllib.loads(text), f"{kind} {file}", folder, key_lines(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"the {kind} {file} is not valid TOML: {error}") from None

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
        where = self.name + (f", line {line}" if line is not None else "")
        raise ConfigurationError(f"{where}{_described(place)}: {problem}")


def _path(place: Place) -> str:
    """A place as people write it: `brokers.link`, `workload.publications number 2`."""
    text = ""
    for each in place:
        text += f" number {each + 1}" if isinstance(each, int) else f".{each}" if text else each
    return text


def _described(place: Place) -> str:
    if not place:
        return ""
    if isinstance(place[-1], int):
        return f", {_path(place)}"
    table = _path(place[:-1])
    return f", key {place[-1]!r}" + (f" of [{table}]" if table else "")


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

    def attempt(self, make: Callable[[], Any]) -> Any:
        """Let something be made of this table, and say where it stands if that cannot be done."""
        try:
            return make()
        except ConfigurationError as error:
            problem = str(error)
        # The key that the message speaks of, if it does: its line is nearer to the mistake than the table's.
        words = f" {problem.replace(chr(39), ' ')} "
        self.fail(next((key for key in self.values if f" {key} " in words), None), problem)

    def knows(self, keys: Iterable[str]) -> None:
        """These keys are allowed here."""
        self._known.update(dict.fromkeys(keys))

    def finish(self, elsewhere: Callable[[str], str | None] = lambda key: None) -> None:
        """Everything that is allowed has been asked for: the rest is a mistake.

        Args:
            elsewhere: where a key that is not known here belongs, in words, if that can be told.
        """
        for key in self.values:
            if key not in self._known:
                close = difflib.get_close_matches(key, self._known, n=1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                belongs = elsewhere(key) or f"{hint}allowed are {', '.join(self._known) or 'none'}"
                self.fail(key, f"is not known; {belongs}")

    # Kinds of values. Without a default a key must be there.

    def value(self, key: str, hint: Any, default: Any = _MISSING, *, wanted: str = "") -> Any:
        """What stands under a key, as a type wants it; a path relative to the document.

        Args:
            key: its name.
            hint: the type, with msgspec's bounds where there are some.
            default: what it is if it is left out; without one it must be there.
            wanted: what would be accepted, in words; by itself it follows from the type.
        """
        self.knows([key])
        if key not in self.values:
            if default is _MISSING:
                self.fail(None, f"{key!r} is missing; it must be {wanted or _wanted(hint)}")
            return default
        given = self.values[key]
        plain, optional = _required(hint)
        if optional and given == "":
            return None
        try:
            return msgspec.convert(given, plain, dec_hook=partial(_path_from, self.folder))
        except (msgspec.ValidationError, TypeError):
            problem = f"must be {wanted or _wanted(plain)}, not {given!r}"
        if get_origin(plain) is Literal and isinstance(given, str):
            close = difflib.get_close_matches(given, get_args(plain), n=1)
            problem += f"; did you mean {close[0]!r}?" if close else ""
        self.fail(key, problem)

    def text(self, key: str, default: Any = _MISSING) -> Any:
        """Text in quotes."""
        return self.value(key, str, default)

    def boolean(self, key: str, default: Any = _MISSING) -> Any:
        """True or false."""
        return self.value(key, bool, default)

    def integer(self, key: str, default: Any = _MISSING, *, least: int = 0) -> Any:
        """A whole number."""
        return self.value(key, Annotated[int, msgspec.Meta(ge=least)], default)

    def number(
        self, key: str, default: Any = _MISSING, *, least: float = 0.0, most: float = float("inf")
    ) -> Any:
        """Any number within bounds."""
        return self.value(key, Annotated[float, msgspec.Meta(ge=least, le=most)], default)

    def choice(self, key: str, choices: Sequence[str], default: Any = _MISSING) -> Any:
        """One of a few words."""
        return self.value(key, Literal[tuple(choices)], default)

    def texts(self, key: str, default: Any = _MISSING) -> Any:
        """A list of words, none of them empty."""
        return self.value(key, list[Annotated[str, msgspec.Meta(min_length=1)]], default)

    def duration_us(self, key: str, default: Any = _MISSING, *, least: int | None = 0) -> Any:
        """Time: `key = "250ms"`, or microseconds as `key_us = 250_000`."""
        return self.microseconds(key, f"{key}_us", default, least=least)

    def microseconds(self, key: str, plain: str, default: Any = _MISSING, *, least: int | None = 0) -> Any:
        """Time by either of two keys: `key` as a duration, `plain` in microseconds."""
        if key in self.values and plain in self.values:
            self.fail(plain, f"{key!r} says the same; give one of them")
        self.knows([key, plain])
        if plain in self.values:
            return self.integer(plain, least=least if least is not None else -(2**62))
        text = self.value(key, str, default, wanted='a duration in quotes, such as "250ms"')
        return self._duration(key, text, least) if key in self.values else text

    def _duration(self, key: str, text: str, least: int | None) -> int:
        try:
            us = parse_duration(text)
        except ValueError as problem:
            self.fail(key, str(problem))
        if least is not None and us < least:
            self.fail(key, f"must be at least {least} us, not {text}")
        return us

    def table(self, key: str) -> Section:
        """A table below this one; an empty one if it is not there."""
        place = (*self.place, key)
        value = self.value(key, dict[str, Any], {}, wanted=f"a table, [{_path(place)}]")
        return Section(self._document, place, value)

    def tables(self, key: str) -> list[Section]:
        """An array of tables."""
        place = (*self.place, key)
        value = self.value(key, list[Any], [], wanted=f"an array of tables, [[{_path(place)}]]")
        for number, each in enumerate(value):
            if not isinstance(each, dict):
                self._document.fail((*place, number), f"must be a table, not {each!r}")
        return [Section(self._document, (*place, number), each) for number, each in enumerate(value)]


def _required(hint: Any) -> tuple[Any, bool]:
    """The type without None, and whether None was allowed; TOML has no word for it."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    kinds = [each for each in get_args(hint) if each is not NoneType]
    return (kinds[0] if len(kinds) == 1 else Union[tuple(kinds)]), len(kinds) < len(get_args(hint))  # noqa: UP007


def _path_from(folder: Path, kind: type, given: Any) -> Path:
    """How msgspec makes a path."""
    if kind is Path and isinstance(given, str | Path) and given != "":
        return folder / Path(given).expanduser()
    raise TypeError(f"{given!r} is no {kind.__name__}")


def _wanted(hint: Any) -> str:
    """What a type accepts, in words."""
    meta = msgspec.Meta()
    if get_origin(hint) is Annotated:
        hint, meta = get_args(hint)[:2]
    origin = get_origin(hint) or hint
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if origin in (list, tuple):
        strict = any(getattr(each, "__metadata__", ()) for each in get_args(hint))
        return f"a list of {'non-empty ' if strict else ''}strings"
    if origin in (int, float):
        number = "a whole number" if origin is int else "a number"
        if meta.le is not None and meta.le != float("inf"):
            return f"{number} from {meta.ge or 0:g} to {meta.le:g}"
        return number + (f" of at least {meta.ge:g}" if meta.ge is not None else "")
    return {bool: "true or false", str: "text in quotes", Path: "a path in quotes"}.get(origin, str(hint))
