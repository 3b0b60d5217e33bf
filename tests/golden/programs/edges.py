"""Inputs and outputs of every kind, watermarks of every kind, and dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
from tests.golden.feeding import BASE, LINE, ORDER
from tests.golden.programs.base import orders, program, readings, write


class Learning:
    """A watermark that remembers how far it has come, and how often it was asked."""

    state = (0, 0)

    def on_chunk(self, times: Any, rows: Any) -> int:
        newest, asked = self.state
        self.state = [max(newest, int(max(times))), asked + 1]
        return int(self.state[0]) - 4_000


def each(row: Any) -> float:
    return float(row.price / row.items)


def made(i: int) -> dict[str, Any]:
    return {"area": "abc"[i % 3], "n": i, "at": BASE + 1_000 * i}


@program("readings", "raw", "lines", "table", "csv")
def places(root: Path, job: hr.Job) -> None:
    """Topics with and without a type, files of every format; the same as outputs."""
    said: dict[str, Any] = {"schema": LINE, "time": "at", "delay": "3s", "idle": "1d"}
    log = str(root / "log")
    raw = job.read("log:raw", log=log, format="json", **said)
    lines = job.read(f"files:{root}/in/lines", format="json", **said)
    table = job.read(f"files:{root}/in/table", format="parquet", schema=ORDER, name="table")
    csv = job.read(f"files:{root}/in/csv", format="csv", **said)
    text = job.read(f"files:{root}/in/csv/*.csv", format="text", name="text")
    rows = readings(root, job).select("id", "area", "celsius", "price", "day", "seen", "tags")
    rows.write(f"files:{root}/out/parquet")
    rows.write(f"files:{root}/out/json", format="json", merge=False)
    rows.select("id", "area", "celsius").write("log:copied", log=log, key="area", partitions=2)
    for stream, name in ((raw, "raw"), (lines, "lines"), (csv, "csv")):
        counts = stream.window(hr.tumbling("10s")).agg(n=hr.count(), items=hr.sum("items"))
        counts.write(f"files:{root}/out/{name}", format="json")
    prices = lines.map(each, name="price of one").with_columns(cents="value * 100")
    write(table=table, text=text, prices=prices)


@program("raw", "readings")
def letters(root: Path, job: hr.Job) -> None:
    """Dead letters as streams, in place of the job's own output."""
    raw = job.read("log:raw", log=str(root / "log"), schema=LINE, name="raw")
    prices = raw.map(each, name="price of one")
    dead = job.dead.select("input", "split", "offset", "step", "error", "record", "epoch")
    write(prices=prices, mine=dead.where("step = 'price of one'"))
    dead.where("step <> 'price of one'").write(f"files:{root}/out/broken", format="json")


@program("readings", "orders")
def clocks(root: Path, job: hr.Job) -> None:
    """Watermarks that rows or a class of yours tell; times of the clock; made and given rows."""
    cuts: dict[str, hr.Stream] = {
        "punctuated": readings(root, job, name="punctuated", delay=None,
                               watermark=hr.watermarks.punctuated("id % 6 = 5", by="at")),
        "learning": readings(root, job, name="learning", delay=None,
                             watermark=hr.watermarks.custom(Learning)),
        "in order": orders(root, job, name="in order", delay=None, in_order=True),
        "ingested": orders(root, job, name="ingested", time=hr.ingestion(), delay=None,
                           idle=None),
        "aligned": readings(root, job, name="aligned", align="1m", max_skew="9000d"),
    }  # fmt: skip
    for name, stream in cuts.items():
        found = stream.key_by("area").window(hr.tumbling("10s")).agg(n=hr.count())
        found.write("collect:", name=f"{name} out")
    given = job.read(hr.rows([made(i) for i in range(9)]), time="at", delay="2s")
    paced = job.read(hr.generate(1, made, total=18, splits=2), time="at", delay="2s", idle="1d")
    for name, stream in {"given": given, "made": paced}.items():
        found = stream.key_by("area").agg(n=hr.count(), unbounded=True)
        windows = stream.window(hr.tumbling("5s")).agg(n=hr.count())
        found.write("collect:", name=f"{name} rows")
        windows.write("collect:", name=f"{name} windows")
