"""B: windows of 100 rows per key, of 10,000 keys: a built-in aggregate, and a Python function.

Against `transformWithStateInPandas`, which is called once per key and batch and does whole
columns at a time; the Python function also against Bytewax in two processes. Every sensor's
rows of a batch lie in one file and in order, so all see them in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.batches import throughput, with_rows
from bench.data import Shape, dataset
from bench.digest import Digest, rounded
from bench.digest import digest as digest_of
from bench.functions import spread
from bench.measure import THEIRS, Contest, Failed, Lab, Sample
from bench.rows import Row, speed

FILES = 2  # per batch
SIZE = 100  # rows a window
SCHEMA = "sensor string, at timestamp, celsius double"
RESULTS = {
    "sum": "sensor string, n bigint, total double, top double",
    "python": "sensor string, n bigint, median double, range double",
}
BYTEWAX = "bytewax"


def rows(lab: Lab) -> list[Row]:
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise Failed("B: transformWithStateInPandas needs the package protobuf (6.33.5 or newer)")
    return [*_sum(lab), *_python(lab)]


def _sum(lab: Lab) -> list[Row]:
    spark = _contest(lab, "B sum", THEIRS, "sum")
    return [_row("B sum", "sum and max of 100 rows", spark, target=20.0)]


def _python(lab: Lab) -> list[Row]:
    from bench.with_bytewax import missing

    spark = _contest(lab, "B python", THEIRS, "python")
    found = _row("B python", "Python function over 100 rows", spark, target=8.0)
    what, why = "the same against Bytewax, two processes", missing()
    if why:
        lab.say(f"  B: Bytewax is not available: {why}")
        return [found, Row("B bytewax", what, found.ours, "not available", None)]
    bytewax = _contest(lab, "B bytewax", BYTEWAX, "python")
    return [found, _row("B bytewax", what, bytewax, target=2.0)]


def _contest(lab: Lab, case: str, other: str, kind: str) -> Contest:
    batch, batches, pairs = extent(lab, other)
    given = params(batch, batches, kind=kind)
    return lab.contests(case, "b", given, digest, pairs, (other,))[0]


def extent(lab: Lab, other: str) -> tuple[int, int, int]:
    """Rows a batch, batches, and pairs. Bytewax is quick enough for more rows, of which the
    start and the end are a smaller part."""
    if lab.quick:
        return 50_000, 3, 1
    return (1_000_000, 8, 3) if other == BYTEWAX else (1_000_000, 4, 2)


def _row(job: str, what: str, contest: Contest, target: float) -> Row:
    ours, theirs = speed(contest.ours(rate)), speed(contest.theirs(rate))
    return Row(job, what, ours, theirs, contest.ratio(rate), target=target, equal=True)


def rate(sample: Sample) -> float:
    """Bytewax has no batches: it counts from the first row read to the last one written."""
    if sample.who == BYTEWAX:
        return float(sample.figures["rate"])
    return throughput(with_rows(dict(sample.figures)), skip=1)


def params(batch: int, batches: int, keys: int = 10_000, kind: str = "python") -> dict[str, Any]:
    made = dataset(Shape("by-key", batches * FILES, batch // FILES, keys))
    return {"folder": made.folder, "batch": batch, "rows": batch, "kind": kind}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    """Only windows that are full: at the end of input, ours shows the others, too."""
    name, _, *values = [column.split()[0] for column in RESULTS[params["kind"]].split(", ")]
    return digest_of(place, [name, "n", *map(rounded, values)], where=f"n = {SIZE}")


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr
    from bench.with_headrace import drain

    def spread_of(key: str, window: Any, rows: Any) -> tuple[int, float, float]:
        return len(rows), *spread(rows["celsius"])

    job = hr.Job("b")
    readings = job.read(f"files:{params['folder']}", schema=SCHEMA, time="at", delay="2s")
    windows = readings.key_by("sensor").window(hr.tumbling(rows=SIZE))
    if params["kind"] == "sum":
        result = windows.agg(n=hr.count(), total=hr.sum("celsius"), top=hr.max("celsius"))
    else:
        schema = RESULTS["python"].removeprefix("sensor string, ")
        result = windows.process(spread_of, schema=schema)
    result.write(f"files:{place}/out", format="parquet", name="windows")
    return drain(job, place, params["batch"], params["cores"])


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from bench.processors import Hundreds, Totals
    from bench.with_spark import drain, session

    spark = session(params["cores"])
    readings = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES)
        .parquet(params["folder"])
    )
    processor = Totals(SIZE) if params["kind"] == "sum" else Hundreds(SIZE)
    windows = (
        readings.select("sensor", "celsius")
        .groupBy("sensor")
        .transformWithStateInPandas(processor, RESULTS[params["kind"]], "Append", "None")
    )
    return drain(windows, place, params["rows"])


def bytewax(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from bench.with_bytewax import drain

    return drain("bench.flows.hundreds", params["folder"], place, parts=FILES, size=SIZE)
