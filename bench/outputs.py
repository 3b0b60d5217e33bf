"""The outputs of row O: where each is, how its library writes a table there, and reads it back.

`write` is what somebody writes by hand who has an Arrow table and wants it there quickly; `read`
is by the library, too, whoever wrote. Everything lives in a folder of the run's own, or in a server
that the run has started.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import kafka

Params = Mapping[str, Any]
Write = Callable[[pa.Table, int], None]
AREAS = 20


def table(rows: int, epoch: int) -> pa.Table:
    """The rows of an epoch; `n` is another in every row."""
    import numpy as np

    rng = np.random.default_rng([37, epoch])
    keys = rng.integers(0, 10_000, rows)
    sensors = pa.array([f"sensor-{k:07d}" for k in range(10_000)]).take(pa.array(keys))
    areas = pa.array([f"a{k:02d}" for k in range(AREAS)]).take(pa.array(keys % AREAS))
    n = np.arange(epoch * rows, (epoch + 1) * rows)
    times = pa.array(1_700_000_000_000_000 + n * 80).cast(pa.timestamp("us", "UTC"))
    celsius = rng.integers(-80, 800, rows) / 8
    return pa.table({"n": n, "sensor": sensors, "area": areas, "at": times, "celsius": celsius})


def records(rows: int, epoch: int) -> pa.Table:
    """The same as bytes: a key, and JSON of about 100 bytes."""
    from headrace.sinks.formats import json_values

    made = table(rows, epoch)
    keys, values = made.column("sensor").cast(pa.binary()), json_values(made)
    return pa.table({"key": keys, "value": values.cast(pa.binary())})


class Files:
    rows, what, made = 1_000_000, "Parquet files; pyarrow", staticmethod(table)

    def opened(self, params: Params, place: Path) -> tuple[str, dict[str, Any]]:
        return f"files:{place}/rows", {"format": "parquet"}

    def writer(self, params: Params, place: Path) -> Write:
        import pyarrow.parquet as pq

        (place / "rows").mkdir()

        def write(rows: pa.Table, epoch: int) -> None:  # compressed as ours are
            pq.write_table(rows, place / "rows" / f"{epoch}.parquet", compression="zstd")

        return write

    def read(self, params: Params, place: Path) -> pa.Table:
        import pyarrow.parquet as pq

        return pa.concat_tables(pq.read_table(f) for f in (place / "rows").glob("*.parquet"))


class FilesInFolders(Files):
    what = f"Parquet files in {AREAS} folders; pyarrow"

    def opened(self, params: Params, place: Path) -> tuple[str, dict[str, Any]]:
        return f"files:{place}/rows", {"format": "parquet", "partition_by": "area"}

    def writer(self, params: Params, place: Path) -> Write:
        import pyarrow.dataset as ds

        zstd = ds.ParquetFileFormat().make_write_options(compression="zstd")

        def write(rows: pa.Table, epoch: int) -> None:
            ds.write_dataset(
                rows,
                place / "rows",
                format="parquet",
                partitioning=self._layout(),
                basename_template=f"{epoch}-{{i}}.parquet",
                existing_data_behavior="overwrite_or_ignore",
                file_options=zstd,
            )

        return write

    def read(self, params: Params, place: Path) -> pa.Table:
        import pyarrow.dataset as ds

        found = ds.dataset(place / "rows", format="parquet", partitioning=self._layout())
        return found.to_table().select(table(1, 0).column_names)

    def _layout(self) -> Any:
        import pyarrow.dataset as ds

        return ds.partitioning(pa.schema([("area", pa.string())]), flavor="hive")


class Log:
    rows, what, made = 1_000_000, "embedded log; its own append", staticmethod(table)
    _SCHEMA = "n bigint, sensor string, area string, at timestamp, celsius double"

    def opened(self, params: Params, place: Path) -> tuple[str, dict[str, Any]]:
        return "log:rows", {"log": str(place / "log"), "partitions": 2, "key": "sensor"}

    def writer(self, params: Params, place: Path) -> Write:
        import headrace as hr

        log = hr.EmbeddedLog(place / "log")
        log.create("rows", 2, self._SCHEMA, key="sensor")
        return lambda rows, epoch: log.append("rows", rows) and None

    def read(self, params: Params, place: Path) -> pa.Table:
        import headrace as hr

        log = hr.EmbeddedLog(place / "log")
        return pa.concat_tables(t for p in log.latest("rows") for _, t in log.read("rows", p, 0))


class Kafka:
    rows, what = 100_000, "Kafka, transactions; produce_batch"
    made = staticmethod(records)

    def _topic(self, place: Path) -> str:
        return f"rows-{place.name}"

    def opened(self, params: Params, place: Path) -> tuple[str, dict[str, Any]]:
        uri = f"kafka://{params['brokers']}/{self._topic(place)}"
        return uri, {"partitions": 2, "format": "bytes", "key": "key", "value": "value"}

    def writer(self, params: Params, place: Path) -> Write:
        topic = self._topic(place)
        kafka.create(params["brokers"], topic)
        producer = kafka.producer(params["brokers"], **{"transactional.id": topic})
        producer.init_transactions(60)

        def write(rows: pa.Table, epoch: int) -> None:
            producer.begin_transaction()
            for at in range(0, rows.num_rows, 10_000):
                part = rows.slice(at, 10_000)
                columns = part.column("key").to_pylist(), part.column("value").to_pylist()
                some = [{"key": k, "value": v} for k, v in zip(*columns, strict=True)]
                assert producer.produce_batch(topic, some) == len(some)
                producer.poll(0)
            producer.commit_transaction(60)

        return write

    def read(self, params: Params, place: Path) -> pa.Table:
        import json

        found = kafka.values(params["brokers"], self._topic(place))
        return pa.Table.from_pylist([json.loads(v) for some in found for v in some])


class Sql:
    made = staticmethod(table)

    def __init__(self, dialect: str, rows: int, what: str) -> None:
        self._dialect, self.rows, self.what = dialect, rows, what

    def _file(self, place: Path) -> str:
        return f"{place}/rows.{self._dialect}"

    def opened(self, params: Params, place: Path) -> tuple[str, dict[str, Any]]:
        url = params["postgres"] if self._is_postgres else f"{self._dialect}:{self._file(place)}"
        return f"sql:{url}", {"table": self._table(place)}

    @property
    def _is_postgres(self) -> bool:
        return self._dialect == "postgresql"

    def _table(self, place: Path) -> str:
        return f"rows_{place.name}"

    def _connected(self, params: Params) -> Any:
        import adbc_driver_postgresql.dbapi as driver

        return driver.connect(params["postgres"])

    def writer(self, params: Params, place: Path) -> Write:
        name = self._table(place)
        if self._dialect == "duckdb":
            return self._inserts(place)
        if self._dialect == "sqlite":
            return self._by_python(place)
        connection = self._connected(params)
        atexit.register(connection.close)

        def write(rows: pa.Table, epoch: int) -> None:
            with connection.cursor() as cursor:
                cursor.adbc_ingest(name, rows, mode="create_append")
            connection.commit()

        return write

    def _inserts(self, place: Path) -> Write:
        """Opened for each table, as ours: nobody else can read the file while it is open."""
        import duckdb

        name, columns = (
            self._table(place),
            'n BIGINT, sensor VARCHAR, area VARCHAR, "at" TIMESTAMPTZ',
        )

        def write(rows: pa.Table, epoch: int) -> None:
            with duckdb.connect(self._file(place)) as base:
                base.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns}, celsius DOUBLE)")
                base.register("fresh", rows)
                base.execute(f"INSERT INTO {name} SELECT * FROM fresh")

        return write

    def _by_python(self, place: Path) -> Write:
        """By Python's own library, which ours uses, too; times as text."""
        import sqlite3

        import pyarrow.compute as pc

        name = self._table(place)
        base = sqlite3.connect(self._file(place))
        base.execute(f"CREATE TABLE {name} (n INTEGER, sensor TEXT, area TEXT, at, celsius REAL)")

        def write(rows: pa.Table, epoch: int) -> None:
            times = pc.strftime(rows.column("at"), "%Y-%m-%dT%H:%M:%SZ")
            plain = rows.set_column(rows.schema.get_field_index("at"), "at", times)
            values = zip(*(c.to_pylist() for c in plain.columns), strict=True)
            with base:
                base.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)", values)

        return write

    def read(self, params: Params, place: Path) -> pa.Table:
        sql = f"SELECT n, sensor, celsius FROM {self._table(place)}"
        if self._dialect == "duckdb":
            import duckdb

            with duckdb.connect(self._file(place), read_only=True) as base:
                return base.sql(sql).to_arrow_table()
        if self._dialect == "sqlite":
            import sqlite3

            with closing(sqlite3.connect(self._file(place))) as base:
                columns = zip(*base.execute(sql), strict=True)
                names = ("n", "sensor", "celsius")
                return pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
        with self._connected(params) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetch_arrow_table()


class Delta:
    rows, made = 1_000_000, staticmethod(table)

    def __init__(self, parts: list[str] | None, what: str) -> None:
        self._parts, self.what = parts, what

    def opened(self, params: Params, place: Path) -> tuple[str, dict[str, Any]]:
        return f"delta:{place}/rows", {"partition_by": self._parts} if self._parts else {}

    def writer(self, params: Params, place: Path) -> Write:
        from deltalake import write_deltalake

        uri, parts = f"{place}/rows", self._parts
        return lambda rows, epoch: write_deltalake(uri, rows, mode="append", partition_by=parts)

    def read(self, params: Params, place: Path) -> pa.Table:
        from deltalake import DeltaTable

        return DeltaTable(f"{place}/rows").to_pyarrow_table()


class Iceberg:
    rows, what, made = 1_000_000, "Iceberg; pyiceberg append", staticmethod(table)

    def _catalog(self, place: Path) -> dict[str, str]:
        (place / "iceberg").mkdir(exist_ok=True)
        file = f"sqlite:///{place}/iceberg/catalog.db"
        return {"type": "sql", "uri": file, "warehouse": f"file://{place}/iceberg"}

    def _loaded(self, place: Path) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self._catalog(place))

    def opened(self, params: Params, place: Path) -> tuple[str, dict[str, Any]]:
        self._loaded(place).create_namespace("lake")
        return "iceberg:lake.rows", {"catalog": self._catalog(place)}

    def writer(self, params: Params, place: Path) -> Write:
        catalog = self._loaded(place)
        catalog.create_namespace("lake")

        def write(rows: pa.Table, epoch: int) -> None:
            with suppress(Exception):
                catalog.create_table("lake.rows", rows.schema)
            catalog.load_table("lake.rows").append(rows)

        return write

    def read(self, params: Params, place: Path) -> pa.Table:
        return self._loaded(place).load_table("lake.rows").scan().to_arrow()


KINDS: dict[str, Any] = {
    "files": Files(),
    "files parts": FilesInFolders(),
    "log": Log(),
    "kafka": Kafka(),
    "sqlite": Sql("sqlite", 300_000, "SQLite; executemany of its rows"),
    "duckdb": Sql("duckdb", 1_000_000, "DuckDB, opened for each epoch; INSERT from Arrow"),
    "postgresql": Sql("postgresql", 300_000, "PostgreSQL; ADBC (COPY)"),
    "delta": Delta(None, "Delta; write_deltalake"),
    "delta parts": Delta(["area"], f"Delta of {AREAS} partitions; write_deltalake"),
    "iceberg": Iceberg(),
}
