"""What do filters and publications look like when nobody is being kind?

`Maker` writes them with any random generator. Large differential tests give it a seeded one;
`filter_texts`, `publications` and the like give it Hypothesis's, which can then shrink what it finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from braid.language import Range
from braid.language.text import literal_text, name_text

if TYPE_CHECKING:
    from random import Random

    from braid.language import Value

# The kind of each attribute in publications that could be rows of a table. `gone` is never there.
KINDS = {
    "i": "integer",
    "j": "integer",
    "d.e": "integer",
    "x": "float",
    "y": "float",
    "odd `name": "float",
    "s": "string",
    "t": "string",
    "d.f.g": "string",
    "p": "boolean",
    "q": "boolean",
    "gone": "none",
}

TWO_53 = 2**53
INT_MAX = 2**63 - 1
SMALL_INTEGERS = list(range(-4, 8))
BIG_INTEGERS = [
    *range(TWO_53 - 2, TWO_53 + 6),
    *range(-TWO_53 - 4, -TWO_53 + 2),
    *(2**62 + offset for offset in (-257, -1, 0, 1, 255, 256, 257)),
    *(INT_MAX - offset for offset in (0, 1, 510, 511, 512, 513, 1024)),
    *(-INT_MAX - 1 + offset for offset in (0, 1, 511, 512, 513)),
    3_037_000_500,  # its square is just above 2^63
]
SMALL_FLOATS = [
    -2.5,
    -1.0,
    -0.5,
    -0.0,
    0.0,
    0.1,
    0.25,
    0.30000000000000004,
    0.3,
    0.5,
    1.0,
    1.5,
    2.0,
    3.0,
    7.75,
]
WILD_FLOATS = [
    5e-324, -5e-324, 2.2250738585072014e-308, 1e-10, 1e16, 1e19, -1e19, 1e300, -1e300,
    1.7976931348623157e308, -1.7976931348623157e308, float(TWO_53), float(TWO_53 + 2), -float(TWO_53),
    9.223372036854775807e18, -9.223372036854775808e18, 9.223372036854774784e18, 4.611686018427388e18,
]  # fmt: skip
EXACT_FLOATS = [-2.5, -1.0, -0.0, 0.25, 0.5, 1.5, 3.0]
SPECIAL_FLOATS = [float("nan"), float("inf"), float("-inf")]
STRINGS = [
    "", "a", "b", "A", "ab", "abc", "aba", "a%", "a_b", "%", "_", "\\", "a\\b", "it's", "''", "a b", "a\nb",
    "\0", "a\0", "é", "ﬀ", "\ud7ff", "\ue000", "\uffff", "😀", "a😀b", "\U0010ffff", "true", "1", "1.0", " 1",
]  # fmt: skip
PATTERN_PIECES = ["%", "%", "_", "a", "b", "ab", "é", "😀", "c", "\n", " "]
COMPARISONS = ["=", "<>", "!=", "<", "<=", ">", ">="]


class Maker:
    """Writes filters and publications.

    Args:
        random: where choices come from.
        typed: keep each attribute to its kind in `KINDS`, as the columns of a table do.
        arithmetic: how often, out of 10, a number is an expression.
        wild: use numbers at the limits and beyond 2^53.
        depth: of nested conditions, at most.
        common_ground: keep to text that Spark SQL reads as it stands: no float literals (they are
            decimals there), no operands of different kinds, no division that could be by zero.
        exact: keep to numbers whose sums and products are exact in doubles.
    """

    def __init__(
        self,
        random: Random,
        *,
        typed: bool = False,
        arithmetic: int = 2,
        wild: bool = True,
        depth: int = 3,
        common_ground: bool = False,
        exact: bool = False,
    ) -> None:
        self.exact = exact
        self.random = random
        self.common_ground = common_ground
        self.typed = typed
        self.arithmetic = arithmetic
        self.wild = wild
        self.depth = depth

    # Values.

    def integer(self) -> int:
        return self.random.choice(BIG_INTEGERS if self.wild and self._one_in(3) else SMALL_INTEGERS)

    def float(self) -> float:
        if self.exact:
            return self.random.choice(EXACT_FLOATS)
        return self.random.choice(WILD_FLOATS if self.wild and self._one_in(3) else SMALL_FLOATS)

    def string(self) -> str:
        return self.random.choice(STRINGS)

    def value(self, kind: str) -> Value | None:
        if kind == "integer":
            return self.integer()
        if kind == "float":
            return self.random.choice(SPECIAL_FLOATS) if self._one_in(6) else self.float()
        if kind == "string":
            return self.string()
        return self.random.random() < 0.5 if kind == "boolean" else None

    def publication(self) -> dict[str, Value]:
        """Attributes without ranges; each is absent now and then."""
        attributes: dict[str, Value] = {}
        for name, kind in KINDS.items():
            chosen = kind if self.typed else self.random.choice(["integer", "float", "string", "boolean"])
            value = None if self._one_in(5) or kind == "none" else self.value(chosen)
            if value is not None:
                attributes[name] = value
        return attributes

    def range(self) -> Range:
        """A range with ends that are exact in doubles."""
        low, high = sorted(self.random.choice([-3, -2.5, -1, 0, 0.5, 1, 2, 2.25, 4]) for _ in range(2))
        if self._one_in(12):
            low = float("-inf")
        return Range(low, float("inf") if self._one_in(12) else high)

    # Filters.

    def filter(self) -> str:
        return self._condition(self.random.randrange(self.depth + 1))

    def _condition(self, depth: int) -> str:
        choice = self.random.randrange(8) if depth else 9
        if choice < 3:
            return f" {self._word('AND')} ".join(self._nested(depth) for _ in range(self._few()))
        if choice < 6:
            return f" {self._word('OR')} ".join(self._nested(depth) for _ in range(self._few()))
        if choice < 7:
            return f"{self._word('NOT')} {self._nested(depth)}"
        return self._leaf()

    def _nested(self, depth: int) -> str:
        inner = self._condition(depth - 1)
        return f"({inner})" if depth > 1 or self._one_in(6) else inner

    def _leaf(self) -> str:
        choice = self.random.randrange(13)
        kind = self.random.choice(["number", "number", "number", "string", "string", "boolean"])
        negation = f"{self._word('NOT')} " if self._one_in(3) else ""
        operand = self._operand(kind)
        if choice < 5:
            return f"{operand} {self.random.choice(COMPARISONS)} {self._operand(kind)}"
        if choice < 7:
            ends = f"{self._operand(kind)} {self._word('AND')} {self._operand(kind)}"
            return f"{operand} {negation}{self._word('BETWEEN')} {ends}"
        if choice < 9:
            items = ", ".join(
                self._operand(kind) if self._one_in(4) else self._literal(kind) for _ in range(self._few())
            )
            return f"{operand} {negation}{self._word('IN')} ({items})"
        if choice < 11:
            return f"{self._operand('string')} {negation}{self._word('LIKE')} {self._pattern()}"
        if choice < 12:
            return f"{operand} {self._word('IS')} {negation}{self._word('NULL')}"
        return self.random.choice([self._name("boolean"), self._name("boolean"), "TRUE", "false", "NULL"])

    def _operand(self, kind: str) -> str:
        if (not self.typed and self._one_in(12)) or (
            self.typed and not self.common_ground and self._one_in(40)
        ):
            kind = self.random.choice(["number", "string", "boolean"])
        if kind == "number" and self.random.randrange(10) < self.arithmetic:
            return self._expression(self.random.randrange(1, 3))
        if self._one_in(30):
            return "NULL" if self.common_ground else self.random.choice(["NULL", "gone"])
        return self._name(kind) if self.random.random() < 0.6 else self._literal(kind)

    def _expression(self, depth: int) -> str:
        if depth == 0:
            return self._name("number") if self.random.random() < 0.6 else self._literal("number")
        if self._one_in(6):
            inner = self._expression(depth - 1)
            return f"-({inner})" if self._one_in(2) or inner.startswith("-") else f"-{inner}"
        sides = [self._expression(self.random.randrange(depth)) for _ in range(2)]
        left, right = (f"({side})" if self._one_in(3) else side for side in sides)
        operator = self.random.choice("++--**/%")
        if self.common_ground and operator in "/%":
            right = self.random.choice(["2", "3", "-4"])
        if self.exact and operator == "/":
            right = self.random.choice(["2", "-4", "0"])
        return f"{left} {operator} {right}"

    def _name(self, kind: str) -> str:
        kinds = ("integer", "float") if kind == "number" else (kind,)
        names = [name for name, its_kind in KINDS.items() if its_kind in kinds]
        name = self.random.choice(names)
        quotable = "`" not in name and not (self.common_ground and "." in name)
        return f"`{name}`" if quotable and self._one_in(8) else name_text(name)

    def _literal(self, kind: str) -> str:
        if kind == "boolean":
            return self._word(self.random.choice(["TRUE", "FALSE"]))
        if kind == "string":
            return self.string_literal(self.string())
        whole = self.common_ground or self.random.random() < 0.6
        return literal_text(self.integer() if whole else self.float())

    def string_literal(self, value: str) -> str:
        """One of the ways to write a string: quotes doubled or escaped, characters by number."""
        style = self.random.randrange(4)
        if style == 0:
            return literal_text(value)
        if style == 1:
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        if style == 2:
            return "'" + "".join(f"\\U{ord(c):08x}" if self._one_in(2) else _escaped(c) for c in value) + "'"
        return "'" + "".join(_escaped(c) for c in value) + "'"

    def _pattern(self) -> str:
        escape = self.random.choice(["\\", "\\", "!", "#"])
        pieces = [*PATTERN_PIECES, escape + "%", escape + "_", escape * 2]
        pattern = "".join(self.random.choice(pieces) for _ in range(self.random.randrange(5)))
        text = literal_text(pattern)
        return text if escape == "\\" else f"{text} {self._word('ESCAPE')} '{escape}'"

    # Choices.

    def _one_in(self, count: int) -> bool:
        return self.random.randrange(count) == 0

    def _few(self) -> int:
        return self.random.choice([1, 2, 2, 3])

    def _word(self, keyword: str) -> str:
        return self.random.choice([keyword, keyword, keyword.lower(), keyword.capitalize()])


def _escaped(character: str) -> str:
    names = {"\\": "\\\\", "'": "''", "\n": "\\n", "\0": "\\0", "%": "%", "a": "\\u0061"}
    return names.get(character, character)


def makers(**settings: object) -> st.SearchStrategy[Maker]:
    return st.randoms(use_true_random=False).map(lambda random: Maker(random, **settings))  # type: ignore[arg-type]


def filter_texts(**settings: object) -> st.SearchStrategy[str]:
    return makers(**settings).map(lambda maker: maker.filter())


def publications(**settings: object) -> st.SearchStrategy[dict[str, Value]]:
    return makers(**settings).map(lambda maker: maker.publication())
