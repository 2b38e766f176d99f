"""Settings that are dataclasses, read from a table by the types of their fields.

A field ending in `_us`, or with `_us` in its name, may also be written as a duration without it:
`heartbeat = "2s"` for `heartbeat_us = 2_000_000`, `redial_max = "5s"` for `redial_us_max`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from braid.settings.document import Section

__all__ = ["FROM_ZERO", "meanings_of", "read_fields"]

FROM_ZERO = frozenset(
    {
        "delta",
        "disk_low_bytes",
        "disk_high_bytes",
        "memory_bytes_max",
        "candidates_max",
        "rest_reviews",
        "degree_max",
        "rest_intervals",
    }
)
"""Whole numbers that may be 0; all others are 1 or more."""


def read_fields(
    section: Section,
    group: type,
    *,
    leave_out: Container[str] = (),
    choices: Mapping[str, tuple[str, ...]] | None = None,
) -> dict[str, Any]:
    """What a table says about the fields of a dataclass, by name; what it does not mention is left out.

    Args:
        section: the table.
        group: the dataclass.
        leave_out: fields that are not to be read here.
        choices: the words that a text may be, by field.
    """
    hints = get_type_hints(group)
    found = {}
    for field in fields(group):
        name = field.name
        if name in leave_out:
            continue
        hint = hints[name]
        least = int(name not in FROM_ZERO)
        without_unit = name.replace("_us", "") if hint is int else name
        if without_unit != name:
            value = section.microseconds(without_unit, name, None, least=least)
        elif choices is not None and name in choices:
            value = section.choice(name, choices[name], None)
        elif hint is int:
            value = section.integer(name, None, least=least)
        else:
            value = section.value(name, hint, None)
        if name in section or without_unit in section:
            found[name] = value
    return found


@cache
def meanings_of(group: type) -> Mapping[str, str]:
    """The docstring below each field, from the source: there is no second place for it to drift from."""
    body = ast.parse(textwrap.dedent(inspect.getsource(group))).body[0]
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{group!r} is no class")
    meanings = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = after.value if isinstance(after, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                meanings[field.target.id] = " ".join(text.value.split())
    return meanings
