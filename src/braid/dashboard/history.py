"""What has changed in the network, in sentences, from one picture to the next."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["History", "changes_between"]

# Sentences that are remembered.
CHANGES_MAX: Final = 300
# Points of the charts that are remembered: ten minutes at one a second.
POINTS_MAX: Final = 600


def changes_between(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is different: each with a kind, a sentence and the brokers it is about."""
    if now["problem"]:
        return (
            []
            if before["problem"]
            else [_change("failure", f"No broker answers any more: {now['problem']}.", ())]
        )
    if before["problem"]:
        return [_change("repair", "The network answers.", ())]
    old = {broker["id"]: broker for broker in before["brokers"]}
    new = {broker["id"]: broker for broker in now["brokers"]}
    return [*_brokers(old, new), *_tree(before, now, old, new), *_operations(old, new), *_soft(before, now)]


def _change(kind: str, text: str, brokers: Iterable[str]) -> dict[str, Any]:
    return {"kind": kind, "text": text, "brokers": sorted(brokers)}


def _brokers(
    old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    found = []
    for name, broker in new.items():
        was = old.get(name)
        if was is None:
            found.append(_change("arrival", f"{name} has joined.", [name]))
        elif broker["problem"] and not was["problem"]:
            found.append(_change("failure", f"{name} does not answer: {broker['problem']}.", [name]))
        elif was["problem"] and not broker["problem"]:
            how = "is back" if was["address"] == broker["address"] else "has been replaced by another process"
            found.append(_change("repair", f"{name} {how}.", [name]))
        elif was["incarnation"] != broker["incarnation"]:
            found.append(_change("repair", f"{name} was started again.", [name]))
        elif was["strategy"] != broker["strategy"]:
            found.append(
                _change(
                    "strategy",
                    f"{name} now forwards by {broker['strategy']} instead of {was['strategy']}.",
                    [name],
                )
            )
    found += [_change("departure", f"{name} has left.", [name]) for name in old if name not in new]
    return _together(found)


def _together(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One sentence where many brokers change their strategy at a time."""
    chosen = [each for each in found if each["kind"] == "strategy"]
    if len(chosen) < 3:
        return found
    how = chosen[0]["text"].partition(" ")[2]
    alike = [each for each in chosen if each["text"].partition(" ")[2] == how]
    names = [each["brokers"][0] for each in alike]
    rest = [each for each in found if each not in alike]
    return [
        *rest,
        _change("strategy", f"{len(names)} brokers {how.replace('forwards', 'forward', 1)}", names),
    ]


def _tree(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    old: Mapping[str, object],
    new: Mapping[str, object],
) -> list[dict[str, Any]]:
    was = {(link["a"], link["b"]): link for link in before["links"]}
    are = {(link["a"], link["b"]): link for link in now["links"]}
    both = old.keys() & new.keys()
    gone = [ends for ends in was if ends not in are and set(ends) <= both]
    come = [ends for ends in are if ends not in was and set(ends) <= both]
    found = []
    for ends in list(come):
        # A SHIFT takes one end of a link from a broker to another one.
        for left in list(gone):
            moving = set(ends) & set(left)
            if len(moving) == 1:
                (name,) = moving
                (source,), (target,) = set(left) - moving, set(ends) - moving
                found.append(
                    _change("move", f"{name} moved from {source} to {target}.", [name, source, target])
                )
                gone.remove(left)
                come.remove(ends)
                break
    found += [_change("link", f"A link from {a} to {b} has come.", [a, b]) for a, b in come]
    found += [_change("link", f"The link from {a} to {b} is gone.", [a, b]) for a, b in gone]
    for ends, link in are.items():
        earlier = was.get(ends)
        if earlier is not None and earlier["up"] is not link["up"]:
            a, b = ends
            if link["up"]:
                found.append(_change("repair", f"The link from {a} to {b} is up again.", ends))
            else:
                found.append(_change("failure", f"The link from {a} to {b} is down.", ends))
    return found


def _operations(
    old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    def running(brokers: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        return {
            broker["operation"]["id"]: broker["operation"]
            for broker in brokers.values()
            if broker["operation"]
        }

    was, are = running(old), running(new)
    return [
        _change("operation", f"{each['kind'].upper()} of {', '.join(each['path'])} has begun.", each["path"])
        for name, each in are.items()
        if name not in was
    ]


def _soft(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Soft links come and go in numbers, so those of one broker are one sentence."""
    # Of those who do not answer it is not known.
    silent = {broker["id"] for each in (before, now) for broker in each["brokers"] if broker["problem"]}
    was = {(link["from"], link["to"]) for link in before["soft"] if link["from"] not in silent}
    are = {(link["from"], link["to"]) for link in now["soft"] if link["from"] not in silent}
    found = []
    for source in sorted({source for source, _ in was ^ are}):
        opened = sorted(to for begin, to in are - was if begin == source)
        closed = sorted(to for begin, to in was - are if begin == source)
        parts = []
        if opened:
            parts.append(
                f"opened {'soft links' if len(opened) > 1 else 'a soft link'} to {', '.join(opened)}"
            )
        if closed:
            parts.append(f"closed its soft link{'s' if len(closed) > 1 else ''} to {', '.join(closed)}")
        found.append(_change("soft", f"{source} {' and '.join(parts)}.", [source, *opened, *closed]))
    return found


class History:
    """Remembers changes and the points of the charts, so many of each."""

    def __init__(self) -> None:
        self.changes: deque[dict[str, Any]] = deque(maxlen=CHANGES_MAX)
        self.points: deque[dict[str, Any]] = deque(maxlen=POINTS_MAX)
        self._last: Mapping[str, Any] | None = None
        self._number = 0

    def add(self, picture: Mapping[str, Any], latency_ms: float | None) -> list[dict[str, Any]]:
        """Take in the next picture; what has changed with it."""
        fresh = changes_between(self._last, picture) if self._last is not None else []
        for change in fresh:
            self._number += 1
            change["number"] = self._number
            change["at"] = picture["at"]
        self.changes.extend(fresh)
        self._last = picture
        totals = picture["totals"]
        self.points.append(
            {
                "at": picture["at"],
                **{
                    name: totals[name]
                    for name in ("published", "delivered", "forwarded", "messages_per_delivery")
                },
                "queue": totals["queue"],
                "busiest": totals["busiest"],
                "latency_ms": latency_ms,
            }
        )
        return fresh

    def note(self, kind: str, text: str, brokers: Iterable[str], at_s: float) -> None:
        """Remember something that no picture shows, such as the beginning of a plan."""
        self._number += 1
        self.changes.append({**_change(kind, text, brokers), "number": self._number, "at": round(at_s, 3)})
