"""The five programs that the random suite kills, each with outputs of its own kind.

Every record is doubled where it is read, into a row of part 0 and one of part 1, and each key holds
the part. So every output row has a twin, of another key and another task, which the same epoch
writes: whoever sees one without the other sees half an epoch (`verifier.py`). Nothing that these
programs emit depends on how rows are cut into epochs, but for which rows are late.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr

SCHEMA = "id bigint, k string, v bigint, at bigint"
# `idle`: longer than rows fail to come here, shorter than the clock jumps.
TIMES: dict[str, Any] = {"time": "at", "delay": "1s", "idle": "10m"}
GAP = 1_500  # milliseconds without a row of its key: a silence


def double(row: Any) -> list[dict[str, Any]]:
    columns = {"id": row.id, "k": row.k, "v": row.v, "at": row.at}
    return [{**columns, "part": part} for part in (0, 1)]


def doubled(rows: Any) -> Any:
    return rows.flat_map(double, schema=f"{SCHEMA}, part int")


def topic(job: hr.Job, place: Path, name: str) -> Any:
    rows = job.read(
        f"log:{name}", log=str(place / "in"), schema=SCHEMA, format="json", name=name, **TIMES
    )
    return doubled(rows)


def windows(place: Path, job: hr.Job) -> None:
    """Counts by window, and the rows that came too late, to files."""
    cut = topic(job, place, "rows").key_by("k", "part").window(hr.tumbling("2s"))
    counts = cut.agg(n=hr.count(), total=hr.sum("v"), name="counts")
    shown = counts.select("part", "k", "n", "total", start="unix_millis(window_start)")
    shown.write(f"files:{place}/work/out/windows", name="windows")
    late = counts.late.select("part", "id")
    late.write(f"files:{place}/work/out/late", format="json", name="late")


def joined(place: Path, job: hr.Job) -> None:
    """Orders with the payment that came within five seconds, if one did, to a database."""
    orders, payments = topic(job, place, "rows"), topic(job, place, "payments")
    paid = payments.select("id", "part", "at", paid="v")
    pairs = orders.join(paid, on=["id", "part"], how="left", within=("0s", "5s"), name="join")
    shown = pairs.select("part", "id", "v", "paid")
    shown.write(f"sql:sqlite:{place}/work/out/pairs.db", table="pairs", name="pairs")


class Silences(hr.KeyedProcess):
    """How many rows a key had before it was silent for a while, and since when."""

    output = "k string, part int, n bigint, since bigint"
    n = hr.value(int, default=0)
    last = hr.value(int)

    def on_row(self, row: Any, ctx: Any) -> None:
        if self.last is not None:
            ctx.cancel(self.last + GAP)
        self.n, self.last = self.n + 1, ctx.time
        ctx.timer(ctx.time + GAP)

    def on_timer(self, time: int, ctx: Any) -> Any:
        n, (k, part) = self.n, ctx.key
        del self.n, self.last
        return (k, part, n, time - GAP)


def timers(place: Path, job: hr.Job) -> None:
    """Silences by a process function in the order of event time, to a topic of two partitions."""
    keyed = topic(job, place, "rows").key_by("k", "part")
    found = keyed.process(Silences(), order="event_time", unbounded=True, name="quiet")
    shown = found.select("part", "k", "n", "since")
    log = str(place / "work" / "out" / "log")
    shown.write("log:silences", log=log, key="part", partitions=2, name="silences")


def latest(place: Path, job: hr.Job) -> None:
    """Files with repeated rows: totals, and the best three of each key, upserted to Delta."""
    read = job.read(f"files:{place}/in/files", schema=SCHEMA, format="json", name="rows")
    keyed = doubled(read).key_by("k", "part")
    once = keyed.deduplicate("id", unbounded=True, name="once").key_by("k", "part")
    totals = once.agg(n=hr.count(), total=hr.sum("v"), unbounded=True, name="sums")
    totals.select("part", "k", "n", "total").write(
        f"delta:{place}/work/out/totals", mode="upsert", key=["k", "part"], name="totals"
    )
    best = once.top(3, by="v", unbounded=True, name="ranked")
    best.select("part", "k", "rank", "v", "change").write(
        f"delta:{place}/work/out/best", mode="upsert", key=["k", "part", "rank"], name="best"
    )


def many(place: Path, job: hr.Job) -> None:
    """Matches of a pattern, to six outputs at once."""
    rows, out = topic(job, place, "rows").key_by("k", "part"), place / "work" / "out"
    pattern = hr.pattern("odd", "v % 2 = 1").then("even", "v % 2 = 0").within("5s")
    matches = rows.match(pattern, select={"odd": "odd.id", "even": "even.id"}, name="match")
    found = matches.select("part", "k", "odd", "even")
    found.write(f"files:{out}/by_key", partition_by="k", name="by_key")
    found.write(f"files:{out}/lines", format="json", name="lines")
    found.write("log:matches", log=str(out / "log"), key="part", partitions=2, name="matches_log")
    found.write(f"sql:sqlite:{out}/matches.db", table="matches", name="table")
    found.write(f"delta:{out}/delta", name="delta")
    found.write("collect:", name="collected")


PROGRAMS: dict[str, Callable[[Path, hr.Job], None]] = {
    "windows": windows, "joined": joined, "timers": timers, "latest": latest, "many": many,
}  # fmt: skip


def build(name: str, place: Path) -> hr.Job:
    job = hr.Job(name, slots=8)
    PROGRAMS[name](place, job)
    return job
