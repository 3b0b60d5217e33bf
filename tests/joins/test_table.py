"""Joins with a table: as of the row's event time, against a plain model and against DuckDB."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.joins.driving import ALWAYS, DELAY, OPTIONS, Driven, Row, examples, turns

HOWS = ("inner", "left", "right", "full", "semi", "anti")


@dataclass
class Model:
    how: str
    within: int | None
    lateness: int
    deletes: bool
    a: list[Row] = field(default_factory=list)
    b: list[Row] = field(default_factory=list)

    def step(self, new: dict[str, list[Row]], before: int, after: int) -> list[Any]:
        self.a += new["a"]
        self.b += new["b"]
        low, high = before - self.lateness, after - self.lateness
        found: list[Any] = []
        for a in self.a:
            if low <= a.time < high:
                b = self.version(a)
                mine = (a.key, a.value, a.time)
                if self.how in ("semi", "anti"):
                    found += [(a.time, mine)] if (b is None) == (self.how == "anti") else []
                elif b is not None or self.how in ("left", "full"):
                    theirs = (None, None) if b is None else (b.value, b.time)
                    found.append((a.time, (*mine, *theirs)))
        if self.how in ("right", "full"):
            found += self.unseen(low, ALWAYS if after == ALWAYS else high)
        return [(time + self.lateness, values) for time, values in found]

    def unseen(self, low: int, high: int) -> list[Any]:
        """The versions that were over in [low, high), and that no row of all that came saw."""
        seen = [self.version(a) for a in self.a]
        end = max((r.time for r in (*self.a, *self.b)), default=0) - DELAY
        found: list[Any] = []
        for b in self.b:
            if b.key is not None and not self.ends(b) and b not in seen:
                over = self.over(b)
                if over is None and high == ALWAYS:
                    found.append((max(end, b.time), b))
                elif over is not None and low <= over < high:
                    found.append((over, b))
        return [(time, (b.key, None, None, b.value, b.time)) for time, b in found]

    def over(self, b: Row) -> int | None:
        ends = [o.time for o in self.b if o.key == b.key and o.time > b.time]
        ends += [] if self.within is None else [b.time + self.within]
        return min(ends, default=None)

    def ends(self, b: Row) -> bool:
        return self.deletes and b.value % 3 == 0

    def version(self, a: Row) -> Row | None:
        since = -(2**70) if self.within is None else a.time - self.within
        seen = [b for b in self.b if b.key is not None and b.key == a.key]
        seen = [b for b in seen if since <= b.time <= a.time]
        last = max(seen, key=lambda b: b.time, default=None)
        return None if last is None or self.ends(last) else last


def distinct(drawn: list[Any]) -> list[Any]:
    """No two versions of one key at one moment: which of them counts is another test's."""
    for number, turn in enumerate(drawn):
        for (name, split), rows in turn.rows.items():
            if name == "b":
                rows[:] = [r._replace(time=r.time // 1_000 * 1_000 + r.value % 1_000) for r in rows]
                assert number >= 0 and split >= 0
    return drawn


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=examples(3), **OPTIONS)
@given(data=st.data())
def test_every_kind_gives_what_the_model_says(how: str, data: Any) -> None:
    within = data.draw(st.sampled_from([None, 0, 3_000, 12_000]))
    model = Model(how, within, data.draw(st.sampled_from([0, 2_000])), data.draw(st.booleans()))
    delete = "v % 3 = 0" if model.deletes else None

    def build(a: Any, b: Any) -> Any:
        age = None if within is None else f"{within}ms"
        table = b.table("k", delete=delete, unbounded=within is None)
        return a.join(table, on="k", how=how, within=age, lateness=f"{model.lateness}ms")

    Driven(build, model, distinct(data.draw(turns())), lateness=model.lateness).run()
