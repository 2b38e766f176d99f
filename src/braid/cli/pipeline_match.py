"""How are two files joined from a terminal?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from braid.cli.json_lines import OnError
from braid.cli.spark_options import MasterOption, ShipOption
from braid.cli.terminal import json_text, say
from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["EXAMPLES", "match_tables"]

EXAMPLES = (
    "braid pipeline match --publications quotes.parquet --filters filters.csv",
    "braid pipeline match --publications quotes.jsonl --filters filters.jsonl --how pairs --out p.parquet",
)

_READERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}


def match_tables(
    publications: Annotated[
        str,
        typer.Option(
            "--publications", metavar="PATH", help="Parquet, JSON lines or CSV, a file or a folder."
        ),
    ],
    filters: Annotated[str, typer.Option("--filters", metavar="PATH", help="The same, with id and filter.")],
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
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON; needs --out.")] = False,
) -> None:
    """Which filters does each publication satisfy, for tables of any size.

    A filter that cannot be read is named with its id and the position in its text.
    """
    from braid.pipeline.matching_join import match_join
    from braid.pipeline.session import spark_session

    if as_json and out is None:
        raise ConfigurationError("--json prints a summary of what was written, so it needs --out")
    if out is not None:
        _require_new(out)
    skipped: list[str] = []

    def skip(problem: str) -> None:
        skipped.append(problem)
        say(problem)

    with spark_session("braid pipeline match", master=master, ship=ship) as spark:
        joined = match_join(
            _read(spark, publications),
            _read(spark, filters),
            filter_column=filter_column,
            key_column=key,
            how=how,  # type: ignore[arg-type]
            destination_column=destination,
            attributes=attributes or None,
            strategy=strategy,  # type: ignore[arg-type]
            on_error=on_error.value,
            report=skip,
        )
        rows = _say_all(joined, typer.echo) if out is None else _write(joined, out)
    summary: dict[str, Any] = {"rows": rows, "how": how, "skipped_filters": len(skipped), "out": out}
    if as_json:
        typer.echo(json_text(summary))
    else:
        left_out = f"; {len(skipped):,} filters left out" if skipped else ""
        say(f"{rows:,} rows{left_out}")


def _read(spark: SparkSession, path: str) -> DataFrame:
    """A table by the ending of its name; a folder without one is Parquet."""
    if "://" not in path and not Path(path).exists():
        raise ConfigurationError(f"{path}: there is no such file or folder")
    ending = Path(path).suffix.lower()
    form = _READERS.get(ending, "parquet" if Path(path).is_dir() else None)
    if form is None:
        raise ConfigurationError(f"{path}: cannot tell its format; names end in {', '.join(_READERS)}")
    try:
        if form == "csv":
            return spark.read.csv(path, header=True, inferSchema=True)
        return spark.read.parquet(path) if form == "parquet" else spark.read.json(path)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigurationError(f"{path}: cannot be read as {form}: {reason}") from error


def _require_new(out: str) -> None:
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
        joined.write.parquet(out)
        return int(joined.sparkSession.read.parquet(out).count())
    with Path(out).open("w", encoding="utf-8") as sink:
        return _say_all(joined, lambda line: sink.write(line + "\n"))


def _say_all(joined: DataFrame, write: Callable[[str], object]) -> int:
    """Rows as JSON, brought to the driver partition by partition; returns how many there were."""
    rows = 0
    for row in joined.toLocalIterator():
        write(json.dumps(row.asDict(recursive=True), ensure_ascii=False, default=str))
        rows += 1
    return rows
