"""The dashboard of a broker: a process beside it, which ends with it.

It is the command `braid dashboard`, so whatever its viewers do, the broker hears the questions of an
operator and nothing else. Their tokens are judged by the broker, as those of all operators.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from braid.server.settings import ServerSettings

__all__ = ["open_dashboard"]

START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 5.0
# Lines about why it did not start.
LINES_SHOWN: Final = 3


async def open_dashboard(settings: ServerSettings, address: str, stack: AsyncExitStack) -> str:
    """Start it, if it is wanted, and wait until it serves; returns where, or "".

    Args:
        settings: of the broker.
        address: where the broker listens.
        stack: ends it.

    Raises:
        ConfigurationError: it does not start; the message is its own.
    """
    if not settings.dashboard.listen:
        return ""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "braid", "dashboard", "--broker", address),
        *("--listen", settings.dashboard.listen, "--json", "--until-input-ends"),
        *_tls_options(settings),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stack.push_async_callback(_end, process)
    output, errors = process.stdout, process.stderr
    if output is None or errors is None:
        raise ConfigurationError("the dashboard has no output to read")
    try:
        async with asyncio.timeout(START_S_MAX):
            line = await output.readline()
            why = b"" if line else await errors.read()
    except TimeoutError:
        raise ConfigurationError(f"the dashboard does not serve after {START_S_MAX:g} s") from None
    if not line:
        words = " / ".join(why.decode(errors="replace").strip().splitlines()[-LINES_SHOWN:])
        raise ConfigurationError(
            f"the dashboard did not start: {words.removeprefix('braid: ') or 'it says no more'}"
        )
    stack.callback(asyncio.ensure_future(_drained(errors)).cancel)
    return str(json.loads(line)["dashboard"])


def _tls_options(settings: ServerSettings) -> list[str]:
    """The broker's own files: for the way to it, and for pages beyond loopback."""
    tls = settings.tls
    options: list[str] = []
    if tls.certificate is not None:
        if tls.authority is not None:
            options += ["--ca", str(tls.authority)]
        options += ["--certificate", str(tls.certificate), "--tls-certificate", str(tls.certificate)]
        if tls.key is not None:
            options += ["--key", str(tls.key), "--tls-key", str(tls.key)]
    if settings.listener.insecure:
        options.append("--insecure")
    return options


async def _drained(errors: asyncio.StreamReader) -> None:
    """Read what it says, so that it is never held up; what matters is on its page."""
    while await errors.read(64 * 1024):
        pass


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_S_MAX):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
