"""Does the page work in a real browser: large networks, small screens, dark, by keyboard, with hostile names?

Screenshots are kept under `artifacts/dashboard` for people to look at.
"""

from __future__ import annotations

import os
import shutil
import warnings
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from braid.cli.network_demo.figures import ActFigures, Judgement
from braid.cli.network_demo.report import write_report
from braid.cli.network_demo.story import ACTS
from braid.dashboard.measured import Measured
from braid.pipeline.live.table import BROKER_COLUMNS, LINK_COLUMNS, LiveTable
from tests.dashboard.feeds import FeedWatch, tree_links
from tests.dashboard.served import ServedDashboard, served

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.net, pytest.mark.slow]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DESKTOP, PHONE = (1440, 900), (390, 844)
SCREENSHOTS = Path(__file__).parents[2] / "artifacts" / "dashboard"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        message = "no chromium: on Debian or Ubuntu, sudo apt-get install chromium"
        if os.environ.get("BRAID_BROWSER_EXPECTED"):
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with warnings.catch_warnings():
        # The driver's process is let go of by its own library.
        warnings.simplefilter("ignore", ResourceWarning)
        with sync_playwright() as playwright:
            running = playwright.chromium.launch(
                executable_path=found,
                args=[
                    "--no-sandbox",
                    "--disable-gpu",
                    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                ],
            )
            yield running
            running.close()


class Visitor:
    """A page that is open, with all that went wrong in it and all it asked for."""

    def __init__(self, browser: Any, url: str, size: tuple[int, int] = DESKTOP, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console", lambda message: self.errors.append(message.text) if message.type == "error" else None
        )
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(url)

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def picture(self, served: ServedDashboard) -> None:
        """Have the next picture shown, and wait until it is."""
        served.call(served.dashboard.show, served.dashboard.watch.look_now())
        self.page.wait_for_function(
            "number => document.body.dataset.picture === String(number)", arg=served.dashboard._number
        )


def open_page(browser: Any, watch: FeedWatch, served: ServedDashboard, **options: Any) -> Visitor:
    visitor = Visitor(browser, served.url, **options)
    visitor.page.wait_for_selector("[data-broker]")
    visitor.picture(served)
    assert visitor.page.locator("[data-broker]").count() == len(watch.weight)
    return visitor


@pytest.mark.parametrize("count", [12, 120])
def test_it_is_shown_large_and_small_light_and_dark(browser: Any, count: int) -> None:
    """Every broker is inside the map, nothing is wider than the screen, and the picture is not empty."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    watch = FeedWatch(tree_links(count), soft=count // 2)
    with served(watch) as here:
        for _ in range(90):
            here.call(here.dashboard.show, watch.look_now())
        for device, size in (("desktop", DESKTOP), ("phone", PHONE)):
            colours = set()
            for scheme in ("light", "dark"):
                with open_page(browser, watch, here, size=size, color_scheme=scheme) as visitor:
                    visitor.page.screenshot(
                        path=SCREENSHOTS / f"{count}-{device}-{scheme}.png", full_page=device == "phone"
                    )
                    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= size[0]
                    frame = visitor.page.locator("#map").bounding_box()
                    for node in visitor.page.locator("[data-broker] .body").all():
                        box = node.bounding_box()
                        assert frame["x"] <= box["x"]
                        assert box["x"] + box["width"] <= frame["x"] + frame["width"]
                        assert frame["y"] <= box["y"]
                        assert box["y"] + box["height"] <= frame["y"] + frame["height"]
                    assert visitor.page.locator(".link").count() == count - 1
                    assert visitor.page.locator(".softlink").count() == len(set(watch.soft))
                    colours.add(visitor.page.evaluate("getComputedStyle(document.body).backgroundColor"))
                    assert visitor.errors == []
            assert len(colours) == 2, "light and dark are two"


def test_a_picture_of_a_large_network_costs_as_much_as_what_it_shows(browser: Any) -> None:
    """The work is bounded, whatever the machine: elements stay, and nothing is drawn between two pictures."""
    brokers, pictures = 120, 5
    watch = FeedWatch(tree_links(brokers), soft=60)
    with served(watch) as here, open_page(browser, watch, here) as visitor:
        for _ in range(20):  # charts and lists are as long as they get
            visitor.picture(here)
        visitor.page.evaluate("""() => {
            window.work = { changes: 0, elements: 0, frames: 0 };
            new MutationObserver((records) => {
                for (const record of records) {
                    window.work.changes += 1;
                    for (const node of [...record.addedNodes, ...record.removedNodes]) {
                        window.work.elements += node.nodeType === Node.ELEMENT_NODE;
                    }
                }
            }).observe(document.body, {
                attributes: true, childList: true, characterData: true, subtree: true
            });
            const draw = window.requestAnimationFrame.bind(window);
            window.requestAnimationFrame = (step) => { window.work.frames += 1; return draw(step); };
        }""")
        for _ in range(pictures):
            visitor.picture(here)
        work = visitor.page.evaluate("window.work")
        shown = brokers + brokers - 1 + len(set(watch.soft)) + len(set(watch.candidates))
        assert work["changes"] <= pictures * 8 * shown, work
        assert work["elements"] <= pictures * 50, "elements are kept, and only texts are replaced"
        assert work["frames"] <= pictures, "nothing moves, so nothing is animated"


def test_it_asks_its_own_server_and_nobody_else(browser: Any) -> None:
    watch = FeedWatch(tree_links(5))
    with served(watch) as here, open_page(browser, watch, here) as visitor:
        for tab in ("try", "subscriptions", "plan", "brokers", "history"):
            visitor.page.click(f"#tab-{tab}")
        assert visitor.asked
        assert all(url.startswith(here.url) for url in visitor.asked)


def test_names_of_others_are_text_and_never_markup(browser: Any) -> None:
    """A broker, a client or a filter may be called whatever its owner likes."""
    run = "document.body.dataset.evil='yes'"
    evil = f'<img src=x onerror="{run}"><script>{run}</script>'
    names = [
        evil,
        "'\"><svg onload=document.body.dataset.evil=1>",
        "javascript:document.body.dataset.evil=1",
        "C",
    ]
    watch = FeedWatch(list(pairwise(names)))
    watch.subscriptions = {
        name: [
            {
                "client": evil,
                "key": evil,
                "filter": f"x = '{'</code><script>'}' OR y > 1",
                "cut": False,
                "durable": True,
            }
        ]
        for name in names
    }
    watch.operation = {"id": evil, "kind": evil, "path": names[:2], "stage": evil, "paused": True, "epoch": 1}
    with served(watch) as here, open_page(browser, watch, here) as visitor:
        visitor.page.locator("[data-broker]").first.click()
        watch.failed = {names[0]}
        visitor.picture(here)
        for tab in ("try", "subscriptions", "plan", "brokers", "history"):
            visitor.page.click(f"#tab-{tab}")
        visitor.page.click("#tab-subscriptions")
        visitor.page.wait_for_selector("#subscriptions code")
        visitor.page.click("#tab-plan")
        visitor.page.click("summary")
        visitor.page.click("#plan-current")
        visitor.picture(here)
        assert visitor.page.evaluate("document.body.dataset.evil") is None
        assert visitor.page.locator("main img").count() == 0
        assert visitor.page.locator("main script").count() == 0
        assert evil in visitor.page.locator("#history").inner_text()
        assert evil in visitor.page.locator("#detail").inner_text()
        assert visitor.errors == []


def test_failures_and_moves_are_seen_as_they_happen(browser: Any) -> None:
    watch = FeedWatch([("A", "B"), ("B", "C"), ("C", "D")])
    with served(watch) as here, open_page(browser, watch, here) as visitor:
        watch.failed = {"D"}
        visitor.picture(here)
        node = visitor.page.locator('[data-broker="D"]')
        assert "failed" in node.get_attribute("class")
        assert node.get_attribute("aria-label") == "D, does not answer"
        assert visitor.page.locator(".link.down").count() == 1
        assert visitor.page.locator("#status").get_attribute("data-state") == "bad"
        assert "1 of 4 brokers silent" in visitor.page.locator("#status-text").inner_text()
        watch.failed = set()
        visitor.picture(here)
        watch.links = [("A", "B"), ("B", "C"), ("B", "D")]
        visitor.picture(here)
        assert "D moved from C to B." in visitor.page.locator("#history").inner_text()
        assert visitor.page.locator("#announce").text_content() == "D moved from C to B."
        assert visitor.page.locator(".link.fresh").count() == 1
        assert visitor.page.locator("#status").get_attribute("data-state") == "good"


def test_a_network_that_is_gone_is_shown_as_it_was_seen_last(browser: Any) -> None:
    watch = FeedWatch([("A", "B"), ("B", "C")])
    with served(watch) as here, open_page(browser, watch, here) as visitor:
        watch.problem = "refused"
        visitor.picture(here)
        assert visitor.page.locator("[data-broker]").count() == 3
        assert "old" in visitor.page.locator("#map").get_attribute("class")
        assert visitor.page.locator("#map-empty").is_hidden()
        assert "what was seen last" in visitor.page.locator("#status-text").inner_text()
        watch.problem = ""
        visitor.picture(here)
        assert "old" not in visitor.page.locator("#map").get_attribute("class")
        assert visitor.page.locator("#status").get_attribute("data-state") == "good"
        watch.problem = "refused"
        visitor.picture(here)
        with Visitor(browser, here.url) as newcomer:
            newcomer.page.wait_for_selector("#status[data-state=bad]")
            assert newcomer.page.locator("#map-empty").inner_text() == "No broker answers."


def test_what_traces_say_of_a_broker_stands_beside_what_it_says_itself(browser: Any, tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    row = dict.fromkeys(BROKER_COLUMNS, 0) | {"broker": "B", "sent": 8, "deliveries": 2, "yield": 0.25}
    row |= {"mean_hops": 1.5, "mean_delay_us": 2_500.0, "dropped": 3, "processing_cost": 77.0}
    link = dict.fromkeys(LINK_COLUMNS, 0) | {"source": "B", "target": "C", "link": "soft", "publications": 9}
    watch = FeedWatch([("A", "B"), ("B", "C")])
    with (
        served(watch, measured=Measured(tmp_path)) as here,
        open_page(browser, watch, here) as visitor,
    ):
        visitor.page.locator('[data-broker="B"]').click()
        assert "Yield" not in visitor.page.locator("#detail").inner_text()
        table.publish(10_000_000, [row], [link], 20_000_000)
        visitor.picture(here)
        shown = visitor.page.locator("#detail").inner_text()
        for part in ("8 arrived, 2 wanted, 3 dropped", "25", "1.5", "2.5 ms", "77", "C (soft)", "9 publ"):
            assert part in shown, part
        assert visitor.errors == []


def test_it_is_used_by_keyboard_alone(browser: Any) -> None:
    watch = FeedWatch(tree_links(12))
    with served(watch) as here, open_page(browser, watch, here, reduced_motion="reduce") as visitor:
        page = visitor.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        # One stop for the whole map; arrows go from broker to broker.
        assert page.locator('[data-broker][tabindex="0"]').count() == 1
        page.locator('[data-broker][tabindex="0"]').focus()
        reached = set()
        for key in (each for each in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp") for _ in range(3)):
            page.keyboard.press(key)
            reached.add(page.evaluate("document.activeElement.dataset.broker"))
        assert len(reached) > 3
        page.keyboard.press("Enter")
        assert page.locator("#detail h3").is_visible()
        focused = page.evaluate("document.activeElement.dataset.broker")
        visitor.picture(here)
        assert page.evaluate("document.activeElement.dataset.broker") == focused, "a picture keeps the focus"
        page.locator("#tab-history").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#tab-try").get_attribute("aria-selected") == "true"
        assert page.locator("#panel-try").is_visible()
        assert page.locator("#panel-history").is_hidden()


def test_what_a_screen_reader_needs_has_a_name(browser: Any) -> None:
    """Every control has a name, every field a label, and no id is there twice."""
    watch = FeedWatch(tree_links(12), soft=4)
    with served(watch) as here, open_page(browser, watch, here) as visitor:
        unnamed = visitor.page.evaluate(
            """() => [...document.querySelectorAll(
                    'button, [role=button], [role=tab], input, select, textarea, svg[role]')]
                .filter(each => !(each.textContent.trim() || each.getAttribute('aria-label')
                    || (each.labels && each.labels.length))).map(each => each.outerHTML.slice(0, 80))"""
        )
        assert unnamed == []
        twice = visitor.page.evaluate(
            """() => { const ids = [...document.querySelectorAll('[id]')].map(each => each.id);
                return ids.filter((id, place) => ids.indexOf(id) !== place); }"""
        )
        assert twice == []
        assert visitor.page.locator("h1").count() == 1
        assert visitor.page.locator("html").get_attribute("lang") == "en"


def test_a_long_watch_does_not_grow_the_page(browser: Any) -> None:
    """After hundreds of pictures of 120 brokers, with failures and moves, the page has no more elements."""
    watch = FeedWatch(tree_links(120), soft=60)
    with served(watch) as here, open_page(browser, watch, here, reduced_motion="reduce") as visitor:
        count = "document.querySelectorAll('#map *, #tiles *').length"
        before = visitor.page.evaluate(count)
        for number in range(150):
            watch.failed = {"B050"} if number % 2 else set()
            here.call(here.dashboard.show, watch.look_now())
        watch.failed = set()
        visitor.picture(here)
        assert visitor.page.evaluate(count) == before
        assert visitor.page.locator("#history li").count() <= 300
        assert visitor.errors == []


def test_the_report_of_the_demo_is_read_on_a_phone(browser: Any, tmp_path: Path) -> None:
    """No figure is cut off, and each says what it is."""
    act = ActFigures(
        act="tree", published=1108, wanted=3695, delivered=3695, lost=0, doubled=0, uninvited=0,
        mean_hops=4.3, messages_per_delivery=2.56, cost=16.45, pause_ms=489.0,
    )  # fmt: skip
    facts = {"files": "/home/somebody/" + "a-long-folder-name-" * 8}
    write_report(tmp_path / "report.html", Judgement((act,), 1, 10.0), ACTS, facts, [("A network", 2.0)], [])
    with Visitor(browser, (tmp_path / "report.html").as_uri(), size=PHONE) as visitor:
        page = visitor.page
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        rights = page.evaluate(
            "[...document.querySelectorAll('td')].map(each => each.getBoundingClientRect().right)"
        )
        assert max(rights) <= PHONE[0]
        shown = page.locator(".figures").inner_text()
        for text in ("4.30", "2.56", "16.45", "489", "1,108", "3,695"):
            assert text in shown
        names = page.evaluate(
            "[...document.querySelectorAll('td[data-name]')].map(each => each.dataset.name)"
        )
        assert {"hops", "lost", "doubled", "longest wait, ms"} <= set(names)
        assert visitor.errors == []


def test_a_token_is_asked_for_and_stays_in_the_tab(browser: Any) -> None:
    watch = FeedWatch(tree_links(4))
    with served(watch, admits=lambda token: token == "right") as here, Visitor(browser, here.url) as visitor:
        page = visitor.page
        page.wait_for_selector("#token-dialog[open]")
        page.fill("#token", "right")
        page.click("#token-form button.primary")
        page.wait_for_selector("[data-broker]")
        assert page.evaluate("sessionStorage.getItem('braid-token')") == "right"
        assert page.evaluate("localStorage.getItem('braid-token')") is None
        assert "right" not in page.url
