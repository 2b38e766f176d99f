"""What can be chosen about a workload, and is a choice possible?"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from braid.workloads.tables import Table

__all__ = ["Definition", "Parameter", "Setting", "did_you_mean"]

Setting: TypeAlias = bool | int | float | str


@dataclass(frozen=True)
class Parameter:
    """One choice: its default says which type it has."""

    name: str
    default: Setting
    meaning: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()

    def checked(self, value: object, workload: str) -> Setting:
        """The value in the parameter's type, or a `ConfigurationError` that says what is allowed."""
        place = f"{workload}: {self.name}"
        if isinstance(self.default, str):
            if not isinstance(value, str) or (self.choices and value not in self.choices):
                raise ConfigurationError(f"{place} is {self.allowed()}, not {value!r}")
            return value
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise ConfigurationError(f"{place} is {self.allowed()}, not {value!r}")
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ConfigurationError(f"{place} is {self.allowed()}, not {value!r}")
        number: int | float = value
        if isinstance(self.default, int):
            if number != number or math.isinf(number) or number != int(number):
                raise ConfigurationError(f"{place} is {self.allowed()}, not {value!r}")
            number = int(number)
        else:
            number = float(number)
        if not self.low <= number <= self.high:
            raise ConfigurationError(f"{place} is {self.allowed()}, not {value!r}")
        return number

    def parsed(self, text: str, workload: str) -> Setting:
        """A value from a command line."""
        value: object = text
        if isinstance(self.default, bool):
            value = {"true": True, "false": False}.get(text.lower(), text)
        elif isinstance(self.default, (int, float)):
            try:
                value = float(text.replace("_", ""))
            except ValueError:
                value = text
        return self.checked(value, workload)

    def allowed(self) -> str:
        """The possible values, in words."""
        if self.choices:
            return " or ".join(map(repr, self.choices))
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, str):
            return "a text"
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        if math.isinf(self.low):
            return kind
        return f"{kind} from {self.low:g}" + ("" if math.isinf(self.high) else f" to {self.high:g}")


@dataclass(frozen=True)
class Definition:
    """A workload that can be made: where it comes from, what can be chosen, and how."""

    name: str
    summary: str
    source: str
    """The paper and section, or the data, that it follows."""
    parameters: tuple[Parameter, ...]
    build: Callable[[int, Mapping[str, Any]], dict[str, Table]]
    """From the seed and the complete settings."""

    def settings(self, chosen: Mapping[str, object]) -> dict[str, Setting]:
        """Complete settings: what was chosen, checked, and defaults for the rest."""
        by_name = {each.name: each for each in self.parameters}
        for name in chosen:
            if name not in by_name:
                raise ConfigurationError(
                    f"{self.name} has no parameter {name!r}; {did_you_mean(name, by_name)}"
                )
        return {
            name: parameter.checked(chosen.get(name, parameter.default), self.name)
            for name, parameter in by_name.items()
        }

    def parsed(self, assignments: Iterable[str]) -> dict[str, Setting]:
        """Settings from `key=value` words of a command line."""
        by_name = {each.name: each for each in self.parameters}
        found: dict[str, Setting] = {}
        for assignment in assignments:
            name, separator, text = assignment.partition("=")
            if not separator:
                raise ConfigurationError(f"{assignment!r} is not of the form key=value")
            if name not in by_name:
                raise ConfigurationError(
                    f"{self.name} has no parameter {name!r}; {did_you_mean(name, by_name)}"
                )
            found[name] = by_name[name].parsed(text, self.name)
        return found


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The closest of the known names, or all of them."""
    names = list(known)
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"did you mean {by_lower[close[0]]!r}?" if close else f"known are {', '.join(names)}"
