"""What happens in virtual time, with a chosen fate?

`World` drives any machine that keeps to `protocol.Machine`; who composes one says which.
"""

from braid.sim.checkers import Checkers
from braid.sim.full_client import FullClient
from braid.sim.loop import stream
from braid.sim.models import Birth, LinkModel, NodeModel
from braid.sim.samples import Load
from braid.sim.station import Station
from braid.sim.world import World

__all__ = ["Birth", "Checkers", "FullClient", "LinkModel", "Load", "NodeModel", "Station", "World", "stream"]
