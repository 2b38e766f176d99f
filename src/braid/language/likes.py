"""Which strings does a LIKE pattern describe?

`%` stands for any run of characters, `_` for exactly one, and the escape character (a backslash
unless ESCAPE names another) takes the special meaning from `%`, `_` and itself, as in Spark SQL.
"""

from __future__ import annotations

import re

from braid.language.memory import Memory

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


# So often a piece with `_` in it is looked for where its first plain characters are.
TRIES_MAX = 16


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
    (One regular expression for the whole pattern could be made to backtrack for hours; one for each piece
    takes hundreds of bytes for every character of the pattern.)
    """

    __slots__ = ("_ends_length", "_final", "_first", "_middle")

    def __init__(self, tokens: list[str | _Wildcard]) -> None:
        pieces: list[list[str | _Wildcard]] = [[]]
        for token in tokens:
            if token is ANY_RUN:
                pieces.append([])
            else:
                pieces[-1].append(token)
        self._first, self._final = _piece(pieces[0]), _piece(pieces[-1])
        self._middle = tuple(map(_piece, pieces[1:-1])) if len(pieces) > 1 else None
        """What comes between the first and the last piece; None if there is one piece only."""
        self._ends_length = len(pieces[0]) + len(pieces[-1])

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` fits the pattern."""
        first, final = self._first, self._final
        if self._middle is None:
            return text == first if isinstance(first, str) else len(text) == len(first) and first.at(text, 0)
        if len(text) < self._ends_length:
            return False
        if not (text.startswith(first) if isinstance(first, str) else first.at(text, 0)):
            return False
        end = len(text) - len(final)
        if not (text.endswith(final) if isinstance(final, str) else final.at(text, end)):
            return False
        position = len(first)
        for piece in self._middle:
            if isinstance(piece, str):
                found = text.find(piece, position, end)
            else:
                found = piece.find(text, position, end)
            if found < 0:
                return False
            position = found + len(piece)
        return True


class _Gapped:
    """A piece with `_` in it: its runs of plain characters, and where each begins."""

    __slots__ = ("_length", "_runs")

    def __init__(self, tokens: list[str | _Wildcard]) -> None:
        self._length = len(tokens)
        self._runs: list[tuple[int, str]] = []
        plain: list[str] = []
        for place, token in enumerate([*tokens, ANY_CHARACTER]):
            if isinstance(token, str):
                plain.append(token)
            elif plain:
                self._runs.append((place - len(plain), "".join(plain)))
                plain = []

    def __len__(self) -> int:
        return self._length

    def at(self, text: str, position: int) -> bool:
        return all(text.startswith(run, position + offset) for offset, run in self._runs)

    def find(self, text: str, start: int, end: int) -> int:
        """The first place between `start` and `end`, -1 if there is none."""
        last = end - self._length
        if not self._runs:
            return start if start <= last else -1
        offset, run = self._runs[0]
        for _ in range(TRIES_MAX):
            found = text.find(run, start + offset, end)
            if found < 0 or found - offset > last:
                return -1
            start = found - offset
            if self.at(text, start):
                return start
            start += 1
        return self._find_steadily(text, start, end)

    def _find_steadily(self, text: str, start: int, end: int) -> int:
        """The same in one go over the text: bit n says whether the first n + 1 characters fit up to here."""
        fixed: dict[str, int] = {}
        anything = (1 << self._length) - 1
        for offset, run in self._runs:
            for place, character in enumerate(run, offset):
                fixed[character] = fixed.get(character, 0) | 1 << place
                anything ^= 1 << place
        whole = 1 << self._length - 1
        state = 0
        for place in range(start, end):
            state = (state << 1 | 1) & (anything | fixed.get(text[place], 0))
            if state & whole:
                return place + 1 - self._length
        return -1


def _piece(tokens: list[str | _Wildcard]) -> str | _Gapped:
    plain = [token for token in tokens if isinstance(token, str)]
    return "".join(plain) if len(plain) == len(tokens) else _Gapped(tokens)


def _like_matcher(pattern: str, escape: str) -> LikeMatcher:
    return LikeMatcher(parse_like(pattern, escape))


# A matcher takes up to some fifty bytes for a character of its pattern.
like_matcher = Memory(_like_matcher, characters_max=131_072)
"""The matcher of a pattern with its escape character, remembered."""


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
