"""Wikipedia: statistics of every window and running totals, from the raw lines."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from examples.data.playing import topic
from examples.data.wikipedia import CHANNELS, MINUTES, edits

import headrace as hr
from tests.examples.playing import PLACES, played

COLUMNS = ("edits", "bytes", "titles", "minor", "new", "bot", "unpatrolled", "talk")


@pytest.fixture(scope="module", params=PLACES)
def printed(request, tmp_path_factory) -> Iterator[str]:
    with played(request, tmp_path_factory, "wikipedia", max_batch=700) as text:
        yield text


def parsed(text: str) -> tuple[str, str, int]:
    """Title, flags and bytes, by cutting; ValueError where it is no edit."""
    if not text.startswith("[["):
        raise ValueError(text)
    end = text.index("]] ")
    size = text.index(" * (") + 4
    flags = text[end + 3 : text.index(" ", end + 3)]
    return text[2:end], flags, int(text[size : text.index(")", size)])


def truth() -> tuple[dict[tuple[str, float], tuple[Any, ...]], list[str]]:
    """By channel and start of window the statistics and totals; and the lines that are none."""
    windows, bad = defaultdict(list), []
    for record in map(json.loads, edits()):
        try:
            edit = parsed(record["line"])
        except ValueError:
            bad.append(record["line"])
            continue
        at = datetime.fromisoformat(record["at"]).timestamp()
        windows[record["channel"], at // 10 * 10].append(edit)
    found, totals = {}, defaultdict(Counter)
    for (channel, start), rows in sorted(windows.items()):
        size = sum(r[2] for r in rows)
        flags = [sum(flag in r[1] for r in rows) for flag in "MNB!"]
        talk = sum(r[0].startswith(("Talk:", "User talk:")) for r in rows)
        totals[channel].update(edits=len(rows), bytes=size)
        total = (totals[channel]["edits"], totals[channel]["bytes"])
        found[channel, start] = (len(rows), size, len({r[0] for r in rows}), *flags, talk, *total)
    return found, bad


def test_every_window_and_every_total_is_that_of_a_plain_computation(printed: str) -> None:
    rows = topic("wikipedia-stats")
    found = {
        (r["channel"], r["window_start"].timestamp()): tuple(
            r[c] for c in (*COLUMNS, "all_edits", "all_bytes")
        )
        for r in rows
    }
    expected, _ = truth()
    assert len(rows) == len(found) == len(CHANNELS) * MINUTES * 6
    assert found == expected


def test_lines_that_are_no_edits_are_dead_letters_and_nothing_is_late(printed: str) -> None:
    _, bad = truth()
    letters = hr.read_output("job/dead").to_pylist()
    assert len(bad) > 20  # else this shows little
    assert Counter(json.loads(d["record"])["line"] for d in letters) == Counter(bad)
    assert {d["step"] for d in letters} == {"edit"}
    assert hr.read_output(".headrace/wikipedia/late").num_rows == 0


def test_it_prints_the_last_window_and_the_totals(printed: str) -> None:
    expected, bad = truth()
    for channel in CHANNELS:
        *_, last = (row for (name, _), row in expected.items() if name == channel)
        line = re.search(rf"{channel} .*", printed)
        assert line is not None and line[0].split()[1:9] == [str(n) for n in last[:8]]
        assert f"{last[8]:,} edits, {last[9]:+,} bytes" in line[0]
    assert f"of which {len(bad)} were not edits" in printed
