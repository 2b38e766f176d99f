"""What does `import braid` cost, and what does an embedded bus touch?

Each program runs in a fresh interpreter and prints what it loaded: this process has loaded everything.
"""

from __future__ import annotations

import json
import subprocess
import sys

IMPORT_ONLY = """
import braid
"""

OPEN_A_BUS = """
import braid

with braid.open() as bus:
    subscription = bus.subscribe("price > 10")
    bus.publish({"price": 12})
    assert next(subscription).attributes["price"] == 12
"""

# Audit events name what the interpreter is asked to do, whichever library asks.
REPORT = """
import json, sys
events = set()
sys.addaudithook(lambda event, arguments: events.add(event))
before = set(sys.modules)
exec({program!r})
print(json.dumps([sorted(set(sys.modules) - before), sorted(e for e in events if e.startswith("socket."))]))
"""


def run(program: str) -> tuple[set[str], list[str]]:
    """The modules that a program loads, by their full names, and what it does with sockets."""
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", REPORT.format(program=program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    loaded, socket_events = json.loads(answer.stdout)
    return set(loaded), socket_events


def test_the_report_sees_modules_and_sockets() -> None:
    loaded, socket_events = run("import http.server, socket\nsocket.socket().close()")
    assert "socketserver" in loaded
    assert "socket.__new__" in socket_events


def test_importing_braid_loads_nothing_heavy() -> None:
    loaded, _ = run(IMPORT_ONLY)
    heavy = {"asyncio", "msgspec", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "rich", "typer"}
    assert loaded & heavy == set()


def test_an_embedded_bus_opens_no_socket_and_loads_no_server_and_no_spark() -> None:
    loaded, socket_events = run(OPEN_A_BUS)
    uninvited = {"http.server", "pandas", "py4j", "pyarrow", "pyspark", "rich", "socketserver", "typer"}
    assert loaded & uninvited == set()
    assert socket_events == []
