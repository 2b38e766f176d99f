"""Where do simulated brokers keep locks and neighbour records, and what if it cannot be reached?

As with a real directory, a host has a session, which lasts as long as its lease is renewed. Every message
says all that its sender knows, so that losing one costs time and nothing else: a host says which locks it
wants, has and gives back, and the directory which of them it has.

A host counts its lease from the moment at which it asked for the renewal, so it lets go before the directory
gives its locks to others. One that is frozen does neither: that is what epochs are for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError
from braid.protocol.effects import Lock, Unlock
from braid.protocol.inputs import Locked, LockLost, LockRefused
from braid.sim.lock_table import Claim, LockTable
from braid.sim.pipe import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.sim.host import Host
    from braid.sim.network import Network

__all__ = ["LockDirectory"]

# Renewals, and repetitions of what may have been lost, during one lease.
BEATS_PER_LEASE = 4


@dataclass(slots=True)
class _Wish:
    """One `Lock` of a host."""

    lock: Lock
    until_us: int
    """When it is given up, if it is still waiting."""
    held: bool = False


@dataclass(slots=True)
class _Member:
    """A host in one of its lives, as its own driver sees it."""

    host: Host
    life: int
    wishes: dict[int, _Wish] = field(default_factory=dict)
    returned: set[int] = field(default_factory=set)
    """Tokens that the directory has to be told of."""
    ours_until_us: int = 0
    beating: bool = False

    @property
    def alive(self) -> bool:
        return self.host.machine is not None and self.host.lives == self.life


@dataclass(frozen=True, slots=True)
class _Beat:
    """What a host says."""

    sent_at_us: int
    waiting: tuple[Lock, ...]
    held: tuple[int, ...]
    returned: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the directory says."""

    beat_us: int
    """When the last beat that it has heard was sent."""
    held: dict[int, int]
    """Epochs of complete claims, by token."""
    returned: tuple[int, ...] = ()
    """Tokens that are settled."""


@dataclass(slots=True)
class _Session:
    """What the directory knows of a host in one of its lives."""

    member: _Member
    beat_us: int
    expires_at_us: int
    claims: dict[int, Claim] = field(default_factory=dict)


class LockDirectory(Endpoint):
    """Locks and neighbour records, at a distance from everybody who uses them.

    It is an endpoint of the world: `partition`, `hole`, `hold` and `delay` between it and a host do what they
    say, and `expire` ends a session.
    """

    def __init__(self, name: str, network: Network, *, lease_us: int, latency_us: int) -> None:
        super().__init__(name, "directory")
        if lease_us < BEATS_PER_LEASE or latency_us < 0:
            raise ConfigurationError(
                f"a directory needs a lease of at least {BEATS_PER_LEASE} us and a latency of at least 0, "
                f"not {lease_us} and {latency_us}"
            )
        self.loop = network.loop
        self.lease_us = lease_us
        self.neighbours: dict[str, tuple[str, ...]] = {}
        """What each broker has said last of its neighbours; this outlives it."""
        self._network = network
        self._latency_us = latency_us
        self._table = LockTable()
        self._members: dict[tuple[str, int], _Member] = {}
        self._sessions: dict[tuple[str, int], _Session] = {}

    def holder(self, broker: str) -> str | None:
        """Whose machine has the lock of a broker; None if it is free."""
        claim = self._table.holder(broker)
        if claim is None:
            return None
        owner = claim.owner
        return owner.member.host.name if isinstance(owner, _Session) else None

    # What a host's driver does.

    def perform(self, host: Host, effect: Lock | Unlock) -> None:
        """A machine wants locks, or gives some back."""
        member = self._members.setdefault((host.name, host.lives), _Member(host, host.lives))
        if isinstance(effect, Lock):
            wish = _Wish(effect, self.loop.now_us + effect.wait_us_max)
            member.wishes[effect.token] = wish
            self.loop.schedule(wish.until_us, self._give_up, (member, effect.token))
        elif member.wishes.pop(effect.token, None) is None:
            return
        else:
            member.returned.add(effect.token)
        self._go_on(member)

    def _go_on(self, member: _Member) -> None:
        """Say what has changed at once, and then again and again."""
        self._say(member)
        if not member.beating:
            member.beating = True
            self.loop.schedule(self.loop.now_us + self.lease_us // BEATS_PER_LEASE, self._beat, member)

    def tell(self, host: Host, neighbours: tuple[str, ...]) -> None:
        """A broker has other neighbours; the directory is told until it knows."""
        self._tell((host, host.lives, neighbours))

    def _tell(self, news: tuple[Host, int, tuple[str, ...]]) -> None:
        host, life, neighbours = news
        if host.lives != life or host.machine is None:
            return
        delay_us = self._delay_us(host)
        if delay_us is None:
            self.loop.schedule(self.loop.now_us + self.lease_us // BEATS_PER_LEASE, self._tell, news)
        else:
            self.loop.schedule(self.loop.now_us + delay_us, self._told, (host.name, neighbours))

    def _told(self, news: tuple[str, tuple[str, ...]]) -> None:
        self.neighbours[news[0]] = news[1]

    def _beat(self, member: _Member) -> None:
        if not member.alive:
            self._members.pop((member.host.name, member.life), None)
            return
        if member.host.busy_until_us > self.loop.now_us:  # nor does it notice that its lease runs out
            self.loop.schedule(member.host.busy_until_us, self._beat, member)
            return
        self._look_at_lease(member)
        if not member.wishes and not member.returned:
            member.beating = False
            return
        self._say(member)
        self.loop.schedule(self.loop.now_us + self.lease_us // BEATS_PER_LEASE, self._beat, member)

    def _look_at_lease(self, member: _Member) -> None:
        if not member.alive or self.loop.now_us < member.ours_until_us:
            return
        for token, wish in list(member.wishes.items()):
            if wish.held:
                self._lose(member, token, f"they could not be renewed for {self.lease_us / 1e6:g} s")

    def _lose(self, member: _Member, token: int, reason: str) -> None:
        del member.wishes[token]
        member.returned.add(token)
        member.host.report(LockLost(token, reason))

    def _give_up(self, which: tuple[_Member, int]) -> None:
        member, token = which
        wish = member.wishes.get(token)
        if wish is not None and not wish.held and member.alive:
            del member.wishes[token]
            member.returned.add(token)
            self._go_on(member)
            seconds = wish.lock.wait_us_max / 1e6
            member.host.report(
                LockRefused(token, f"no locks on {', '.join(wish.lock.brokers)} after {seconds:g} s")
            )

    def _say(self, member: _Member) -> None:
        beat = _Beat(
            self.loop.now_us,
            tuple(wish.lock for wish in member.wishes.values() if not wish.held),
            tuple(token for token, wish in member.wishes.items() if wish.held),
            tuple(sorted(member.returned)),
        )
        delay_us = self._delay_us(member.host)
        if delay_us is not None:
            self.loop.schedule(self.loop.now_us + delay_us, self._hear, (member, beat))

    def _hear_answer(self, said: tuple[_Member, _Answer]) -> None:
        member, answer = said
        if not member.alive:
            return
        if answer.beat_us + self.lease_us > member.ours_until_us:
            member.ours_until_us = answer.beat_us + self.lease_us
            self.loop.schedule(member.ours_until_us, self._look_at_lease, member)
        member.returned.difference_update(answer.returned)
        if self.loop.now_us >= member.ours_until_us:
            return  # too old to be relied on; the next beat asks again
        for token, epoch in answer.held.items():
            wish = member.wishes.get(token)
            if wish is None:  # it was given up while the directory granted it
                member.returned.add(token)
                self._go_on(member)
            elif not wish.held:
                wish.held = True
                member.host.report(Locked(token, tuple(sorted(set(wish.lock.brokers))), epoch))

    def _hear_loss(self, said: tuple[_Member, tuple[int, ...]]) -> None:
        member, tokens = said
        for token in tokens:
            if member.alive and token in member.wishes:
                self._lose(member, token, "the directory has given them to others")

    # What the directory does.

    def _hear(self, said: tuple[_Member, _Beat]) -> None:
        member, beat = said
        now_us = self.loop.now_us
        key = (member.host.name, member.life)
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = _Session(member, beat.sent_at_us, now_us)
        session.beat_us = max(session.beat_us, beat.sent_at_us)
        session.expires_at_us = now_us + self.lease_us
        self.loop.schedule(session.expires_at_us, self._look_at_session, key)
        complete: list[Claim] = []
        for token in beat.returned:
            claim = session.claims.pop(token, None)
            if claim is not None:
                complete += self._table.leave(claim)
        for lock in beat.waiting:
            if lock.token not in session.claims:
                claim = session.claims[lock.token] = Claim(session, lock.token, lock.brokers)
                complete += self._table.enter(claim)
        lost = tuple(token for token in beat.held if token not in session.claims)
        self._answer(session, beat.returned)
        if lost:
            self._send(member, self._hear_loss, (member, lost))
        self._granted(complete, but=session)

    def _granted(self, claims: list[Claim], but: _Session | None = None) -> None:
        """Tell those who have got all their locks because others let go."""
        for claim in claims:
            if isinstance(claim.owner, _Session) and claim.owner is not but:
                self._answer(claim.owner)

    def _answer(self, session: _Session, returned: tuple[int, ...] = ()) -> None:
        held = {token: claim.epoch for token, claim in session.claims.items() if claim.epoch}
        answer = _Answer(session.beat_us, held, returned)
        self._send(session.member, self._hear_answer, (session.member, answer))

    def _look_at_session(self, key: tuple[str, int]) -> None:
        session = self._sessions.get(key)
        if session is not None and self.loop.now_us >= session.expires_at_us:
            self._end(key)

    def expire(self, name: str) -> int:
        """End the sessions of a host; returns how many claims went with them."""
        keys = [key for key in self._sessions if key[0] == name]
        return sum(self._end(key) for key in keys)

    def _end(self, key: tuple[str, int]) -> int:
        session = self._sessions.pop(key)
        complete: list[Claim] = []
        for claim in session.claims.values():
            complete += self._table.leave(claim)
        self._granted([claim for claim in complete if claim.owner is not session])
        return len(session.claims)

    # The way between.

    def _send(self, member: _Member, function: Callable[[Any], None], argument: Any) -> None:
        delay_us = self._delay_us(member.host)
        if delay_us is not None:
            self.loop.schedule(self.loop.now_us + delay_us, function, argument)

    def _delay_us(self, host: Host) -> int | None:
        """How long a message takes; None if it is lost."""
        condition = self._network.known_condition(host.name, self.name)
        if condition is None:
            return self._latency_us
        if condition.partitions or condition.holds or condition.holes:
            return None
        return self._latency_us + condition.extra_us
