"""Were publications lost, doubled, out of order, or delivered to somebody who had not asked for them?

The tables of all brokers of one run are enough to judge *doubled*, *misordered* and *unknown* deliveries, and
*uninvited* ones to somebody without any subscription. What a publication says is not in a trace, so whether a
filter accepts it can only be judged where the caller knows: with `attributes_of`, every filter is evaluated
(by `braid.language.Filter` alone, not by an index), and *lost* and all *uninvited* deliveries are found.
Simulations write down how many brokers have somebody interested (`expected`): where attributes are not known,
fewer that deliver are *lost* too.

Times of different brokers differ a little, and a subscription takes a while to reach everybody. So a
publication counts as lost only for a subscription that was in force for `settle_us` before it entered and
after; one delivered within `settle_us` after its subscription ended is not uninvited.

A durable subscription (`durable:NAME`) may be read late and, after a lost acknowledgement, again: of those
only order and invitation are judged, with repeats counted by themselves.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from braid.language import Filter
from braid.trace.reader import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from braid.trace.reader import FileReport

__all__ = ["Verdict", "check_deliveries"]

# Sentences kept per kind of mistake: enough to start looking.
EXAMPLES_MAX: Final = 5
SETTLE_US: Final = 1_000_000

_NEVER_US: Final = 2**63
_DURABLE: Final = "durable:"

Who = tuple[str, str]
"""A broker and a subscriber there."""
What = tuple[str, int]
"""A publisher and a sequence number."""


@dataclass(slots=True)
class Verdict:
    """What was found."""

    published: int = 0
    """Different publications."""
    delivered: int = 0
    repeated: int = 0
    """Rows of durable logs that were read again, which is allowed."""
    judged: int = 0
    """Publications whose attributes were known, so that filters were evaluated."""
    lost: int = 0
    doubled: int = 0
    misordered: int = 0
    uninvited: int = 0
    unknown: int = 0
    """Deliveries of what nobody published."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    bad_files: list[FileReport] = field(default_factory=list)
    """Files that were left out; what was in them may be missing above."""

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.doubled or self.misordered or self.uninvited or self.unknown)

    def report(self) -> list[str]:
        """What is wrong, in sentences; empty when nothing is."""
        return [sentence for kind in sorted(self.examples) for sentence in self.examples[kind]]

    def blame(self, kind: str, sentence: str, count: int = 1) -> None:
        """Count a mistake; `kind` is one of the counters."""
        setattr(self, kind, getattr(self, kind) + count)
        examples = self.examples.setdefault(kind, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(f"{kind}: {sentence}")


@dataclass(slots=True)
class _Interest:
    """One subscription, from when it was asked for to its end."""

    text: str
    asked_at_us: int
    installed_at_us: int
    ended_at_us: int = _NEVER_US


def check_deliveries(
    directories: Iterable[Path],
    *,
    attributes_of: Callable[[str, int], Mapping[str, Any] | None] | None = None,
    ordered: bool = True,
    settle_us: int = SETTLE_US,
) -> Verdict:
    """Judge the deliveries of one run.

    Args:
        directories: the traces of all brokers of the run; one folder may hold several of them.
        attributes_of: the attributes of a publication by publisher and sequence number, None where they are
            not known. Without it filters are not evaluated.
        ordered: whether the publications of one publisher must arrive in their order.
        settle_us: how long a subscription takes to be known everywhere, and how far clocks differ.
    """
    folders = list(directories)
    verdict = Verdict()

    def rows(kind: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows of all folders, those of one broker in the order in which they were written."""
        found: list[tuple[Any, ...]] = []
        for folder in folders:
            table = read_table(folder, kind, columns=columns, report=verdict.bad_files.append)
            found.extend(zip(*(table[name].to_pylist() for name in columns), strict=True))
        return found

    entered: dict[What, int] = {}
    expected: dict[What, int] = {}
    for at_us, publisher, sequence, brokers in rows(
        "publication", "at_us", "publisher", "sequence", "expected"
    ):
        # One that is sent again because its acknowledgement was lost enters twice.
        entered.setdefault((publisher, sequence), at_us)
        if brokers is not None:
            expected.setdefault((publisher, sequence), brokers)
    interests = _interests(rows("subscription", "at_us", "broker", "subscriber", "key", "filter", "action"))
    deliveries = rows("delivery", "at_us", "broker", "subscriber", "publisher", "sequence")
    verdict.published = len(entered)
    verdict.delivered = len(deliveries)
    seen = _judge_sequence(verdict, deliveries, entered, ordered)
    attributes: dict[What, Mapping[str, Any]] = {}
    if attributes_of is not None:
        for what in entered:
            if (known := attributes_of(*what)) is not None:
                attributes[what] = known
    verdict.judged = len(attributes)
    _judge_expected(verdict, seen, {what: n for what, n in expected.items() if what not in attributes})
    _judge_invited(verdict, deliveries, interests, attributes, settle_us)
    _judge_lost(verdict, seen, interests, attributes, entered, settle_us)
    return verdict


def _interests(rows: Iterable[tuple[Any, ...]]) -> dict[Who, list[_Interest]]:
    """All subscriptions there ever were, by subscriber."""
    found: dict[Who, list[_Interest]] = defaultdict(list)
    current: dict[tuple[str, str, str], _Interest] = {}
    for at_us, broker, subscriber, key, text, action in rows:
        place = (broker, subscriber, key)
        if action == "subscribe":
            # Without a word of its installation, asking for it is all there is.
            interest = current[place] = _Interest(text, at_us, at_us)
            found[broker, subscriber].append(interest)
        elif (known := current.get(place)) is not None:
            if action == "installed":
                known.installed_at_us = at_us
                known.text = text
            else:
                known.ended_at_us = at_us
                del current[place]
                if action == "refused":
                    found[broker, subscriber].remove(known)
    return found


def _judge_sequence(
    verdict: Verdict, deliveries: Iterable[tuple[Any, ...]], entered: Mapping[What, int], ordered: bool
) -> dict[Who, set[What]]:
    """Blame what is doubled, misordered or of nobody; returns who got what."""
    seen: dict[Who, set[What]] = defaultdict(set)
    highest: dict[tuple[Who, str], int] = {}
    for _, broker, subscriber, publisher, sequence in deliveries:
        who, what = (broker, subscriber), (publisher, sequence)
        words = f"{publisher}/{sequence} to {subscriber} at {broker}"
        if what in seen[who]:
            if subscriber.startswith(_DURABLE):
                verdict.repeated += 1
            else:
                verdict.blame("doubled", f"{words} a second time")
            continue
        seen[who].add(what)
        if what not in entered:
            verdict.blame("unknown", f"{words}, which nobody published")
        before = highest.get((who, publisher), -1)
        if sequence < before:
            if ordered:
                verdict.blame("misordered", f"{words} after {before}")
        else:
            highest[who, publisher] = sequence
    return seen


def _judge_expected(verdict: Verdict, seen: Mapping[Who, set[What]], expected: Mapping[What, int]) -> None:
    """Blame publications that fewer brokers delivered than somebody who sees all of them expected."""
    if not expected:
        return
    brokers: dict[What, set[str]] = defaultdict(set)
    for (broker, _), received in seen.items():
        for what in received:
            brokers[what].add(broker)
    for what, count in expected.items():
        found = len(brokers.get(what, ()))
        if found < count:
            sentence = f"{what[0]}/{what[1]} was delivered by {found} of {count} brokers"
            verdict.blame("lost", sentence, count - found)


def _judge_invited(
    verdict: Verdict,
    deliveries: Iterable[tuple[Any, ...]],
    interests: Mapping[Who, list[_Interest]],
    attributes: Mapping[What, Mapping[str, Any]],
    settle_us: int,
) -> None:
    for at_us, broker, subscriber, publisher, sequence in deliveries:
        known = attributes.get((publisher, sequence))
        if not any(
            interest.asked_at_us <= at_us <= interest.ended_at_us + settle_us
            and (known is None or _filter(interest.text).matches(known))
            for interest in interests.get((broker, subscriber), ())
        ):
            words = f"{publisher}/{sequence} to {subscriber} at {broker}"
            verdict.blame("uninvited", f"{words}, which has not asked for it")


def _judge_lost(
    verdict: Verdict,
    seen: Mapping[Who, set[What]],
    interests: Mapping[Who, list[_Interest]],
    attributes: Mapping[What, Mapping[str, Any]],
    entered: Mapping[What, int],
    settle_us: int,
) -> None:
    for what, known in attributes.items():
        at_us = entered[what]
        for who, theirs in interests.items():
            if who[1].startswith(_DURABLE) or what in seen.get(who, ()):
                continue
            if any(
                interest.installed_at_us + settle_us <= at_us <= interest.ended_at_us - settle_us
                and _filter(interest.text).matches(known)
                for interest in theirs
            ):
                verdict.blame("lost", f"{what[0]}/{what[1]} never came to {who[1]} at {who[0]}")


@lru_cache(maxsize=100_000)
def _filter(text: str) -> Filter:
    """A filter; whoever goes on with a durable subscription need not say which it was."""
    return Filter(text or "TRUE")
