"""Prints what an innocent client saw under each attack: `python -m tests.hostile.table`.

Two brokers run as processes of their own; attackers and the innocent client are at the first one, and who
reads what the innocent client publishes is at the second.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.cli.broker_process import running_broker
from tests.hostile import attackers
from tests.hostile.innocent import Innocent

if TYPE_CHECKING:
    from collections.abc import Callable

ATTACKS: dict[str, Callable[[str], attackers.Attack]] = {
    "nobody": lambda address: attackers.Attack(),
    "3 that subscribe and unsubscribe": attackers.subscribe_and_unsubscribe,
    "369,000 unread questions": attackers.ask_and_never_read,
    "20,000 subscriptions at once": attackers.subscribe_at_once,
}
SECONDS = 10.0


def main() -> None:
    """Run each attack for some seconds."""
    print(f"{'attack':<34}{'rounds':>8}{'delivery ms':>13}{'heartbeat ms':>14}{'request ms':>12}  link lost")
    for name, attack in ATTACKS.items():
        with running_broker("A") as here, running_broker("B", "--neighbour", here.address) as there:
            there.wait_for("link up")
            innocent = Innocent(here.address, there.address)
            innocent.round()
            innocent.seen.delivery_s = innocent.seen.heartbeat_s = innocent.seen.request_s = 0.0
            running = attack(here.address)
            until = time.monotonic() + SECONDS
            try:
                while time.monotonic() < until:
                    innocent.round()
                outcome = "served"
            except (AssertionError, OSError) as problem:
                outcome = str(problem)
            finally:
                running.stop()
            innocent.close()
            seen = innocent.seen
            lost = sum("connection closed" in line and "party=B" in line for line in here.lines)
            print(
                f"{name:<34}{seen.rounds:>8}{seen.delivery_s * 1e3:>13.0f}{seen.heartbeat_s * 1e3:>14.0f}"
                f"{seen.request_s * 1e3:>12.0f}{lost:>11}  {outcome}",
                flush=True,
            )


if __name__ == "__main__":
    main()
