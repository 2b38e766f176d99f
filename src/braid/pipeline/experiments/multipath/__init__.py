"""What does the multipath paper claim?

Each module with an `EXPERIMENT` looks into a table or figure of its section 7; `network` is what they share.
"""

from __future__ import annotations

from braid.pipeline.experiments.registry import Paper

__all__ = ["PAPER"]

PAPER = Paper("multipath", "Opportunistic Multipath Forwarding in Content-based Publish/Subscribe Overlays")
