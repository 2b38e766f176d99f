"""`braid bench`: what can be measured from a terminal."""

from __future__ import annotations

from braid_bench.cli.app import bench

__all__ = ["bench"]
