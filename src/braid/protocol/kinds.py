"""What is the kind of a message called?

In traces, in metrics and in tables of processing times, whoever writes them: all drivers ask here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from braid.protocol.batch import PublicationBatch

if TYPE_CHECKING:
    from braid.protocol.codec import Body

__all__ = ["PUBLICATION", "kind_of"]

_WORD = re.compile(r"(?<!^)(?=[A-Z])")
PUBLICATION: Final = "publication"
"""The kind of batches of publications, for those who know that they have one."""

_kinds: dict[type, str] = {PublicationBatch: PUBLICATION}


def kind_of(body: Body) -> str:
    """The kind of a message, in lower case: `publication`, `subscribe`, `tables_complete`."""
    kind = _kinds.get(type(body))
    if kind is None:
        kind = _kinds[type(body)] = _WORD.sub("_", type(body).__name__).lower()
    return kind
