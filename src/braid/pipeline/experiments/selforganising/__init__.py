"""What does the self-organising paper claim?

Each module with an `EXPERIMENT` looks into a figure of its section 5, or goes beyond it; `network` is what
they share, `organised` drives the shipped proposals over a model of the network that prices trees directly.
"""

from __future__ import annotations

from braid.pipeline.experiments.registry import Paper

__all__ = ["PAPER"]

PAPER = Paper("self-organising", "Self-Organizing Broker Topologies for Publish/Subscribe Systems")
