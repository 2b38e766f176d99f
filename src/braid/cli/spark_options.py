"""What do all commands that run on Spark have in common?"""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["MasterOption", "ShipOption"]

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master", help="A Spark master, or sc://host of Spark Connect. \\[default: all cores here]"
    ),
]
ShipOption = Annotated[
    bool, typer.Option("--ship", help="Send this package to executors that do not have it.")
]
