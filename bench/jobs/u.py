"""U: guarantees: what it costs per epoch to be asked for more.

The same job writes the same small epochs to the same output, in process, so that what an epoch
costs is not hidden by Spark: Kafka at least once beside exactly once, and an output that records no
epochs at least once beside at most once. The epochs after the first few are timed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench import kafka
from bench.digest import Digest
from bench.digest import digest as digest_of
from bench.measure import Lab, Sample
from bench.rows import AT_MOST, Row, millis

EPOCHS, NOT_TIMED = 60, 10
KINDS = {  # what is asked for, less and more
    "kafka": ("at_least_once", "exactly_once"),
    "lines": ("at_least_once", "at_most_once"),
}


def rows(lab: Lab) -> list[Row]:
    found = []
    with ExitStack() as stack:
        brokers = stack.enter_context(kafka.broker())
        for kind, (less, more) in KINDS.items():
            given = {**params(kind, lab.quick), "brokers": brokers}
            contest = lab.pairs(f"U {kind}", "u", given, digest, reps=2)
            ours, theirs = millis(contest.ours(spent)), millis(contest.theirs(spent))
            what = f"an epoch {less.replace('_', ' ')}; {more.replace('_', ' ')}"
            ratio = contest.ratio(spent)
            found.append(Row(f"U {kind}", what, ours, theirs, ratio, sense=AT_MOST, equal=True))
    return found


def spent(sample: Sample) -> float:
    return float(sample.figures["epoch"])


def params(kind: str, quick: bool = False) -> dict[str, Any]:
    return {"kind": kind, "rows": 10 if quick else 1_000, "epochs": 15 if quick else EPOCHS}


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    return _run(params, place, KINDS[params["kind"]][0])


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    return _run(params, place, KINDS[params["kind"]][1])


def _run(params: Mapping[str, Any], place: Path, asked: str) -> dict[str, Any]:
    import headrace as hr
    from headrace.testing import Driver

    total = params["rows"] * params["epochs"]
    job = hr.Job("u", guarantee=asked)
    made = job.read(hr.generate(None, lambda i: {"n": i}, total=total), schema="n bigint")
    if params["kind"] == "kafka":
        topic = _topic(place)
        kafka.create(params["brokers"], topic)
        made.write(f"kafka://{params['brokers']}/{topic}", name="out")
    else:
        made.write(_lines(place), name="out")
    driver, times = Driver(job, place / "job", max_batch=params["rows"]), []
    while True:
        began = time.perf_counter()
        if driver.epoch() is None:
            break
        times.append(1_000 * (time.perf_counter() - began))
    return {"epoch": median(times[NOT_TIMED:]), "epochs": len(times)}


def _lines(place: Path) -> Any:
    """An output that only appends to a file, and records nothing."""
    from dataclasses import make_dataclass

    import headrace as hr

    def deliver(self: Any, rows: Any, producer: str, epoch: int) -> None:
        with open(self.path, "a") as file:
            file.writelines(f"{n}\n" for n in rows["n"].to_pylist())

    members = {"kind": "bench lines", "deliver": deliver}
    kind: Any = make_dataclass("Lines", [("path", str)], bases=(hr.Output,), namespace=members)
    return kind(str(place / "lines"))


def _topic(place: Path) -> str:
    return "".join(c if c.isalnum() else "-" for c in str(place))[-100:]


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if params["kind"] == "kafka":
        import json

        batches = kafka.values(params["brokers"], _topic(place))
        numbers = [json.loads(value)["n"] for batch in batches for value in batch]
    else:
        numbers = [int(line) for line in (place / "lines").read_text().split()]
    (place / "out").mkdir()
    pq.write_table(pa.table({"n": numbers}), place / "out" / "rows.parquet")
    return digest_of(place, ["n::BIGINT"])
