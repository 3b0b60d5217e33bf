"""A job of many kinds of step and output, and an oracle that looks for a value in any file.

The oracle shares no code with the package: it reads Parquet, Arrow and Avro by their libraries,
unpacks what is packed, and takes the blocks of our own files apart by itself.
"""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace import col

PEOPLE = ["anna-1", "bert-22", "carl-333", "dora-4444"]
SCHEMA = "n bigint, person string, amount bigint, text string, at timestamp"
COLLECTED = ("big", "raws", "tallied", "paired", "only once")
BASE = 1_700_000_000_000


def row(n: int) -> dict[str, Any]:
    at = BASE + 1_000 * n - (60_000 if n % 41 == 40 else 0)
    person = PEOPLE[n * 7 % 11 % 4]
    return {"n": n, "person": person, "amount": n * 13 % 17, "text": f"t{n}", "at": at}


def paid(n: int) -> dict[str, Any]:
    return {"person": PEOPLE[n * 5 % 9 % 4], "cents": n, "at": BASE + 1_500 * n}


class Tally(hr.KeyedProcess):
    """Counts, with a timer and a side of every kind of value."""

    output = "person string, count bigint"
    count = hr.value(int, default=0)
    seen = hr.list_of(str)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.count += 1
        self.seen = [*self.seen, row.text][-3:]
        ctx.timer(ctx.time + 3_000)

    def on_timer(self, time: int, ctx: Any) -> Any:
        yield {"person": ctx.key, "count": self.count}


def send(
    root: Path, start: int, end: int, without: str | None = None, *, money: bool = True
) -> None:
    log = hr.EmbeddedLog(str(root / "log"))
    log.create("moves", 2, schema=SCHEMA, key="person", exist_ok=True)
    log.create("raw", exist_ok=True)
    rows = [row(n) for n in range(start, end) if row(n)["person"] != without]
    for i in range(0, len(rows), 7):
        log.append("moves", [{**r, "at": _time(r["at"])} for r in rows[i : i + 7]])
    if money:
        log.create("paid", schema="person string, cents bigint, at timestamp", exist_ok=True)
        coins = [paid(n) for n in range(start, end) if paid(n)["person"] != without]
        log.append("paid", [{**r, "at": _time(r["at"])} for r in coins])
    raw = [{"person": r["person"], "amount": "x" if r["n"] % 5 == 0 else 1} for r in rows]
    log.append("raw", [json.dumps(r).encode() for r in raw])


def _time(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1_000, dt.UTC)


def build(root: Path) -> hr.Job:
    job = hr.Job("people", slots=4)
    log = str(root / "log")
    moves = job.read("log:moves", log=log, schema=SCHEMA, time="at", delay="2s", name="moves")
    money = job.read(
        "log:paid", log=log, schema="person string, cents bigint, at timestamp", time="at",
        delay="2s", name="paid",
    )  # fmt: skip
    raw = job.read(
        "log:raw", log=log, schema="person string, amount bigint", format="json", name="raw"
    )
    by = moves.key_by("person")
    summed = by.window(hr.sliding("20s", every="5s")).agg(
        total=hr.sum("amount"), n=hr.count(), texts=hr.collect("text"), name="summed"
    )
    visits = by.window(hr.session("6s")).agg(n=hr.count(), name="visits")
    joined = moves.join(money, on="person", within="5s", name="joined").select(
        "person", "n", "cents"
    )
    texts = hr.approx_count_distinct("text")
    running = by.agg(n=hr.count(), approx=texts, name="running", unbounded=True)
    tallies = by.process(Tally(), name="tallies", unbounded=True, order="event_time")
    high_low = hr.pattern("a", "amount > 8").then("b", "amount < 5").within("9s")
    pairs = by.match(high_low, name="pairs")
    once = by.deduplicate(within="8s", name="once")
    raw_counts = raw.key_by("person").agg(n=hr.count(), name="raw_counts", unbounded=True)
    out = str(root / "out")
    summed.write(f"files:{out}/summed", format="parquet", name="summed out")
    visits.write(f"files:{out}/visits", format="json", compression="gzip", name="visits out")
    joined.write(f"files:{out}/joined", format="csv", partition_by="person", name="joined out")
    running.write(f"files:{out}/running", format="avro", name="running out")
    moves.where(col("amount") > 8).write("collect:", name="big")
    moves.select("person", "n").write("log:copied", log=log, key="person", name="copied")
    tallies.write("collect:", name="tallied")
    pairs.select("person").write("collect:", name="paired")
    once.select("person", "n").write("collect:", name="only once")
    raw_counts.write("collect:", name="raws")
    summed.late.write(f"files:{out}/late", format="json", name="late out")
    return job


def build_small(root: Path) -> hr.Job:
    """Few steps and outputs, one of each kind of place: for all the points at which one may die."""
    job = hr.Job("people", slots=4)
    log = str(root / "log")
    moves = job.read("log:moves", log=log, schema=SCHEMA, time="at", delay="2s", name="moves")
    raw = job.read(
        "log:raw", log=log, schema="person string, amount bigint", format="json", name="raw"
    )
    by = moves.where("n % 41 <> 40").key_by("person")  # without late rows, which depend on batches
    summed = by.window(hr.tumbling("10s")).agg(n=hr.count(), name="summed")
    tallies = by.process(Tally(), name="tallies", unbounded=True, order="event_time")
    out = f"files:{root / 'out'}"
    summed.write(f"{out}/summed", format="json", partition_by="person", name="summed out")
    moves.select("person", "n").write("log:copied", log=log, key="person", name="copied")
    tallies.write("collect:", name="tallied")
    raw.write("collect:", name="raws")
    return job


def _topic(root: Path, name: str) -> pa.Table:
    log = hr.EmbeddedLog(str(root / "log"))
    return pa.concat_tables(t for p in log.latest(name) for _, t in log.read(name, p, 0))


def small_outputs(root: Path) -> dict[str, list[str]]:
    found = {
        "summed": hr.read_output(str(root / "out" / "summed")),
        "tallied": hr.collected(str(root / "job"), "tallied"),
        "raws": hr.collected(str(root / "job"), "raws"),
        "copied": _topic(root, "copied"),
        "dead": hr.read_output(str(root / "job" / "dead")).select(["step", "record"]),
    }
    return {name: sorted(map(str, table.to_pylist())) for name, table in found.items()}


def outputs(root: Path) -> dict[str, list[str]]:
    """All rows of all outputs, sorted."""
    found = {name: hr.read_output(str(root / "out" / name)) for name in
             ("summed", "visits", "joined", "running", "late")}  # fmt: skip
    found |= {name: hr.collected(str(root / "job"), name) for name in COLLECTED}
    found["copied"] = _topic(root, "copied")
    if (root / "job" / "dead" / "_commits").exists():
        found["dead"] = hr.read_output(str(root / "job" / "dead")).select(["step", "record"])
    return {name: sorted(map(str, table.to_pylist())) for name, table in found.items()}


def without(rows: dict[str, list[str]], person: str) -> dict[str, list[str]]:
    return {name: [r for r in found if person not in r] for name, found in rows.items()}


# The oracle


def occurrences(root: Path, value: str) -> list[str]:
    """Every file, and every name of a file or folder, in which the value is."""
    found = []
    for path in sorted(root.rglob("*")):
        if value in path.name:
            found.append(f"{path} (its name)")
        if path.is_file() and any(value.encode() in part for part in _contents(path)):
            found.append(str(path))
    return found


def _contents(path: Path) -> Iterator[bytes]:
    """A file as its bytes, and as all that they stand for."""
    data = path.read_bytes()
    yield data
    if data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    elif data[:4] == b"\x28\xb5\x2f\xfd":
        yield pa.input_stream(pa.py_buffer(data), "zstd").read()
    elif data[:4] == b"PAR1":
        yield str(pq.read_table(pa.BufferReader(data)).to_pylist()).encode()
        yield str(pq.ParquetFile(pa.BufferReader(data)).metadata.to_dict()).encode()
    elif data[:6] == b"ARROW1":
        yield str(pa.ipc.open_file(data).read_all().to_pylist()).encode()
    elif data[:4] == b"Obj\x01":
        yield str(list(fastavro.reader(io.BytesIO(data)))).encode()
