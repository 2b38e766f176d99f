"""How is a small network of real brokers run on one machine, with links that take time?

Every broker is a process of its own. Before each stands a small proxy that passes bytes on after a while, in
both directions; brokers tell each other the address of the proxy, so that primary links and soft links alike
go through it. Clients come without it. Only what was started here is ended, by its id.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from braid.errors import BraidError, ConfigurationError, RemoteProtocolError
from braid.protocol import FrameDecoder
from braid.protocol.messages import Hello
from braid.runtime.connecting import connect
from braid_bench.brokers.server import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["DelayingProxy", "LiveBroker", "LiveNetwork", "SoftLinkName"]

# Below the ports that systems give to outgoing connections: while a broker is dead, nobody takes its port.
_PORTS = range(20_000, 32_000)
_START_S_MAX = 60.0
_STOP_S_MAX = 30.0
_LOOK_S = 0.05
# What a proxy holds for one direction before it reads no more.
_HELD_BYTES_MAX = 1024 * 1024


class _Direction(asyncio.Protocol):
    """One end of a connection through the proxy; what it reads goes to the other end after a while."""

    def __init__(self, passage: _Passage, delay_s: float) -> None:
        self._passage = passage
        self._delay_s = delay_s
        self._held: deque[tuple[float, bytes]] = deque()
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self.transport: asyncio.Transport | None = None
        self.other: _Direction | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self._passage.read(self, data)
        self._held.append((asyncio.get_running_loop().time(), data))
        self._held_bytes += len(data)
        if self._held_bytes > _HELD_BYTES_MAX and self.transport is not None:
            self.transport.pause_reading()
        self.pass_on()

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._ended = True
        if error is not None:
            self._passage.cut()
        else:
            self.pass_on()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def pass_on(self) -> None:
        """Write what has waited long enough, and come back for the rest."""
        loop = asyncio.get_running_loop()
        if self._timer is not None or self.other is None:
            return
        now = loop.time()
        target = self.other.transport
        while self._held and self._held[0][0] + self._delay_s <= now:
            arrived, data = self._held.popleft()
            self._held_bytes -= len(data)
            self._passage.proxy.delayed(now - arrived)
            if target is not None:
                target.write(data)
        if self._held:
            self._timer = loop.call_at(self._held[0][0] + self._delay_s, self._due)
            return
        if self._ended and target is not None:
            target.close()
        elif self.transport is not None and self._held_bytes <= _HELD_BYTES_MAX:
            self.transport.resume_reading()

    def _due(self) -> None:
        self._timer = None
        self.pass_on()


class _Passage:
    """A connection through the proxy, and who opened it."""

    def __init__(self, proxy: DelayingProxy) -> None:
        self.proxy = proxy
        self.near = _Direction(self, proxy.delay_s)
        self.far = _Direction(self, proxy.delay_s)
        self.hello: Hello | None = None
        self._decoder: FrameDecoder | None = FrameDecoder()

    def read(self, direction: _Direction, data: bytes) -> None:
        """Look at the first frame of whoever came in: it says who that is."""
        if self._decoder is None or direction is not self.near:
            return
        try:
            frames = self._decoder.feed(data)
        except RemoteProtocolError:
            self._decoder = None
            return
        if frames:
            self._decoder = None
            body = frames[0].body
            self.hello = body if isinstance(body, Hello) else None

    async def reach(self, port: int) -> None:
        """Connect to the broker behind; cut the visitor off if it is not there."""
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.far, HOST, port)
        except OSError:
            self.cut()
            return
        self.near.other, self.far.other = self.far, self.near
        self.near.pass_on()
        self.far.pass_on()

    def cut(self) -> None:
        """Break the connection at both ends."""
        self.proxy.passages.discard(self)
        for each in (self.near, self.far):
            transport, each.transport = each.transport, None
            if transport is not None:
                transport.abort()


class DelayingProxy:
    """Stands before one broker, and holds everything up for a while."""

    def __init__(self, port: int, delay_us: int) -> None:
        self.delay_s = delay_us / 1e6
        self.passages: set[_Passage] = set()
        self.address = ""
        self._port = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._delays = 0
        self._delays_s = 0.0

    async def open(self) -> None:
        """Listen; afterwards `address` says where."""
        self._server = await asyncio.get_running_loop().create_server(self._visit, HOST, 0)
        self.address = f"braid://{HOST}:{self._server.sockets[0].getsockname()[1]}"

    def _visit(self) -> _Direction:
        passage = _Passage(self)
        self.passages.add(passage)
        task = asyncio.get_running_loop().create_task(passage.reach(self._port))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return passage.near

    def delayed(self, duration_s: float) -> None:
        """Something was held up for so long."""
        self._delays += 1
        self._delays_s += duration_s

    @property
    def total_delay(self) -> tuple[int, float]:
        """How often something was held up, and for how many seconds together."""
        return self._delays, self._delays_s

    def cut_soft_link(self, source: str) -> bool:
        """Break the soft link of a broker through here; False if there is none."""
        found = [each for each in self.passages if each.hello and each.hello.role == "soft"]
        chosen = [each for each in found if each.hello is not None and each.hello.name == source]
        for passage in chosen:
            passage.cut()
        return bool(chosen)

    async def close(self) -> None:
        """Break everything."""
        if self._server is not None:
            self._server.close()
        for passage in list(self.passages):
            passage.cut()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class LiveBroker:
    """A broker process on one port for all its lives."""

    def __init__(self, name: str, directory: Path, port: int) -> None:
        self.name = name
        self.port = port
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"{HOST}:{self.port}"

    def configure(self, tables: Mapping[str, Mapping[str, Any]]) -> None:
        """Write its configuration file."""
        lines = []
        for table, values in tables.items():
            lines.append(f"[{table}]")
            lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
        (self._directory / f"{self.name}.toml").write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        """Start it, or start it again."""
        with (self._directory / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "braid.cli", "broker", "--config", f"{self.name}.toml"],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def stop(self) -> None:
        """Ask it to end, and insist after a while."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self._process.wait, _STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    async def ready(self) -> None:
        """Wait until it accepts publications.

        Raises:
            ConfigurationError: it does not start.
        """
        deadline = time.monotonic() + _START_S_MAX
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                break
            try:
                if (await self.ask("overlay"))["ready"]:
                    return
            except (BraidError, TimeoutError):
                pass
            await asyncio.sleep(_LOOK_S)
        log = self._directory / f"{self.name}.log"
        last = " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
        raise ConfigurationError(f"broker {self.name} did not start within {_START_S_MAX:g} s: {last}")

    async def ask(self, topic: str) -> dict[str, Any]:
        """Ask it something as an operator."""
        async with connect(self.address, name="live-operator", timeout_s=5.0, reconnect_for_s=0) as client:
            return await client.ask(topic)


class SoftLinkName(NamedTuple):
    """A soft link, by its two ends."""

    source: str
    target: str


class LiveNetwork:
    """Brokers in a tree, each behind its proxy.

    Args:
        directory: for configuration, logs, data and traces.
        dials: broker to the neighbour that it dials, empty for none; earlier ones first.
        settings: tables of the configuration that all have in common.
        delay_us: added to everything that crosses a link, in each direction.
    """

    def __init__(
        self,
        directory: Path,
        dials: Mapping[str, str],
        settings: Mapping[str, Mapping[str, Any]],
        delay_us: int,
    ) -> None:
        self.directory = directory
        self.dials = dials
        self._settings = settings
        ports = _free_ports(len(dials))
        self.brokers = {
            name: LiveBroker(name, directory, port) for name, port in zip(dials, ports, strict=True)
        }
        self.proxies = {name: DelayingProxy(broker.port, delay_us) for name, broker in self.brokers.items()}

    async def start(self) -> None:
        """Start everything and wait until all brokers are ready."""
        for proxy in self.proxies.values():
            await proxy.open()
        for name, broker in self.brokers.items():
            neighbour = self.dials[name]
            tables = {table: dict(values) for table, values in self._settings.items()}
            tables.setdefault("broker", {}).update(
                broker_id=name,
                address=self.proxies[name].address,
                neighbours=[self.proxies[neighbour].address] if neighbour else [],
            )
            tables["listener"] = {"listen": broker.address}
            tables["store"] = {"data_dir": f"{name}.data"}
            tables.setdefault("trace", {}).update(directory="trace")
            broker.configure(tables)
            broker.start()
        for broker in self.brokers.values():
            await broker.ready()

    async def soft_links(self) -> list[SoftLinkName]:
        """All that are up, of the brokers that answer."""
        asked = (broker.ask("overlay") for broker in self.brokers.values())
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [
            SoftLinkName(name, target)
            for name, answer in zip(self.brokers, answers, strict=True)
            if isinstance(answer, dict)
            for target in answer["mesh"]["soft_links"]
        ]

    def cut(self, link: SoftLinkName) -> bool:
        """Break the connection of a soft link; False if it has gone already."""
        return self.proxies[link.target].cut_soft_link(link.source)

    @property
    def mean_delay_us(self) -> float:
        """How long the proxies really held things up: timers are coarse."""
        delays = [proxy.total_delay for proxy in self.proxies.values()]
        count = sum(times for times, _ in delays)
        return 1e6 * sum(seconds for _, seconds in delays) / count if count else 0.0

    async def stop(self) -> None:
        """Have all brokers hand over what they hold, and end."""
        await asyncio.gather(*(broker.stop() for broker in self.brokers.values()))

    async def clean(self) -> None:
        """End whatever is left."""
        for broker in self.brokers.values():
            broker.kill()
        for proxy in self.proxies.values():
            await proxy.close()


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on. Chance without a seed: two runs at a time must not meet."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, 50 * count):
        with socket.socket() as candidate:
            try:
                candidate.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise ConfigurationError(f"no {count} free ports were found among {_PORTS}")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value)
