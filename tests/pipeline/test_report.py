"""Does the report say everything, look like something, and ask the network for nothing?"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from braid.pipeline.experiments.figures import COLOURS, INK, LineChart, Series, coinciding, draw
from braid.pipeline.experiments.report import command_for, differs, number_text, report_page
from braid.pipeline.experiments.reproduce import store
from tests.pipeline.report_samples import BARS, CDF, LINES, RESULT

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, HEIGHT = 1100, 2400
# Debian calls it chromium; others have their own names for it.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.mark.parametrize("chart", [LINES, CDF, BARS], ids=lambda chart: chart.name)
def test_a_chart_is_drawn_the_same_way_every_time(chart) -> None:
    first, second = draw(chart), draw(chart)
    assert (first.svg, first.inline, first.png) == (second.svg, second.inline, second.png)
    picture = Image.open(io.BytesIO(first.png)).convert("RGB")
    assert picture.size == (864, 576)
    colours = {colour for _, colour in picture.getcolors(maxcolors=1 << 20) or []}
    assert (255, 255, 255) in colours
    for name in COLOURS[:2]:
        assert tuple(bytes.fromhex(name[1:])) in colours
    assert chart.title in first.svg
    assert "currentColor" in first.inline
    assert INK not in first.inline
    assert "http" not in first.inline
    assert "<metadata" not in first.inline


def test_drawing_leaves_the_settings_of_others_alone() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw(BARS)
    assert dict(matplotlib.rcParams) == before


class _Page(HTMLParser):
    """Collects what a browser would fetch or link to, and the texts of table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.cells: list[list[str]] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        fetching = ("src", "href", "xlink:href", "data", "action", "poster", "srcset")
        self.references += [value or "" for name, value in attributes if name in fetching]
        if tag == "tr":
            self.cells.append([])
        if tag == "td":
            self.cells[-1].append("")

    def handle_data(self, text: str) -> None:
        if self.cells and self.cells[-1]:
            self.cells[-1][-1] += text.strip()


def page_text() -> str:
    return report_page([RESULT], {RESULT.experiment.full_name: [draw(chart) for chart in RESULT.charts]})


def test_the_page_holds_every_row_and_escapes_what_it_shows() -> None:
    text = page_text()
    page = _Page(text)
    rows = [cells for cells in page.cells if cells]
    rows = [cells for cells in rows if len(cells) == 6]
    assert [cells[0].partition("dataset")[0] for cells in rows] == [row.metric for row in RESULT.rows]
    assert rows[0][1:4] == ["559,000", "551,234", "0.99"]
    assert rows[0][4].startswith("540,234")
    assert rows[3][1] == "\N{EN DASH}"
    assert "<angle" not in text
    assert "DT<1>" not in text
    assert "&lt;angle brackets&gt;" in text
    assert "A distribution &amp; its &lt;band&gt;." in text
    assert text.count("<svg") == text.count("</svg>") == 3
    assert "braid reproduce multipath.madeup --scale quick --seeds 3 --out DIR" in text


def test_what_all_rows_share_is_said_once_and_names_are_those_that_people_use() -> None:
    text = page_text()
    assert text.count("window <b>converged</b>") == 1
    assert text.count("strategy <b>S0</b>") == 1
    assert "dataset <b>sparse (DT1)</b>" in text
    assert "dataset sparse (DT1): 0.66" in text
    assert ">sparse (DT1)</text>" in text, "and in figures"
    assert "`" not in text
    assert "<code>hops</code>" in text
    assert "<td>strategy</td><td>S0</td>" in text
    assert "<tr><td>sparse (DT1)</td></tr>" in text
    assert "sparse (DT1) and again coincide." in text


def test_only_lines_that_nobody_can_tell_apart_coincide() -> None:
    def chart(*ys: list[float]) -> LineChart:
        series = [Series(f"line {number}", [0, 1, 2], y) for number, y in enumerate(ys)]
        return LineChart("c", "c", "x", "y", series)

    assert coinciding(chart([0, 50, 100], [0, 50.2, 100], [100, 50, 0])) == [("line 0", "line 1")]
    assert coinciding(chart([0, 50, 100], [0, 51, 100])) == []
    assert coinciding(chart([3, 3, 3], [3, 3, 3])) == [("line 0", "line 1")]
    assert coinciding(BARS) == []


def test_whatever_is_far_from_the_paper_is_explained() -> None:
    text = re.sub(r"\s+", " ", page_text())
    assert "<b>mean_latency_s</b> differs from the paper" in text
    assert "Links are 1 ms long here." in text
    assert "<b>yield</b> differs from the paper" in text
    assert "No reason is known yet." in text
    assert "<b>pure_forwarders</b> differs" not in text
    assert [differs(row) for row in RESULT.rows] == [False, False, True, False, True]
    assert "Of 4 values that the papers publish, 2 came out within 15%" in text


def test_the_page_refers_to_nothing_outside_itself() -> None:
    text = page_text()
    page = _Page(text)
    assert [each for each in page.references if not each.startswith("#")] == []
    assert {"script", "link", "iframe", "object", "base"} & set(page.tags) == set()
    assert "default-src 'none'" in text
    assert re.findall(r"https?:", text) == []
    assert re.findall(r"url\((?!#)", text) == []


def test_rows_figures_and_the_report_are_stored(tmp_path: Path) -> None:
    path = store([RESULT], tmp_path)
    assert path.read_text() == page_text()
    folder = tmp_path / "results" / "multipath.madeup-quick"
    names = sorted(each.name for each in folder.iterdir())
    charts = ["hops", "pure_forwarders", "traffic"]
    images = [f"{name}.{ending}" for name in charts for ending in ("png", "svg")]
    assert names == sorted([*images, "report.html", "rows.json"])
    assert (folder / "hops.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "\N{EN DASH}"), (559_000.4, "559,000"), (0.38123, "0.3812"), (7.0, "7"), (999.96, "1000")],
)
def test_numbers_as_people_compare_them(value: float | None, text: str) -> None:
    assert number_text(value) == text


def browser() -> str:
    """A browser, or a skip; a failure where `.ci/run` has found or installed one."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        message = "no chromium: on Debian or Ubuntu, sudo apt-get install chromium"
        if os.environ.get("BRAID_BROWSER_EXPECTED"):
            pytest.fail(message)
        pytest.skip(message)
    return found


def open_page(path: Path, folder: Path, *options: str) -> str:
    """Open a page in a browser without window or network, with its own profile; returns what it prints."""
    command = [
        browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--force-color-profile=srgb",
        f"--window-size={WIDTH},{HEIGHT}",
        f"--user-data-dir={folder / 'profile'}",
        *options,
        path.resolve().as_uri(),
    ]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 0, answer.stderr[-2000:]
    return answer.stdout


@pytest.mark.slow
def test_a_browser_shows_the_page(tmp_path: Path) -> None:
    """Rows and figures are in what it has understood, and it has painted text, lines and all our colours."""
    path = store([RESULT], tmp_path)
    document = open_page(path, tmp_path, "--dump-dom")
    assert all(row.metric in document for row in RESULT.rows)
    assert document.count("<svg") == 3
    assert "Traffic over time" in document
    picture_path = tmp_path / "page.png"
    open_page(path, tmp_path, f"--screenshot={picture_path}")
    picture = Image.open(picture_path).convert("RGB")
    assert picture.size == (WIDTH, HEIGHT)
    colours = {colour: count for count, colour in picture.getcolors(maxcolors=1 << 22) or []}
    background = max(colours, key=lambda colour: colours[colour])
    assert background == (255, 255, 255)
    painted = 1 - colours[background] / (WIDTH * HEIGHT)
    assert 0.02 < painted < 0.9, "neither blank nor a block"
    for name in COLOURS[:2]:
        assert colours.get(tuple(bytes.fromhex(name[1:])), 0) > 200, f"the charts' {name} is on the page"
    # Every stretch of the page down to its last paragraph has something on it.
    for top in range(0, 1800, 200):
        part = picture.crop((0, top, WIDTH, top + 200))
        assert len(part.getcolors(maxcolors=1 << 22) or []) > 5, f"nothing between {top} and {top + 200}"


@pytest.mark.slow
def test_on_a_phone_the_comparison_is_seen_and_figures_are_read(tmp_path: Path) -> None:
    """Paper, measured and ratio are inside 390 px, nothing is wider, and no text of a figure is tiny."""
    from playwright.sync_api import sync_playwright

    path = store([RESULT], tmp_path)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=browser(), args=["--no-sandbox", "--disable-gpu"]
        )
        page = running.new_page(viewport={"width": 390, "height": 844})
        page.goto(path.resolve().as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        rights = page.evaluate(
            "[...document.querySelectorAll('.number:not(.aside)')]"
            ".map(each => each.getBoundingClientRect().right)"
        )
        assert len(rights) > 3 * len(RESULT.rows)
        assert max(rights) <= 390
        heights = page.evaluate(
            "[...document.querySelectorAll('figure svg text')]"
            ".map(each => each.getBoundingClientRect().height)"
        )
        assert heights
        assert min(heights) >= 8
        running.close()


@pytest.mark.slow
def test_a_browser_asks_for_nothing_but_the_page(tmp_path: Path) -> None:
    """The browser's own log of requests has none that came from the page; a page that does ask is noticed."""
    assert requests_of(store([RESULT], tmp_path), tmp_path) == []
    curious = tmp_path / "curious.html"
    curious.write_text('<!doctype html><title>curious</title><img src="http://127.0.0.1:9/picture.png">')
    assert requests_of(curious, tmp_path) == ["http://127.0.0.1:9/picture.png"]


def requests_of(path: Path, folder: Path) -> list[str]:
    """The addresses that a page asked for. What the browser wants for itself has no origin."""
    log = folder / "requests.json"
    open_page(path, folder, f"--log-net-log={log}", "--dump-dom")
    asked = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    return sorted(
        {each["url"] for each in asked if each.get("initiator", "not an origin") != "not an origin"}
    )


def test_the_command_that_repeats_a_result() -> None:
    assert command_for(RESULT).startswith("braid reproduce multipath.madeup ")
