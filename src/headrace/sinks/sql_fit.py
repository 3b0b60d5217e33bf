"""Whether a table can hold an output: its columns before a start, every value in a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.sql import Column, TableName
from headrace.errors import OutputError
from headrace.schema import ddl_type
from headrace.sinks.columns import holds
from headrace.sinks.formats import without_dictionaries
from headrace.sinks.sql_writing import ADDED, CHANGE, RETRACTED

_UUID = r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$"
_UUID_SPELLED = r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$"


@dataclass(frozen=True)
class TableFit:
    what: str  # the table in words
    dialect: str
    table: TableName
    rows: pa.Schema  # what the table is to hold
    key: tuple[str, ...]
    upserts: bool
    retracts: bool

    def check(self, columns: Mapping[str, Column], keys: Mapping[frozenset[str], str]) -> None:
        """Raise OutputError unless the table can hold the output, as far as can be told before."""
        for field in self.rows:
            column = columns.get(field.name)
            if column is None or column.computed:
                fact = "computes" if column is not None else "has no"
                raise OutputError(
                    "HR-OUTPUT-006",
                    f"{self.what} {fact} column {field.name!r}",
                    f"It has: {', '.join(columns)}. Select its columns, or write to another table.",
                )
            if not _fits(column, field.type):
                raise OutputError(
                    "HR-OUTPUT-006",
                    f"the output's column {field.name!r} is {ddl_type(field.type)}, in {self.what} "
                    f"it is {column.declared}, which does not hold every value of that",
                    "Cast the column, or write to another table.",
                )
        for column in columns.values():
            if column.required and not column.filled and column.name not in self.rows.names:
                raise OutputError(
                    "HR-SQL-005",
                    f"{self.what} needs a value for column {column.name!r}, which the output "
                    "does not have",
                    "Add the column to the output, or give it a default in the table.",
                )
        if self.upserts and frozenset(self.key) not in keys:
            key = ", ".join(self.key)
            index = f"CREATE UNIQUE INDEX one_row_each ON {self.table} ({key})"
            if self.dialect == "duckdb":
                index = f"ALTER TABLE {self.table} ADD PRIMARY KEY ({key})"
            raise OutputError(
                "HR-SQL-006",
                f"{self.what} has no unique index on ({key}), the key of the output",
                f"{index}; or choose another key.",
            )
        if self.upserts and (collation := keys[frozenset(self.key)]):
            raise OutputError(
                "HR-SQL-031",
                f"the key of {self.what} ({', '.join(self.key)}) has the collation {collation}, by "
                "which texts that differ may be the same",
                "Rows of different keys would replace each other: make the table without the "
                "collation, or choose another key.",
            )

    def fitted(self, rows: pa.Table, columns: Mapping[str, Column]) -> pa.Table:
        """The rows in the types of the table; OutputError for what it cannot hold."""
        fields = []
        plain = rows.cast(without_dictionaries(rows.schema))
        for field in self.rows:
            column = columns.get(field.name)
            fields.append(pa.field(field.name, _stored_as(column, field.type)))
        if self.retracts:
            fields.append(pa.field(CHANGE, pa.string()))
        try:
            typed = plain.select([f.name for f in fields]).cast(pa.schema(fields))
        except (pa.ArrowException, ValueError) as cause:
            raise self.unfit(str(cause)) from cause
        for field in self.rows:
            self._check_values(typed.column(field.name), columns.get(field.name), field.name)
        if self.retracts:
            marks = set(pc.unique(typed.column(CHANGE)).to_pylist())
            if marks - {ADDED, RETRACTED}:
                odd = sorted(map(repr, marks - {ADDED, RETRACTED}))[0]
                raise self.unfit(f"column {CHANGE!r} has {odd}, which is neither '+' nor '-'")
        return typed

    def _check_values(self, values: pa.ChunkedArray, column: Column | None, name: str) -> None:
        required = name in self.key or (column is not None and column.required)
        if values.null_count and required and not self.retracts:
            raise self.unfit(f"column {name!r} has no value")
        if values.null_count and name in self.key:
            raise self.unfit(f"column {name!r}, of the key, has no value")
        texts = values
        while pa.types.is_list(texts.type) or pa.types.is_large_list(texts.type):
            texts = pc.list_flatten(texts)
        if (
            self.dialect == "postgresql"
            and pa.types.is_string(texts.type)
            and pc.any(pc.match_substring(texts, "\0")).as_py()
        ):
            raise self.unfit(f"column {name!r} has a text with a zero character")
        if pa.types.is_string(values.type):
            longest = column.longest if column is not None else None
            if longest is not None and (pc.max(pc.utf8_length(values)).as_py() or 0) > longest:
                raise self.unfit(f"column {name!r} has a text of more than {longest} characters")
            if column is not None and column.cast:
                self._check_uuids(values, column.cast, name)
        if (
            self.dialect == "sqlite"
            and pa.types.is_floating(values.type)
            and pc.any(pc.is_nan(values)).as_py()
        ):
            raise self.unfit(f"column {name!r} has NaN, which SQLite would store as null")

    def _check_uuids(self, values: pa.ChunkedArray, kind: str, name: str) -> None:
        """Of a key in one spelling: the table does not tell others apart."""
        spelled, how = _UUID, ""
        if name in self.key:
            spelled, how = _UUID_SPELLED, " in lower case, with hyphens"
        if not pc.all(pc.match_substring_regex(values, spelled), min_count=0).as_py():
            raise self.unfit(f"column {name!r} has a text that is no {kind}{how}")

    def unfit(self, why: str) -> OutputError:
        return OutputError(
            "HR-OUTPUT-006",
            f"rows of the output do not fit {self.what}: {why}",
            "Correct the values (coalesce, where), or write to another table; nothing of this "
            "batch is committed.",
        )


def _fits(column: Column, kind: pa.DataType) -> bool:
    if column.kind is None:
        return False
    if column.kind == pa.null():  # any decimal
        return bool(pa.types.is_decimal(kind) or pa.types.is_integer(kind))
    if pa.types.is_timestamp(column.kind) and pa.types.is_timestamp(kind):
        return True
    integers = pa.types.is_integer(column.kind) and pa.types.is_integer(kind)
    texts = pa.types.is_string(column.kind) and pa.types.is_decimal(kind)  # SQLite's decimals
    return integers or (texts and column.declared == "TEXT") or holds(column.kind, kind)


def _stored_as(column: Column | None, kind: pa.DataType) -> pa.DataType:
    """The type in which rows are staged: the table's, or our own where it takes any."""
    if column is None or column.kind is None:
        return kind
    if column.kind == pa.null():
        digits = {1: 3, 2: 5, 4: 10, 8: 20}
        is_number = pa.types.is_integer(kind)
        return pa.decimal128(digits[kind.bit_width // 8], 0) if is_number else kind
    return column.kind


def beyond_ascii(texts: pa.ChunkedArray) -> set[str]:
    """The characters of a column of texts, or of lists of them, that are not ASCII."""
    while pa.types.is_list(texts.type) or pa.types.is_large_list(texts.type):
        texts = pc.list_flatten(texts)
    if not pa.types.is_string(texts.type):
        return set()
    odd = texts.filter(pc.invert(pc.string_is_ascii(texts)))
    return {c for text in pc.unique(odd).to_pylist() if text for c in text if c > "\x7f"}
