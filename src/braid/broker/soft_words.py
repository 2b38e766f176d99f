"""Does a soft link come from the broker in whose name it is opened?

Brokers that open soft links to each other may never have met, and a peer that has a soft link in a broker's
name is sent what is for that broker. So a broker that is about to open one says so along the tree
(`SoftWord`), where everybody knows in which direction it lies, with a word that it shows again in its
greeting. A neighbour's claim to speak for a broker that is not behind it goes nowhere. Brokers on the way
between the two hear the word; what is published there passes them anyway.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from braid.protocol.messages import SoftWord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.broker.parties import Link
    from braid.broker.reachability import Reachability
    from braid.broker.turn import Turn
    from braid.protocol.messages import Hello

__all__ = ["SoftWords"]

# As long as those that are made here.
WORD_LENGTH_MAX = 64


class SoftWords:
    """The words of soft links that are about to be opened, from here and to here."""

    def __init__(
        self,
        turn: Turn,
        links: Mapping[str, Link],
        reachability: Reachability,
        new_word: Callable[[], str],
    ) -> None:
        """
        Args:
            turn: where messages to neighbours go.
            links: the neighbours by their names.
            reachability: knows the way to other brokers.
            new_word: a word that nobody can guess.
        """
        self._broker_id = turn.settings.broker_id
        self._turn = turn
        self._links = links
        self._reachability = reachability
        self._new_word = new_word
        self._given: dict[str, str] = {}
        """By broker, what it was told last."""
        self._heard: dict[str, str] = {}
        """By broker, what it said last, until it is used."""

    def send(self, receiver: str) -> None:
        """Tell a broker that a soft link from here is to come."""
        word = self._given[receiver] = self._new_word()
        self._pass_on(SoftWord(self._broker_id, receiver, word))

    def given(self, receiver: str) -> dict[str, str]:
        """What proves to a broker that a soft link is ours."""
        word = self._given.pop(receiver, None)
        return {receiver: word} if word is not None else {}

    def hear(self, link: Link, message: SoftWord) -> None:
        """A neighbour passes on that a broker is about to open a soft link to us, or to another one."""
        if message.sender not in link.behind or len(message.word) > WORD_LENGTH_MAX:
            return
        if message.receiver == self._broker_id:
            self._heard[message.sender] = message.word
            # Those who have gone will not come any more.
            for broker in self._heard.keys() - self._reachability.reach():
                del self._heard[broker]
        elif message.receiver not in link.behind:
            self._pass_on(message)

    def _pass_on(self, message: SoftWord) -> None:
        toward = self._reachability.toward(message.receiver)
        if toward is not None:
            self._turn.tell_connection(self._links[toward], message)

    def proved(self, hello: Hello) -> bool:
        """Whether a soft link is opened by whom it says; its word is used up then."""
        word = self._heard.get(hello.name)
        if word is None or not hmac.compare_digest(word.encode(), self._shown(hello).encode()):
            return False
        del self._heard[hello.name]
        return True

    def _shown(self, hello: Hello) -> str:
        return hello.proofs.get(self._broker_id, "")
