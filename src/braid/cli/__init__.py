"""What can be done from a terminal?

`main` is the `braid` command. It parses, calls one function and prints; whatever Braid raises on
purpose becomes one message on standard error and exit code 2. A reader that closes the pipe early,
as `head` does, ends the command quietly (typer sees to that).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from braid.errors import BraidError

__all__ = ["main"]

EXIT_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; always ends with `SystemExit`."""
    from braid.cli.app import app

    try:
        app(args=None if arguments is None else list(arguments), prog_name="braid")
    except BraidError as error:
        sys.stderr.write(f"braid: {error}\n")
        sys.exit(EXIT_ERROR)
