"""The digest: every update told once, at most one mail an hour, what is urgent first."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from itertools import pairwise

import pytest
from examples.data.digest import updates
from examples.data.playing import topic

from headrace.cli.loading import load_job
from headrace.testing import Harness
from tests.examples.playing import EXAMPLES, PLACES, played

HOUR = 3_600_000
WAITS = {"urgent": 0, "normal": HOUR // 2, "low": 6 * HOUR}
Update = tuple[int, int, str, str]  # how long it may wait, time, text, priority
Mail = tuple[str, int, str, tuple[str, ...], int]


@pytest.fixture(scope="module", params=PLACES)
def printed(request, tmp_path_factory) -> Iterator[str]:
    with played(request, tmp_path_factory, "digest", max_batch=60) as text:
        yield text


@cache
def sent() -> dict[str, list[Update]]:
    """By member, in the order in which they happened."""
    found = defaultdict(list)
    for u in map(json.loads, updates()):
        at = round(datetime.fromisoformat(u["at"]).timestamp() * 1_000)
        found[u["member"]].append((WAITS[u["priority"]], at, u["text"], u["priority"]))
    return {member: sorted(rows, key=lambda r: r[1]) for member, rows in found.items()}


def model(member: str, rows: list[Update]) -> Iterator[Mail]:
    """A postman who sees one update after the other, and looks at the clock."""
    waiting, last = [], 0
    for row in [*rows, None]:
        while waiting:
            due = max(last + HOUR, min(wait + at for wait, at, _, _ in waiting))
            if row is not None and row[1] <= due:
                break
            yield letter(member, due, sorted(waiting))
            waiting, last = [], due
        waiting.append(row)


def letter(member: str, at: int, told: list[Update]) -> Mail:
    first = told[0][2] + (f", and {len(told) - 1} more" if len(told) > 1 else "")
    lines = tuple(f"{priority}: {text}" for _, _, text, priority in told[:5])
    return member, at, first, lines, max(0, len(told) - 5)


def mails() -> list[Mail]:
    return [
        (
            m["member"],
            round(m["at"].timestamp() * 1_000),
            m["subject"],
            tuple(m["lines"]),
            m["more"],
        )
        for m in topic("mails")
    ]


def test_the_mails_are_those_of_a_postman(printed: str) -> None:
    expected = [mail for member, rows in sent().items() for mail in model(member, rows)]
    assert Counter(mails()) == Counter(expected)
    assert f"updates became {len(expected):,} mails" in printed


def test_every_update_is_told_once_and_no_member_gets_two_mails_an_hour(printed: str) -> None:
    told, times = Counter(), defaultdict(list)
    for member, at, _, lines, more in mails():
        told[member] += len(lines) + more
        times[member].append(at)
    assert told == {member: len(rows) for member, rows in sent().items()}
    gaps = [b - a for mine in times.values() for a, b in pairwise(sorted(mine))]
    assert min(gaps) == HOUR  # some had to wait for the hour


def update(minute: int, priority: str, text: str) -> dict[str, object]:
    return {"member": "ada", "priority": priority, "text": text, "at": minute * 60_000}


def test_what_is_urgent_takes_along_what_waits_and_then_waits_for_the_hour() -> None:
    with Harness(load_job(EXAMPLES / "digest.py")) as test:
        test.send("updates", [update(100, "low", "a birthday"), update(110, "normal", "a comment")])
        assert test.output() == []
        test.crash()
        test.send("updates", [update(120, "urgent", "a message")])
        test.watermark("updates", "7201s")
        (mail,) = test.output()
        assert mail["lines"] == ["urgent: a message", "normal: a comment", "low: a birthday"]
        test.send("updates", [update(130, "urgent", "another")])
        test.watermark("updates", f"{179 * 60}s")
        assert test.output() == []
        test.watermark("updates", f"{180 * 60}s")
        assert [mail["subject"] for mail in test.output()] == ["another"]


def test_what_it_keeps_is_forgotten() -> None:
    with Harness(load_job(EXAMPLES / "digest.py")) as test:
        test.send("updates", [update(100, "urgent", "a message")])
        test.watermark("updates", "3d")
        test.watermark("updates", "5d")
        assert len(test.output()) == 1
        assert all(table.num_rows == 0 for table in test.state().values())
