"""The life cycle from the page: every verb, a job that fails while it is watched, a server that is
started again under an open page."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from headrace.server.lifecycle import State, legal
from tests.page.conftest import PATIENCE, until

expect.set_options(timeout=PATIENCE)
VERBS = ["activate", "deactivate", "restart", "rebalance", "upgrade", "drain", "kill", "remove"]


def menu(page: Any) -> Any:
    page.get_by_role("button", name="Actions").click()
    found = page.get_by_role("menu", name="Actions")
    expect(found).to_be_visible()
    return found


def do(page: Any, verb: str, label: str) -> None:
    menu(page).locator(f"[data-verb={verb}]").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name=label, exact=True).click()
    expect(dialog).to_have_count(0)


def legal_now(page: Any) -> set[str]:
    items = menu(page).locator("[role=menuitem][aria-disabled=false]")
    found = {item.get_attribute("data-verb") for item in items.all()}
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)
    expect(page.get_by_role("button", name="Actions")).to_be_focused()
    return found


def state(page: Any, *states: str) -> None:
    expect(page.locator(".job-head .pill")).to_have_text(re.compile("|".join(states)))


def test_every_verb_with_confirmation_and_only_the_legal_ones(site: Any, open_page: Any) -> None:
    opened = open_page()
    page = opened.page
    page.get_by_role("button", name="Submit a job").click()
    dialog = page.get_by_role("dialog", name="Submit a job")
    dialog.get_by_label("Program", exact=True).fill("/etc/passwd")
    dialog.get_by_role("button", name="Submit").click()
    expect(dialog.get_by_role("alert")).to_contain_text("HR-SERVER-")
    text = site.world.programs / "second.py"
    text.write_text(
        (site.world.programs / "shop.py")
        .read_text()
        .replace("'shop'", "'second'")
        .replace("out-shop", "out-second")
    )
    dialog.get_by_label("Program", exact=True).fill(str(text))
    dialog.get_by_label("Start it at once").uncheck()
    dialog.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", name="second", exact=True)).to_be_visible()

    state(page, "inactive")
    assert legal_now(page) == {str(v) for v in legal(State.INACTIVE)}
    do(page, "activate", "Activate")
    state(page, "running")
    assert legal_now(page) == {str(v) for v in legal(State.RUNNING)}
    expect(page.locator(".tile").first).to_be_visible()

    menu(page).locator("[data-verb=kill]").click()  # thought better of
    dialog = page.get_by_role("dialog", name="Kill second?")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    state(page, "running")

    page.get_by_role("button", name="Restart", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    state(page, "stopping", "starting")
    state(page, "running")

    menu(page).locator("[data-verb=rebalance]").click()
    page.get_by_label("Tasks of a level").fill("3")
    page.get_by_role("dialog").get_by_role("button", name="Rebalance").click()
    expect(page.locator(".job-head .facts")).to_contain_text(re.compile(r"parallelism\s*3"))
    state(page, "running")

    page.get_by_role("button", name="Deactivate", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Deactivate").click()
    state(page, "inactive")
    do(page, "activate", "Activate")
    state(page, "running")
    do(page, "kill", "Kill")
    state(page, "killed")
    do(page, "activate", "Activate")
    state(page, "running")
    do(page, "drain", "Drain")
    state(page, "draining", "ended")
    state(page, "ended")

    do(page, "remove", "Remove")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    expect(page.get_by_role("link", name="second", exact=True)).to_have_count(0)


def test_an_upgrade_shows_its_plan_before_and_says_when_it_is_refused(
    site: Any, open_page: Any
) -> None:
    program = site.world.programs / "shop.py"
    before = program.read_text()
    page = open_page().go("jobs", "shop", "versions")
    expect(page.get_by_role("table", name="Versions")).to_contain_text("current")

    program.write_text(before.replace('.key_by("customer").window', '.key_by("price").window'))
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("heading", name="The upgrade would be refused")).to_be_visible()
    expect(page.get_by_role("button", name="Upgrade …")).to_have_count(0)

    program.write_text(before.replace('"price > 1"', '"price > 2"'))
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("heading", name="What the upgrade to version 2 does")).to_be_visible()
    page.get_by_role("button", name="Upgrade …").click()
    page.get_by_role("dialog").get_by_role("button", name="Upgrade").click()
    row = (
        page.get_by_role("table", name="Versions")
        .get_by_role("row")
        .filter(has=page.get_by_role("rowheader", name=re.compile("^2")))
    )
    expect(row).to_contain_text("in place")
    state(page, "running")


def test_a_job_that_fails_while_it_is_watched(site: Any, open_page: Any) -> None:
    site.world.send('{"k": "a", "n": 1}')
    opened = open_page()
    page = opened.go("jobs", "strict")
    page.get_by_role("button", name="Activate").click()
    page.get_by_role("dialog").get_by_role("button", name="Activate").click()
    state(page, "running")
    expect(page.locator(".tile").first).to_be_visible()

    site.world.send('{"k": "b", "n": 13}')
    state(page, "failed")
    expect(page.locator(".problem .fact").first).to_contain_text("13 is not for us")
    expect(page.locator("#live")).to_contain_text("strict is failed")
    assert page.title() == "strict · failed · Headrace"
    page.get_by_role("link", name="logs").click()
    expect(page.get_by_role("log")).to_contain_text("13 is not for us")
    opened.go()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="strict"))
    expect(row).to_contain_text("13 is not for us")


def test_a_server_that_is_started_again_under_an_open_page(site: Any, open_page: Any) -> None:
    opened = open_page()
    page = opened.go("jobs", "shop")
    expect(page.locator(".tile").first).to_be_visible()
    epoch = page.locator(".facts .fixed").first
    before = int(epoch.inner_text().replace(",", ""))

    site.close()
    try:
        see_it_gone(page)
    finally:
        site.open()
    banner = page.locator(".banner")
    page.get_by_role("button", name="Try now").click()
    expect(banner).to_have_count(0)
    expect(page.locator("#live")).to_have_text("The server answers again")
    site.world.until(lambda: int(epoch.inner_text().replace(",", "")) > before, "the page goes on")


def see_it_gone(page: Any) -> None:
    banner = page.locator(".banner")
    expect(banner).to_contain_text("The server does not answer")
    expect(banner).to_contain_text("Jobs go on without it")
    expect(page.locator("#live")).to_have_text("The server does not answer")
    until(
        page, "/Next try in ([4-9]|1\\d) s/.test(document.querySelector('.banner').innerText)"
    )  # later and later
    expect(page.locator(".tile").first).to_be_visible()  # what was known stays


def test_who_may_only_read_gets_no_buttons_that_change_something(open_page: Any) -> None:
    opened = open_page("read")
    page = opened.page
    expect(page.locator(".role")).to_contain_text("read only")
    expect(page.get_by_role("button", name="Submit a job")).to_have_count(0)
    opened.go("jobs", "shop")
    assert legal_now(page) == set()
    for tab in ("dead", "versions", "savepoints"):
        opened.go("jobs", "shop", tab)
        page.locator(".tab-panel table, .tab-panel .empty:not([aria-busy])").first.wait_for()
        expect(
            page.locator(".tab-panel").get_by_role(
                "button", name=re.compile("Replay|Show the plan|Make it|Delete")
            )
        ).to_have_count(0)


@pytest.mark.parametrize(
    "name", ["no such job", "../../etc", "<img src=x onerror=document.title=1>"]
)
def test_a_job_that_there_is_not(open_page: Any, name: str) -> None:
    page = open_page().go("jobs", name)
    expect(page.get_by_role("alert")).to_contain_text("HR-SERVER-")
    assert page.locator("main img").count() == 0
    page.get_by_role("link", name="All jobs").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
