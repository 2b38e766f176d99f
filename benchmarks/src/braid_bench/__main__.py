"""What does `python -m braid_bench` do? The same as `braid bench`, whether or not that finds this package."""

from __future__ import annotations

import sys

from braid.cli import run_command
from braid_bench.cli import bench

__all__: list[str] = []

if __name__ == "__main__":
    run_command(bench, sys.argv[1:], "braid bench")
