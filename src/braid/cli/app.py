"""Which commands are there, and what do their options mean?

Each command parses its options, calls one function and prints. Whatever a command needs is imported
when it runs, so that `braid --help` answers at once.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from braid.cli import reproduce, simulate
from braid.cli.json_lines import OnError, decode, open_input
from braid.cli.network import PUBLISH_EXAMPLES, SUBSCRIBE_EXAMPLES, publish, subscribe
from braid.cli.overlay import overlay
from braid.cli.peer import peer
from braid.cli.pipeline import pipeline
from braid.cli.plugins import PASSED_ON, run_plugin
from braid.cli.process_options import Authority, Certificate, ConfigFile, HttpAddress, Insecure, Key
from braid.cli.terminal import byte_progress, examples, json_text, say
from braid.errors import BraidError, PublicationError

__all__ = ["app"]

_SETTINGS = {"help_option_names": ["-h", "--help"]}


app = typer.Typer(
    name="braid",
    help="Content-based publish/subscribe: filters are SQL conditions over a publication's attributes.",
    epilog=examples(
        "braid demo",
        """braid explain "price > 10" '{"price": 12}'""",
        "braid match --filters filters.jsonl --publications quotes.jsonl",
        "braid broker --id A",
        """braid subscribe "price > 10" """.strip(),
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
    rich_markup_mode="rich",
)
app.add_typer(overlay, name="overlay")
app.add_typer(peer, name="peer")
app.add_typer(pipeline, name="pipeline")
app.command(epilog=examples(*simulate.EXAMPLES))(simulate.simulate)
app.command(epilog=examples(*reproduce.EXAMPLES))(reproduce.reproduce)
app.command(epilog=examples(*PUBLISH_EXAMPLES))(publish)
app.command(epilog=examples(*SUBSCRIBE_EXAMPLES))(subscribe)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from braid.compiled import compiled_modules

        modules = len(compiled_modules())
        how = f"{modules} modules compiled" if modules else "interpreted"
        typer.echo(f"braid {version('braid-pubsub')} ({how})")
        raise typer.Exit


@app.command(context_settings=PASSED_ON)
def bench(context: typer.Context) -> None:
    """Measure Braid against its rivals."""
    run_plugin(
        "bench",
        context,
        "the benchmarks are a distribution of their own, braid-bench; in a clone of Braid, install it with: "
        "pip install --editable 'benchmarks[rivals]'",
    )


@app.command(context_settings=PASSED_ON)
def dashboard(context: typer.Context) -> None:
    """Show a running network in the browser."""
    run_plugin(
        "dashboard",
        context,
        "the dashboard is not registered in this environment, which was installed before there was one; "
        "install again: pip install 'braid-pubsub[dashboard]'",
    )


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Options that stand before any command."""


@app.command(
    epilog=examples(
        "braid match --filters filters.jsonl --publications quotes.jsonl",
        "tail -f quotes.jsonl | braid match -f filters.jsonl -p - --only-matching",
        "braid match -f filters.jsonl -p quotes.jsonl --counts --on-error skip -o counts.jsonl",
    )
)
def match(
    filters: Annotated[
        str,
        typer.Option(
            "--filters", "-f", metavar="FILE", help="Filters, one JSON a line; - is standard input."
        ),
    ],
    publications: Annotated[
        str,
        typer.Option(
            "--publications", "-p", metavar="FILE", help="Publications, one JSON object a line; or -."
        ),
    ],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Where the answers go; - is standard output."),
    ] = "-",
    only_matching: Annotated[
        bool, typer.Option("--only-matching", help="Leave out publications that match no filter.")
    ] = False,
    counts: Annotated[
        bool, typer.Option("--counts", help="Say how many filters match instead of which; much faster.")
    ] = False,
    on_error: Annotated[
        OnError,
        typer.Option("--on-error", help="At a line that cannot be read: stop, or report and skip it."),
    ] = OnError.STOP,
) -> None:
    r"""Say for each publication which filters it matches.

    A filter line is {"id": ..., "filter": "price > 10"}, {"id": ..., "pattern": {...}} with an
    Amazon EventBridge pattern, or just the SQL as a JSON string. Without an id, the line number
    is the id. Nested publications are flattened: {"a": {"b": 1}} has the attribute a.b.

    Each publication gives one line {"line": n, "matches": \[ids in the order of the filter file]},
    or {"line": n, "count": k} with --counts. Memory does not grow with the number of publications.
    Bad lines are named as file:line; the exit code is then 2, unless they are skipped.
    """
    from braid.cli.match import match_lines

    with byte_progress("matching", publications, output) as advance:
        summary = match_lines(
            filters,
            publications,
            output,
            counts=counts,
            only_matching=only_matching,
            on_error=on_error,
            report=lambda message: say(f"braid: skipped {message}"),
            advance=advance,
        )
    if summary.skipped or sys.stderr.isatty():
        say(f"braid: {summary}")


@app.command(
    epilog=examples(
        """braid explain "symbol = 'ACME' AND price > 10" '{"symbol": "ACME", "price": 9.5}'""",
        """braid explain --json "length < 2 * height" - < box.json""",
        """braid explain --pattern '{"price": \\[{"numeric": \\[">", 10]}]}' '{"price": 12}'""",
    )
)
def explain(
    filter_text: Annotated[str, typer.Argument(metavar="FILTER", help="The filter, an SQL condition.")],
    publication: Annotated[
        str, typer.Argument(metavar="JSON", help="The publication, or - for standard input.")
    ],
    as_pattern: Annotated[
        bool, typer.Option("--pattern", help="FILTER is an Amazon EventBridge pattern in JSON.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON.")] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 when it does not match, for use in scripts.")
    ] = False,
) -> None:
    """Say why a filter matches a publication, or why it does not.

    Exit code 2: the filter or the publication cannot be read.
    """
    from braid.language import Filter, flatten
    from braid.language.patterns import filter_from_pattern

    document: str | bytes = publication
    if publication == "-":
        with open_input("-") as source:
            document = source.read()
    try:
        attributes = flatten(decode(document))
    except BraidError:
        raise
    except ValueError as error:
        raise PublicationError(f"the publication is {error}") from None
    read = filter_from_pattern(filter_text) if as_pattern else Filter(filter_text)
    explanation = read.explain(attributes)
    typer.echo(json_text(explanation.to_json()) if as_json else str(explanation))
    raise typer.Exit(1 if exit_code and explanation.outcome is not True else 0)


@app.command(epilog=examples("braid demo", "braid demo --keep", "braid demo --embedded --seconds 5 --json"))
def demo(
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Show the bus within one process instead; needs nothing else.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=0.1,
            help="How long the ticker of --embedded runs (20), or each act of the network (7).",
        ),
    ] = None,
    brokers: Annotated[int, typer.Option("--brokers", min=5, max=40, help="How many brokers.")] = 12,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Leave network and dashboard running after the last act, until Ctrl-C."),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace/--no-replace",
            help="Whether the broker that is killed is replaced; without, the demo fails.",
        ),
    ] = True,
    dashboard: Annotated[
        bool, typer.Option("--dashboard/--no-dashboard", help="Whether the dashboard is served.")
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Where logs, traces and the report go: demo-N here."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Chooses who wants what, and made-up quotes.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; what happens goes to standard error.")
    ] = False,
) -> None:
    """Watch a network of real brokers learn, change, and lose a broker but no publication; about two minutes.

    Twelve processes on loopback, stock quotes, the dashboard in the browser, and at the end a table that
    Spark makes of what brokers and clients wrote down. A report stays in the folder that is named at the end.

    Exit code 0: every quote reached every reader that wanted it, once.
    Exit code 1: it did not, and the last lines say why.
    """
    if embedded:
        from braid.cli.demo import run_demo

        raise typer.Exit(run_demo(seconds=seconds or 20.0, seed=seed, json_output=as_json).exit_code)
    from braid.cli.network_demo.run import network_demo

    raise typer.Exit(
        network_demo(
            brokers=brokers,
            act_s=seconds,
            keep=keep,
            replace=replace,
            dashboard=dashboard,
            out=out,
            seed=seed,
            as_json=as_json,
        )
    )


class _LogFormat(StrEnum):
    """How lines of the log are written."""

    TEXT = "text"
    JSON = "json"


class _LogLevel(StrEnum):
    """The least important line of the log that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@app.command(
    epilog=examples(
        "braid broker --id A",
        "braid broker --id B --listen 127.0.0.1:7001 --neighbor 127.0.0.1:7000 --data-dir data/B",
        "braid broker --config broker.toml --http 127.0.0.1:9000",
        "braid broker --id A --dashboard 7080",
        "braid broker --id C --neighbor 127.0.0.1:7001 --listen 127.0.0.1:7002 --strategy S2 --fanout 8",
        "braid broker --id G --bootstrap 127.0.0.1:7100 --neighbor 127.0.0.1:7000 --listen 127.0.0.1:7003",
        "braid broker --print-config > broker.toml",
    )
)
def broker(
    broker_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Its name in the network; no other broker has it."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where clients and neighbours connect; a port alone is on loopback, 0 a free one. "
            "\\[default: 127.0.0.1:7000]",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="ADDRESS",
            help="The address that others are told. \\[default: that of the listener]",
        ),
    ] = None,
    neighbors: Annotated[
        list[str] | None,
        typer.Option("--neighbor", "--neighbour", metavar="ADDRESS", help="A broker to link to; repeatable."),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            metavar="NAME",
            help="How publications are forwarded: S0 along the tree; S1, S2, SH, SB over soft links as well. "
            "\\[default: S0]",
        ),
    ] = None,
    delta: Annotated[
        int | None,
        typer.Option(
            "--delta",
            metavar="N",
            help="How many links away it still knows other brokers; 0: as far as the strategy needs. "
            "\\[default: 0]",
        ),
    ] = None,
    fanout: Annotated[
        int | None,
        typer.Option("--fanout", metavar="N", help="Links and soft links together, at most. \\[default: 16]"),
    ] = None,
    topology_policy: Annotated[
        str | None,
        typer.Option(
            "--topology-policy",
            metavar="NAME",
            help="How a better tree is looked for: static, lmst, lmit, ci, exact. \\[default: static]",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", metavar="DIR", help="Where durable subscriptions and neighbours are kept."
        ),
    ] = None,
    directory: Annotated[
        str | None,
        typer.Option("--directory", metavar="URL", help="Where to register: zk://host:port/root, or a path."),
    ] = None,
    config: ConfigFile = None,
    access: Annotated[
        Path | None,
        typer.Option("--access", metavar="FILE", help="The file that says who may do what, in TOML."),
    ] = None,
    certificate: Certificate = None,
    key: Key = None,
    authority: Authority = None,
    revocations: Annotated[
        Path | None,
        typer.Option("--tls-revocations", metavar="FILE", help="Accept no certificate on these lists (CRL)."),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            "--audit",
            metavar="FILE",
            help="The file that records who was let in, was refused, or changed something.",
        ),
    ] = None,
    http: HttpAddress = None,
    dashboard: Annotated[
        str | None,
        typer.Option("--dashboard", metavar="HOST:PORT", help="Serve the dashboard there."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="DIR", help="Where to write traces of publications, as Parquet files."
        ),
    ] = None,
    insecure: Insecure = None,
    log_format: Annotated[
        _LogFormat | None, typer.Option("--log-format", help="For people, or one JSON object a line.")
    ] = None,
    log_level: Annotated[
        _LogLevel | None, typer.Option("--log-level", help="The least important line that is written.")
    ] = None,
    bootstrap: Annotated[
        list[str] | None,
        typer.Option(
            "--bootstrap",
            metavar="HOST:PORT",
            help="Be a gateway to the network of peers that this one belongs to; repeatable.",
        ),
    ] = None,
    standby: Annotated[
        bool | None,
        typer.Option("--standby", help="Wait without links for the place of a broker that is gone."),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print every setting with its default, and exit.")
    ] = False,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C; it then hands over what it holds and leaves.

    Without TLS and an access file it listens on loopback only. Without --data-dir nothing survives
    a restart, and durable subscriptions are refused. Its log goes to standard error: "listening" with the
    address, and "ready" once it knows what its neighbours want.

    Exit code 2: it could not be started.
    """
    if print_config:
        from braid.server.settings import default_text

        typer.echo(default_text(), nl=False)
        return
    from braid.cli.broker import run_broker
    from braid.server import ServerSettings

    run_broker(
        ServerSettings.of(
            config,
            broker_id=broker_id,
            listen=listen,
            address=address,
            neighbours=neighbors or None,
            strategy=strategy,
            delta=delta,
            fanout=fanout,
            topology_policy=topology_policy,
            data_dir=data_dir,
            directory=directory,
            access=access,
            tls_certificate=certificate,
            tls_key=key,
            tls_authority=authority,
            tls_revocations=revocations,
            http=http,
            dashboard=dashboard,
            trace=trace,
            audit=audit,
            insecure=insecure,
            log_format=log_format and log_format.value,
            log_level=log_level and log_level.value,
            bootstrap=bootstrap or None,
            standby=standby,
        )
    )
