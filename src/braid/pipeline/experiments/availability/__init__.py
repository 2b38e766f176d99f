"""What does the availability paper claim?

Each module with an `EXPERIMENT` looks into a figure of its section V; `real_path` is a line of real broker
processes with subscriptions, publishers and readers, which is rewired while they run.
"""

from __future__ import annotations

from braid.pipeline.experiments.registry import Paper

__all__ = ["PAPER"]

PAPER = Paper("availability", "Foundations for Highly Available Content-based Publish/Subscribe Overlays")
