"""A client's session: what it says to its broker, and when.

All decisions of a client, without sockets or time: a driver reports what happened (`handle`) and performs
what comes back; the application's wishes are method calls (here, and of its `requests`), whose effects wait
in `take_effects`. Connections are opened again when they break; publications that may not have arrived are
sent again, in order, and subscriptions and advertisements are made again, so the application only notices a
pause.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from braid.client.addresses import Addresses
from braid.client.effects import (
    Arrived,
    ClientEffect,
    ClientSettings,
    Connected,
    ConnectionRefused,
    Disconnected,
    Ended,
    Lost,
    Progressed,
    PublicationsDiscarded,
    PublicationsRefused,
    SettledApart,
)
from braid.client.inbox import Inbox, Interest
from braid.client.outbox import Outbox
from braid.client.requests import Requests, refusal
from braid.errors import (
    BraidError,
    ConfigurationError,
    ConnectionLostError,
    PublicationError,
    RemoteProtocolError,
)
from braid.protocol.batch import PUBLISHER_BYTES_MAX, PublicationBatch
from braid.protocol.channel import Channel
from braid.protocol.codec import Frame
from braid.protocol.effects import Close, Dial, Note, Send
from braid.protocol.incoming import STREAM_FIRST, STREAMS_MAX
from braid.protocol.inputs import Closed, Malformed, Opened, Received, Tick, Writable
from braid.protocol.limits import FRAME_BYTES_MAX, carried_bytes, readable_bytes
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledgement,
    Done,
    Failed,
    Goodbye,
    Hello,
    LogReset,
    Message,
    Ping,
    Pong,
    PublishDiscarded,
    PublishRefused,
    Reach,
    Refused,
    Settled,
    StoredPublications,
    Welcome,
)
from braid.protocol.publisher_names import PublisherNames

if TYPE_CHECKING:
    from random import Random

    from braid.protocol.inputs import Input

__all__ = ["ClientSession"]

# A broker that has been silent for so many heartbeats is given up.
SILENT_HEARTBEATS_MAX: Final = 3
# Trying again does not help where the broker refused us for one of these.
FINAL_REFUSALS: Final = frozenset({"authentication", "denied", "version"})
# A broker that ends so many connections in a row, one after the other and without taking anything in between,
# objects to something that is sent again every time.
OBJECTIONS_MAX: Final = 5
# The broker's word for a client that chose to be disconnected when it reads too slowly.
SLOW: Final = "slow"
# Why a broker gets no further credit.
FULL_QUEUE: Final = "a subscription's queue is full"


class _State(Enum):
    WAITING = "waiting to dial"
    DIALLING = "dialling"
    GREETING = "waiting for the broker's welcome"
    LIVE = "connected"
    ENDED = "ended"


class ClientSession:
    """A client's side of everything that is said to brokers, over all of its connections."""

    def __init__(self, settings: ClientSettings, random: Random) -> None:
        """`random` spreads the attempts of many clients to connect again."""
        self.settings = settings
        self.broker = ""
        """The broker's name, once it welcomed us."""
        self.frame_bytes_max = carried_bytes(FRAME_BYTES_MAX)
        """The largest frame that the broker takes."""
        self._random = random
        self._effects: list[ClientEffect] = []
        self._channel: Channel[range] = Channel(settings.channel, STREAM_FIRST + STREAMS_MAX)
        self.outbox = Outbox(self._channel, settings.publisher, settings.first_sequence)
        self.inbox = Inbox()
        self.requests = Requests(self.inbox, self._tell, self._emit)
        # The connection.
        self._state = _State.WAITING
        self._connection: int | None = None
        self._addresses = Addresses(settings.addresses)
        self._attempts = 0
        self._objections = 0
        self._dial_at_us = 0
        self._give_up_at_us = 0
        self._live_since_us = 0
        self._failure = ""
        self._heard_us = 0
        self._ping_at_us = 0
        self._pings = 0
        self._acknowledge_at_us: int | None = None
        self._told_received = 0
        self._introducing = False
        self._full_classes: set[int] = set()
        """The classes for which the broker gets no further credit."""

    # The driver's side.

    def start(self, now_us: int) -> list[ClientEffect]:
        """Open the first connection."""
        self._give_up_at_us = now_us + self.settings.connect_for_us
        self._dial(now_us)
        return self.take_effects()

    def handle(self, stimulus: Input, now_us: int) -> list[ClientEffect]:
        """Take in what happened and say what is to be done, in order."""
        if self._state is _State.ENDED:
            if isinstance(stimulus, Opened):
                self._effects.append(Close(stimulus.connection, "not needed any more"))
        elif isinstance(stimulus, Received):
            if stimulus.connection == self._connection:
                self._received(stimulus, now_us)
        elif isinstance(stimulus, Writable):
            if stimulus.connection == self._connection:
                self._channel.writable = stimulus.writable
                self._pump()
        elif isinstance(stimulus, Tick):
            self._tick(now_us)
        elif isinstance(stimulus, Opened):
            self._opened(stimulus, now_us)
        elif isinstance(stimulus, Closed):
            dial_failed = self._state is _State.DIALLING and stimulus.connection is None
            if dial_failed or (self._connection is not None and stimulus.connection == self._connection):
                reason = stimulus.reason
                if self._state is _State.GREETING:
                    # What a listener with TLS does to those who do not speak it, or show no certificate.
                    reason += ", before it answered; does it expect TLS (braids://) or a client certificate?"
                self._disconnected(reason, now_us)
        elif isinstance(stimulus, Malformed) and stimulus.connection == self._connection:
            self._give_connection_up(f"the broker sent something malformed: {stimulus.reason}", now_us)
        return self.take_effects()

    def next_deadline_us(self) -> int | None:
        """When a `Tick` is due at the latest."""
        if self._state is _State.ENDED:
            return None
        if self._state is _State.WAITING:
            return min(self._dial_at_us, self._give_up_at_us)
        if self._state is _State.DIALLING:
            return self._give_up_at_us
        deadline = min(self._ping_at_us, self._silence_ends_us())
        if self._state is _State.GREETING:
            return min(deadline, self._give_up_at_us)
        if self._addresses.away and self.inbox.has_durables:
            deadline = min(deadline, self._addresses.look_at_us)
        return deadline if self._acknowledge_at_us is None else min(deadline, self._acknowledge_at_us)

    def take_effects(self) -> list[ClientEffect]:
        """What method calls have asked for since the last time."""
        effects, self._effects = self._effects, []
        return effects

    # The application's side.

    @property
    def live(self) -> bool:
        """Whether a broker listens at the moment."""
        return self._state is _State.LIVE

    @property
    def ended(self) -> bool:
        """Whether the session is over for good."""
        return self._state is _State.ENDED

    @property
    def has_room(self) -> bool:
        """Whether the next publication may be added."""
        return self.outbox.kept_bytes < self.settings.outgoing_bytes_max

    def publish(self, record: bytes, manner: int) -> int:
        """Put a publication in line for the next `flush`; returns its sequence number.

        Raises:
            PublicationError: the broker takes no frame that is so large.
        """
        self.check_size(record)
        return self.outbox.add(record, manner)

    @property
    def readable_bytes_max(self) -> int:
        """The largest frame that the broker may send: brokers add to what they take."""
        return readable_bytes(self.frame_bytes_max)

    def check_size(self, record: bytes) -> None:
        """Raise a `PublicationError` if the broker takes no frame that is so large."""
        bytes_max = self.frame_bytes_max - self.outbox.overhead
        if len(record) > bytes_max:
            raise PublicationError(
                f"a publication of {len(record):,} bytes; this broker takes at most {bytes_max:,}"
            )

    def flush(self) -> None:
        """Send what has collected, as far as the broker takes it."""
        if self._state is _State.LIVE:
            self._refuse_too_large(self.outbox.seal(self.frame_bytes_max))
            self._pump()

    def unsubscribe(self, interest: Interest) -> int:
        """Nothing more is queued for it; returns the request to wait for, 0 if there is none."""
        request = self.requests.unsubscribe(interest)
        self._make_room()
        return request

    def made_room(self, interest: Interest) -> None:
        """The consumer has read from a `crowded` queue."""
        interest.move_up()
        if interest.dormant and interest.open and not interest.line and self.live:
            self.requests.revive(interest)
        self._make_room()

    def close(self, reason: str) -> None:
        """Leave on purpose."""
        if self._state is _State.LIVE:
            self.flush()
            self._send(Goodbye(reason))
        if self._connection is not None:
            self._effects.append(Close(self._connection, reason))
        self._state = _State.ENDED
        self._channel.disconnect()

    # Connections.

    def _dial(self, now_us: int) -> None:
        if self.inbox.nobody_reads and self.inbox.waiting_bytes > self.settings.channel.window_bytes:
            # The application has not read what former connections brought, and wants nothing else.
            self._dial_at_us = now_us + self.settings.backoff_us_min
            self._give_up_at_us += self.settings.backoff_us_min
            return
        self._state = _State.DIALLING
        self._effects.append(Dial(self._addresses.take()))

    def _opened(self, opened: Opened, now_us: int) -> None:
        if self._state is not _State.DIALLING:
            self._effects.append(Close(opened.connection, "not needed any more"))
            return
        self._state = _State.GREETING
        self._connection = opened.connection
        self._hear(now_us)
        settings = self.settings
        # In a new session everything counts from its start, so the credit is the whole window.
        self._send(
            Hello(
                PROTOCOL_VERSION,
                "client",
                settings.name,
                settings.incarnation,
                settings.token,
                credit=settings.channel.window_bytes,
                secret=settings.secret,
                elsewhere=True,
            )
        )

    def _welcomed(self, welcome: Welcome, now_us: int) -> None:
        if welcome.version != PROTOCOL_VERSION:
            self._end(
                ConnectionLostError(
                    f"the broker {welcome.name!r} speaks version {welcome.version} of the protocol, and this "
                    f"client version {PROTOCOL_VERSION}; bring both to the same release"
                )
            )
            return
        names = PublisherNames(welcome.principal, self.settings.secret)
        publisher = names.name(self.settings.publisher, self.settings.epoch)
        if len(publisher.encode()) > PUBLISHER_BYTES_MAX:
            self._end(
                ConfigurationError(
                    f"the publisher would be called {publisher!r} in the network, and that is longer than "
                    f"{PUBLISHER_BYTES_MAX} bytes; choose a shorter name"
                )
            )
            return
        self._state = _State.LIVE
        self._live_since_us = now_us
        self._acknowledge_at_us = None
        self._told_received = 0
        moved = self.broker not in ("", welcome.name)
        self.broker = welcome.name
        self._addresses.welcomed(welcome.name, now_us)
        self.frame_bytes_max = welcome.frame_bytes_max or carried_bytes(FRAME_BYTES_MAX)
        self.requests.frame_bytes_max = self.frame_bytes_max
        self._channel.restart(welcome.credit)
        self.inbox.restarted()
        for number in self._full_classes:
            self._channel.release_credit(FULL_QUEUE, number)
        self._full_classes = set()
        too_large = self.outbox.restarted(publisher, self.frame_bytes_max)
        self._effects.append(Connected(welcome.name, moved))
        self._refuse_too_large(too_large)
        # Before any publication: whoever publishes unannounced counts as announcing everything.
        self._introducing = True
        self.requests.introduce(durables=not self._addresses.away)
        self._introducing = False
        self.flush()

    def _refuse_too_large(self, sequences: list[int]) -> None:
        """This broker takes smaller frames than the one before it."""
        if sequences:
            error = PublicationError(
                f"the broker {self.broker!r} takes frames of at most {self.frame_bytes_max:,} bytes"
            )
            self._effects.append(PublicationsRefused(tuple(sequences), error))
            self._effects.append(Progressed(self.outbox.received, self.outbox.settled))

    def _disconnected(self, reason: str, now_us: int) -> None:
        """Wait a little and try again, if there is time left."""
        was_live = self._state is _State.LIVE
        self._connection = None
        self._channel.disconnect()
        self._failure = reason
        self._state = _State.WAITING
        self._addresses.lost()
        if was_live:
            self._give_up_at_us = now_us + self.settings.reconnect_for_us
            if now_us - self._live_since_us >= self.settings.backoff_us_max:
                # It was a good connection; a broker that drops us at once is spared.
                self._attempts = self._objections = 0
            self._effects.append(Disconnected(reason))
            self.requests.disconnected(reason)
        pause_us = min(self.settings.backoff_us_max, self.settings.backoff_us_min << min(self._attempts, 20))
        self._attempts += 1
        self._dial_at_us = now_us + int(pause_us * (0.5 + self._random.random() / 2))
        if now_us >= self._give_up_at_us:
            self._give_up()

    def _give_connection_up(self, reason: str, now_us: int) -> None:
        if self._connection is not None:
            self._effects.append(Close(self._connection, reason))
            self._effects.append(Note("warning", "gave a connection up", {"reason": reason}))
            self._disconnected(reason, now_us)

    def _give_up(self) -> None:
        addresses = self._addresses
        if self.broker:
            text = f"the connection to the broker was lost and could not be made again ({addresses})"
        else:
            text = f"no broker could be reached ({addresses})"
        self._end(ConnectionLostError(f"{text}: {self._failure or 'no answer in time'}"))

    def _end(self, error: BraidError) -> None:
        if self._connection is not None:
            self._effects.append(Close(self._connection, str(error)))
            self._connection = None
        self._channel.disconnect()
        self._state = _State.ENDED
        self._effects.append(Lost(error))

    # What arrives.

    def _received(self, received: Received, now_us: int) -> None:
        self._hear(now_us)
        if not received.frames and self._state is _State.LIVE:
            self._send(Pong(0))  # what the broker asks is behind the long frame that it sends
        try:
            for frame in received.frames:
                self._frame(frame, now_us)
                if self._connection != received.connection:
                    return
            # What is settled is told with the next acknowledgement; only acknowledged rows make it urgent.
            self._review_credit()
        except RemoteProtocolError as error:
            self._give_connection_up(str(error), now_us)
            return
        if self._state is _State.LIVE:
            self._pump()
            self._acknowledge(now_us)

    def _frame(self, frame: Frame, now_us: int) -> None:
        body = frame.body
        if self._state is _State.GREETING:
            self._greeted(body, now_us)
        elif frame.sequence:
            if self._channel.accept(frame):
                self._sequenced(frame)
                if isinstance(body, Reach):
                    self._told_places(body, now_us)
        elif isinstance(body, Acknowledgement):
            if self.outbox.acknowledged(body):
                self._objections = 0
                self._effects.append(Progressed(self.outbox.received, self.outbox.settled))
        elif isinstance(body, Ping):
            self._send(Pong(body.number))
        elif isinstance(body, Goodbye):
            self._give_connection_up(f"the broker says goodbye: {body.reason or 'no reason given'}", now_us)
        elif isinstance(body, Refused):
            self._refused(body, now_us)
        elif not isinstance(body, Pong):
            raise RemoteProtocolError(f"a {type(body).__name__} in the middle of a session")

    def _greeted(self, body: object, now_us: int) -> None:
        if isinstance(body, Welcome):
            self._welcomed(body, now_us)
        elif isinstance(body, Refused):
            self._refused(body, now_us)
        elif isinstance(body, Goodbye):
            self._give_connection_up(f"the broker says goodbye: {body.reason or 'no reason given'}", now_us)
        else:
            raise RemoteProtocolError(f"a {type(body).__name__} where a welcome was expected")

    def _refused(self, refused: Refused, now_us: int) -> None:
        if self._state is _State.LIVE:
            self._objections += 1
        final = refused.code in FINAL_REFUSALS or self._objections >= OBJECTIONS_MAX
        self._effects.append(ConnectionRefused(refused.code, refused.reason, final))
        if final:
            self._end(refusal(refused.code, f"the broker refused the connection: {refused.reason}"))
        else:
            if refused.code == SLOW:
                self.requests.end_slow_consumers(refused.reason)
            self._give_connection_up(
                f"the broker refused the connection ({refused.code}): {refused.reason}", now_us
            )

    def _sequenced(self, frame: Frame) -> None:
        body = frame.body
        if isinstance(body, PublicationBatch):
            for interest in self.inbox.deliver(body, frame.sequence):
                self._arrived(interest)
            if body.acknowledged:
                self._settle()
        elif isinstance(body, StoredPublications):
            reader = self.inbox.deliver_stored(body, frame.sequence)
            if reader is not None:
                self._arrived(reader)
            self._settle()
        elif isinstance(body, Settled):
            apart = self.outbox.settled_apart(body.frames)
            self._effects.append(SettledApart(tuple(apart)))
            self._effects.append(Progressed(self.outbox.received, self.outbox.settled))
        elif isinstance(body, LogReset):
            self.requests.log_reset(body)
        elif isinstance(body, Done):
            self.requests.answered(body.request, body.text, None, body.missing)
        elif isinstance(body, Failed):
            self.requests.answered(body.request, "", refusal(body.code, body.reason))
        elif isinstance(body, PublishRefused):
            error = refusal(body.code, body.reason)
            self._effects.append(PublicationsRefused(tuple(body.sequences), error))
        elif isinstance(body, PublishDiscarded):
            news = self.outbox.news_of_discarded(body)
            if news:
                why = _why_discarded(body)
                self._effects.append(PublicationsDiscarded(tuple(news), why, body.known, body.highest))
        elif not isinstance(body, Reach):
            raise RemoteProtocolError(f"a client was sent a {type(body).__name__}")

    def _told_places(self, reach: Reach, now_us: int) -> None:
        """The broker says where else this client may go."""
        self._addresses.told(reach.neighbours)
        if self.inbox.has_durables and self._addresses.go_home():
            self._give_connection_up("another process has the place of the broker with its logs", now_us)

    def _arrived(self, interest: Interest) -> None:
        self._effects.append(Arrived(interest))
        if interest.line and self.inbox.lagging(interest):
            self.requests.separate(interest)
        if not interest.open:
            # Its queue overflowed, and it wanted to be ended then.
            interest.open = True
            self.requests.unsubscribe(interest)
            self._effects.append(Ended(interest))

    # How far it has come.

    def _settle(self) -> None:
        settled = self._channel.settled = self.inbox.settled(self._channel.received)
        apart = self.inbox.settled_apart(settled)
        if apart:
            self._tell(Settled(apart))
        self._review_credit()

    def _review_credit(self) -> None:
        """While a subscription's queue is full, the broker gets no further credit for its class."""
        full = self.inbox.full_classes()
        for number in full - self._full_classes:
            self._channel.hold_credit(FULL_QUEUE, number)
        for number in self._full_classes - full:
            self._channel.release_credit(FULL_QUEUE, number)
        self._full_classes = full

    def _make_room(self) -> None:
        """Rows that waited may have found room: the broker may settle them, and send more."""
        if self._state is _State.LIVE:
            before = (self._channel.settled, self._full_classes)
            self._settle()
            if before != (self._channel.settled, self._full_classes):
                self._send_acknowledgement()

    def _acknowledge(self, now_us: int) -> None:
        if self._channel.acknowledgement_due():
            self._send_acknowledgement()
        elif self._acknowledge_at_us is None and self._channel.received > self._told_received:
            self._acknowledge_at_us = now_us + self.settings.channel.acknowledge_delay_us

    def _send_acknowledgement(self) -> None:
        self._settle()
        self._acknowledge_at_us = None
        self._told_received = self._channel.received
        acknowledgement = self._channel.acknowledgement()
        if acknowledgement is not None:
            self._send(acknowledgement)

    # Time.

    def _hear(self, now_us: int) -> None:
        self._heard_us = now_us
        self._ping_at_us = now_us + self.settings.heartbeat_us

    def _silence_ends_us(self) -> int:
        return self._heard_us + SILENT_HEARTBEATS_MAX * self.settings.heartbeat_us

    def _tick(self, now_us: int) -> None:
        if self._state is not _State.LIVE and now_us >= self._give_up_at_us:
            self._give_up()
        elif self._state is _State.WAITING:
            if now_us >= self._dial_at_us:
                self._dial(now_us)
        elif self._state in (_State.GREETING, _State.LIVE):
            if now_us >= self._silence_ends_us():
                silence_s = (now_us - self._heard_us) / 1e6
                self._give_connection_up(f"the broker has been silent for {silence_s:.1f} s", now_us)
                return
            if now_us >= self._ping_at_us:
                self._ping_at_us = now_us + self.settings.heartbeat_us
                if self._state is _State.LIVE:
                    for interest in self.inbox.all_lagging():  # there may have been no room for a stream
                        self.requests.separate(interest)
                    self._pings += 1
                    self._send(Ping(self._pings))
            if self._acknowledge_at_us is not None and now_us >= self._acknowledge_at_us:
                self._send_acknowledgement()
            if self._state is _State.LIVE and self.inbox.has_durables and self._addresses.look(now_us):
                self._give_connection_up("looks whether the broker with its logs is back", now_us)

    # Writing.

    def _pump(self) -> None:
        """Send what the channel lets go."""
        frames = self._channel.take()
        if frames and self._connection is not None:
            self.outbox.sent(frames)
            self._effects.append(Send(self._connection, frames))

    def _tell(self, message: Message) -> bool:
        if self._state is not _State.LIVE:
            return False
        self._channel.offer(message)
        if not self._introducing:
            self._pump()
        return True

    def _emit(self, effect: ClientEffect) -> None:
        self._effects.append(effect)

    def _send(self, message: Message) -> None:
        if self._connection is not None:
            self._effects.append(Send(self._connection, [Frame(0, message)]))


def _why_discarded(discarded: PublishDiscarded) -> str:
    if discarded.known:
        return "publications with these numbers were here before"
    return f"they are too old to be told from repetitions of what was here up to number {discarded.highest:,}"
