"""An operator in a simulated world: a station that asks a broker for operations and keeps the answers."""

from __future__ import annotations

import json
from typing import Any

from braid.protocol.messages import Ask, Done, Failed
from braid.sim import Station

__all__ = ["OperatorStation"]


class OperatorStation(Station):
    """Asks and remembers."""

    __slots__ = ("answers",)

    def __init__(self, name: str, broker: str) -> None:
        super().__init__(name, broker)
        self.answers: dict[int, dict[str, Any]] = {}
        """What brokers said, by request; a refusal has the key `refused`."""

    def ask(self, topic: str, **arguments: str) -> int:
        """Ask for something; returns the number of the request."""
        request = self.next_request()
        self.say(Ask(request, topic, arguments))
        return request

    def shift(self, moving: str, old: str, new: str, **more: str) -> int:
        """Ask for a SHIFT."""
        return self.ask("reconfigure", operation="shift", moving=moving, old=old, new=new, **more)

    def _heard(self, message: Any) -> None:
        if isinstance(message, Done):
            self.answers[message.request] = json.loads(message.text) if message.text else {}
        elif isinstance(message, Failed):
            self.answers[message.request] = {"refused": message.reason, "code": message.code}
        super()._heard(message)
