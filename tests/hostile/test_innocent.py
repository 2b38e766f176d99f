"""Does the innocent client behave as clients do, so that whatever it suffers is the broker's fault?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.cli.broker_process import running_broker
from tests.hostile.innocent import Innocent

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.net

HEARTBEAT_S = 0.5


def test_an_innocent_client_with_nothing_to_do_is_not_silent(tmp_path: Path) -> None:
    settings = tmp_path / "broker.toml"
    settings.write_text(f'[broker]\nheartbeat = "{HEARTBEAT_S}s"\n')
    with running_broker("A", "--config", str(settings)) as broker:
        innocent = Innocent(broker.address)
        innocent.round()
        time.sleep(6 * HEARTBEAT_S)  # after three the broker takes it for dead
        innocent.round()
        innocent.close()
        assert not any("silent" in line for line in broker.lines)


def test_an_innocent_client_says_that_it_was_sent_away() -> None:
    with running_broker("A") as broker:
        innocent = Innocent(broker.address)
        innocent.round()
        broker.stop()
        with pytest.raises((AssertionError, OSError)):
            innocent.round()
        innocent.close()
