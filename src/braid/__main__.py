"""`python -m braid` is the command `braid`."""

from __future__ import annotations

from braid.cli import main

main()
