"""What do networks of real operators look like?

The Internet Topology Zoo (Knight et al., IEEE JSAC 2011) has some 270 networks as GML files with places on
Earth. A broker stands for a node; the latency of a link is that of light in glass along the great circle,
between brokers that are not linked that of the shortest way, and the primary network is the spanning tree of
smallest total latency.

The maps have gaps, and this is how they are closed:

- a node without coordinates is put in the middle of its neighbours that have some, and so on outwards; where
  nobody in a network has any, every link takes the same time;
- of a network in pieces the largest piece is taken;
- parallel links count once, and a link from a node to itself not at all.
"""

from __future__ import annotations

import difflib
import heapq
import math
import re
import tarfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError
from braid.sim.real_data import data_file
from braid.sim.topologies.topology import Topology, broker_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    import networkx

__all__ = ["ShortestWays", "great_circle_km", "zoo", "zoo_archive", "zoo_from_gml", "zoo_names"]

_ARCHIVE = "topologyzoo_gml.tar.gz"
_GRAPH = re.compile(r"\bgraph\s*\[")

EARTH_RADIUS_KM = 6_371.0
# Light in glass; real cables make detours, so this is the least that physics allows.
LIGHT_KM_PER_S = 200_000.0
# Two nodes of one city have equipment between them too.
LATENCY_US_MIN = 100
# Where nothing is known about places at all.
LATENCY_US_UNKNOWN = 1_000

_Vector = tuple[float, float, float]


def zoo(name: str) -> Topology:
    """A network of the zoo by its name, such as `Abilene`."""
    texts = _texts(zoo_archive())
    if name not in texts:
        close = difflib.get_close_matches(name, texts, n=3)
        hint = (
            f"did you mean {' or '.join(map(repr, close))}?" if close else f"there are {len(texts)}, such as "
        )
        if not close:
            hint += ", ".join(sorted(texts)[:5])
        raise ConfigurationError(f"the Topology Zoo has no network {name!r}; {hint}")
    return zoo_from_gml(texts[name], name)


def zoo_names() -> tuple[str, ...]:
    """All networks of the zoo, in the order of the alphabet."""
    return tuple(sorted(_texts(zoo_archive())))


def zoo_archive() -> Path:
    """Where the networks are, or a `ConfigurationError` that says how to provide them."""
    return data_file(_ARCHIVE, "real networks, the GML files of the Internet Topology Zoo")


@cache
def _texts(path: Path) -> dict[str, str]:
    """The GML text of each network; all of them together are a few megabytes."""
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".gml") else None
            if content is not None:
                found[Path(member.name).stem] = content.read().decode("utf-8", errors="replace")
    if not found:
        raise ConfigurationError(f"{path} holds no GML files")
    return found


def zoo_from_gml(text: str, name: str) -> Topology:
    """A network from the text of a GML file.

    Raises:
        ConfigurationError: the text is no network, or networkx is not installed.
    """
    graph = _read_graph(text, name)
    piece = _largest_piece(graph)
    brokers = broker_names(len(piece))
    broker_of = dict(zip(piece, brokers, strict=True))
    latency = _link_latencies(graph, piece)
    links: dict[str, dict[str, int]] = {broker: {} for broker in brokers}
    for (left, right), us in latency.items():
        links[broker_of[left]][broker_of[right]] = us
        links[broker_of[right]][broker_of[left]] = us
    labels = [str(graph.nodes[node].get("label", node)) for node in piece]
    return Topology.of(name, brokers, _spanning_tree(links), ShortestWays(links), labels)


def _read_graph(text: str, name: str) -> networkx.MultiGraph:
    try:
        import networkx
    except ImportError:
        raise ConfigurationError(
            "real networks are read with networkx, which is not installed: pip install 'braid-pubsub[sim]'"
        ) from None
    # Many files have parallel links without saying so, which the reader would refuse.
    multiple = _GRAPH.sub("graph [\n  multigraph 1", text, count=1) if "multigraph" not in text else text
    try:
        graph = networkx.parse_gml(multiple, label="id")
    except (networkx.NetworkXError, ValueError, UnicodeError) as error:
        raise ConfigurationError(f"network {name}: it is not readable GML: {error}") from None
    if not len(graph):
        raise ConfigurationError(f"network {name}: it has no nodes")
    return graph.to_undirected()


def _largest_piece(graph: networkx.MultiGraph) -> list[Any]:
    """The nodes of the largest connected piece, by id; of equal pieces the one with the least id."""
    import networkx

    pieces = [sorted(piece) for piece in networkx.connected_components(graph)]
    return min(pieces, key=lambda piece: (-len(piece), piece[0]))


def _link_latencies(graph: networkx.MultiGraph, piece: list[Any]) -> dict[tuple[Any, Any], int]:
    place = _places(graph, piece)
    members = set(piece)
    found = {}
    for left, right in sorted({tuple(sorted(ends[:2])) for ends in graph.edges}):
        if left != right and left in members:
            if left in place and right in place:
                km = EARTH_RADIUS_KM * _angle(place[left], place[right])
                us = LATENCY_US_MIN + round(km / LIGHT_KM_PER_S * 1e6)
            else:
                us = LATENCY_US_UNKNOWN
            found[left, right] = us
    return found


def _places(graph: networkx.MultiGraph, piece: list[Any]) -> dict[Any, _Vector]:
    """A direction from the Earth's centre per node: their mean has no trouble at the date line."""
    place: dict[Any, _Vector] = {}
    for node in piece:
        data = graph.nodes[node]
        latitude, longitude = data.get("Latitude"), data.get("Longitude")
        if isinstance(latitude, int | float) and isinstance(longitude, int | float):
            place[node] = _direction(latitude, longitude)
    while place:
        found = {}
        for node in piece:
            if node not in place:
                near = [place[other] for other in sorted(graph[node]) if other in place]
                if near:
                    found[node] = _middle(near)
        if not found:
            break
        place |= found
    return place


def _direction(latitude: float, longitude: float) -> _Vector:
    north, east = math.radians(latitude), math.radians(longitude)
    return (math.cos(north) * math.cos(east), math.cos(north) * math.sin(east), math.sin(north))


def _middle(near: list[_Vector]) -> _Vector:
    total = [math.fsum(axis) for axis in zip(*near, strict=True)]
    length = math.hypot(*total)
    # Opposite ends of the Earth have no middle; any of them is as good.
    return (total[0] / length, total[1] / length, total[2] / length) if length > 1e-9 else near[0]


def _angle(left: _Vector, right: _Vector) -> float:
    # By the chord, which is exact for near places where the arc cosine is not.
    return 2 * math.asin(min(1.0, math.dist(left, right) / 2))


def great_circle_km(
    latitude: float, longitude: float, other_latitude: float, other_longitude: float
) -> float:
    """How far two places on the Earth are apart, in kilometres."""
    return EARTH_RADIUS_KM * _angle(
        _direction(latitude, longitude), _direction(other_latitude, other_longitude)
    )


def _spanning_tree(links: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str]]:
    """The tree of smallest total latency (Kruskal); of equals the one between earlier brokers."""
    leader = {broker: broker for broker in links}

    def leader_of(broker: str) -> str:
        while leader[broker] != broker:
            leader[broker] = leader[leader[broker]]
            broker = leader[broker]
        return broker

    tree = []
    edges = ((us, left, right) for left, ends in links.items() for right, us in ends.items() if left < right)
    for _, left, right in sorted(edges):
        if leader_of(left) != leader_of(right):
            leader[leader_of(left)] = leader_of(right)
            tree.append((left, right))
    return tree


@dataclass(frozen=True, eq=False)
class ShortestWays:
    """Latencies along the shortest way, found per broker when it first asks (Dijkstra)."""

    links: Mapping[str, Mapping[str, int]]
    """The latency of each link of the network, from both ends; more links than those of the tree."""
    _known: dict[str, dict[str, int]] = field(default_factory=dict, init=False, repr=False)

    def latency_us(self, source: str, target: str) -> int:
        """The shortest way between two brokers."""
        known = self._known.get(source)
        if known is None:
            known = self._known[source] = self._from(source)
        return known[target]

    def _from(self, source: str) -> dict[str, int]:
        found: dict[str, int] = {}
        waiting = [(0, source)]
        while waiting:
            us, broker = heapq.heappop(waiting)
            if broker not in found:
                found[broker] = us
                for neighbour, length in self.links[broker].items():
                    if neighbour not in found:
                        heapq.heappush(waiting, (us + length, neighbour))
        return found
