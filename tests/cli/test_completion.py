"""Does the shell complete commands and options?"""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.cli.broker_process import BRAID


def completed(shell: str, line: str) -> list[str]:
    """What a shell is offered for a line that ends where the cursor is."""
    variables = {"_BRAID_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    variables |= {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = subprocess.run(
        [BRAID[0], "-c", "import sys; sys.argv[0] = 'braid'; from braid.cli import main; main()"],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [("braid over", "overlay"), ("braid overlay rep", "replicate"), ("braid broker --dat", "--data-dir")],
)
def test_what_was_begun_is_completed(line: str, offered: str) -> None:
    assert offered in completed("bash", line)
