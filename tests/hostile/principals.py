"""What would somebody do at a broker that asks who everybody is?

Attacks against tokens, limits on connections, and what a principal may store. As in `attacks`, each says what
it cost, how the broker's memory changed, how long an innocent client had to wait, and what broke.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from braid.broker.access import hashed_token
from braid.protocol import Frame, FrameDecoder, PublicationBatch, encode_frames
from braid.protocol.batch import encode_record
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Done,
    Failed,
    Hello,
    Ping,
    Pong,
    Refused,
    StoredPublications,
    SubscribeDurable,
    Welcome,
)
from tests.hostile.attackers import CREDIT, PATIENCE_S, RawClient
from tests.hostile.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from braid.protocol.messages import Message
    from tests.hostile.stage import Outcome

__all__ = ["ATTACKS_OF_PRINCIPALS"]

MEGABYTE = 1_000_000
# As many as one address shows; all but the first wait for their answers, longer each time.
WRONG_TOKENS = 300
# What the attacker's limits allow, and how often it tries.
CONNECTIONS_PER_SECOND_MAX = 20
CONNECTIONS = 500
ROWS_MAX = 1_000
LOGS = 20
LOGS_MAX = 25
# Whatever an access file asks for, somebody who has not said who they are may only listen.
ACCESS = f"""
[principals.innocent]
publish = "TRUE"
subscribe = "TRUE"
tokens = ["{hashed_token("innocent")}"]

[principals.mallory]
publish = "TRUE"
subscribe = "TRUE"
tokens = ["{hashed_token("mallory")}"]

[principals.mallory.limits]
stored_rows_max = {ROWS_MAX}
subscriptions_max = {LOGS_MAX}

[principals.A]
link = true
tokens = ["{hashed_token("A")}"]

[principals.B]
link = true
tokens = ["{hashed_token("B")}"]

[anonymous]
subscribe = "public = TRUE"

[anonymous.limits]
connections_per_second_max = {CONNECTIONS_PER_SECOND_MAX}
"""


def _guarded(attack: str, directory: Path) -> Stage:
    return Stage(attack, directory, access=ACCESS, token="innocent")


def _comes_late(stage: Stage) -> None:
    """Somebody else with a right token comes, and has to be let in at once, from whatever address."""
    began = time.monotonic()
    late = RawClient(stage.address("A"), "late", "innocent")
    stage.outcome.latency_s = max(stage.outcome.latency_s, time.monotonic() - began)
    late.close()


def _answers(connection: socket.socket, decoder: FrameDecoder) -> Iterator[Message]:
    """What has come on a connection; nothing that it is waited for."""
    with suppress(OSError):
        while data := connection.recv(1 << 16):
            for frame in decoder.feed(data):
                if not isinstance(frame.body, PublicationBatch):
                    yield frame.body


def _wrong_tokens(directory: Path) -> Outcome:
    """Very many guesses at once, none of which waits for the answer to the one before."""
    with _guarded(f"{WRONG_TOKENS} wrong tokens at once", directory) as stage:
        stage.begin()
        where = urlsplit(stage.address("A"))
        with ExitStack() as closing:
            guesses = []
            for number in range(WRONG_TOKENS):
                guess = socket.create_connection((str(where.hostname), int(where.port or 0)), PATIENCE_S)
                closing.callback(guess.close)
                hello = Hello(
                    PROTOCOL_VERSION,
                    "client",
                    f"guess{number}",
                    f"{number}",
                    f"braid_{number}",
                    credit=CREDIT,
                )
                data = encode_frames([Frame(0, hello)])
                guess.sendall(data)
                guess.setblocking(False)
                stage.outcome.connections += 1
                stage.outcome.sent_bytes += len(data)
                guesses.append((guess, FrameDecoder()))
                if number % 50 == 25:
                    stage.work(1)
                    _comes_late(stage)
            answers = [answer for guess in guesses for answer in _answers(*guess)]
            if any(isinstance(answer, Welcome) for answer in answers):
                stage.blame("a guess was let in")
            # They wait for 0.1, 0.2, 0.4 s and so on, and no guess makes the broker answer those before it.
            if len(answers) > WRONG_TOKENS // 2:
                stage.blame(f"{len(answers)} guesses were answered already")
            if not any(isinstance(answer, Refused) for answer in answers):
                stage.blame("not even the first guess was answered")
        stage.end(20 * MEGABYTE)
    return stage.outcome


def _connects_again_and_again(directory: Path) -> Outcome:
    """Connections that come and go as fast as they can be opened."""
    with _guarded(f"{CONNECTIONS} connections, one after the other", directory) as stage:
        stage.begin()
        let_in, began = 0, time.monotonic()
        for number in range(CONNECTIONS):
            stage.outcome.connections += 1
            with suppress(ConnectionRefusedError):
                RawClient(stage.address("A"), f"restless{number}").close()
                let_in += 1
            if number % 100 == 50:
                stage.work(1)
                _comes_late(stage)
        seconds = time.monotonic() - began
        if let_in > CONNECTIONS_PER_SECOND_MAX * (seconds + 1):
            stage.blame(f"{let_in} were let in within {seconds:.1f} s")
        stage.end(20 * MEGABYTE)
    return stage.outcome


class _Talker(RawClient):
    """A connection of which all that comes is heard, one after the other."""

    def __init__(self, address: str, name: str, token: str) -> None:
        super().__init__(address, name, token)
        self._coming = self.frames()

    def hear(self, wanted: Callable[[Message], bool]) -> Message:
        """The next message that is wanted; what comes before it is taken in, and heartbeats are answered."""
        for frame in self._coming:
            if isinstance(frame.body, Ping):
                self.tell_connection(Pong(frame.body.number))
            if frame.sequence:
                self.channel.accept(frame)
            if not isinstance(frame.body, PublicationBatch) and wanted(frame.body):
                return frame.body
        raise AssertionError("the broker has ended the connection")

    def make_log(self, request: int, name: str, text: str) -> Message:
        """Ask for a durable subscription; the answer."""
        self.say(SubscribeDurable(request, name, text, partial=True))
        return self.hear(lambda body: isinstance(body, Done | Failed) and body.request == request)


def _stores_too_much(directory: Path) -> Outcome:
    """Many logs that all store the same: what others keep stays whole."""
    with _guarded(f"{LOGS} logs beyond what may be stored", directory) as stage:
        stage.begin()
        owner = _Talker(stage.address("A"), "owner", "innocent")
        owner.make_log(1, "diary", "n >= 0")
        owner.close()
        attacker = _Talker(stage.address("A"), "mallory", "mallory")
        for number in range(LOGS):
            attacker.make_log(number + 1, f"log-{number}", "n >= 0")
        for number in range(ROWS_MAX // 10):
            records = [encode_record({"n": 10 * number + each}, 0) for each in range(10)]
            first = 10 * number + 1
            attacker.say(PublicationBatch.of("mallory/flood", range(first, first + 10), records))
            if number % 20 == 10:
                stage.work(1)
        stage.cost(attacker)
        attacker.close()
        again = _Talker(stage.address("A"), "owner", "innocent")
        again.say(SubscribeDurable(1, "diary", "", partial=True))
        rows = 0
        while rows < ROWS_MAX:
            stored = again.hear(lambda body: isinstance(body, StoredPublications))
            assert isinstance(stored, StoredPublications)
            if stored.first_offset != rows:
                stage.blame(f"rows {rows} to {stored.first_offset - 1} of an innocent client's log are gone")
                break
            rows += len(stored.rows)
        again.close()
        stage.end(60 * MEGABYTE)
    return stage.outcome


def _makes_logs_by_many_connections(directory: Path) -> Outcome:
    """More logs than a principal may have, each made by another connection."""
    with _guarded("logs made by one connection each", directory) as stage:
        stage.begin()
        made = 0
        for number in range(3 * LOGS_MAX):
            client = _Talker(stage.address("A"), "mallory", "mallory")
            made += isinstance(client.make_log(1, f"log-{number}", "TRUE"), Done)
            stage.cost(client)
            client.close()
            if number % 20 == 10:
                stage.work(1)
        if made != LOGS_MAX:
            stage.blame(f"{made} logs were made where {LOGS_MAX} are allowed")
        stage.end(20 * MEGABYTE)
    return stage.outcome


ATTACKS_OF_PRINCIPALS: dict[str, Callable[[Path], Outcome]] = {
    "wrong tokens": _wrong_tokens,
    "connection rate": _connects_again_and_again,
    "stores too much": _stores_too_much,
    "logs by many connections": _makes_logs_by_many_connections,
}
"""By name, as `attacks.ATTACKS`."""
