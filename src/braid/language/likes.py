"""Which strings does a LIKE pattern describe?

`%` stands for any run of characters, `_` for exactly one, and the escape character (a backslash
unless ESCAPE names another) takes the special meaning from `%`, `_` and itself, as in Spark SQL.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = [
    "CANONICAL_ESCAPE",
    "DEFAULT_ESCAPE",
    "LikeMatcher",
    "LikePatternError",
    "canonical_like",
    "escape_like",
    "like_matcher",
    "like_prefix",
    "parse_like",
]

DEFAULT_ESCAPE = "\\"
# The escape character of canonical text: unlike the backslash it means nothing in a string literal.
CANONICAL_ESCAPE = "!"


class LikePatternError(ValueError):
    """The message says what the pattern should have had."""


class _Wildcard:
    """A token of a parsed pattern that is not a plain character."""


ANY_RUN = _Wildcard()
ANY_CHARACTER = _Wildcard()


def parse_like(pattern: str, escape: str) -> list[str | _Wildcard]:
    """The pattern as plain characters and wildcards; among neighbouring wildcards one `%` comes last."""
    tokens: list[str | _Wildcard] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or (escaped not in "%_" and escaped != escape):
                raise LikePatternError(f"a pattern where {escape} is followed by %, _ or {escape}")
            tokens.append(escaped)
        elif character == "%":
            if not tokens or tokens[-1] is not ANY_RUN:
                tokens.append(ANY_RUN)
        elif character == "_":
            at = len(tokens) - (bool(tokens) and tokens[-1] is ANY_RUN)
            tokens.insert(at, ANY_CHARACTER)
        else:
            tokens.append(character)
    return tokens


class LikeMatcher:
    """Decides a pattern in time proportional to pattern times text, however many `%` it has.

    The pieces between the `%` have a fixed length each. The first is tied to the start, the last to
    the end, and every other one is taken at its leftmost place, which leaves most room for the rest.
    (One regular expression for the whole pattern could be made to backtrack for hours.)
    """

    def __init__(self, tokens: list[str | _Wildcard]) -> None:
        pieces: list[list[str | _Wildcard]] = [[]]
        for token in tokens:
            if token is ANY_RUN:
                pieces.append([])
            else:
                pieces[-1].append(token)
        self._lengths = [len(piece) for piece in pieces]
        self._pieces = [
            re.compile("".join("." if t is ANY_CHARACTER else re.escape(str(t)) for t in piece), re.DOTALL)
            for piece in pieces
        ]

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` fits the pattern."""
        first, lengths = self._pieces[0], self._lengths
        if len(self._pieces) == 1:
            return first.fullmatch(text) is not None
        end = len(text) - lengths[-1]
        if lengths[0] > end or not first.match(text) or not self._pieces[-1].match(text, end):
            return False
        position = lengths[0]
        for piece in self._pieces[1:-1]:
            found = piece.search(text, position, end)
            if found is None:
                return False
            position = found.end()
        return True


@lru_cache(maxsize=4096)
def like_matcher(pattern: str, escape: str) -> LikeMatcher:
    """The matcher of a pattern, remembered."""
    return LikeMatcher(parse_like(pattern, escape))


def like_prefix(pattern: str, escape: str) -> tuple[str, str]:
    """What the pattern starts with, and its form: `exact`, `prefix` (`abc%`) or `general`."""
    tokens = parse_like(pattern, escape)
    prefix: list[str] = []
    for token in tokens:
        if isinstance(token, _Wildcard):
            break
        prefix.append(token)
    rest = tokens[len(prefix) :]
    form = "exact" if not rest else "prefix" if rest == [ANY_RUN] else "general"
    return "".join(prefix), form


def canonical_like(pattern: str, escape: str) -> tuple[str, str]:
    """A pattern and an escape character that mean the same, equal for patterns written differently."""
    written: list[str] = []
    result = DEFAULT_ESCAPE
    for token in parse_like(pattern, escape):
        if isinstance(token, _Wildcard):
            written.append("%" if token is ANY_RUN else "_")
        else:
            written.append(escape_like(token))
            if token in "%_!\\":
                result = CANONICAL_ESCAPE
    return "".join(written), result


def escape_like(text: str) -> str:
    """`text` so that LIKE with `CANONICAL_ESCAPE` takes every character literally."""
    return re.sub(r"[%_!]", lambda match: CANONICAL_ESCAPE + match.group(), text)
