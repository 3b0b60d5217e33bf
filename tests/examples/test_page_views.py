"""Page views: what each consumer gets, from the records themselves."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

import pytest
from examples.data.page_views import OUTAGES, PAGES, views
from examples.data.playing import BEGIN, topic

import headrace as hr
from tests.examples.playing import PLACES, played


@pytest.fixture(scope="module", params=PLACES)
def printed(request, tmp_path_factory) -> Iterator[str]:
    with played(request, tmp_path_factory, "page_views", max_batch=3_000) as text:
        yield text


@cache
def sent() -> tuple[list[dict[str, Any]], int]:
    """The views, with their second; and how many records are cut off."""
    records = list(views())
    whole = [json.loads(r) for r in records if r.endswith(b"}")]
    for view in whole:
        view["second"] = datetime.fromisoformat(view["at"]).timestamp() - BEGIN
    return whole, len(records) - len(whole)


def told() -> Iterator[tuple[str, bool, float, float]]:
    """A model of the alerts: page, whether it fails, share and end of the window."""
    windows = defaultdict(lambda: [0, 0])
    for view in sent()[0]:
        first = view["second"] // 10 * 10 + 10
        for end in range(int(first), int(first) + 60, 10):
            windows[view["page"], end][0] += 1
            windows[view["page"], end][1] += view["status"] >= 500
    failing = defaultdict(bool)
    for (page, end), (seen, failed) in sorted(windows.items()):
        ill = failing[page]
        turns = failed / seen < 0.05 if ill else seen >= 20 and failed / seen > 0.2
        if turns:
            failing[page] = not ill
            yield page, not ill, failed / seen, end


def test_the_archive_has_every_view_once(printed: str) -> None:
    kept = hr.read_output(".headrace/page-views/archive").to_pylist()
    columns = ("page", "author", "visitor", "status")
    whole, cut = sent()
    assert Counter(tuple(v[c] for c in columns) for v in kept) == Counter(
        tuple(v[c] for c in columns) for v in whole
    )
    assert hr.read_output("job/dead").num_rows == cut > 10
    assert hr.read_output(".headrace/page-views/late").num_rows == 0


def test_the_dashboard_counts_views_and_visitors_every_ten_seconds(printed: str) -> None:
    visits = defaultdict(list)
    for view in sent()[0]:
        visits[view["page"], view["second"] // 10 * 10].append(view["visitor"])
    rows = topic("dashboard")
    found = {
        (r["page"], r["window_start"].timestamp() - BEGIN): (r["views"], r["visitors"])
        for r in rows
    }
    assert len(rows) == len(found)
    assert found == {key: (len(names), len(set(names))) for key, names in visits.items()}


def test_the_alerts_are_those_of_a_plain_model_and_tell_the_outages(printed: str) -> None:
    alerts = [
        (a["page"], a["failing"], pytest.approx(a["share"]), a["at"].timestamp() - BEGIN)
        for a in topic("alerts")
    ]
    expected = list(told())
    assert sorted(alerts, key=lambda a: (a[0], a[3])) == expected
    assert len(expected) == 2 * len(OUTAGES)
    for outage in OUTAGES:
        (_, _, _, raised), (_, _, _, cleared) = (a for a in expected if a[0] == outage.page)
        assert outage.start < raised <= outage.start + 60
        assert outage.end < cleared <= outage.end + 70


def test_an_author_is_told_when_a_page_was_seen_often(printed: str) -> None:
    seen = Counter(v["page"] for v in sent()[0] if v["status"] < 400)
    expected = Counter(
        (PAGES[page][0], f"{page} was seen {n} times")
        for page, count in seen.items()
        for n in (100, 1_000, 10_000)
        if n <= count
    )
    assert Counter((m["to"], m["subject"]) for m in topic("mails")) == expected
    assert len(expected) > len(PAGES)
    assert f"mails      {expected.total()}\n" in printed


def test_it_prints_what_each_consumer_got(printed: str) -> None:
    assert f"archive    {len(sent()[0]):,} views" in printed
    for outage in OUTAGES:
        assert f"alert      {outage.page} fails after" in printed
        assert f"alert      {outage.page} is well again after" in printed
