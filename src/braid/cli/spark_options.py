"""What do all commands that run on Spark have in common?"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from braid.cli.terminal import spinner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = ["MasterOption", "ShipOption", "waiting_for_spark"]

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master", help="A Spark master, or sc://host of Spark Connect. \\[default: all cores here]"
    ),
]
ShipOption = Annotated[
    bool, typer.Option("--ship", help="Send this package to executors that do not have it.")
]


@contextmanager
def waiting_for_spark(
    name: str,
    then: str = "",
    *,
    master: str | None = None,
    ship: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """A session, while people who are looking are told what they are waiting for.

    Gives the session and a function that says what is being done; `then` is what is said first.
    """
    from braid.pipeline.clusters import is_local, require_master
    from braid.pipeline.session import spark_session

    if master is not None and not is_local(master):
        require_master(master)  # a cause is not to stand below a line about waiting
    with spinner("Spark starts, which takes some seconds") as status:
        told: Callable[[str], None] = status.update if status is not None else lambda _: None
        with spark_session(name, master=master, ship=ship, settings=settings) as spark:
            told(then or f"{name} works")
            yield spark, told
