"""Same seed, same run: to the byte, in another process, however Python hashes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from braid.trace import TraceWriter
from tests.sim.random_worlds import RandomWorld

ROOT = Path(__file__).parents[2]


def traced(seed: int, directory: Path, strategy: str = "S0") -> str:
    """Run a random world with a trace; returns a digest of every file."""
    with TraceWriter(directory, "sim") as trace:
        random_world = RandomWorld(seed, trace=trace, strategy=strategy)
        random_world.run()
        random_world.world.close()
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*.parquet")):
        digest.update(f"{path.relative_to(directory)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    digest.update(f"{sorted(random_world.world.statistics().items())}".encode())
    return digest.hexdigest()


# Seed 4 goes through the codec.
@pytest.mark.parametrize(
    ("seed", "strategy"), [(3, "S0"), (4, "S0"), (3, "S1"), (4, "S2"), (6, "SH"), (3, "SB"), (4, "SB")]
)
def test_the_same_seed_leads_to_the_same_trace_in_every_process(
    seed: int, strategy: str, tmp_path: Path
) -> None:
    digests = set()
    for hash_seed in ("0", "1", "4242"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        }
        done = subprocess.run(
            [
                sys.executable,
                *("-m", "tests.sim.test_determinism"),
                *(str(seed), str(tmp_path / hash_seed), strategy),
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_another_seed_leads_to_another_trace(tmp_path: Path) -> None:
    assert traced(5, tmp_path / "5") != traced(6, tmp_path / "6")


if __name__ == "__main__":
    sys.stdout.write(traced(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
