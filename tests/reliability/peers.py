"""Do real peers deliver everything, also after a fifth of them was killed and while datagrams are lost?

    python -m tests.reliability.peers --peers 50 --processes 5 --seed 1
    python -m tests.reliability.peers --peers 50 --processes 5 --seed 1 --drop 0.001

Peers in some processes on loopback join one by one. Each has a client that subscribes; clients of the peers
that will survive publish. Then one process with all its peers is killed at once (unless datagrams are dropped
instead), and rounds of publications go on. What must have arrived is computed by evaluating every filter. The
run says how long after the kill everything published arrived at all surviving subscribers again; and the
checker that reads the traces of all peers must agree on everything published before the kill and after that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import braid
from braid.trace.checks import check_deliveries

__all__ = ["PeerChoices", "PeerOutcome", "peer_run"]

# After the last delivery that is waited for: what comes twice may come late.
QUIET_S = 1.5
# Between two rounds of publications.
ROUND_S = 0.5
# After a kill, everything must be complete again before so much time has passed.
RECOVERED_S_MAX = 15.0
# What was published last may take so long.
ARRIVED_S_MAX = 20.0
# What is opened: two connections for each pair of peers that speak to each other, at most.
FILES_MAX = 20_000
# How quickly peers notice that others are gone, and how often they confirm what they asked for.
SETTINGS = {"beat_us": 500_000, "timeout_us": 1_000_000}
SYMBOLS = ("ACME", "IBM", "XYZ", "QRS")


@dataclass(frozen=True, kw_only=True)
class PeerChoices:
    """What one run is like."""

    peers: int = 50
    processes: int = 5
    seed: int = 1
    drop: float = 0.0
    """The share of messages that every peer drops before it sends them; nobody is killed then."""
    rounds: int = 20
    """Rounds of publications before a kill, or of all in a run without one."""
    publications: int = 20
    """Publications of a round."""
    after_kill_s: float = 22.0
    """How long rounds go on after a kill."""
    beacon_us: int = 2_000_000
    """Time between beacons of what peers want."""
    dht: str = "pastry"


@dataclass(kw_only=True)
class PeerOutcome:
    """What came of it."""

    joined: int = 0
    published: int = 0
    expected: int = 0
    """Deliveries that had to be, outside of the time of recovery."""
    delivered: int = 0
    missing: int = 0
    doubled: int = 0
    uninvited: int = 0
    killed: int = 0
    recovery_s: float | None = None
    """From the kill until everything that was published arrived again."""
    lost_in_recovery: int = 0
    """Deliveries that were missing meanwhile."""
    dropped_messages: int = 0
    traces_right: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether everything is as it should be."""
        in_time = not self.killed or (self.recovery_s is not None and self.recovery_s <= RECOVERED_S_MAX)
        return in_time and self.traces_right and not (self.missing or self.doubled or self.uninvited)


class Worker:
    """A process with some peers."""

    def __init__(self, trace: Path, settings: dict[str, Any]) -> None:
        self.addresses: list[str] = []
        self.trace = trace
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.peer_worker", str(trace), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    async def add(self, name: str, bootstrap: list[str]) -> str:
        """One more peer, when it has its place."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"name": name, "bootstrap": bootstrap}) + "\n")
        self.process.stdin.flush()
        address = (await asyncio.to_thread(self.process.stdout.readline)).strip()
        if not address:
            raise RuntimeError(f"the peer {name} did not find its place")
        self.addresses.append(address)
        return address

    def end(self) -> None:
        """Let all its peers say goodbye."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        if self.process.poll() is None:
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@dataclass
class Reader:
    """A subscriber and all that it was given."""

    address: str
    filter: braid.Filter
    client: braid.Client
    subscription: braid.Subscription
    prices: Counter[int] = field(default_factory=Counter)
    """By the number of a publication, how often it came."""
    task: asyncio.Task[None] | None = None

    async def read(self) -> None:
        async for publication in self.subscription:
            self.prices[int(publication["number"])] += 1


@dataclass
class Published:
    """A publication and when it went out."""

    attributes: dict[str, Any]
    at_s: float
    at_us: int


def random_filter(chance: random.Random) -> str:
    """About every fifth publication satisfies one of these."""
    low = chance.randrange(0, 80)
    return chance.choice(
        (
            f"price BETWEEN {low} AND {low + 20}",
            f"symbol = '{chance.choice(SYMBOLS)}' AND price > {low}",
            f"symbol IN ('{chance.choice(SYMBOLS)}', 'ACME') AND volume < {chance.randrange(20, 80)}",
            f"price < {low // 4} OR volume > {100 - low // 4}",
            "urgent",
        )
    )


def random_publication(number: int, chance: random.Random) -> dict[str, Any]:
    """Attributes, with the number that tells publications apart."""
    found: dict[str, Any] = {
        "number": number,
        "price": chance.randrange(100),
        "symbol": chance.choice(SYMBOLS),
    }
    if chance.random() < 0.5:
        found["volume"] = chance.randrange(100)
    if chance.random() < 0.2:
        found["urgent"] = chance.random() < 0.7
    return found


class PeerRun:
    """One run."""

    def __init__(self, choices: PeerChoices, folder: Path) -> None:
        self.choices = choices
        self.outcome = PeerOutcome()
        self._chance = random.Random(choices.seed)
        self._folder = folder
        self._workers: list[Worker] = []
        self._readers: list[Reader] = []
        self._published: list[Published] = []
        self._ids: dict[tuple[str, int], int] = {}
        self._disturbed: set[int] = set()
        """The numbers of publications between the kill and the end of the recovery."""

    async def run(self) -> PeerOutcome:
        """All of it."""
        try:
            async with AsyncExitStack() as stack:
                await self._join()
                await self._subscribe(stack)
                for _ in range(self.choices.rounds):
                    await self._publish()
                await self._arrived(self._readers, self._published)
                survivors = self._readers
                if not self.choices.drop:
                    survivors = await self._kill()
                await asyncio.sleep(QUIET_S)
                for reader in self._readers:
                    assert reader.task is not None
                    reader.task.cancel()
                if self.choices.drop:
                    for reader in self._readers:
                        report = await reader.client.ask("peer")
                        self.outcome.dropped_messages += report["datagrams"]["lost_messages"]
                self._judge(survivors)
        finally:
            await asyncio.gather(*(asyncio.to_thread(worker.end) for worker in self._workers))
        self._judge_traces()
        return self.outcome

    async def _join(self) -> None:
        choices = self.choices
        settings = {
            **SETTINGS,
            "beacon_us": choices.beacon_us,
            "loss": choices.drop,
            "dht": choices.dht,
        }
        self._workers = [
            Worker(self._folder / f"trace-{number}", settings) for number in range(choices.processes)
        ]
        known: list[str] = []
        for number in range(choices.peers):
            bootstrap = self._chance.sample(known, min(2, len(known)))
            worker = self._workers[number % choices.processes]
            known.append(await worker.add(f"P{number}", bootstrap))
        self.outcome.joined = len(known)

    async def _subscribe(self, stack: AsyncExitStack) -> None:
        async def one(address: str, text: str) -> Reader:
            client = await stack.enter_async_context(
                braid.connect(address, reconnect_for_s=0.0, timeout_s=30)
            )
            subscription = await client.subscribe(text, queue_size=100_000)
            return Reader(address, braid.Filter(text), client, subscription)

        wanted = [
            (address, random_filter(self._chance)) for worker in self._workers for address in worker.addresses
        ]
        self._readers = list(await asyncio.gather(*(one(address, text) for address, text in wanted)))
        for reader in self._readers:
            reader.task = asyncio.create_task(reader.read())
        await asyncio.sleep(2 * self.choices.beacon_us / 1e6)  # joins have settled

    async def _publish(self) -> list[Published]:
        """One round, at peers that are not going to be killed."""
        doomed = set(self._workers[-1].addresses)
        places = [reader for reader in self._readers if reader.address not in doomed]
        done: list[Published] = []
        for _ in range(self.choices.publications):
            writer = self._chance.choice(places)
            attributes = random_publication(len(self._published), self._chance)
            published = Published(attributes, time.monotonic(), time.time_ns() // 1000)
            self._published.append(published)
            receipt = await writer.client.publish(attributes)
            self._ids[f"{writer.client.publisher}", receipt.sequence] = int(attributes["number"])
            done.append(published)
        await asyncio.sleep(ROUND_S / 5 if self.choices.drop else ROUND_S)
        return done

    def _missing(self, readers: list[Reader], published: list[Published]) -> int:
        return sum(
            reader.prices[each.attributes["number"]] == 0
            for reader in readers
            for each in published
            if reader.filter.matches(each.attributes)
        )

    async def _arrived(self, readers: list[Reader], published: list[Published]) -> None:
        """Wait until everything has arrived, or for too long."""
        for _ in range(int(ARRIVED_S_MAX / 0.1)):
            if not self._missing(readers, published):
                return
            await asyncio.sleep(0.1)

    async def _kill(self) -> list[Reader]:
        """Kill a process with all its peers, and go on publishing; returns the subscribers that are left."""
        victim = self._workers[-1]
        dead = set(victim.addresses)
        victim.process.kill()
        killed_s = time.monotonic()
        victim.process.wait()
        self.outcome.killed = len(dead)
        survivors = [reader for reader in self._readers if reader.address not in dead]
        rounds: list[list[Published]] = []
        while time.monotonic() - killed_s < self.choices.after_kill_s:
            rounds.append(await self._publish())
        await self._arrived(survivors, rounds[-1])
        complete_from: float | None = None
        for number in range(len(rounds) - 1, -1, -1):
            if self._missing(survivors, rounds[number]):
                break
            complete_from = rounds[number][0].at_s
        if complete_from is not None:
            self.outcome.recovery_s = round(complete_from - killed_s, 2)
        until_s = complete_from if complete_from is not None else time.monotonic()
        disturbed = [each for one in rounds for each in one if each.at_s < until_s]
        self.outcome.lost_in_recovery = self._missing(survivors, disturbed)
        self._disturbed = {int(each.attributes["number"]) for each in disturbed}
        return survivors

    def _judge(self, readers: list[Reader]) -> None:
        """Hold what every subscriber has against every filter."""
        outcome = self.outcome
        outcome.published = len(self._published)
        by_number = {each.attributes["number"]: each.attributes for each in self._published}
        judged = [each for each in self._published if each.attributes["number"] not in self._disturbed]
        outcome.missing = self._missing(readers, judged)
        for reader in readers:
            outcome.expected += sum(reader.filter.matches(each.attributes) for each in judged)
            outcome.delivered += sum(1 for number in reader.prices if number not in self._disturbed)
            outcome.doubled += sum(count - 1 for count in reader.prices.values())
            outcome.uninvited += sum(not reader.filter.matches(by_number[number]) for number in reader.prices)

    def _judge_traces(self) -> None:
        """The same from the traces alone: what all peers wrote down."""

        def attributes_of(publisher: str, sequence: int) -> dict[str, Any] | None:
            number = self._ids.get((publisher.partition("#")[0], sequence))
            if number is None or number in self._disturbed:
                return None
            return self._published[number].attributes

        # Those who were killed have not written down what they were given last.
        alive = self._workers[:-1] if self.outcome.killed else self._workers
        verdict = check_deliveries(
            [worker.trace for worker in alive], attributes_of=attributes_of, ordered=False
        )
        self.outcome.traces_right = verdict.right and verdict.judged > 0
        self.outcome.problems = verdict.report()


async def peer_run(choices: PeerChoices, folder: Path) -> PeerOutcome:
    """Do one run; traces are left in the folder."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(FILES_MAX, hard)), hard))
    return await PeerRun(choices, folder).run()


def summary(choices: PeerChoices, outcome: PeerOutcome) -> str:
    """One line that says what came of it."""
    told = "right" if outcome.right else "WRONG"
    how = (
        f"{choices.drop:.1%} of messages dropped ({outcome.dropped_messages})"
        if choices.drop
        else f"{outcome.killed} killed, complete again after {outcome.recovery_s} s "
        f"({outcome.lost_in_recovery} deliveries lost meanwhile)"
    )
    return (
        f"{told}: {outcome.joined} peers in {choices.processes} processes, {how}; "
        f"{outcome.published} published, {outcome.expected} deliveries expected, "
        f"{outcome.missing} missing, {outcome.doubled} doubled, "
        f"{outcome.uninvited} uninvited; traces {'agree' if outcome.traces_right else 'disagree'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Real peers on loopback, killed or with losses.")
    parser.add_argument("--peers", type=int, default=50)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drop", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--publications", type=int, default=20)
    parser.add_argument("--after-kill-s", type=float, default=22.0)
    parser.add_argument("--dht", choices=("pastry", "ring"), default="pastry")
    parser.add_argument("--json", action="store_true")
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    choices = PeerChoices(**arguments)
    with tempfile.TemporaryDirectory(prefix="braid-peers-") as folder:
        outcome = asyncio.run(peer_run(choices, Path(folder)))
    print(json.dumps({**asdict(choices), **asdict(outcome)}) if as_json else summary(choices, outcome))
    for problem in outcome.problems:
        print(problem, file=sys.stderr)
    return 0 if outcome.right else 1


if __name__ == "__main__":
    sys.exit(main())
