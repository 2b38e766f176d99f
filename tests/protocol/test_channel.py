"""Is anything lost, doubled or overtaken between two channels, whatever happens to the connection?

A state machine drives two channels over a connection that breaks at any point and comes back, as the same
session or as a new one. It knows what was offered, and looks at everything that arrives.
"""

from __future__ import annotations

from collections import deque
from itertools import starmap
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from braid.errors import RemoteProtocolError
from braid.protocol import Channel, ChannelSettings, Frame, FrameDecoder, PublicationBatch, encode_frames
from braid.protocol.batch import encode_record
from braid.protocol.messages import Acknowledgement, Done, Settled, StoredPublications

if TYPE_CHECKING:
    from collections.abc import Iterable

SETTINGS = ChannelSettings(window_bytes=400, resend_bytes_max=600, acknowledge_after_frames=3)
# A batch with the largest body that is tried.
FRAME_BYTES_MAX = 800
SIDES = st.sampled_from([0, 1])


def batch_of(
    number: int, body_bytes: int, *, care: bool, target: int = 0, publisher: str = "p"
) -> PublicationBatch:
    record = encode_record({"n": number}, 0, b"x" * body_bytes)
    batch = PublicationBatch.of(publisher, [number], [record], acknowledged=care, receipt=number % 5 == 0)
    batch.target = target
    return batch


def _sizes(frames: Iterable[Frame]) -> list[int]:
    return [frame.body.size for frame in frames if isinstance(frame.body, PublicationBatch)]


class Side:
    """A channel with everything the test knows about it."""

    def __init__(self) -> None:
        self.channel: Channel[int] = Channel(SETTINGS)
        self.wire: deque[bytes] = deque()
        """What is on its way from here."""
        self.decoder = FrameDecoder()
        self.offered: dict[int, list[int]] = {0: [], 1: []}
        """Publications of each class, by number; `cares` are those that somebody waits for."""
        self.numbers = 0
        self.cares: set[int] = set()
        self.released: list[int] = []
        self.messages: deque[int] = deque()
        """Messages of this session that have not arrived."""
        self.said = 0
        self.heard: dict[int, list[int]] = {0: [], 1: []}
        """Publications from the other side, without those that came again in a later session."""
        self.heard_now: dict[int, list[int]] = {0: [], 1: []}
        self.settled_numbers: set[int] = set()
        self.frames_heard: list[tuple[int, int]] = []
        """In this session: frame number and publication, for those that came."""

    def begin(self) -> None:
        self.channel.restart(SETTINGS.window_bytes)
        self.messages.clear()
        self.heard_now, self.frames_heard = {0: [], 1: []}, []

    def write(self, frames: list[Frame]) -> None:
        if frames:
            self.wire.append(encode_frames(frames))

    def pump(self) -> None:
        """One turn: what can be written, and an acknowledgement if one is due."""
        if self.channel.connected:
            frames = self.channel.take()
            if self.channel.acknowledgement_due():
                told = self.channel.acknowledgement()
                frames += [Frame(0, told)] if told is not None else []
            self.write(frames)

    def receive(self, data: bytes, source: Side) -> None:
        for frame in self.decoder.feed(data):
            body = frame.body
            if isinstance(body, Acknowledgement):
                self._release(self.channel.acknowledged(body), source)
                continue
            if not self.channel.accept(frame):
                continue
            if isinstance(body, Settled):
                self._release(self.channel.settled_apart(body.frames), source)
            elif isinstance(body, PublicationBatch):
                (number,) = body.sequences.tolist()
                heard, heard_now = self.heard[body.target], self.heard_now[body.target]
                assert number not in heard_now, "doubled within a session"
                assert not heard_now or number > heard_now[-1], "overtaken within a session"
                heard_now.append(number)
                if not heard or number > heard[-1]:
                    heard.append(number)
                self.frames_heard.append((frame.sequence, number))
            else:
                assert isinstance(body, Done)
                assert source.messages.popleft() == body.request, "messages arrive once and in order"

    def _release(self, numbers: list[int], source: Side) -> None:
        for number in numbers:
            assert number in source.settled_numbers, "settled here before it was settled there"
            self.released.append(number)

    def settle_apart(self, place: int) -> None:
        """Say of one frame that has arrived that it needs no care any more, whatever is before it."""
        sequence, number = self.frames_heard[place % len(self.frames_heard)]
        self.settled_numbers.add(number)
        self.channel.offer(Settled([sequence]))

    def settle(self, count: int | None = None) -> None:
        """Say that the first so many frames (or all) that have arrived need no care any more."""
        level = (
            self.channel.received
            if count is None
            else min(self.channel.settled + count, self.channel.received)
        )
        self.channel.settled = max(self.channel.settled, level)
        for sequence, number in self.frames_heard:
            if sequence <= self.channel.settled:
                self.settled_numbers.add(number)


class TwoChannels(RuleBasedStateMachine):
    @initialize()
    def meet(self) -> None:
        self.sides = (Side(), Side())
        for side in self.sides:
            side.begin()

    @property
    def connected(self) -> bool:
        return self.sides[0].channel.connected

    @rule(
        which=SIDES,
        size=st.sampled_from([0, 20, 90, 300, 700]),
        care=st.booleans(),
        count=st.integers(1, 4),
        number_of_class=st.sampled_from([0, 0, 1]),
    )
    def publish(self, which: int, size: int, care: bool, count: int, number_of_class: int) -> None:
        side = self.sides[which]
        for _ in range(count):
            side.numbers += 1
            number = side.numbers
            side.offered[number_of_class].append(number)
            if care:
                side.cares.add(number)
            batch = batch_of(number, size, care=care, target=number_of_class)
            side.channel.offer(batch, number if care else None)
        side.pump()

    @rule(which=SIDES)
    def say(self, which: int) -> None:
        side = self.sides[which]
        side.said += 1
        side.messages.append(side.said)
        side.channel.offer(Done(side.said))
        side.pump()

    @rule(which=SIDES, count=st.integers(1, 5))
    def carry(self, which: int, count: int) -> None:
        """Some of what was written arrives."""
        source, target = self.sides[which], self.sides[1 - which]
        for _ in range(min(count, len(source.wire))):
            target.receive(source.wire.popleft(), source)
        target.pump()

    @rule(which=SIDES, count=st.integers(1, 3))
    def settle(self, which: int, count: int) -> None:
        self.sides[which].settle(count)
        self.sides[which].pump()

    @rule(which=SIDES, place=st.integers(0, 50))
    def settle_apart(self, which: int, place: int) -> None:
        side = self.sides[which]
        if side.frames_heard and self.connected:
            side.settle_apart(place)
            side.pump()

    @rule(which=SIDES)
    def acknowledge(self, which: int) -> None:
        """The time for which an acknowledgement may wait is over."""
        side = self.sides[which]
        told = side.channel.acknowledgement() if side.channel.connected else None
        if told is not None:
            side.write([Frame(0, told)])

    @rule()
    def exchange(self) -> None:
        """Everything arrives and is acknowledged as received; what is settled is another matter."""
        for which in (0, 1, 0, 1):
            self.carry(which, 100)
            self.acknowledge(which)

    @rule(which=SIDES, withheld=st.booleans(), number=st.sampled_from([None, 0, 1]))
    def withhold(self, which: int, withheld: bool, number: int | None) -> None:
        channel = self.sides[which].channel
        (channel.hold_credit if withheld else channel.release_credit)("slow", number)

    @rule(which=SIDES, writable=st.booleans())
    def fill(self, which: int, writable: bool) -> None:
        self.sides[which].channel.writable = writable
        self.sides[which].pump()

    @rule(which=SIDES, holding=st.booleans())
    def hold(self, which: int, holding: bool) -> None:
        self.sides[which].channel.holding = holding
        self.sides[which].pump()

    @precondition(lambda self: self.connected)
    @rule()
    def lose_connection(self) -> None:
        for side in self.sides:
            side.channel.disconnect()
            side.wire.clear()
            side.decoder = FrameDecoder()

    @precondition(lambda self: not self.connected)
    @rule()
    def resume(self) -> None:
        received = [side.channel.received for side in self.sides]
        for side, peer_received in zip(self.sides, reversed(received), strict=True):
            side.write(side.channel.resume(peer_received))
            side.pump()

    @rule()
    def restart(self) -> None:
        """One of them has forgotten everything, so that both begin anew."""
        for side in self.sides:
            side.wire.clear()
            side.decoder = FrameDecoder()
            side.begin()
        for side in self.sides:
            side.pump()

    @invariant()
    def bounds_are_kept(self) -> None:
        for side in getattr(self, "sides", ()):
            channel = side.channel
            assert channel.waiting_bytes == sum(each.size for each in channel._waiting())
            sent = list(channel._sent_last())
            sizes = _sizes(sent)
            assert channel.unacknowledged_bytes == sum(sizes)
            backlogs = [channel.backlog_bytes_of(number) for number in (0, 1)]
            assert sum(backlogs) == channel.backlog_bytes
            assert all(backlog >= 0 for backlog in backlogs)
            assert channel.unacknowledged_messages == len(sent) - len(sizes)
            assert channel.unsettled_bytes == sum(_sizes(starmap(Frame, channel._unsettled.items())))
            assert channel._unsettled.keys() <= channel._cares.keys()
            assert channel._cares.keys() <= {*channel._unsettled, *(frame.sequence for frame in sent)}
            assert channel.unacknowledged_bytes <= SETTINGS.resend_bytes_max or len(sizes) == 1
            assert len(side.released) == len(set(side.released)), "released twice"
            assert all(heard == sorted(set(heard)) for heard in side.heard.values())

    @invariant()
    def credit_is_kept(self) -> None:
        for side in getattr(self, "sides", ()):
            channel = side.channel
            # Only one frame that is larger than the window goes beyond. The receiver, which refuses what
            # exceeds the credit it has given, checks this more closely.
            assert all(sending.room >= -FRAME_BYTES_MAX for sending in channel._sending.values())

    def teardown(self) -> None:
        if not hasattr(self, "sides"):
            return
        if not self.connected:
            self.resume()
        for side in self.sides:
            for number in (None, 0, 1):
                side.channel.release_credit("slow", number)
            side.channel.holding = False
            side.channel.writable = True
        for _ in range(2000):
            for which in (0, 1):
                self.sides[which].settle()
                self.sides[which].pump()
                self.acknowledge(which)
                self.carry(which, 100)
            if all(side.channel.idle and not side.wire for side in self.sides):
                break
        for side, other in zip(self.sides, reversed(self.sides), strict=True):
            assert side.channel.idle, "something is stuck"
            assert other.heard == side.offered, "lost"
            assert not side.messages, "messages lost"
            assert sorted(side.released) == sorted(side.cares), "everybody who waited has heard, once"
            assert side.channel.backlog_bytes == 0


TestTwoChannels = TwoChannels.TestCase
TestTwoChannels.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


def connected(credit: int = 1 << 20, **choices: Any) -> Channel[str]:
    channel: Channel[str] = Channel(ChannelSettings(**choices))
    channel.restart(credit)
    return channel


def test_messages_overtake_waiting_publications_and_nothing_else_does() -> None:
    channel = connected(credit=0)
    channel.offer(batch_of(1, 0, care=False))
    channel.offer(batch_of(2, 0, care=False))
    assert [frame.sequence for frame in channel.take()] == [1], "with no credit at all one frame goes alone"
    channel.offer(Done(7))
    assert [(frame.sequence, frame.body) for frame in channel.take()] == [(2, Done(7))]
    channel.acknowledged(Acknowledgement(2, 0, 1000))
    assert [frame.sequence for frame in channel.take()] == [3]


def test_what_is_settled_apart_is_kept_no_longer() -> None:
    """However long the first of them takes, those behind it that are done with take no room."""
    sender: Channel[int] = Channel(SETTINGS)
    sender.restart(10_000)
    for number in range(1, 5):
        sender.offer(batch_of(number, 50, care=True), number)
    sizes = _sizes(sender.take())
    assert sender.settled_apart([3]) == [3]
    assert sender.acknowledged(Acknowledgement(4, 0, 10_000)) == []
    assert sender.unsettled_bytes == sum(sizes) - sizes[2]
    assert sender.settled_apart([2, 3, 4]) == [2, 4]
    assert sender.unsettled_bytes == sender.backlog_bytes == sizes[0]
    assert sender.acknowledged(Acknowledgement(4, 4, 10_000)) == [1]
    assert sender.idle


@pytest.mark.parametrize(
    ("acknowledgement", "complaint"),
    [
        (Acknowledgement(3, 0, 1 << 20), "3 received and 0 settled"),
        (Acknowledgement(1, 2, 1 << 20), "1 received and 2 settled"),
        (Acknowledgement(-1, -1, 1 << 20), "-1 received"),
        (Acknowledgement(2, 0, 10), "a credit of 10 bytes"),
    ],
)
def test_a_peer_that_claims_what_cannot_be_is_refused(
    acknowledgement: Acknowledgement, complaint: str
) -> None:
    channel = connected()
    for number in (1, 2):
        channel.offer(batch_of(number, 0, care=True), f"care {number}")
    assert len(channel.take()) == 2
    with pytest.raises(RemoteProtocolError, match=complaint):
        channel.acknowledged(acknowledgement)
    assert channel.acknowledged(Acknowledgement(2, 1, 1 << 20)) == ["care 1"], "nothing has changed by it"
    with pytest.raises(RemoteProtocolError, match="after 2 and 1 of 2"):
        channel.acknowledged(Acknowledgement(1, 1, 1 << 20))


@pytest.mark.parametrize("received", [-1, 3])
def test_a_session_is_resumed_only_where_it_can_be(received: int) -> None:
    channel = connected()
    for number in (1, 2):
        channel.offer(batch_of(number, 0, care=False))
    channel.take()
    channel.acknowledged(Acknowledgement(1, 0, 1 << 20))
    channel.disconnect()
    assert channel.take() == []
    with pytest.raises(RemoteProtocolError, match="a session is resumed after frame"):
        channel.resume(received)
    # What it said when it dialled may be older than what it acknowledged on the former connection since.
    assert [frame.sequence for frame in channel.resume(0)] == [2]


def test_a_gap_and_too_much_are_refused() -> None:
    channel = connected(window_bytes=100)
    with pytest.raises(RemoteProtocolError, match="frame 2 arrived after frame 0"):
        channel.accept(Frame(2, Done(1)))
    assert channel.accept(Frame(1, batch_of(1, 500, care=False))), "one that is larger than the window, alone"
    assert not channel.accept(Frame(1, batch_of(1, 500, care=False)))
    with pytest.raises(RemoteProtocolError, match="where the credit leaves -"):
        channel.accept(Frame(2, batch_of(2, 0, care=False)))
    told = channel.acknowledgement()
    assert told is not None
    assert channel.accept(Frame(2, batch_of(2, 0, care=False)))


def test_no_credit_is_given_while_it_is_withheld() -> None:
    channel = connected(window_bytes=1000)
    channel.hold_credit("slow")
    channel.hold_credit("full")
    first = batch_of(1, 500, care=False)
    channel.accept(Frame(1, first))
    assert channel.acknowledgement() == Acknowledgement(1, 0, 1000, held=True)
    assert not channel.release_credit("unheard of")
    assert not channel.release_credit("slow")
    assert channel.withheld
    assert channel.release_credit("full")
    assert channel.acknowledgement_due()
    assert channel.acknowledgement() == Acknowledgement(1, 0, 1000 + first.size)
    assert channel.acknowledgement() is None
    assert not channel.acknowledgement_waits


def test_what_is_settled_is_told_at_once_only_if_somebody_waits() -> None:
    channel = connected()
    channel.accept(Frame(1, batch_of(1, 0, care=False)))
    channel.settled = 1
    assert not channel.acknowledgement_due()
    channel.accept(Frame(2, StoredPublications("log", 0, [])))
    assert not channel.acknowledgement_due()
    channel.settled = 2
    assert channel.acknowledgement_due()
    assert channel.acknowledgement() == Acknowledgement(2, 2, channel.credit_to_grant)
    assert not channel.acknowledgement_due()


def test_while_holding_only_what_nobody_cares_for_may_pass() -> None:
    channel = connected()
    channel.holding = True
    for number, publisher in ((1, "p"), (2, "p"), (3, "other"), (4, "p")):
        batch = batch_of(number, 0, care=number == 2, publisher=publisher)
        channel.offer(batch, "care" if number == 2 else None)
    assert channel.take() == []
    channel.passing = True
    # The fourth is behind one of its own publisher that is held, and must not overtake it.
    assert [frame.body.sequences.tolist() for frame in channel.take()] == [[1], [3]]  # type: ignore[union-attr]
    channel.holding = channel.passing = False
    assert [frame.body.sequences.tolist() for frame in channel.take()] == [[2], [4]]  # type: ignore[union-attr]


@given(
    st.lists(st.tuples(st.sampled_from([0, 50, 200]), st.sampled_from([1, 2]), st.booleans()), max_size=8),
    st.integers(0, 1200),
)
def test_drop_oldest_agrees_with_dropping_one_by_one(
    rows: list[tuple[int, int, bool]], bytes_max: int
) -> None:
    channel: Channel[str] = Channel(ChannelSettings())
    waiting = []
    for number, (size, target, care) in enumerate(rows, 1):
        batch = batch_of(number, size, care=care, target=target)
        channel.offer(batch, "care" if care else None)
        waiting.append((number, batch.size, target == 2 and not care))
    kept = list(waiting)
    for each in waiting:
        if sum(size for _, size, _ in kept) > bytes_max and each[2]:
            kept.remove(each)
    assert channel.drop_oldest(bytes_max, 2) == len(waiting) - len(kept)
    assert channel.waiting_bytes == sum(size for _, size, _ in kept)
    channel.restart(1 << 20)
    assert [frame.body.sequences.tolist() for frame in channel.take()] == [  # type: ignore[union-attr]
        [number] for number, _, _ in kept
    ]


def test_refilter_replaces_what_waits_and_frees_who_waited_for_what_went() -> None:
    channel: Channel[str] = Channel(ChannelSettings())
    for number in (1, 2, 3):
        channel.offer(batch_of(number, 10, care=True), f"care {number}")
    small = batch_of(2, 0, care=True)
    freed = channel.refilter(
        lambda batch: {1: batch, 2: small, 3: None}[int(batch.sequences[0])],
    )
    assert freed == ["care 3"]
    assert channel.waiting_bytes == batch_of(1, 10, care=True).size + small.size
    assert channel.cares
    assert channel.abandon() == ["care 1", "care 2"]
    assert channel.idle
    assert not channel.backlog_bytes


STEPS = st.sampled_from(["publish", "publish", "message", "acknowledge", "writable", "holding", "connected"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 500)), max_size=30))
def test_sending_is_what_offering_and_taking_would_have_done(steps: list[tuple[str, int]]) -> None:
    usual: Channel[int] = Channel(SETTINGS)
    quick: Channel[int] = Channel(SETTINGS)
    for channel in (usual, quick):
        channel.restart(400)
    credit = 400
    for number, (step, size) in enumerate(steps, 1):
        frames = []
        for channel in (usual, quick):
            if step == "publish":
                batch = batch_of(number, size, care=False)
                frame = channel.send(batch, None) if channel is quick else None
                if frame is None:
                    channel.offer(batch)
                found = [frame] if frame is not None else channel.take()
            else:
                if step == "message":
                    channel.offer(Done(number, ""))
                elif step == "acknowledge":
                    channel.acknowledged(Acknowledgement(channel.sent, channel.sent, credit + size))
                else:
                    setattr(channel, step, not getattr(channel, step))
                found = [] if size % 2 else channel.take()
            frames.append(encode_frames(found))
        if step == "acknowledge":
            credit += size
        assert frames[0] == frames[1]
        assert (usual.sent, usual.backlog_bytes) == (quick.sent, quick.backlog_bytes)
        assert usual.unacknowledged_bytes == quick.unacknowledged_bytes


@given(
    sizes=st.lists(st.tuples(st.integers(0, 90), st.booleans(), st.booleans()), max_size=30),
    withheld=st.booleans(),
)
def test_an_acknowledgement_is_not_due_before_something_says_that_it_may_be(
    sizes: list[tuple[int, bool, bool]], withheld: bool
) -> None:
    """So whoever reads a publication need not ask each time."""
    channel: Channel[int] = Channel(SETTINGS)
    if withheld:
        channel.hold_credit("slow")
    for number, (size, receipt, pause) in enumerate(sizes, 1):
        batch = PublicationBatch.of("p", [number], [bytes(size)], receipt=receipt and pause)
        try:
            assert channel.accept(Frame(number, batch))
        except RemoteProtocolError:
            return
        channel.settled = channel.received
        assert channel.due or not channel.acknowledgement_due()
        assert not channel.accept(Frame(number, batch)), "twice"
        if channel.acknowledgement_due() or pause:
            channel.acknowledgement()
            assert not channel.due


def test_a_class_without_credit_does_not_hold_up_the_others() -> None:
    """And no message that stays in line overtakes what waits in it."""
    sender, receiver = connected(credit=1000), connected(window_bytes=1000)
    receiver.hold_credit("slow", 1)
    for number in range(1, 7):
        sender.offer(batch_of(number, 350, care=False, target=number % 2))
    sender.offer_in_line(Done(7))
    sender.offer(batch_of(8, 350, care=False))

    def crossed() -> list[object]:
        heard: list[object] = []
        for frame in sender.take():
            assert receiver.accept(frame)
            body = frame.body
            heard.append(body.first if isinstance(body, PublicationBatch) else body)
        told = receiver.acknowledgement()
        if told is not None:
            sender.acknowledged(told)
        return heard

    assert crossed() == [1, 2, 3, 4], "each class has a window of its own"
    assert crossed() == [6, 8], "the other class goes on"
    assert crossed() == []
    assert sender.waiting_bytes_of(1) == sender.waiting_bytes == sender.backlog_bytes_of(1)
    assert receiver.release_credit("slow", 1)
    assert receiver.acknowledgement_due()
    assert crossed() == []
    assert crossed() == [5, Done(7)]


def test_classes_that_nobody_agreed_on_are_refused() -> None:
    channel: Channel[str] = Channel(ChannelSettings(), classes=2)
    channel.restart(1000)
    assert channel.accept(Frame(1, batch_of(1, 0, care=False, target=1)))
    with pytest.raises(RemoteProtocolError, match="a batch of class 2, where the classes are those below 2"):
        channel.accept(Frame(2, batch_of(2, 0, care=False, target=2)))
    channel.acknowledged(Acknowledgement(0, 0, 1000, [(1, 5000), (70_000, 1)]))
    channel.offer(batch_of(1, 0, care=False, target=1))
    channel.acknowledged(Acknowledgement(0, 0, 1000, [(1, 5000)]))
    with pytest.raises(RemoteProtocolError, match="a credit of 4999 bytes after one of 5000"):
        channel.acknowledged(Acknowledgement(0, 0, 1000, [(1, 4999)]))
