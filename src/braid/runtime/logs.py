"""What does a broker's log look like, to people and to programs?

A record carries a short message and, in `extra={"fields": {...}}`, the particulars. For people a line is

    2026-01-31 12:00:00.123 info    A  link up  neighbour=B resumed=false

and for programs it is one JSON object with `time` (UTC, ISO 8601), `level`, `broker`, `message`, and the
fields beside them.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TextIO

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "LOG_FORMATS",
    "LOG_LEVELS",
    "JsonFormatter",
    "TextFormatter",
    "announce",
    "configure_logs",
    "printable",
]

LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

# Names that a JSON line has anyway; a field of such a name gets an underscore behind it.
_OWN_NAMES = frozenset({"time", "level", "broker", "message", "error"})
# Below this logger is everything Braid says; announcements are heard at every level.
_ROOT = "braid"
_ANNOUNCEMENTS = "braid.announcements"


def configure_logs(
    broker: str, *, format: str = "text", level: str = "info", stream: TextIO | None = None
) -> None:
    """Send what Braid logs in this process to `stream` (standard error), in place of what was set before."""
    if format not in LOG_FORMATS:
        raise ConfigurationError(f"a log's format is {' or '.join(LOG_FORMATS)}, not {format!r}")
    if level not in LOG_LEVELS:
        raise ConfigurationError(f"a log's level is one of {', '.join(LOG_LEVELS)}, not {level!r}")
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter(broker) if format == "json" else TextFormatter(broker))
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
    logging.getLogger(_ANNOUNCEMENTS).setLevel(min(logging.INFO, root.level))


def announce(message: str, **fields: Any) -> None:
    """Log what whoever started the process waits for, whatever the level."""
    logging.getLogger(_ANNOUNCEMENTS).info(message, extra={"fields": fields})


class TextFormatter(logging.Formatter):
    """One line for people; local time."""

    def __init__(self, broker: str) -> None:
        super().__init__()
        self._broker = broker

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record; a traceback follows on lines of its own."""
        at = datetime.fromtimestamp(record.created)
        parts = [
            f"{at:%Y-%m-%d %H:%M:%S}.{int(record.msecs):03d} {record.levelname.lower():<7} {self._broker}",
            printable(record.getMessage()),
            printable(" ".join(f"{name}={_shown(value)}" for name, value in _fields(record).items())),
        ]
        line = "  ".join(part for part in parts if part)
        if not record.exc_info:
            return line
        return "\n".join([line, *map(printable, self.formatException(record.exc_info).split("\n"))])


class JsonFormatter(logging.Formatter):
    """One JSON object."""

    def __init__(self, broker: str) -> None:
        super().__init__()
        self._broker = broker

    def format(self, record: logging.LogRecord) -> str:
        """The object of a record; a traceback becomes its `error`."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "broker": self._broker,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            line[f"{name}_" if name in _OWN_NAMES else name] = value
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # Inside strings only, where JSON knows the same escapes.
        return printable(json.dumps(line, ensure_ascii=False, default=str))


def printable(text: str) -> str:
    """The text with everything that is no visible character or space escaped.

    Peers choose part of what is shown: names, filters, reasons. None of them may begin a line of their own,
    move the cursor of whoever reads along, or turn the direction of what follows.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return fields


def _shown(value: object) -> str:
    """A value that a reader can tell from its neighbours: quoted where it has spaces or is empty."""
    if isinstance(value, str):
        return value if value and value.isprintable() and not set(value) & set(' "=') else json.dumps(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return json.dumps(str(value), ensure_ascii=False)
