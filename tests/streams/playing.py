"""A small job beside its model: rows of several splits in random batches, crashes, restarts.

The job is the real one, in a harness. After each batch its output must be what the model says
for these rows and watermarks. How watermarks come about is tested elsewhere: the model is
told the operator's own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import MIN_TIME
from headrace.testing import Harness

SPLITS = 2
SCHEMA = "k string, v bigint, at bigint, n bigint"
EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "6"))
OPTIONS: dict[str, Any] = {
    "max_examples": EXAMPLES, "deadline": None, "print_blob": True, "database": None,
    "phases": [Phase.explicit, Phase.generate], "suppress_health_check": list(HealthCheck),
}  # fmt: skip


class Row(NamedTuple):
    k: str | None
    v: int | None
    t: int
    n: int  # its number: rows are told apart by it
    split: int
    offset: int

    @property
    def order(self) -> tuple[int, int, int]:
        return (self.t, self.split, self.offset)


@dataclass(frozen=True)
class Turn:
    rows: tuple[Row, ...]
    wait: int = 0
    before: str = ""  # "crash" or "restart"


class Model(Protocol):
    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[Any]: ...


@st.composite
def turns(draw: Any, span: int = 40, keys: int = 3) -> list[Turn]:
    """Rows that come out of order, some far behind; a null key and null values among them."""
    names = [None, *(f"k{i}" for i in range(1, keys))]
    found, offsets, number = [], [0] * SPLITS, 0
    for epoch in range(draw(st.integers(2, 6))):
        rows = []
        drawn = draw(st.lists(st.tuples(
            st.sampled_from(names), st.none() | st.integers(0, 5), st.integers(-25, span // 4),
            st.integers(0, SPLITS - 1)), max_size=14))  # fmt: skip
        for k, v, at, split in drawn:
            rows.append(Row(k, v, 100 + epoch * span // 4 + at, number, split, offsets[split]))
            offsets[split] += 1
            number += 1
        wait = draw(st.sampled_from([0, 0, 3, 12]))
        found.append(Turn(tuple(rows), wait, draw(st.sampled_from(["", "", "crash", "restart"]))))
    return found


def play(
    make: Callable[[Any], Any], model: Model, script: list[Turn], shown: Callable[[Any], Any],
    step: str, tasks: int = 2, timed: bool = True,
) -> None:  # fmt: skip
    """Run the script through the job; `shown` says what of an output row is compared."""

    def job() -> hr.Job:
        made = hr.Job("streams")
        time = {"time": "at", "delay": "5ms"} if timed else {}
        make(made.read("log:x", schema=SCHEMA, name="x", **time)).write("collect:", name="out")
        return made

    with Harness(job(), clock=1_000, tasks=tasks) as test:
        for turn in script:
            if turn.before == "restart":
                test.restart(job())
            elif turn.before == "crash":
                test.crash()
            _send(test, turn, model, shown, step)
        ahead = _watermark(test, step)
        test.end()
        _compare(test, model.step([], ahead, _watermark(test, step), test.now), shown)


def _send(test: Harness, turn: Turn, model: Model, shown: Callable[[Any], Any], step: str) -> None:
    """All rows of a turn are one batch; then batches until nothing is due."""
    before = _watermark(test, step)
    page = test._script.turn()
    page = replace(page, clock=page.clock + turn.wait)
    for split in range(SPLITS):  # all are known from the first, so their order is
        page = page.having("x", str(split))
    for split in sorted({r.split for r in turn.rows}):
        mine = [r for r in turn.rows if r.split == split]
        table = pa.table(
            {"k": [r.k for r in mine], "v": pa.array([r.v for r in mine], pa.int64()),
             "at": [r.t for r in mine], "n": [r.n for r in mine]},
            schema=test.inputs["x"],
        )  # fmt: skip
        page = test._script.rows(page, "x", str(split), table)
    test._step(page)
    after = _watermark(test, step)
    _compare(test, model.step(list(turn.rows), before, after, test.now), shown)


def _compare(test: Harness, expected: list[Any], shown: Callable[[Any], Any]) -> None:
    came = [shown(row) for row in test.output("out")]
    assert Counter(map(repr, came)) == Counter(map(repr, expected)), (came, expected)


def _watermark(test: Harness, step: str) -> int:
    latest = test._stage.start.log.latest()
    return int(latest.ops[step].watermark) if latest else MIN_TIME
