"""Do `braid publish` and `braid subscribe` read and write what they say?"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from braid.cli.network import PUBLISH_EXAMPLES, SUBSCRIBE_EXAMPLES, publish, subscribe
from braid.errors import AuthenticationError, BraidError, ConfigurationError, FilterSyntaxError
from braid.language import Filter
from braid.protocol.messages import Refused
from tests.runtime.fake_broker import DEADLINE_S, FakeBrokerThread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

pytestmark = pytest.mark.net

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command(epilog="\n\n".join(PUBLISH_EXAMPLES))(publish)
app.command(epilog="\n\n".join(SUBSCRIBE_EXAMPLES))(subscribe)

# The same as a program of its own, which can be sent signals and have its output closed.
PROGRAM = (
    "import typer\n"
    "from braid.cli.network import publish, subscribe\n"
    "app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)\n"
    "app.command()(publish)\n"
    "app.command()(subscribe)\n"
    "app()\n"
)


@pytest.fixture
def served() -> Iterator[FakeBrokerThread]:
    with FakeBrokerThread() as thread:
        yield thread


def run(*arguments: str, lines: list[Any] | bytes = b"") -> Result:
    text = lines if isinstance(lines, bytes) else "".join(json.dumps(line) + "\n" for line in lines).encode()
    return CliRunner().invoke(app, list(arguments), input=text)


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_lines_become_publications(served: FakeBrokerThread) -> None:
    lines = [{"a": {"b": 1}}, {"r": {"$range": {"low": 1, "high": 2}}}, {"s": "Grüße"}]
    result = run("publish", "--broker", served.broker.address, lines=lines)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "3 published" in result.stderr
    assert [dict(each.attributes) for each in served.broker.published[::2]] == [{"a.b": 1}, {"s": "Grüße"}]


def test_meta_lines_bring_a_body(served: FakeBrokerThread) -> None:
    lines = [
        {"attributes": {"a": 1}, "body": "text", "content_type": "text/plain"},
        {"attributes": {"a": 2}, "body_base64": "AP8="},
        {"attributes": {"a": 3}},
    ]
    result = run("publish", "-b", served.broker.address, "--meta", "--acknowledged", lines=lines)
    assert result.exit_code == 0
    found = [(each["a"], each.body, each.content_type) for each in served.broker.published]
    assert found == [(1, b"text", "text/plain"), (2, b"\x00\xff", ""), (3, b"", "")]


def test_what_is_published_again_in_the_same_epoch_is_counted_as_discarded(served: FakeBrokerThread) -> None:
    served.broker.tells_discarded = True
    for epoch, discarded in (("monday", ""), ("monday", ", 2 of them discarded"), ("tuesday", "")):
        again = ("publish", "-b", served.broker.address, "--publisher", "job", "--epoch", epoch)
        result = run(*again, lines=[{"n": 1}, {"n": 2}])
        assert result.exit_code == 0
        assert f"2 published{discarded}\n" in result.output
    assert len(served.broker.published) == 4


@pytest.mark.parametrize(
    ("options", "bad", "reason"),
    [
        ((), b"{broken", "not JSON"),
        ((), b"[1]", "a list"),
        ((), b'{"a": [1]}', "'a'"),
        (("--meta",), b'{"a": 1}', "attributes"),
        (("--meta",), b'{"attributes": {}, "body": 5}', "strings"),
        (("--meta",), b'{"attributes": {}, "body_base64": "?"}', "body_base64"),
        (("--meta",), b'{"attributes": {}, "body": "a", "body_base64": "AP8="}', "either"),
    ],
)
def test_a_bad_line_is_named_and_the_lines_before_it_are_published(
    served: FakeBrokerThread, options: tuple[str, ...], bad: bytes, reason: str
) -> None:
    good = b'{"attributes": {"n": 1}}\n' if options else b'{"n": 1}\n'
    result = run("publish", "-b", served.broker.address, *options, lines=good + b"\n" + bad + b"\n" + good)
    assert isinstance(result.exception, BraidError)
    assert str(result.exception).startswith("standard input:3: ")
    assert reason in str(result.exception)
    assert len(served.broker.published) == 1


def test_refused_publications_are_reported(served: FakeBrokerThread) -> None:
    served.broker.denied = Filter("secret = 1")
    result = run("publish", "-b", served.broker.address, lines=[{"a": 1}, {"secret": 1}])
    assert isinstance(result.exception, BraidError)
    assert "1 of 2 publications were refused: you may not publish that" in str(result.exception)


def test_a_wrong_token_and_a_wrong_option(served: FakeBrokerThread) -> None:
    served.broker.refusal = Refused("authentication", "no such token")
    result = run("publish", "-b", served.broker.address, "--token", "wrong")
    assert isinstance(result.exception, AuthenticationError)
    result = run("subscribe", "TRUE", "-b", served.broker.address, "--key", "key.pem")
    assert isinstance(result.exception, ConfigurationError)
    result = run("subscribe", "a >", "-b", served.broker.address)
    assert isinstance(result.exception, FilterSyntaxError)


def test_help_shows_examples() -> None:
    for command in ("publish", "subscribe"):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert f"braid {command}" in result.stdout


def wait_subscribed(process: subprocess.Popen[bytes]) -> None:
    assert process.stderr is not None
    assert b"subscribed to" in process.stderr.readline()


def finish(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    try:
        return process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()


def test_publications_become_lines(served: FakeBrokerThread) -> None:
    process = start("subscribe", "a >= 0 OR r > 0", "-b", served.broker.address, "--count", "3")
    wait_subscribed(process)
    lines = [{"a": 1, "s": "Grüße"}, {"r": {"$range": {"low": 1, "high": 2.5}}}, {"a": 3}, {"a": 4}]
    assert run("publish", "-b", served.broker.address, lines=lines).exit_code == 0
    output, _ = finish(process)
    assert process.returncode == 0
    assert [json.loads(line) for line in output.splitlines()] == lines[:3]


def test_meta_lines_can_be_published_again(served: FakeBrokerThread) -> None:
    process = start("subscribe", "a >= 0", "-b", served.broker.address, "--count", "2", "--meta")
    wait_subscribed(process)
    lines = [
        {"attributes": {"a": 1}, "body": "text", "content_type": "text/plain"},
        {"attributes": {"a": 2}, "body_base64": "AP8="},
    ]
    run("publish", "-b", served.broker.address, "--meta", lines=lines)
    output, _ = finish(process)
    found = [json.loads(line) for line in output.splitlines()]
    assert found[0]["id"] == f"{found[0]['publisher']}/1"
    assert found[0]["time"] > 0
    assert (found[0]["body"], found[0]["content_type"], found[1]["sequence"]) == ("text", "text/plain", 2)
    assert run("publish", "-b", served.broker.address, "--meta", lines=output).exit_code == 0
    bodies = [each.body for each in served.broker.published]
    assert bodies == [b"text", b"\x00\xff"] * 2


def test_time_is_up(served: FakeBrokerThread) -> None:
    assert run("subscribe", "TRUE", "-b", served.broker.address, "--for", "0.05").exit_code == 0
    result = run("subscribe", "TRUE", "-b", served.broker.address, "--for", "0.05", "--count", "1")
    assert result.exit_code == 1
    assert result.stdout == ""


def test_what_a_durable_subscription_printed_is_acknowledged(served: FakeBrokerThread) -> None:
    arguments = ("subscribe", "n >= 0", "-b", served.broker.address, "--durable", "log", "--meta")
    assert run(*arguments, "--for", "0.05").exit_code == 0
    assert run("publish", "-b", served.broker.address, lines=[{"n": n} for n in range(5)]).exit_code == 0
    result = run(*arguments, "--count", "3")
    assert result.exit_code == 0
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == [0, 1, 2]
    served.until(lambda: served.broker.acknowledged["log"] == 2)
    result = run(*arguments, "--count", "2")
    assert [json.loads(line)["attributes"]["n"] for line in result.stdout.splitlines()] == [3, 4]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_subscriber_leaves_in_order(served: FakeBrokerThread, number: signal.Signals) -> None:
    process = start("subscribe", "TRUE", "-b", served.broker.address)
    wait_subscribed(process)
    process.send_signal(number)
    output, errors = finish(process)
    assert process.returncode == 0
    assert output == b""
    assert b"Traceback" not in errors
    served.until(lambda: not served.broker.visitors)


def test_a_closed_pipe_ends_the_subscriber(served: FakeBrokerThread) -> None:
    process = start("subscribe", "n >= 0", "-b", served.broker.address)
    wait_subscribed(process)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    run("publish", "-b", served.broker.address, lines=[{"n": 1}])
    _, errors = finish(process)
    assert process.returncode is not None
    assert process.returncode >= 0
    assert b"Traceback" not in errors
