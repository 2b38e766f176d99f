"""Does the bus end cleanly, under load, in every state, and when it is forgotten?"""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading

import pytest

from braid.embedded import open
from braid.errors import BusClosedError
from tests.embedded.helpers import Background, no_threads_left, until


def test_a_closed_bus_takes_nothing_more() -> None:
    bus = open("desk")
    bus.close()
    bus.close()
    assert bus.closed
    with pytest.raises(BusClosedError, match="'desk'"):
        bus.publish({})
    with pytest.raises(BusClosedError):
        bus.publish_batch([{}])
    with pytest.raises(BusClosedError):
        bus.subscribe("n > 0")
    with pytest.raises(BusClosedError):
        bus.subscribe("n > 0", print)


def test_iterators_end_after_what_is_queued() -> None:
    with open() as bus:
        queued = bus.subscribe("n > 0")
        bus.publish_batch([{"n": 1}, {"n": 2}])
    assert [publication["n"] for publication in queued] == [1, 2]
    assert list(queued) == []
    with pytest.raises(BusClosedError):
        queued.get()


def test_iterators_that_wait_are_woken() -> None:
    with open() as bus:
        subscription = bus.subscribe("n > 0")
        readers = [Background(lambda: [publication["n"] for publication in subscription]) for _ in range(3)]
        bus.publish_batch([{"n": n} for n in range(1, 31)])
        until(lambda: subscription.statistics().delivered == 30)
    assert sorted(n for reader in readers for n in reader.result()) == list(range(1, 31))


def test_callbacks_finish_their_queues() -> None:
    seen = []
    with no_threads_left(), open() as bus:
        bus.subscribe("n > 0", lambda publication: seen.append(publication["n"]))
        bus.publish_batch([{"n": n} for n in range(1, 501)])
    assert seen == list(range(1, 501))
    assert bus.statistics().delivered == 500


def test_closing_without_draining_drops_the_queues() -> None:
    entered, go_on = threading.Event(), threading.Event()
    seen = []

    def callback(publication) -> None:
        entered.set()
        go_on.wait()
        seen.append(publication["n"])

    with no_threads_left():
        bus = open()
        bus.subscribe("n > 0", callback)
        queued = bus.subscribe("n > 0")
        bus.publish_batch([{"n": 1}, {"n": 2}])
        entered.wait()
        closing = Background(lambda: bus.close(drain=False, timeout_s=None))
        until(lambda: bus.closed)
        go_on.set()
        closing.result()
    assert seen == [1]
    assert list(queued) == []


def test_closing_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    entered, go_on = threading.Event(), threading.Event()
    seen = []

    def stuck(publication) -> None:
        entered.set()
        go_on.wait()
        seen.append(publication["n"])

    with no_threads_left():
        bus = open()
        bus.subscribe("n > 0", stuck, name="stuck")
        bus.publish_batch([{"n": 1}, {"n": 2}])
        entered.wait()
        with caplog.at_level(logging.WARNING, "braid.embedded"):
            bus.close(timeout_s=0.01)
        assert "'stuck'" in caplog.text
        go_on.set()
        bus.close(timeout_s=None)
    assert seen == [1]


def test_an_interrupt_leaves_without_draining() -> None:
    go_on, entered = threading.Event(), threading.Event()
    seen = []

    def callback(publication) -> None:
        entered.set()
        go_on.wait()
        seen.append(publication["n"])

    bus = open()

    def interrupted() -> None:
        with bus:
            bus.subscribe("n > 0", callback)
            bus.publish_batch([{"n": 1}, {"n": 2}])
            entered.wait()
            raise KeyboardInterrupt

    body = Background(interrupted)
    until(lambda: bus.closed)
    go_on.set()
    with pytest.raises(KeyboardInterrupt):
        body.result()
    assert seen == [1]


def test_closing_under_load_loses_nothing_that_was_accepted() -> None:
    delivered: list[int] = []
    read: list[int] = []
    accepted = [0] * 4
    with no_threads_left():
        bus = open()
        bus.subscribe("n >= 0", lambda publication: delivered.append(publication["n"]), queue_size=8)
        iterated = bus.subscribe("n >= 0", queue_size=8)
        reader = Background(lambda: read.extend(publication["n"] for publication in iterated))

        def publish(position: int) -> None:
            n = 0
            try:
                while True:
                    receipt = bus.publish({"n": n}, publisher=f"p{position}")
                    accepted[position] += receipt.delivered
                    n += 1
            except BusClosedError:
                return

        publishers = [Background(lambda position=position: publish(position)) for position in range(4)]
        until(lambda: len(delivered) > 200)
        bus.close(timeout_s=None)
        for publisher in publishers:
            publisher.result()
        reader.result()
    # A call that was refused while it waited may have reached one of the two.
    assert sum(accepted) <= len(delivered) + len(read) <= sum(accepted) + 4 * 2
    statistics = bus.statistics()
    assert statistics.matched == statistics.delivered + statistics.discarded
    assert statistics.delivered == len(delivered) + len(read)
    assert (statistics.queued, statistics.waiting) == (0, 0)


def test_a_forgotten_bus_ends_and_says_so() -> None:
    with no_threads_left():
        before = threading.active_count()
        bus = open("forgotten")
        bus.subscribe("n > 0", print)
        assert threading.active_count() == before + 1
        holder = [bus]
        del bus
        with pytest.warns(ResourceWarning, match="<Bus 'forgotten' open> was not closed"):
            holder.clear()
        until(lambda: threading.active_count() == before)


def test_a_forgotten_bus_ends_the_iterators_that_wait() -> None:
    bus = open()
    subscription = bus.subscribe("n > 0")
    bus.publish({"n": 1})
    assert subscription.get()["n"] == 1
    reader = Background(lambda: list(subscription))
    del bus
    gc.collect()
    assert reader.result() == []


def test_a_program_that_forgets_to_close_still_exits() -> None:
    program = """
import braid.embedded
bus = braid.embedded.open()
bus.subscribe("n > 0", lambda publication: None)
quotes = bus.subscribe("n > 0")
bus.publish({"n": 1})
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_forgotten_bus_leaves_what_was_queued_to_its_iterators() -> None:
    bus = open()
    subscription = bus.subscribe("n > 0")
    bus.publish_batch([{"n": 1}, {"n": 2}])
    del bus
    gc.collect()
    assert [publication["n"] for publication in subscription] == [1, 2]


def test_a_forgotten_bus_leaves_what_was_queued_to_its_callbacks() -> None:
    go_on = threading.Event()
    seen = []

    def callback(publication) -> None:
        go_on.wait()
        seen.append(publication["n"])

    holder = [open()]
    handle = holder[0].subscribe("n > 0", callback)
    holder[0].publish_batch([{"n": 1}, {"n": 2}])
    with pytest.warns(ResourceWarning, match="was not closed"):
        holder.clear()
    until(lambda: handle.closed)
    go_on.set()
    until(lambda: seen == [1, 2])


def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, which is what these tests are about."""
    command = [sys.executable, *options, "-c", program]
    return subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)


FORGETFUL = """
import threading
import braid.embedded
leaving = threading.Event()

def callback(publication):
    leaving.wait()
    print(publication["n"], flush=True)

bus = braid.embedded.open("forgetful")
bus.subscribe("n > 0", callback)
bus.publish_batch([{"n": 1}, {"n": 2}, {"n": 3}])
"""


@pytest.mark.parametrize("option", ["default", "error"])
def test_what_is_queued_is_delivered_when_the_program_ends_without_closing(option: str) -> None:
    ended = run(FORGETFUL + "leaving.set()", "-W", option)
    assert ended.stdout.split() == ["1", "2", "3"]
    assert "ResourceWarning: the bus 'forgetful' was not closed" in ended.stderr


def test_a_stuck_callback_does_not_keep_the_program_from_ending() -> None:
    hurry = "import braid.embedded.farewell\nbraid.embedded.farewell.CLOSE_TIMEOUT_S = 0.01\n"
    ended = run(FORGETFUL + hurry)
    assert ended.stdout == ""
    assert "queued publications were thrown away" in ended.stderr


def test_a_bus_that_was_closed_has_nothing_left_to_do_when_the_program_ends() -> None:
    # The second wait would be endless, were it not given up already.
    hurry = "import braid.embedded.farewell\nbraid.embedded.farewell.CLOSE_TIMEOUT_S = 3600\n"
    ended = run(FORGETFUL + hurry + "bus.close(timeout_s=0)\n", "-W", "default")
    assert ended.stdout == ""
    assert "ResourceWarning" not in ended.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are what this is about")
def test_a_fork_does_not_wait_for_threads_it_does_not_have() -> None:
    fork = """
import os, sys
import braid.embedded.farewell
braid.embedded.farewell.CLOSE_TIMEOUT_S = 3600
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
leaving.set()
"""
    assert run(FORGETFUL + fork, "-W", "ignore").stdout.split() == ["1", "2", "3"]
