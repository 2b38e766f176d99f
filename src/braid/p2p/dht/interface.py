"""What a distributed hash table promises to what stands on it, and what it asks of it.

A *peer machine* (`braid.p2p.peer.Peer`) is a DHT and an application that share one `Turn`. Nothing here does
anything by itself: what is to be sent is collected in the turn, and `Peer.handle` returns it as effects, one
`SendTo` per address. Time comes in with each call from below as `now_us`.

The application uses only the names of `Dht` and must not look behind them; the DHT calls only the names of
`Application`. Two implementations, `ring.Ring` (every peer knows every peer) and `pastry.Pastry` (each knows
some dozens), keep the following promises.

**What the DHT promises.**

- `route(key, message)` takes a message towards the owner of a key, where `Application.deliver` gets it. If
  this peer is the owner, `deliver` comes later in the same turn, never inside the call. A message may be
  lost (a datagram was, or a peer on the way died) and may, after a failure on the way or a lost
  acknowledgement, come twice. It may come to a peer that is not (or no longer) the owner while neighbours
  disagree for a moment: `deliver` is called where the message ends, and `responsible(key)` says what that
  peer believes.
- On the way, each further peer gets `Application.forward` before it passes the message on; also the peer that
  called `route`, with its own address as `sender`.
- `send(address, message)` takes a message directly to a peer, whose application gets `received`. It is for
  addresses that the application has heard of, such as `sender`s and the `address` of contacts.
- Where hops are confirmed (a setting of both implementations), messages are sent again until they are, what
  was routed goes another way if a peer does not answer, and `undelivered(address, message)` gives back what
  was sent directly to it.
- `responsible(key)` and `owner(key)` answer from what this peer knows, without asking anybody. `owner`
  names the owner where it is this peer or one of its neighbours on the circle, and None where it cannot
  know.
- `following(key)` names the peer that a message for a key would go to next from here: this peer's own
  address where it would end, None before this peer has its place. So an application can go the way of the
  keys hop by hop, and say to each peer on it in one datagram what concerns many keys.
- `changes` counts changes of what this peer knows of others: as long as it stays, `following`, `owner` and
  `responsible` answer as before.
- `neighbours(count)` are the `count // 2` nearest peers before and after this one on the circle, nearest
  first, taken in turns (predecessor, successor, ...), fewer where there are not so many. If this peer dies,
  each of its keys goes to the nearest predecessor or to the nearest successor: this is where replicas
  belong.
- `ownership_changed` is called after every change of the nearest predecessor or successor, so of the keys
  that this peer is responsible for. The application asks `responsible` and `owner` for each key that it
  holds. A key that was lost belongs to a neighbour, so `owner` names it.
- `peer_failed(address)` is called when a peer that this one had dealings with did not answer or said goodbye
  (`polite`). It may be wrong: a peer that was unreachable for some seconds comes back, and then nothing is
  called; anything that is heard from it shows it.
- `joined` is called once, when this peer has its place. Before, `route` keeps messages (up to a bound) and
  `responsible` is False for every key.
- `leave()` says goodbye to the neighbours, who own the keys from then on. Before, `leaving` is called until
  the application has handed over what it has. After it, this peer owns no key: it passes on what still comes,
  says goodbye to those it comes from, and `parting` is called until the application is not needed any more.

**What the DHT asks of the application.** Messages are `msgspec.Struct` classes with integer tags from 200
up (`array_like=True`), registered with `braid.p2p.peer.peer_vocabulary`. An object given to `route` or
`send` is not changed afterwards: in a simulation the receiver gets the very same object. `deliver`,
`forward` and `received` may call `route` and `send`, and do not call `join` or `leave`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from braid.p2p.dht.identifiers import Address, Contact, Key

__all__ = ["Application", "Dht"]


class Application(Protocol):
    """What stands on a DHT: its upcalls."""

    def deliver(self, key: Key, message: msgspec.Struct, sender: Address, now_us: int) -> None:
        """A routed message has come to its end. `sender` is the peer it came from, the last on its way."""
        ...

    def forward(
        self, key: Key, message: msgspec.Struct, sender: Address, following: Address, now_us: int
    ) -> msgspec.Struct | None:
        """A routed message from `sender` is about to go on to `following`.

        Returns:
            What goes on: usually the message itself; None to end its way here.
        """
        ...

    def received(self, sender: Address, message: msgspec.Struct, now_us: int) -> None:
        """A message was sent directly to this peer."""
        ...

    def undelivered(self, address: Address, message: msgspec.Struct, now_us: int) -> None:
        """A message that was sent directly was not confirmed, where messages are, and is not sent again."""
        ...

    def joined(self, now_us: int) -> None:
        """This peer has its place."""
        ...

    def ownership_changed(self, now_us: int) -> None:
        """This peer is responsible for other keys than before."""
        ...

    def peer_failed(self, address: Address, now_us: int, *, polite: bool) -> None:
        """A peer has gone, as far as can be told from here."""
        ...

    def leaving(self, now_us: int) -> bool:
        """This peer is about to leave, called after each turn: whether everything is handed over."""
        ...

    def parting(self, now_us: int) -> bool:
        """This peer has said goodbye, called after each turn: whether nobody needs it any more."""
        ...

    def tick(self, now_us: int) -> None:
        """Time has passed: the deadline that was asked for may be here."""
        ...

    def next_deadline_us(self) -> int | None:
        """When `tick` is due at the latest, if at all."""
        ...


class Dht(Protocol):
    """What carries an application: where keys belong, and how messages get there."""

    @property
    def own(self) -> Contact:
        """This peer."""
        ...

    def start(self, application: Application) -> None:
        """Name the application, once, before anything else."""
        ...

    # For the application.

    def route(self, key: Key, message: msgspec.Struct, now_us: int) -> None:
        """Take a message to the owner of a key."""
        ...

    def send(self, address: Address, message: msgspec.Struct, now_us: int) -> None:
        """Take a message to the peer at an address."""
        ...

    def responsible(self, key: Key) -> bool:
        """Whether this peer is the owner of a key, as far as it knows."""
        ...

    def owner(self, key: Key) -> Contact | None:
        """The owner of a key, if it is this peer or one of its neighbours; None if it cannot be told."""
        ...

    def following(self, key: Key) -> Address | None:
        """The next peer on the way to a key; this peer itself if it ends here, None if that is not known."""
        ...

    def neighbours(self, count: int) -> list[Contact]:
        """The nearest peers before and after this one on the circle."""
        ...

    def suspect(self, address: Address, now_us: int) -> None:
        """By what others say or do a peer is dead: if it is known here, see at once whether it is."""
        ...

    @property
    def changes(self) -> int:
        """A number that rises whenever `following`, `owner` or `responsible` may answer otherwise."""
        ...

    @property
    def patience_us(self) -> int:
        """How long a message may be under way, as far as this peer has seen."""
        ...

    # For the peer machine.

    def join(self, bootstrap: Sequence[Address], now_us: int) -> None:
        """Become part of the network that these peers belong to; without any of them, begin one."""
        ...

    def leave(self, now_us: int) -> None:
        """Say goodbye, and from now on only pass on."""
        ...

    @property
    def is_quiet(self) -> bool:
        """Whether nothing that was sent waits to be confirmed."""
        ...

    def heard(self, sender: Address, message: msgspec.Struct, now_us: int) -> bool:
        """Take in a message; False if it is none of this DHT, and so one for the application."""
        ...

    def tick(self, now_us: int) -> None:
        """Time has passed."""
        ...

    def next_deadline_us(self) -> int | None:
        """When `tick` is due at the latest, if at all."""
        ...
