"""The page in Chromium: what it shows, what it never does, and that everybody can use it.

Needs playwright, a Chromium of the system (`CHROMIUM` names another one) and, for what axe finds, npm's `axe-core`: in
`node_modules` here, or where `AXE_CORE` says.
"""

from __future__ import annotations

import os
import shutil
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pytest

from tests.page.demo import demo
from tests.page.model import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

    Show: TypeAlias = Callable[..., Page]

CHROMIUM: Final = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
AXE: Final = Path(os.environ.get("AXE_CORE") or Path(__file__).parents[2] / "node_modules/axe-core") / "axe.min.js"

pytestmark = pytest.mark.browser

needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="needs npm's axe-core, in node_modules or where AXE_CORE says")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def show(browser: Browser) -> Iterator[Show]:
    """Open a page. It must not report an error, or anything that its policy forbids; connections may be lost."""
    problems: list[str] = []
    contexts = []

    def opened(url: str, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: problems.append(said.text) if said.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(url)
        if options.get("java_script_enabled", True):
            page.wait_for_selector("#connection.live")
            page.wait_for_selector(".rows tbody tr[aria-rowindex]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [each for each in problems if "net::ERR_" not in each] == []


def text_of(page: Page, selector: str) -> str:
    """Return the text of the first such element."""
    return page.locator(selector).first.inner_text()


def test_it_says_first_what_is_wrong(show: Show) -> None:
    with demo(20, scene="stuck") as (site, model):
        model.scene = "blocked"
        model.step(model.now)
        page = show(site.url)
        page.wait_for_selector(".banner >> text=exceeded quota")
        assert page.locator(".banner strong").all_inner_texts()[0] == "No executor of profile default can be created"
        assert "exceeded quota" in text_of(page, ".banner")
        assert "ImagePullBackOff" in page.locator(".banner.bad").nth(1).inner_text()
        assert page.title().startswith("▲ etl ")
        page.click("text=Show them")
        assert {text.split()[-1] for text in page.locator(".rows td.c-state").all_inner_texts()} == {"stuck"}
        page.click(".rows button.open >> nth=0")
        assert "ImagePullBackOff" in text_of(page, "#details")


@pytest.mark.parametrize(
    ("scene", "said"),
    [("outage", "The Kubernetes API does not answer"), ("standby", "Standby: this driver watches")],
)
def test_a_standby_driver_and_an_outage_are_named(show: Show, scene: str, said: str) -> None:
    with demo(5, scene=scene) as (site, _):
        page = show(site.url)
        assert page.locator(".banner").count() == 1
        assert said in text_of(page, "#banners")
        assert (text_of(page, "#facts li") == "standby, writes nothing") == (scene == "standby")


def test_what_the_cluster_says_is_text(show: Show) -> None:
    with demo(20, scene="stuck", hostile=True) as (site, model):
        one = next(iter(model.alive))
        site.annotate(one, **{"<b>column</b>": HOSTILE})
        page = show(site.url)
        page.click(".rows button.open >> nth=0")
        assert "<script>alert(1)</script>" in text_of(page, "#details")
        page.keyboard.press("Escape")
        for tab in ("ended", "events"):
            page.click(f"#tab-{tab}")
            page.wait_for_selector(f"#panel-{tab} tbody tr[aria-rowindex]")
        assert page.locator("img, b b, td script").count() == 0
        plain = show(site.url, java_script_enabled=False)
        assert plain.locator("img, td script").count() == 0


def test_an_end_says_its_last_line_first_and_its_lines_as_lines_and_offers_no_logs_of_a_pod_that_is_gone(
    show: Show,
) -> None:
    with demo(20, past=60) as (site, _):
        page = show(site.url + "#tab=ended&only=EXITED")
        assert text_of(page, "#panel-ended .c-why >> text=ValueError").startswith("ValueError: bad record in part-0")
        page.click("#panel-ended button.open >> nth=0")
        assert text_of(page, "#details pre").splitlines()[-1] == "ValueError: bad record in part-0071"
        assert "kubectl" not in text_of(page, "#details")


def test_a_page_with_a_token_has_buttons_and_one_without_has_none(show: Show) -> None:
    with demo(5, token="a token of many characters") as (site, model):
        page = show(site.url)
        page.click(".rows button.open >> nth=0")
        assert "kubectl" in text_of(page, "#details")
        page.click("#details button >> text=Kill")
        page.fill("#action input[type=password]", "a token of many characters")
        page.click("#action button[type=submit]")
        page.wait_for_selector("#action:not([open])", state="hidden")
        page.click("#acts button >> text=Hold")
        page.click("#action button[type=submit]")  # the token is still known
        page.wait_for_selector("#action:not([open])", state="hidden")
        assert model.on_hold
        page.click("#acts button >> text=Scale")
        page.fill("#action input[type=number] >> nth=0", "7")
        page.click("#action button[type=submit]")
        page.wait_for_selector("#action:not([open])", state="hidden")
        assert model.targets["default"] == 7
    with demo(5) as (site, _):
        page = show(site.url)
        assert page.locator("#acts").is_hidden()
        page.click(".rows button.open >> nth=0")
        assert page.locator("#details .acts").count() == 0


def test_a_crash_loop_shows_its_last_error(show: Show) -> None:
    with demo(5, past=60) as (site, _):
        page = show(site.url)
        why = page.evaluate(
            """async (ended) => {
                const { banners } = await import("./static/overview.js");
                const profiles = { default: { blocked: null, start_failures: 3, backoff_until: 20 } };
                const status = { sources: {}, profiles, held: [], may_write: true, started: true };
                return banners(status, [], ended, 10)[0].text;
            }""",
            [
                {"profile": "gpu", "why": "another"},
                {"profile": "default", "why": r"exit code 1; termination message: Traceback:\nKeyError"},
            ],
        )
        assert why.endswith("The last one: KeyError; exit code 1")


def test_without_scripts_it_is_a_plain_table(show: Show) -> None:
    with demo(5) as (site, _):
        page = show(site.url, java_script_enabled=False)
        assert page.locator("#app").is_hidden()
        assert "etl-exec-" in text_of(page, "table >> text=etl-exec-")


def test_changes_of_a_thousand_executors_are_drawn_at_once_and_only_where_they_are_seen(show: Show) -> None:
    with demo(1_000, past=2) as (site, model):
        page = show(site.url + "#sort=id")
        page.evaluate(
            "window.draws = 0; const ask = requestAnimationFrame;"
            "requestAnimationFrame = (draw) => ask((...at) => { draws += 1; draw(...at); }); null"
        )
        for one in model.alive:
            site.annotate(one, tasks="done")
        page.wait_for_selector(".rows tr[aria-rowindex='2'] >> text=done")
        assert page.evaluate("draws") < 20, "one for each event of the stream, and one each second"
        assert page.locator(".rows tbody tr[aria-rowindex]").count() < 60, "only what is in sight is in the document"


def test_a_lost_connection_is_seen_and_the_page_goes_on_where_it_was(show: Show) -> None:
    with demo(5) as (site, model):
        page = show(site.url)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
        page.route("**/stream*", lambda route: route.abort())
        page.reload()
        page.wait_for_selector("body.stale")
        assert text_of(page, "#connection").startswith("stale since ")
        assert "what you see is old" in text_of(page, ".banner")
        site.annotate(min(model.alive), tasks="done")
        page.unroute("**/stream*")
        page.wait_for_selector("#connection.live")
        page.wait_for_selector(".rows td >> text=done")
        assert asked.count("executors") == 1, "nothing is loaded anew"


def test_a_driver_that_starts_anew_is_followed(show: Show) -> None:
    with demo(5) as (site, _):
        page = show(site.url)
    page.wait_for_selector("body.stale")
    with demo(7, port=int(site.url.rstrip("/").rpartition(":")[2])):
        page.wait_for_selector("#tab-executors b:text-is('7')")
        assert text_of(page, "#connection") == "live"


def test_all_of_it_is_reached_by_keyboard(show: Show) -> None:
    with demo(20) as (site, _):
        page = show(site.url)
        page.focus("#lanes")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        assert text_of(page, "#said").startswith("executor ")
        page.keyboard.press("+")
        page.keyboard.press("PageUp")
        page.wait_for_selector("#fit[aria-pressed=false]")
        page.keyboard.press("Enter")
        assert text_of(page, "dialog[open] h2").startswith("Executor ")
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.type("etl-exec running")
        page.keyboard.press("Tab")
        for _ in range(20):  # past the columns' buttons
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('.open')"):
                break
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.closest('tr').ariaRowIndex") == "3"
        page.focus("#tab-executors")
        page.keyboard.press("ArrowRight")
        assert page.locator("#tab-ended").get_attribute("aria-selected") == "true"
        assert "words=etl-exec+running" in page.url


def test_no_width_makes_it_scroll_sideways(show: Show) -> None:
    with demo(20, scene="stuck", hostile=True) as (site, _):
        page = show(site.url)
        for width in (320, 390, 768, 1024):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width


@needs_axe
def test_axe_finds_nothing(show: Show) -> None:
    with demo(12, scene="stuck") as (site, model):
        model.scene = "blocked"
        page = show(site.url)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        page.click("#as-text summary")
        found = violations(page)
        page.emulate_media(color_scheme="dark")
        page.click("#tab-ended")
        found += violations(page)
        page.click("#tab-executors")
        page.click(".rows button.open >> nth=0")
        found += violations(page, "#details")
        page.keyboard.press("Escape")
    page.wait_for_selector("body.stale")
    page.click("#tab-events")
    found += violations(page)
    assert found == []


def violations(page: Page, of: str = "body") -> list[str]:
    """Return what axe finds, with what it says about it."""
    found = page.evaluate("of => axe.run(of, {resultTypes: ['violations']})", of)["violations"]
    nodes = [(each["help"], node) for each in found for node in each["nodes"]]
    return [f"{rule}: {node['html'][:200]}: {node['failureSummary']}" for rule, node in nodes]


def test_an_update_of_a_thousand_executors_takes_a_tenth_of_a_second_of_scripting(show: Show) -> None:
    """Chromium's own count of the processor's time in scripts, layout and styles; the median of five updates."""
    with demo(10_000, past=20, life=3000) as (site, model):
        page = show(site.url)
        chromium = page.context.new_cdp_session(page)
        chromium.send("Performance.enable", {"timeDomain": "threadTicks"})

        def spent() -> dict[str, float]:
            return {each["name"]: each["value"] for each in chromium.send("Performance.getMetrics")["metrics"]}

        took = []
        ids = [*model.alive][:1_000]
        for at in range(6):
            before = spent()
            for each in ids:
                site.annotate(each, tasks=f"update {at}")
            page.wait_for_selector(f".rows td >> text=update {at}")
            after = spent()
            names = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
            took.append([round((after[name] - before[name]) * 1000, 1) for name in names])
        print("scripting, layout, styles (ms):", took)
        assert statistics.median(script for script, *_ in took[1:]) <= 100
