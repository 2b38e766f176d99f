"""Is there a better tree?

- `interest`: what two brokers have in common, by caches and Bloom filters.
- `costs`: what a message costs, configured or measured.
- `estimates`: the arithmetic of the self-organising paper, Eq. 3 to 10.
- `cycle_traffic`: the true change of cost by an exchange of links, from whole sets or samples.
- `policies`: static, lMST, lMIT, CI and exact behind one interface.
- `organiser`: one broker's knowledge, news, requests and verdicts.

Proposals only: nothing here changes a link.
"""

from __future__ import annotations

from braid.adaptation.topology.costs import LiveCosts, exchange_price
from braid.adaptation.topology.cycle_traffic import CycleTraffic, Opening, Sample, TrafficWindow
from braid.adaptation.topology.interest import InterestCache, InterestFilter, publication_hashes
from braid.adaptation.topology.organiser import LinkExchange, Organiser
from braid.adaptation.topology.policies import TopologyPolicy, policy_named
from braid.adaptation.topology.settings import POLICIES, TopologySettings, add_policy

__all__ = [
    "POLICIES",
    "CycleTraffic",
    "InterestCache",
    "InterestFilter",
    "LinkExchange",
    "LiveCosts",
    "Opening",
    "Organiser",
    "Sample",
    "TopologyPolicy",
    "TopologySettings",
    "TrafficWindow",
    "add_policy",
    "exchange_price",
    "policy_named",
    "publication_hashes",
]
