"""And without brokers? Peers that route, match and deliver among themselves."""

from braid.p2p.schema import NetworkSchema
from braid.p2p.zcode import attribute_zcode, encloses, interleave

__all__ = ["NetworkSchema", "attribute_zcode", "encloses", "interleave"]
