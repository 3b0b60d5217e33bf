"""Joins of tables: what the changes add up to must be the join of what the tables hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.joins.driving import (
    ALWAYS,
    NEVER,
    OPTIONS,
    SCHEMA,
    Row,
    Turn,
    Watermark,
    examples,
    plain,
    send,
    turns,
)

KINDS = [(how, "event") for how in ("inner", "left", "semi", "anti", "right", "full")]
KINDS += [(how, "processing") for how in ("left", "right", "full")]


@dataclass
class Model:
    """Tables as dicts: rows whose value is a multiple of five delete their key."""

    how: str
    foreign: bool
    processing: bool
    coming: dict[str, list[Row]] = field(default_factory=lambda: {"a": [], "b": []})
    tables: dict[str, dict[Any, Row]] = field(default_factory=lambda: {"a": {}, "b": {}})

    def step(self, new: dict[str, list[Row]], after: int) -> Counter[tuple[Any, ...]]:
        for name, table in self.tables.items():
            coming = self.coming[name] + new[name]
            due = [r for r in coming if r.time < after or self.processing]
            self.coming[name] = [r for r in coming if r not in due]
            for row in sorted(due, key=lambda r: r.time):
                if self.key(name, row) is None:
                    continue
                table.pop(self.key(name, row), None)
                if row.value % 5:
                    table[self.key(name, row)] = row
        return Counter(self.joined())

    def key(self, name: str, row: Row) -> Any:
        """A left row of a foreign join is known by its value, and points by its key."""
        return row.value % 11 if self.foreign and name == "a" else row.key

    def joined(self) -> list[tuple[Any, ...]]:
        left, right = self.tables["a"].values(), self.tables["b"]
        found: list[tuple[Any, ...]] = []
        for a in left:
            own = (a.value % 11,) if self.foreign else ()
            mine, b = (a.key, a.value, a.time, *own), right.get(a.key)
            if self.how in ("semi", "anti"):
                found += [mine] if (b is None) == (self.how == "anti") else []
            elif b is not None:
                found.append((*mine, b.value, b.time))
            elif self.how in ("left", "full"):
                found.append((*mine, None, None))
        if self.how in ("right", "full"):
            known = {a.key for a in left}
            nobody = (None,) * (3 if self.foreign else 2)
            found += [(b.key, *nobody, b.value, b.time) for k, b in right.items() if k not in known]
        return found


@pytest.mark.parametrize("foreign", [False, True], ids=["by key", "by foreign key"])
@pytest.mark.parametrize(("how", "time"), KINDS)
@settings(max_examples=examples(1), **OPTIONS)
@given(data=st.data())
def test_the_changes_add_up_to_the_join(how: str, time: str, foreign: bool, data: Any) -> None:
    model = Model(how, foreign, time == "processing")
    mark, told = Watermark(("a", "b")), Counter[tuple[Any, ...]]()
    own = Watermark(("a",))  # a left table that points goes by itself at first
    with Harness(job(how, time, foreign)) as harness:
        for turn in [*data.draw(turns()), None]:
            before = {"a": own.value if foreign else mark.value, "b": mark.value}
            rows = distinct(turn) if turn else {}
            if turn is None:
                harness.end()
                after = ALWAYS
            else:
                if turn.event:
                    harness._tasks = harness._tasks % 3 + 1  # others share the keys after a start
                    getattr(harness, turn.event)()
                send(harness, rows)
                after = mark.after(Turn(rows, ""))
                own.after(Turn({p: mine for p, mine in rows.items() if p[0] == "a"}, ""))
            new: dict[str, list[Row]] = {"a": [], "b": []}
            for (name, _), mine in rows.items():
                timely = NEVER if model.processing else before[name]
                new[name] += [r for r in mine if r.time >= timely]
            for row in harness.output("out"):
                *values, change = map(plain, row.values())
                told[tuple(values)] += 1 if change == "+" else -1
                assert told[tuple(values)] in (0, 1), (values, change)
            assert +told == model.step(new, after)
        assert harness.late("after") == []


def job(how: str, time: str, foreign: bool) -> hr.Job:
    job = hr.Job("tables")
    a, b = (job.read(f"log:{n}", schema=SCHEMA, time="at", delay="4s", name=n) for n in "ab")
    left = a.with_columns(own="v % 11") if foreign else a
    left = left.table("own" if foreign else "k", delete="v % 5 = 0", unbounded=True)
    joined = left.join(b.table("k", delete="v % 5 = 0", unbounded=True), on="k", how=how, time=time)
    joined.write("console:", name="out")
    counts = joined.window(hr.tumbling("1s")).agg(n=hr.count(), name="after")
    counts.write("console:", name="windows")
    return job


def distinct(turn: Turn) -> dict[tuple[str, int], list[Row]]:
    """No two changes of one key at one moment, in any batch."""
    return {
        place: [r._replace(time=r.time // 1_000 * 1_000 + r.value % 1_000) for r in rows]
        for place, rows in turn.rows.items()
    }
