"""How is a table of what a network does now kept from a terminal?"""

from __future__ import annotations

from typing import Annotated

import typer

from braid.cli.pipeline_metrics import interval_us
from braid.cli.spark_options import MasterOption, ShipOption, waiting_for_spark
from braid.cli.terminal import say
from braid.errors import ConfigurationError

__all__ = ["EXAMPLES", "live"]

EXAMPLES = (
    "braid pipeline live traces/ --to live/",
    "braid pipeline live traces/ --to live/ --period 30s --every 10s --keep 6h",
    "braid dashboard --live live/",
)


def live(
    trace_dir: Annotated[
        str, typer.Argument(metavar="TRACE_DIR", help="The trace that brokers are writing.")
    ],
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="The folder of the table.")],
    period: Annotated[str, typer.Option("--period", metavar="TIME", help="What a row stands for.")] = "10s",
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="How often to look.")] = "5s",
    keep: Annotated[str, typer.Option("--keep", metavar="TIME", help="How long rows stay.")] = "1h",
    late: Annotated[
        str, typer.Option("--late", metavar="TIME", help="How late rows of a trace may arrive.")
    ] = "2min",
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, and end.")] = False,
    master: MasterOption = None,
    ship: ShipOption = False,
) -> None:
    """Keep yield, hops, delay, drops and cost of each broker and link current while brokers write traces.

    DIR has Parquet files of a row per broker, or link, and period, and current.json, which the dashboard
    shows. It may be started again at any time.
    """
    from braid.pipeline.places import require_here

    for option, path in (("TRACE_DIR", trace_dir), ("--to", to)):
        require_here(option, path, "give a folder that is mounted here")
    times = [
        interval_us(*each)
        for each in (("--period", period), ("--every", every), ("--keep", keep), ("--late", late))
    ]
    period_us, every_us, keep_us, late_us = (us or 0 for us in times)
    if every_us < 1:
        raise ConfigurationError("--every: it must be longer than nothing")
    with waiting_for_spark("braid pipeline live", f"keeping {to} current", master=master, ship=ship) as (
        spark,
        _,
    ):
        from braid.pipeline.live.job import LiveMetrics, LiveSettings

        settings = LiveSettings(period_us=period_us, keep_us=keep_us, late_us=late_us)
        job = LiveMetrics(spark, trace_dir, to, settings)
        query = job.start(None if once else f"{every_us} microseconds")
        if not once:
            say(f"{to} is kept current from {trace_dir}  (Ctrl-C ends it)")
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
