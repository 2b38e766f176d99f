"""How does a result become one page that opens anywhere?

The page holds everything itself: styles, and figures as inline SVG whose ink follows the page from light to
dark. Its content security policy forbids it to load anything, so it asks the network for nothing.
"""

from __future__ import annotations

import re
import shlex
from html import escape
from typing import TYPE_CHECKING

from braid.pipeline.experiments.figures import coinciding
from braid.pipeline.experiments.registry import papers
from braid.pipeline.experiments.rows import common_labels, plain_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from braid.pipeline.experiments.figures import Drawing
    from braid.pipeline.experiments.reproduce import Result
    from braid.pipeline.experiments.rows import Row

__all__ = [
    "DIFFERENCE_MAX",
    "command_for",
    "differs",
    "interval_text",
    "labels_text",
    "number_text",
    "report_page",
]

DIFFERENCE_MAX = 0.15
"""A ratio further from 1 than this asks for an explanation."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --quiet: #59636e; --paper: #ffffff; --card: #f6f8fa;
  --line: #d1d9e0; --good: #116329; --far: #9a6700; --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --quiet: #9198a1; --paper: #0d1117;
  --card: #151b23; --line: #3d444d; --good: #4ac26b; --far: #d4a72c; --accent: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2.5rem 1.25rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .2rem; padding-top: 1.2rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { margin: .5rem 0; max-width: 46rem; }
.quiet { color: var(--quiet); }
code, pre { font: .87em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
code { background: var(--card); border-radius: 4px; padding: .1em .35em; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .94rem; }
th { color: var(--quiet); font-weight: 600; text-align: left; border-bottom: 2px solid var(--line); }
th, td { padding: .45rem .7rem; vertical-align: top; }
tbody tr { border-bottom: 1px solid var(--line); }
tbody tr:hover { background: var(--card); }
.number { text-align: right; white-space: nowrap; }
.label { display: inline-block; white-space: nowrap; color: var(--quiet); font-size: .88em;
  margin-right: .6em; }
.label b { color: var(--ink); font-weight: 500; }
.near { color: var(--good); font-weight: 600; }
.far { color: var(--far); font-weight: 600; }
figure { margin: 1.4rem 0; padding: 1rem; border: 1px solid var(--line); border-radius: 10px; }
figure svg { display: block; width: 100%; height: auto; max-width: 36rem; margin: 0 auto; color: var(--ink); }
figcaption { color: var(--quiet); font-size: .92rem; margin: .6rem auto 0; max-width: 46rem; }
.why { border-left: 4px solid var(--far); background: var(--card); padding: .6rem 1rem; margin: .7rem 0;
  border-radius: 0 8px 8px 0; max-width: 46rem; }
ul { padding-left: 1.2rem; max-width: 46rem; }
@media (max-width: 40rem) {
  body { padding: 1.2rem .8rem 3rem; }
  th, td { padding: .4rem .3rem; }
  td:first-child { overflow-wrap: anywhere; }
  table { font-size: .84rem; }
  .aside { display: none; }
  figure { padding: .4rem .2rem; }
}
@media print { body { max-width: none; } figure, .why { break-inside: avoid; } }
"""


def report_page(results: Sequence[Result], drawings: Mapping[str, Sequence[Drawing]]) -> str:
    """The whole page, for the results of one command."""
    names = ", ".join(result.experiment.full_name for result in results)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Braid: {escape(names)}</title>",
        f"<style>{_STYLE}</style></head><body>",
        "<h1>Paper and measurement, side by side</h1>",
        f'<p class="quiet">{escape(_counts(results))}</p>',
    ]
    for result in results:
        parts += _section(result, drawings.get(result.experiment.full_name, ()))
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _counts(results: Sequence[Result]) -> str:
    rows = [row for result in results for row in result.rows if row.ratio is not None]
    near = sum(not differs(row) for row in rows)
    return (
        f"{len(results)} experiment{'s' if len(results) > 1 else ''}. Of {len(rows)} values that the papers "
        f"publish, {near} came out within {DIFFERENCE_MAX:.0%}."
    )


def _section(result: Result, drawings: Sequence[Drawing]) -> Iterator[str]:
    experiment = result.experiment
    paper = papers().get(experiment.paper)
    yield f'<section id="{escape(experiment.full_name)}"><h2>{escape(experiment.title)}</h2>'
    yield f'<p class="quiet"><code>{escape(experiment.full_name)}</code>'
    yield f" {escape(paper.title) if paper else ''}</p>"
    yield f"<p>{_rendered(experiment.shows)}</p>"
    yield from _table(result.rows)
    yield '<p class="quiet">The interval is the 95 % confidence interval of the mean over the seeds.</p>'
    yield from _differences(result)
    for drawing in drawings:
        chart = drawing.chart
        yield f'<figure role="img" aria-label="{escape(chart.title)}">{drawing.inline}'
        same = [
            f"The lines of {', '.join(names[:-1])} and {names[-1]} coincide." for names in coinciding(chart)
        ]
        yield f"<figcaption>{_rendered(' '.join([chart.caption, *same]))}</figcaption></figure>"
    if experiment.notes:
        yield "<h3>Good to know</h3><ul>"
        yield from (f"<li>{_rendered(note)}</li>" for note in experiment.notes)
        yield "</ul>"
    yield "<h3>Settings</h3>"
    yield from _settings(result.settings)
    yield (
        f"<p>{result.runs} runs, {result.plan.seeds} seed{'s' if result.plan.seeds > 1 else ''} per setting. "
        f"The simulations took {result.simulation_seconds:,.0f} s of computing.</p>"
    )
    yield f"<h3>How to repeat it</h3><pre>{escape(command_for(result))}</pre>"
    yield "<p>The same seeds give the same traces, byte for byte, and so the same figures.</p></section>"


def _table(rows: Sequence[Row]) -> Iterator[str]:
    """What all rows have in common is said once, above. Narrow screens leave out intervals and seeds."""
    common = common_labels([row.labels for row in rows])
    if common:
        yield f'<p class="quiet">All rows: {_labels(common)}</p>'
    yield '<div class="wide"><table><thead><tr><th>metric</th><th class="number">paper</th>'
    yield '<th class="number">measured</th><th class="number">ratio</th>'
    yield '<th class="number aside">interval</th><th class="number aside">seeds</th></tr></thead><tbody>'
    for row in rows:
        own = {name: value for name, value in row.labels.items() if name not in common}
        shade = "" if row.ratio is None else (" far" if differs(row) else " near")
        interval = interval_text(row)
        yield (
            f"<tr><td>{escape(row.metric)}<br>{_labels(own)}</td>"
            f'<td class="number">{number_text(row.paper_value)}</td>'
            f'<td class="number">{number_text(row.measured)}</td>'
            f'<td class="number{shade}">{"" if row.ratio is None else f"{row.ratio:.2f}"}</td>'
            f'<td class="number aside">{interval}</td><td class="number aside">{row.seeds}</td></tr>'
        )
    yield "</tbody></table></div>"


def _labels(labels: Mapping[str, object]) -> str:
    return "".join(
        f'<span class="label">{escape(name)} <b>{escape(plain_name(value))}</b></span>'
        for name, value in labels.items()
    )


def _rendered(text: str) -> str:
    """What is quoted in backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _settings(settings: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """What all points have in common as a list, and the others as a table."""
    flat = [dict(_flat(each)) for each in settings]
    common = common_labels(flat) if len(flat) > 1 else (flat[0] if flat else {})
    names = [name for name in dict.fromkeys(name for each in flat for name in each) if name not in common]
    if common:
        yield '<div class="wide"><table><tbody>'
        yield from (
            f"<tr><td>{escape(name)}</td><td>{escape(plain_name(value))}</td></tr>"
            for name, value in common.items()
        )
        yield "</tbody></table></div>"
    if names:
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        yield f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>'
        for each in flat:
            cells = "".join(f"<td>{escape(plain_name(each.get(name, '')))}</td>" for name in names)
            yield f"<tr>{cells}</tr>"
        yield "</tbody></table></div>"


def _flat(settings: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _differences(result: Result) -> Iterator[str]:
    common = common_labels([row.labels for row in result.rows])
    for metric in dict.fromkeys(row.metric for row in result.rows if differs(row)):
        rows = [row for row in result.rows if row.metric == metric and differs(row)]
        which = "; ".join(f"{labels_text(row, besides=common)}: {row.ratio:.2f}" for row in rows)
        why = result.experiment.differences.get(metric, "No reason is known yet.")
        yield f'<div class="why"><b>{escape(metric)}</b> differs from the paper ({escape(which)}).'
        yield f"{_rendered(why)}</div>"


def differs(row: Row) -> bool:
    """Whether a row is further from the paper than may be left without a word."""
    return row.ratio is not None and abs(row.ratio - 1) > DIFFERENCE_MAX


def command_for(result: Result) -> str:
    """The command that does the same again."""
    plan = result.plan
    words = ["braid", "reproduce", result.experiment.full_name, "--scale", plan.scale]
    return shlex.join([*words, "--seeds", str(plan.seeds), "--out", "DIR"])


def labels_text(row: Row, besides: Mapping[str, object]) -> str:
    """The labels on one line, without those that are said elsewhere."""
    return ", ".join(
        f"{name} {plain_name(value)}" for name, value in row.labels.items() if name not in besides
    )


def interval_text(row: Row) -> str:
    """The interval, or nothing after a single seed."""
    if row.interval is None:
        return ""
    return f"{number_text(row.interval[0])} \N{EN DASH} {number_text(row.interval[1])}"


def number_text(value: float | None) -> str:
    """A number with as many digits as people compare."""
    if value is None:
        return "\N{EN DASH}"
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
