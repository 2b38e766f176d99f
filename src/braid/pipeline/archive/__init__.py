"""What a log had, long after the log has let go of it.

- `segments`: a folder of Parquet files, each a range of offsets of one log, merged as they grow in number.
- `archiver`: from a log into such a folder. `history`: back from it, and on into what is published now.

None of these needs Spark; every tool that reads Parquet reads the files.

- `catalog`: from a log into a table of a Spark catalog, for those who have one.
"""

from __future__ import annotations

from braid.pipeline.archive.archiver import Archiver
from braid.pipeline.archive.history import follow, history

__all__ = ["Archiver", "follow", "history"]
