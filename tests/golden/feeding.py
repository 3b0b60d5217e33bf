"""The fixed input of the golden programs: four batches of rows, a pause of the clock after each.

Arithmetic only, so that it is the same on every machine and in every release. Rows are out of
order by up to 1.4 s, and some are late by more than any program waits.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr

Row = dict[str, Any]

BASE = 1_711_756_800_000  # 2024-03-30, in ms: the day before clocks change in Berlin
BATCHES, HALF, SIZE = 4, 2, 21
PAUSE = 7_000  # ms of the clock after each batch

READING = (
    "id bigint, area string, zone bigint, celsius double, price decimal(10,2), state string, "
    "ok boolean, day date, seen timestamp, raw binary, tags array<string>, at bigint"
)
ORDER = "area string, amount bigint, gone boolean, due bigint"
LIMIT = "area string, limit double"
RULE = "name string, pattern string, at bigint"
LINE = "id bigint, items int, price double, at bigint"
TOPICS = {"readings": (READING, 2), "orders": (ORDER, 1), "limits": (LIMIT, 1), "rules": (RULE, 1)}
INPUTS = (*TOPICS, "raw", "lines", "table", "csv")


def reading(n: int) -> Row:
    at = BASE + 1_000 * n + 700 * (n * 7 % 5 - 2) - (90_000 if n % 19 == 18 else 0)
    return {
        "id": n, "area": None if n % 23 == 22 else "abc"[n * 5 % 7 % 3], "zone": n * 3 % 4,
        "celsius": 15.0 + (n * 37 % 100) / 4, "price": Decimal(n * 31 % 500) / 100,
        "state": ("on", "off", "off", "idle")[n // 2 % 4], "ok": n % 3 == 0,
        "day": dt.date(2024, 3, 30) + dt.timedelta(days=n % 3),
        "seen": dt.datetime(2024, 3, 30, n % 24, tzinfo=dt.UTC), "raw": bytes([n % 3, 255]),
        "tags": [f"t{i}" for i in range(n % 3)], "at": at,
    }  # fmt: skip


def order(n: int) -> Row:
    due = BASE + 2_000 * n + 500 * (n * 3 % 4)
    return {"area": "abcd"[n * 3 % 4], "amount": n * 11 % 17, "gone": n % 9 == 8, "due": due}


def line(n: int) -> str:
    """A record as text; some are cut off, or hold what is no number."""
    if n % 13 == 5:
        return f'{{"id": {n}, "ite'
    items: Any = "two" if n % 11 == 4 else n % 4
    return json.dumps({"id": n, "items": items, "price": n * 1.5, "at": BASE + 1_000 * n})


def readings(batch: int) -> list[Row]:
    return [reading(n) for n in range(batch * SIZE, (batch + 1) * SIZE)]


def orders(batch: int) -> list[Row]:
    return [order(n) for n in range(batch * 10, (batch + 1) * 10)]


def limits(batch: int) -> list[Row]:
    said = [[("*", 30.0)], [("a", 35.0), ("b", 20.0)], [("a", None)], [("c", 25.0), ("*", 33.0)]]
    return [{"area": area, "limit": limit} for area, limit in said[batch]]


def rules(batch: int) -> list[Row]:
    hot = hr.pattern("a", "celsius > 25").then("b", "celsius < 20").within("20s")
    twice = hr.pattern("a", "state = 'on'").times(2).within("30s")
    said = {0: ("hot", hot.to_json()), 1: ("twice", twice.to_json()), 3: ("hot", "")}
    if batch not in said:
        return []
    name, pattern = said[batch]
    return [{"name": name, "pattern": pattern, "at": BASE + 1_000 * SIZE * batch}]


def begin(root: Path, inputs: tuple[str, ...]) -> None:
    """Make the places of the inputs, empty."""
    log = hr.EmbeddedLog(str(root / "log"))
    for name in inputs:
        if name in TOPICS:
            schema, partitions = TOPICS[name]
            log.create(name, partitions=partitions, schema=schema)
        elif name == "raw":
            log.create(name)
        else:
            (root / "in" / name).mkdir(parents=True)


def send(root: Path, inputs: tuple[str, ...], batch: int) -> None:
    """Bring one batch of every input."""
    log = hr.EmbeddedLog(str(root / "log"))
    for name in inputs:
        _SENDERS[name](root, log, batch)


def _send_readings(root: Path, log: hr.EmbeddedLog, batch: int) -> None:
    for partition in range(2):
        part = [row for row in readings(batch) if row["id"] % 2 == partition]
        log.append("readings", part, partition=partition)


def _send_orders(root: Path, log: hr.EmbeddedLog, batch: int) -> None:
    log.append("orders", orders(batch))


def _send_limits(root: Path, log: hr.EmbeddedLog, batch: int) -> None:
    log.append("limits", limits(batch))


def _send_rules(root: Path, log: hr.EmbeddedLog, batch: int) -> None:
    if rows := rules(batch):
        log.append("rules", rows)


def _send_raw(root: Path, log: hr.EmbeddedLog, batch: int) -> None:
    log.append("raw", [line(n).encode() for n in range(batch * 8, batch * 8 + 8)])


def _send_lines(root: Path, log: hr.EmbeddedLog, batch: int) -> None:
    """A new file with every second batch; the one between is added to the last."""
    text = "".join(line(n) + "\n" for n in range(batch * 8, batch * 8 + 8))
    with (root / "in" / "lines" / f"{batch // 2}.json").open("a") as file:
        file.write(text)


def _send_csv(root: Path, log: hr.EmbeddedLog, batch: int) -> None:
    rows = "".join(f"{n},{n % 4},{n * 1.5},{BASE + 1_000 * n}\n" for n in range(batch, batch + 3))
    (root / "in" / "csv" / f"{batch}.csv").write_text(f"id,items,price,at\n{rows}")


def _send_table(root: Path, log: hr.EmbeddedLog, batch: int) -> None:
    made = [order(n) for n in range(batch * 3, batch * 3 + 3)]
    pq.write_table(pa.Table.from_pylist(made), root / "in" / "table" / f"{batch}.parquet")


_SENDERS = {
    "readings": _send_readings, "orders": _send_orders, "limits": _send_limits,
    "rules": _send_rules, "raw": _send_raw, "lines": _send_lines, "csv": _send_csv,
    "table": _send_table,
}  # fmt: skip
