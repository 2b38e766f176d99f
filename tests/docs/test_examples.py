"""Every example runs and prints what it is there to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN = {
    "async_bus.py": ["room 1 is at 33.0 degrees", "room 3 is at 41.5 degrees"],
    "spark_standing_query.py": ["every window is what a plain program computes\n", "p50 "],
    "spark_stream.py": ["0 duplicates, 0 lost\n", "row for row what was published\n"],
    "who_wants_what.py": [
        "-> large orders\n",
        "-> half price, to the north\n",
        "-> half price, large orders, to the north\n",
    ],
}


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHOWN)


@pytest.mark.parametrize(
    "name",
    [
        # The one that kills and restarts queries takes a minute.
        pytest.param(name, marks=[pytest.mark.spark, pytest.mark.soak] * name.startswith("spark"))
        for name in sorted(SHOWN)
    ],
)
def test_example(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    for shown in SHOWN[name]:
        assert shown in done.stdout
