"""A table of Spark's catalog as an output: "table:db.name".

Every epoch is a partition of the table, by the columns `headrace_job` and `headrace_epoch`: one
file of a fixed name, written elsewhere and moved into place. Whoever delivers an epoch again, even
a driver that was stopped in between, replaces the file by the same rows. So every row is there
once, and an epoch appears whole. The partitions say which epochs the table holds.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import OutputError
from headrace.schema import ddl_type
from headrace.sinks.contract import (
    Description,
    OutputKind,
    OutputRequest,
    Sink,
    appends,
    bad_option,
    refuse_unknown,
)
from headrace.sinks.on_driver import TABLE, DriverOutput, session
from headrace.sinks.own import FIELDS, OwnSink
from headrace.state.faults import point

JOB, EPOCH = "headrace_job", "headrace_epoch"  # at rest: columns of the table
FORMATS = ("parquet", "orc")
_NAME = re.compile(r"\w+(\.\w+){0,2}")
_SKIPPED = -141_437, -141_428  # days: 1582-10-05 to 1582-10-14
_PARTITION = re.compile(rf"{JOB}=(.*)/{EPOCH}=(\d+)")


@dataclasses.dataclass(eq=False)
class CatalogTable(DriverOutput):
    kind = TABLE  # at rest
    because = (
        "an epoch is a partition of the table, one file that is replaced if it is written again"
    )
    name: str = ""
    format: str = "parquet"

    @property
    def place(self) -> str:
        return self.name

    def check(self, schema: pa.Schema) -> None:
        if not session().catalog.tableExists(self.name):
            return
        partitions = [c.name for c in session().catalog.listColumns(self.name) if c.isPartition]
        there = [(f.name, f.dataType.simpleString()) for f in session().table(self.name).schema]
        wanted = [*((f.name, _plain(ddl_type(f.type))) for f in schema)]
        wanted += [(JOB, "string"), (EPOCH, "bigint")]
        if partitions != [JOB, EPOCH] or there != wanted:
            shown = ", ".join(f"{name} {kind}" for name, kind in there)
            raise OutputError(
                "HR-OUTPUT-083",
                f"table {self.name!r} has other columns than the output: {shown}",
                f"Write to another table: it is made with the columns of the output, and {JOB} "
                f"and {EPOCH}, by which it is partitioned. To add rows to a table of any kind, "
                "at least once, use for_each_batch.",
            )

    def open(self, schema: pa.Schema) -> None:
        names = [f.name.replace("`", "``") for f in schema]
        types = [_plain(ddl_type(f.type)) for f in schema]
        columns = [f"`{name}` {kind}" for name, kind in zip(names, types, strict=True)]
        columns += [f"{JOB} string", f"{EPOCH} bigint"]
        session().sql(
            f"create table if not exists {self.name} ({', '.join(columns)}) "
            f"using {self.format} partitioned by ({JOB}, {EPOCH})"
        )

    def prepare(self, rows: pa.Table) -> pa.Table:
        if self.format == "orc":
            for name in rows.schema.names:
                _refuse_skipped(rows.column(name), name, self.name)
        return rows

    def delivered(self) -> Mapping[str, int]:
        if not session().catalog.tableExists(self.name):
            return {}
        reached: dict[str, int] = {}
        for row in session().sql(f"show partitions {self.name}").collect():
            match = _PARTITION.fullmatch(row[0])
            if match is not None:
                producer = unquote(match[1])
                reached[producer] = max(int(match[2]), reached.get(producer, 0))
        return reached

    def on_driver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        where = _Location(session(), self.name)
        staged = where.path("_headrace", uuid.uuid4().hex)  # hidden from readers of the table
        try:
            frame = session().createDataFrame(rows).coalesce(1)
            frame.write.format(self.format).save(staged)
            point("sink.table.staged")
            folder = f"{JOB}={where.escaped(producer)}/{EPOCH}={epoch}"
            where.move(staged, folder, f"epoch-{epoch}.{self.format}")
            point("sink.table.moved")
        finally:
            where.remove(staged)
        spec = f"{JOB} = '{producer_text(producer)}', {EPOCH} = {epoch}"
        session().sql(f"alter table {self.name} add if not exists partition ({spec})")
        session().catalog.refreshTable(self.name)

    def failed(self, epoch: int, why: str) -> OutputError:
        return OutputError(
            "HR-OUTPUT-082",
            f"epoch {epoch} cannot be written to table {self.name!r}: {why}",
            "Nothing is lost: the rows stay in the job's folder. Correct the cause and start the "
            "job again.",
        )


class _Location:
    """The folder of a table, by the file system that Spark knows it by."""

    def __init__(self, spark: Any, table: str) -> None:
        self._java, self._gateway = spark._jvm, spark.sparkContext._gateway
        described = spark.sql(f"describe table extended {table}").collect()
        self._folder = next(row[1] for row in described if row[0] == "Location")
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()

    def path(self, *parts: str) -> str:
        return "/".join([self._folder.rstrip("/"), *parts])

    def escaped(self, value: str) -> str:
        """A value as Spark has it in the name of a partition's folder."""
        utils = self._java.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
        return str(utils.escapePathName(value))

    def move(self, staged: str, folder: str, name: str) -> None:
        """Move the one file of `staged` to its place, over one that is there."""
        hadoop = self._java.org.apache.hadoop.fs
        found = [f.getPath() for f in self._files().listStatus(hadoop.Path(staged))]
        (file,) = [path for path in found if path.getName().startswith("part-")]
        target = hadoop.Path(self.path(folder))
        self._files().mkdirs(target)
        kind = getattr(hadoop, "Options$Rename")
        how = self._gateway.new_array(kind, 1)
        how[0] = kind.OVERWRITE
        hadoop.FileContext.getFileContext(file.toUri(), self._conf).rename(
            file, hadoop.Path(target, name), how
        )

    def remove(self, staged: str) -> None:
        self._files().delete(self._java.org.apache.hadoop.fs.Path(staged), True)

    def _files(self) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self._folder).getFileSystem(self._conf)


def producer_text(producer: str) -> str:
    """The producer within quotes of SQL."""
    return producer.replace("\\", "\\\\").replace("'", "\\'")


def _plain(kind: str) -> str:
    """A type as Spark writes it: without spaces and "not null" within."""
    return kind.replace(", ", ",").replace(" not null", "").replace("`", "")


def _refuse_skipped(column: pa.ChunkedArray, name: str, table: str) -> None:
    """Spark's ORC has the calendar of Julius Caesar, and of Gregory from 1582-10-15 on: it writes
    the dates between as that day."""
    for leaf in (leaf for chunk in column.chunks for leaf in _dates(chunk)):
        days = leaf.cast(pa.int32())
        between = pc.and_(pc.greater_equal(days, _SKIPPED[0]), pc.less_equal(days, _SKIPPED[1]))
        if pc.any(between).as_py():
            raise OutputError(
                "HR-OUTPUT-070",
                f"column {name!r} has a date of 1582-10-05 to 1582-10-14, which ORC cannot hold",
                f"Write table {table!r} as Parquet, without format=, or the date as text.",
            )


def _dates(values: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_date32(values.type):
        yield values
    elif pa.types.is_struct(values.type):
        for child in values.flatten():
            yield from _dates(child)
    elif pa.types.is_map(values.type):
        yield from _dates(values.keys)
        yield from _dates(values.items)
    elif pa.types.is_list(values.type):
        yield from _dates(values.flatten())


def _has_times(kind: pa.DataType) -> bool:
    inner = (kind.field(i).type for i in range(kind.num_fields))
    return pa.types.is_timestamp(kind) or any(map(_has_times, inner))


def _check(o: OutputRequest) -> None:
    refuse_unknown(o, ("format", "mode"))
    appends(o)
    if not _NAME.fullmatch(o.rest):
        raise OutputError(
            "HR-OUTPUT-001",
            f"{o.uri!r} is not a table",
            'Write "table:name" or "table:database.name"; a folder of files is "files:path".',
        )
    if o.options.get("format", FORMATS[0]) not in FORMATS:
        raise bad_option(o, "format", o.options["format"], f"Known: {', '.join(FORMATS)}.")
    times = [f.name for f in o.schema if _has_times(f.type)]
    if times and o.options.get("format") == "orc":
        raise OutputError(
            "HR-OUTPUT-006",
            f"column {times[0]!r} has times, which Spark writes to ORC by the clock of the time "
            "zone of its machine: elsewhere they are read as other times",
            "Write Parquet (leave format= out), or the times as text or whole numbers.",
        )
    taken = [f.name for f in o.schema if f.name.lower() in (JOB, EPOCH)]
    if taken:
        raise OutputError(
            "HR-OUTPUT-006",
            f"the output has a column {taken[0]!r}, which the table has for itself",
            "Rename the column.",
        )


def _open(o: OutputRequest) -> Sink:
    made = CatalogTable(o.rest, o.options.get("format", FORMATS[0]))
    chosen = {n: v for n, v in o.options.items() if n == "mode"}
    return OwnSink(dataclasses.replace(o, options=chosen), made)


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    fields = about[FIELDS]
    return fields["name"], {"format": fields["format"], **about["options"]}


CATALOG = OutputKind(_check, _open, _reopen)
