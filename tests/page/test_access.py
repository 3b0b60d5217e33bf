"""For everybody: contrast in light and dark, labels, keyboard, narrow screens, figures that change
without moving anything. The checks are of our own, in a few lines of `checks.js`."""

# ruff: noqa: E501  (locators read best in one line)

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.conftest import PATIENCE, until
from tests.page.site import HOSTILE

expect.set_options(timeout=PATIENCE)
CHECKS = Path(__file__).with_name("checks.js").read_text()
TABS = [
    "overview",
    "graph",
    "windows",
    "backpressure",
    "state",
    "dead",
    "events",
    "logs",
    "why",
    "versions",
    "savepoints",
]


def settled(page: Any) -> None:
    until(page, "!document.querySelector('[aria-busy=true]')")
    page.locator("main :is(table, svg, .empty, .log, form, .reasons)").first.wait_for()


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_contrast_labels_and_headings_of_every_view(open_page: Any, colours: str) -> None:
    opened = open_page(color_scheme=colours)
    page = opened.page
    found = {}
    for parts in [(), ("events",), *(("jobs", "shop", tab) for tab in TABS)]:
        opened.go(*parts)
        settled(page)
        found["/".join(parts)] = page.evaluate(CHECKS)
    page.get_by_role("button", name="Keys").click()
    page.get_by_role("dialog").wait_for()
    found["keys"] = page.evaluate(CHECKS)
    assert not any(found.values()), json.dumps(found, indent=1)


def test_the_checks_find_what_is_wrong(open_page: Any) -> None:
    page = open_page().page
    settled(page)
    spoil = """() => {
      const main = document.querySelector("main");
      const grey = Object.assign(document.createElement("p"), { textContent: "too faint to read" });
      grey.style.color = "#c8ccd0";
      main.append(grey, document.createElement("button"), document.createElement("input"));
      main.append(Object.assign(document.createElement("h4"), { textContent: "too deep" }));
    }"""
    checks = CHECKS.strip().rstrip(";")
    problems = " ".join(page.evaluate(f"() => {{ ({spoil})(); return ({checks})(); }}"))  # at once
    for word in ("contrast", "button", "input", "h4"):
        assert word in problems


@pytest.mark.parametrize(
    "parts",
    [(), ("events",), *(("jobs", "shop", tab) for tab in TABS)],
)
def test_a_narrow_screen_needs_no_sideways_scrolling(
    open_page: Any, parts: tuple[str, ...]
) -> None:
    opened = open_page(viewport={"width": 320, "height": 740})  # a laptop's at 400 %
    page = opened.go(*parts)
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_by_keyboard_alone(open_page: Any) -> None:
    page = open_page().page
    settled(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_contain_text("previous, next tab")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)

    page.keyboard.press("/")
    expect(page.get_by_label("Filter jobs")).to_be_focused()
    page.keyboard.type("j?")  # typed, not obeyed
    expect(page.get_by_label("Filter jobs")).to_have_value("j?")
    page.get_by_label("Filter jobs").fill("shop")
    page.get_by_label("Filter jobs").blur()
    expect(page.get_by_role("link", name="hostile", exact=True)).to_have_count(0)
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="shop", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="shop", exact=True)).to_be_visible()

    page.keyboard.press("]")
    expect(page.get_by_role("tab", name="Graph")).to_have_attribute("aria-selected", "true")
    settled(page)
    node = page.locator("[data-step=sums]")
    node.focus()
    outline = node.locator(".box").evaluate("n => getComputedStyle(n).strokeWidth")
    assert float(outline.removesuffix("px")) > 2  # the focus is seen
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary", name="Step sums")).to_be_visible()
    page.get_by_role("tab", name="Graph").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Windows")).to_be_focused()

    page.keyboard.press("a")
    items = page.get_by_role("menuitem")
    expect(items.first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(items.last).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()

    page.keyboard.press("?")
    page.get_by_label("Single keys do this").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("e")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()


def test_light_dark_and_as_the_system_are_remembered(open_page: Any) -> None:
    page = open_page(color_scheme="dark").page
    settled(page)
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_role("button", name="Colours").click()
    until(page, f"{background} !== {dark!r}")
    light = page.evaluate(background)
    page.reload()
    settled(page)
    assert page.evaluate(background) == light != dark
    page.get_by_role("button", name="Colours").click()
    until(page, f"{background} === {dark!r}")


@pytest.mark.parametrize("parts", [(), ("jobs", "shop"), ("jobs", "shop", "graph")])
def test_nothing_moves_while_figures_change(open_page: Any, parts: tuple[str, ...]) -> None:
    opened = open_page()
    page = opened.go(*parts)
    settled(page)
    figure = page.locator(".facts .fixed").first if parts else page.locator("tbody .figure").first
    page.wait_for_timeout(2500)  # the first figures have come
    page.evaluate("""() => {
      window.moved = [];
      new PerformanceObserver((list) => list.getEntries().forEach((e) => window.moved.push(e.value)))
        .observe({ type: "layout-shift" });
    }""")
    seen = {figure.inner_text()}
    for _ in range(30):
        page.wait_for_timeout(200)
        seen.add(figure.inner_text())
    assert len(seen) > 1  # it is alive
    assert sum(page.evaluate("window.moved")) < 0.02


def test_names_that_no_job_may_have_would_do_nothing_either(open_page: Any) -> None:
    """The server refuses them; the page does not rely on that."""
    opened = open_page()
    page = opened.page

    def altered(route: Any) -> None:
        answer = route.fetch()
        text = (
            answer.text()
            .replace('"sums"', json.dumps(HOSTILE))
            .replace('"sums.', '"' + json.dumps(HOSTILE)[1:-1] + ".")
            .replace('"running"', '"<b>odd</b>"')
        )
        route.fulfill(response=answer, body=text)

    page.route(re.compile(r"/api/v1/jobs"), altered)
    for tab in ("overview", "graph", "windows", "backpressure", "state", "why"):
        opened.go("jobs", "shop", tab)
        settled(page)
        expect(page.locator("main")).to_contain_text(
            "<img src=x" if tab not in ("overview",) else "<b>odd</b>"
        )
        assert page.locator("main img, main b").count() == 0
        assert "owned" not in page.title().split(" · ")
    opened.go()
    expect(page.locator("tbody").first).to_contain_text("<b>odd</b>")
    page.unroute_all(behavior="wait")


def test_a_hidden_page_asks_nothing(open_page: Any) -> None:
    opened = open_page()
    page = opened.go("jobs", "shop")
    settled(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("""() => {
      Object.defineProperty(document, "hidden", { get: () => window.isHidden ?? true, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }""")
    page.wait_for_timeout(1500)  # what was under way comes back
    asked.clear()
    page.wait_for_timeout(3000)
    assert not asked
    page.evaluate(
        "() => { window.isHidden = false; document.dispatchEvent(new Event('visibilitychange')); }"
    )
    page.wait_for_timeout(1500)
    assert asked
