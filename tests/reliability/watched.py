"""What was a watcher given, a client with a plain subscription for each of many things?

A plain subscription lives as long as its connection, so watchers are connected to brokers that stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.reliability.plan import id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.reliability.checker import Verdict
    from tests.reliability.journal import JournalReader
    from tests.reliability.plan import Watcher

__all__ = ["Watched"]


class Watched:
    """Judges while it reads.

    Args:
        watcher: what it wants.
        filters: how many things there are.
        reader: of its journal.
        verdict: where mistakes are counted.
        unordered: writers whose publications may overtake each other.
        published_at: when a writer was about to publish something.
    """

    def __init__(
        self,
        watcher: Watcher,
        filters: int,
        reader: JournalReader,
        verdict: Verdict,
        unordered: frozenset[str],
        published_at: Callable[[str, int], int],
    ) -> None:
        self.name = watcher.name
        self.ready_lives = 0
        self.troubles: list[str] = []
        self._ids = frozenset(watcher.ids)
        self._filters = filters
        self._reader = reader
        self._verdict = verdict
        self._unordered = unordered
        self._published_at = published_at
        self._since_ns = 0
        self._found: dict[str, set[int]] = {}
        self._highest: dict[tuple[int, str], int] = {}
        self._last_ns = 0

    def lines(self) -> list[list[str]]:
        """What it has written since the last time."""
        return list(self._reader.lines())

    def take(self, lines: list[list[str]]) -> None:
        """Judge what it has written."""
        for words in lines:
            if words[0] == "seen":
                self._seen(int(words[1]), words[2], int(words[3]), int(words[4]))
            elif words[0] == "ready":
                self.ready_lives += 1
                self._since_ns = self._last_ns = int(words[1])
            elif words[0] == "trouble":
                self.troubles.append(" ".join(words[1:]))

    def _seen(self, id: int, publisher: str, sequence: int, at_ns: int) -> None:
        verdict = self._verdict
        what = f"{publisher}/{sequence} at {self.name} for {id}"
        verdict.delivered += 1
        verdict.gap_s = max(verdict.gap_s, (at_ns - self._last_ns) / 1e9)
        self._last_ns = at_ns
        found = self._found.setdefault(publisher, set())
        highest = self._highest.get((id, publisher), 0)
        if id not in self._ids or id_of(publisher, sequence, self._filters) != id:
            verdict.blame("wrong", f"{what}, which is not about that")
        elif sequence in found:
            verdict.blame("doubled", f"{what} a second time")
        elif sequence < highest and publisher.partition(".")[0] not in self._unordered:
            verdict.blame("misordered", f"{what} after {highest}")
        found.add(sequence)
        self._highest[id, publisher] = max(highest, sequence)

    def beyond(self, limits: dict[str, int]) -> list[str]:
        """What it was given that nobody has published."""
        return [
            f"{publisher}/{max(found)}"
            for publisher, found in self._found.items()
            if max(found) > limits.get(publisher, 0)
        ]

    def missing(self, settled: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """What it should have of this and has not."""
        return [
            (publisher, sequence)
            for publisher, sequence in settled
            if sequence not in self._found.get(publisher, ())
            and id_of(publisher, sequence, self._filters) in self._ids
            and self._published_at(publisher, sequence) >= self._since_ns
        ]
