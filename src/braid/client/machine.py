"""A client's session with an application above it, as a machine that any driver can drive.

A session also tells the application things (answers, arrivals, receipts). Here those go to `concern`, and
what the application then asks for joins what the driver is told to do; so a simulated world or a node runs a
client as it runs a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.protocol.effects import Close, Dial, Note, Send

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.client.effects import ClientEffect
    from braid.client.session import ClientSession
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input

__all__ = ["ClientMachine"]


class ClientMachine:
    """One client. Its first input, which should be a `Tick`, makes it dial."""

    def __init__(
        self,
        session: ClientSession,
        concern: Callable[[ClientEffect], None],
        after_turn: Callable[[], None],
    ) -> None:
        """
        Args:
            session: what decides.
            concern: told what is for the application, which may call the session's methods at once.
            after_turn: called when everything that an input led to has been told.
        """
        self.session = session
        self._concern = concern
        self._after_turn = after_turn
        self._started = False

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        """Take in what happened; also sends what the application has asked for since the last time."""
        session = self.session
        if not self._started:
            self._started = True
            told = session.start(now_us)
        else:
            session.flush()
            told = session.handle(stimulus, now_us)
        effects: list[Effect] = []
        while told:
            for effect in told:
                if isinstance(effect, Send | Close | Dial | Note):
                    effects.append(effect)
                else:
                    self._concern(effect)
            session.flush()
            told = session.take_effects()
        self._after_turn()
        return effects

    def next_deadline_us(self) -> int | None:
        """When a `Tick` is due at the latest."""
        return self.session.next_deadline_us() if self._started else 0
