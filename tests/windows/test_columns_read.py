"""A window gets the columns it goes by, also when nothing else in the program reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import triggers as t
from headrace.testing import drive

ROWS = [{"k": "a", "v": v, "flag": v > 2, "at": v * 1_000} for v in (1, 2, 3, 7)]


class ByValue(hr.WindowAssigner):
    def assign(self, time: int, row: Any) -> list[tuple[int, int]]:
        return [(0, 10_000 * row.v)]


def _odd(rows: list[Any]) -> list[bool]:
    return [row.v % 2 == 1 for row in rows]


@pytest.mark.parametrize("agg", [hr.count(), hr.sum(hr.col("at") * 2)], ids=["count", "expression"])
@pytest.mark.parametrize(
    ("window", "options", "counts"),
    [
        (hr.delta("v", 3), {}, [1, 3]),
        (hr.until("flag"), {}, [1, 3]),
        (hr.until("v > 2"), {}, [1, 3]),
        (hr.session(lambda r: r.v * 100), {}, [1, 1, 1, 1]),
        (ByValue(), {}, [1, 1, 1, 1]),
        (hr.tumbling("1h"), {"evict": hr.keep(_odd)}, [3]),
        (hr.tumbling("1h"), {"evict": hr.keep_near("v", 5)}, [2]),
        (hr.tumbling("1h"), {"trigger": t.at_watermark(early=t.on_row("v = 7"))}, [4]),
        (hr.tumbling("1h"), {"trigger": t.at_watermark(early=t.on_delta("v", 99))}, [4]),
    ],
    ids=["delta", "until", "until-expr", "gap", "own", "keep", "near", "on_row", "on_delta"],
)
def test_a_column_that_only_the_window_reads_is_there(
    tmp_path: Path, window: Any, options: dict[str, Any], counts: list[int], agg: Any
) -> None:
    job = hr.Job("columns")
    schema = "k string, v bigint, flag boolean, at bigint"
    rows = job.read(hr.rows(ROWS, schema=schema), time="at", delay="1s", name="rows")
    result = rows.key_by("k").window(window, **options).agg(n=hr.count(), x=agg)
    result.write("collect:", name="out")
    table = drive(job, tmp_path).output("out")
    final = {(r["window_start"], r["window_end"]): r["n"] for r in table.to_pylist()}
    assert sorted(final.values()) == counts
