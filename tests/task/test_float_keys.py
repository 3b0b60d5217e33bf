"""Keys of type float: 0.0 and -0.0 are one key, and all NaNs are one, whatever the step."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.testing import drive

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
KEYS = [0.0, -0.0, float("nan"), OTHER_NAN, None, 1.5, -0.0, 0.0, OTHER_NAN]


class Counting(hr.KeyedProcess):
    n = hr.value(int, default=0)
    output = "k double, n bigint"

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        return (ctx.key, self.n)


def _window(window: Any) -> Any:
    return lambda s: s.key_by("k").window(window).agg(n=hr.count())


STEPS = {
    "tumbling": _window(hr.tumbling("1h")),
    "sliding": _window(hr.sliding("1h", every="1h")),
    "session": _window(hr.session("1h")),
    "rows": _window(hr.tumbling(rows=100)),
    "window function": lambda s: (
        s.key_by("k").window(hr.tumbling("1h"))
        .fold(0, lambda n, row: n + 1, schema=int).select("k", n="value")
    ),
    "agg": lambda s: s.key_by("k").agg(n=hr.count(), unbounded=True).select("k", "n"),
    "fold": lambda s: (
        s.key_by("k").fold(0, lambda n, row: n + 1, schema=int, unbounded=True)
        .select("k", n="value")
    ),
    "process": lambda s: s.key_by("k").process(Counting(), unbounded=True),
}  # fmt: skip


def _told(key: float | None) -> str:
    return "nan" if key is not None and key != key else str(None if key is None else key + 0.0)


@pytest.mark.parametrize("kind", ["double", "float"])
@pytest.mark.parametrize("batch", [2, 100])
@pytest.mark.parametrize("step", STEPS)
def test_each_is_counted_once(tmp_path: Path, step: str, batch: int, kind: str) -> None:
    job = hr.Job("floats")
    rows = [(key, at) for at, key in enumerate(KEYS)]
    stream = job.read(hr.rows(rows, f"k {kind}, at bigint"), time="at", delay="1h")
    STEPS[step](stream).write("collect:", name="out")
    driver = drive(job, tmp_path, max_batch=batch)
    counts = dict[str, int]()
    for row in driver.output("out").to_pylist():
        assert str(row["k"]) != "-0.0"
        counts[_told(row["k"])] = max(row["n"], counts.get(_told(row["k"]), 0))
    assert counts == Counter(map(_told, KEYS))


def test_rows_meet_in_a_join_whatever_the_sign_of_zero(tmp_path: Path) -> None:
    job = hr.Job("floats")
    left, right = (
        job.read(
            hr.rows([(key, at) for at, key in enumerate(keys)], f"k double, {name} bigint"),
            time=name, delay="1h", name=name,
        )
        for name, keys in (("a", [0.0, OTHER_NAN, 2.0]), ("b", [-0.0, float("nan"), 3.0]))
    )  # fmt: skip
    left.join(right, on="k", within="1h").write("collect:", name="out")
    rows = drive(job, tmp_path).output("out").to_pylist()
    assert sorted((row["a"], row["b"]) for row in rows) == [(0, 0), (1, 1)]


def test_the_state_of_a_key_is_found_by_either(tmp_path: Path) -> None:
    table = pa.table({"k": pa.array([-0.0, OTHER_NAN, 1.5])})
    job = hr.Job("floats", folder=str(tmp_path))
    job.read(hr.rows(table)).key_by("k").process(Counting(), unbounded=True, name="n").write(
        "collect:", name="out"
    )
    drive(job, tmp_path)
    state = hr.peek(job, "n")
    for key in (0.0, -0.0, float("nan"), OTHER_NAN, 1.5):
        assert state.get(key).column("n").to_pylist() == [1]
