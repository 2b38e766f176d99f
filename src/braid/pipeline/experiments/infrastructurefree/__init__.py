"""What does the infrastructure-free paper claim?

Each module with an `EXPERIMENT` looks into figures of its section VI; `network` is what they share, and
`simulated` plays a workload on simulated peers.
"""

from __future__ import annotations

from braid.pipeline.experiments.registry import Paper

__all__ = ["PAPER"]

PAPER = Paper("infrastructure-free", "Infrastructure Free Content-Based Publish/Subscribe")
