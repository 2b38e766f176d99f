"""How does a text file become a run of a network?

A file holds commands, each followed by a line of dashes and the whole answer: what crossed each link and what
each client heard, in order. Time stands still between commands, except for the twentieth of a second that
each takes; `pass` lets more go by.

    broker NAME [neighbour=NAME,NAME] [store] [access] [strategy=NAME] [fanout=NUMBER] [review_us=NUMBER]
        [SETTING=NUMBER ...]
    principal NAME [publish=FILTER;] [subscribe=FILTER;] [operate] [narrow] [LIMIT=NUMBER ...]
    client NAME at BROKER [token=NAME] [credit=BYTES]
    subscribe CLIENT KEY [when=CHOICE] FILTER         unsubscribe CLIENT KEY
    advertise CLIENT KEY FILTER                       unadvertise CLIENT KEY
    publish CLIENT [acknowledged] [ordered] [as=NAME] [first=NUMBER] JSON ...
    durable CLIENT NAME FILTER      resume CLIENT NAME [after OFFSET] [takeover]
    done CLIENT NAME OFFSET
    replay CLIENT NAME FIRST LAST   drop CLIENT NAME
    ask CLIENT TOPIC [NAME=VALUE]   leave CLIENT   sleep CLIENT / wake CLIENT   keep CLIENT / settle CLIENT
    cut BROKER BROKER    kill BROKER    start BROKER    drain BROKER    pass SECONDSs    tables BROKER
    freeze BROKER / thaw BROKER     (its store)      state BROKER      (who is behind, and who waits for it)
    soft BROKER [NAME,NAME]         (as if a review had chosen these soft links)
    mesh BROKER                     (what it sees, its soft links and what it tries)
    anchors BROKER                  (where it can send publications to for each subscription)
    hold BROKER BROKER              (what the first sends to the second does not arrive by itself any more)
    held BROKER BROKER              (what has not arrived, in order)
    deliver BROKER BROKER [COUNT]   drop BROKER BROKER [COUNT]   reorder BROKER BROKER NUMBER   (comes first)
    release BROKER BROKER           (all of it arrives, and nothing is held any more)

A client that sleeps reads nothing; one that keeps reads, and does not say that it is done. What crosses a
soft link is drawn with `=>`. Every command runs to rest but for what is held: so an interleaving is written
down message by message. What is held is told when it is sent; messages that only say that nothing is wrong,
such as acknowledgements, are not told, not counted, and travel with the one before them.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from braid.adaptation import SoftLinkSettings
from braid.broker.access import AccessPolicy, Grant, Limits, Principal, hashed_token
from braid.language import Filter
from braid.protocol import Frame, PublicationBatch
from braid.protocol.batch import decode_record
from braid.protocol.copies import CopiesTold
from braid.protocol.destinations import digest_of, unpacked_destinations
from braid.protocol.inputs import Drain
from braid.protocol.messages import (
    Acknowledge,
    Acknowledgement,
    Advertise,
    Ask,
    Done,
    DropDurable,
    Failed,
    Goodbye,
    Hello,
    Introduction,
    LinkState,
    Loads,
    Nearby,
    Ping,
    Pong,
    PublishDiscarded,
    PublishRefused,
    Reach,
    Refused,
    Replay,
    Settled,
    StoredPublications,
    Subscribe,
    SubscribeDurable,
    SyncBegin,
    TablesComplete,
    TablesIncomplete,
    Unadvertise,
    Unsubscribe,
    Welcome,
)
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["DASHES", "Conversation", "parsed"]

DASHES = "----"
STEP_US = 50_000
# They only say that nothing is wrong, whenever they come.
SILENT = (Acknowledgement, Ping, Pong, Reach, Loads, Introduction)


def parsed(text: str) -> list[tuple[list[str], str | None, list[str]]]:
    """Comments before a command, the command (None at the end of the file), and the expected answer."""
    blocks: list[tuple[list[str], str | None, list[str]]] = []
    comments: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.strip() or line.startswith("#"):
            comments.append(line)
            continue
        if at >= len(lines) or lines[at] != DASHES:
            raise ValueError(f"line {at}: after the command {line!r} comes {DASHES}")
        at += 1
        answer = []
        while at < len(lines) and lines[at].strip():
            answer.append(lines[at])
            at += 1
        blocks.append((comments, line, answer))
        comments = []
    blocks.append((comments, None, []))
    return blocks


class Conversation:
    """Runs commands over a network of broker cores and writes down what happens."""

    def __init__(self) -> None:
        self.network = Network()
        self.network.on_frames = self._crossed
        self.clients: dict[str, WireClient] = {}
        self._principals: dict[str, Principal] = {}
        self._requests = 0
        self._lines: list[str] = []
        self._soft_pairs: set[frozenset[str]] = set()
        """Pairs of brokers of which one has greeted the other for a soft link."""
        self._keys: dict[str, str] = {}

    def say(self, command: str) -> list[str]:
        """The answer to one command."""
        self._lines = []
        verb, _, rest = command.partition(" ")
        getattr(self, "_" + verb)(rest)
        self.network.run(us=STEP_US)
        for name, client in self.clients.items():
            if client.cares:
                self._lines.append(f"{name}: settled {', '.join(map(str, client.cares))}")
                client.cares.clear()
            if not client.open and client.broker:
                self._lines.append(f"{name}: disconnected")
                client.broker = ""
        return [self._readable(line) for line in self._lines] or ["nothing"]

    # Brokers.

    def _broker(self, rest: str) -> None:
        name, choices, flags = _options(rest)
        neighbours = tuple(filter(None, choices.pop("neighbour", "").split(",")))
        access = None
        if "access" in flags:
            tokens = {hashed_token(each): each for each in self._principals}
            access = AccessPolicy(principals=self._principals, tokens=tokens)
        strategy = choices.pop("strategy", "S0")
        soft_links = SoftLinkSettings(
            fanout=int(choices.pop("fanout", 16)),
            review_us=int(choices.pop("review_us", 600_000_000)),
            rest_reviews=int(choices.pop("rest_reviews", 1)),
        )
        settings = {key: int(value) for key, value in choices.items()}
        token = f"{name}" if access is not None else ""
        self.network.start(
            name,
            neighbours=neighbours,
            access=access,
            store="store" in flags,
            flooding="flooding" in flags,
            link_token=token,
            strategy=strategy,
            soft_links=soft_links,
            **settings,
        )
        self.network.run(us=1_000_000)
        self._lines = ["ready" if self.network.cores[name].ready else "not ready"]

    def _principal(self, rest: str) -> None:
        filters = dict(re.findall(r"(publish|subscribe)=([^;]*);", rest))
        name, choices, flags = _options(re.sub(r"(publish|subscribe)=[^;]*;", "", rest))
        grant = Grant(
            Filter(filters["publish"]) if "publish" in filters else None,
            Filter(filters["subscribe"]) if "subscribe" in filters else None,
            operate="operate" in flags,
            narrow="narrow" in flags,
        )
        limits = Limits(**{key: int(value) for key, value in choices.items()})
        self._principals[name] = Principal(name, grant, limits)

    def _cut(self, rest: str) -> None:
        self.network.cut(*rest.split())

    def _kill(self, rest: str) -> None:
        self.network.kill(rest)

    def _start(self, rest: str) -> None:
        self.network.start(rest)
        self.network.run(us=2_000_000)

    def _drain(self, rest: str) -> None:
        self.network.tell(rest, Drain())
        self.network.run(us=STEP_US)
        self._lines.append(f"{rest}: {'drained' if rest in self.network.drained else 'draining'}")

    def _pass(self, rest: str) -> None:
        self.network.run(us=round(float(rest.removesuffix("s")) * 1e6))
        self._lines.extend(
            f"{name}: drained" for name in sorted(self.network.drained & set(self.network.cores))
        )

    # Message by message.

    def _hold(self, rest: str) -> None:
        self.network.hold(*rest.split())

    def _held(self, rest: str) -> None:
        for _, frame in self.network.held[_pair(rest)]:
            if not isinstance(frame.body, SILENT):
                self._lines.append(_told(frame.body, self.network.settings))

    def _deliver(self, rest: str) -> None:
        source, target, *count = rest.split()
        self.network.deliver(source, target, self._frames_of(source, target, int(count[0]) if count else 1))

    def _reorder(self, rest: str) -> None:
        source, target, number = rest.split()
        waiting = self.network.held[source, target]
        chosen = self._frames_of(source, target, int(number)) - 1
        while isinstance(waiting[chosen][1].body, SILENT):
            chosen -= 1
        frame = waiting[chosen]
        del waiting[chosen]
        waiting.appendleft(frame)

    def _release(self, rest: str) -> None:
        self.network.release(*rest.split())

    def _frames_of(self, source: str, target: str, count: int) -> int:
        """How many frames the first so many messages are that are told."""
        waiting = self.network.held[source, target]
        told = [at for at, (_, frame) in enumerate(waiting) if not isinstance(frame.body, SILENT)]
        if count > len(told):
            raise ValueError(f"only {len(told)} messages from {source} to {target} are held")
        return told[count] if count < len(told) else len(waiting)

    def _freeze(self, rest: str) -> None:
        self.network.frozen_stores.add(rest)

    def _thaw(self, rest: str) -> None:
        self.network.frozen_stores.discard(rest)

    def _tables(self, rest: str) -> None:
        tables = self.network.cores[rest]._subscriptions.tables
        for title, entries in (
            ("subscription", tables._subscriptions),
            ("advertisement", tables._advertisements),
        ):
            for key, entry in sorted(entries._entries.items()):
                origin = entry.origin if isinstance(entry.origin, str) else "here"
                self._lines.append(f"{title} {key}: {entry.filter}, from {origin}")
        statistics = tables.statistics()
        for link, numbers in sorted(statistics.links.items()):
            self._lines.append(
                f"{link} knows {numbers.subscriptions_told} subscriptions "
                f"({numbers.subscriptions_hidden} hidden) and {numbers.advertisements_told} advertisements "
                f"({numbers.advertisements_hidden} hidden)"
            )

    def _state(self, rest: str) -> None:
        core = self.network.cores[rest]
        statistics = core.statistics()
        held_up = sorted(client.name for client in core._connections.clients if client.channel.withheld)
        self._lines.append(
            f"{statistics['clients_behind']} behind, {statistics['counters']['dropped']} dropped, "
            f"held up: {', '.join(held_up) or 'nobody'}"
        )

    def _soft(self, rest: str) -> None:
        name, _, others = rest.partition(" ")
        self.network.cores[name]._mesh._follow(frozenset(filter(None, others.split(","))))

    def _mesh(self, rest: str) -> None:
        mesh = self.network.cores[rest]._mesh
        report = asdict(mesh.snapshot())
        overlay = self.network.cores[rest]._maps.surroundings.map()
        places = ", ".join(f"{broker} behind {overlay.parent(broker)}" for broker in overlay.brokers)
        self._lines.append(f"sees {places or 'nobody'}")
        for title, key in (
            ("soft links to", "soft_links"),
            ("soft links from", "soft_links_from"),
            ("tries", "candidates"),
        ):
            if report[key]:
                self._lines.append(f"{title} {', '.join(report[key])}")
        if report["saving_uplink"]:
            self._lines.append("saves copies")

    def _anchors(self, rest: str) -> None:
        tables = self.network.cores[rest]._subscriptions.tables
        for key, entry in sorted(tables._subscriptions._entries.items()):
            where = entry.anchor.broker or (entry.origin if isinstance(entry.origin, str) else "here")
            exact = " itself" if entry.anchor.exact else ""
            self._lines.append(f"{key}: {entry.filter}, at {where}{exact}")

    # Clients.

    def _client(self, rest: str) -> None:
        name, choices, flags = _options(rest)
        broker = flags[1]
        client = self.network.client(
            name, broker, token=choices.get("token"), credit=int(choices.get("credit", 1 << 22))
        )
        old = self.clients.get(name)
        if old is not None:
            # As the client library does: what was not settled is sent again.
            client.channel, fresh = old.channel, client.channel
            client.sequence = old.sequence
            if fresh.connected:
                client.channel.restart(fresh.credit)
                client.flush()
        self.clients[name] = client
        for party in self.network.cores[broker]._connections.clients:
            if party.name == name:
                self._keys[party.key] = f"{broker}/{name}"

    def _leave(self, rest: str) -> None:
        client = self.clients[rest]
        self.network.leave(client)
        client.broker = ""

    def _request(self, name: str, message: Any) -> None:
        self.clients[name].ask(message)

    def _number(self) -> int:
        self._requests += 1
        return self._requests

    def _subscribe(self, rest: str) -> None:
        name, key, text = rest.split(" ", 2)
        when_full, text = re.findall(r"^(?:when=(\w+) )?(.*)$", text)[0]
        self._request(name, Subscribe(self._number(), key, text, when_full or "block"))

    def _unsubscribe(self, rest: str) -> None:
        name, key = rest.split()
        self._request(name, Unsubscribe(self._number(), key))

    def _advertise(self, rest: str) -> None:
        name, key, text = rest.split(" ", 2)
        self._request(name, Advertise(self._number(), key, text))

    def _unadvertise(self, rest: str) -> None:
        name, key = rest.split()
        self._request(name, Unadvertise(self._number(), key))

    def _publish(self, rest: str) -> None:
        head, _, documents = rest.partition("{")
        name, choices, flags = _options(head)
        client = self.clients[name]
        if "first" in choices:
            client.sequence = int(choices["first"]) - 1
        rows = [_expanded(row) for row in _documents("{" + documents)]
        client.publish(
            *rows,
            acknowledged="acknowledged" in flags,
            ordered="ordered" in flags,
            publisher=choices.get("as", ""),
        )

    def _durable(self, rest: str) -> None:
        name, log, text = rest.split(" ", 2)
        self._request(name, SubscribeDurable(self._number(), log, text))

    def _resume(self, rest: str) -> None:
        name, log, *after = rest.split()
        takeover = "takeover" in after
        offset = int(after[1]) if "after" in after else -1
        again = SubscribeDurable(self._number(), log, "", resume_after=offset, takeover=takeover)
        self._request(name, again)

    def _done(self, rest: str) -> None:
        name, log, offset = rest.split()
        self._request(name, Acknowledge(log, int(offset)))

    def _replay(self, rest: str) -> None:
        name, log, first, last = rest.split()
        self._request(name, Replay(self._number(), log, int(first), int(last)))

    def _drop(self, rest: str) -> None:
        name, log, *count = rest.split()
        if name not in self.network.settings:
            self._request(name, DropDurable(self._number(), log))
            return
        for _ in range(self._frames_of(name, log, int(count[0]) if count else 1)):
            self.network.held[name, log].popleft()

    def _ask(self, rest: str) -> None:
        name, choices, flags = _options(rest)
        self._request(name, Ask(self._number(), flags[0], choices))

    def _sleep(self, rest: str) -> None:
        self.clients[rest].reads = False

    def _wake(self, rest: str) -> None:
        client = self.clients[rest]
        waiting = list(client.unread)
        self._lines.extend(self._heard(rest, waiting))
        client.read()

    def _keep(self, rest: str) -> None:
        self.clients[rest].settles = False

    def _settle(self, rest: str) -> None:
        client = self.clients[rest]
        client.settles = True
        client.receive([])

    # What happened.

    def _crossed(self, source: str, target: str, frames: Sequence[Frame]) -> None:
        frames = [frame for frame in frames if not isinstance(frame.body, SILENT)]
        if target in self.network.settings:
            arrow = self._arrow(source, target, frames)
            self._lines.extend(
                f"{source} {arrow} {target}: {_told(frame.body, self.network.settings)}" for frame in frames
            )
        elif self.clients.get(target) is None or self.clients[target].reads:
            self._lines.extend(self._heard(target, frames))

    def _arrow(self, source: str, target: str, frames: Sequence[Frame]) -> str:
        """How a soft link differs from a primary one: no two brokers have both."""
        pair = frozenset({source, target})
        for frame in frames:
            if isinstance(frame.body, Hello):
                (self._soft_pairs.add if frame.body.role == "soft" else self._soft_pairs.discard)(pair)
        return (
            "=>"
            if pair in self._soft_pairs and target not in self.network.cores[source]._links.links
            else "->"
        )

    def _heard(self, name: str, frames: Sequence[Frame]) -> list[str]:
        return [
            f"{name}: {_told(frame.body)}"
            for frame in frames
            if not isinstance(frame.body, (*SILENT, Welcome))
        ]

    def _readable(self, line: str) -> str:
        """With clients' names in keys, which hold numbers."""
        for key in sorted(self._keys, key=len, reverse=True):
            line = line.replace(f"{key}/", f"{self._keys[key]}/")
        return line


def _pair(rest: str) -> tuple[str, str]:
    source, target = rest.split()
    return source, target


def _options(rest: str) -> tuple[str, dict[str, str], list[str]]:
    name, *words = rest.split()
    choices = dict(word.split("=", 1) for word in words if "=" in word)
    return name, choices, [word for word in words if "=" not in word]


def _documents(text: str) -> list[dict[str, Any]]:
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        document, at = decoder.raw_decode(text, at)
        found.append(document)
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


def _expanded(row: dict[str, Any]) -> dict[str, Any]:
    """`"pad": 1000` stands for so many letters, to have something large."""
    return {name: "x" * value if name == "pad" else value for name, value in row.items()}


def _rows(batch: PublicationBatch) -> str:
    return " ".join(_document(row) for row in batch.attributes())


def _document(attributes: Any) -> str:
    return json.dumps({name: len(value) if name == "pad" else value for name, value in attributes.items()})


def _told(body: Any, brokers: Iterable[str] = ()) -> str:
    def named(packed: bytes) -> str:
        names = {digest_of(broker): broker for broker in brokers}
        return ", ".join(sorted(names.get(digest, "?") for digest in unpacked_destinations(packed)))

    match body:
        case PublicationBatch():
            numbers = body.sequences.tolist()
            which = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
            kind = "acknowledged publication" if body.acknowledged else "publication"
            kind = f"repetition of {kind}" if body.again else kind
            route = f" for {named(body.route)}" if body.route else ""
            return f"{kind} {body.publisher} {which}{route} {_rows(body)}"
        case Subscribe(anchor=anchor, exact=exact) if anchor or exact:
            itself = " itself" if exact else ""
            return f"subscribe {body.key} {body.filter}, at {anchor or 'me'}{itself}"
        case Subscribe() | Advertise():
            return f"{type(body).__name__.lower()} {body.key} {body.filter}"
        case Nearby():
            news = [f"{broker} behind {before}" for broker, before, _ in body.added]
            news += [f"{broker} is gone" for broker in body.removed]
            return f"nearby: {', '.join(news)}"
        case LinkState():
            gone = f", none any more to {named(body.gone)}" if body.gone else ""
            return f"I have links to {named(body.added) or 'nobody new'}{gone}"
        case Settled():
            return f"settled {', '.join(map(str, body.frames))}"
        case Unsubscribe() | Unadvertise():
            return f"{type(body).__name__.lower()} {body.key}"
        case Done():
            return f"done {body.text}".rstrip()
        case Failed() | Refused():
            return f"{type(body).__name__.lower()} ({body.code}) {body.reason}"
        case PublishRefused():
            return f"publication {', '.join(map(str, body.sequences))} refused ({body.code}) {body.reason}"
        case PublishDiscarded():
            why = "repeated" if body.known else "too old"
            return f"publication {', '.join(map(str, body.sequences))} discarded ({why})"
        case Goodbye():
            return f"goodbye {body.reason}{', for good' if body.detach else ''}"
        case StoredPublications():
            rows = [
                _document(decode_record(record, who, number).attributes) for who, number, record in body.rows
            ]
            what = "again" if body.replay else "stored"
            return f"{what} {body.name} {body.first_offset}: {' '.join(rows)}"
        case Hello():
            return (
                f"hello{', to go on' if body.resumes else ', by a soft link' if body.role == 'soft' else ''}"
            )
        case Welcome():
            return f"welcome{', go on' if body.resumes else ''}"
        case SyncBegin():
            return "here is what I know"
        case TablesComplete():
            return "that is everything"
        case TablesIncomplete():
            return "I do not know everything"
        case CopiesTold():
            return "I can keep copies of logs" if body.able else "I keep no copies of logs"
    return repr(body)
