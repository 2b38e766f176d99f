"""How is a whole simulation written down in a file?

A scenario is a TOML file: the network, who asks for what and who says what, the settings of brokers, links
and nodes, what goes wrong, and for how long. `docs/scenarios.md` is its reference. Times count from the start
of publishing. A key that is not known is an error, never ignored: a misspelt limit would be no limit.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from braid.adaptation import SoftLinkSettings
from braid.adaptation.topology import TopologySettings
from braid.broker.settings import STRATEGIES, BrokerSettings
from braid.errors import BraidError
from braid.plugins import load_plugins
from braid.protocol import ChannelSettings
from braid.scenario.faults import VOCABULARY, Fault, FaultKind, Side
from braid.scenario.running import OWN_SETTINGS, SimulationSettings
from braid.scenario.workload import MemoryWorkload, PublicationRow, SubscriptionRow
from braid.settings import Document, Section, read_fields
from braid.sim import LinkModel, NodeModel
from braid.sim.topologies import KINDS, NAMED, Topology, parameters_of, topology
from braid.sim.topologies.transit_stub import Overlay
from braid.sim.topologies.trees import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from braid.scenario.workload import AnyWorkload

__all__ = ["Scenario", "read_scenario", "scenario_from_text"]

# One inline line may stand for many publications; a plan larger than this belongs into a stored workload.
INLINE_PUBLICATIONS_MAX = 1_000_000


@dataclass(frozen=True)
class Scenario:
    """One file, ready to be run."""

    file: str
    settings: SimulationSettings


def read_scenario(path: Path, *, seed: int | None = None) -> Scenario:
    """A scenario from a file.

    Args:
        path: the file.
        seed: in place of the one in the file.

    Raises:
        ConfigurationError: with file, line and key, and what is allowed there.
    """
    return _scenario(Document.read(path, "scenario"), str(path), seed)


def scenario_from_text(text: str, *, file: str = "scenario.toml", seed: int | None = None) -> Scenario:
    """The same from text; paths in it are relative to the current folder."""
    return _scenario(Document.parse(text, "scenario", file, Path()), file, seed)


def _scenario(document: Document, file: str, seed: int | None) -> Scenario:
    top = document.top()
    load_plugins(forwarding_strategies=top.values.get("strategy"))
    own_seed = top.integer("seed", 1)
    chosen = own_seed if seed is None else seed
    strategy = top.choice("strategy", tuple(STRATEGIES), "S0")
    defaults = {each.name: each.default for each in fields(SimulationSettings) if each.default is not MISSING}
    warm_up_us = top.duration_us("warm_up", defaults["warm_up_us"], least=1)
    publish_us = top.duration_us("duration", None, least=1)
    drain_us = top.duration_us("drain", defaults["drain_us"])
    checkers = top.boolean("checkers", True)
    codec = top.boolean("codec", False)
    shared_matching = top.boolean("shared_matching", True)
    network = _topology(top.table("topology"), chosen)
    brokers, own_brokers, stores = _brokers(top.table("brokers"), network)
    link, latency_us = _links(top.table("links"))
    node, own_nodes = _nodes(top.table("nodes"), network)
    work = _workload(top.table("workload"), network, chosen)
    faults = tuple(_fault(each, network, stores) for each in top.tables("faults"))
    top.finish()
    settings = SimulationSettings(
        topology=network,
        workload=work,
        strategy=strategy,
        seed=chosen,
        latency_us=latency_us,
        warm_up_us=warm_up_us,
        publish_us=publish_us,
        drain_us=drain_us,
        checkers=checkers,
        codec=codec,
        shared_matching=shared_matching,
        brokers=brokers,
        own_brokers=own_brokers,
        stores=stores,
        link=link,
        node=node,
        own_nodes=own_nodes,
        faults=faults,
    )
    return Scenario(file, settings)


# The network.

_INTEGERS = ("count", "degree_max", "transit_domains", "transit_routers", "stubs_per_router", "stub_routers")
_DURATIONS = ("latency", "access")


def _topology(section: Section, seed: int) -> Topology:
    if "links" in section:
        links = section.values["links"]
        section.knows(["links"])
        if not isinstance(links, list) or not all(
            isinstance(ends, list) and len(ends) == 2 and all(isinstance(end, str) for end in ends)
            for ends in links
        ):
            section.fail("links", f'must be a list of pairs such as [["A", "B"], ["B", "C"]], not {links!r}')
        latency_us = section.duration_us("latency", None)
        section.finish()
        brokers = dict.fromkeys(end for ends in links for end in ends)
        made: Topology = section.attempt(
            lambda: Topology.of("own", list(brokers), [(left, right) for left, right in links])
        )
        return made if latency_us is None else made.with_flat_latency(latency_us)
    if "name" not in section:
        section.fail(None, "'name' is missing (or 'links', to write down a tree of your own)")
    name = section.choice("name", (*NAMED, *KINDS))
    own_seed = section.integer("seed", seed)
    parameters: dict[str, Any] = {}
    known = parameters_of(name)
    for key in known:
        plain = key.removesuffix("_us")
        if plain in _DURATIONS:
            value = section.duration_us(plain, None)
        elif key in _INTEGERS:
            value = section.integer(key, None, least=1)
        elif key in ("shape", "overlay"):
            value = section.choice(key, get_args(Shape if key == "shape" else Overlay), None)
        else:
            value = section.text(key, None)
        if value is not None:
            parameters[key] = value
    section.finish()
    made = section.attempt(lambda: topology(name, own_seed, **parameters))
    return made


# Brokers.


def _brokers(
    section: Section, network: Topology
) -> tuple[dict[str, Any], dict[str, dict[str, Any]], frozenset[str]]:
    """What all brokers have in common, what single ones have, and which have a store."""
    stores = set(network.brokers) if section.boolean("store", False) else set()
    common = _broker_settings(section)
    overrides = section.table("only")
    own: dict[str, dict[str, Any]] = {}
    for name in overrides.values:
        broker = overrides.table(name)
        _require_broker(overrides, name, name, network)
        store = broker.boolean("store", None)
        if store is not None:
            (stores.add if store else stores.discard)(name)
        own[name] = _broker_settings(broker)
        broker.finish()
    section.finish()
    return common, own, frozenset(stores)


def _broker_settings(section: Section) -> dict[str, Any]:
    """Fields of `BrokerSettings` by name; channels and soft links as mappings of their own fields."""
    found: dict[str, Any] = {}
    for name, group in get_type_hints(BrokerSettings).items():
        if group in (ChannelSettings, SoftLinkSettings, TopologySettings):
            table = section.table(name)
            inner = read_fields(table, group)
            table.finish()
            table.attempt(partial(group, **inner))
            if inner:
                found[name] = inner
    plain = read_fields(
        section,
        BrokerSettings,
        leave_out={*OWN_SETTINGS, "link", "client", "soft_links", "topology"},
        choices={"strategy": tuple(STRATEGIES)},
    )
    # What the fields say about each other is checked where it is written down.
    section.attempt(lambda: BrokerSettings(broker_id="B", **plain))
    return {**found, **plain}


def _require_broker(section: Section, key: str, name: str, network: Topology) -> None:
    if name not in network.brokers:
        names = network.brokers
        some = ", ".join(names) if len(names) <= 8 else f"{names[0]} to {names[-1]}"
        section.fail(key, f"{name!r} is no broker of {network.name}, which has {some}")


# Links and nodes.


def _links(section: Section) -> tuple[LinkModel, int | None]:
    latency_us = section.duration_us("latency", None)
    bandwidth = section.integer("bandwidth_bytes_per_s", None, least=1)
    loss = section.number("loss", 0.0, most=0.99)
    section.finish()
    return LinkModel(bandwidth_bytes_per_s=bandwidth, loss=float(loss)), latency_us


def _nodes(section: Section, network: Topology) -> tuple[NodeModel, dict[str, NodeModel]]:
    overrides = section.table("only")
    common = _node(section, {})
    own = {}
    for name in overrides.values:
        _require_broker(overrides, name, name, network)
        each = overrides.table(name)
        own[name] = each.attempt(partial(_node_model, each, common))
        each.finish()
    section.finish()
    return section.attempt(lambda: NodeModel(**common)), own


def _node_model(section: Section, common: Mapping[str, Any]) -> NodeModel:
    return NodeModel(**_node(section, common))


def _node(section: Section, common: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(section.values.get("cost"), dict):
        costs = section.table("cost")
        found["cost_us"] = {kind: costs.duration_us(kind) for kind in costs.values}
    else:
        found["cost_us"] = section.duration_us("cost", None)
    found["store_latency_us"] = section.duration_us("store_latency", None)
    for name in ("uplink_messages_per_s", "uplink_bytes_per_s"):
        found[name] = section.integer(name, None, least=1)
    return {**common, **{name: value for name, value in found.items() if value is not None}}


# The workload.


def _workload(section: Section, network: Topology, seed: int) -> AnyWorkload:
    ways = [way for way in ("name", "folder", "subscriptions", "publications") if way in section]
    if not ways:
        section.fail(
            None,
            "it is empty: give 'name' (of a workload that is made), 'folder' (of one that is stored), "
            "or 'subscriptions' and 'publications'",
        )
    if "folder" in section:
        return _stored(section)
    if "name" in section:
        return _named(section, seed)
    subscriptions = [
        _subscription(each, network, number) for number, each in enumerate(section.tables("subscriptions"))
    ]
    publications: list[PublicationRow] = []
    for each in section.tables("publications"):
        publications += _publications(each, network)
        if len(publications) > INLINE_PUBLICATIONS_MAX:
            each.fail(None, f"more than {INLINE_PUBLICATIONS_MAX:,} publications; store them as a workload")
    section.finish()
    publications.sort(key=lambda row: row.at_us)
    return MemoryWorkload(subscriptions, publications, "inline")


def _stored(section: Section) -> AnyWorkload:
    from braid.workloads import load

    folder = section.folder / Path(section.text("folder")).expanduser()
    section.finish()
    stored: AnyWorkload = section.attempt(lambda: load(folder))
    return stored


def _named(section: Section, seed: int) -> AnyWorkload:
    from braid.workloads import DEFINITIONS, definition, workload

    name = section.choice("name", tuple(DEFINITIONS))
    own_seed = section.integer("seed", seed)
    known = [parameter.name for parameter in definition(name).parameters]
    section.knows(known)
    section.finish()
    chosen = {key: section.values[key] for key in known if key in section}
    made: AnyWorkload = section.attempt(lambda: workload(name, own_seed, **chosen))
    return made


def _subscription(section: Section, network: Topology, number: int) -> SubscriptionRow:
    broker = section.text("broker")
    _require_broker(section, "broker", broker, network)
    client = section.text("client")
    key = section.text("key", f"s{number + 1}")
    text = section.text("filter")
    _check_filter(section, text)
    at_us = section.duration_us("at", 0)
    until_us = section.duration_us("until", None)
    section.finish()
    if until_us is not None and until_us <= at_us:
        section.fail("until", f"must be after 'at' ({at_us} us)")
    return SubscriptionRow(broker, client, key, text, at_us, until_us)


def _check_filter(section: Section, text: str) -> None:
    from braid.language import Filter

    try:
        Filter(text)
    except BraidError as problem:
        section.fail("filter", str(problem))


def _publications(section: Section, network: Topology) -> Iterator[PublicationRow]:
    from braid.language import flatten

    broker = section.text("broker")
    _require_broker(section, "broker", broker, network)
    client = section.text("client")
    at_us = section.duration_us("at", 0)
    attributes = section.table("attributes").values
    try:
        flat = flatten(attributes)
    except BraidError as problem:
        section.fail("attributes", str(problem))
    body_bytes = section.integer("body_bytes", 0)
    count = section.integer("count", 1, least=1)
    every_us = section.duration_us("every", None, least=1)
    section.finish()
    if count > 1 and every_us is None:
        section.fail("count", "needs 'every', the time between two of them")
    if count > INLINE_PUBLICATIONS_MAX:
        section.fail("count", f"must be at most {INLINE_PUBLICATIONS_MAX:,}; store more as a workload")
    for number in range(count):
        yield PublicationRow(at_us + number * (every_us or 0), broker, client, flat, body_bytes)


# Faults.


def _fault(section: Section, network: Topology, stores: frozenset[str]) -> Fault:
    name = section.choice("fault", tuple(VOCABULARY))
    kind = VOCABULARY[name]
    at_us = section.duration_us("at", least=None)
    subject = _subject(section, kind, network)
    arguments: dict[str, Any] = {}
    for argument in (*kind.needs, *kind.takes):
        default = {} if argument in kind.needs else {"default": None}
        if argument == "extra_us":
            value = section.duration_us("extra", **default)
        elif argument in ("keep_store", "silent"):
            value = section.boolean(argument, **default)
        else:
            value = section.integer(argument, **default, least=1)
        if value is not None:
            arguments[argument] = value
    if "keep_store" in arguments and subject[0] not in stores:
        section.fail("keep_store", f"{subject[0]} has no store; give it one: store = true in [brokers]")
    if name == "throttle" and not arguments:
        section.fail(None, "a throttle needs 'bytes_per_s' or 'messages_per_s'")
    lasts_us = section.duration_us("lasts", None, least=1) if kind.ends_with is not None else None
    section.finish()
    made: Fault = section.attempt(lambda: Fault(at_us, name, subject, arguments, lasts_us))
    return made


def _subject(section: Section, kind: FaultKind, network: Topology) -> tuple[Side, ...]:
    if kind.subject == "broker" or (kind.subject == "either" and "between" not in section):
        section.knows(["between"] if kind.subject == "either" else [])
        broker = section.text("broker")
        _require_broker(section, "broker", broker, network)
        return (broker,)
    section.knows(["between"])
    sides = section.values.get("between")
    grouped = kind.subject == "sides"
    if (
        not isinstance(sides, list)
        or len(sides) != 2
        or not all(
            isinstance(side, str) or (grouped and isinstance(side, list) and all(map(_is_text, side)))
            for side in sides
        )
    ):
        example = '["B000", "B001"]' + (' or [["B000", "B001"], ["B002"]]' if grouped else "")
        section.fail("between" if sides is not None else None, f"'between' must be two brokers, {example}")
    for side in sides:
        for broker in [side] if isinstance(side, str) else side:
            _require_broker(section, "between", broker, network)
    return tuple(side if isinstance(side, str) else tuple(side) for side in sides)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
