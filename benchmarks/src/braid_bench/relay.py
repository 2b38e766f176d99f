"""How many bytes leave a broker? A relay before it counts what it passes on."""

from __future__ import annotations

import socket
import socketserver
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["counting_relay"]

CHUNK_BYTES = 1 << 16


@contextmanager
def counting_relay(url: str) -> Iterator[tuple[str, Callable[[], int]]]:
    """Another address of the broker at `url`, and a function that says how many bytes it has sent there."""
    host, _, port = url.removeprefix("braid://").rpartition(":")
    counted = [0]
    lock = threading.Lock()

    def sent(count: int) -> None:
        with lock:
            counted[0] += count

    class Passage(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, int(port))) as broker:
                asking = threading.Thread(target=_pass_on, args=(self.request, broker, _ignore), daemon=True)
                asking.start()
                _pass_on(broker, self.request, sent)
                asking.join()

    class Relay(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Relay(("127.0.0.1", 0), Passage) as relay:
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        try:
            yield f"braid://127.0.0.1:{relay.server_address[1]}", lambda: counted[0]
        finally:
            relay.shutdown()


def _ignore(_count: int) -> None:
    """What is asked of the broker is not counted."""


def _pass_on(source: socket.socket, target: socket.socket, sent: Callable[[int], None]) -> None:
    """Everything that one end says, until it ends; then the other end hears of it."""
    with suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            sent(len(data))  # before it arrives, so that who has it finds it counted
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
