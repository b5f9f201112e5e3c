"""The page in a headless Chromium: what it shows, sorts, filters and folds, by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from costmodel.report import render
from tests.support.browser import chromium, opened
from tests.support.page_reports import HOSTILE, SMALL, facts, with_layers

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]
DRAWING = (
    '<svg width="300" height="80"><g class="unit" data-layer="stage1.block1.conv2" data-speedup="0.8">'
    '<rect x="10" y="10" width="200" height="40"/><text x="90" y="30">conv2</text></g></svg>'
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    with opened(browser, render(with_layers(SMALL), "html", facts=facts(DRAWING)), tmp_path) as found:
        found.locator(".tree").scroll_into_view_if_needed()
        yield found


def labels(page: Page) -> list[str]:
    """Names in the module table, top to bottom."""
    return page.evaluate("[...document.querySelectorAll('.tree .name')].map((name) => name.firstChild.textContent)")


def heading(page: Page, title: str) -> Locator:
    return page.locator(".tree th").filter(has_text=title)


WHOLE = ["tiny", "stem", "conv", "stage1", "block1", "conv1", "conv2", "block2", "conv1", "head", "fc"]


def test_the_first_screen_answers_the_question(page: Page) -> None:
    page.evaluate("scrollTo(0, 0)")
    for shown in (".verdict", ".gain", ".paste", ".tiles", ".modes"):
        box = page.locator(shown).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 900
    assert page.locator(".verdict").inner_text() == "Compile it with reduce-overhead."


def test_every_chart_is_drawn(page: Page) -> None:
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.wait_for_selector(".roofline circle")
    assert page.locator(".timeline .kernel").count() > 10  # 5 kernels on 2 lanes in 2 modes, and a replay
    assert page.locator(".icicle .box[data-node='0']").count() == 2  # eager beside compiled
    assert page.locator(".roofline .roof").count() == 2  # bandwidth and arithmetic
    assert page.locator(".roofline .point").count() == 5
    assert page.locator(".drawing .unit").count() == 1


def test_icicles_share_a_scale(page: Page) -> None:
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.wait_for_selector(".icicle .box")
    widths = page.evaluate(
        "[...document.querySelectorAll(\".icicle [data-node='0'] rect\")].map((r) => +r.getAttribute('width'))"
    )
    assert widths[1] / widths[0] == pytest.approx(84 / 110, abs=0.01)


def test_a_heading_sorts_siblings_and_says_so(page: Page) -> None:
    assert labels(page) == WHOLE
    eager = heading(page, "Eager")
    eager.get_by_role("button").click()
    assert eager.get_attribute("aria-sort") == "descending"
    # stage1 68, stem 30, head 12; block1 60, block2 8; conv2 40, conv1 20
    assert labels(page) == [
        "tiny",
        "stage1",
        "block1",
        "conv2",
        "conv1",
        "block2",
        "conv1",
        "stem",
        "conv",
        "head",
        "fc",
    ]
    eager.get_by_role("button").click()
    assert eager.get_attribute("aria-sort") == "ascending"
    assert labels(page) == [
        "tiny",
        "head",
        "fc",
        "stem",
        "conv",
        "stage1",
        "block2",
        "conv1",
        "block1",
        "conv1",
        "conv2",
    ]
    eager.get_by_role("button").click()
    assert eager.get_attribute("aria-sort") == "none"
    assert labels(page) == WHOLE


def test_a_filter_keeps_matches_and_the_modules_around_them(page: Page) -> None:
    page.get_by_label("Filter modules by name or type").fill("block2")
    assert labels(page) == ["tiny", "stage1", "block2", "conv1"]
    assert page.locator("#c0-modules .status").inner_text() == "2 of 11 modules match"
    page.get_by_label("Filter modules by name or type").fill("")
    page.get_by_label("Which modules").select_option("slower")
    assert labels(page) == ["tiny", "stage1", "block1", "conv2"]
    page.get_by_label("Which modules").select_option("")
    page.get_by_label("Bound by").select_option("memory")
    assert labels(page) == ["tiny", "stage1", "block2", "conv1", "head", "fc"]  # 8 and 6 us


def test_folding_by_mouse(page: Page) -> None:
    page.get_by_role("button", name="Collapse stage1").first.click()
    assert labels(page) == ["tiny", "stem", "conv", "stage1", "head", "fc"]
    page.get_by_role("button", name="Collapse all").click()
    assert labels(page) == ["tiny", "stem", "stage1", "head"]
    page.get_by_role("button", name="Expand all").click()
    assert labels(page) == WHOLE


def test_the_table_by_keyboard(page: Page) -> None:
    page.get_by_role("button", name="Collapse all").focus()
    headings = page.locator(".tree th button").count()
    for _ in range(headings):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the last heading that sorts
    assert page.locator("th[aria-sort=ascending], th[aria-sort=descending]").count() == 1
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    current = "document.activeElement.querySelector('.name').firstChild.textContent"
    assert page.evaluate(current) == "tiny"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(current) == "stem"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
    assert "conv" not in labels(page)[:3]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(current) == "conv"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(current) == "stem"
    page.keyboard.press("End")
    assert page.evaluate(current) == "fc"
    assert page.locator("tr[tabindex='0']").count() == 1


def test_charts_by_keyboard(page: Page) -> None:
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.wait_for_selector(".roofline circle")
    page.locator(".icicle").focus()
    page.keyboard.press("ArrowDown")
    assert "stem" in page.locator("#c0-flame .status").inner_text()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator("#c0-flame .path button").all_inner_texts() == ["tiny", "stage1"]
    page.keyboard.press("Escape")
    assert page.locator("#c0-flame .path button").count() == 1
    page.locator(".roofline").focus()
    page.keyboard.press("ArrowRight")
    assert "stage1.block1.conv2" in page.locator("#c0-roofline .status").inner_text()  # the longest kernel
    page.locator(".timeline").focus()
    ticks = page.locator(".timeline .tick").all_text_contents()
    page.keyboard.press("+")
    assert page.locator(".timeline .tick").all_text_contents() != ticks
    page.keyboard.press("0")
    assert page.locator(".timeline .tick").all_text_contents() == ticks


def test_a_unit_of_the_graph_leads_to_its_row(page: Page) -> None:
    page.get_by_role("button", name="Collapse all").click()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.locator(".drawing .unit").click()
    assert page.evaluate("document.activeElement.querySelector('.name').firstChild.textContent") == "conv2"


def test_a_kernel_of_the_timeline_leads_to_its_row(page: Page) -> None:
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.locator(".timeline .kernel.device").nth(2).click()  # eager, the third
    assert page.evaluate("document.activeElement.querySelector('.name').firstChild.textContent") == "conv2"


@pytest.mark.parametrize("width", [320, 400, 700, 1400])
def test_nothing_overflows(browser: Browser, tmp_path: Path, width: int) -> None:
    long = {"x" * 90: (1.0, 2.0), **SMALL}
    made = with_layers(long, model="y" * 120, warnings=("z" * 200,))
    for reports in (made, [made, made]):
        with opened(
            browser, render(reports, "html", facts=facts(DRAWING)), tmp_path, viewport={"width": width, "height": 800}
        ) as page:
            page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
            page.wait_for_selector(".roofline circle")
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_and_light_follow_the_system_but_paper_is_white(browser: Browser, tmp_path: Path) -> None:
    brightness = {}
    for scheme in ("dark", "light", "paper"):
        setting = "dark" if scheme == "paper" else scheme
        with opened(browser, render(with_layers(SMALL), "html"), tmp_path, color_scheme=setting) as page:
            if scheme == "paper":
                page.emulate_media(media="print", color_scheme="dark")
            style = "getComputedStyle(document.body)"
            colors = [page.evaluate(f"{style}.{name}") for name in ("backgroundColor", "color")]
            brightness[scheme] = [sum(map(int, color.removeprefix("rgb(").rstrip(")").split(","))) for color in colors]
    assert brightness["dark"][0] < 200 < brightness["dark"][1]
    assert brightness["light"][1] < 200 < brightness["light"][0]
    assert brightness["paper"] == [3 * 255, brightness["light"][1]]


def test_on_paper_everything_is_open_and_nothing_is_a_button(page: Page) -> None:
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.wait_for_selector(".roofline circle")
    assert page.locator("details:not([open])").count() == 0
    assert not page.locator(".controls").first.is_visible()
    assert not page.locator(".toc").is_visible()
    assert page.pdf()[:5] == b"%PDF-"


def test_hostile_names_are_shown_and_never_run(browser: Browser, tmp_path: Path) -> None:
    times = {f"{name.replace('.', '')}.conv{index}": (9.0, 3.0) for index, name in enumerate(HOSTILE)}
    made = with_layers(times, model=HOSTILE[0], hardware=HOSTILE[1], warnings=HOSTILE)
    with opened(browser, render([made, made], "html", facts=facts()), tmp_path) as page:
        page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        page.wait_for_selector(".roofline circle")
        page.wait_for_selector(".tree .name")
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 3  # the page's own, and the data of two reports
        assert HOSTILE[0] in page.locator(".summary th a").first.inner_text()
        assert HOSTILE[3] in labels(page)


def test_the_policy_refuses_any_other_script(browser: Browser, tmp_path: Path) -> None:
    text = render(with_layers(SMALL), "html").replace("<body>", "<body><script>window.ran = true</script>")
    with pytest.raises(pytest.fail.Exception, match="Content Security Policy"), opened(browser, text, tmp_path) as page:
        assert page.evaluate("window.ran") is None


def test_several_models_have_a_summary_that_opens_them(browser: Browser, tmp_path: Path) -> None:
    several = [with_layers(SMALL, model="first"), with_layers(SMALL, model="second")]
    with opened(browser, render(several, "html", facts=facts()), tmp_path) as page:
        assert page.locator(".summary tbody tr").count() == 2
        assert not page.locator("#c1 .verdict").is_visible()
        page.locator(".summary a").nth(1).click()
        page.wait_for_selector("#c1 .tree .name")
        assert page.locator("#c1 .verdict").is_visible()
        assert not page.locator("#c0 .verdict").is_visible()


def test_five_thousand_layers_are_small_and_usable(browser: Browser, tmp_path: Path) -> None:
    times = {
        f"stage{index // 500}.block{index // 50}.conv{index}": (10.0 + index % 7, 5.0 + index % 11)
        for index in range(5000)
    }
    text = render(with_layers(times), "html", facts=facts())
    assert len(text.encode()) < 5_000_000
    assert "A drawing of 5,000 layers is too large" in text
    with opened(browser, text, tmp_path) as page:
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        page.wait_for_selector(".roofline circle")
        assert page.locator(".timeline rect").count() < 10_000  # a shape a pixel and lane at most
        assert page.locator(".roofline circle").count() <= 1500
        assert "not drawn" in page.locator("#c0-roofline .status").inner_text()
        page.get_by_role("button", name="Expand all").click()
        assert len(labels(page)) == 300  # rows at once
        page.locator(".more button").click()
        assert len(labels(page)) == 600
        page.get_by_label("Filter modules by name or type").fill("conv4999")
        assert labels(page)[-1] == "conv4999"
        page.locator(".timeline .kernel.device").last.click()
        assert page.evaluate("document.activeElement.tagName") == "TR"
        assert 150 < len(labels(page)) <= 300  # around the row, not all before it
        page.locator(".more button").first.click()
        assert 450 < len(labels(page)) <= 600
