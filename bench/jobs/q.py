"""Q: measuring: what it costs that a job measures itself: time in steps, latency, arrivals.

Sliding windows, and rows of the embedded log through a filter and a function in Python, in process:
every other epoch is measured, and in a second run of the same job those between, so that each epoch
is compared with itself on the same machine. What counts is the processors' time, of all threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from statistics import mean, median
from typing import Any

from bench.measure import OURS, Lab
from bench.rows import AT_MOST, Row

KINDS = {
    "windows": "sliding windows of 1 s to 5 s, from Parquet",
    "rows": "a filter and a function in Python, from the embedded log",
    "small": "the same in epochs of 1,000 rows",
}
SKIP = 4  # epochs that warm up
_SPREAD = 10_000  # ms between the records of an epoch: their ages are all different


def rows(lab: Lab) -> list[Row]:
    found = []
    for kind, work in KINDS.items():
        case, given = f"Q {kind}", params(kind, lab.quick)
        ran = [lab.one(case, "q", OURS, given).figures for _ in range(lab.pairs_of(3))]
        ours, theirs = (median(float(figures[who]) for figures in ran) for who in ("on", "off"))
        ratio = median(float(figures["ratio"]) for figures in ran)
        what = f"an epoch that is measured, and one that is not: {work}"
        target = None if kind == "small" else 1.03  # of such epochs Spark has none this short
        found.append(Row(case, what, tenths(ours), tenths(theirs), ratio, AT_MOST, target))
    return found


def tenths(ms: float) -> str:
    return f"{ms:.1f} ms"


def params(kind: str, quick: bool = False) -> dict[str, Any]:
    batch = 1_000 if kind == "small" else 20_000 if quick else 100_000
    return {"kind": kind, "batch": batch, "epochs": 20 if quick else 44}


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """Twice the same job: the epochs that are measured the first time are not, the second."""
    job = _windows(params) if params["kind"] == "windows" else _rows(params, place)
    first, second = (_epochs(job, place / f"job{turn}", params["batch"], turn) for turn in (0, 1))
    pairs = [
        (a, b) if _measured(number, 0) else (b, a)
        for number, (a, b) in enumerate(zip(first, second, strict=True))
    ][SKIP:]
    on, off = zip(*pairs, strict=True)
    return {"on": mean(on), "off": mean(off), "ratio": median(a / b for a, b in pairs)}


def _epochs(job: Any, folder: Path, batch: int, turn: int) -> list[float]:
    """The processors' time of each epoch, in ms."""
    from bench.unmeasured import unmeasured
    from headrace.testing import Driver

    driver, spent = Driver(job, folder, max_batch=batch, first_batch=batch, tasks=1), []
    while True:
        began = time.process_time()
        with nullcontext() if _measured(len(spent), turn) else unmeasured():
            if driver.epoch() is None:
                return spent
        spent.append(1_000 * (time.process_time() - began))


def _measured(number: int, turn: int) -> bool:
    return (number + turn) % 2 == 0


def _windows(params: Mapping[str, Any]) -> Any:
    import headrace as hr
    from bench.data import Shape, dataset

    files, batch = params["epochs"], params["batch"]
    made = dataset(Shape("readings", files, batch, 10_000, 12_500))
    job = hr.Job("q")
    schema = "sensor string, at timestamp, celsius double"
    read = job.read(f"files:{made.folder}", schema=schema, time="at", delay="2s")
    windows = read.key_by("sensor").window(hr.sliding("5s", every="1s"))
    windows.agg(celsius=hr.mean("celsius")).write("collect:", name="out")
    return job


def _rows(params: Mapping[str, Any], place: Path) -> Any:
    import pyarrow as pa

    import headrace as hr

    log = hr.EmbeddedLog(str(place / "log"))
    schema = "n bigint, at bigint"
    log.create("numbers", schema=schema)
    now = int(time.time() * 1_000)
    for numbers in _numbers(params["batch"], params["epochs"]):
        at = [now - number % _SPREAD for number in numbers]
        log.append("numbers", pa.table({"n": list(numbers), "at": at}))
    job = hr.Job("q")
    read = job.read("log:numbers", log=str(place / "log"), schema=schema, time="at", delay="11s")
    made = read.where("n % 10 = 0").map(_shown, schema="text string")
    made.write("collect:", name="out")
    return job


def _numbers(batch: int, epochs: int) -> Iterator[range]:
    for epoch in range(epochs):
        yield range(epoch * batch, (epoch + 1) * batch)


def _shown(row: Any) -> dict[str, Any]:
    return {"text": str(row.n)[::-1].strip().title()}
