"""What would somebody do who wants to silence, rob or fill a broker?

Each attack runs against a broker in a process of its own and says what it cost, how the broker's memory
changed, how long an innocent client had to wait, and what broke. `tests.hostile.run` prints all of them as a
table; the attacks with requests are in `attackers`, those on brokers that ask who everybody is in
`principals`.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from braid.errors import BraidError
from braid.protocol import Frame, PublicationBatch, encode_frames
from braid.protocol.batch import encode_record
from braid.protocol.messages import (
    Advertise,
    Done,
    DropDurable,
    Failed,
    Goodbye,
    Subscribe,
    SubscribeDurable,
    SyncBegin,
    Unsubscribe,
)
from braid.runtime.connecting import connect_sync
from tests.hostile.attackers import RawClient
from tests.hostile.principals import ATTACKS_OF_PRINCIPALS
from tests.hostile.stage import RawNeighbour, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from braid.protocol.codec import Body
    from tests.hostile.stage import Outcome

__all__ = ["ATTACKS"]

MEGABYTE = 1_000_000
# How long something is waited for that must come, on the slowest machine.
PATIENCE_S = 60.0
# What must not come would come within this: the brokers are beside each other.
LONG_ENOUGH_S = 1.0
# Between attempts to be let in.
RETRY_S = 0.01


def _answer(client: RawClient, request: int) -> Done | Failed:
    """The answer to a request; everything else is read over."""
    for frame in client.frames():
        if frame.sequence:
            client.channel.accept(frame)
        body = frame.body
        if isinstance(body, Done | Failed) and body.request == request:
            return body
    raise AssertionError("the broker has ended the connection")


def _strangers(stage: Stage, *stories: tuple[str, tuple[str, ...], bool]) -> None:
    """Strangers who say to be brokers: name, whom they say to be linked to, and whether they take leave."""
    for number, (name, brokers, leaves) in enumerate(stories):
        with suppress(OSError):  # sent away
            stranger = RawNeighbour(stage.address("A"), name, f"{name}-stranger{number}", brokers=brokers)
            if leaves:
                stranger.tell_connection(Goodbye("good night", detach=True))
            stage.cost(stranger)
            stage.work(1)
            stranger.close()


# Neighbours.


def _let_in(stage: Stage, name: str, incarnation: str) -> RawNeighbour:
    """Come as a neighbour, and again until the broker has noticed that the last one of that name is gone."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return RawNeighbour(stage.address("A"), name, incarnation)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_S)


def _flapping(directory: Path) -> Outcome:
    """A neighbour that comes, advertises, confirms nothing, goes, and comes again as somebody new."""
    with Stage("a neighbour that flaps 40 times", directory) as stage:
        stage.begin()
        # What others advertise waits for the neighbour's confirmation, in every session again.
        talker = RawClient(stage.address("A"), "talker")
        talker.say(*(Advertise(key, str(key), f"topic = {key}") for key in range(1, 9)))
        for turn in range(40):
            stranger = _let_in(stage, "X", f"X-{turn}")
            stranger.say(*(Advertise(key, f"X/{key}", f"topic = {key}") for key in range(1, 9)))
            stranger.close()
            stage.cost(stranger)
            if turn % 4 == 3:
                stage.work(1)
        talker.close()
        stage.end(40 * MEGABYTE)
    return stage.outcome


def _dead_neighbour(directory: Path, attack: str, *stories: tuple[str, tuple[str, ...], bool]) -> Outcome:
    """While B is dead and something waits for it, strangers tell stories about it.

    Whatever they say, no receipt is given before B has the publication, and it gets it.
    """
    with Stage(attack, directory) as stage:
        # It has no part in this but to be served.
        stage.begin(alone=True)
        with connect_sync(stage.address("B"), name="reader", timeout_s=PATIENCE_S) as reader:
            reader.subscribe("kept = TRUE", durable="kept")
        stage.kill("B")
        stage.brokers["A"].wait_for("connection closed.*party=B")
        with connect_sync(stage.address("A"), name="writer", timeout_s=PATIENCE_S) as writer:
            receipt = writer.publish({"kept": True}, delivery="acknowledged")
            with suppress(TimeoutError):
                receipt.wait(LONG_ENOUGH_S)
                stage.blame("a receipt was given while the neighbour was dead")
            _strangers(stage, *stories)
            with suppress(TimeoutError):
                receipt.wait(LONG_ENOUGH_S)
                stage.blame("a stranger's word led to a receipt")
            stage.work(1)
            stage.start("B")
            with connect_sync(stage.address("B"), name="reader", timeout_s=PATIENCE_S) as reader:
                try:
                    kept = reader.subscribe(None, durable="kept").get(PATIENCE_S)
                    if not kept.attributes["kept"]:
                        stage.blame("something else came")
                    receipt.wait(PATIENCE_S)
                except (BraidError, TimeoutError) as problem:
                    stage.blame(f"what was kept did not arrive: {type(problem).__name__}: {problem}")
        stage.end(40 * MEGABYTE)
    return stage.outcome


def _many_strangers(directory: Path) -> Outcome:
    """Four hundred made-up brokers that say hello, some of them a little more, and vanish."""
    with Stage("400 strangers who say to be brokers", directory) as stage:
        stage.begin()
        for number in range(400):
            with suppress(OSError):
                stranger = RawNeighbour(stage.address("A"), f"X{number}", "made up")
                if number % 2:
                    stranger.say(SyncBegin(), Subscribe(1, f"X{number}/1", f"topic = {number}"))
                stage.cost(stranger)
                stranger.close()
            if number % 100 == 99:
                stage.work(1)
        with connect_sync(stage.address("B"), name="reader", timeout_s=PATIENCE_S) as reader:
            began = time.monotonic()
            try:
                # It waits for every missing link, and so does the receipt.
                reader.subscribe("after = TRUE")
                reader.publish({"after": True}, delivery="acknowledged").wait(PATIENCE_S)
            except (BraidError, TimeoutError) as problem:
                stage.blame(f"strangers are waited for: {type(problem).__name__}: {problem}")
            stage.outcome.latency_s = max(stage.outcome.latency_s, time.monotonic() - began)
        stage.end(20 * MEGABYTE)
    return stage.outcome


def _names_a_dead_neighbour(directory: Path) -> Outcome:
    return _dead_neighbour(directory, "a hello that names a dead neighbour", ("X", ("B",), False))


def _says_goodbye_for_another(directory: Path) -> Outcome:
    return _dead_neighbour(directory, "a goodbye in a dead neighbour's name", ("B", (), True))


def _takes_the_place_of_another(directory: Path) -> Outcome:
    return _dead_neighbour(directory, "a twin in a dead neighbour's place", ("B", (), False))


# Publishers.


def _publish_as(client: RawClient, publisher: str, number: int) -> None:
    record = encode_record({"innocent": False}, 0)
    client.say(PublicationBatch.of(publisher, [number], [record], acknowledged=True, receipt=True))


def _silences_a_publisher(directory: Path) -> Outcome:
    """Publications numbered 2^62 under every name that another's publisher could have."""
    with Stage("2^62 under another's name", directory) as stage:
        stage.begin()
        with connect_sync(stage.address("A"), name="victim", timeout_s=PATIENCE_S) as victim:
            mine = victim.subscribe("victim = TRUE")
            victim.publish({"victim": True, "number": 1}).wait(PATIENCE_S)
            mine.get(PATIENCE_S)
            for publisher in (victim.publisher, f"{victim.publisher}#{victim.epoch}", "victim", "victim.1"):
                with (
                    suppress(OSError, AssertionError),
                    closing(RawClient(stage.address("A"), "victim")) as attacker,
                ):
                    _publish_as(attacker, publisher, 2**62)
                    attacker.say(Subscribe(1, "1", "nobody = TRUE", partial=True))
                    _answer(attacker, 1)
                    stage.cost(attacker)
            receipt = victim.publish({"victim": True, "number": 2}, delivery="acknowledged")
            try:
                receipt.wait(PATIENCE_S)
                if receipt.discarded:
                    stage.blame("the victim's publication was discarded")
                if mine.get(LONG_ENOUGH_S * 10).attributes["number"] != 2:
                    stage.blame("the victim's publication is not what came")
            except (BraidError, TimeoutError) as problem:
                stage.blame(f"the victim is silenced: {type(problem).__name__}: {problem}")
        stage.end(20 * MEGABYTE)
    return stage.outcome


def _many_publishers(directory: Path) -> Outcome:
    """101,000 names of one client: is what another repeats still recognised?"""
    with Stage("101,000 publisher names", directory) as stage:
        stage.begin()
        reader = RawClient(stage.address("A"), "listener")
        reader.say(Subscribe(1, "1", "victim = TRUE"))
        _answer(reader, 1)
        victim = RawClient(stage.address("A"), "victim")
        record = encode_record({"victim": True}, 0)
        batch = PublicationBatch.of("victim", [7], [record], acknowledged=True, receipt=True)
        victim.say(batch)
        attacker = RawClient(stage.address("A"), "many")
        empty = encode_record({"nothing": 1}, 0)
        with suppress(OSError):
            for first in range(0, 101_000, 1000):
                names = range(first, first + 1000)
                attacker.say(*(PublicationBatch.of(f"many.{number}", [1], [empty]) for number in names))
                if first % 10_000 == 0:
                    stage.work(1)
        stage.cost(attacker)
        attacker.close()
        again = RawClient(stage.address("A"), "victim")
        again.say(batch, Subscribe(1, "1", "victim = TRUE"))
        _answer(again, 1)
        came = list(_publications(reader, LONG_ENOUGH_S))
        if len(came) != 1:
            stage.blame(f"a publication came {len(came)} times")
        for client in (reader, victim, again):
            client.close()
        stage.end(60 * MEGABYTE)
    return stage.outcome


def _names_with_jumps(directory: Path) -> Outcome:
    """10,000 names, each with two publications far apart, which a log of the attacker stores, too."""
    with Stage("10,000 names that jump", directory) as stage:
        stage.begin()
        collector = RawClient(stage.address("A"), "collector")
        collector.say(SubscribeDurable(1, "all", "nothing = 1", partial=True, secret="s" * 20))
        _answer(collector, 1)
        stage.cost(collector)
        collector.close()
        attacker = RawClient(stage.address("A"), "jumper")
        empty = encode_record({"nothing": 1}, 0)
        for first in range(0, 10_000, 500):
            attacker.say(
                *(
                    PublicationBatch.of(f"jumper.{number}", [sequence], [empty])
                    for number in range(first, first + 500)
                    for sequence in (1, 65_000)
                )
            )
            if first % 2_000 == 0:
                stage.work(1)
        stage.cost(attacker)
        attacker.close()
        # With a bit for each number between, the broker and the log would take some 85 MB each.
        stage.end(70 * MEGABYTE)
    return stage.outcome


def _publications(client: RawClient, seconds: float) -> Iterator[PublicationBatch]:
    """What comes until nothing has come for a while."""
    client.socket.settimeout(seconds)
    with suppress(TimeoutError):
        for frame in client.frames():
            if isinstance(frame.body, PublicationBatch):
                yield frame.body


# Durable subscriptions.


def _robs_a_log(directory: Path) -> Outcome:
    """Another anonymous client reads and drops a durable subscription of which it knows the name."""
    with Stage("the log of another anonymous client", directory) as stage:
        stage.begin()
        with connect_sync(stage.address("A"), name="owner", timeout_s=PATIENCE_S) as owner:
            mine = owner.subscribe("secret = TRUE", durable="diary")
            owner.publish({"secret": True}, delivery="acknowledged").wait(PATIENCE_S)
            thief = RawClient(stage.address("A"), "owner")
            answers = []
            for request, question in enumerate(
                (SubscribeDurable(1, "diary", ""), DropDurable(2, "diary")), 1
            ):
                thief.say(question)
                answers.append(_answer(thief, request))
            stage.cost(thief)
            thief.close()
            if not all(isinstance(answer, Failed) for answer in answers):
                stage.blame(f"the thief was answered {answers}")
            if not mine.get(PATIENCE_S).attributes["secret"]:
                stage.blame("the owner's log has another row")
        stage.end(20 * MEGABYTE)
    return stage.outcome


# Filters.


def _asks_and_leaves(stage: Stage, filters: list[str]) -> None:
    """Subscribe with each filter and take it back; refusals are as good as answers."""
    attacker = RawClient(stage.address("A"), "attacker")
    for number, text in enumerate(filters):
        attacker.say(Subscribe(2 * number + 1, str(number), text, partial=True))
        answer = _answer(attacker, 2 * number + 1)
        if isinstance(answer, Done):
            attacker.say(Unsubscribe(2 * number + 2, str(number)))
            _answer(attacker, 2 * number + 2)
        if number % 20 == 19:
            stage.work(1)
    stage.cost(attacker)
    attacker.close()


def _fills_memories(directory: Path) -> Outcome:
    """Patterns and names that are dear to remember."""
    with Stage("60 LIKE patterns, 200 long names", directory) as stage:
        stage.begin()
        patterns = [f"a LIKE '{'%'.join(f'{number}x{part}' for part in range(800))}'" for number in range(60)]
        names = [f"{'n' * 6000}{number} = 1 AND {'m' * 6000}{number} = 2" for number in range(200)]
        _asks_and_leaves(stage, patterns + names)
        stage.end(30 * MEGABYTE)
    return stage.outcome


def _explodes(directory: Path) -> Outcome:
    """Filters whose normal form grows as the product of their parts, also as logs of a broker that dies."""
    with Stage("filters whose normal form explodes", directory) as stage:
        stage.begin()
        texts = [
            " AND ".join(f"(a{number} = {number} OR b{number} = {number})" for number in range(count))
            for count in (12, 40, 100, 2000)
        ]
        _asks_and_leaves(stage, texts)
        attacker = RawClient(stage.address("A"), "attacker2")
        for number, text in enumerate(texts[:3], 1):
            attacker.say(SubscribeDurable(number, f"log{number}", text, partial=True, secret="s" * 20))
            _answer(attacker, number)
            stage.work(1)
        stage.cost(attacker)
        attacker.close()
        stage.end(80 * MEGABYTE)
        stage.kill("A")
        stage.start("A")
    return stage.outcome


# Frames.


def _exact_frames(directory: Path) -> Outcome:
    """Publications whose frames have exactly the largest size, or a few bytes less."""
    with Stage("frames of exactly the limit", directory) as stage:
        stage.begin()
        reader = RawClient(stage.address("B"), "listener")
        reader.say(Subscribe(1, "1", "large = TRUE"))
        _answer(reader, 1)
        attributes = {"large": True}

        def frame(size: int) -> Body:
            record = encode_record(attributes, 0, bytes(size))
            return PublicationBatch.of("attacker", [1], [record], acknowledged=True, receipt=True)

        for more in (1, 0, -1, -50, -200, -1000):
            attacker = RawClient(stage.address("A"), "attacker")
            around = len(encode_frames([Frame(1, frame(100_000))])) - 100_000
            with suppress(OSError, AssertionError):  # one that is too large ends its own connection
                attacker.say(frame(attacker.welcome.frame_bytes_max - around + more))
                attacker.say(Subscribe(1, "1", "nobody = TRUE", partial=True))
                _answer(attacker, 1)
            stage.cost(attacker)
            attacker.close()
            stage.work(1)
        reader.close()
        stage.end(120 * MEGABYTE)
        lost = [
            line for line in stage.brokers["A"].lines if "connection closed" in line and "party=B" in line
        ]
        if lost:
            stage.blame(f"the link was lost {len(lost)} times")
    return stage.outcome


ATTACKS: dict[str, Callable[[Path], Outcome]] = {
    "flapping": _flapping,
    "names a dead neighbour": _names_a_dead_neighbour,
    "goodbye for another": _says_goodbye_for_another,
    "twin": _takes_the_place_of_another,
    "many strangers": _many_strangers,
    "silences a publisher": _silences_a_publisher,
    "many publishers": _many_publishers,
    "names with jumps": _names_with_jumps,
    "robs a log": _robs_a_log,
    "fills memories": _fills_memories,
    "explodes": _explodes,
    "exact frames": _exact_frames,
    **ATTACKS_OF_PRINCIPALS,
}
"""By name: each takes a directory for the brokers' data and says what came of it."""
