"""By which policy does a broker look for a better tree, if it does at all?

The settings say how a broker begins; operators choose another policy while it runs (`braid overlay
topology`). A broker whose policy is `static` has nothing of all that: it takes no notice of what passes, and
neither answers news and requests of others nor passes them on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from braid.adaptation.topology.settings import OTHER_POLICIES, POLICIES
from braid.errors import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.adaptation.topology import TopologySettings
    from braid.broker.organising import Organising
    from braid.broker.parties import Link
    from braid.protocol.inputs import Probed
    from braid.protocol.organising import LinkRequest, TopologyNews

__all__ = ["TopologyChoice"]


class TopologyChoice:
    """The policy of one broker.

    Args:
        broker: its name.
        settings: the policy at the start, and all figures.
        make: what takes part by a policy; its news are numbered on from there.
        done: how many exchanges that this broker began were carried out, and given up.
    """

    def __init__(
        self,
        broker: str,
        settings: TopologySettings,
        make: Callable[[TopologySettings, int], Organising],
        done: Callable[[], tuple[int, int]],
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._make = make
        self._done = done
        self._number = 0
        """Of the last news under an earlier policy: later ones are newer to everybody."""
        self.organising: Organising | None = None
        """What takes part; None with the policy `static`."""
        self._use(settings.policy)

    def _use(self, policy: str) -> None:
        if self.organising is not None:
            self._number = self.organising.organiser.number
        self._settings = replace(self._settings, policy=policy)
        self.organising = self._make(self._settings, self._number) if policy != "static" else None

    def choose(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Look for a better tree by another policy from now on; without one, say what there is to say.

        Raises:
            RequestRefusedError: there is no such policy.
        """
        policy = arguments.get("policy", self._settings.policy)
        known = (*POLICIES, *sorted(OTHER_POLICIES))
        if "policy" in arguments and policy not in known:
            raise RequestRefusedError(
                f"a topology policy is one of {', '.join(known)}; {policy!r} is none", "argument"
            )
        if policy != self._settings.policy:
            self._use(policy)
        done, given_up = self._done()
        found = {"policy": policy, "exchanges_done": done, "exchanges_given_up": given_up}
        return {"broker": self._broker, **found, **(self.organising.report() if self.organising else {})}

    def unwilling(self) -> str:
        """Why this broker's links are not to be exchanged now; empty if they may."""
        if self.organising is None:
            return "it leaves its links as they are (topology policy static)"
        return "it has just taken part in one" if self.organising.organiser.resting else ""

    def carried_out(self) -> None:
        """An exchange was carried out that this broker took part in."""
        if self.organising is not None:
            self.organising.organiser.exchanged()

    def heard(self, link: Link, news: TopologyNews) -> None:
        """News of another broker."""
        if self.organising is not None:
            self.organising.heard(link, news)

    def probed(self, probed: Probed) -> None:
        """How far another broker is."""
        if self.organising is not None:
            self.organising.probed(probed)

    def asked(self, link: Link, request: LinkRequest) -> None:
        """A request for a link comes by."""
        if self.organising is not None:
            self.organising.asked(link, request)
