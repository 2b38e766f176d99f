"""Where is an attack played, and what is written down of it?

Two linked brokers with stores, as processes of their own, an innocent client at the first whose reader is at
the second, and an attacker who may reach the first.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from braid.protocol import FRAME_BYTES_MAX
from braid.protocol.messages import PROTOCOL_VERSION, Hello
from tests.cli.broker_process import BrokerProcess
from tests.hostile.attackers import CREDIT, RawClient
from tests.hostile.innocent import Innocent
from tests.reliability.processes import HOST, free_port

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Outcome", "RawNeighbour", "Stage"]


@dataclass
class Outcome:
    """What came of an attack."""

    attack: str
    connections: int = 0
    """What it cost: connections, bytes, and the time it took."""
    sent_bytes: int = 0
    seconds: float = 0.0
    memory_before: int = 0
    """What the attacked broker holds, in bytes, before and after."""
    memory_after: int = 0
    latency_s: float = 0.0
    """The longest that the innocent client waited for a delivery or for the answer to a heartbeat."""
    verdict: str = ""
    """What broke; empty if nothing did."""

    @property
    def grown_bytes(self) -> int:
        return self.memory_after - self.memory_before

    @property
    def line(self) -> str:
        cost = f"{self.connections} conn, {self.sent_bytes / 1e6:.1f} MB, {self.seconds:.1f} s"
        memory = f"{self.memory_before / 1e6:.0f} > {self.memory_after / 1e6:.0f}"
        worst_ms = self.latency_s * 1e3
        return f"{self.attack:<42}{cost:>26}{memory:>14}{worst_ms:>9.0f}  {self.verdict or 'harmless'}"


class RawNeighbour(RawClient):
    """A connection of somebody who says to be a broker, and may lie about anything."""

    def __init__(self, address: str, name: str, incarnation: str, *, brokers: tuple[str, ...] = ()) -> None:
        self._incarnation = incarnation
        self._brokers = list(brokers)
        super().__init__(address, name)

    def hello(self, token: str | None) -> Hello:
        """The greeting of a broker."""
        return Hello(
            PROTOCOL_VERSION,
            "broker",
            self.name,
            self._incarnation,
            token,
            credit=CREDIT,
            brokers=self._brokers,
            frame_bytes_max=FRAME_BYTES_MAX,
        )


class Stage:
    """Two brokers, an innocent client, and a notebook."""

    def __init__(self, attack: str, directory: Path, *, access: str = "", token: str | None = None) -> None:
        """
        Args:
            attack: what is played.
            directory: for the brokers' data.
            access: what the access file of both brokers says; empty for none. Each broker shows its name as
                its token.
            token: that of the innocent client.
        """
        self.outcome = Outcome(attack)
        self.directory = directory
        self._access = access
        self._token = token
        self._ports = {name: free_port() for name in "AB"}
        self._stack = ExitStack()
        self.brokers: dict[str, BrokerProcess] = {}
        self.innocent: Innocent

    def __enter__(self) -> Self:
        with self._stack:
            self.start("A")
            self.start("B")
            self.brokers["B"].wait_for("link up")
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    # Brokers.

    def address(self, name: str) -> str:
        return f"braid://{HOST}:{self._ports[name]}"

    def start(self, name: str) -> None:
        """Start a broker for the first time or again, with the data that it has."""
        neighbour = ("--neighbour", self.address("A")) if name == "B" else ()
        broker = BrokerProcess(
            *("--id", name, "--listen", f"{HOST}:{self._ports[name]}"),
            *("--data-dir", str(self.directory / name)),
            *neighbour,
            *self._guarded(name),
        )
        self.brokers[name] = broker
        self._stack.callback(broker.stop)
        broker.wait_for("listening")

    def _guarded(self, name: str) -> tuple[str, ...]:
        """The options of a broker that asks everybody who they are, if it does."""
        if not self._access:
            return ()
        access, settings = self.directory / "access.toml", self.directory / f"{name}.toml"
        access.write_text(self._access)
        settings.write_text(f'[broker]\nlink_token = "{name}"\n')
        for file in (access, settings):
            file.chmod(0o600)
        return ("--access", str(access), "--config", str(settings))

    def kill(self, name: str) -> None:
        """`kill -9`."""
        self.brokers[name].process.kill()
        self.brokers[name].process.wait()

    # The notebook.

    def memory(self) -> int:
        """Bytes that broker A holds."""
        pages = Path(f"/proc/{self.brokers['A'].process.pid}/statm").read_text().split()[1]
        return int(pages) * 4096

    def begin(self, *, alone: bool = False) -> None:
        """The innocent client is at work, and the attack begins now; `alone`: both its ends are at A."""
        there = None if alone else self.address("B")
        self.innocent = Innocent(self.address("A"), there, partial=True, token=self._token)
        self.work()
        self.outcome.memory_before = self.memory()
        self._began = time.monotonic()

    def cost(self, client: RawClient) -> None:
        """Write down what an attacker has sent."""
        self.outcome.connections += 1
        self.outcome.sent_bytes += client.sent_bytes

    def work(self, rounds: int = 3) -> None:
        """Let the innocent client do what it does, and write down how long it had to wait."""
        seen = self.innocent.seen
        seen.delivery_s = seen.heartbeat_s = 0.0
        try:
            for _ in range(rounds):
                self.innocent.round()
        except (AssertionError, OSError) as problem:
            self.blame(f"the innocent client was not served: {problem}")
        self.outcome.latency_s = max(self.outcome.latency_s, seen.delivery_s, seen.heartbeat_s)

    def end(self, grown_bytes_max: int) -> None:
        """The attack is over: was the innocent client served, and is the memory bounded?"""
        self.work()
        outcome = self.outcome
        outcome.seconds = time.monotonic() - self._began
        outcome.memory_after = self.memory()
        if outcome.grown_bytes > grown_bytes_max:
            self.blame(f"{outcome.grown_bytes / 1e6:.0f} MB more, {grown_bytes_max / 1e6:.0f} are allowed")
        if self.brokers["A"].process.poll() is not None:
            self.blame("the broker has ended")
        self.innocent.close()

    def blame(self, what: str) -> None:
        """Something broke."""
        self.outcome.verdict = "; ".join(filter(None, [self.outcome.verdict, what]))
