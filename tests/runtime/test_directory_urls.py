"""Which URLs name a directory, and what is said about the others?"""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.errors import ConfigurationError
from braid.runtime.directory import BrokerEntry, DirectorySettings, open_directory, urls


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("brokers.db", "brokers.db"),
        ("./some folder/brokers", "some folder/brokers"),
        ("/var/lib/braid/brokers.db", "/var/lib/braid/brokers.db"),
        ("sqlite:///var/lib/braid/brokers.db", "/var/lib/braid/brokers.db"),
        ("sqlite:////var/lib/braid/brokers.db", "/var/lib/braid/brokers.db"),
        ("SQLite:///var/lib/some%20folder/b.db", "/var/lib/some folder/b.db"),
        ("sqlite:relative/brokers.db", "relative/brokers.db"),
        ("~/brokers.db", str(Path.home() / "brokers.db")),
    ],
)
def test_paths(url: str, path: str) -> None:
    assert getattr(open_directory(url), "name") == f"the directory {path}"  # noqa: B009


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("zk://127.0.0.1:2181/braid", "zk://127.0.0.1:2181/braid"),
        ("zk://one,two:2182/", "zk://one:2181,two:2182/braid"),
        ("zk://[::1]:2181/a/b-c/", "zk://[::1]:2181/a/b-c"),
        ("zk://zk.example.org", "zk://zk.example.org:2181/braid"),
    ],
)
def test_zookeeper(url: str, name: str) -> None:
    pytest.importorskip("kazoo")
    assert getattr(open_directory(url), "name") == f"the directory {name}"  # noqa: B009


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("", "names no directory"),
        ("a\0b", "names no directory"),
        ("etcd://127.0.0.1:2379/braid", r"unknown kind of directory 'etcd'.*sqlite:///.*zk://.*memory:"),
        ("sqlite://brokers.db", r"names a host 'brokers\.db'.*sqlite:///brokers\.db"),
        ("sqlite://", "names no file"),
        ("sqlite:", "names no file"),
        ("zk:127.0.0.1:2181", "should look like zk://"),
        ("zk:///braid", "'' in .* is no host and port"),
        ("zk://one,,two/braid", "'' in .* is no host and port"),
        ("zk://one:0/braid", "'one:0' in .* is no host and port"),
        ("zk://one:70000/braid", "'one:70000' in .* is no host and port"),
        ("zk://user:secret@one/braid", "names and passwords are not supported"),
        ("zk://one/zookeeper/x", "cannot be used"),
        ("zk://one/a//b", "cannot be used"),
        ("zk://one/a/../b", "cannot be used"),
    ],
)
def test_other_urls_are_refused_with_a_reason(url: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        open_directory(url)


def test_zookeeper_without_kazoo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'braid-pubsub\[zookeeper\]'"):
        open_directory("zk://127.0.0.1:2181/braid")


async def test_memory_is_shared_by_name_only() -> None:
    entry = BrokerEntry("A", ("127.0.0.1:7000",), (), "first", 0)
    async with open_directory("memory:shared") as one, open_directory("memory:shared") as two:
        await one.register(entry)
        assert await two.get("A") == entry
    async with open_directory("memory:") as one, open_directory("memory:") as two:
        await one.register(entry)
        assert await two.get("A") is None
    async with open_directory("memory:shared") as later:
        assert await later.brokers() == {}


@pytest.mark.parametrize("name", ["lease_s", "poll_s", "operation_timeout_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_settings_without_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=name):
        DirectorySettings(**{name: value})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("", ("127.0.0.1:7000",), (), "first", 0), "has 0 characters"),
        (("x" * 256, ("127.0.0.1:7000",), (), "first", 0), "has 256 characters"),
        (("A\n", ("127.0.0.1:7000",), (), "first", 0), "printable"),
        (("\ud800", ("127.0.0.1:7000",), (), "first", 0), "printable"),
        (("A", (), (), "first", 0), "without an address"),
        (("A", ("127.0.0.1:7000",), (), "", 0), "without an incarnation"),
    ],
)
def test_entries_without_sense_are_refused(
    arguments: tuple[str, tuple[str, ...], tuple[str, ...], str, int], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        BrokerEntry(*arguments)
