"""Was anything lost, doubled or out of order?

The checker knows everything: it reads the journals of all clients. What must be:

- A publication whose receipt came is in the log of every subscriber that wants it and whose subscription was
  answered before the publication was made, whatever was wrong then. One without a receipt (its publisher was
  killed) may be there.
- Nothing is in a log twice, nothing is there that was never published or that nobody there wants, and the
  publications of one publisher are in their order. Where there are soft links, order is promised to those
  publishers only who ask for it.
- A process is given consecutive offsets, each once. A subscriber that was killed goes on without a gap: it
  may get again what it had not acknowledged, never what the broker had confirmed as acknowledged.
- Only a broker that lost its data directory, or got an old one back, may have lost what was in its logs. Its
  subscribers are told (`reset`), may get again what the old log has, and get everything that is published
  from the moment on at which the broker has answered them again.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.reliability.journal import JournalReader
from tests.reliability.plan import price_of
from tests.reliability.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reliability.plan import Plan, Selection, Subscriber

__all__ = ["Checker", "Verdict"]

# Sentences kept per kind of mistake: enough to start looking.
EXAMPLES_MAX = 5


@dataclass(slots=True)
class Verdict:
    """What the checker found."""

    published: int = 0
    settled: int = 0
    delivered: int = 0
    redelivered: int = 0
    """Given again to a new process because they had not been acknowledged; that is allowed."""
    lost: int = 0
    doubled: int = 0
    misordered: int = 0
    wrong: int = 0
    """Anything else that must not be."""
    pause_s: float = 0.0
    """The longest that anybody waited for a receipt."""
    gap_s: float = 0.0
    """The longest that a watcher was given nothing."""
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        return not (self.lost or self.doubled or self.misordered or self.wrong)

    def blame(self, kind: str, sentence: str, count: int = 1) -> None:
        """Count a mistake; `kind` is one of the counters."""
        setattr(self, kind, getattr(self, kind) + count)
        examples = self.examples.setdefault(kind, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(sentence)


class _Published:
    """What one writer did in all its lives."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self.published: dict[str, int] = {}
        self.moments: dict[str, tuple[list[int], list[int]]] = {}
        """Per publisher up to which number it was about to publish, and when."""
        self.pause_ns = 0
        self.settled: dict[str, int] = {}
        self.flushed: set[str] = set()
        self.ready_lives = 0
        self.troubles: list[str] = []

    def read(self) -> None:
        for words in self._reader.lines():
            kind = words[0]
            if kind == "published":
                self._about_to_publish(words[1], int(words[2]), _time(words, 3))
            elif kind == "settled":
                self.settled[words[1]] = int(words[2])
                waited_ns = _time(words, 3) - self.published_at(words[1], int(words[2]))
                self.pause_ns = max(self.pause_ns, waited_ns)
            elif kind == "flushed":
                self.flushed.add(words[1])
            elif kind == "ready":
                self.ready_lives += 1
            elif kind == "trouble":
                self.troubles.append(" ".join(words[1:]))

    def _about_to_publish(self, publisher: str, last: int, at_ns: int) -> None:
        self.published[publisher] = last
        lasts, times = self.moments.setdefault(publisher, ([], []))
        lasts.append(last)
        times.append(at_ns)

    def published_at(self, publisher: str, sequence: int) -> int:
        """When the writer was about to publish it; at that time or later it did."""
        lasts, times = self.moments[publisher]
        return times[min(bisect_left(lasts, sequence), len(times) - 1)]


class _Delivered:
    """What one subscriber was given in all its lives, judged while it is read."""

    def __init__(
        self,
        name: str,
        selection: Selection,
        reader: JournalReader,
        verdict: Verdict,
        unordered: frozenset[str],
        published_at: Callable[[str, int], int],
    ) -> None:
        self.name = name
        self._published_at = published_at
        self.unordered = unordered
        """Writers whose publications may overtake each other."""
        self.selection = selection
        self.log: list[tuple[str, int]] = []
        """By offset."""
        self.found: set[tuple[str, int]] = set()
        self.ready_lives = 0
        self.since_ns = 0
        """What was published from then on must come."""
        self.broken_ns: int | None = None
        """When its broker came back with another log than it had; None if it has been asked since."""
        self.troubles: list[str] = []
        self._in_this_log: set[tuple[str, int]] = set()
        self._reader = reader
        self._verdict = verdict
        self._highest: dict[str, int] = {}
        self._behind: list[tuple[str, int, str]] = []
        """What came out of order while it was not known from when on order is promised again, and where."""
        self._was_reset = False
        """A client leaves out what a log that was reset has of the rows that it handed over before."""
        self._confirmed = -1
        self._expected_offset: int | None = 0
        """The next in this life; None when it may begin anywhere that leaves no gap."""

    def lines(self) -> list[list[str]]:
        """What it has written since the last time."""
        return list(self._reader.lines())

    def take(self, lines: list[list[str]]) -> None:
        """Judge what it has written."""
        for words in lines:
            kind = words[0]
            if kind == "row":
                self._row(int(words[1]), words[2], int(words[3]), int(words[4]))
            elif kind == "confirmed":
                self._confirmed = int(words[1])
                if self.broken_ns is not None and _time(words, 2) > self.broken_ns:
                    self.since_ns, self.broken_ns = _time(words, 2), None
                    self._judge_order()
            elif kind == "reset":
                self._confirmed, self._expected_offset = -1, None
                self._was_reset = True
                self.log, self._in_this_log, self._highest = [], set(), {}
            elif kind == "life":
                self._expected_offset = None
            elif kind == "ready":
                self.ready_lives += 1
                if self.ready_lives == 1:
                    self.since_ns = _time(words, 1)
            elif kind == "trouble":
                self.troubles.append(" ".join(words[1:]))

    def _row(self, offset: int, publisher: str, sequence: int, price: int) -> None:
        verdict = self._verdict
        what = f"{publisher}/{sequence}"
        where = f"at {self.name}, offset {offset}"
        verdict.delivered += 1
        if self._expected_offset is None:
            if offset <= self._confirmed:
                sentence = (
                    f"{what} came again {where}, though {self._confirmed} was confirmed as acknowledged"
                )
                verdict.blame("doubled", sentence, self._confirmed - offset + 1)
        elif offset != self._expected_offset and not (self._was_reset and offset > self._expected_offset):
            kind = "doubled" if offset < self._expected_offset else "wrong"
            verdict.blame(kind, f"{what} {where}, where {self._expected_offset} was due")
        self._expected_offset = offset + 1
        if offset < len(self.log):
            verdict.redelivered += 1
            if self.log[offset] != (publisher, sequence):
                verdict.blame("wrong", f"{what} {where}, where {self.log[offset]} was before")
            return
        if offset > len(self.log) and self._was_reset:
            self.log.extend([("", 0)] * (offset - len(self.log)))
        if offset > len(self.log):
            verdict.blame("wrong", f"{what} {where}, after a gap from {len(self.log)}")
            self.log.extend([("", 0)] * (offset - len(self.log)))
        self.log.append((publisher, sequence))
        if (publisher, sequence) in self._in_this_log:
            verdict.blame("doubled", f"{what} a second time {where}")
        elif sequence < self._highest.get(publisher, 0):
            self._behind.append((publisher, sequence, f"{what} after {self._highest[publisher]} {where}"))
            if self.broken_ns is None:
                self._judge_order()
        self.found.add((publisher, sequence))
        self._in_this_log.add((publisher, sequence))
        self._highest[publisher] = max(sequence, self._highest.get(publisher, 0))
        if price != price_of(publisher, sequence) or not self.selection.wants(publisher, sequence):
            verdict.blame("wrong", f"{what} with price {price} {where}, which does not want it")

    def _judge_order(self) -> None:
        """It is known from when on order is promised, so what came out of order is a mistake or not."""
        for publisher, sequence, sentence in self._behind:
            if self._in_order(publisher, sequence):
                self._verdict.blame("misordered", sentence)
        self._behind.clear()

    def _in_order(self, publisher: str, sequence: int) -> bool:
        """Whether it was promised in order. What is older than the answer may come by the way, when it is
        sent again after a crash."""
        if publisher.partition(".")[0] in self.unordered:
            return False
        return self._published_at(publisher, sequence) >= self.since_ns


class Checker:
    """Reads the journals of one run."""

    def __init__(self, plan: Plan, directory: Path, *, soft_links: bool = False) -> None:
        self.verdict = Verdict()
        unordered = frozenset(writer.name for writer in plan.writers if soft_links and not writer.ordered)
        self.writers = {
            writer.name: _Published(JournalReader(directory, writer.name)) for writer in plan.writers
        }
        self._directory = directory
        self._unordered = unordered
        self.brokers: dict[str, str] = {}
        """Of each subscriber."""
        self.subscribers: dict[str, _Delivered] = {}
        for each in plan.subscribers:
            self.expect(each)
        self.watchers = {
            each.name: Watched(
                each,
                plan.filters,
                JournalReader(directory, each.name),
                self.verdict,
                unordered,
                self._published_at,
            )
            for each in plan.watchers
        }

    def expect(self, subscriber: Subscriber) -> None:
        """One more subscriber, whose subscription counts from its answer."""
        name = subscriber.name
        reader = JournalReader(self._directory, name)
        delivered = _Delivered(
            name, subscriber.selection, reader, self.verdict, self._unordered, self._published_at
        )
        self.subscribers[name] = delivered
        self.brokers[name] = subscriber.broker

    def broke(self, broker: str, at_ns: int) -> None:
        """A broker came back without what was in its logs."""
        self.read()  # what was written before it is judged by what held then
        for name, where in self.brokers.items():
            if where == broker:
                self.subscribers[name].broken_ns = at_ns

    def read(self) -> None:
        """Take in what the clients have written since the last time."""
        # First what was delivered: whatever that was, somebody has written before that it would be published.
        delivered = {each: each.lines() for each in (*self.subscribers.values(), *self.watchers.values())}
        for writer in self.writers.values():
            writer.read()
        for subscriber, lines in delivered.items():
            subscriber.take(lines)

    def _published_at(self, publisher: str, sequence: int) -> int:
        writer = self.writers.get(publisher.partition(".")[0])
        if writer is None or publisher not in writer.moments:
            return 0
        return writer.published_at(publisher, sequence)

    def ready_lives(self, client: str) -> int:
        """How many processes of a client have come so far as to do their work."""
        record: Any = self.writers.get(client) or self.subscribers.get(client) or self.watchers.get(client)
        return int(record.ready_lives)

    def progress(self) -> tuple[int, int]:
        """Publications with a receipt, and rows delivered, so far."""
        settled = sum(sum(writer.settled.values()) for writer in self.writers.values())
        return settled, self.verdict.delivered

    def missing(self) -> dict[str, list[tuple[str, int]]]:
        """Per subscriber what it should have and has not, in order."""
        settled = [
            (publisher, sequence)
            for writer in self.writers.values()
            for publisher, last in writer.settled.items()
            for sequence in range(1, last + 1)
        ]
        found = {}
        for name, subscriber in self.subscribers.items():
            if not subscriber.ready_lives or subscriber.broken_ns is not None:
                continue  # `unanswered` names it
            lost = [
                each
                for each in settled
                if each not in subscriber.found
                and subscriber.selection.wants(*each)
                and self._published_at(*each) >= subscriber.since_ns
            ]
            if lost:
                found[name] = lost
        for name, watcher in self.watchers.items():
            if lost := watcher.missing(settled):
                found[name] = lost
        return found

    def unanswered(self) -> list[str]:
        """Subscribers that have not been answered, at first or after their broker lost its logs."""
        return [
            name
            for name, subscriber in self.subscribers.items()
            if not subscriber.ready_lives or subscriber.broken_ns is not None
        ]

    def conclude(self) -> Verdict:
        """The verdict, when nothing more is to come."""
        self.read()
        verdict = self.verdict
        limits: dict[str, int] = {}
        for name, writer in self.writers.items():
            limits |= writer.published
            verdict.published += sum(writer.published.values())
            verdict.settled += sum(writer.settled.values())
            verdict.pause_s = max(verdict.pause_s, writer.pause_ns / 1e9)
            for trouble in writer.troubles:
                verdict.blame("wrong", f"{name}: {trouble}")
        for name, watcher in self.watchers.items():
            for trouble in watcher.troubles:
                verdict.blame("wrong", f"{name}: {trouble}")
            for what in watcher.beyond(limits):
                verdict.blame("wrong", f"{what} at {name} was never published")
        for name, subscriber in self.subscribers.items():
            for trouble in subscriber.troubles:
                verdict.blame("wrong", f"{name}: {trouble}")
            for publisher, sequence in subscriber.found:
                if sequence > limits.get(publisher, 0):
                    verdict.blame("wrong", f"{publisher}/{sequence} at {name} was never published")
        for name in self.unanswered():
            verdict.blame("wrong", f"{name} was never answered")
        for name, lost in self.missing().items():
            first, last = lost[0], lost[-1]
            sentence = f"{name} lost {len(lost)}, from {first[0]}/{first[1]} to {last[0]}/{last[1]}"
            verdict.blame("lost", sentence, len(lost))
        return verdict


def _time(words: list[str], place: int) -> int:
    """The time in a line; 0 where it says none."""
    return int(words[place]) if len(words) > place else 0
