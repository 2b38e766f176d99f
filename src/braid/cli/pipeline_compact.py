"""How are the files of a trace merged from a terminal?"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from braid.cli.terminal import json_text, say

__all__ = ["EXAMPLES", "compact"]

EXAMPLES = ("braid pipeline compact traces/", "braid pipeline compact traces/ --every 600")


def compact(
    trace_dir: Annotated[
        str, typer.Argument(metavar="TRACE_DIR", help="A trace, which brokers may be writing to.")
    ],
    every: Annotated[
        float | None,
        typer.Option(
            "--every", min=0.1, metavar="SECONDS", help="Repeat at this interval. \\[default: once]"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document for each time.")] = False,
) -> None:
    """Merge the many small files of a trace; needs no Spark.

    A broker leaves up to 1,440 files of each table a day; merged, they are a dozen or two. Files that were
    merged are removed the next time, so that readers can finish with them.
    """
    from braid.pipeline.places import require_here
    from braid.trace import compact as compacted

    require_here("TRACE_DIR", trace_dir, "give a folder that is mounted here")

    while True:
        done = compacted(trace_dir, report=lambda problem: say(f"left as it is: {problem}"))
        if as_json:
            typer.echo(json_text({"before": done.before, "after": done.after, "removed": done.removed}))
        elif done.before != done.after or every is None:
            say(f"{done.before} files of {trace_dir} are {done.after} now; {done.removed} old ones removed")
        if every is None:
            return
        try:
            time.sleep(every)
        except KeyboardInterrupt:
            return
