"""Which directory does a URL mean?"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from braid.errors import ConfigurationError
from braid.runtime.directory.interface import DirectorySettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.runtime.directory.interface import Directory

__all__ = ["add_directory", "open_directory"]

WHAT_WORKS = (
    "use a path or sqlite:///absolute/path.db for the brokers of one host, "
    "zk://host:port[,host:port]/root for those of many, or memory: inside one process"
)
OTHER_DIRECTORIES: dict[str, Callable[[str, DirectorySettings], Directory]] = {}
"""Those that other distributions bring, by the scheme of their URLs."""
ZOOKEEPER_PORT = 2181
ZOOKEEPER_ROOT = "/braid"


def add_directory(scheme: str, opened: Callable[[str, DirectorySettings], Directory]) -> None:
    """Let URLs of one more kind name a directory.

    Args:
        scheme: what stands before `://`, in small letters.
        opened: makes a directory of a URL and settings, without connecting to anything yet.

    Raises:
        ConfigurationError: that scheme is taken, or cannot be one.
    """
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise ConfigurationError(f"{scheme!r} cannot stand before :// in a URL")
    if scheme in ("memory", "sqlite", "zk") or scheme in OTHER_DIRECTORIES:
        raise ConfigurationError(f"there is a directory for {scheme}:// already")
    OTHER_DIRECTORIES[scheme] = opened


def open_directory(url: str, settings: DirectorySettings | None = None) -> Directory:
    """The directory behind a URL; it is connected on first use.

    - `path/file.db`, `sqlite:///absolute/file.db`: an SQLite file, made when missing.
    - `zk://host:port,host:port/root`: ZooKeeper (port 2181 and root /braid unless given).
    - `memory:`, `memory:NAME`: this process only.

    Raises:
        ConfigurationError: another kind of URL, a part of it that cannot be used, or ZooKeeper without kazoo.
    """
    settings = settings or DirectorySettings()
    scheme, rest = _split(url)
    if scheme == "memory":
        from braid.runtime.directory.memory import MemoryDirectory

        return MemoryDirectory(rest, settings)
    if scheme == "sqlite":
        from braid.runtime.directory.sqlite import SqliteDirectory

        return SqliteDirectory(_file(url, rest), settings)
    if scheme == "zk":
        hosts, root = _hosts_and_root(url, rest)
        if find_spec("kazoo") is None:
            raise ConfigurationError(
                f"the directory {url} needs the package kazoo; install it with: "
                "pip install 'braid-pubsub[zookeeper]'"
            )
        from braid.runtime.directory.zookeeper import ZookeeperDirectory

        return ZookeeperDirectory(hosts, root, settings)
    if scheme in OTHER_DIRECTORIES:
        return OTHER_DIRECTORIES[scheme](url, settings)
    raise ConfigurationError(f"unknown kind of directory {scheme!r} in {url!r}; {WHAT_WORKS}")


def _split(url: str) -> tuple[str, str]:
    """The scheme and what follows its colon; a plain path is SQLite's."""
    if not url.strip() or "\0" in url:
        raise ConfigurationError(f"{url!r} names no directory; {WHAT_WORKS}")
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://|(memory|sqlite|zk):", url)
    if match is None:
        return "sqlite", url
    scheme = (match[1] or match[2]).lower()
    return scheme, url[len(scheme) + 1 :]


def _file(url: str, rest: str) -> Path:
    if rest == url:
        return Path(url).expanduser()
    path = unquote(rest)
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        if host:
            raise ConfigurationError(
                f"{url!r} names a host {host!r}, and an SQLite file is always on this one; "
                f"write sqlite:///{host}/{path} for the absolute path /{host}/{path}, or the plain path"
            )
        path = slash + path.lstrip("/")
    if path in ("", "/"):
        raise ConfigurationError(f"{url!r} names no file; {WHAT_WORKS}")
    return Path(path)


def _hosts_and_root(url: str, rest: str) -> tuple[tuple[str, ...], str]:
    if not rest.startswith("//"):
        raise ConfigurationError(f"{url!r} should look like zk://127.0.0.1:{ZOOKEEPER_PORT}{ZOOKEEPER_ROOT}")
    listed, _, path = rest[2:].partition("/")
    root = "/" + path.strip("/") if path.strip("/") else ZOOKEEPER_ROOT
    parts = root[1:].split("/")
    if not all(re.fullmatch(r"[A-Za-z0-9_.-]+", part) and part.strip(".") for part in parts) or (
        parts[0] == "zookeeper"
    ):
        raise ConfigurationError(
            f"the root {root!r} in {url!r} cannot be used; its parts are made of letters, digits, '-', '_' "
            "and '.', and /zookeeper itself is reserved"
        )
    return tuple(_host(url, host) for host in listed.split(",")), root


def _host(url: str, text: str) -> str:
    """`host:port` with its port filled in; an IPv6 address stands in brackets."""
    match = re.fullmatch(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.%]+\])(?::([0-9]{1,5}))?", text)
    port = int(match[2] or ZOOKEEPER_PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise ConfigurationError(
            f"{text!r} in {url!r} is no host and port; write zk://host:port[,host:port]/root, "
            f"such as zk://127.0.0.1:{ZOOKEEPER_PORT}{ZOOKEEPER_ROOT} (names and passwords are not supported)"
        )
    return f"{match[1]}:{port}"
