"""What does each attack cost, and what does an innocent client see of it?

    python -m tests.hostile.run [--attack NAME ...]

Prints a line per attack: its cost, what the attacked broker held before and after, the longest that the
innocent client had to wait, and what broke. Fails if anything did. `tests.hostile.table` does the same for
attacks with requests.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.hostile.attacks import ATTACKS

__all__: list[str] = []


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Attack brokers; nothing may break.")
    parser.add_argument("--attack", action="append", choices=sorted(ATTACKS), help="only this one")
    arguments = parser.parse_args()
    print(f"{'attack':<42}{'cost':>26}{'memory MB':>14}{'worst ms':>9}  what broke")
    right = True
    for name in arguments.attack or ATTACKS:
        with tempfile.TemporaryDirectory(prefix="braid-hostile-") as directory:
            os.environ["BRAID_SECRET_FILE"] = str(Path(directory) / "secret")
            outcome = ATTACKS[name](Path(directory))
        right = right and not outcome.verdict
        print(outcome.line, flush=True)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
