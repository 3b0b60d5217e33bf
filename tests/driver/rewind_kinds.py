"""Outputs of many kinds that a job writes numbers to, and what a reader finds there."""

from __future__ import annotations

import atexit
import io
import json
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import headrace as hr
from headrace.driver.rewind import STAYS, TAKEN_BACK
from tests import databases
from tests.kafka.running import broker, new_topic
from tests.kafka.written import messages
from tests.mqtt.broker import PROGRAM
from tests.mqtt.broker import Broker as MqttBroker
from tests.mqtt.test_mqtt import Taken
from tests.sinks.lake_cases import delta_rows, iceberg_rows, sqlite_catalog
from tests.sinks.test_own import Lines, Rows, held
from tests.sinks.webhook_cases import receiver

NEEDS = {"delta": "deltalake", "iceberg": "pyiceberg", "duckdb": "duckdb"}


class Kind(NamedTuple):
    """A kind of output: how it is written, and the values that a reader finds there."""

    write: Callable[[hr.Stream, Path], Any]
    read: Callable[[Path], Counter[int]]
    what: str  # becomes of its rows
    needs: bool = False  # to be named in `keep`


def _log(root: Path) -> Counter[int]:
    log = hr.EmbeddedLog(str(root / "log"))
    return Counter(v for _, t in log.read("out", 0, 0) for v in t["v"].to_pylist())


def _sqlite(root: Path) -> Counter[int]:
    with sqlite3.connect(root / "rows.db") as database:
        return Counter(v for (v,) in database.execute("SELECT v FROM t"))


def _printed(root: Path) -> Counter[int]:
    lines = PRINTED[root].getvalue().splitlines()
    return Counter(int(line.rpartition("v=")[2]) for line in lines)


def _to_kafka(s: hr.Stream, root: Path) -> None:
    if root not in TOPICS:
        TOPICS[root] = new_topic()
    s.write(f"kafka://{broker().address}/{TOPICS[root]}", name="out")


def _kafka(root: Path) -> Counter[int]:
    return Counter(json.loads(m.value())["v"] for m in messages(TOPICS[root]))


def _to_postgres(s: hr.Stream, root: Path) -> None:
    if root not in TOPICS:
        TOPICS[root] = databases.new_table("postgresql")
    s.write(databases.postgres_uri(), table=TOPICS[root], name="out")


def _postgres(root: Path) -> Counter[int]:
    rows = databases.run(databases.postgres_database(), f"SELECT v FROM {TOPICS[root]}")
    return Counter(v for (v,) in rows)


def _duckdb(root: Path) -> Counter[int]:
    import duckdb

    with duckdb.connect(str(root / "rows.duckdb")) as database:
        return Counter(v for (v,) in database.execute("SELECT v FROM t").fetchall())


@cache
def _mosquitto() -> MqttBroker:
    folder = Path(tempfile.mkdtemp(prefix="headrace-mqtt-"))
    started = MqttBroker(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(started.stop)
    return started


def _to_mqtt(s: hr.Stream, root: Path) -> None:
    if root not in READERS:
        READERS[root] = Taken(_mosquitto(), f"out{root}")
    s.write(f"mqtt:127.0.0.1:{_mosquitto().port}/out{root}", name="out")


def _mqtt(root: Path) -> Counter[int]:
    return Counter(v for _, v in READERS[root].rows())


def _add_lines(root: Path, rows: pa.Table, epoch: int) -> None:
    with open(root / "lines", "a", encoding="utf-8") as file:
        file.writelines(json.dumps(list(row.values())) + "\n" for row in rows.to_pylist())


def _lines(root: Path) -> Counter[int]:
    return Counter(json.loads(line)[1] for line in (root / "lines").read_text().splitlines())


def _files(**options: Any) -> Kind:
    return Kind(
        lambda s, root: s.write(f"files:{root}/out", name="out", **options),
        lambda root: Counter(hr.read_output(root / "out")["v"].to_pylist()),
        TAKEN_BACK,
    )


PRINTED: dict[Path, io.StringIO] = {}
TOPICS: dict[Path, str] = {}
READERS: dict[Path, Taken] = {}
KINDS = {
    "files": _files(),
    "parquet by partitions": _files(format="parquet", partition_by="k"),
    "csv, rolled": _files(format="csv", roll_every="1h"),
    "collect": Kind(
        lambda s, root: s.write("collect:", name="out"),
        lambda root: Counter(hr.collected(str(root / "job"), "out")["v"].to_pylist()),
        TAKEN_BACK,
    ),
    "log": Kind(
        lambda s, root: s.write("log:out", log=str(root / "log"), name="out"), _log, STAYS, True
    ),
    "sqlite": Kind(
        lambda s, root: s.write(f"sql:sqlite:{root}/rows.db", table="t", name="out"),
        _sqlite,
        STAYS,
        True,
    ),
    "delta": Kind(
        lambda s, root: s.write(f"delta:{root}/table", name="out"),
        lambda root: Counter(delta_rows(root / "table")["v"].to_pylist()),
        STAYS,
        True,
    ),
    "iceberg": Kind(
        lambda s, root: s.write("iceberg:lake.t", catalog=sqlite_catalog(root), name="out"),
        lambda root: Counter(iceberg_rows(root)["v"].to_pylist()),
        STAYS,
        True,
    ),
    "kafka": Kind(
        _to_kafka,
        _kafka,
        STAYS,
        True,
    ),
    "console": Kind(
        lambda s, root: s.write("console:", stream=PRINTED[root], name="out"), _printed, STAYS
    ),
    "postgresql": Kind(_to_postgres, _postgres, STAYS, True),
    "duckdb": Kind(
        lambda s, root: s.write(f"sql:duckdb:{root}/rows.duckdb", table="t", name="out"),
        _duckdb,
        STAYS,
        True,
    ),
    "webhook": Kind(
        lambda s, root: s.write(f"webhook:{receiver().url}{root}", name="out"),
        lambda root: Counter(row["v"] for row in receiver().rows[str(root)]),
        STAYS,
    ),
    "mqtt": Kind(_to_mqtt, _mqtt, STAYS),
    "for_each_batch": Kind(
        lambda s, root: s.for_each_batch(partial(_add_lines, root), engine="arrow", name="out"),
        _lines,
        STAYS,
    ),
    "of your own, recorded": Kind(
        lambda s, root: s.write(Rows(str(root / "own.db")), name="out"),
        lambda root: Counter(v for _, v in held(root / "own.db")),
        STAYS,
        True,
    ),
    "of your own": Kind(
        lambda s, root: s.write(Lines(str(root / "lines")), name="out"), _lines, STAYS
    ),
}


def check_can_run(kind: str) -> None:
    """Skips the test where what this kind needs is not here."""
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind])
    if kind == "kafka":
        broker()
    if kind == "mqtt" and PROGRAM is None:
        pytest.skip("no mosquitto here")
