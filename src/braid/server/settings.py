"""Everything that can be chosen about a broker process: `ServerSettings`, and the file they are written in.

The file is TOML with one table per group of settings; keys have the names of the settings, so their units are
in the names: `heartbeat_us` is in microseconds, `lease_s` in seconds, `bytes_max` in bytes. Microseconds may
also be written as a duration: `heartbeat = "2s"`. Meaning, price and default of each key come from the source
of the settings themselves.

A key that is not known here is an error, never ignored: a misspelt limit would be no limit. An empty string
means "not set". Paths are relative to the folder of the file.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Literal

from braid.adaptation import SoftLinkSettings
from braid.adaptation.topology import TopologySettings
from braid.broker.settings import STRATEGIES, BrokerSettings
from braid.errors import ConfigurationError
from braid.plugins import load_plugins
from braid.protocol import ChannelSettings
from braid.protocol.log import Retention
from braid.runtime.directory import DirectorySettings
from braid.runtime.store import Synchronous
from braid.runtime.tls import TlsSettings
from braid.server.peer_settings import PeerSettings
from braid.settings import Document, Section, meanings_of, read_fields

__all__ = ["Key", "ServerSettings", "TraceSettings", "default_text", "keys_of"]

WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class ListenerSettings:
    """Where clients and neighbours connect."""

    listen: str = "127.0.0.1:7000"
    """Host and port of the listener; port 0 takes a free one. Without TLS and access it must be loopback."""
    insecure: bool = False
    """Listen beyond loopback without TLS or authentication. Everybody who reaches it can read along and take
    part: only where the network itself is safe."""


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """Who may do what."""

    file: Path | None = None
    """The access file with principals and grants. Left out, everybody may do everything."""


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """What survives a restart."""

    data_dir: Path | None = None
    """The folder for durable subscriptions and known neighbours, of this broker alone. Left out, nothing is
    kept and durable subscriptions are refused."""
    synchronous: Synchronous = "FULL"
    """FULL: what was promised survives a power failure, for one wait for the disk per group of commits.
    NORMAL: it survives a crash of the process only, and costs less."""


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """Health, readiness and metrics."""

    listen: str = ""
    """Host and port of an HTTP server with /health, /ready and /metrics; port 0 takes a free one. On loopback
    it asks for no credentials. Beyond, the rules of the listener hold: it uses the same certificate, and
    wants the token of an operator, as `Authorization: Bearer`. Left out, there is none."""


@dataclass(frozen=True, kw_only=True)
class DashboardSettings:
    """A page about the network."""

    listen: str = ""
    """Host and port of the dashboard, which is a process beside the broker and ends with it; port 0 takes a
    free one. It needs the extra dashboard. Beyond loopback it uses the broker's certificate, and every viewer
    needs the token of somebody who may operate. Left out, there is none."""


@dataclass(frozen=True, kw_only=True)
class TraceSettings:
    """What is written down of each publication."""

    directory: Path | None = None
    """The folder for a trace, in Parquet files; brokers may share it. Left out, there is none. Costs some
    hundred nanoseconds of the processor per publication, and a few bytes of disk."""
    age_s_max: float = 60.0
    """How long a record waits for others before they are written as a file. Lower: less is lost in a crash,
    and there are more and smaller files."""
    rows_max: int = 200_000
    """Records of one table in one file. Higher: fewer files, more memory."""

    def __post_init__(self) -> None:
        if not 0 < self.age_s_max < inf:
            raise ConfigurationError(
                f"age_s_max of a trace is a number of seconds above 0, not {self.age_s_max}"
            )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What is written to standard error."""

    format: Literal["text", "json"] = "text"
    """A line for people, or one JSON object per line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important of what is written. Lower: more lines, also for each connection."""
    audit: Path | None = None
    """The file for the audit log: who was let in or refused, what was granted, and what operators did, one
    JSON object per line. Left out, there is none."""


@dataclass(frozen=True, kw_only=True)
class DirectoryChoice:
    """Where brokers find each other."""

    url: str = ""
    """The directory to register with: zk://host:port,host:port/root for brokers of many hosts, a path for
    those of one. Left out, there is none."""


@dataclass(frozen=True, kw_only=True)
class StandbySettings:
    """Whether this process waits for the place of another broker."""

    enabled: bool = False
    """Wait without links until an operator gives this process the name of a broker that is gone. It needs no
    neighbours: those of that broker become its own. With a data directory it remembers its place."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Everything about one broker process, in the groups of the configuration file."""

    broker: BrokerSettings
    listener: ListenerSettings = field(default_factory=ListenerSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    retention: Retention = field(default_factory=Retention)
    http: HttpSettings = field(default_factory=HttpSettings)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    log: LogSettings = field(default_factory=LogSettings)
    trace: TraceSettings = field(default_factory=TraceSettings)
    directory: DirectoryChoice = field(default_factory=DirectoryChoice)
    directory_settings: DirectorySettings = field(default_factory=DirectorySettings)
    peers: PeerSettings = field(default_factory=PeerSettings)
    standby: StandbySettings = field(default_factory=StandbySettings)

    @classmethod
    def of(
        cls,
        source: Mapping[str, Mapping[str, Any]] | str | os.PathLike[str] | None = None,
        *,
        broker_id: str | None = None,
        listen: str | None = None,
        address: str | None = None,
        neighbours: Sequence[str] | None = None,
        strategy: str | None = None,
        delta: int | None = None,
        fanout: int | None = None,
        topology_policy: str | None = None,
        data_dir: Path | str | None = None,
        directory: str | None = None,
        access: Path | str | None = None,
        tls_certificate: Path | str | None = None,
        tls_key: Path | str | None = None,
        tls_authority: Path | str | None = None,
        tls_revocations: Path | str | None = None,
        http: str | None = None,
        dashboard: str | None = None,
        trace: Path | str | None = None,
        audit: Path | str | None = None,
        insecure: bool | None = None,
        log_format: str | None = None,
        log_level: str | None = None,
        bootstrap: Sequence[str] | None = None,
        standby: bool | None = None,
    ) -> ServerSettings:
        """Settings from a file or a mapping, from single options, or from both.

        The options are those of `braid broker`, and come first; None leaves what the source says, or the
        default. Everything else has a key in the source.

        Args:
            source: the path of a configuration file, or what such a file holds, as a mapping of tables.
            broker_id: its name in the network; no other broker has it.
            listen: host and port where clients and neighbours connect; port 0 takes a free one.
            address: what others are told; left out, that of the listener.
            neighbours: addresses of brokers to link to.
            strategy: how publications are forwarded: S0, S1, S2, SH or SB.
            delta: how many links away it still knows other brokers; 0: as far as the strategy needs.
            fanout: links and soft links at most.
            topology_policy: by what a better tree is looked for: static, lmst, lmit, ci or exact.
            data_dir: where durable subscriptions and neighbours are kept.
            directory: where to register: zk://host:port/root, or a path.
            access: the file that says who may do what.
            tls_certificate: the certificate to show; TLS is used then.
            tls_key: the key of that certificate.
            tls_authority: believe certificates signed by these.
            tls_revocations: accept no certificate on these lists.
            http: host and port for /health, /ready and /metrics.
            dashboard: host and port for a page about the network.
            trace: the folder for a trace.
            audit: the file for the audit log.
            insecure: listen beyond loopback without TLS or authentication.
            log_format: text or json; for `braid broker` alone, as the next one.
            log_level: debug, info, warning or error.
            bootstrap: be a gateway to the peers at these addresses.
            standby: wait without links for the place of a broker that is gone.

        Raises:
            ConfigurationError: something is not known or cannot be used; the message names it.
        """
        given: dict[str, dict[str, Any]] = {
            "broker": {
                "broker_id": broker_id,
                "address": address,
                "neighbours": list(neighbours) if isinstance(neighbours, tuple) else neighbours,
                "strategy": strategy,
                "delta": delta,
            },
            "soft_links": {"fanout": fanout},
            "topology": {"policy": topology_policy},
            "listener": {"listen": listen, "insecure": insecure},
            "store": {"data_dir": data_dir},
            "directory": {"url": directory},
            "access": {"file": access},
            "tls": {
                "certificate": tls_certificate,
                "key": tls_key,
                "authority": tls_authority,
                "revocations": tls_revocations,
            },
            "http": {"listen": http},
            "dashboard": {"listen": dashboard},
            "trace": {"directory": trace},
            "log": {"audit": audit, "format": log_format, "level": log_level},
            "peers": {
                "enabled": True if bootstrap is not None else None,
                "bootstrap": list(bootstrap) if bootstrap is not None else None,
            },
            "standby": {"enabled": standby},
        }
        chosen = {
            table: {name: value for name, value in options.items() if value is not None}
            for table, options in given.items()
        }
        if isinstance(source, str | os.PathLike):
            document = Document.read(Path(source), "configuration file")
        else:
            document = Document(source or {}, "the settings", Path())
        values = _values(document)
        for table, options in _values(Document(chosen, "the options", Path())).items():
            values[table] |= options
        return _settings(values)

    def with_peers(self, values: Mapping[str, Any]) -> ServerSettings:
        """The same with other choices about peers.

        Raises:
            ConfigurationError: one of them is not known or cannot be used.
        """
        read = _values(Document({"peers": dict(values)}, "the options", Path()))["peers"]
        # Nobody else says what may be published here, so everybody expects anything.
        broker = replace(self.broker, flooding=True)
        return replace(self, broker=broker, peers=replace(self.peers, **read))


@dataclass(frozen=True)
class Key:
    """One key of the file."""

    table: str
    name: str
    default: Any
    meaning: str


# The tables in the order of the file; one may be made of several groups of settings.
_TABLES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "broker": ("The broker itself.", (BrokerSettings,)),
    "soft_links": (
        "Shortcuts past brokers, for the strategies other than S0: how many, and how they are chosen.",
        (SoftLinkSettings,),
    ),
    "topology": (
        "Looking for a better tree: by what, how often, and what links and this broker cost.",
        (TopologySettings,),
    ),
    "link": ("How much may be under way on a link to a neighbour.", (ChannelSettings,)),
    "client": ("How much may be under way on a client's connection.", (ChannelSettings,)),
    "listener": ("Where clients and neighbours connect.", (ListenerSettings,)),
    "tls": (
        "Encryption. With a certificate the listener speaks TLS, and links show the same certificate.",
        (TlsSettings,),
    ),
    "access": ("Who may do what.", (AccessSettings,)),
    "store": ("What survives a restart.", (StoreSettings,)),
    "retention": ("How much of the log of a durable subscription is kept.", (Retention,)),
    "http": ("Health, readiness and metrics.", (HttpSettings,)),
    "dashboard": ("A page about the network, served by a process beside the broker.", (DashboardSettings,)),
    "log": ("What is written to standard error.", (LogSettings,)),
    "trace": ("What is written down of each publication.", (TraceSettings,)),
    "directory": ("Where brokers find each other.", (DirectoryChoice, DirectorySettings)),
    "peers": (
        "Peers: whether this process is one as well, of which network, and what may cross.",
        (PeerSettings,),
    ),
    "standby": ("Waiting for the place of a broker that is gone.", (StandbySettings,)),
}
_OWN_TABLES = ("soft_links", "topology", "link", "client")
# What is only true of the file.
_ADDITIONS = {
    ("broker", "address"): " Left out, it is the listener's, which is right where that names one host.",
    ("retention", "age_s_max"): " None is written inf here.",
}


@cache
def keys_of(table: str) -> dict[str, Key]:
    """The keys of a table by name, in the order of the settings."""
    found = {}
    for group in _TABLES[table][1]:
        for each in fields(group):
            if table == "broker" and each.name in _OWN_TABLES:
                continue
            default = "" if each.default is MISSING else each.default
            if table == "client":
                default = getattr(BrokerSettings(broker_id="-").client, each.name)
            meaning = meanings_of(group)[each.name] + _ADDITIONS.get((table, each.name), "")
            found[each.name] = Key(table, each.name, default, meaning)
    return found


# Reading.


def _values(document: Document) -> dict[str, dict[str, Any]]:
    """The checked values of a document, by table and key."""
    top = document.top()
    load_plugins(
        forwarding_strategies=_given(top, "broker", "strategy"),
        topology_policies=_given(top, "topology", "policy"),
        directories=str(_given(top, "directory", "url")).partition(":")[0],
        dhts=_given(top, "peers", "dht"),
    )
    values: dict[str, dict[str, Any]] = {}
    for table, (_, groups) in _TABLES.items():
        section = top.table(table)
        values[table] = {}
        for group in groups:
            leave_out = _OWN_TABLES if group is BrokerSettings else ()
            choices = {"strategy": tuple(STRATEGIES)}
            values[table] |= read_fields(section, group, leave_out=leave_out, choices=choices)
        section.finish(_where_it_belongs)
    top.finish(_where_it_belongs)
    return values


def _given(top: Section, table: str, key: str) -> object:
    """What a document says, whatever it is."""
    found = top.values.get(table)
    return found.get(key) if isinstance(found, Mapping) else None


def _where_it_belongs(name: str) -> str | None:
    found = next((table for table in _TABLES if name in keys_of(table)), None)
    return f"it belongs into [{found}]" if found is not None else None


def _settings(values: Mapping[str, Mapping[str, Any]]) -> ServerSettings:
    """Settings from checked values; what is not among them has its default."""
    if not values["broker"].get("broker_id"):
        raise ConfigurationError(
            "the broker has no id; give broker_id (--id), or broker_id in [broker] of the configuration file"
        )
    directory = dict(values["directory"])
    choice = {"url": directory.pop("url")} if "url" in directory else {}
    try:
        broker = BrokerSettings(**values["broker"])
        return ServerSettings(
            broker=replace(
                broker,
                soft_links=SoftLinkSettings(**values["soft_links"]),
                topology=TopologySettings(**values["topology"]),
                link=replace(broker.link, **values["link"]),
                client=replace(broker.client, **values["client"]),
            ),
            listener=ListenerSettings(**values["listener"]),
            tls=TlsSettings(**values["tls"]),
            access=AccessSettings(**values["access"]),
            store=StoreSettings(**values["store"]),
            retention=Retention(**values["retention"]),
            http=HttpSettings(**values["http"]),
            dashboard=DashboardSettings(**values["dashboard"]),
            log=LogSettings(**values["log"]),
            trace=TraceSettings(**values["trace"]),
            directory=DirectoryChoice(**choice),
            directory_settings=DirectorySettings(**directory),
            peers=PeerSettings(**values["peers"]),
            standby=StandbySettings(**values["standby"]),
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"the configuration cannot be used: {error}") from None


# Printing.


def default_text() -> str:
    """A configuration file with every key at its default, each with its meaning above it."""
    return "\n".join(_default_lines())


def _default_lines() -> Iterator[str]:
    yield "# The configuration of a Braid broker, with every key at its default."
    yield "# Units are in the names: _us is microseconds, _s seconds, _bytes bytes. Paths are relative to the"
    yield '# folder of this file. An empty string ("") means: not set. Options of `braid broker` come first.'
    for table, (purpose, _) in _TABLES.items():
        yield ""
        yield from _comment(purpose)
        yield f"[{table}]"
        for key in keys_of(table).values():
            yield ""
            yield from _comment(key.meaning)
            yield f"{key.name} = {_toml(key.default)}"
    yield ""


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")


def _toml(value: Any) -> str:
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
