"""What the log of a Delta table says of files that tasks have written, and what they hold.

Only where the table has no more rules than its columns. Of a partitioned table each file holds the
rows of one partition, and says in its metadata which.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.sinks.contract import Reference
from headrace.sinks.data_files import PATH, DataFiles
from headrace.sinks.file_formats import format_named
from headrace.sinks.lakes import bare
from headrace.sinks.ownership import Identity
from headrace.sinks.partitions import groups

_FEATURES = {"appendOnly", "invariants"}  # of tables, which ask no more of who appends
_LONGEST = 32  # characters of a text that is noted as the least or greatest of its file
_LAST = chr(0x10FFFF)
_VALUES = b"headrace.partition_values"  # metadata of a file: JSON, as the table's log spells them
_EPOCH = dt.datetime(1970, 1, 1)


def takes_files(table: Any) -> bool:
    """Whether files may be added to the table as they are."""
    protocol, metadata = table.protocol(), table.metadata()
    features = set(protocol.writer_features or ()) if protocol.min_writer_version == 7 else set()
    settings = metadata.configuration
    rules = [k for k in settings if k.startswith("delta.constraints.")]
    rules += [f.name for f in table.schema().fields if f.metadata]
    old = protocol.min_writer_version <= 2
    return (
        (old or (protocol.min_writer_version == 7 and features <= _FEATURES))
        and len(metadata.partition_columns) < len(table.schema().fields)
        and not rules
        and settings.get("delta.columnMapping.mode", "none") == "none"
    )


class DeltaFiles(DataFiles):
    def __init__(self, table: Path, identity: Identity, output: str) -> None:
        super().__init__(table, table, identity, output)

    def rows(self, staged: Sequence[Reference], schema: pa.Schema) -> pa.Table:
        """The rows of the files, with the columns that their partitions say."""
        return pa.concat_tables(
            _with_values(table, partition_values(path), schema)
            for path in (self.where(r) for r in staged)
            for table in format_named("parquet").batches(path, pa.schema([]))
        )

    def partitioned(self, staged: Sequence[Reference], parts: Sequence[str]) -> bool:
        """Whether the files are divided as a table of these partitions."""
        found = (partition_values(self.where(r)) for r in staged)
        return all(list(values) == list(parts) for values in found)

    def other(self, staged: Sequence[Reference], schema: pa.Schema) -> str | None:
        """A column of the files that the table does not have, or has of another type."""
        kinds = {f.name: bare(f.type) for f in schema}
        for path in (self.where(r) for r in staged):
            for field in pq.read_schema(path):
                if kinds.get(field.name) != bare(field.type):
                    return str(field.name)
            for name, text in partition_values(path).items():
                if name not in kinds or not _is_value(text, kinds[name]):
                    return name
        return None

    def facts(self, staged: Sequence[Reference]) -> Iterator[dict[str, Any]]:
        """What the table's log says of each settled file."""
        for reference in staged:
            path = self.at(reference)
            yield {
                "path": reference[PATH],
                "size": reference["bytes"],
                "partition_values": partition_values(path),
                "modification_time": int(path.stat().st_mtime * 1000),
                "data_change": True,
                # not as ASCII: the library misreads characters that JSON writes as two escapes
                "stats": json.dumps(statistics(path), ensure_ascii=False),
            }


def by_partition(rows: pa.Table, parts: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of each partition, with a note of its values."""
    if not parts:
        yield rows
        return
    found = groups(rows, parts)
    spelled = [list(map(_spelled, column.to_pylist())) for column in found.values()]
    for some, values in zip(found.rows(), zip(*spelled, strict=True), strict=True):
        note = json.dumps(dict(zip(parts, values, strict=True)))
        yield some.replace_schema_metadata({_VALUES: note})


def partition_values(path: Path) -> dict[str, str | None]:
    """The values of a file's partition, as the log spells them; null is None."""
    noted = (pq.read_schema(path).metadata or {}).get(_VALUES)
    return {} if noted is None else dict(json.loads(noted))


def _spelled(value: Any) -> str | None:
    """As the protocol says: https://github.com/delta-io/delta, PROTOCOL.md."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def _with_values(rows: pa.Table, values: dict[str, str | None], schema: pa.Schema) -> pa.Table:
    """The rows with the columns of their partition, in the order of `schema`."""
    for name, text in values.items():
        kind = schema.field(name).type
        value = pa.scalar(None if text is None else _value(text, kind), kind)
        rows = rows.append_column(pa.field(name, kind), pa.repeat(value, rows.num_rows))
    return rows.select([name for name in schema.names if name in rows.column_names])


def _value(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return text == "true"
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        return (dt.datetime.fromisoformat(text) - _EPOCH) // dt.timedelta(microseconds=1)
    return text


def _is_value(text: str | None, kind: pa.DataType) -> bool:
    try:
        pa.scalar(None if text is None else _value(text, kind), kind)
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def statistics(path: Path) -> dict[str, Any]:
    """The number of rows; and of every column how many are null and between what the others are.

    Of every column or of none: beside files that somebody else has described, the library takes
    what is not said of a column for null, and leaves out files with rows that were asked for.
    """
    with pq.ParquetFile(path) as file:
        rows, schema = file.metadata.num_rows, file.schema_arrow
        columns = [f for f in schema if not _undescribed(f.type)]
        if not all(_exact(f.type) for f in columns):
            return {"numRecords": rows}
        try:
            found = {f.name: _bounds(file, f.name) for f in columns}
        except OverflowError:  # a date that is not within the years 1 to 9999
            return {"numRecords": rows}
    some = {name: bounds for name, bounds in found.items() if bounds[0] < rows}
    return {
        "numRecords": rows,
        "minValues": {name: _least(low) for name, (_, low, _) in some.items()},
        "maxValues": {name: _greatest(high) for name, (_, _, high) in some.items()},
        "nullCount": {name: nulls for name, (nulls, _, _) in found.items()},
    }


def _bounds(file: pq.ParquetFile, name: str) -> tuple[int, Any, Any]:
    """How many values of a column are null; the least and the greatest of the others."""
    about = file.metadata
    paths = [about.schema.column(i).path for i in range(about.num_columns)]
    groups = [about.row_group(g).column(paths.index(name)) for g in range(about.num_row_groups)]
    known = [g.statistics for g in groups]
    if all(k and k.has_null_count and (k.has_min_max or not k.num_values) for k in known):
        some = [k for k in known if k.num_values]
        low, high = (f((getattr(k, f.__name__) for k in some), default=None) for f in (min, max))
        return sum(k.null_count for k in known), low, high
    column = file.read([name]).column(0)  # of values that are too long for the file's own
    both = pc.min_max(column)
    return column.null_count, both["min"].as_py(), both["max"].as_py()


def _undescribed(kind: pa.DataType) -> bool:
    """Nobody describes columns of this kind."""
    return bool(pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_binary(kind))


def _exact(kind: pa.DataType) -> bool:
    """Whether the log can hold every value as it is, and all readers compare it alike."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind))


def _least(value: Any) -> Any:
    return value[:_LONGEST] if isinstance(value, str) else _plain(value)


def _greatest(value: Any) -> Any:
    """Of a long text its beginning, and a character than which none is greater."""
    if isinstance(value, str) and len(value) > _LONGEST and value[_LONGEST] != _LAST:
        return value[:_LONGEST] + _LAST
    return _plain(value)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.date) else value
