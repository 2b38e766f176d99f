"""Who wants which publication, without brokers? See `application`."""

from braid.p2p.dmm.application import Dmm
from braid.p2p.dmm.interests import Interests
from braid.p2p.dmm.messages import DMM_MESSAGES
from braid.p2p.dmm.settings import DmmSettings

__all__ = ["DMM_MESSAGES", "Dmm", "DmmSettings", "Interests"]
