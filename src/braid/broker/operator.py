"""What do operators ask for?

Reports and small operations, asked by a client whose grant lets it operate; the answer is JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from braid.errors import RequestRefusedError
from braid.protocol.messages import Done

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.broker.parties import Client
    from braid.broker.turn import Turn
    from braid.protocol.messages import Ask

__all__ = ["Operator"]

# What only looks, and is not worth a line in the audit log.
_REPORTS = frozenset({"overlay", "peer", "process", "statistics", "subscriptions", "watch", "way"})
# What an answer takes in a frame beside its text.
ANSWER_BYTES = 64


class Operator:
    """Answers operators."""

    def __init__(
        self,
        turn: Turn,
        topics: Mapping[str, Callable[[Mapping[str, str]], Any]],
        later: Mapping[str, Callable[[Client, Ask], None]],
    ) -> None:
        """
        Args:
            turn: where answers go.
            topics: who answers which question.
            later: who answers which question when something has been done that takes a while.
        """
        self._turn = turn
        self.topics = dict(topics)
        """Who answers which question."""
        self._later = later

    def ask(self, client: Client, message: Ask) -> None:
        """Answer one question."""
        topic = message.topic
        try:
            answer = self.topics.get(topic)
            if answer is None and topic not in self._later:
                known = ", ".join(sorted((*self.topics, *self._later)))
                raise RequestRefusedError(f"there is no topic {topic!r}; there are {known}", "unknown")
            client.principal.require_operate(topic)
            if topic not in _REPORTS:
                self._audit(client, message, "asked for")
            if answer is None:
                self._later[topic](client, message)
                return
            text = msgspec.json.encode(answer(message.arguments)).decode()
            size, size_max = len(text.encode()) + ANSWER_BYTES, client.channel.frame_bytes_max
            if size > size_max:
                raise RequestRefusedError(
                    f"the answer has {size:,} bytes, and this connection reads at most {size_max:,}", "limit"
                )
        except RequestRefusedError as error:
            self._audit(client, message, str(error))
            self._turn.fail(client, message.request, error)
            return
        self._turn.tell(client, Done(message.request, text))

    def _audit(self, client: Client, message: Ask, outcome: str) -> None:
        self._turn.audit(
            "info",
            "operator command",
            client=client.name,
            principal=client.principal.name,
            topic=message.topic,
            arguments=dict(message.arguments),
            outcome=outcome,
        )
