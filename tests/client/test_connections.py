"""Does a client's session keep its requests through lost connections and objecting brokers?"""

from __future__ import annotations

import pytest

from braid.client.effects import (
    Answered,
    Connected,
    Disconnected,
    Ended,
)
from braid.client.inbox import CLASSES
from braid.errors import (
    AccessDeniedError,
    AuthenticationError,
    ConnectionLostError,
)
from braid.language import Filter
from braid.protocol.batch import PublicationBatch
from braid.protocol.channel import ChannelSettings
from braid.protocol.codec import Frame
from braid.protocol.inputs import Closed, Malformed, Opened, Received, Writable
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledgement,
    Advertise,
    Ask,
    Done,
    Failed,
    Goodbye,
    Hello,
    Ping,
    Pong,
    Refused,
    Subscribe,
    Welcome,
)
from tests.client.scripted_broker import SECOND, World, connected, record


def test_what_was_made_is_made_again_on_a_new_connection_before_anything_is_published() -> None:
    world = connected()
    world.session.requests.subscribe(Filter("n > 1"), "block", 10)
    number, _ = world.session.requests.advertise(Filter("n > 5"))
    world.session.requests.advertise(Filter("n > 6"))
    world.act()
    world.quiesce()
    world.session.requests.unadvertise(number)
    world.act()
    world.quiesce()
    answers = [each for each in world.seen if isinstance(each, Answered)]
    assert len(answers) == 4
    assert all(answer.error is None for answer in answers)
    world.break_connection()
    world.session.publish(record(1), 0)
    world.recover()
    world.broker_reads()
    world.client_reads()
    world.broker_reads()
    kinds = [type(body) for body in world.broker.bodies]
    assert kinds == [Hello, Advertise, Subscribe, PublicationBatch]
    world.quiesce()
    assert list(world.broker.advertisements.values()) == ["n > 6"]
    assert len([each for each in world.seen if isinstance(each, Answered)]) == 4


def test_a_request_that_was_not_answered_is_asked_again_and_answered_once() -> None:
    world = connected()
    interest = world.session.requests.subscribe(Filter("n > 1"), "block", 10)
    world.act()
    world.break_connection()
    assert world.answered(interest.request) is None
    world.recover()
    world.quiesce()
    answer = world.answered(interest.request)
    assert answer is not None
    assert answer.error is None


def test_an_operation_that_may_have_been_done_is_not_asked_for_twice() -> None:
    world = connected()
    request = world.session.requests.ask("shift", {})
    world.act()
    world.break_connection()
    answer = world.answered(request)
    assert answer is not None
    assert isinstance(answer.error, ConnectionLostError)
    later = world.session.requests.ask("status", {"of": "B"})
    world.recover()
    world.quiesce()
    asked = [body for body in world.broker.bodies if isinstance(body, Ask)]
    assert [(body.request, body.topic) for body in asked] == [(later, "status")]


def test_a_failed_request_carries_the_brokers_reason() -> None:
    world = connected()
    interest = world.session.requests.subscribe(Filter("n > 1"), "block", 10)
    world.act()
    world.to_broker.clear()
    world.broker.offer(Failed(interest.request, "denied", "not for you"))
    world.client_reads()
    answer = world.answered(interest.request)
    assert answer is not None
    assert isinstance(answer.error, AccessDeniedError)
    assert not interest.open


def test_a_subscription_that_is_not_granted_again_ends() -> None:
    world = connected()
    interest = world.session.requests.subscribe(Filter("n > 1"), "block", 10)
    world.act()
    world.quiesce()
    world.break_connection()
    world.recover()
    world.broker_reads()
    world.client_reads()
    again = next(frame.body for frame in world.to_broker if isinstance(frame.body, Subscribe))
    world.broker.offer(Failed(again.request, "denied", "not any more"))
    world.client_reads()
    assert Ended(interest) in world.seen
    assert isinstance(interest.failure, AccessDeniedError)


def test_attempts_to_connect_again_are_spread_bounded_and_take_turns() -> None:
    world = connected(reconnect_for_us=60 * SECOND)
    world.break_connection()
    pauses = []
    while world.lost is None:
        deadline = world.session.next_deadline_us()
        assert deadline is not None
        pauses.append(deadline - world.now_us)
        before = len(world.dials)
        world.pass_time(deadline - world.now_us)
        if len(world.dials) > before:
            world.handle(Closed(None, "refused", world.dials[-1]))
    assert all(pause <= 5 * SECOND for pause in pauses)
    assert 50_000 <= pauses[0] <= 100_000
    assert pauses[6] > pauses[0]
    assert world.now_us <= 61 * SECOND
    assert world.dials[1:5] == ["b", "a", "b", "a"]
    assert isinstance(world.lost.error, ConnectionLostError)
    assert "refused" in str(world.lost.error)
    assert world.session.next_deadline_us() is None


def test_without_patience_a_broken_connection_is_the_end() -> None:
    world = connected(reconnect_for_us=0)
    world.break_connection()
    assert world.lost is not None


def test_a_wrong_token_is_final_and_a_full_broker_is_not() -> None:
    world = World()
    world.connect()
    world.handle(Received(1, [Frame(0, Refused("limit", "full"))]))
    assert world.lost is None
    world.recover()
    world.handle(Received(2, [Frame(0, Refused("authentication", "who are you?"))]))
    assert world.lost is not None
    assert isinstance(world.lost.error, AuthenticationError)


def test_a_broker_that_objects_again_and_again_is_believed() -> None:
    world = connected()
    world.session.publish(record(1), 0)
    for _ in range(5):
        assert world.lost is None
        world.recover()
        world.broker_reads()
        world.client_reads()
        world.handle(Received(world.connection, [Frame(0, Refused("protocol", "no such row"))]))
    assert world.lost is not None
    assert "no such row" in str(world.lost.error)


def test_another_version_of_the_protocol_is_named() -> None:
    world = World()
    world.connect()
    world.handle(Received(1, [Frame(0, Welcome(9, "B", "i"))]))
    assert world.lost is not None
    assert "version 9" in str(world.lost.error)


def test_a_silent_broker_is_asked_and_then_given_up() -> None:
    world = connected(heartbeat_us=SECOND)
    world.pass_time(SECOND)
    assert [frame.body for frame in world.to_broker] == [Ping(1)]
    world.broker_reads()
    world.client_reads()
    world.to_broker.clear()
    for _ in range(3):
        assert world.open
        world.pass_time(SECOND)
    assert not world.open
    assert any(isinstance(each, Disconnected) and "silent" in each.reason for each in world.seen)


def test_a_broker_that_pings_is_answered() -> None:
    world = connected()
    world.broker.outgoing.append(Frame(0, Ping(7)))
    world.client_reads()
    assert [frame.body for frame in world.to_broker] == [Pong(7)]


def test_a_broker_that_says_goodbye_is_left_for_another() -> None:
    world = connected()
    world.broker.outgoing.append(Frame(0, Goodbye("draining")))
    world.client_reads()
    assert not world.open
    world.recover()
    world.quiesce()
    assert world.dials == ["a", "b"]
    assert world.seen.count(Connected("B")) == 2


@pytest.mark.parametrize(
    "stimulus",
    [
        Malformed(1, "a frame of the unknown kind 9"),
        Received(1, [Frame(9, Done(1))]),
        Received(1, [Frame(0, Acknowledgement(99, 0, 0))]),
        Received(1, [Frame(0, Welcome(PROTOCOL_VERSION, "B", "i"))]),
        Received(1, [Frame(1, Advertise(1, "1", "TRUE"))]),
    ],
)
def test_a_broker_that_breaks_the_rules_loses_the_connection(stimulus: object) -> None:
    world = connected()
    world.handle(stimulus)
    assert not world.open
    assert world.lost is None
    world.recover()
    world.quiesce()
    assert world.session.live


def test_what_cannot_be_written_waits() -> None:
    world = connected()
    world.handle(Writable(1, False))
    world.session.publish(record(1), 0)
    world.session.flush()
    world.act()
    assert not world.to_broker
    world.handle(Writable(1, True))
    assert len(world.to_broker) == 1


def test_closing_sends_what_is_left_and_says_goodbye() -> None:
    world = connected()
    world.session.publish(record(1), 0)
    world.session.close("enough")
    world.act()
    world.broker_reads()
    assert [type(body) for body in world.broker.bodies[-2:]] == [PublicationBatch, Goodbye]
    assert world.session.next_deadline_us() is None
    world.handle(Opened(5, "late"))
    assert world.session.handle(Closed(1, "closed"), 0) == []


def test_a_client_that_does_not_read_opens_no_further_connection() -> None:
    world = connected(channel=ChannelSettings(window_bytes=300))
    interest = world.session.requests.subscribe(Filter("TRUE"), "block", 1)
    world.act()
    world.quiesce()
    sent = 0
    for _ in range(3):
        while world.broker.channel.waiting_bytes == 0:
            world.broker.deliver(CLASSES["block"], sent + 1, *range(sent, sent + 5))
            sent += 5
            world.client_reads()
        world.break_connection()
        for _ in range(20):
            deadline = world.session.next_deadline_us()
            assert deadline is not None
            before = len(world.dials)
            world.pass_time(max(0, deadline - world.now_us))
            if len(world.dials) > before:
                world.connect()
                world.broker_reads()
                world.client_reads()
                world.broker_reads()
                world.client_reads()
                break
    assert world.session.inbox.waiting_bytes <= 3 * 300
    assert world.lost is None
    while interest.queue:
        world.take(interest, 1)
        world.session.made_room(interest)
    world.act()
    world.recover()
    world.quiesce()
    assert world.session.live
