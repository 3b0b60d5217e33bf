"""Spam: what is counted, and what is seen while it runs, from the messages and both tables."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from examples.data import spam as data
from examples.data.playing import Running, topic

import headrace as hr
from headrace.cli.loading import load_job
from headrace.testing import Harness
from tests.examples.playing import EXAMPLES, PLACES, played

TABLE = ".headrace/spam/senders.parquet"
Found = tuple[int, int]  # messages, senders


def during(running: Running) -> None:
    """What the example does when it plays."""
    data.write(data.BEFORE, TABLE)
    data.live(running, table=Path(TABLE))


@pytest.fixture(scope="module", params=PLACES)
def printed(request, tmp_path_factory) -> Iterator[str]:
    with played(request, tmp_path_factory, "spam", max_batch=2_000, during=during) as text:
        yield text


@cache
def clean() -> list[tuple[datetime, str, str]]:
    """When, about what and from whom: of messages whose sender is not in the table of its time."""
    parts = ((data.BEFORE, 0, data.NEWS), (data.AFTER, data.NEWS, data.MINUTES))
    return [
        (datetime.fromisoformat(m["at"]), m["topic"], m["sender"])
        for table, first, last in parts
        for m in map(json.loads, data.messages(first, last))
        if table.get(m["sender"], 0) < 3
    ]


def counted(since: float, until: float) -> dict[str, Found]:
    """By topic, of the messages in [since, until)."""
    senders = defaultdict(list)
    for at, about, sender in clean():
        if since <= at.timestamp() < until:
            senders[about].append(sender)
    return {about: (len(names), len(set(names))) for about, names in senders.items()}


def test_every_window_counts_the_messages_that_are_no_spam(printed: str) -> None:
    found = defaultdict(dict)
    for row in topic("freqs"):
        start, end = row["window_start"].timestamp(), row["window_end"].timestamp()
        assert row["topic"] not in found[start, end]
        found[start, end][row["topic"]] = (row["messages"], row["senders"])
    assert len(found) == data.MINUTES + 15 - 1
    assert found == {window: counted(*window) for window in found}
    assert hr.read_output(".headrace/spam/late").num_rows == 0
    assert hr.read_output("job/dead").num_rows == 0


@pytest.mark.parametrize(("since", "until"), [("21:00", "21:05"), ("21:12", "21:17")])
def test_the_top_ten_of_five_minutes_can_be_asked_while_it_runs(
    printed: str, since: str, until: str
) -> None:
    day = clean()[0][0]
    hours = (
        datetime.combine(day, datetime.strptime(t, "%H:%M").time(), UTC) for t in (since, until)
    )
    expected = counted(*(moment.timestamp() for moment in hours))
    best = sorted(expected, key=lambda about: (-expected[about][0], about))[:10]
    (part,) = re.findall(rf"from {since} to {until}\n((?:  .+\n)+)", printed)
    assert [(line.split()[0], int(line.split()[1]), int(line.split()[3]))
            for line in part.splitlines()] == [(t, *expected[t]) for t in best]  # fmt: skip


def test_a_gang_is_counted_until_the_table_knows_it(printed: str) -> None:
    early, late = (printed.index(f"from {since}") for since in ("21:00", "21:12"))
    assert "lottery" in printed[early:late] and "lottery" not in printed[late:]
    assert "pills" not in printed
    spam = re.search(r"([\d,]+) messages, ([\d,]+) of them spam", printed)
    everything, removed = (int(n.replace(",", "")) for n in spam.groups())
    assert (everything, everything - removed) == (len(list(sent())), len(clean()))


def sent() -> Iterator[bytes]:
    yield from data.messages(0, data.NEWS)
    yield from data.messages(data.NEWS, data.MINUTES)


def test_the_table_is_looked_at_again_after_a_second(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    data.write({"often": 3, "seldom": 2}, TABLE)
    senders = [("often", "a", "", 0), ("seldom", "b", "", 0), ("never", "c", "", 0)]
    with Harness(load_job(EXAMPLES / "spam.py")) as test:
        test.send("messages", senders)
        data.write({"never": 99}, TABLE)
        test.send("messages", senders)  # within the same second
        test.advance("1s")
        test.crash()
        test.send("messages", senders)
        test.end()
        windows = test.output("freqs.write")
    midnight = [r for r in windows if r["window_start"].timestamp() == 0]
    assert {r["topic"]: r["messages"] for r in midnight} == {"a": 1, "b": 3, "c": 2}
