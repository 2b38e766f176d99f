"""Whose is a publisher's name, and which of its runs is it?

Numbers per publisher decide what is a repetition, so a name must have one owner, and a program that is
started again must not be taken for its former run. On the wire both are part of the name:

    till/quotes#5f0c2a91b3d4              the publisher `quotes` of the principal `till`, in one run
    quotes#k3j5h2l4m6n7p2q5.5f0c2a91b3d4  of an anonymous client, marked by a digest of its secret
    job#open.monday                       of an anonymous client without a secret: anybody's

What is before the last `#` is the *publisher* that subscribers see, what is behind it is the *epoch*. A
principal's name is written so that it has no slash, so no name of one can begin with that of another and a
slash; an anonymous client's publisher has none at all; and of a mark only those know the secret who have it.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache

__all__ = [
    "EPOCH_FIRST",
    "EPOCH_LENGTH_MAX",
    "OPEN",
    "PublisherNames",
    "publisher_and_epoch",
    "short_name",
    "whole_name",
]

EPOCH_LENGTH_MAX = 64

# Of a publisher whose name is made up and so has no other run.
EPOCH_FIRST = "1"

# Instead of a mark, for those who have no secret.
OPEN = "open"

# 80 bits: nobody finds another secret with the same mark.
_MARK_LENGTH = 16


@lru_cache(maxsize=1024)
def publisher_and_epoch(name: str) -> tuple[str, str]:
    """The two parts of a name on the wire; one without an epoch has an empty one."""
    publisher, separator, epoch = name.rpartition("#")
    return (publisher, epoch) if separator else (name, "")


def whole_name(publisher: str, epoch: str) -> str:
    """The name on the wire of which these are the parts."""
    return f"{publisher}#{epoch}" if epoch else publisher


def short_name(name: str) -> str:
    """A name that is no less unique, for reports: a made-up one needs no epoch."""
    publisher, epoch = publisher_and_epoch(name)
    return publisher if epoch.rpartition(".")[2] == EPOCH_FIRST else name


class PublisherNames:
    """The names that the publishers of one client may have."""

    __slots__ = ("_before", "_client", "_mark")

    def __init__(self, principal: str, secret: str, client: str = "") -> None:
        """
        Args:
            principal: who the broker knows it is; empty for an anonymous client.
            secret: what an anonymous client alone knows; empty if it has nothing of that kind.
            client: the name that it chose. One without a secret may use only names that begin with it: that
                protects against mistakes, not against malice.
        """
        self._before = f"{_without_slash(principal).replace('#', '%23')}/" if principal else ""
        self._mark = _mark(secret) if secret and not principal else ""
        self._client = client

    def name(self, publisher: str, epoch: str) -> str:
        """The name on the wire of a publisher of this client; both parts may be what it had before."""
        if self._before:
            publisher = publisher if publisher.startswith(self._before) else self._before + publisher
            return f"{publisher}#{epoch}"
        mark = f"{self._mark or OPEN}."
        return f"{_without_slash(publisher)}#{mark}{epoch.removeprefix(mark)}"

    def has(self, name: str) -> bool:
        """Whether a name on the wire is one of this client's."""
        if self._before:
            return name.startswith(self._before)
        publisher, epoch = publisher_and_epoch(name)
        if "/" in publisher:
            return False
        if self._mark:
            return epoch.startswith(f"{self._mark}.")
        own = publisher == self._client or publisher.startswith(f"{self._client}.")
        return own and (not epoch or epoch.startswith(f"{OPEN}."))

    def __str__(self) -> str:
        """What they look like."""
        if self._before:
            return f"{self._before}..."
        if self._mark:
            return f"...#{self._mark}...."
        return f"{self._client}, {self._client}.... or {self._client}#{OPEN}...."


def _mark(secret: str) -> str:
    digest = hashlib.sha256(f"publisher/{secret}".encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest).decode().lower()[:_MARK_LENGTH]


def _without_slash(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")
