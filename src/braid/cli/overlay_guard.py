"""Who is gone, and who takes its place? A process that looks after a network and replaces brokers by itself.

It looks at the network again and again. A broker is *missed* while each neighbour of it that answers shows
its link as down, and it does not answer itself. How long that is borne depends on how steady the broker has
been: the suspicion grows with the time that it is missed, measured by the gaps after which it came back
before (as phi-accrual failure detectors do), and never falls below a time that the operator chooses. Then the
next standby gets its place.
"""

from __future__ import annotations

import asyncio
import math
import shlex
import subprocess
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from braid.broker.resumptions import SYNCHRONOUS
from braid.cli.connection_options import Door
from braid.cli.overlay_crawl import Network, ask, crawl
from braid.cli.overlay_replicate import Replaced, replicate, require_protocol
from braid.errors import BraidError, ConfigurationError

__all__ = ["Guard", "Suspicion", "started_by"]

# How long a command may take to start a standby.
START_S_MAX = 60.0
# How long a broker may take to answer when it is looked at: one that does not is only not asked.
LOOK_S_MAX = 2.0
# Gaps of one broker that are remembered.
GAPS_MAX = 100
# Of the spread of gaps: they are never taken for more alike than this share of their mean.
SPREAD_MIN = 0.25


@dataclass
class Suspicion:
    """How sure it is that a broker is gone for good: `phi` of the accrual failure detector.

    `phi` of 1 means that one in ten absences of this length was followed by a return, 3 one in a thousand.
    """

    patience_s: float
    """Absences shorter than this mean nothing, however steady a broker was."""
    missed_since_s: float | None = None
    _gaps: deque[float] = field(default_factory=lambda: deque(maxlen=GAPS_MAX))

    def seen(self, now_s: float) -> None:
        """It is there."""
        if self.missed_since_s is not None:
            self._gaps.append(now_s - self.missed_since_s)
        self.missed_since_s = None

    def missed(self, now_s: float) -> None:
        """Its neighbours have no link to it."""
        if self.missed_since_s is None:
            self.missed_since_s = now_s

    def phi(self, now_s: float) -> float:
        """How much longer it is missed than it was before: minus the logarithm of the chance of a return."""
        if self.missed_since_s is None:
            return 0.0
        missed_s = now_s - self.missed_since_s
        if missed_s < self.patience_s:
            return 0.0
        if not self._gaps:
            return math.inf
        mean = sum(self._gaps) / len(self._gaps)
        variance = sum((gap - mean) ** 2 for gap in self._gaps) / len(self._gaps)
        spread = max(math.sqrt(variance), SPREAD_MIN * mean)
        # The upper tail of the normal distribution.
        chance = 0.5 * math.erfc((missed_s - mean) / (spread * math.sqrt(2)))
        return -math.log10(chance) if chance > 0 else math.inf


class Guard:
    """Looks after one network.

    Args:
        brokers: addresses from which it is looked at, as far as they answer.
        standbys: addresses of processes that wait for a place, in the order in which they get one.
        door: how to come in.
        patience_s: how long a broker is missed at least before it is replaced.
        phi_max: the suspicion beyond which it is.
        start: makes another standby when none is left; returns its address, "" if there is none.
        protocol: how publications without a receipt come back to a replica.
        say: told what happens.
    """

    def __init__(
        self,
        brokers: Sequence[str],
        standbys: Sequence[str],
        door: Door,
        *,
        patience_s: float,
        phi_max: float,
        start: Callable[[], str] | None = None,
        protocol: str = SYNCHRONOUS,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.replaced: list[Replaced] = []
        """The brokers that it has replaced, in order."""
        self._given = frozenset(brokers)
        self._addresses = dict.fromkeys(brokers)
        self._standbys = list(standbys)
        self._door = door
        self._looking = replace(door, timeout_s=min(door.timeout_s, LOOK_S_MAX))
        self._patience_s = patience_s
        self._phi_max = phi_max
        self._start = start
        require_protocol(protocol)
        self._protocol = protocol
        self._say = say
        self._suspicions: dict[str, Suspicion] = {}

    async def watch(self, interval_s: float, *, count: int = 0) -> None:
        """Look again and again; with `count`, until so many brokers have been replaced."""
        while not count or len(self.replaced) < count:
            await self.look(time.monotonic())
            await asyncio.sleep(interval_s)

    async def look(self, now_s: float) -> None:
        """Look once, and replace who is gone."""
        there: set[str] = set()
        missed: set[str] = set()
        seen: set[str] = set()
        # A broker that is gone leaves parts behind that are looked at one by one. Each of them names it, and
        # to find out that it does not answer takes long: once is enough.
        silent: set[str] = set()
        silent_at: set[str] = set()
        for address in list(self._addresses):
            if address in seen or address in silent_at:
                continue
            try:
                network = await crawl(address, self._looking, but=silent)
            except BraidError:
                if address not in self._given:
                    del self._addresses[address]  # if it comes back, others will name it again
                continue
            seen |= {report.address for report in network.reports if not report.problem}
            silent |= {report.broker for report in network.reports if report.problem}
            silent_at |= {report.address for report in network.reports if report.problem}
            self._remember(network)
            there |= {report.broker for report in network.reports if not report.problem}
            for report in network.reports:
                for link in report.links:
                    (there if link["up"] else missed).add(link["neighbour"])
        for name in there:
            if name in self._suspicions:
                self._suspicions[name].seen(now_s)
        gone = missed - there
        for name in sorted(missed - there):
            suspicion = self._suspicions.setdefault(name, Suspicion(self._patience_s))
            suspicion.missed(now_s)
            sure = suspicion.phi(now_s) > self._phi_max
            if sure and await self._replace(name, list(seen), gone - {name}):
                gone.discard(name)

    def _remember(self, network: Network) -> None:
        """Neighbours of those who answer: from one side of a broker that is gone the other is not seen."""
        for report in network.reports:
            if not report.problem:
                self._addresses[report.address] = None
            for link in report.links:
                self._addresses.update(dict.fromkeys(at for at in link["around"].values() if at))

    async def _replace(self, name: str, brokers: list[str], gone: Collection[str]) -> bool:
        """Give a broker's place to a standby, while others are gone, too; returns whether that was done."""
        standby = await self._next_standby(name)
        if not standby:
            self._say(f"{name} is gone, and no standby is left")
            return False
        self._say(f"{name} is gone; {standby} gets its place")
        try:
            replaced = await replicate(
                name,
                standby,
                brokers,
                self._door,
                silent=gone,
                known={each.broker: each.address for each in self.replaced},
                protocol=self._protocol,
                say=self._say,
            )
            self.replaced.append(replaced)
        except BraidError as error:
            self._say(f"{name} is not replaced yet: {error}")
            return False
        if standby in self._standbys:
            self._standbys.remove(standby)
        del self._suspicions[name]
        self._say(f"{name} is at {self.replaced[-1].address} now")
        return True

    async def _next_standby(self, name: str) -> str:
        """The first standby that answers, and waits or has this place already; or another one is started."""
        for standby in self._standbys:
            try:
                shown = await ask(standby, "standby", self._looking)
                if not shown["in_place"] or shown["broker"] == name:
                    return standby
            except BraidError as error:
                self._say(f"the standby {standby} does not answer: {error}")
        try:
            started = await asyncio.to_thread(self._start) if self._start is not None else ""
        except BraidError as error:
            self._say(str(error))
            return ""
        if started:
            self._standbys.append(started)
        return started


def started_by(command: str) -> Callable[[], str]:
    """Starts a standby with a command, which goes on running by itself and prints the address."""

    def start() -> str:
        try:
            done = subprocess.run(
                shlex.split(command), capture_output=True, text=True, timeout=START_S_MAX, check=True
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise ConfigurationError(f"no standby could be started by {command!r}: {error}") from None
        words = done.stdout.split()
        return words[0] if words else ""

    return start
