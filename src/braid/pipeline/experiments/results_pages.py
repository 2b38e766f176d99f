"""Stored rows of experiments as pages, one for each paper: paper, measured and ratio side by side.

    python -m braid.pipeline.experiments.results_pages --run quick      every experiment, then the pages
    python -m braid.pipeline.experiments.results_pages                  the pages, from rows that are there

Rows lie in files named `<paper>_<experiment>[_quick].json`, as `braid reproduce --json` prints them. What is
the same in all rows of a table stands above it once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.pipeline.experiments.registry import SCALES, papers, registered
from braid.pipeline.experiments.rows import common_labels, plain_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from braid.pipeline.experiments.registry import Experiment, Scale

__all__ = ["main", "page_of", "rows_file", "table_of", "write_pages"]

# A table with more rows shows those that the paper has a value for, and what an experiment is about, and says
# where the others are.
ROWS_MAX = 40
# Nothing to say.
_DASH = "-"


def rows_file(folder: Path, experiment: Experiment, scale: Scale) -> Path:
    """Where the rows of an experiment lie."""
    name = f"{experiment.paper.replace('-', '')}_{experiment.name.replace('-', '_')}"
    return folder / f"{name}{'_quick' if scale == 'quick' else ''}.json"


def write_pages(folder: Path, out: Path) -> list[Path]:
    """Make a page for each paper from the rows in a folder, and a page that lists them."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for paper in papers().values():
        experiments = [each for each in registered().values() if each.paper == paper.name]
        path = out / f"{paper.name}.md"
        path.write_text(page_of(paper.name, paper.title, experiments, folder), encoding="utf-8")
        written.append(path)
    return written


def page_of(name: str, title: str, experiments: Iterable[Experiment], folder: Path) -> str:
    """The page of a paper."""
    parts = [
        f"# Results: {name}",
        f"*{title}.* What the paper says beside what was measured here; `-` stands where it gives only a "
        "curve, or no figure. `interval` is the 95 % confidence interval of the mean over the seeds.",
        f"What an experiment does, and why figures differ, is in [experiments](../experiments.md). "
        f"`braid reproduce {name}` measures again.",
    ]
    missing = []
    for experiment in experiments:
        tables = []
        for scale in reversed(SCALES):
            path = rows_file(folder, experiment, scale)
            if path.is_file():
                tables.append(_section(experiment, scale, path))
        if tables:
            parts += [f"## {experiment.title}", *tables]
            if experiment.notes:
                parts.append("\n".join(f"- {note}" for note in experiment.notes))
        else:
            missing.append(f"`{experiment.full_name}`")
    if missing:
        parts += ["## Without stored results", f"{', '.join(missing)}: not measured to its end yet."]
    return "\n\n".join(parts) + "\n"


def _section(experiment: Experiment, scale: Scale, path: Path) -> str:
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    size = "at the paper's size" if scale == "paper" else "at the quick scale"
    seeds = sorted({row["seeds"] for row in rows})
    runs = (
        f"{seeds[0]} seed{'s' if seeds != [1] else ''}"
        if len(seeds) == 1
        else f"{seeds[0]} to {seeds[-1]} seeds"
    )
    text = f"`{experiment.full_name}`, {size}, {runs} (`benchmarks/{path.name}`)."
    notes = sorted({str(row["note"]) for row in rows if row.get("note")})
    if notes:
        text += " Note: " + "; ".join(notes) + "."
    return f"{text}\n\n{table_of(rows, experiment.shown)}"


def table_of(rows: Sequence[dict[str, Any]], always: Collection[str] = ()) -> str:
    """Rows as a table, or some of them if there are too many; labels that are alike in all come before it.

    Args:
        rows: of one experiment.
        always: metrics that are among those that are shown.
    """
    shown = rows
    left_out = ""
    if len(rows) > ROWS_MAX:
        chosen = [row for row in rows if row["paper_value"] is not None or row["metric"] in always]
        shown = chosen or rows[:ROWS_MAX]
        left_out = f"\n\n{len(rows) - len(shown)} more rows are in the file."
    names = list(dict.fromkeys(name for row in shown for name in row["labels"]))
    alike = common_labels([row["labels"] for row in shown])
    differing = [name for name in names if name not in alike]
    with_paper = any(row["paper_value"] is not None for row in shown)
    with_interval = any(row.get("interval") for row in shown)
    head = [
        "metric",
        *differing,
        *(["paper"] if with_paper else []),
        "measured",
        *(["ratio"] if with_paper else []),
        *(["interval"] if with_interval else []),
    ]
    lines = [_line(head), _line(["---"] * (1 + len(differing)) + ["---:"] * (len(head) - 1 - len(differing)))]
    for row in shown:
        interval = row.get("interval")
        cells = [
            f"`{row['metric']}`",
            *(plain_name(row["labels"][name]) if name in row["labels"] else _DASH for name in differing),
        ]
        if with_paper:
            cells.append(_number(row["paper_value"]))
        cells.append(_number(row["measured"]))
        if with_paper:
            cells.append(_number(row["ratio"]))
        if with_interval:
            cells.append(f"{_number(interval[0])} to {_number(interval[1])}" if interval else _DASH)
        lines.append(_line(cells))
    before = ", ".join(f"{name} = {plain_name(value)}" for name, value in alike.items())
    return (f"All rows: {before}.\n\n" if before else "") + "\n".join(lines) + left_out


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None) -> str:
    """Four digits are more than any of these figures is sure of."""
    if value is None:
        return _DASH
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _run(scale: Scale, folder: Path, out: Path, name: str) -> bool:
    """Run experiments one after the other, each on its own; whether all came to their end.

    Those of one paper share a folder: many of them look at the same runs, which are simulated once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [
        each for each in registered().values() if not name or each.full_name == name or each.paper == name
    ]
    failed = []
    for number, experiment in enumerate(chosen, 1):
        print(f"{number} of {len(chosen)}: {experiment.full_name}", file=sys.stderr)
        command = [
            "reproduce",
            experiment.full_name,
            "--scale",
            scale,
            "--out",
            str(out / experiment.paper),
            "--json",
        ]
        done = subprocess.run((sys.executable, "-m", "braid", *command), stdout=subprocess.PIPE)
        if done.returncode:
            failed.append(experiment.full_name)
        else:
            rows_file(folder, experiment, scale).write_bytes(done.stdout)
    if failed:
        print(f"not measured: {', '.join(failed)}; what they said stands above", file=sys.stderr)
    return not failed


def main(words: Sequence[str] | None = None) -> int:
    """Run experiments if asked to, and make the pages."""
    parser = argparse.ArgumentParser(description="Results of experiments as pages.")
    parser.add_argument("--rows", type=Path, default=Path("benchmarks"), help="where rows are")
    parser.add_argument("--pages", type=Path, default=Path("docs/results"), help="where pages go")
    parser.add_argument("--run", choices=SCALES, help="run the experiments at this scale before")
    parser.add_argument("--out", type=Path, default=Path("reproduction"), help="traces, figures, reports")
    parser.add_argument("--experiment", default="", help="only this experiment, or those of this paper")
    asked = parser.parse_args(words)
    done = _run(asked.run, asked.rows, asked.out, asked.experiment) if asked.run else True
    for path in write_pages(asked.rows, asked.pages):
        print(path)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
