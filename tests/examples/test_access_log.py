"""The access log: what is counted and alerted, from the lines themselves, by plain Python."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import pytest
from examples.data.access_log import MINUTES, OUTAGE, lines
from examples.data.playing import BEGIN, topic

import headrace as hr
from tests.examples.playing import PLACES, played

COMBINED = re.compile(
    r'(?P<host>\S+) \S+ \S+ \[[^\]]+\] "[A-Z]+ (?P<url>\S+) HTTP/[\d.]+" (?P<status>\d{3}) '
    r'(?P<size>\d+|-) "(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*"'
)
COUNTRIES = {"192.0.2": "SE", "198.51.100": "IN", "203.0.113": "BR"}


@pytest.fixture(scope="module", params=PLACES)
def printed(request, tmp_path_factory) -> Iterator[str]:
    with played(request, tmp_path_factory, "access_log", max_batch=1_500) as text:
        yield text


class Request(NamedTuple):
    second: float
    server: str
    page: str
    status: int
    bytes: int
    country: str


@cache
def sent() -> tuple[list[Request], list[str]]:
    """The requests, and the lines that are none."""
    good, bad = [], []
    for record in lines():
        shipped = json.loads(record)
        found = COMBINED.fullmatch(shipped["line"])
        if found is None:
            bad.append(shipped["line"])
            continue
        second = datetime.fromisoformat(shipped["at"]).timestamp() - BEGIN
        page = re.split("[?#]", found["url"])[0]
        size = 0 if found["size"] == "-" else int(found["size"])
        country = COUNTRIES.get(found["host"].rpartition(".")[0], "other")
        good.append(Request(second, shipped["server"], page, int(found["status"]), size, country))
    return good, bad


def by_minute(key: str, requests: list[Request]) -> dict[Any, tuple[int, int]]:
    """Requests and bytes by key and minute."""
    counts: Counter[Any] = Counter()
    sizes: Counter[Any] = Counter()
    for request in requests:
        group = (getattr(request, key), request.second // 60)
        counts[group] += 1
        sizes[group] += request.bytes
    return {group: (n, sizes[group]) for group, n in counts.items()}


def counted(name: str, key: str) -> dict[Any, tuple[int, int]]:
    rows = topic(name)
    found = {
        (row[key], (row["window_start"].timestamp() - BEGIN) // 60): (row["requests"], row["bytes"])
        for row in rows
    }
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize(("name", "key"), [("by-status", "status"), ("by-country", "country")])
def test_requests_and_bytes_are_counted_each_minute(printed: str, name: str, key: str) -> None:
    expected = by_minute(key, sent()[0])
    assert counted(name, key) == expected
    assert len({group for group, _ in expected}) >= 4 and len(expected) > 3 * MINUTES


def test_the_top_pages_are_the_most_requested_of_each_minute(printed: str) -> None:
    groups = defaultdict(list)
    for (page, minute), (n, size) in by_minute(
        "page", [r for r in sent()[0] if r.status < 400]
    ).items():
        groups[minute].append((-n, page, size))
    expected = {
        (minute, rank, page, -n, size)
        for minute, pages in groups.items()
        for rank, (n, page, size) in enumerate(sorted(pages)[:3], 1)
    }
    found = {
        (
            (r["window_start"].timestamp() - BEGIN) // 60,
            r["rank"],
            r["page"],
            r["requests"],
            r["bytes"],
        )
        for r in topic("top-pages")
    }
    assert found == expected and len(expected) == 3 * MINUTES


def test_a_server_is_alerted_while_it_fails(printed: str) -> None:
    windows = defaultdict(lambda: [0, 0])
    for request in sent()[0]:
        first = int(request.second // 10 * 10) + 10
        for end in range(first, first + 60, 10):
            windows[request.server, end][0] += 1
            windows[request.server, end][1] += request.status >= 500
    expected = {
        (server, end, n, failed)
        for (server, end), (n, failed) in windows.items()
        if failed >= 10 and failed * 5 > n
    }
    found = {
        (r["server"], r["window_end"].timestamp() - BEGIN, r["requests"], r["failed"])
        for r in topic("alerts")
    }
    assert found == expected and expected
    server, start, end = OUTAGE
    assert {s for s, *_ in expected} == {server}
    ends = [at for _, at, *_ in expected]
    assert start < min(ends) <= start + 60 and end < max(ends) <= end + 60


def test_a_line_in_another_format_is_a_dead_letter_with_the_line(printed: str) -> None:
    dead, bad = hr.read_output("job/dead").to_pylist(), sent()[1]
    assert Counter(json.loads(letter["record"])["line"] for letter in dead) == Counter(bad)
    assert len(bad) > 20 and len({letter["step"] for letter in dead}) == 1
    assert hr.read_output(".headrace/access-log/late").num_rows == 0
    assert f"{len(sent()[0]) + len(bad):,} lines, of which {len(bad)} are not" in printed
    assert f"alerts      {OUTAGE[0]}, from " in printed
