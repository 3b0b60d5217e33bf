"""Interval joins against a plain model: all kinds, disorder, late rows, crashes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.joins.driving import OPTIONS, Driven, Row, examples, turns

HOWS = ("inner", "left", "right", "full", "semi", "anti")
NONE = (None, None)


@dataclass
class Model:
    how: str
    lower: int
    upper: int
    lateness: int
    a: list[Row] = field(default_factory=list)
    b: list[Row] = field(default_factory=list)

    def step(self, new: dict[str, list[Row]], before: int, after: int) -> list[Any]:
        self.a += new["a"]
        self.b += new["b"]
        low, high = before - self.lateness, after - self.lateness
        fresh = {r.value for side in new.values() for r in side}
        found: list[Any] = []
        for a in self.a:
            met = [b for b in self.b if self.meets(a, b)]
            mine = (a.key, a.value, a.time)
            if self.how in ("inner", "left", "right", "full"):
                found += [(max(a.time, b.time), (*mine, b.value, b.time))
                          for b in met if {a.value, b.value} & fresh]  # fmt: skip
            due = a.time + max(self.upper, 0)
            if low <= due < high and not met:
                found += [(due, (*mine, *NONE))] if self.how in ("left", "full") else []
                found += [(due, mine)] if self.how == "anti" else []
            first = max(a.time, min((b.time for b in met), default=due))
            if self.how == "semi" and met and low <= first < high:
                found.append((first, mine))
        for b in self.b if self.how in ("right", "full") else ():
            due = b.time + max(-self.lower, 0)
            if low <= due < high and not any(self.meets(a, b) for a in self.a):
                found.append((due, (b.key, *NONE, b.value, b.time)))
        return [(time + self.lateness, values) for time, values in found]

    def meets(self, a: Row, b: Row) -> bool:
        near = self.lower <= b.time - a.time <= self.upper
        return near and a.key is not None and a.key == b.key


INTERVALS = [
    (-2_000, 2_000),
    (0, 5_000),
    (-7_000, -1_000),
    (1_000, 3_000),
    (0, 0),
    (-20_000, 1_000),
]


def drive(model: Model, drawn: list[Any], **more: Any) -> None:
    within = f"{model.lower}ms", f"{model.upper}ms"
    Driven(
        lambda a, b: a.join(b, on="k", how=model.how, within=within,
                            lateness=f"{model.lateness}ms"),
        model, drawn, lateness=model.lateness, **more,
    ).run()  # fmt: skip


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=examples(3), **OPTIONS)
@given(data=st.data())
def test_every_kind_gives_what_the_model_says(how: str, data: Any) -> None:
    lower, upper = data.draw(st.sampled_from(INTERVALS))
    lateness = data.draw(st.sampled_from([0, 0, 3_000]))
    drive(
        Model(how, lower, upper, lateness), data.draw(turns()), tasks=data.draw(st.integers(1, 3))
    )
