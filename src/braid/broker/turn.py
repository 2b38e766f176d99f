"""The present turn of a broker: what it leads to, what goes out at its end, and who has to wait.

Everything that is said to a party passes here. At the end of a turn each party that something changed
for gets one write: what the channel lets out, and an acknowledgement if one is due.

Back-pressure: a party is *behind* while more waits for it than its bound. A party that sends something to
a party that is behind gets no further credit until it has caught up by half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braid.broker.bottleneck import Bottleneck
from braid.broker.events import LeftOut
from braid.broker.parties import CLASSES, FREE, TO_LINKS, Client, ClientDestination, Party
from braid.broker.quotas import Quotas
from braid.broker.settling import Settlement
from braid.errors import RequestRefusedError
from braid.protocol import Frame
from braid.protocol.effects import Close, Effect, Note, Send
from braid.protocol.incoming import STREAM_FIRST, STREAMS_MAX
from braid.protocol.messages import Failed, Refused, Settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.broker.events import ClientLeft, Events
    from braid.broker.settings import BrokerSettings
    from braid.broker.settling import Pending
    from braid.protocol import Channel, PublicationBatch
    from braid.protocol.codec import Body
    from braid.protocol.messages import Acknowledgement, Message

__all__ = ["REASON_LENGTH_MAX", "Counters", "Turn"]

# An error may quote a filter; so many characters of it are told.
REASON_LENGTH_MAX = 4_096
# Numbers in one message about frames that are settled apart.
SETTLED_FRAMES_MAX = 10_000
# Of what is left out together, so many sequence numbers are named.
SHOWN_MAX = 16

_DROP_OLDEST = CLASSES["drop_oldest"]
_DISCONNECT = CLASSES["disconnect"]


@dataclass(slots=True)
class Counters:
    """What has happened so often since the start."""

    received: int = 0
    """Publications that arrived, from clients and links."""
    published: int = 0
    """Those of them that came from clients here."""
    duplicates: int = 0
    discarded: int = 0
    """Publications of clients here that were taken for repetitions, as these were told."""
    refused: int = 0
    delivered: int = 0
    """Publications handed to clients here."""
    forwarded: int = 0
    """Publications passed on to links."""
    stored: int = 0
    """Rows appended to the logs of durable subscriptions."""
    dropped: int = 0
    """Publications dropped for links and consumers that were behind and had chosen that."""
    looped: int = 0
    """Publications that had crossed too many links."""
    oversized: int = 0
    """What was left out for a neighbour or a client that reads only smaller frames: publications, filters."""
    unreadable: int = 0
    """Subscriptions and advertisements of neighbours whose filters could not be read."""
    resent_frames: int = 0
    stalled: int = 0
    """Connections to brokers that were given up because nothing moved on them."""
    matched_batches: int = 0
    match_ns: int = 0
    """Time spent matching them, where the driver lends a stopwatch."""


class Turn:
    """The turn that is going on: its time, its effects, the parties that changed, and the counters."""

    def __init__(self, settings: BrokerSettings, events: Events, epoch: int = 0) -> None:
        self.settings = settings
        self.epoch = epoch
        """How often the name of this broker has gone to another process."""
        self._events = events
        self.counters = Counters()
        self.quotas = Quotas()
        """What each principal has of what it may have only so much of."""
        self.settlement = Settlement()
        """What becomes of those who wait until publications are safe."""
        self.now_us = 0
        self.effects: list[Effect] = []
        """What this turn leads to so far, in order."""
        self.roomy = settings.link_queue_bytes_max >= max(
            settings.link.resend_bytes_max, settings.client.resend_bytes_max
        )
        """Whether what a channel keeps to send it again is a bound for what waits in it, too."""
        self._changed: dict[Party, None] = {}
        self.unacknowledged: dict[Party, None] = {}
        """Those who are told in a while how far what they sent has come."""
        self.acknowledge_at_us: int | None = None
        """When waiting acknowledgements go out at the latest."""
        self.deadline_us = 0
        """When the next turn is due at the latest."""
        self.calm_until_us = 0
        """Until when nothing is to be done but what messages ask for; not after the deadline."""

    # What handlers say.

    def effect(self, effect: Effect) -> None:
        """Have the driver do something, in order with everything else."""
        self.effects.append(effect)

    def note(self, level: str, what: str, **fields: Any) -> None:
        """A line for the log."""
        self.effects.append(Note(level, what, fields))

    def audit(self, level: str, what: str, **fields: Any) -> None:
        """A line for the log that belongs in the audit log, too."""
        self.effects.append(Note(level, what, fields, audit=True))

    def tell(self, party: Party, message: Message, *, in_line: bool = False) -> None:
        """Say something in a party's channel; `in_line`: not before the publications that wait."""
        if in_line:
            party.channel.offer_in_line(message)
        else:
            party.channel.offer(message)
        self._changed[party] = None

    def tell_connection(self, party: Party, message: Message) -> None:
        """Say something on a party's present connection only."""
        party.outside.append(message)
        self._changed[party] = None

    def changed(self, party: Party) -> None:
        """Something may have to be written or acknowledged."""
        self._changed[party] = None

    def acknowledge_later(self, party: Party) -> None:
        """Acknowledge what has come from a party in a while, together with what else may come."""
        if party not in self.unacknowledged:
            self.unacknowledged[party] = None
            party.channel.telling = True
            if self.acknowledge_at_us is None:
                self.acknowledge_at_us = self.now_us + party.channel.settings.acknowledge_delay_us
                self.deadline_us = min(self.deadline_us, self.acknowledge_at_us)
                self.calm_until_us = min(self.calm_until_us, self.acknowledge_at_us)

    def arrived(self, party: Party) -> None:
        """Frames have come from a party: it hears of that, at once if it must and otherwise later."""
        channel = party.channel
        if party.line.waiting:
            party.line.advance()
        else:
            channel.settled = channel.received
        if channel.due:
            self._changed[party] = None
        elif not channel.telling:
            self.acknowledge_later(party)

    def offer(self, party: Party, body: Body, care: Pending | None) -> None:
        """Put something in line that a party may wait for."""
        party.channel.offer(body, care)
        self._changed[party] = None

    def refuse(self, connection: int, code: str, reason: str) -> None:
        """End a connection and tell its other side why."""
        self.effects.append(Send(connection, [Frame(0, Refused(code, reason, self.settings.broker_id))]))
        self.effects.append(Close(connection, reason))

    def fail(self, party: Party, request: int, error: Exception) -> None:
        """Answer a request with what was wrong with it."""
        code = error.code if isinstance(error, RequestRefusedError) else "filter"
        self.tell(party, Failed(request, code, str(error)[:REASON_LENGTH_MAX]))
        if code in ("denied", "limit"):
            principal = party.principal.name if isinstance(party, Client) else party.name
            self.audit(
                "warning",
                "request refused",
                party=party.name,
                principal=principal,
                code=code,
                reason=str(error),
            )

    # Publications and those who are behind.

    def pass_on(
        self,
        parties: Sequence[Party],
        copies: Sequence[tuple[PublicationBatch, Pending | None]],
        source: Party | None,
        source_class: int = 0,
    ) -> None:
        """Send copies of publications to each of these, or put them in line there, and hold up their source
        where one is behind.

        All are of one class. Each party has a share of what is waited for. `source_class` is the credit class
        in which they came. Nobody waits for a link because of copies that may take any link: `has_room` says
        beforehand whether there is room for them.
        """
        for _, pending in copies:
            if pending is not None:
                pending.share_out(parties)
        for party in parties:
            channel = party.channel
            connection = party.connection
            frames: list[Frame] = []
            # What was said outside the channel, and what is said again, goes first.
            if connection is not None and not (party.outside or party.again):
                for batch, pending in copies:
                    frame = channel.send(batch, pending)
                    if frame is None:
                        break
                    frames.append(frame)
                if frames:
                    self.effects.append(Send(connection, frames))
            if len(frames) < len(copies):
                for batch, pending in copies[len(frames) :]:
                    channel.offer(batch, pending)
                self._changed[party] = None
            elif not channel.unsettled_bytes and self.roomy:
                continue  # too little was sent for the bound to matter
            self._bound(party, copies[0][0].target, source, source_class)

    def pass_on_one(
        self, receivers: Sequence[tuple[Sequence[Party], int]], batch: PublicationBatch, source: Party
    ) -> list[Effect]:
        """Send one publication, which nobody waits for, to links and clients: a whole turn, and all that it
        leads to.

        It is what most turns do, so this is `pass_on`, `arrived` and `collect` for those who have nothing in
        the way, such as a line of others before it, of a broker that is `roomy`. The others get it as usual.
        """
        effects = self.effects
        for parties, number in receivers:
            if number == TO_LINKS:
                copy = batch.onward()
            else:
                copy = batch.delivery(number)
                self.counters.delivered += len(parties)
            for party in parties:
                channel = party.channel
                connection = party.connection
                if connection is not None and not channel.unsettled_bytes:
                    frame = channel.send(copy, None)
                    if frame is not None:
                        effects.append(Send(connection, (frame,)))
                        continue
                self.pass_on((party,), ((copy, None),), source, batch.target)
        channel = source.channel
        if channel.due or not channel.telling or source.line.waiting:
            self.arrived(source)
        else:
            channel.settled = channel.received
        if self._changed or self.now_us >= self.deadline_us:
            return self.collect()
        self.effects = []
        return effects

    def _bound(self, party: Party, target: int, source: Party | None, source_class: int) -> None:
        """Keep what waits for a party within its bound."""
        channel = party.channel
        if isinstance(party, Client):
            self._bound_client(party, target, source, source_class)
        elif not target and channel.backlog_bytes_of(0) > self.settings.link_queue_bytes_max:
            if not channel.connected:
                self._drop_oldest(channel)
            if channel.backlog_bytes_of(0) > self.settings.link_queue_bytes_max:
                self._hold_up(source, source_class, party)

    def _drop_oldest(self, channel: Channel[Pending]) -> None:
        """Keep what is not acknowledged delivery within the bound of a link that is down."""
        others_bytes = channel.waiting_bytes - channel.waiting_bytes_of(0)
        kept_bytes = channel.backlog_bytes_of(0) - channel.waiting_bytes_of(0)
        bytes_max = others_bytes + max(0, self.settings.link_queue_bytes_max - kept_bytes)
        self.counters.dropped += channel.drop_oldest(bytes_max, 0)

    def has_room(self, party: Party) -> bool:
        """Whether a link has room for copies that may take any link. They have half as much as the others."""
        return party.channel.backlog_bytes_of(FREE) * 2 <= self.settings.link_queue_bytes_max

    def _bound_client(self, client: Client, target: int, source: Party | None, source_class: int) -> None:
        channel = client.channel
        bytes_max = self._client_bytes_max(target)
        waiting_bytes = channel.waiting_bytes_of(target)
        if waiting_bytes <= bytes_max:
            return
        if target == _DROP_OLDEST:
            others_bytes = channel.waiting_bytes - waiting_bytes
            self.counters.dropped += channel.drop_oldest(bytes_max + others_bytes, target)
        elif target == _DISCONNECT and client.connection is not None:
            self.refuse(client.connection, "slow", "the client fell too far behind, as it had allowed for")
            client.send_away()  # the driver's `Closed` ends the party
        waiting_bytes = channel.waiting_bytes_of(target)
        destination = client.destinations.get(target)
        if waiting_bytes > bytes_max and destination is not None:
            if destination.behind_since_us is None:
                destination.moved_bytes = channel.moved_bytes_of(target)
            self._hold_up(source, source_class, destination)

    def _client_bytes_max(self, target: int) -> int:
        """How much may wait for a class of a client; all its streams together have as much as one class."""
        bytes_max = self.settings.client_queue_bytes_max
        return bytes_max if target < STREAM_FIRST else bytes_max // STREAMS_MAX

    def _hold_up(self, source: Party | None, source_class: int, behind: Party | ClientDestination) -> None:
        if behind.behind_since_us is None:
            behind.behind_since_us = self.now_us
        if source is not None:
            behind.bottleneck.hold_up(source, source_class)

    def caught_up(self, party: Party, *, moves: bool = True) -> None:
        """Let go those a party held up if it has taken enough; `moves`: it has taken something."""
        if isinstance(party, Client):
            for destination in party.behind:
                self._class_caught_up(destination)
        elif party.behind_since_us is None:
            return
        elif party.channel.backlog_bytes_of(0) * 2 <= self.settings.link_queue_bytes_max:
            self.let_go(party)
        elif moves:
            party.behind_since_us = self.now_us

    def _class_caught_up(self, destination: ClientDestination) -> None:
        channel = destination.client.channel
        moved_bytes = channel.moved_bytes_of(destination.number)
        if channel.waiting_bytes_of(destination.number) * 2 <= self._client_bytes_max(destination.number):
            self.let_go_class(destination)
        elif moved_bytes > destination.moved_bytes:
            destination.behind_since_us = self.now_us
            destination.moved_bytes = moved_bytes

    def let_go(self, party: Party) -> None:
        """Nobody waits for this party any more."""
        if isinstance(party, Client):
            for destination in party.behind:
                self.let_go_class(destination)
        party.behind_since_us = None
        self.open(party.bottleneck)

    def let_go_class(self, destination: ClientDestination) -> None:
        """Nobody waits for these subscriptions of a client any more."""
        destination.behind_since_us = None
        self.open(destination.bottleneck)

    def stalled(self, party: Party) -> list[ClientDestination]:
        """The subscriptions of a client that hold up others and have not moved for too long."""
        if not isinstance(party, Client):
            return []
        behind = party.behind
        if not behind:
            return behind
        since_us = self.now_us - self.settings.stall_us_max
        return [
            each for each in behind if each.behind_since_us is not None and each.behind_since_us < since_us
        ]

    def open(self, bottleneck: Bottleneck) -> None:
        """Those who waited for it may send again, as far as nothing else holds them up."""
        for source in bottleneck.let_go():
            self._changed[source] = None

    def forget(self, party: Party) -> None:
        """The party has gone."""
        self.let_go(party)
        for reason in list(party.channel.credit_holds):
            if isinstance(reason, Bottleneck):
                reason.forget(party)
        self._changed.pop(party, None)
        self.unacknowledged.pop(party, None)
        party.channel.telling = False

    def acknowledged(self, party: Party, message: Acknowledgement) -> None:
        """A peer says how far it has come."""
        received_before = party.channel.peer_received
        for care in party.channel.acknowledged(message):
            self.settlement.settle(care, party)
        self.caught_up(party, moves=party.channel.peer_received > received_before)
        if party.channel.in_line or party.outside or party.again:
            self._changed[party] = None

    def only_acknowledged(self, party: Party, message: Acknowledgement) -> list[Effect]:
        """The same as a whole turn, and all that it leads to."""
        self.acknowledged(party, message)
        if not party.channel.telling and party.channel.acknowledgement_waits:
            self.arrived(party)
        return self.collect()

    def settled_apart(self, party: Party, message: Settled) -> None:
        """A peer says that single frames are settled."""
        for care in party.channel.settled_apart(message.frames):
            self.settlement.settle(care, party)
        self.caught_up(party)

    def tell_apart(self, party: Party) -> None:
        """Tell which frames are settled behind one that has been waited for too long."""
        frames = party.line.done_apart()
        for first in range(0, len(frames), SETTLED_FRAMES_MAX):
            self.tell(party, Settled(frames[first : first + SETTLED_FRAMES_MAX]))

    def client_left(self, event: ClientLeft) -> None:
        """What a client was to get is nobody's care any more."""
        self.forget(event.client)
        for care in event.client.channel.abandon():
            self.settlement.settle(care)

    # The end of a turn.

    def collect(self) -> list[Effect]:
        """Everything this turn leads to; before the next deadline, no acknowledgement is overdue."""
        if self.now_us >= self.deadline_us:
            self._acknowledge_overdue()
        if self._changed:
            self._write_changed()
        effects = self.effects
        self.effects = []
        return effects

    def _acknowledge_overdue(self) -> None:
        if self.acknowledge_at_us is not None and self.now_us >= self.acknowledge_at_us:
            self.acknowledge_at_us = None
            overdue, self.unacknowledged = self.unacknowledged, {}
            for party in overdue:
                party.channel.telling = False
                frames = self._to_write(party, acknowledge=True)
                if frames and party.connection is not None:
                    self.effects.append(Send(party.connection, frames))

    def _write_changed(self) -> None:
        while self._changed:
            changed, self._changed = self._changed, {}
            # What else there is to say goes with publications that are on their way.
            sends = {effect.connection: effect for effect in self.effects if type(effect) is Send}
            for party in changed:
                due = party.channel.acknowledgement_due()
                frames = self._to_write(party, acknowledge=due)
                if frames and party.connection is not None:
                    send = sends.get(party.connection)
                    if send is not None:
                        send.frames = [*send.frames, *frames]
                    else:
                        self.effects.append(Send(party.connection, frames))

    def _report_left_out(self, party: Party) -> None:
        """Publications can never be sent to a party: nobody waits for that, and the operator hears of it."""
        left_out, party.channel.left_out = party.channel.left_out, []
        for batch, care in left_out:
            self.leave_out(party, batch.publisher, batch.sequences.tolist(), max(map(len, batch.records())))
            self._events.tell(LeftOut(party, batch))
            self.settlement.settle(care, party)

    def leave_out(self, party: Party, publisher: str, sequences: list[int], record_bytes: int) -> None:
        """Publications are too large for what a party reads."""
        self.counters.oversized += len(sequences)
        self.note(
            "warning",
            "publications are too large for a party and are left out",
            party=party.name,
            publisher=publisher,
            sequences=sequences[:SHOWN_MAX],
            publications=len(sequences),
            record_bytes=record_bytes,
            frame_bytes_max=party.channel.frame_bytes_max,
        )

    def _to_write(self, party: Party, acknowledge: bool) -> list[Frame]:
        """What waits for a party and can be written now."""
        frames: list[Frame] = []
        if party.connection is None:
            return frames
        if party.outside:
            frames.extend(Frame(0, message) for message in party.outside)
            party.outside.clear()
        if party.again:
            self.counters.resent_frames += len(party.again)
            frames.extend(party.again)
            party.again = []
        frames += party.channel.take()
        if party.channel.left_out:
            self._report_left_out(party)
        if acknowledge:
            told = party.channel.acknowledgement()
            if told is not None:
                frames.append(Frame(0, told))
            self.unacknowledged.pop(party, None)
            party.channel.telling = False
        elif party.channel.acknowledgement_waits:
            self.acknowledge_later(party)
        return frames
