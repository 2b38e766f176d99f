"""How are two files joined from a terminal?"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from braid.cli.json_lines import OnError
from braid.cli.spark_options import MasterOption, ShipOption, waiting_for_spark
from braid.cli.terminal import json_text, say
from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["EXAMPLES", "match_tables"]

EXAMPLES = (
    "braid pipeline match --publications quotes.parquet --filters filters.csv",
    "braid pipeline match --publications quotes.jsonl --filters filters.jsonl --how pairs --out p.parquet",
)

# Rows that are printed when nobody asked for all of them.
SHOWN_MAX = 20
# Lines of JSON that are read to find out what their columns are; with more, Spark looks at all of them.
LINES_READ_MAX = 1000
_READERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}


def match_tables(
    publications: Annotated[
        str,
        typer.Option(
            "--publications", metavar="PATH", help="Parquet, JSON lines or CSV, a file or a folder."
        ),
    ],
    filters: Annotated[str, typer.Option("--filters", metavar="PATH", help="Rows with this id and filter.")],
    how: Annotated[str, typer.Option("--how", help="counts, destinations or pairs.")] = "counts",
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", metavar="PATH", help="A .parquet folder or a .jsonl file. \\[default: print]"
        ),
    ] = None,
    key: Annotated[str, typer.Option("--key", help="The column that names filters and publications.")] = "id",
    filter_column: Annotated[str, typer.Option("--filter-column", help="The filters' SQL text.")] = "filter",
    destination: Annotated[
        str | None, typer.Option("--destination", help="The filters' column that says where a match goes.")
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute", "-a", help="A column with an attribute; may be repeated. \\[default: all]"
        ),
    ] = None,
    strategy: Annotated[str, typer.Option("--strategy", help="auto, index, split or zcode.")] = "auto",
    on_error: Annotated[
        OnError, typer.Option("--on-error", help="What a filter that cannot be read does.")
    ] = OnError.STOP,
    master: MasterOption = None,
    ship: ShipOption = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every row, not just the first 20.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON; needs --out.")] = False,
) -> None:
    """Find the filters that each publication satisfies, for tables of any size.

    A filter that cannot be read is named with its id and the position in its text.
    """
    from braid.pipeline.matching_join import match_join

    if as_json and out is None:
        raise ConfigurationError("--json prints a summary of what was written, so it needs --out")
    from braid.pipeline.places import is_far

    far = {path for path in (publications, filters, out) if is_far(path, master)}
    if out is not None:
        _require_new(out, far=out in far)
    # Spark takes seconds to start; what is wrong is said before.
    for what, path, wanted in (
        ("publications", publications, [key, *(attributes or [])]),
        ("filters", filters, [key, filter_column, *([destination] if destination else [])]),
    ):
        if path not in far:
            _require_columns(what, path, wanted)
    skipped: list[str] = []

    def skip(problem: str) -> None:
        skipped.append(problem)
        say(problem)

    with waiting_for_spark("braid pipeline match", "joining", master=master, ship=ship) as (spark, _):
        joined = match_join(
            _read(spark, publications, far=publications in far),
            _read(spark, filters, far=filters in far),
            filter_column=filter_column,
            key_column=key,
            how=how,  # type: ignore[arg-type]
            destination_column=destination,
            attributes=attributes or None,
            strategy=strategy,  # type: ignore[arg-type]
            on_error=on_error.value,
            report=skip,
        )
        if out is not None:
            rows = _write(joined, out)
        elif everything:
            rows = _say_all(joined, typer.echo)
        else:
            rows = _say_some(joined, typer.echo)
    summary: dict[str, Any] = {"rows": rows, "how": how, "skipped_filters": len(skipped), "out": out}
    if as_json:
        typer.echo(json_text(summary))
    else:
        left_out = f"; {len(skipped):,} filters left out" if skipped else ""
        more = out is None and not everything and rows > SHOWN_MAX
        shown = f", {SHOWN_MAX} of them shown (--all shows all, --out writes them)" if more else ""
        say(f"{rows:,} rows{shown}{left_out}")


def _format(path: str, *, far: bool = False) -> str:
    """By the ending of the name; a folder without one is Parquet."""
    if not far and not Path(path).exists():
        raise ConfigurationError(f"{path}: there is no such file or folder")
    ending = Path(path).suffix.lower()
    form = _READERS.get(ending, "parquet" if Path(path).is_dir() or (far and not ending) else None)
    if form is None:
        raise ConfigurationError(f"{path}: cannot tell its format; names end in {', '.join(_READERS)}")
    return form


def _require_columns(what: str, path: str, wanted: list[str]) -> None:
    """Nothing, if a file here has these columns, or it takes Spark to know.

    Raises:
        ConfigurationError: it has not, or cannot be read.
    """
    columns = _columns(path, _format(path))
    if columns is None:
        return
    for name in wanted:
        if name not in columns:
            raise ConfigurationError(
                f"the table of {what} has no column {name!r}; its columns are {', '.join(columns)}"
            )


def _columns(path: str, form: str) -> list[str] | None:
    """The columns of a file, if they can be told quickly."""
    if not Path(path).is_file():
        return None
    try:
        if form == "parquet":
            from pyarrow import parquet

            return list(parquet.read_schema(path).names)
        with Path(path).open(encoding="utf-8-sig", newline="") as source:
            if form == "csv":
                return next(csv.reader(source), [])
            found: dict[str, None] = {}
            for number, line in enumerate(source):
                if number == LINES_READ_MAX:
                    return None
                read = json.loads(line) if line.strip() else {}
                if not isinstance(read, dict):
                    return None
                found.update(dict.fromkeys(read))
            return list(found)
    except json.JSONDecodeError:
        return None  # Spark reads what is JSON, and says which columns it has found
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigurationError(f"{path}: cannot be read as {form}: {reason}") from error


def _read(spark: SparkSession, path: str, *, far: bool) -> DataFrame:
    """A table."""
    form = _format(path, far=far)
    try:
        if form == "csv":
            return spark.read.csv(path, header=True, inferSchema=True)
        return spark.read.parquet(path) if form == "parquet" else spark.read.json(path)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigurationError(f"{path}: cannot be read as {form}: {reason}") from error


def _require_new(out: str, *, far: bool) -> None:
    if far:
        if Path(out).suffix.lower() != ".parquet":
            raise ConfigurationError(
                f"{out}: what Spark writes elsewhere ends in .parquet (a folder of files)"
            )
        return  # Spark refuses what is there already
    if Path(out).suffix.lower() not in (".parquet", ".jsonl", ".json", ".ndjson"):
        raise ConfigurationError(
            f"{out}: the name must end in .parquet (a folder of files) or .jsonl (one file)"
        )
    if Path(out).exists():
        raise ConfigurationError(f"{out}: is already there; choose another name or remove it")
    if not Path(out).resolve().parent.is_dir():
        raise ConfigurationError(f"{out}: there is no folder {Path(out).resolve().parent}")


def _write(joined: DataFrame, out: str) -> int:
    """Write the rows and say how many there are."""
    if Path(out).suffix.lower() == ".parquet":
        try:
            joined.write.parquet(out)
        except Exception as problem:
            if "PATH_ALREADY_EXISTS" in str(problem):
                raise ConfigurationError(
                    f"{out}: is already there; choose another name or remove it"
                ) from None
            raise
        return int(joined.sparkSession.read.parquet(out).count())
    with Path(out).open("w", encoding="utf-8") as sink:
        return _say_all(joined, lambda line: sink.write(line + "\n"))


def _say_some(joined: DataFrame, write: Callable[[str], object]) -> int:
    """The first rows; returns how many there are in all."""
    some = joined.take(SHOWN_MAX + 1)
    for row in some[:SHOWN_MAX]:
        write(_line(row))
    return len(some) if len(some) <= SHOWN_MAX else int(joined.count())


def _say_all(joined: DataFrame, write: Callable[[str], object]) -> int:
    """Rows as JSON, brought to the driver partition by partition; returns how many there were."""
    rows = 0
    for row in joined.toLocalIterator():
        write(_line(row))
        rows += 1
    return rows


def _line(row: Row) -> str:
    return json.dumps(row.asDict(recursive=True), ensure_ascii=False, default=str)
