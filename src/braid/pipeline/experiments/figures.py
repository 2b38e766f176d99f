"""What do results look like?

A chart is a value: lines (or steps, for a cumulative distribution) and bars, with 95 % intervals. `draw`
makes an SVG and a PNG of it, the same bytes every time. Colours are those of Okabe and Ito, which people who
are colour-blind can tell apart, and every series also has a marker and a dash of its own.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braid.pipeline.experiments.rows import plain_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BarChart", "Bars", "Chart", "Drawing", "LineChart", "Series", "coinciding", "draw"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
# Ink has a colour of its own, so that a page can replace it by whatever its text has.
INK = "#1f2328"
GRID = "#8c959f"
PUBLISHED = "as published"
# Lines are seen as two from this share of a figure's height on.
SEEN_MIN = 0.005

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 11,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "font.family": "sans-serif",
    "font.size": 10,
    "grid.alpha": 0.3,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True, slots=True)
class Series:
    """Points to be joined by a line; with `low` and `high`, a band around it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class LineChart:
    """Series over a common axis. `steps` draws a distribution, which jumps and does not slope."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    caption: str = ""
    steps: bool = False
    markers: bool = True
    """Whether points are marked; many of them would hide their line."""
    logarithmic: bool = False
    """Whether the vertical axis is."""
    y_limits: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar per group, in one colour; `intervals` are low and high ends, None where there is none."""

    name: str
    values: Sequence[float]
    intervals: Sequence[tuple[float, float] | None] | None = None
    published: Sequence[float | None] | None = None
    """The paper's values, drawn as a mark across the bar."""


@dataclass(frozen=True, slots=True)
class BarChart:
    """Groups of bars side by side."""

    name: str
    title: str
    y_label: str
    groups: Sequence[str]
    bars: Sequence[Bars]
    caption: str = ""
    x_label: str = ""
    """What the groups are, where their names do not say it."""


Chart = LineChart | BarChart


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart in both formats. `inline` is the SVG for a page: its ink is the page's, its background none."""

    chart: Chart
    svg: str
    inline: str
    png: bytes


def draw(chart: Chart) -> Drawing:
    """Draw a chart.

    It needs no display, and changes no setting of a matplotlib that the caller may be using.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": chart.name}):
        figure = Figure(figsize=(5.4, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        if isinstance(chart, LineChart):
            _draw_lines(axes, chart)
        else:
            _draw_bars(axes, chart)
        axes.set_title(chart.title)
        svg = _svg(figure, transparent=False)
        bare = _svg(figure, transparent=True)
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    return Drawing(chart, svg, _inline(bare), png.getvalue())


def coinciding(chart: Chart) -> list[tuple[str, ...]]:
    """Lines that lie on each other, so that only one of them is seen: their names, line by line."""
    if not isinstance(chart, LineChart):
        return []
    heights = [value for series in chart.series for value in series.y]
    near = SEEN_MIN * (max(heights, default=0.0) - min(heights, default=0.0))
    found: list[list[Series]] = []
    for series in chart.series:
        for group in found:
            first = group[0]
            if list(first.x) == list(series.x) and all(
                abs(one - other) <= near for one, other in zip(first.y, series.y, strict=True)
            ):
                group.append(series)
                break
        else:
            found.append([series])
    return [tuple(plain_name(series.name) for series in group) for group in found if len(group) > 1]


def _draw_lines(axes: Axes, chart: LineChart) -> None:
    from matplotlib.ticker import MaxNLocator

    for series, colour, marker, dash in _styles(chart.series):
        how: dict[str, Any] = {"color": colour, "linestyle": dash, "label": plain_name(series.name)}
        if chart.steps:
            axes.step(series.x, series.y, where="post", **how)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        else:
            axes.plot(series.x, series.y, marker=marker if chart.markers else None, **how)
        if series.low is not None and series.high is not None:
            band: dict[str, Any] = {"color": colour, "alpha": 0.18, "linewidth": 0}
            axes.fill_between(series.x, series.low, series.high, step="post" if chart.steps else None, **band)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.margins(x=0.02)
    if chart.logarithmic:
        axes.set_yscale("log")
    if chart.y_limits is not None:
        axes.set_ylim(*chart.y_limits)
    if any(series.name for series in chart.series):
        axes.legend(ncols=2 if len(chart.series) > 4 else 1)


def _draw_bars(axes: Axes, chart: BarChart) -> None:
    width = 0.8 / len(chart.bars)
    published_said = False
    for position, (bars, colour, _, _) in enumerate(_styles(chart.bars)):
        centres = [group - 0.4 + (position + 0.5) * width for group in range(len(chart.groups))]
        axes.bar(centres, bars.values, 0.92 * width, color=colour, label=plain_name(bars.name))
        for centre, value, ends in zip(centres, bars.values, bars.intervals or [], strict=False):
            if ends is not None:
                reach = [[max(0.0, value - ends[0])], [max(0.0, ends[1] - value)]]
                axes.errorbar([centre], [value], yerr=reach, fmt="none", ecolor=INK, capsize=4, linewidth=1.3)
        for centre, value in zip(centres, bars.published or [], strict=False):
            if value is not None:
                label = None if published_said else PUBLISHED
                published_said = True
                axes.plot(
                    [centre - 0.46 * width, centre + 0.46 * width],
                    [value, value],
                    color=INK,
                    linestyle=(0, (3, 2)),
                    linewidth=1.8,
                    label=label,
                )
    axes.set_xticks(range(len(chart.groups)), [plain_name(group) for group in chart.groups])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    tallest = max(top for bars in chart.bars for top in _tops(bars))
    axes.set_ylim(0, 1.25 * tallest or 1)  # room for the legend
    axes.yaxis.set_major_formatter(_thousands)
    if len(chart.bars) > 1 or published_said:
        axes.legend(loc="upper left", ncols=len(chart.bars) + 1)


def _tops(bars: Bars) -> Iterator[float]:
    """Everything that sticks out upwards."""
    yield from bars.values
    yield from (ends[1] for ends in bars.intervals or () if ends is not None)
    yield from (value for value in bars.published or () if value is not None)


def _styles(items: Sequence[Any]) -> Iterator[tuple[Any, str, str, Any]]:
    for number, item in enumerate(items):
        turn = number % len(COLOURS)
        yield item, COLOURS[turn], MARKERS[turn], DASHES[turn]


def _thousands(value: float, _: object = None) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:g}"


def _svg(figure: Figure, *, transparent: bool) -> str:
    sink = io.StringIO()
    facecolor = "none" if transparent else "white"
    figure.savefig(sink, format="svg", transparent=transparent, facecolor=facecolor, metadata={"Date": None})
    return sink.getvalue()


def _inline(svg: str) -> str:
    """The drawing without what only a file of its own needs, such as addresses of name spaces."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", body)
    body = body.replace("xlink:href", "href").replace(INK, "currentColor")
    # The page decides how wide it is; the drawing keeps its proportions.
    head, bracket, rest = body.partition(">")
    return re.sub(r'\s(width|height)="[^"]*"', "", head) + bracket + rest
