"""Can people and programs read the log, whatever is in it?"""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

import pytest

from braid.errors import ConfigurationError
from braid.runtime.logs import JsonFormatter, TextFormatter, announce, configure_logs

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    log = logging.getLogger("braid")
    before = (log.handlers[:], log.level, log.propagate)
    yield
    log.handlers[:], log.level, log.propagate = before


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("braid.node.A", logging.WARNING, "", 0, message, (), None)
    made.created, made.msecs = 0.125, 125.0
    made.fields = fields
    return made


def test_a_line_for_people() -> None:
    line = TextFormatter("A").format(record("link up", neighbour="B", resumed=False, reason="it was so"))
    assert line.endswith('.125 warning A  link up  neighbour=B resumed=false reason="it was so"')


def test_a_line_for_programs() -> None:
    line = JsonFormatter("A").format(record("link up", neighbour="B", count=3, level="mine", odd={1}))
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.125Z",
        "level": "warning",
        "broker": "A",
        "message": "link up",
        "neighbour": "B",
        "count": 3,
        "level_": "mine",
        "odd": "{1}",
    }


@pytest.mark.parametrize("formatter", [TextFormatter("A"), JsonFormatter("A")])
def test_nobody_smuggles_in_a_line(formatter: logging.Formatter) -> None:
    line = formatter.format(record("closed\nby", name_of_client="x\n2026 info A all is well", other=["\n"]))
    assert "\n" not in line


# To the terminal: clear the screen, in two ways; a line's end in Unicode; read from right to left; delete.
UNPRINTABLE = "\x1b[2J\x9b2J\u2028\u202e\x7f"


@pytest.mark.parametrize("formatter", [TextFormatter("A"), JsonFormatter("A")])
def test_nothing_unprintable_reaches_the_log(formatter: logging.Formatter) -> None:
    said = record(
        f"closed {UNPRINTABLE}", name_of_client=UNPRINTABLE, other=[UNPRINTABLE], more={UNPRINTABLE: 1}
    )
    assert formatter.format(said).isprintable()
    try:
        raise ValueError(UNPRINTABLE)
    except ValueError as error:
        said.exc_info = (ValueError, error, error.__traceback__)
    assert all(line.isprintable() for line in formatter.format(said).split("\n"))


def test_what_is_escaped_can_be_read_back_by_programs() -> None:
    line = JsonFormatter("A").format(record("closed", name_of_client=UNPRINTABLE + 'ä"\\'))
    assert json.loads(line)["name_of_client"] == UNPRINTABLE + 'ä"\\'


def test_a_traceback_is_kept() -> None:
    stream = io.StringIO()
    configure_logs("A", format="json", stream=stream)
    try:
        raise ValueError("so it was")
    except ValueError:
        logging.getLogger("braid.http").exception("it failed")
    line = json.loads(stream.getvalue())
    assert "so it was" in line["error"]


def test_levels_and_announcements() -> None:
    stream = io.StringIO()
    configure_logs("A", level="error", stream=stream)
    logging.getLogger("braid.node.A").warning("not heard")
    announce("listening", address="braid://127.0.0.1:7000")
    logging.getLogger("braid.node.A").error("heard")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith(" info    A  listening  address=braid://127.0.0.1:7000")
    assert lines[1].endswith(" error   A  heard")


def test_what_is_not_a_format_or_a_level() -> None:
    with pytest.raises(ConfigurationError, match="text or json"):
        configure_logs("A", format="xml")
    with pytest.raises(ConfigurationError, match="debug, info"):
        configure_logs("A", level="loud")
