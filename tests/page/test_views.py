"""Every view of the page, over a real server with real jobs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.conftest import PATIENCE

expect.set_options(timeout=PATIENCE)


def test_a_token_is_asked_for_and_a_wrong_one_refused(site: Any, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.url)
    field = page.get_by_label("Token")
    expect(field).to_be_focused()
    expect(page.get_by_role("button", name="Sign in")).to_be_disabled()

    field.fill("no-token-of-this-server-at-all")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("HR-SERVER-051")

    field.fill(site.tokens["read"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    context.close()


def test_the_token_leaves_the_address_at_once_and_the_session_stays(open_page: Any) -> None:
    page = open_page().page
    assert "token" not in page.url
    assert page.evaluate("document.cookie") == ""  # scripts cannot read it

    page.reload()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()


def test_jobs_are_listed_filtered_by_text_and_state_and_sorted(open_page: Any) -> None:
    page = open_page().page
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    shop = page.get_by_role("row").filter(has=page.get_by_role("link", name="shop", exact=True))
    expect(shop).to_contain_text("running")
    expect(shop).to_contain_text(re.compile(r"\d/s"))

    page.get_by_label("Filter jobs").fill("stri")
    expect(rows).to_have_count(1)
    expect(page.locator(".bar [role=status]")).to_have_text("1 of 3 jobs")
    page.get_by_label("Filter jobs").fill("")

    page.get_by_role("group", name="Show only").get_by_role("button", name="running").click()
    expect(rows).to_have_count(2)
    page.get_by_role("group", name="Show only").get_by_role("button", name="running").click()

    names = page.locator(".job-link")
    expect(names).to_have_text(["hostile", "shop", "strict"])
    page.get_by_role("button", name="Job", exact=True).click()
    expect(names).to_have_text(["strict", "shop", "hostile"])
    expect(page.get_by_role("columnheader", name="Job")).to_have_attribute(
        "aria-sort", "descending"
    )
    page.get_by_role("button", name="Dead").click()
    expect(names.last).to_have_text("strict")  # it has none


def test_the_overview_has_figures_plots_and_their_values_as_a_table(open_page: Any) -> None:
    page = open_page().go("jobs", "shop")
    expect(page.locator(".tile")).to_have_count(8)
    expect(page.locator(".tile").filter(has_text="Dead letters").locator("dd").first).to_have_text(
        re.compile(r"[1-9]")
    )
    assert page.locator("[data-plot]").count() >= 8
    throughput = page.locator("[data-plot=throughput]")
    expect(throughput.locator("canvas")).to_be_visible()
    expect(throughput.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile(r"Throughput\. in: now [\d.,k ]+/s, from")
    )

    throughput.get_by_text("Values as a table").click()
    expect(throughput.locator("tbody tr").first).to_contain_text(re.compile(r"\d/s"))

    page.get_by_role("button", name="7 d").click()
    expect(page.get_by_role("button", name="7 d")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="15 min").click()
    row = page.get_by_role("region", name="Inputs").get_by_role("row").filter(has_text="orders")
    numbers = [int(c.replace(",", "")) for c in row.locator("td").all_text_contents()[-5:]]
    assert numbers[0] == sum(numbers[1:]) > 0  # read = used + filtered + late + dead


def test_the_graph_has_every_step_in_both_forms_and_as_a_table(open_page: Any) -> None:
    page = open_page().go("jobs", "shop", "graph")
    steps = ["orders", "parse", "paid", "sums", "spent", "sums out", "spent out", "late out"]
    nodes = page.locator("[data-step]")
    expect(nodes).to_have_count(len(steps))
    assert {n.get_attribute("data-step") for n in nodes.all()} == set(steps)
    expect(page.locator(".flow", has_text="/s").first).to_be_attached()
    expect(page.locator(".how", has_text="wm ").first).to_be_attached()

    page.get_by_role("button", name="spent, process").click()
    side = page.get_by_role("complementary", name="Step spent")
    expect(side).to_contain_text("Its own metrics")
    expect(side).to_contain_text("rows")
    page.get_by_role("button", name="Close").click()
    expect(side).to_have_count(0)

    page.get_by_role("button", name="Physical plan").click()
    expect(page.locator(".band-name").first).to_have_text("Level 0 · source tasks")
    boxes = [n.bounding_box() for n in nodes.all()]
    for i, a in enumerate(boxes):  # none lies on another
        for b in boxes[i + 1 :]:
            assert (
                a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
                or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"]
            )  # fmt: skip

    page.get_by_role("button", name="Larger").click()
    page.get_by_role("button", name="Fit").click()
    page.get_by_role("button", name="Table").click()
    expect(page.locator("tbody tr")).to_have_count(len(steps))


def test_windows_and_backpressure(open_page: Any) -> None:
    opened = open_page()
    page = opened.go("jobs", "shop", "windows")
    expect(page.get_by_role("row").filter(has_text="sums")).to_be_visible()

    opened.go("jobs", "shop", "backpressure")
    expect(page.locator(".hint-box")).to_contain_text(re.compile("held back"))
    expect(page.get_by_role("region", name="Where the time of an epoch goes").first).to_be_visible()
    expect(page.get_by_role("table", name="What waits at the inputs")).to_contain_text("orders")


def test_phases_that_hold_others_are_not_added_to_them(open_page: Any) -> None:
    """As Spark says them: triggerExecution is the whole, and the tasks run within addBatch."""
    phases = {"source": 114, "level 1": 90, "level 2": 7, "addBatch": 415, "commitOffsets": 7,
              "getBatch": 0, "latestOffset": 2, "queryPlanning": 7, "triggerExecution": 450,
              "walCommit": 7}  # fmt: skip
    opened = open_page()

    def altered(route: Any) -> None:
        answer = route.fetch()
        found = answer.json()
        found["figures"]["phases"] = phases
        found["figures"]["bottleneck"] = {"step": "sums", "why": "the job is at work 90%"}
        route.fulfill(response=answer, json=found)

    opened.page.route(re.compile(r"/api/v1/jobs/shop$"), altered)
    page = opened.go("jobs", "shop", "backpressure")
    expect(page.locator(".hint-box")).to_contain_text("Bottleneck: sums: the job is at work 90%.")
    panel = page.get_by_role("region", name="Where the time of an epoch goes")
    expect(panel).to_contain_text("addBatch")
    trigger, tasks = (
        dict(zip(stack.locator("dt").all_inner_texts(), stack.locator("dd").all_inner_texts(),
                 strict=True))
        for stack in panel.locator(".phases").all()
    )  # fmt: skip
    assert trigger["addBatch"] == "415 ms" and trigger["other"] == "12 ms"
    assert sum(int(took.removesuffix(" ms")) for took in trigger.values()) == 450
    assert tasks == {"source": "114 ms", "level 1": "90 ms", "level 2": "7 ms"}
    share = panel.locator(".part").first.evaluate("n => n.style.getPropertyValue('--share')")
    assert float(share) == pytest.approx(415 / 450, abs=0.001)
    rows = page.get_by_role("table", name="Steps by how busy they are")
    orders = rows.get_by_role("row").filter(has=page.get_by_role("rowheader", name="orders"))
    into = orders.locator("td").all_inner_texts()[-2]
    assert into == "\N{EN DASH}"  # nothing goes into what reads
    page.unroute_all(behavior="wait")


def test_state_is_shown_asked_with_sql_and_wrong_sql_refused(open_page: Any) -> None:
    page = open_page().go("jobs", "shop", "state")
    page.get_by_role("button", name="spent", exact=True).click()
    expect(page.get_by_label("Query", exact=True).locator("textarea")).to_have_value(
        "select * from spent"
    )
    result = page.get_by_role("table", name="Result of the query")
    expect(result.locator("tbody tr")).to_have_count(12)  # customers

    box = page.locator("textarea")
    box.fill("")
    box.press_sequentially("select count(*) as customers from spent")
    box.press("Control+Enter")
    expect(result.get_by_role("columnheader")).to_have_text(["customers"])
    expect(result.locator("tbody tr")).to_have_text(["12"])

    box.fill("select nothing from nowhere")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"HR-[A-Z]+-\d+"))


def test_dead_letters_by_reason_one_opened_and_replayed(open_page: Any) -> None:
    page = open_page().go("jobs", "hostile", "dead")
    page.get_by_role("button", name="ValueError", exact=True).click()
    expect(page.get_by_role("heading", name="Letters: ValueError")).to_be_visible()
    first = page.get_by_role("button", name=re.compile(r"^#\d+")).first
    number = first.inner_text()
    first.click()
    letter = page.locator(".letter")
    expect(letter).to_contain_text("Traceback (most recent call last)")
    expect(letter.get_by_label("Record")).to_contain_text("<script>")  # as text

    page.get_by_role("button", name="Replay this letter").click()
    dialog = page.get_by_role("dialog", name=f"Replay letter {number}?")
    expect(dialog).to_contain_text("1 dead letter will be replayed")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Replay this letter")).to_be_focused()

    page.get_by_role("button", name="Replay this letter").click()
    dialog.get_by_role("button", name="Replay").click()
    expect(page.locator("#live")).to_have_text("1 dead letter will be replayed")


def test_events_logs_and_why(open_page: Any) -> None:
    opened = open_page()
    page = opened.go("jobs", "hostile", "events")
    expect(page.get_by_role("row").filter(has_text="submitted").first).to_be_visible()
    opened.go("events")
    expect(page.get_by_role("row").filter(has_text="server started").first).to_be_visible()
    expect(page.get_by_role("link", name="shop").first).to_be_visible()

    opened.go("jobs", "hostile", "logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("order 0 <img")
    lines = log.locator("div").count()
    page.get_by_label("Filter lines").fill("order 100 ")
    expect(log.locator("div")).to_have_count(1)
    page.get_by_label("Filter lines").fill("")
    assert log.locator("div").count() >= lines
    follow = page.get_by_label("Follow")
    expect(follow).to_be_checked()
    page.get_by_label("Run").select_option("1")
    expect(log).to_contain_text("order 0 <img")

    opened.go("jobs", "shop", "why")
    expect(
        page.locator(".reasons li").filter(has_text="came too late for step 'sums'")
    ).to_be_visible()
    page.get_by_role("button", name="Ask again").click()
    expect(page.get_by_role("button", name="Ask again")).to_be_enabled()


def test_savepoints_are_made_and_deleted_and_a_name_twice_is_refused(open_page: Any) -> None:
    page = open_page().go("jobs", "shop", "savepoints")
    name = page.get_by_label("Name")
    name.fill("before-sale")
    page.get_by_role("button", name="Make it").click()
    row = page.get_by_role("row").filter(has_text="before-sale")
    expect(row).to_be_visible()

    name.fill("before-sale")
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"HR-[A-Z]+-\d+"))

    row.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)


@pytest.mark.parametrize("tab", ["overview", "graph", "state", "dead", "logs", "events"])
def test_nothing_that_a_job_says_becomes_markup(open_page: Any, tab: str) -> None:
    opened = open_page()
    page = opened.go("jobs", "hostile", tab)
    page.locator(".tab-panel table, .tab-panel .log, .tab-panel svg").first.wait_for()
    if tab == "state":
        page.locator("textarea").fill(
            "select '<img src=x onerror=document.title=3>' as \"<b>x</b>\""
        )
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("columnheader", name="<b>x</b>")).to_be_visible()
    if tab == "graph":
        page.get_by_role("button", name="spent, process").click()
        expect(page.get_by_role("complementary")).to_contain_text("rows<img")
    assert page.locator("main img, main script, main b").count() == 0
    assert page.title() == "hostile · running · Headrace"
