"""What does `python -m braid.cli` do? The same as the `braid` command."""

from __future__ import annotations

from braid.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
