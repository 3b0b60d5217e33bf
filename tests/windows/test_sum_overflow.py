"""Sums beyond 64 bits or 38 digits stop the job by name, in every kind of window: never a wrap.

No single value is too large, and no batch alone: only what they add up to, in state.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import drive

Made = Callable[[Any], Any]
S = {"s": hr.sum("x")}
SHAPES: dict[str, Made] = {
    "tumbling": lambda keyed: keyed.window(hr.tumbling("1m")).agg(**S),
    "sliding": lambda keyed: keyed.window(hr.sliding("1m", every="20s")).agg(**S),
    "sliding, with other aggregates": lambda keyed: keyed.window(
        hr.sliding("1m", every="10s")).agg(s=hr.sum("x"), n=hr.count(), m=hr.mean("x")),
    "session": lambda keyed: keyed.window(hr.session("30s")).agg(**S),
    "running": lambda keyed: keyed.agg(**S, unbounded=True),
}  # fmt: skip
LARGE = 2**61
MOST = 10**38 - 1
KINDS: dict[str, tuple[str, list[Any], list[Any]]] = {  # type, what fits, what does not
    "bigint": ("bigint", [LARGE, LARGE, LARGE, LARGE - 1], [LARGE, LARGE, LARGE, LARGE]),
    "bigint, negative": ("bigint", [-LARGE] * 4, [-LARGE, -LARGE, -LARGE, -LARGE - 1]),
    "decimal": ("decimal(38,0)", [MOST - 6, 2, 2, 2], [MOST - 6, 2, 2, 3]),
    "decimal, negative": ("decimal(38,0)", [6 - MOST, -2, -2, -2], [6 - MOST, -2, -2, -3]),
}


def summed(make: Made, kind: str, values: list[Any], folder: Path, batch: int) -> list[Any]:
    exact = [Decimal(v) if kind.startswith("decimal") else v for v in values]
    rows = [{"k": "a", "x": x, "at": 60_000 + i * 10_000} for i, x in enumerate(exact)]
    job = hr.Job("overflow")
    stream = job.read(hr.rows(rows, f"k string, x {kind}, at bigint"), time="at", delay="1s")
    make(stream.key_by("k")).write("collect:", name="out")
    found = drive(job, folder, max_batch=batch, tasks=2).output("out").to_pylist()
    return [row["s"] for row in found]


@pytest.mark.parametrize("batch", [1, 100], ids=["a batch a row", "one batch"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_sum_that_does_not_fit_is_refused_and_one_that_just_fits_is_not(
    shape: str, kind: str, batch: int, tmp_path: Path
) -> None:
    name, fits, too_large = KINDS[kind]
    assert sum(fits) in summed(SHAPES[shape], name, fits, tmp_path / "fits", batch)
    with pytest.raises(hr.HeadraceError) as refusal:
        summed(SHAPES[shape], name, too_large, tmp_path / "not", batch)
    assert refusal.value.code == "HR-AGG-009"
    size = "64 bits" if name == "bigint" else "38 digits"
    assert str(refusal.value).startswith(f"HR-AGG-009 s = sum(x) does not fit in {size}")
