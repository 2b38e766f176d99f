"""How is an example in a document run?

    ```python     with >>> prompts: as a doctest; otherwise as a program. The blocks of a document
                  share their names and run from top to bottom in an empty directory.
    ```text       directly after a program: what it printed.
    ```console    `$ braid ...` with the output below it: run and compared. A command that shows no
                  output is an illustration; it must at least exist, with its options, and one
                  that ends by itself must end well.
    ```json file=NAME     (any language) is written to that file for the examples after it.

The word `no-run` after the language leaves a block alone. In expected output `...` stands for
anything. A python block that speaks of `spark` gets the session of the test suite under that name.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Block", "ExampleFailed", "blocks_of", "run_blocks"]

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_FENCE = re.compile(r"^```(?P<info>\S[^\n]*)\n(?P<body>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_PROMPT = "$ "
# Commands that end by themselves and need nothing: they are run also where no output is shown.
_ENDING = re.compile(r"braid (explain|reproduce list|pipeline (metrics|workload) --list)\b")
_SHELLS = ("console", "sh", "shell", "bash")


class ExampleFailed(AssertionError):
    """The message names the document and the line."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words after it, its text, and where it stands."""

    language: str
    words: tuple[str, ...]
    text: str
    place: str
    line: int
    adjacent: bool = False
    """Whether only blank lines are between this block and the one before."""

    @property
    def needs_spark(self) -> bool:
        return self.language == "python" and re.search(r"\bspark\b", self.text) is not None

    @property
    def file_name(self) -> str | None:
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)


def blocks_of(text: str, name: str) -> list[Block]:
    """The blocks of a document that are to be run, in order."""
    blocks = []
    end = 0
    for match in _FENCE.finditer(text):
        language, *words = match["info"].split()
        line = text.count("\n", 0, match.start()) + 1
        adjacent = bool(blocks) and not text[end : match.start()].strip()
        end = match.end()
        if "no-run" not in words:
            blocks.append(Block(language, tuple(words), match["body"], f"{name}:{line}", line, adjacent))
    return blocks


def run_blocks(blocks: list[Block], names: dict[str, Any]) -> None:
    """Run blocks in the current directory, sharing `names`; the first that fails is reported."""
    printed: str | None = None
    for block in blocks:
        if block.file_name is not None:
            Path(block.file_name).write_text(block.text, encoding="utf-8")
        elif block.language == "python" and ">>>" in block.text:
            _run_doctest(block, names)
        elif block.language == "python":
            printed = _run_program(block, names)
            continue
        elif block.language == "text" and block.adjacent and printed is not None:
            _compare(block, "the program above", block.text, printed)
        elif block.language in _SHELLS:
            _run_commands(block)
        printed = None


def _run_doctest(block: Block, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, block.place, block.place, block.line)
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    runner.run(test, out=report.write, clear_globs=False)
    names.update(test.globs)
    if runner.failures:
        raise ExampleFailed(report.getvalue())


def _run_program(block: Block, names: dict[str, Any]) -> str:
    output = io.StringIO()
    # Blank lines first, so that a traceback shows the line of the document.
    code = compile("\n" * block.line + block.text, block.place, "exec")
    with contextlib.redirect_stdout(output):
        exec(code, names)
    return output.getvalue()


def _run_commands(block: Block) -> None:
    for command, expected in _commands(block.text):
        if command.split()[0] != "braid":
            continue
        if expected:
            result = _shell(command)
            _compare(block, command, expected, result.stdout + result.stderr)
        else:
            _require_existing(block, command)
            if _ENDING.match(command) and (result := _shell(command)).returncode:
                raise ExampleFailed(f"{block.place}: {command}\nfailed: {result.stderr}")


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Commands and the output shown below each; a line that ends with a backslash goes on."""
    pieces = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    for piece in pieces:
        lines = piece.splitlines()
        count = 1
        while count < len(lines) and lines[count - 1].endswith("\\"):
            count += 1
        yield "\n".join(lines[:count]), "".join(line + "\n" for line in lines[count:] if line.strip())


def _require_existing(block: Block, command: str) -> None:
    words = shlex.split(command, comments=True)[1:]
    options = [word.split("=")[0] for word in words if word.startswith("--")]
    names = []
    for word in words:
        if not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        names.append(word)
    while names:
        result = _shell(shlex.join(["braid", *names, "--help"]))
        if result.returncode == 0:
            missing = [option for option in options if option not in result.stdout]
            if missing:
                raise ExampleFailed(f"{block.place}: {command}\nhas no option {', '.join(missing)}")
            return
        names.pop()  # the last word may have been an argument
    raise ExampleFailed(f"{block.place}: {command}\nis not a command")


def _shell(command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=environment, timeout=120, check=False
    )


def _compare(block: Block, what: str, expected: str, actual: str) -> None:
    if not doctest.OutputChecker().check_output(expected, actual, OPTIONS):
        raise ExampleFailed(f"{block.place}: {what}\nexpected:\n{expected}\ngot:\n{actual}")
