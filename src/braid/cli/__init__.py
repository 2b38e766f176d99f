"""What can be done from a terminal?

`main` is the `braid` command. It parses, calls one function and prints; whatever Braid raises on
purpose, a package that is not installed, and a disk that fails become one message on standard error and
exit code 2. A reader that closes the pipe early, as `head` does, ends the command quietly (typer sees to
that).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from braid.cli.extras import extra_for
from braid.errors import BraidError

if TYPE_CHECKING:
    import typer

__all__ = ["main", "run_command"]

EXIT_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; always ends with `SystemExit`."""
    from braid.cli.app import app

    run_command(app, sys.argv[1:] if arguments is None else arguments, "braid")


def _fill(command: typer.Typer) -> None:
    """Have paragraphs of help filled to the width of the terminal, not broken as in the source."""
    for registered in command.registered_commands:
        if registered.help is None and registered.callback is not None and registered.callback.__doc__:
            paragraphs = inspect.cleandoc(registered.callback.__doc__).split("\n\n")
            registered.help = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    for group in command.registered_groups:
        if group.typer_instance is not None:
            _fill(group.typer_instance)


def run_command(command: typer.Typer, arguments: Sequence[str], name: str) -> None:
    """Run one command with these words, and turn errors into one message; always ends with `SystemExit`."""
    given = list(arguments)
    _fill(command)
    try:
        command(args=given, prog_name=name)
    except BraidError as error:
        sys.stderr.write(f"braid: {error}\n")
        sys.exit(EXIT_ERROR)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = extra_for(package, given[0] if given else "")
        if extra is None:
            raise
        sys.stderr.write(
            f"braid: this needs the package {package}; install it with: pip install 'braid-pubsub[{extra}]'\n"
        )
        sys.exit(EXIT_ERROR)
    except OSError as error:  # a full disk under standard output, say
        sys.stderr.write(f"braid: cannot read or write: {error.strerror or error}\n")
        with suppress(OSError):
            sys.stdout.close()  # what it still holds cannot be written either
        sys.exit(EXIT_ERROR)
