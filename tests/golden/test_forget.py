"""A key is forgotten in every folder that a release has left; the job goes on as for other keys.

The folder is looked through by code of its own: every block of every run, by Arrow alone. Every
fourth job goes on to its end, with HEADRACE_EXAMPLES all of them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from tests.golden.test_golden import LEFT, every_folder, unpacked, without

KEY = "c"
# Outputs that depend on how often the key has come, in steps after those that have forgotten it, or
# that show rows of the key without it.
OTHERS = {
    "boards": ["most out"],
    "chained": ["best out"],
    "by_task": ["counts out"],
    "keys": ["area out", "several out"],
}
NOT_KEYED = {"letters"}  # nothing of it has the column
# Steps that hold the value in rows of other keys, and say so.
HELD = {
    "boards": {"best", "board", "ended", "most"}, "chained": {"best"}, "first_sights": {"new"},
    "graphs": {"named"}, "in_order": {"tasks"}, "learned": {"grown", "trees"},
    "loops": {"model", "paused"}, "patterns": {"plain"}, "replays": {"pairs"},
    "tables": {"foreign changes"}, "topologies": {"highest", "window"},
    "without_a_key": {"changes", "clock", "lists", "some", "top"},
}  # fmt: skip


@every_folder
def test_a_key_is_forgotten_and_the_job_goes_on(left, home):
    play, known = unpacked(left, home / "here")
    if left.stem in NOT_KEYED:
        with pytest.raises(hr.StateError, match="keyed by 'area'") as refused:
            hr.forget(play.folder, {"area": KEY})
        assert refused.value.code == "HR-FORGET-003"
        return
    before = values(play.folder)

    report = hr.forget(play.folder, {"area": KEY})

    held = {one.where.split("'")[1] for one in report.remaining if one.where.startswith("state")}
    assert held <= HELD.get(left.stem, set())
    assert report.count > 0 and (values(play.folder) == 0 or held)
    assert before == 0 or values(play.folder) < before or held
    play.verdicts()
    if "HEADRACE_EXAMPLES" not in os.environ and LEFT.index(left) % 4:
        return
    again = hr.forget(play.folder, {"area": KEY})
    assert (again.count, again.remaining) == (0, report.remaining)
    play.second_half()
    found, expected = play.outputs(), without(known["outputs"], play.left_out())
    for name in expected.keys() - set(OTHERS.get(left.stem, ())):
        assert others(found.get(name, [])) == others(expected[name]), name


def others(rows: list[str]) -> list[str]:
    """Rows without the key, also of dead letters, whose record is JSON within JSON."""
    plain = {row: row.replace("\\", "") for row in rows}
    return [row for row in rows if f'"area": "{KEY}"' not in plain[row]]


def values(folder: Path) -> int:
    """How often the key's value is in state, as a text of its own, at any depth."""
    tables = (table for path in folder.glob("runs/*") for table in runs(path.read_bytes()))
    return sum(1 for table in tables for row in table.to_pylist() for v in leaves(row) if v == KEY)


def runs(data: bytes) -> Iterator[pa.Table]:
    """Arrow streams, one after the other, each at a multiple of 64 bytes, after a header of 64."""
    at = 64
    while at < len(data):
        stream = io.BytesIO(data[at:])
        yield pa.ipc.open_stream(stream).read_all()
        at += -(-stream.tell() // 64) * 64


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value
