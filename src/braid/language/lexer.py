"""Which words does the text of a filter consist of?"""

from __future__ import annotations

import math
import re
from sys import intern
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from braid.errors import FilterSyntaxError
from braid.language.values import INT_MAX, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["INTEGER_HINT", "KEYWORDS", "Token", "is_plain_name", "tokenize"]

KEYWORDS = frozenset({"AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"})

# One past the largest integer is let through for the sake of -9223372036854775808;
# the parser refuses it anywhere but behind a minus sign.
_INTEGER_MAX = INT_MAX + 1
INTEGER_HINT = "integers are 64-bit; write it with a decimal point to make it a float"

# A word and the space behind it. What is in quotes is never given back (`*+`): the second quote of `'it''`
# is part of the string, which has no end then, instead of its end with another string behind it.
_TOKEN = re.compile(
    r"""
    (?:
      (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
    | (?P<string>'(?:[^'\\]|\\.|'')*+')
    | (?P<quoted>`(?:[^`]|``)++`)
    | (?P<comment>--|/\*)
    | (?P<operator><>|!=|<=|>=|[=<>+\-*/%(),])
    )\s*
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[01][0-7]{2}|.)|''", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_PLAIN_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


class Token(NamedTuple):
    """One word: its kind, what it means, and where it stands.

    Kinds: `name`, `literal` (numbers and strings), `end`; for keywords and operators the kind is the
    keyword in upper case or the operator itself.
    """

    kind: str
    value: Scalar | None
    position: int
    text: str


def is_plain_name(name: str) -> bool:
    """Whether an attribute name can stand without backquotes in a filter and in Spark SQL."""
    return (
        name.isascii()
        and _PLAIN_NAME.fullmatch(name) is not None
        and not any(part.upper() in KEYWORDS for part in name.split("."))
    )


def tokenize(text: str) -> Iterator[Token]:
    """The words of a filter, ending with one of kind `end`.

    One at a time: what comes behind a mistake is never looked at.
    """
    position, end = len(text) - len(text.lstrip()), len(text)
    match_at = _TOKEN.match
    while position < end:
        match = match_at(text, position)
        if match is None:
            _refuse_character(text, position)
        kind, word = match.lastgroup, match[match.lastgroup]  # type: ignore[index]
        if kind == "operator":
            yield Token("<>" if word == "!=" else word, None, position, word)
        elif kind == "word":
            yield _word(word, position)
        elif kind == "number":
            yield Token("literal", _number(text, word, position), position, word)
        elif kind == "string":
            yield Token("literal", _string(text, word, position), position, word)
        elif kind == "quoted":
            name = _require_characters(text, word[1:-1].replace("``", "`"), position)
            yield Token("name", intern(name), position, word)
        elif kind == "comment":
            raise FilterSyntaxError(
                text, position, repr(word), "a value or an operator",
                "this starts a comment in SQL, and filters have none; for a double minus write - -1",
            )  # fmt: skip
        position = match.end()
    yield Token("end", None, end, "end of filter")


def _word(word: str, position: int) -> Token:
    upper = word.upper()
    if upper not in KEYWORDS:
        return Token("name", intern(word), position, word)
    if upper in ("TRUE", "FALSE"):
        return Token("literal", upper == "TRUE", position, word)
    return Token(upper, None, position, word)


def _number(text: str, word: str, position: int) -> int | float:
    following = text[position + len(word) : position + len(word) + 1]
    if following.isalnum() or following == "_":
        rest = re.match(r"\w*", text[position + len(word) :])
        found = word + (rest.group() if rest else "")
        hint = "a name that starts with a digit is written in backquotes; numbers have no suffix"
        raise FilterSyntaxError(text, position, repr(_shortened(found)), "a number or a name", hint)
    if not word.isascii():
        raise FilterSyntaxError(text, position, repr(_shortened(word)), "a number", "write digits as 0 to 9")
    if word.isdigit():
        # Python refuses to make a number of thousands of digits, were they all zeros.
        digits = word.lstrip("0") or "0"
        if len(digits) > 19 or int(digits) > _INTEGER_MAX:
            raise FilterSyntaxError(text, position, _shortened(word), "a 64-bit integer", INTEGER_HINT)
        return int(digits)
    value = float(word)
    if math.isinf(value):
        raise FilterSyntaxError(text, position, _shortened(word), "a number that fits into a double")
    return value


def _string(text: str, word: str, position: int) -> str:
    """The value of a string literal, with the escapes Spark SQL knows."""
    inner = word[1:-1]
    value = inner if "'" not in inner and "\\" not in inner else _ESCAPE.sub(_unescape, inner)
    return _require_characters(text, value, position)


def _require_characters(text: str, value: str, position: int) -> str:
    """`value` as proper text: escapes may have spelled a character as a pair of surrogates."""
    if value.isascii():
        return value
    try:
        return value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        hint = "half of a surrogate pair is not a character"
        raise FilterSyntaxError(text, position, _shortened(ascii(value)), "text", hint) from None


def _unescape(match: re.Match[str]) -> str:
    escaped = match.group(1)
    if escaped is None:
        return "'"
    if len(escaped) > 1:
        code = int(escaped, 8) if escaped[0].isdigit() else int(escaped[1:], 16)
        # Beyond Unicode: yields a lone surrogate, which the caller refuses with the position.
        return chr(code) if code <= 0x10FFFF else "\ud800"
    return _ESCAPED.get(escaped, escaped)


def _refuse_character(text: str, position: int) -> NoReturn:
    character = text[position]
    found, expected, hint = repr(character), "a value, a name or an operator", ""
    if character == "'":
        found, expected = _shortened(text[position:]), "a closing quote (')"
        hint = "a quote inside a string is written twice: 'it''s'"
    elif character == "`":
        found, expected = _shortened(text[position:]), "a name and a closing backquote (`)"
    elif character == '"':
        hint = "write 'text' for a string and `name` for an attribute"
    elif character == "!":
        hint = "not equal is <> or !="
    elif character in "&|":
        hint = "combine conditions with AND and OR"
    elif character in "$@#:;.[]{}?^~":
        hint = "an attribute name with special characters is written in backquotes: `a-b`"
    raise FilterSyntaxError(text, position, found, expected, hint)


def _shortened(word: str) -> str:
    return word if len(word) <= 24 else f"{word[:20]}..."
