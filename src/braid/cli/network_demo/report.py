"""The page that a run of the demo leaves: one file, nothing loaded from anywhere."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from braid.cli.network_demo.figures import Judgement

__all__ = ["write_report"]

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #18202f; --page: #fff; --line: #dfe4ee; --weak: #586276;
  --bar: #3b5bdb; --good: #1f8a4c; --bad: #c92a2a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ecf5; --page: #10151f; --line: #2a3247;
  --weak: #9ba6bc; --bar: #7f9bff; --good: #58c98a; --bad: #ff7b7b; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: .35rem .7rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
th { color: var(--weak); font-weight: 600; }
tr.together { font-weight: 700; }
.verdict { font-size: 1.3rem; font-weight: 700; }
.good { color: var(--good); } .bad { color: var(--bad); }
.note { color: var(--weak); }
td.text { text-align: left; overflow-wrap: anywhere; }
.bars { display: grid; grid-template-columns: max-content 1fr; gap: .35rem .8rem; align-items: center; }
.bars > div { display: flex; align-items: center; gap: .5rem; }
.bars i { height: 1.2rem; border-radius: 4px; background: var(--bar); min-width: 2px; }
@media (max-width: 40rem) {
  .figures thead { display: none; }
  .figures tr { display: block; padding: .6rem 0; border-bottom: 1px solid var(--line); }
  .figures td { display: flex; justify-content: space-between; padding: .1rem 0; border: 0; }
  .figures td:first-child { font-weight: 700; }
  .figures td[data-name]::before { content: attr(data-name); color: var(--weak); font-weight: 400; }
  .figures td:empty { display: none; }
  .bars { font-size: .9rem; gap: .35rem .5rem; }
}
"""
_NOTE: Final = (
    "Hops, messages and cost come from the traces of the brokers, deliveries and waits from what the clients "
    "wrote down; which quotes a reader should have got was found by Spark SQL from the text of the filters. "
    "While a broker is killed, a part of its trace is lost with it, so that there are no hops, messages and "
    "cost for that act. Cost counts 1 for each link that is crossed and each broker that is visited."
)
_CHARTS: Final = (
    ("mean_hops", "Links that a delivery crossed"),
    ("messages_per_delivery", "Messages per delivery"),
    ("cost", "Links and brokers per publication"),
)


def write_report(
    path: Path,
    judgement: Judgement,
    titles: Mapping[str, str],
    facts: Mapping[str, str],
    times_s: Sequence[tuple[str, float]],
    problems: Sequence[str],
) -> None:
    """Write it."""
    total = judgement.to_json()
    right = not problems and not judgement.wrong
    verdict = f"lost {total['lost']:,}, doubled {total['doubled']:,}" + (
        "" if right else ": not as it should be"
    )
    body = [
        "<h1>Braid: a network in two minutes</h1>",
        f'<p class="verdict {"good" if right else "bad"}">published {total["published"]:,}, '
        f"delivered {total['delivered']:,}, {verdict}</p>",
        *(f'<p class="bad">{escape(problem)}</p>' for problem in problems),
        _table(judgement, titles),
        *(_chart(judgement, titles, name, title) for name, title in _CHARTS),
        "<h2>What was run</h2>",
        '<div class="scroll"><table>',
        *(_fact(name, value) for name, value in facts.items()),
        *(_fact(f"act: {title}", f"{taken_s:.1f} s") for title, taken_s in times_s),
        "</table></div>",
        f'<p class="note">{_NOTE}</p>',
    ]
    path.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width, initial-scale=1"><title>Braid demo</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n",
        encoding="utf-8",
    )


def _fact(name: str, value: str) -> str:
    return f'<tr><td>{escape(name)}</td><td class="text">{escape(value)}</td></tr>'


def _table(judgement: Judgement, titles: Mapping[str, str]) -> str:
    heads = (
        "",
        "hops",
        "messages per delivery",
        "cost",
        "longest wait, ms",
        "published",
        "delivered",
        "lost",
        "doubled",
    )
    rows = []
    for act in judgement.acts:
        cells = [
            *(_number(value) for value in (act.mean_hops, act.messages_per_delivery, act.cost)),
            _number(act.pause_ms, 0),
            *(f"{value:,}" for value in (act.published, act.delivered, act.lost, act.doubled)),
        ]
        rows.append(f"<tr><td>{escape(titles.get(act.act, act.act))}</td>{_cells(heads[1:], cells)}</tr>")
    total: dict[str, Any] = judgement.to_json()
    sums = _cells(heads[5:], [f"{total[name]:,}" for name in heads[5:]])
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    return (
        f'<div class="scroll"><table class="figures"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}'
        f'<tr class="together"><td>together</td>{"<td></td>" * 4}{sums}</tr></tbody></table></div>'
    )


def _chart(judgement: Judgement, titles: Mapping[str, str], name: str, title: str) -> str:
    known = [(titles.get(each.act, each.act), getattr(each, name)) for each in judgement.acts]
    shown = [(act, value) for act, value in known if value is not None]
    if not shown:
        return ""
    top = max(value for _, value in shown) or 1.0
    bars = "".join(
        f'<span>{escape(act)}</span><div><i style="width:{80 * value / top:.1f}%"></i>{value:.2f}</div>'
        for act, value in shown
    )
    return f'<h2>{escape(title)}</h2><div class="bars">{bars}</div>'


def _cells(names: Sequence[str], values: Sequence[str]) -> str:
    """On a narrow screen there is no row of headings, so each cell has its own."""
    return "".join(f'<td data-name="{name}">{value}</td>' for name, value in zip(names, values, strict=True))


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
