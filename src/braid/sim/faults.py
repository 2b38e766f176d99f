"""What can go wrong on purpose?

A small vocabulary of faults, as methods of a world. Each is written down as a `fault` record, and told to the
checkers, who know what may be lost because of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from braid.errors import ConfigurationError
from braid.sim.loop import stream
from braid.sim.network import Network
from braid.sim.uplink import Uplink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from braid.sim.host import Host
    from braid.sim.pipe import Pipe
    from braid.trace.writer import TraceWriter

__all__ = ["Faults", "Undo"]


class Undo:
    """What ends a fault; also a context manager: the fault lasts as long as the block."""

    __slots__ = ("_undo",)

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo: Callable[[], None] | None = undo

    def __call__(self) -> None:
        """End the fault, if it has not ended yet."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self()


class Faults(Network):
    """A network that things happen to."""

    trace: TraceWriter | None
    _unnoticed: dict[str, list[Pipe]]
    """The ways out of machines that went silently."""

    def _record(
        self,
        fault: str,
        subject: str,
        detail: str = "",
        *,
        struck: Iterable[tuple[str, ...]] = (),
        lasts: bool = False,
        amnesia: bool = False,
    ) -> None:
        """
        Args:
            fault: what happens.
            subject: to whom, for people.
            detail: how, for people.
            struck: names of endpoints, and pairs of them for the ways between, for the checkers.
            lasts: something is wrong with them from now on; otherwise it is over with this moment.
            amnesia: what was stored is gone too.
        """
        if self.trace is not None:
            self.trace.fault(self.loop.now_us, fault, subject, detail)
        if self.watcher is not None:
            for each in struck:
                self.watcher.reach.struck(self.loop.now_us, each, lasts=lasts, amnesia=amnesia)

    # Nothing crosses.

    def partition(self, left: str | Sequence[str], right: str | Sequence[str]) -> Undo:
        """Nothing crosses between two endpoints, or between two groups, until `repair`.

        As with TCP, open connections notice nothing by themselves: what is sent waits, and crosses after the
        repair unless an end has given the connection up. Attempts to connect fail after a while.
        """
        pairs = self._pairs(left, right)
        for one, other in pairs:
            self.condition(one, other).partitions += 1
            self._block(one, other)
        self._record("partition", _way(left, right), struck=pairs, lasts=True)
        return Undo(lambda: self._repair(pairs, _way(left, right)))

    def repair(
        self, left: str | Sequence[str] | None = None, right: str | Sequence[str] | None = None
    ) -> None:
        """End all partitions between two endpoints or groups; without names, all there are."""
        if left is None or right is None:
            pairs = [pair for pair, condition in self.conditions.items() if condition.partitions]
            subject = "everything"
        else:
            pairs = self._pairs(left, right)
            subject = _way(left, right)
        for one, other in pairs:
            while self.condition(one, other).partitions:
                self._unpartition(one, other)
        self._record("repair", subject, struck=pairs)

    def _repair(self, pairs: Sequence[tuple[str, str]], subject: str) -> None:
        for one, other in pairs:
            if self.condition(one, other).partitions:
                self._unpartition(one, other)
        self._record("repair", subject, struck=pairs)

    def _unpartition(self, left: str, right: str) -> None:
        self.condition(left, right).partitions -= 1
        self._unblock(left, right)

    def hold(self, left: str, right: str) -> Undo:
        """Everything between two endpoints waits until `release`, attempts to connect included."""
        self._require(left, right)
        self.condition(left, right).holds += 1
        self._block(left, right)
        self._record("hold", _way(left, right), struck=[(left, right)], lasts=True)
        return Undo(lambda: self.release(left, right))

    def release(self, left: str, right: str) -> None:
        """Let go what `hold` has kept, in order."""
        self._require(left, right)
        condition = self.condition(left, right)
        while condition.holds:
            condition.holds -= 1
            self._unblock(left, right)
        self.release_dials(left, right)
        self._record("release", _way(left, right), struck=[(left, right)])

    def hole(self, source: str, target: str) -> Undo:
        """What one endpoint sends to another does not arrive until the hole is mended; the other way is open.

        As with TCP, what is sent waits, and nobody can connect anew, since that takes both ways.
        """
        self._require(source, target)
        condition = self.condition(source, target)
        condition.holes += 1
        pipes = [pipe for pipe in self._all_between(source, target) if pipe.source.name == source]
        for pipe in pipes:
            pipe.shaped().blocked += 1
        self._record("hole", f"{source} > {target}", struck=[(source, target)], lasts=True)

        def mend() -> None:
            condition.holes -= 1
            for pipe in pipes:
                pipe.shaped().unblock()
            self._record("mend", f"{source} > {target}", struck=[(source, target)])

        return Undo(mend)

    def _block(self, left: str, right: str) -> None:
        for pipe in self._all_between(left, right):
            pipe.shaped().blocked += 1

    def _unblock(self, left: str, right: str) -> None:
        for pipe in self._all_between(left, right):
            pipe.shaped().unblock()

    def _all_between(self, left: str, right: str) -> Iterable[Pipe]:
        """Pipes in both directions, also those whose source has closed and whose end is still to come."""
        found: dict[Pipe, None] = {}
        for pipe in (*self.pipes_between(left, right), *self.pipes_between(right, left)):
            found[pipe] = found[pipe.back] = None
        return found

    # Machines die and come back.

    def crash(self, name: str, *, silent: bool = False) -> None:
        """A machine ends at once, as by `kill -9`: what is in memory is gone.

        Of the store work under way, some has been done. Peers notice when the news has reached them; with
        `silent`, as by a power cut, they do not notice until they miss something or it is there again.
        """
        host = self.host(name)
        if host.machine is None:
            raise ConfigurationError(f"{name!r} is down already")
        chance = stream(self.seed, f"crash/{name}/{host.lives}")
        pipes = list(host.pipes.values())
        host.stop(chance.randint(0, host.store_work))
        for pipe in pipes:
            pipe.vanish()
            if not silent:
                pipe.cross(f"{name} has crashed")
        if silent:
            self._unnoticed[name] = pipes
        detail = "silent" if silent else ""
        self._record("crash", name, detail, struck=[(name,)], lasts=True, amnesia=host.store is None)

    def restart(self, name: str, *, keep_store: bool = True) -> None:
        """Start a machine again (ending it first if it runs), with the store it had or with an empty one."""
        host = self.host(name)
        if host.machine is not None:
            self.crash(name)
        if not keep_store and host.store is not None:
            host.lose_store()
        for pipe in self._unnoticed.pop(name, ()):
            pipe.cross(f"{name} knows nothing of this connection")
        self.begin(host)
        detail = "" if keep_store else "without its store"
        self._record("restart", name, detail, struck=[(name,)], amnesia=not keep_store)

    def freeze(self, name: str, duration_us: int) -> None:
        """A machine does nothing for a while, as by `kill -STOP`; then everything that came meanwhile comes.

        Its peers notice only that it is silent.
        """
        if duration_us < 0:
            raise ConfigurationError(f"duration_us must be at least 0, not {duration_us}")
        self.host(name).freeze(duration_us)
        self._record("freeze", name, f"{duration_us} us", struck=[(name,)], lasts=True)
        self.loop.schedule(self.loop.now_us + duration_us, self._thawed, name)

    def _thawed(self, name: str) -> None:
        down = self.host(name).machine is None
        self._record("thaw", name, struck=[(name,)], lasts=down)

    def begin(self, host: Host) -> None:
        """Start a host's machine."""
        raise NotImplementedError

    def expire(self, name: str) -> int:
        """The directory ends a host's session, as if its lease had run out; returns how many locks it loses.

        The host notices when it asks for the next renewal. For all else that can go wrong between a host and
        the directory there are `partition`, `hold`, `hole`, `delay` and `freeze`.
        """
        if self.directory is None:
            raise ConfigurationError("there is no directory in this world; see add_directory")
        lost = self.directory.expire(self.host(name).name)
        self._record("expire", name, f"{lost} locks")
        return lost

    # Connections suffer.

    def lose(self, source: str, target: str, count: int = 0) -> int:
        """The next frames from one endpoint to another vanish, and then the connection breaks.

        Returns how many connections it happens to; both ends notice the break.
        """
        self._require(source, target)
        pipes = self.pipes_between(source, target)
        for pipe in pipes:
            if count > 0:
                pipe.shaped().lose_left = count
            else:
                pipe.sever("the connection was cut")
        self._record("lose", f"{source} > {target}", str(count), struck=[(source, target)])
        return len(pipes)

    def duplicate(self, source: str, target: str, count: int = 1) -> int:
        """The next sequenced frames from one endpoint to another arrive twice, as if they were sent again.

        Returns how many connections it happens to.
        """
        self._require(source, target)
        pipes = self.pipes_between(source, target)
        for pipe in pipes:
            pipe.shaped().duplicate_left += count
        self._record("duplicate", f"{source} > {target}", str(count))
        return len(pipes)

    def delay(self, left: str, right: str, extra_us: int) -> Undo:
        """Everything between two endpoints takes so much longer; 0 ends it."""
        self._require(left, right)
        if extra_us < 0:
            raise ConfigurationError(f"extra_us must be at least 0, not {extra_us}")
        self.condition(left, right).extra_us = extra_us
        for pipe in self._all_between(left, right):
            pipe.shaped().extra_us = extra_us
        self._record(
            "delay", _way(left, right), f"{extra_us} us", struck=[(left, right)], lasts=bool(extra_us)
        )
        return Undo(lambda: self.delay(left, right, 0)()) if extra_us else Undo(_nothing)

    def throttle(
        self,
        subject: str | tuple[str, str],
        *,
        messages_per_s: int | None = None,
        bytes_per_s: int | None = None,
    ) -> Undo:
        """Limit the uplink of a machine (a name), or the bandwidth between two endpoints (a pair).

        Without a rate, a machine gets the uplink back that it was added with, and a pair its own bandwidth.
        """
        struck: tuple[str, ...]
        for rate in (messages_per_s, bytes_per_s):
            if rate is not None and rate < 1:
                raise ConfigurationError(f"a rate must be at least 1 per second, not {rate}")
        if isinstance(subject, str):
            self._throttle_host(self.host(subject), messages_per_s, bytes_per_s)
            name, struck = subject, (subject,)
        else:
            if messages_per_s is not None:
                raise ConfigurationError("a link can be throttled in bytes per second only")
            self._throttle_link(*subject, bytes_per_s)
            name, struck = _way(*subject), subject
        rates = [
            f"{rate} {unit}/s"
            for rate, unit in ((messages_per_s, "messages"), (bytes_per_s, "bytes"))
            if rate is not None
        ]
        self._record("throttle", name, " ".join(rates) or "ended", struck=[struck], lasts=bool(rates))
        return Undo(lambda: self.throttle(subject)()) if rates else Undo(_nothing)

    def _throttle_host(self, host: Host, messages_per_s: int | None, bytes_per_s: int | None) -> None:
        if messages_per_s is None and bytes_per_s is None:
            messages_per_s = host.node.uplink_messages_per_s
            bytes_per_s = host.node.uplink_bytes_per_s
        if messages_per_s is None and bytes_per_s is None:
            if host.uplink is None:
                return
        elif host.uplink is None:
            host.uplink = Uplink(self.loop)
            for pipe in host.pipes.values():
                pipe.settle()
        host.uplink.limit(messages_per_s, bytes_per_s)

    def _throttle_link(self, left: str, right: str, bytes_per_s: int | None) -> None:
        self._require(left, right)
        condition = self.condition(left, right)
        condition.bandwidth_bytes_per_s = bytes_per_s
        if bytes_per_s is None:
            bytes_per_s = self.model(left, right).bandwidth_bytes_per_s
        for pipe in self._all_between(left, right):
            pipe.shaped().bandwidth_bytes_per_s = bytes_per_s

    # Names.

    def _require(self, *names: str) -> None:
        for name in names:
            self.endpoint(name)

    def _pairs(self, left: str | Sequence[str], right: str | Sequence[str]) -> list[tuple[str, str]]:
        ones = [left] if isinstance(left, str) else list(left)
        others = [right] if isinstance(right, str) else list(right)
        self._require(*ones, *others)
        both = sorted(set(ones) & set(others))
        if both:
            raise ConfigurationError(f"{both[0]!r} cannot be on both sides of a partition")
        return [(one, other) for one in ones for other in others]


def _way(left: str | Sequence[str], right: str | Sequence[str]) -> str:
    """The names of both sides, for people."""
    sides = [side if isinstance(side, str) else ",".join(side) for side in (left, right)]
    return " - ".join(sides)


def _nothing() -> None:
    """There is nothing to end."""
