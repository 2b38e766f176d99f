"""How is a log archived from a terminal?"""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from braid.cli.connection_options import BROKER_DEFAULT, Broker, Door, with_door
from braid.cli.spark_options import MasterOption, waiting_for_spark
from braid.cli.terminal import say
from braid.errors import ConfigurationError

__all__ = ["EXAMPLES", "archive"]

EXAMPLES = (
    "braid pipeline archive --log orders --to archive/orders",
    "braid pipeline archive --log orders --to archive/orders --every 60",
    "braid pipeline archive --log orders --table lake.orders --to checkpoints/orders --format iceberg",
)

TOKEN_VARIABLE = "BRAID_TOKEN"
# A look at the log adds a file to each day that it is about: so 288 a day.
TABLE_EVERY_S_MIN = 300.0


@with_door(30.0, "How long the broker may take to answer.")
def archive(
    log: Annotated[str, typer.Option("--log", metavar="NAME", help="The durable subscription.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="DIR", help="A folder for Parquet files; with --table, where progress is kept."
        ),
    ],
    every: Annotated[
        float | None,
        typer.Option(
            "--every", min=0.1, metavar="SECONDS", help="Repeat at this interval. \\[default: once]"
        ),
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="NAME", help="A table of Spark's catalog instead.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format", metavar="FORMAT", help="The format of the table: parquet, or what the catalog knows."
        ),
    ] = "parquet",
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", metavar="SQL", help="The columns of the table. \\[default: from a sample of the log]"
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", metavar="NAME=VALUE", help="A setting of Spark, such as a catalog; repeatable."
        ),
    ] = None,
    master: MasterOption = None,
    broker: Broker = BROKER_DEFAULT,
    *,
    door: Door,
) -> None:
    """Copy the rows of a log to an archive, then trim the log. Needs Spark only with --table.

    The folder is read back by `braid.history` and by whatever reads Parquet. Its files are merged, so that
    they stay few. With --table, rows go to a table of Spark's catalog with typed columns, a partition a day.
    """
    if table is not None:
        _into_table(broker, log, table, to, form, columns, every, setting or [], master, door)
        return
    for option, given in (("--columns", columns), ("--setting", setting), ("--master", master)):
        if given:
            raise ConfigurationError(f"{option} is for tables of Spark's catalog; give --table as well")
    from braid.pipeline.archive import Archiver
    from braid.pipeline.places import require_here
    from braid.runtime import connect_sync

    require_here("--to", to, "give a folder, or --table, whose files Spark writes wherever its catalog says")
    with (
        connect_sync(broker, token=door.token, tls=door.tls, timeout_s=door.timeout_s) as client,
        Archiver(client, log, to) as archiver,
    ):
        while True:
            rows = archiver.run()
            if rows or every is None:
                say(f"{rows:,} rows of {log} are in {to}")
            if every is None:
                return
            try:
                time.sleep(every)
            except KeyboardInterrupt:
                return


def _into_table(
    broker: str,
    log: str,
    table: str,
    checkpoint: str,
    form: str,
    columns: str | None,
    every: float | None,
    settings: list[str],
    master: str | None,
    door: Door,
) -> None:
    if every is not None and every < TABLE_EVERY_S_MIN:
        raise ConfigurationError(
            f"--every {every:g}: each look adds a file to the table's day, which would be "
            f"{round(86_400 / every):,} files a day; give {TABLE_EVERY_S_MIN:g} seconds or more, or archive "
            "into a folder, whose files are merged"
        )
    chosen = dict(each.split("=", 1) for each in settings if "=" in each)
    if len(chosen) != len(settings):
        raise ConfigurationError("--setting is NAME=VALUE, each name once")
    options: dict[str, object] = {}
    if door.token:
        # Tasks read it from the environment, which processes of this machine inherit.
        os.environ[TOKEN_VARIABLE] = door.token
        options["tokenEnv"] = TOKEN_VARIABLE
    if door.tls is not None:
        files = (door.tls.authority, door.tls.certificate, door.tls.key)
        names = ("caFile", "certificateFile", "keyFile")
        options |= {name: str(file) for name, file in zip(names, files, strict=True) if file is not None}
    with waiting_for_spark("braid pipeline archive", master=master, settings=chosen) as (spark, _):
        from braid.pipeline.archive.catalog import archive_into_table
        from braid.pipeline.clusters import cause_of

        before = spark.table(table).count() if spark.catalog.tableExists(table) else 0
        often = None if every is None else f"{round(every * 1_000)} milliseconds"
        query = archive_into_table(
            spark,
            broker,
            log,
            table,
            checkpoint=checkpoint,
            schema=columns,
            format=form,
            every=often,
            **options,
        )
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
        except Exception as problem:
            raise ConfigurationError(f"{log} was not archived: {cause_of(problem)}") from None
        say(f"{spark.table(table).count() - before:,} rows of {log} went into {table}")
