"""The page over a job on real Spark: everything that is looked at and done, once, in one story."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from headrace.restarts import command_of
from headrace.server.lifecycle import State
from tests.page.conftest import PATIENCE, Opened
from tests.page.site import EVIL, Site

expect.set_options(timeout=PATIENCE)
SLOW = 180_000  # ms: a JVM starts, beside others


@pytest.fixture
def on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.delenv("HEADRACE_ZYGOTE", raising=False)  # of this process's own Spark
    made = Site(tmp_path, command_of)
    made.open()
    try:
        yield made
    finally:
        made.end()


@pytest.mark.spark
def test_a_job_on_spark_is_watched_looked_into_and_drained(
    on_spark: Site, browser: Any, shots: Path | None
) -> None:
    site, service = on_spark, on_spark.world.service
    service.submit(site.program("hostile.py"), options={"master": "local[2]"})
    opened = Opened(site, browser, "operate", {})
    page = opened.go("jobs", "hostile")
    expect(page.locator(".job-head .pill")).to_have_text("running", timeout=SLOW)
    figure = page.locator(".tile").filter(has_text="Dead letters").locator("dd").first
    expect(figure).to_have_text(re.compile("[1-9]"), timeout=SLOW)
    expect(page.get_by_role("table", name="Outputs")).to_contain_text("sums out")
    memory = page.locator("[data-plot=memory]")
    expect(memory.locator(".key").filter(has_text="JVM")).to_contain_text("MB", timeout=SLOW)

    opened.go("jobs", "hostile", "graph")
    node = page.get_by_role("button", name=re.compile("^sums, window"))
    expect(node).to_have_accessible_name(re.compile(r"\d/s in"), timeout=SLOW)
    expect(page.locator(".edge .flow").filter(has_text=re.compile(r"\d/s")).first).to_be_visible()
    expect(page.locator(".edge .how").filter(has_text="wm").first).to_be_visible()
    page.get_by_role("button", name="Physical plan").click()
    expect(page.locator(".band-name").first).to_contain_text("Level")

    opened.go("jobs", "hostile", "windows")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="sums"))
    expect(row).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))

    opened.go("jobs", "hostile", "backpressure")
    phases = page.get_by_role("region", name="Where the time of an epoch goes")
    expect(phases).to_contain_text("addBatch")  # Spark's own
    expect(phases).to_contain_text("level 1")

    opened.go("jobs", "hostile", "state")
    page.get_by_role("button", name="spent", exact=True).click(timeout=SLOW)
    result = page.get_by_role("table", name="Result of the query")
    expect(result.locator("tbody tr")).to_have_count(12, timeout=SLOW)  # customers

    opened.go("jobs", "hostile", "dead")
    page.get_by_role("button", name=re.compile(r"^#\d+")).first.click(timeout=SLOW)
    expect(page.locator(".letter").get_by_label("Record")).to_contain_text(EVIL, timeout=SLOW)
    expect(page.locator(".letter")).to_contain_text("Traceback (most recent call last)")
    page.get_by_role("button", name="Replay this letter").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 dead letter will be replayed", timeout=SLOW)
    dialog.get_by_role("button", name="Replay").click()
    expect(dialog).to_have_count(0, timeout=SLOW)

    opened.go("jobs", "hostile", "why")
    expect(page.locator(".reasons")).to_contain_text("came too late", timeout=SLOW)
    opened.go("jobs", "hostile", "logs")
    expect(page.get_by_role("log")).to_contain_text("order 0 <img", timeout=SLOW)

    opened.go("jobs", "hostile")
    if shots is not None:
        page.wait_for_timeout(20_000)
        page.screenshot(path=shots / "page-spark.png")
    page.get_by_role("button", name="Actions").click()
    page.locator("[data-verb=drain]").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(page.locator(".job-head .pill")).to_have_text("ended", timeout=SLOW)
    opened.go("jobs", "hostile", "events")
    expect(page.get_by_role("row").filter(has_text="drain").first).to_be_visible()
    assert site.world.state("hostile") == State.ENDED
    totals = service.job("hostile").figures["totals"]
    fates = ("used", "filtered", "late", "dead")
    assert totals["read"] == sum(totals[fate] for fate in fates) > 0
    assert not opened.complaints()
    opened.context.close()
