"""What no well-behaved job or server does: odd values, many jobs, long plans, slow and late
answers, two people at once, an upgrade of the server under an open page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from headrace.server import app
from headrace.server.lifecycle import State
from headrace.server.page_files import FOLDER, page_files
from tests.page.conftest import PATIENCE, Opened, until
from tests.page.odd import LONG, MARKUP, RIGHT_TO_LEFT, OddService, OddSite, replaced, straight
from tests.page.test_access import TABS, settled

expect.set_options(timeout=PATIENCE)

TOO_WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? [] :
  [...document.querySelectorAll("main *")].filter(n => n.getBoundingClientRect().right > innerWidth)
  .map(n => `${n.tagName}.${n.className}`).slice(-5)"""


@pytest.fixture
def opens(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens a page on a server of such jobs; its console must have been silent."""
    sites: list[OddSite] = []
    pages: list[Opened] = []

    def opened(service: OddService, role: str = "operate", **options: Any) -> Opened:
        site = next((s for s in sites if s.service is service), None)
        if site is None:
            sites.append(site := OddSite(service))
        pages.append(Opened(site, browser, role, options))
        return pages[-1]

    yield opened
    for page in pages:
        page.context.close()
    for site in sites:
        site.http.close()
    complaints = [c for page in pages for c in page.complaints()]
    assert not complaints, complaints


@pytest.mark.parametrize(
    ("number", "text"),
    [(float("nan"), MARKUP), (1e300, LONG), (-1e300, RIGHT_TO_LEFT), (None, LONG),
     (5e-324, MARKUP), (2**63, RIGHT_TO_LEFT)],
    ids=["nan", "huge", "negative", "null", "tiny", "long"],
)  # fmt: skip
def test_odd_values_in_every_view(opens: Any, number: Any, text: str) -> None:
    service = OddService("job")
    service.plans["job"] = replaced(straight(4), number, text)
    service.say(number, text)
    opened = opens(service)
    for parts in [(), ("events",), *(("jobs", "job", tab) for tab in TABS)]:
        page = opened.go(*parts)
        page.locator("main h1").wait_for()
        settled(page)
        if parts[-1:] == ("state",):
            page.locator("main tbody button").first.click()
            answer = page.get_by_role("table", name="Result of the query")
            answer.or_(page.get_by_role("alert")).wait_for()  # a name may be too long
        if parts[-1:] == ("dead",):
            page.get_by_role("button", name="#2").click()
            page.locator(".letter").wait_for()
        shown = page.locator("main").inner_text()
        odd = re.search(r"\b(NaN|Infinity|undefined|Invalid|\[object)\b", shown)
        assert not odd, f"{parts}: {shown[max(0, odd.start() - 80) : odd.end() + 80]}"
        longest = max(map(len, re.findall(r"[\d,.]+", shown)))
        assert longest < 40, f"{parts}: a number of {longest} digits"
        assert page.locator("main img, main script").count() == 0
        too_wide = page.evaluate(TOO_WIDE)
        assert not too_wide, f"{parts}: {too_wide}"


def test_plots_begin_with_the_first_sample_and_a_line_is_broken_where_none_are(opens: Any) -> None:
    page = opens(OddService("job")).go("jobs", "job")
    note = page.locator(".bar .note").filter(has_text="there are no earlier samples")
    expect(note).to_contain_text(re.compile(r"since \d\d:\d\d:\d\d;"))
    plot = page.locator("[data-plot=throughput]")
    plot.get_by_text("Values as a table").click()
    rows = plot.locator("tbody tr")
    expect(rows.filter(has_text="\N{EN DASH}")).to_have_count(1)  # 20 s without a sample
    assert rows.filter(has_text="1/s").count() >= 10


@pytest.mark.parametrize("jobs", [0, 500])
def test_no_job_and_many(opens: Any, jobs: int) -> None:
    opened = opens(OddService(*(f"job-{n:03}" for n in range(jobs))))
    page = opened.page
    if not jobs:
        expect(page.locator("main")).to_contain_text("There is no job yet.")
        return
    expect(page.locator("tbody tr")).to_have_count(jobs)
    page.get_by_label("Filter jobs").fill("job-42")
    expect(page.locator("tbody tr")).to_have_count(10)
    page.get_by_role("link", name="job-427").click()
    expect(page.get_by_role("heading", name="job-427")).to_be_visible()
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(jobs)


def test_a_plan_of_two_hundred_steps_and_its_bottleneck_is_found(opens: Any) -> None:
    service = OddService("job")
    service.plans["job"] = straight(200)
    neck = "where 150"
    service.figures_now["job"] = {
        **service.figures_now["job"], "bottleneck": {"step": neck, "why": "it is slow"},
    }  # fmt: skip
    page = opens(service).go("jobs", "job", "graph")
    expect(page.locator("g[data-step]")).to_have_count(200)
    node = page.locator(f'g[data-step="{neck}"]')
    expect(node).not_to_be_in_viewport()
    page.locator(".bottleneck-note").get_by_role("button", name=neck).click()
    expect(node).to_be_in_viewport()
    expect(page.get_by_role("complementary", name=f"Step {neck}")).to_be_visible()
    page.get_by_role("button", name="Table").click()
    expect(page.get_by_role("table", name="Steps of the plan").locator("tbody tr")).to_have_count(
        200
    )


class Held:
    """Answers to some requests, held back until they are let go."""

    def __init__(self, page: Any, pattern: str, is_held: Callable[[Any], bool]) -> None:
        self.waiting: list[Any] = []
        self._is_held = is_held
        page.route(re.compile(pattern), self._asked)

    def _asked(self, route: Any) -> None:
        if self._is_held(route.request):
            self.waiting.append(route)
        else:
            route.continue_()

    def let_go(self, page: Any) -> None:
        for _ in range(PATIENCE // 100):
            if self.waiting:
                break
            page.wait_for_timeout(100)
        with page.expect_response(lambda r: r.request == self.waiting[0].request):
            self.waiting[0].continue_()


def test_an_answer_to_an_earlier_query_is_not_shown_for_a_later_one(opens: Any) -> None:
    page = opens(OddService("job")).go("jobs", "job", "state")
    held = Held(page, "/state/query$", lambda request: "slow" in (request.post_data or ""))
    box = page.locator("textarea")
    box.fill("select slow")
    page.get_by_role("button", name="Run").click()
    box.fill("select quick")
    page.get_by_role("button", name="Run").click()
    result = page.get_by_role("table", name="Result of the query")
    expect(result.get_by_role("columnheader").first).to_have_text("select quick")
    held.let_go(page)
    page.wait_for_timeout(300)
    expect(result.get_by_role("columnheader").first).to_have_text("select quick")
    page.unroute_all(behavior="wait")


def test_a_plan_of_another_program_is_not_shown_as_that_of_this_one(opens: Any) -> None:
    page = opens(OddService("job")).go("jobs", "job", "versions")
    held = Held(page, "/upgrade$", lambda request: "first" in (request.post_data or ""))
    program = page.get_by_label("Program", exact=True)
    program.fill("/jobs/first.py")
    page.get_by_role("button", name="Show the plan").click()
    program.fill("/jobs/second.py")
    held.let_go(page)
    expect(page.get_by_role("button", name="Show the plan")).to_be_enabled()
    expect(page.get_by_role("button", name="Upgrade …")).to_have_count(0)
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("button", name="Upgrade …")).to_be_visible()
    page.unroute_all(behavior="wait")


def test_a_server_that_is_slow_is_waited_for_and_a_button_answers_at_once(opens: Any) -> None:
    opened = opens(OddService("job"))
    page = opened.go("jobs", "job", "dead")
    page.get_by_role("button", name="#2").wait_for()
    held = Held(page, "/replay$", lambda request: True)
    page.get_by_role("button", name="Replay all …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Loading what can be sent again")
    expect(dialog.get_by_role("button", name="Replay")).to_be_disabled()
    page.go_back()  # thought better of
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    expect(dialog).to_have_count(0)
    held.let_go(page)
    page.wait_for_timeout(300)
    expect(dialog).to_have_count(0)
    page.unroute_all(behavior="wait")


def test_two_people_do_opposite_things(opens: Any) -> None:
    service = OddService("job")
    here, there = opens(service).go("jobs", "job"), opens(service).go("jobs", "job")
    here.get_by_role("button", name="Restart", exact=True).click()
    expect(here.get_by_role("dialog")).to_be_visible()
    there.get_by_role("button", name="Deactivate", exact=True).click()
    there.get_by_role("dialog").get_by_role("button", name="Deactivate").click()
    expect(there.locator(".job-head .pill")).to_have_text("stopping")
    here.get_by_role("dialog").get_by_role("button", name="Restart").click()
    expect(here.get_by_role("dialog").get_by_role("alert")).to_contain_text(
        re.compile(r"HR-SERVER-\d+")
    )
    assert service.job("job").job.state == State.STOPPING
    expect(here.locator(".job-head .pill")).to_have_text("stopping")  # it says so, too


def test_back_deep_links_and_a_session_that_is_over(opens: Any) -> None:
    opened = opens(OddService("job"))
    page = opened.go("jobs", "job")
    for tab in ("graph", "logs"):
        opened.go("jobs", "job", tab)
        expect(page.locator("[aria-selected=true]")).to_have_id(f"tab-{tab}")
    page.go_back()
    expect(page.locator("[aria-selected=true]")).to_have_id("tab-graph")
    page.go_forward()
    expect(page.locator("[aria-selected=true]")).to_have_id("tab-logs")
    page.reload()
    expect(page.locator("[aria-selected=true]")).to_have_id("tab-logs")

    opened.context.clear_cookies()  # as if it were too old
    page.get_by_label("Token").fill(opened.site.tokens["read"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("[aria-selected=true]")).to_have_id("tab-logs")
    expect(page.locator(".role")).to_contain_text("read only")


def test_who_may_only_read_is_refused_by_the_server_too(opens: Any) -> None:
    service = OddService("job")
    page = opens(service, "read").go("jobs", "job")
    expect(page.locator(".job-head .pill")).to_have_text("running")
    for method, path in [("POST", "/kill"), ("POST", "/dead/replay"), ("DELETE", "")]:
        status = page.evaluate(
            """async ([method, path]) => (await fetch(`api/v1/jobs/job${path}`, {
              method, headers: {"content-type": "application/json"},
              body: method === "POST" ? "{}" : undefined,
            })).status""",
            [method, path],
        )
        assert status == 403, (method, path)
    assert service.job("job").job.state == State.RUNNING


def test_a_page_that_is_open_while_the_server_is_upgraded_says_so(
    opens: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = opens(OddService("job"))
    page = opened.go("jobs", "job")
    expect(page.locator(".tile").first).to_be_visible()
    before = page.evaluate("document.querySelector('script').src")
    opened.site.start_again()
    page.get_by_role("button", name="Jobs").or_(page.get_by_role("link", name="Jobs")).click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator(".banner")).to_have_count(0)  # it is the same version

    other = shutil.copytree(FOLDER, tmp_path / "page")
    with (other / "css" / "base.css").open("a") as file:
        file.write("\n")
    monkeypatch.setattr(app, "page_files", lambda: page_files(other))
    opened.site.start_again()
    banner = page.locator(".banner").filter(has_text="another version of this page")
    expect(banner).to_be_visible()
    page.get_by_role("link", name="job", exact=True).click()  # it goes on
    expect(page.get_by_role("heading", name="job", exact=True)).to_be_visible()
    banner.get_by_role("button", name="Reload").click()
    expect(page.get_by_role("heading", name="job", exact=True)).to_be_visible()
    until(page, f"document.querySelector('script').src !== {before!r}")
    expect(page.locator(".tile").first).to_be_visible()
    expect(page.locator(".banner")).to_have_count(0)


def test_high_contrast_and_less_motion(opens: Any) -> None:
    opened = opens(OddService("job"), forced_colors="active", reduced_motion="reduce")
    page = opened.go("jobs", "job")
    pressed = page.locator(".segments [aria-pressed=true]")
    ground = "n => getComputedStyle(n).backgroundColor"
    expect(pressed).to_be_visible()
    other = page.locator(".segments [aria-pressed=false]").first
    assert pressed.evaluate(ground) != other.evaluate(ground)
    filled, track = page.locator(".tile .fill"), page.locator(".tile .track")
    assert filled.evaluate(ground) != track.evaluate(ground)
    moves = "n => getComputedStyle(n).transitionDuration"
    assert other.evaluate(moves) == "0s"


def test_what_a_screen_reader_is_told_has_names(opens: Any) -> None:
    """As Chromium's own accessibility tree has it."""
    opened = opens(OddService("job"))
    session = opened.context.new_cdp_session(opened.page)
    named = {"button", "link", "tab", "textbox", "searchbox", "checkbox", "combobox", "table",
             "region", "heading", "tabpanel", "image", "menuitem", "columnheader"}  # fmt: skip
    for parts in [(), ("events",), *(("jobs", "job", tab) for tab in TABS)]:
        page = opened.go(*parts)
        page.locator("main h1").wait_for()
        settled(page)
        nodes = session.send("Accessibility.getFullAXTree")["nodes"]
        told = [n for n in nodes if not n["ignored"]]
        roles = {n["role"]["value"] for n in told}
        assert {"main", "banner", "navigation", "heading"} <= roles, parts
        nameless = [
            n for n in told if n["role"]["value"] in named and not n.get("name", {}).get("value")
        ]
        blank = [n for n in nameless if n["role"]["value"] == "columnheader"]  # of buttons
        assert len(nameless) == len(blank) <= 3, (parts, nameless[:3])
