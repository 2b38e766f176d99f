"""Where is data about the real world?

Nothing of it is part of Braid. It is read from the directory named by the environment variable BRAID_DATA.
"""

from __future__ import annotations

import os
from pathlib import Path

from braid.errors import ConfigurationError

__all__ = ["data_file"]


def data_file(name: str, what: str) -> Path:
    """Where a file of real data is; `what` it holds is for whoever does not have it.

    Raises:
        ConfigurationError: the file is missing; the text says how to provide it.
    """
    directory = os.environ.get("BRAID_DATA")
    if directory is not None:
        path = Path(directory) / name
    else:
        # Beside the project, where `src/braid/sim/real_data.py` lies three levels down.
        path = Path(__file__).resolve().parents[3].parent / "shared" / "data" / name
    if not path.is_file():
        raise ConfigurationError(f"{name} is missing: {what}; set BRAID_DATA to the directory that holds it")
    return path
