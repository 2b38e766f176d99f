"""What do the two tables of a join hold, and is that something filters can speak about?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

__all__ = [
    "DESTINATION",
    "KEY",
    "ROW",
    "TEXT",
    "FilterTable",
    "PublicationTable",
    "filter_table",
    "publication_table",
]

# Names inside the join; the publications' own names may be anything.
ROW, KEY, TEXT, DESTINATION = "row", "key", "text", "destination"

# The key with the columns that are kept.
_KEPT = "braid key and kept columns"
_ANSWERS = ("publication", "count", "destinations", "filter")

_NUMBERS = {
    "tinyint": "BIGINT", "smallint": "BIGINT", "int": "BIGINT", "bigint": "BIGINT",
    "float": "DOUBLE", "double": "DOUBLE", "decimal": "DOUBLE",
}  # fmt: skip
_STRINGS = ("string", "varchar", "char")
_DESTINATIONS = (*_STRINGS, "tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True)
class PublicationTable:
    """Publications with a key and attributes of the language's types."""

    frame: DataFrame
    key: str
    names: tuple[str, ...]
    """The attributes; nested fields by their dotted names."""
    paths: tuple[str, ...]
    """The SQL expression of each, of the type BIGINT, DOUBLE, STRING or BOOLEAN."""
    kept: tuple[str, ...] = ()
    """Columns that are wanted in the answer; where there are some, the key is a struct of it and them."""

    def answered(self, answers: DataFrame) -> DataFrame:
        """Answers with the kept columns behind `publication`."""
        from pyspark.sql import functions

        if not self.kept:
            return answers
        columns = [functions.col("publication.key").alias("publication")]
        columns += [
            functions.col(f"publication.k{place}").alias(name) for place, name in enumerate(self.kept)
        ]
        return answers.select(*columns, *(_quoted(name) for name in answers.columns if name != "publication"))

    @property
    def key_type(self) -> str:
        """The type of the key in SQL."""
        return str(self.frame.schema[self.key].dataType.simpleString())

    def rows(self, names: Sequence[str], *, numbered: bool = False) -> DataFrame:
        """The key and some attributes, as columns `c0`, `c1` and so on in the order of `names`.

        `numbered` puts a number of its own on every row, so that two rows with one key stay two.
        """
        from pyspark.sql import functions

        path_of = dict(zip(self.names, self.paths, strict=True))
        columns: list[Column] = [functions.col(_quoted(self.key)).alias(KEY)]
        if numbered:
            columns.insert(0, functions.monotonically_increasing_id().alias(ROW))
        columns += [functions.expr(path_of[name]).alias(f"c{place}") for place, name in enumerate(names)]
        return self.frame.select(*columns)


@dataclass(frozen=True, slots=True)
class FilterTable:
    """Filters with a key and perhaps a destination; columns `key`, `text`, `destination`."""

    rows: DataFrame
    key_type: str
    destination_type: str | None
    key_name: str


def publication_table(
    frame: DataFrame, *, key: str, attributes: str | Sequence[str] | None, keep: Sequence[str] = ()
) -> PublicationTable:
    """Check a table of publications and find its attributes.

    Args:
        frame: the table.
        key: the column that names a publication.
        attributes: None for all other columns, the name of a struct column whose fields they are, or the
            names of columns.
        keep: columns for the answer.
    """
    _require_columns(frame, [key], "publications")
    if isinstance(attributes, str):
        _require_columns(frame, [attributes], "publications")
        struct = frame.schema[attributes].dataType
        if not hasattr(struct, "fields"):
            raise ConfigurationError(
                f"attributes={attributes!r} must name a struct column, but its type is "
                f"{struct.simpleString()}; for a single plain column give a list: attributes=[{attributes!r}]"
            )
        found = _flattened("", _quoted(attributes) + ".", struct)
    else:
        chosen = [name for name in frame.columns if name != key] if attributes is None else list(attributes)
        _require_columns(frame, chosen, "publications")
        found = []
        for name in chosen:
            found += _field(name, _quoted(name), frame.schema[name].dataType)
    names = [name for name, _ in found]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigurationError(
            f"the publications have two attributes named {doubled[0]!r}; rename one of them"
        )
    paths = tuple(path for _, path in found)
    if not keep:
        return PublicationTable(frame, key, tuple(names), paths)
    _require_columns(frame, keep, "publications")
    taken = sorted({name for name in keep if name in _ANSWERS or [*keep].count(name) > 1})
    if taken:
        raise ConfigurationError(
            f"keep names {taken[0]!r}, which the answer has already; rename the column, or leave it out"
        )
    from pyspark.sql import functions

    # The key goes through every kind of join untouched, and so does whatever is beside it.
    parts = [functions.col(_quoted(key)).alias("key")]
    parts += [functions.col(_quoted(name)).alias(f"k{place}") for place, name in enumerate(keep)]
    whole = frame.withColumn(_KEPT, functions.struct(*parts))
    return PublicationTable(whole, _KEPT, tuple(names), paths, tuple(keep))


def filter_table(frame: DataFrame, *, key: str, text: str, destination: str | None, how: str) -> FilterTable:
    """Check a table of filters."""
    from pyspark.sql import functions

    _require_columns(frame, [key, text] + ([destination] if destination is not None else []), "filters")
    text_type = frame.schema[text].dataType.simpleString()
    if text_type.split("(")[0] not in _STRINGS:
        raise ConfigurationError(
            f"the column {text!r} of the filters has the type {text_type}; filters are SQL text, such as "
            "'price > 10'"
        )
    if how == "destinations" and destination is None:
        raise ConfigurationError(
            'how="destinations" needs destination_column=...: the column of the filters that says where a '
            "match goes"
        )
    columns = [functions.col(_quoted(key)).alias(KEY), functions.col(_quoted(text)).alias(TEXT)]
    destination_type = None
    if how == "destinations" and destination is not None:
        destination_type = frame.schema[destination].dataType.simpleString()
        if destination_type.split("(")[0] not in _DESTINATIONS:
            raise ConfigurationError(
                f"the destination column {destination!r} has the type {destination_type}; it must be a "
                f"string or an integer, so use CAST({destination} AS STRING)"
            )
        columns.append(functions.col(_quoted(destination)).alias(DESTINATION))
    key_type = frame.schema[key].dataType.simpleString()
    return FilterTable(frame.select(*columns), key_type, destination_type, key)


def _require_columns(frame: DataFrame, names: Sequence[str], whose: str) -> None:
    for name in names:
        if frame.columns.count(name) != 1:
            problem = "no column" if name not in frame.columns else "several columns"
            raise ConfigurationError(
                f"the table of {whose} has {problem} {name!r}; its columns are {', '.join(frame.columns)}"
            )


def _flattened(prefix: str, path: str, struct: Any) -> list[tuple[str, str]]:
    found = []
    for field in struct.fields:
        found += _field(prefix + field.name, path + _quoted(field.name), field.dataType)
    return found


def _field(name: str, path: str, kind: Any) -> list[tuple[str, str]]:
    if hasattr(kind, "fields"):
        return _flattened(name + ".", path + ".", kind)
    shown = kind.simpleString()
    type_name = shown.split("(")[0]
    if type_name in _NUMBERS:
        return [(name, f"CAST({path} AS {_NUMBERS[type_name]})")]
    if type_name in _STRINGS or type_name == "boolean":
        return [(name, path)]
    if type_name == "void":
        return []  # nothing but NULL: the attribute is absent everywhere
    raise ConfigurationError(
        f"the column {name!r} has the type {shown}, which filters cannot compare: {_advice(shown, name)}"
    )


def _advice(shown: str, name: str) -> str:
    if shown.startswith(("date", "timestamp", "time")):
        use = (
            f"use CAST({name} AS STRING) or unix_micros({name})"
            if shown != "date"
            else f"use CAST({name} AS STRING)"
        )
    elif shown.startswith(("array", "map")):
        use = f"take single values out of it, such as {name}[0]"
    else:
        use = f"use CAST({name} AS STRING)"
    return f"{use}, or leave it out with attributes=[...]"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
