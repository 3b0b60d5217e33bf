"""Joins of three streams against a plain model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from tests.joins.driving import OPTIONS, Driven, Row, examples, turns

NAMES = ("a", "b", "c")


@dataclass
class Model:
    within: int
    lateness: int
    rows: dict[str, list[Row]] = field(default_factory=lambda: {n: [] for n in NAMES})

    def step(self, new: dict[str, list[Row]], before: int, after: int) -> list[Any]:
        fresh = {r.value for side in new.values() for r in side}
        for name, rows in new.items():
            self.rows[name] += rows
        found = []
        for a in self.rows["a"]:
            for b in self.rows["b"]:
                for c in self.rows["c"] if a.key == b.key else ():
                    times = [r.time for r in (a, b, c)]
                    near = max(times) - min(times) <= self.within
                    if near and c.key == a.key is not None and {a.value, b.value, c.value} & fresh:
                        values = [v for r in (a, b, c) for v in r[1:]]
                        found.append((max(times) + self.lateness, (a.key, *values)))
        return found


@settings(max_examples=examples(6), **OPTIONS)
@given(data=st.data())
def test_three_streams_give_what_the_model_says(data: Any) -> None:
    model = Model(
        data.draw(st.sampled_from([0, 2_000, 6_000])), data.draw(st.sampled_from([0, 2_000]))
    )

    def build(a: Any, b: Any, c: Any) -> Any:
        within, wait = f"{model.within}ms", f"{model.lateness}ms"
        return hr.join_all(on="k", within=within, lateness=wait, a=a, b=b, c=c)

    drawn = data.draw(turns(NAMES))
    Driven(build, model, drawn, inputs=NAMES, lateness=model.lateness).run()
