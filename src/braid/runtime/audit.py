"""Where is it written down who was let in or refused, and what operators did?

One JSON object per line, in a file that only the broker's user may read. Each line is with the system before
the broker goes on. A file that was moved away is made anew when the broker is asked to reload, so that it can
be rotated.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from braid.errors import ConfigurationError
from braid.runtime.logs import printable
from braid.runtime.private_files import make_private_file

if TYPE_CHECKING:
    from pathlib import Path

    from braid.protocol.effects import Note

__all__ = ["AuditLog"]

_log = logging.getLogger("braid.audit")


class AuditLog:
    """Appends to the audit log of one broker."""

    def __init__(self, path: Path, broker: str) -> None:
        """
        Raises:
            ConfigurationError: the file cannot be written.
        """
        self._path = path
        self._broker = broker
        self._failing = False
        self._descriptor = self._open()

    def _open(self) -> int:
        make_private_file(self._path)
        try:
            return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"the audit log {self._path} cannot be written: {error.strerror or error}"
            ) from None

    def __call__(self, note: Note) -> None:
        """Write down one thing that happened."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": at, "broker": self._broker, "what": note.what, **note.fields}
        text = printable(json.dumps(line, ensure_ascii=False, default=str)) + "\n"
        try:
            os.write(self._descriptor, text.encode("utf-8", "backslashreplace"))
            self._failing = False
        except OSError as error:
            if not self._failing:  # once is enough until it works again
                _log.error("the audit log cannot be written", extra={"fields": {"reason": str(error)}})
            self._failing = True

    def reopen(self) -> None:
        """Go on in the file of this name, which may be another one by now.

        Raises:
            ConfigurationError: it cannot be written; the one so far stays in use.
        """
        former, self._descriptor = self._descriptor, self._open()
        os.close(former)

    def close(self) -> None:
        """Write no more."""
        os.close(self._descriptor)
