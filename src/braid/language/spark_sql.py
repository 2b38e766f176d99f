"""How does Spark SQL say the same?

A filter becomes one Spark SQL expression that selects the same rows. Three things differ from the
text itself: arithmetic uses the `try_` functions, because Spark raises on overflow and division by
zero where Braid says unknown; literals carry their type, because Spark reads `2.5` as a decimal and
`2` as 32 bits; and with a schema at hand a comparison of different kinds is NULL and a missing
column is NULL, where Spark would cast or refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from braid.errors import ConfigurationError, FilterError
from braid.language.expressions import (
    And,
    Arithmetic,
    Attribute,
    Between,
    Comparison,
    Condition,
    Holds,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    ValueExpression,
)
from braid.language.stack import with_room

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

    from braid.language.filters import Filter
    from braid.language.values import Scalar

__all__ = ["to_spark", "to_spark_sql"]

_UNKNOWN = "CAST(NULL AS BOOLEAN)"
_FUNCTIONS = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}
_KINDS = {
    "tinyint": "number", "smallint": "number", "int": "number", "bigint": "number",
    "float": "number", "double": "number", "string": "string", "boolean": "boolean",
}  # fmt: skip
_CASTS = {"tinyint": "BIGINT", "smallint": "BIGINT", "int": "BIGINT", "float": "DOUBLE"}


class _Sql(NamedTuple):
    """A piece of SQL and the kind of its value: number, string, boolean, null, or any (not known)."""

    text: str
    kind: str


def to_spark(filter: Filter, schema: Any = None) -> Column:
    """The filter as a Spark column, for `dataframe.where(to_spark(f, dataframe.schema))`.

    Args:
        filter: what to translate.
        schema: the `StructType` (or data frame) it will be used on. With it, comparisons of
            different kinds and missing columns are unknown, as everywhere in Braid, and nested
            fields are found by their dotted names. Without it Spark's own rules decide those cases.
    """
    try:
        from pyspark.sql import functions
    except ImportError as error:
        raise ConfigurationError('Spark is not installed: pip install "braid-pubsub[spark]"') from error
    return functions.expr(to_spark_sql(filter, schema))


def to_spark_sql(filter: Filter, schema: Any = None) -> str:
    """The filter as the text of a Spark SQL expression; see `to_spark`."""
    translated = _Translator(_columns(getattr(schema, "schema", schema))).condition
    try:
        return translated(filter.condition)
    except RecursionError:
        return with_room(translated, filter.condition)


def _columns(schema: Any) -> Mapping[str, _Sql] | None:
    """Attribute names to typed column references; None without a schema."""
    if schema is None:
        return None
    if not hasattr(schema, "fields"):
        raise ConfigurationError(f"the schema must be a StructType or a data frame, not {schema!r}")
    columns: dict[str, _Sql] = {}
    pending = [("", "", schema)]
    while pending:
        name_prefix, path_prefix, struct = pending.pop()
        for field in struct.fields:
            name, path = name_prefix + field.name, path_prefix + _quoted(field.name)
            if hasattr(field.dataType, "fields"):
                pending.append((name + ".", path + ".", field.dataType))
                continue
            type_name = field.dataType.simpleString().split("(")[0]
            if type_name == "decimal":
                columns[name] = _Sql(f"CAST({path} AS DOUBLE)", "number")
            elif type_name in ("varchar", "char"):
                columns[name] = _Sql(path, "string")
            elif type_name in _CASTS:
                columns[name] = _Sql(f"CAST({path} AS {_CASTS[type_name]})", "number")
            else:
                columns[name] = _Sql(path, _KINDS.get(type_name, type_name))
    return columns


class _Translator:
    def __init__(self, columns: Mapping[str, _Sql] | None) -> None:
        self._columns = columns

    def condition(self, condition: Condition) -> str:
        if isinstance(condition, (And, Or)):
            word = " AND " if isinstance(condition, And) else " OR "
            return "(" + word.join(self.condition(part) for part in condition.conditions) + ")"
        if isinstance(condition, Not):
            return f"(NOT {self.condition(condition.condition)})"
        if isinstance(condition, Comparison):
            return self._comparison(condition.operator, condition.left, condition.right)
        if isinstance(condition, IsNull):
            operand = self._column(condition.operand) or self._value(condition.operand)
            return f"({operand.text} IS {'NOT ' * condition.negated}NULL)"
        if isinstance(condition, Holds):
            operand = self._value(condition.operand)
            return operand.text if operand.kind in ("boolean", "any") else _UNKNOWN
        inside = self._inside(condition)
        return f"(NOT {inside})" if condition.negated else inside

    def _inside(self, condition: Between | InList | Like) -> str:
        if isinstance(condition, Between):
            low = self._comparison(">=", condition.operand, condition.low)
            return f"({low} AND {self._comparison('<=', condition.operand, condition.high)})"
        if isinstance(condition, InList):
            # Not IN: Spark's set lookup of a long list tells 0.0 from -0.0, and = does not.
            items = [self._comparison("=", condition.operand, item) for item in condition.items]
            return "(" + " OR ".join(items) + ")"
        operand = self._value(condition.operand)
        if operand.kind not in ("string", "any"):
            return _UNKNOWN
        return f"({operand.text} LIKE {_literal(condition.pattern)} ESCAPE {_literal(condition.escape)})"

    def _comparison(self, operator: str, left: ValueExpression, right: ValueExpression) -> str:
        left_sql, right_sql = self._value(left), self._value(right)
        kinds = {left_sql.kind, right_sql.kind} - {"any"}
        if "null" in kinds or len(kinds) > 1:
            return _UNKNOWN
        return f"({left_sql.text} {operator} {right_sql.text})"

    def _value(self, expression: ValueExpression) -> _Sql:
        if isinstance(expression, Literal):
            return _Sql(_literal(expression.value), _kind_of(expression.value))
        if isinstance(expression, Attribute):
            return self._attribute(expression.name)
        if isinstance(expression, Arithmetic):
            left, right = (
                self._operand(expression, expression.left),
                self._operand(expression, expression.right),
            )
            name = _FUNCTIONS[expression.operator]
        else:
            left, right, name = _Sql("0L", "number"), self._value(expression.operand), "try_subtract"
        if not {left.kind, right.kind} <= {"number", "any"}:
            return _Sql("NULL", "null")
        return _Sql(f"{name}({left.text}, {right.text})", "number")

    def _operand(self, whole: Arithmetic, part: ValueExpression) -> _Sql:
        sql = self._value(part)
        if isinstance(part, Arithmetic) and part.operator == whole.operator in ("+", "*"):
            # Spark's optimiser sorts chains of + and of *, which changes what overflows. Taking away
            # nothing ends the chain, and changes no number.
            return _Sql(f"try_subtract({sql.text}, 0L)", sql.kind) if sql.kind == "number" else sql
        return sql

    def _column(self, expression: ValueExpression) -> _Sql | None:
        """A column of whatever type, for being NULL is not a matter of kinds."""
        known = self._columns is not None and isinstance(expression, Attribute)
        return self._columns.get(expression.name) if known else None  # type: ignore[union-attr]

    def _attribute(self, name: str) -> _Sql:
        if self._columns is None:
            return _Sql(_quoted(name), "any")
        column = self._columns.get(name, _Sql("NULL", "null"))
        if column.kind not in ("number", "string", "boolean", "null"):
            raise FilterError(
                f"column {name!r} has the type {column.kind}; a filter compares numbers, strings and booleans"
            )
        return column


def _kind_of(value: Scalar | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def _literal(value: Scalar | None) -> str:
    if isinstance(value, str):
        # Spark reads a doubled quote differently depending on its settings; a backslash is always one.
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return "'" + "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in escaped) + "'"
    if isinstance(value, bool) or value is None:
        return {True: "TRUE", False: "FALSE", None: "NULL"}[value]
    return f"{value}L" if isinstance(value, int) else f"{value!r}D"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
