"""Somebody asks for more than a broker can do: what does an innocent client see meanwhile?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.broker_process import running_broker
from tests.hostile import attackers
from tests.hostile.innocent import Innocent

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.net, pytest.mark.slow]

ROUNDS = 40


@pytest.mark.parametrize(
    ("attack", "unserved"),
    [
        (attackers.subscribe_and_unsubscribe, 2 * 3 * 50_000),
        (attackers.ask_and_never_read, 1),  # it reads nothing, so nothing is counted
        (attackers.subscribe_at_once, 20_000),
    ],
    ids=["subscribe and unsubscribe", "unread questions", "subscriptions at once"],
)
def test_an_innocent_client_is_served_while_others_ask_too_much(
    attack: Callable[[str], attackers.Attack], unserved: int
) -> None:
    with running_broker("A") as here, running_broker("B", "--neighbour", here.address) as there:
        there.wait_for("link up")
        innocent = Innocent(here.address, there.address)
        innocent.round()
        running = attack(here.address)
        try:
            assert running.under_way.wait(attackers.PATIENCE_S)
            for _ in range(ROUNDS):
                innocent.round()
            assert running.answers < unserved  # all that time there was more to do than could be done
        finally:
            running.stop()
        innocent.round()
        innocent.close()
        assert not any("silent" in line for line in here.lines + there.lines)
        assert not any("connection closed" in line and "party=B" in line for line in here.lines)
