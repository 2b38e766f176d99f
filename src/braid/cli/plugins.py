"""Commands that other distributions bring.

A distribution offers one as an entry point of the group `braid.commands`: a `typer.Typer` by the name of the
command. It is looked for when the command runs, so that `braid --help` answers at once.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

import typer

from braid.errors import ConfigurationError

__all__ = ["GROUP", "PASSED_ON", "run_plugin"]

GROUP: Final = "braid.commands"
# For a command whose words and options are all read by the one that was found.
PASSED_ON: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def run_plugin(name: str, context: typer.Context, how_to_get_it: str) -> None:
    """Hand the words of a command over to the distribution that brings it.

    Raises:
        ConfigurationError: there is none; the message is `how_to_get_it`.
    """
    found = entry_points(group=GROUP, name=name)
    if not found:
        raise ConfigurationError(how_to_get_it)
    command: typer.Typer = next(iter(found)).load()
    # With its exit code as the answer: whoever called us handles errors alike for all commands.
    code = command(args=context.args, prog_name=f"braid {name}", standalone_mode=False)
    raise typer.Exit(code if isinstance(code, int) else 0)
