"""Windowed bolts: windows of time and of rows, of each task, against plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness
from tests.topology.bolts import Exclaim

ROWS = [("a", v, 700 * v) for v in range(12)]


def seen(key: Any, window: Any, rows: Any) -> Any:
    return (",".join(str(row.v) for row in rows),)


def by_value(tup: Any, tasks: int) -> Any:
    if tup.v == 5:
        raise ValueError("five")
    return [0, 1] if tup.v == 4 else tup.v % tasks


def windows(
    window: Any, tasks: int = 2, fn: Any = seen, grouping: Any = by_value, **more: Any
) -> hr.Topology:
    topology = hr.Topology("windows")
    topology.spout(
        "rows", "log:rows", schema="k string, v bigint, at bigint", time="at", in_order=True
    )
    topology.bolt("w", fn, tasks=tasks, window=window, schema="seen string", **more).custom(
        "rows", grouping
    )
    topology.bolt("out", "collect:").shuffle("w")
    return topology


def of_tasks() -> dict[int, list[int]]:
    return {0: [0, 2, 4, 6, 8, 10], 1: [1, 3, 4, 7, 9, 11]}


def play(topology: hr.Topology, cut: int) -> tuple[list[tuple[Any, ...]], list[str]]:
    with Harness(topology) as test:
        for first in range(0, len(ROWS), cut):
            test.send("rows", ROWS[first : first + cut])
            if first == cut:
                test.crash()
        test.end()
        out = sorted((r["task"], r["window_start"], r["seen"]) for r in test.output("out"))
        return out, [d["error"] for d in test.dead()]


@pytest.mark.parametrize("cut", [1, 5, 12])
@pytest.mark.parametrize("slide", [3_000, 1_000])
def test_windows_of_time(cut: int, slide: int) -> None:
    expected = set()
    for task, values in of_tasks().items():
        for start in range(-2_000 if slide == 1_000 else 0, 9_000, slide):
            inside = [v for v in values if start <= 700 * v < start + 3_000]
            if inside:
                expected.add((task, start, ",".join(map(str, inside))))
    out, dead = play(windows(hr.sliding("3s", f"{slide}ms")), cut)
    found = {(task, int(start.timestamp() * 1_000), text) for task, start, text in out}
    assert found == expected and len(out) == len(expected)
    assert dead == ["ValueError: five"]


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_windows_of_rows(cut: int) -> None:
    expected = [
        (task, ",".join(map(str, values[i : i + 2])))
        for task, values in of_tasks().items()
        for i in range(0, len(values), 2)
    ]
    out, _ = play(windows(hr.tumbling(rows=2)), cut)
    assert sorted((task, text) for task, _, text in out) == sorted(expected)


class Nth(hr.WindowProcess):
    """Values of a task that outlive its windows."""

    nth = hr.value(int, default=0)

    def process(self, key: Any, window: Any, rows: Any) -> Any:
        self.nth += 1
        return (f"task {key}, window {self.nth}, {len(rows)} rows",)


def test_a_window_function_has_state_by_task() -> None:
    out, _ = play(windows(hr.tumbling("5s"), fn=Nth()), 3)
    assert [text for _, _, text in out] == [
        "task 0, window 1, 4 rows", "task 0, window 2, 2 rows",
        "task 1, window 1, 4 rows", "task 1, window 2, 2 rows",
    ]  # fmt: skip


def test_late_tuples_are_a_stream() -> None:
    topology = windows(hr.tumbling("2s"), tasks=1, grouping=zero)
    topology.bolt("late", "collect:").shuffle("w", "late")
    with Harness(topology) as test:
        test.send("rows", [("a", 1, 5_000)])
        test.send("rows", [("a", 2, 100)])
        assert [row["v"] for row in test.output("late")] == [2]


def zero(tup: Any, tasks: int) -> int:
    return 0


def test_another_number_of_tasks_or_grouping_is_refused(tmp_path: Path) -> None:
    with Harness(windows(hr.tumbling("2s")), folder=tmp_path) as test:
        test.send("rows", ROWS[:2])
    for other in (windows(hr.tumbling("2s"), tasks=3), windows(hr.tumbling("2s"), grouping=zero)):
        with pytest.raises(hr.StateError, match="the key 'task' was custom by_value, to 2 tasks"):
            Harness(other, folder=tmp_path)
    Harness(windows(hr.tumbling("2s")), folder=tmp_path).close()


def test_what_windows_cannot_be() -> None:
    topology = windows(hr.tumbling("2s"))
    topology.bolt("again", seen, window=hr.tumbling("4s"), schema="seen string").global_("w")
    topology.bolt("end", "collect:").shuffle("again")
    with pytest.raises(hr.PlanError, match="HR-TOPOLOGY-025"):
        topology.check()
    topology = windows(hr.tumbling("2s"), fn=Exclaim())
    with pytest.raises(hr.PlanError):
        topology.check()
