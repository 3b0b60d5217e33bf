"""H: growth: the time of a batch that touches 10,000 keys, with ever more keys held.

Ours alone, against itself: a batch should pay for the keys it touches, not for those it
holds. The state is filled first in large batches; then the same folder goes on with small
ones. Four kinds of state: a running aggregate per key, a window that stays open, a session
that stays open and shows an early result whenever it grows, and values that a process
function keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.batches import lasted, with_rows
from bench.data import Shape, dataset
from bench.measure import OURS, Lab
from bench.rows import AT_MOST, Row, millis

SCHEMA = "sensor string, at timestamp, celsius double"
SKIP = 3
KINDS = {
    "agg": "running aggregate",
    "window": "open window",
    "session": "open session, early results",
    "process": "process function in Python",
}
FILL = 500_000  # rows a file, and twice that a batch, while filling


def rows(lab: Lab) -> list[Row]:
    held = [10_000, 100_000] if lab.quick else [10_000, 100_000, 1_000_000, 5_000_000]
    touched, count = (2_000, 8) if lab.quick else (10_000, 23)
    return [_growth(lab, kind, what, held, touched, count) for kind, what in KINDS.items()]


def _growth(lab: Lab, kind: str, what: str, held: list[int], touched: int, count: int) -> Row:
    times = []
    for keys in held:
        case = f"H {kind} {keys // 1_000:,} k"
        sample = lab.one(case, "h", OURS, params(kind, keys, touched, count))
        times.append(lasted(with_rows(dict(sample.figures)), SKIP))
    shown = ", ".join(map(millis, times))
    whole = f"{what}: {touched / 1e3:g} k touched of {_thousands(held)} held"
    return Row(f"H {kind}", whole, shown, "-", times[-1] / times[0], AT_MOST, 2.0)


def _thousands(counts: list[int]) -> str:
    return ", ".join(f"{c // 1_000:,} k" for c in counts)


def params(kind: str, keys: int, touched: int, count: int) -> dict[str, Any]:
    files = max(1, keys // FILL)
    fill = dataset(Shape("once", files, keys // files, keys))
    touch = dataset(Shape("touch", count, touched, keys))
    return {
        "kind": kind, "keys": keys, "touched": touched, "count": count,
        "fill": fill.folder, "touch": touch.folder,
    }  # fmt: skip


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from bench.with_headrace import Part, figures, grown

    fill = Part(params["fill"], params["keys"], 2 * FILL)
    touch = Part(params["touch"], params["touched"] * params["count"], params["touched"])
    return figures(grown(lambda: _job(params, place), place, [fill, touch], params["cores"]))


def _job(params: Mapping[str, Any], place: Path) -> Any:
    import headrace as hr
    from headrace import triggers as t

    job = hr.Job("h")
    readings = job.read(f"files:{place}/in", schema=SCHEMA, time="at", delay="2s", format="parquet")
    keyed = readings.key_by("sensor")
    if params["kind"] == "process":
        result = keyed.process(_counter(), unbounded=True, name="state")
    elif params["kind"] == "agg":
        result = keyed.agg(n=hr.count(), mean=hr.mean("celsius"), unbounded=True, name="state")
    elif params["kind"] == "session":
        grown = t.at_watermark(early=t.on_change())
        windows = keyed.window(hr.session("1h"), trigger=grown)
        result = windows.agg(mean=hr.mean("celsius"), name="state")
    else:
        result = keyed.window(hr.tumbling("1h")).agg(mean=hr.mean("celsius"), name="state")
    result.write(f"files:{place}/out", format="parquet", name="results")
    return job


def _counter() -> Any:
    import headrace as hr

    class Counter(hr.KeyedProcess):
        n = hr.value(int, default=0)
        output = "sensor string, n bigint"

        def on_row(self, row: Any, ctx: Any) -> tuple[str, int]:
            self.n += 1
            return row.sensor, self.n

    return Counter()
