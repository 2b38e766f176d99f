"""What can be written into a broker's configuration file, and what does it mean?

The file is TOML with one table per group of settings; keys have the names of the settings, so their units are
in the names: `heartbeat_us` is in microseconds, `lease_s` in seconds, `bytes_max` in bytes. Meaning, price
and default of each key come from the source of the settings themselves.

A key that is not known here is an error, never ignored: a misspelt limit would be no limit. An empty string
means "not set". Paths are relative to the folder of the file.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
import tomllib
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from braid.adaptation import SoftLinkSettings
from braid.broker.settings import STRATEGIES, BrokerSettings
from braid.errors import ConfigurationError
from braid.protocol import ChannelSettings
from braid.protocol.log import Retention
from braid.runtime.directory import DirectorySettings
from braid.runtime.store import Synchronous
from braid.runtime.tls import TlsSettings

__all__ = [
    "Configuration",
    "Key",
    "TraceSettings",
    "default_text",
    "keys_of",
    "make_configuration",
    "override",
    "read_values",
]

Values = dict[str, dict[str, Any]]

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
    it asks nobody who they are. Beyond, the rules of the listener hold: it uses the same certificate, and
    wants the token of somebody who may operate, as `Authorization: Bearer`. Left out, there is none."""


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
class Configuration:
    """Everything about one broker process."""

    broker: BrokerSettings
    listener: ListenerSettings
    tls: TlsSettings
    access: AccessSettings
    store: StoreSettings
    retention: Retention
    http: HttpSettings
    log: LogSettings
    trace: TraceSettings
    directory: DirectoryChoice
    directory_settings: DirectorySettings


@dataclass(frozen=True)
class Key:
    """One key of the file."""

    table: str
    name: str
    hint: Any
    """The type of its values."""
    default: Any
    meaning: str
    least: int
    """The least whole number it can be."""


# The tables in the order of the file; one may be made of several groups of settings.
_TABLES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "broker": ("The broker itself.", (BrokerSettings,)),
    "soft_links": (
        "Shortcuts past brokers, for the strategies other than S0: how many, and how they are chosen.",
        (SoftLinkSettings,),
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
    "log": ("What is written to standard error.", (LogSettings,)),
    "trace": ("What is written down of each publication.", (TraceSettings,)),
    "directory": ("Where brokers find each other.", (DirectoryChoice, DirectorySettings)),
}
_OWN_TABLES = ("soft_links", "link", "client")
# Whole numbers that may be 0; all others are 1 or more.
_FROM_ZERO = {
    ("broker", "delta"),
    ("broker", "disk_low_bytes"),
    ("broker", "disk_high_bytes"),
    ("broker", "memory_bytes_max"),
    ("soft_links", "candidates_max"),
    ("soft_links", "rest_reviews"),
}
# Texts that are one of a few.
_CHOICES = {("broker", "strategy"): Literal[tuple(STRATEGIES)]}
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
        meanings, hints = _meanings(group), get_type_hints(group)
        for field in fields(group):
            if table == "broker" and field.name in _OWN_TABLES:
                continue
            default = "" if field.default is MISSING else field.default
            if table == "client":
                default = getattr(_client_defaults(), field.name)
            meaning = meanings[field.name] + _ADDITIONS.get((table, field.name), "")
            place = (table, field.name)
            hint = _CHOICES.get(place, hints[field.name])
            found[field.name] = Key(table, field.name, hint, default, meaning, int(place not in _FROM_ZERO))
    return found


def _client_defaults() -> ChannelSettings:
    return BrokerSettings(broker_id="-").client


def _meanings(group: type) -> dict[str, str]:
    """The docstring below each field, from the source: there is no second place for it to drift from."""
    body = ast.parse(textwrap.dedent(inspect.getsource(group))).body[0]
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{group!r} is no class")
    meanings = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = after.value if isinstance(after, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                meanings[field.target.id] = " ".join(text.value.split())
    return meanings


# Reading.


def read_values(path: str | Path) -> Values:
    """The checked values of a configuration file, or a `ConfigurationError` with file, table and key."""
    try:
        with Path(path).open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(
            f"the configuration file {path} cannot be read: {error.strerror or error}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the configuration file {path} is not valid TOML: {error}") from None
    values: Values = {}
    for table, content in document.items():
        if table not in _TABLES:
            raise _unknown(str(path), "top level", table, _TABLES)
        if not isinstance(content, Mapping):
            raise ConfigurationError(f"configuration file {path}, key {table!r}: must be a table, [{table}]")
        known = keys_of(table)
        values[table] = {}
        for name, value in content.items():
            if name not in known:
                raise _unknown(str(path), f"table [{table}]", name, known)
            where = f"configuration file {path}, table [{table}], key {name!r}"
            values[table][name] = _checked(where, known[name], value, Path(path).parent)
    return values


def _unknown(path: str, where: str, name: str, known: Mapping[str, object]) -> ConfigurationError:
    close = difflib.get_close_matches(name, known, n=1)
    elsewhere = [table for table in _TABLES if name in keys_of(table)]
    if elsewhere:
        hint = f"it belongs into table [{elsewhere[0]}]"
    elif close:
        hint = f"did you mean {close[0]!r}?"
    else:
        hint = f"known are {', '.join(known)}"
    return ConfigurationError(f"configuration file {path}, {where}, key {name!r}: is not known; {hint}")


def _checked(where: str, key: Key, value: Any, folder: Path) -> Any:
    """The value as its setting wants it."""
    hint = key.hint
    choices = [each for each in get_args(hint) if each is not type(None)]
    if get_origin(hint) is Literal:
        if value not in choices:
            raise ConfigurationError(f"{where}: must be {_either(choices)}, not {value!r}")
        return value
    if get_origin(hint) in (Union, types.UnionType):
        hint = choices[0]
    if hint is Path:
        if not isinstance(value, str):
            raise ConfigurationError(f"{where}: must be a path in quotes, not {value!r}")
        return folder / Path(value).expanduser() if value else None
    if get_origin(hint) is tuple:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ConfigurationError(f"{where}: must be a list of strings, not {value!r}")
        return tuple(value)
    if hint is bool and not isinstance(value, bool):
        raise ConfigurationError(f"{where}: must be true or false, not {value!r}")
    if hint is int and (type(value) is not int or value < key.least):
        raise ConfigurationError(f"{where}: must be a whole number of at least {key.least}, not {value!r}")
    if hint is float:
        if type(value) not in (int, float):
            raise ConfigurationError(f"{where}: must be a number, not {value!r}")
        return float(value)
    if hint is str and not isinstance(value, str):
        raise ConfigurationError(f"{where}: must be text in quotes, not {value!r}")
    return value


def _either(choices: list[Any]) -> str:
    return " or ".join(f'"{choice}"' for choice in choices)


def override(values: Values, given: Mapping[tuple[str, str], Any]) -> Values:
    """Values with others in their place, by table and key; None leaves a value as it is."""
    merged = {table: dict(content) for table, content in values.items()}
    for (table, name), value in given.items():
        if value is not None:
            merged.setdefault(table, {})[name] = value
    return merged


def make_configuration(values: Mapping[str, Mapping[str, Any]]) -> Configuration:
    """Settings from values; what is not among them has its default.

    Raises:
        ConfigurationError: a value is out of its range, or the broker has no id.
    """
    broker = dict(values.get("broker", {}))
    if not broker.get("broker_id"):
        raise ConfigurationError(
            "the broker has no id; give --id, or broker_id in table [broker] of the configuration file"
        )
    directory = dict(values.get("directory", {}))
    url = directory.pop("url", "")
    try:
        settings = BrokerSettings(**broker)
        return Configuration(
            broker=replace(
                settings,
                soft_links=SoftLinkSettings(**values.get("soft_links", {})),
                link=replace(settings.link, **values.get("link", {})),
                client=replace(settings.client, **values.get("client", {})),
            ),
            listener=ListenerSettings(**values.get("listener", {})),
            tls=TlsSettings(**values.get("tls", {})),
            access=AccessSettings(**values.get("access", {})),
            store=StoreSettings(**values.get("store", {})),
            retention=Retention(**values.get("retention", {})),
            http=HttpSettings(**values.get("http", {})),
            log=LogSettings(**values.get("log", {})),
            trace=TraceSettings(**values.get("trace", {})),
            directory=DirectoryChoice(url=url),
            directory_settings=DirectorySettings(**directory),
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
