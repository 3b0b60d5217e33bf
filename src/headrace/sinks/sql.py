"""A table of a database as an output: rows and epoch in one transaction.

    job...write("sql:postgresql://host/db", table="totals", mode="upsert", key="area")

Beside the table there is another, `headrace_epochs`: which producer has delivered, up to which
epoch, and a checksum of what. A transaction first claims its epoch there, then writes its rows;
who finds the epoch claimed has nothing to do. So a commit whose outcome is unknown is asked for
again, and a driver that was stopped and let go later changes nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.sql import (
    Column,
    Connection,
    Database,
    SqlFailure,
    TableName,
    connected,
    database_of,
    door_to,
    listed,
    patiently,
    quoted,
)
from headrace.errors import OutputError
from headrace.kernel import duckdb
from headrace.schema import ddl_type
from headrace.secrets import PASSWORD, Secret
from headrace.sinks.columns import holds, packed
from headrace.sinks.contract import (
    Description,
    EpochWriter,
    OutputKind,
    OutputRequest,
    Reached,
    Reference,
    Sink,
    Timelines,
    bad_option,
    refuse_unknown,
)
from headrace.sinks.delivered import DeliveredSink
from headrace.sinks.durable import noted
from headrace.sinks.formats import without_dictionaries
from headrace.state.faults import point

T = TypeVar("T")
EPOCHS = "headrace_epochs"  # at rest, as its columns
CHANGE, ADDED, RETRACTED = "change", "+", "-"  # the column of streams that retract rows
_STAGED = "headrace_staged"
State = tuple[list[Column] | None, list[frozenset[str]], Mapping[str, int]]
_NOTHING: State = (None, [], {})
_NUMBER = "__number"
_UUID = r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$"
_secrets: dict[str, Secret] = {}  # by database: as this process has seen them; never stored


class SqlSink(DeliveredSink):
    def __init__(self, o: OutputRequest, database: Database) -> None:
        upserts = o.options.get("mode") == "upsert"
        plain = {k: v for k, v in o.options.items() if k != "mode" or not upserts}
        super().__init__(replace(o, options=plain))
        self._database, self._table = database, TableName.of(o.options["table"])
        self._upserts, self._key = upserts, _key_of(o)
        self._creates: bool = o.options.get("create", True)
        self._retracts = upserts and CHANGE in o.schema.names
        names = [
            f for f in without_dictionaries(o.schema) if not self._retracts or f.name != CHANGE
        ]
        self._rows = pa.schema(names)  # what the table holds
        self._columns: dict[str, Column] | None = None  # of the table, once they are known
        self._known: Mapping[str, int] | None = None  # its producers, within a check

    @property
    def what(self) -> str:
        return f"table {str(self._table)!r} of {self._database.place}"

    def describe(self) -> Description:
        mode = "upsert" if self._upserts else "append" if self._appends else None
        return {
            "kind": "sql",
            "place": f"{self._database.place} {self._table}",
            "format": None,
            "key": list(self._key),
            "options": {
                "url": self._database.url,
                "table": str(self._table),
                "create": self._creates,
                **({"mode": mode} if mode else {}),
            },
            "schema": packed(self.schema),
        }

    # before a start

    def check(self) -> None:
        self._check_columns_of_ours()
        if self._absent:
            folder = os.path.dirname(self._path)
            if not os.path.isdir(folder):
                hint = "Create the folder, or choose another path."
                raise OutputError("HR-SQL-002", f"there is no folder {folder!r}", hint)
        columns, keys, self._known = self._look(self._state, _NOTHING)
        if columns is None:
            self._check_missing()
        else:
            self._check_fit({c.name: c for c in columns}, keys)
        self.check_owner()
        self._known = None

    def open(self) -> None:
        """Create the table, unless it is there, and the one of epochs."""

        def create(c: Connection) -> None:
            table = c.resolve(self._table)
            c.run(
                f"CREATE TABLE IF NOT EXISTS {table.beside(EPOCHS).sql} (output text NOT NULL, "
                "producer text NOT NULL, epoch bigint NOT NULL, checksum text NOT NULL, "
                "PRIMARY KEY (output, producer))"
            )
            if c.columns(table) is None:
                required = set(self._key)
                columns = [
                    f"{quoted(f.name)} {c.type_for(f.type)}"
                    + (" NOT NULL" if f.name in required or not f.nullable else "")
                    for f in self._rows
                ]
                key = [f"PRIMARY KEY ({listed(self._key)})"] if self._upserts else []
                text = ", ".join([*columns, *key])
                c.run(f"CREATE TABLE IF NOT EXISTS {table.sql} ({text})")

        self._changed(create)
        self._columns = None

    def _check_columns_of_ours(self) -> None:
        for name in self._key:
            if name not in self._rows.names:
                raise OutputError(
                    "HR-OUTPUT-008",
                    f"the output to {self.what} has no column {name!r} to be its key",
                    f"It has: {', '.join(self._rows.names)}.",
                )

    def _check_missing(self) -> None:
        recorded = {p: e for p, e in self.producers().items() if self._is_ours(p)}
        if recorded:
            raise OutputError(
                "HR-SQL-009",
                f"{self.what} is gone, but {EPOCHS} has epoch {max(recorded.values())} of this job",
                "Restore the table. To begin with an empty one, delete the job's rows of "
                f"{EPOCHS} as well, and start with a new job folder.",
            )
        if not self._creates:
            raise OutputError(
                "HR-SQL-004",
                f"there is no {self.what}",
                "Create the table, or leave create=False out.",
            )
        types = door_to(self._database).type_for
        for field in self._rows:
            if types(field.type) is None:
                raise OutputError(
                    "HR-SQL-003",
                    f"column {field.name!r} is {ddl_type(field.type)}, which {self.what} cannot "
                    "hold exactly",
                    "Cast the column, or write its parts as columns of their own.",
                )

    def _state(self, c: Connection) -> State:
        """The columns of the table, what is unique in it, and who has delivered to it."""
        table = c.resolve(self._table)
        columns = c.columns(table)
        keys = c.keys(table) if self._upserts and columns is not None else []
        return columns, keys, self._delivered(c)

    def _check_fit(self, columns: Mapping[str, Column], keys: list[frozenset[str]]) -> None:
        for field in self._rows:
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
            if column.required and not column.filled and column.name not in self._rows.names:
                raise OutputError(
                    "HR-SQL-005",
                    f"{self.what} needs a value for column {column.name!r}, which the output "
                    "does not have",
                    "Add the column to the output, or give it a default in the table.",
                )
        if self._upserts and frozenset(self._key) not in keys:
            key = ", ".join(self._key)
            raise OutputError(
                "HR-SQL-006",
                f"{self.what} has no unique index on ({key}), the key of the output",
                f"CREATE UNIQUE INDEX ON {self._table} ({key}); or choose another key.",
            )

    # what is there

    def producers(self) -> Mapping[str, int]:
        return self._look(self._delivered, {}) if self._known is None else self._known

    def _delivered(self, c: Connection) -> Mapping[str, int]:
        return {producer: epoch for producer, (epoch, _) in self._recorded(c).items()}

    def reached(self, epoch: int) -> bool:
        columns, _, self._known = self._look(self._state, _NOTHING)
        held, self._known = self.held(), None
        return columns is not None and held is not None and held.number >= epoch

    def beyond(self, timelines: Timelines) -> Reached:
        held = self.held()
        return timelines.beyond(held.all) if held is not None else {}

    def check_same(self, epoch: int, staged: list[Reference]) -> None:
        if staged:
            rows = pa.concat_tables([self._staging.read(r) for r in staged])
            producer, checksum = noted(staged[0], "producer"), _checksum(rows)
            for name, (last, stored) in self._look(
                self._recorded, dict[str, tuple[int, str]]()
            ).items():
                if name == producer and last == epoch and stored != checksum:
                    raise self.conflict(epoch)

    def _recorded(self, c: Connection) -> dict[str, tuple[int, str]]:
        table = c.resolve(self._table)
        if c.columns(table.beside(EPOCHS)) is None:
            return {}
        sql = (
            f"SELECT producer, epoch, checksum FROM {table.beside(EPOCHS).sql} "
            f"WHERE {_same_output(c)} ORDER BY epoch"
        )
        return {str(p): (int(e), str(s)) for p, e, s in c.run(sql, table.name)}

    def go_back(self, timelines: Timelines, writer: EpochWriter) -> str:
        said = super().go_back(timelines, writer)
        if not self._upserts or "twice" not in said:
            return said
        return (
            f"output {self._name!r}: what was delivered to {self.what} cannot be taken back; "
            "rows are replaced as their keys come again, and a key that does not come stays"
        )

    # delivery

    def records(self, rows: pa.Table) -> pa.Table:
        """The rows in the types of the table; what it cannot hold fails the batch."""
        if self._columns is None:
            columns = self._look(lambda c: c.columns(c.resolve(self._table)), None)
            self._columns = {c.name: c for c in columns or ()}
        fields = []
        plain = rows.cast(without_dictionaries(rows.schema))
        for field in self._rows:
            column = self._columns.get(field.name)
            fields.append(pa.field(field.name, _stored_as(column, field.type)))
        if self._retracts:
            fields.append(pa.field(CHANGE, pa.string()))
        try:
            typed = plain.select([f.name for f in fields]).cast(pa.schema(fields))
        except (pa.ArrowException, ValueError) as cause:
            raise self._unfit(str(cause)) from cause
        for field in self._rows:
            self._check_values(typed.column(field.name), self._columns.get(field.name), field.name)
        if self._retracts:
            marks = set(pc.unique(typed.column(CHANGE)).to_pylist())
            if marks - {ADDED, RETRACTED}:
                odd = sorted(map(repr, marks - {ADDED, RETRACTED}))[0]
                raise self._unfit(f"column {CHANGE!r} has {odd}, which is neither '+' nor '-'")
        return typed

    def _check_values(self, values: pa.ChunkedArray, column: Column | None, name: str) -> None:
        required = name in self._key or (column is not None and column.required)
        if values.null_count and required and not self._retracts:
            raise self._unfit(f"column {name!r} has no value")
        if values.null_count and name in self._key:
            raise self._unfit(f"column {name!r}, of the key, has no value")
        if pa.types.is_string(values.type):
            if (
                self._database.dialect == "postgresql"
                and pc.any(pc.match_substring(values, "\0")).as_py()
            ):
                raise self._unfit(f"column {name!r} has a text with a zero character")
            longest = column.longest if column is not None else None
            if longest is not None and (pc.max(pc.utf8_length(values)).as_py() or 0) > longest:
                raise self._unfit(f"column {name!r} has a text of more than {longest} characters")
            if (
                column is not None
                and column.cast
                and not pc.all(pc.match_substring_regex(values, _UUID), min_count=0).as_py()
            ):
                raise self._unfit(f"column {name!r} has a text that is no {column.cast}")
        if (
            self._database.dialect == "sqlite"
            and pa.types.is_floating(values.type)
            and pc.any(pc.is_nan(values)).as_py()
        ):
            raise self._unfit(f"column {name!r} has NaN, which SQLite would store as null")

    def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        checksum = _checksum(rows)
        gone, rows = self._reduced(rows)

        def attempt(c: Connection) -> None:
            table = c.resolve(self._table)
            with c.transaction():
                if not self._claim(c, table, producer, epoch, checksum):
                    return
                point("sql.claimed")
                self._write(c, table, rows, gone)
                point("sql.written")
            point("sql.committed")

        self._changed(attempt)

    def _claim(
        self, c: Connection, table: TableName, producer: str, epoch: int, checksum: str
    ) -> bool:
        """Whether the epoch is ours to write; who else claims it waits for this transaction."""
        epochs = table.beside(EPOCHS)
        spelled = c.run(
            f"SELECT output FROM {epochs.sql} WHERE {_same_output(c)} AND producer = $2 "
            "ORDER BY epoch DESC LIMIT 1",
            table.name,
            producer,
        )
        claimed = c.run(
            f"INSERT INTO {epochs.sql} (output, producer, epoch, checksum) "
            "VALUES ($1, $2, $3, $4) ON CONFLICT (output, producer) DO UPDATE "
            "SET epoch = excluded.epoch, checksum = excluded.checksum "
            f"WHERE {epochs.sql if c.dialect != 'duckdb' else quoted(EPOCHS)}.epoch "
            "< excluded.epoch RETURNING epoch",
            spelled[0][0] if spelled else table.name,
            producer,
            epoch,
            checksum,
        )
        if claimed:
            return True
        stored = self._recorded(c).get(producer)
        if stored is not None and stored[0] == epoch and stored[1] != checksum:
            raise self.conflict(epoch)
        return False

    def _reduced(self, rows: pa.Table) -> tuple[pa.Table | None, pa.Table]:
        """Of an output with a key: the keys to delete, and one row for each key to write."""
        if not self._upserts:
            return None, rows
        numbered = rows.append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
        keys = listed(self._key)
        if not self._retracts:
            last = f"SELECT max({_NUMBER}) AS n FROM {duckdb.FEED} GROUP BY {keys} ORDER BY n"
            return None, rows.take(duckdb.once(last, numbered).column(0))
        columns = listed(self._rows.names)
        net = duckdb.once(
            f"SELECT max({_NUMBER}) AS n, sum(CASE WHEN {CHANGE} = '+' THEN 1 ELSE -1 END) AS net, "
            f"{keys} FROM {duckdb.FEED} GROUP BY {columns} HAVING net <> 0 ORDER BY n",
            numbered,
        )
        puts = net.filter(pc.greater(net.column("net"), 0))
        if pc.any(pc.greater(puts.column("net"), 1)).as_py() or (
            puts.num_rows > puts.group_by(list(self._key)).aggregate([]).num_rows
        ):
            raise OutputError(
                "HR-SQL-008",
                f"the output to {self.what} has several rows with the same key "
                f"({', '.join(self._key)}) at the same time",
                "The key must identify a row of the result: add columns to key=, and to the "
                "unique index of the table.",
            )
        minus = net.filter(pc.less(net.column("net"), 0)).select(list(self._key))
        gone = minus.group_by(list(self._key)).aggregate([])
        gone = gone.join(puts.select(list(self._key)), list(self._key), join_type="left anti")
        written = rows.take(puts.column("n")).select(self._rows.names)
        return gone.cast(pa.schema([written.schema.field(k) for k in self._key])), written

    def _write(
        self, c: Connection, table: TableName, rows: pa.Table, gone: pa.Table | None
    ) -> None:
        columns = self._columns or {x.name: x for x in c.columns(table) or ()}
        casts = {n: columns[n].cast for n in rows.schema.names if n in columns and columns[n].cast}
        if gone is not None and gone.num_rows:
            c.stage(f"{_STAGED}_gone", gone)
            same = " AND ".join(
                f"{table.sql}.{quoted(k)} = s.{quoted(k)}{_as(casts.get(k))}" for k in self._key
            )
            c.run(
                f"DELETE FROM {table.sql} WHERE EXISTS "
                f"(SELECT 1 FROM {quoted(f'{_STAGED}_gone')} AS s WHERE {same})"
            )
        if not rows.num_rows:
            return
        if not self._upserts and not casts:
            c.load(table, rows)
            return
        c.stage(_STAGED, rows)
        names = rows.schema.names
        values = ", ".join(f"s.{quoted(n)}{_as(casts.get(n))}" for n in names)
        others = [n for n in names if n not in self._key]
        sets = ", ".join(f"{quoted(n)} = excluded.{quoted(n)}" for n in others)
        action = f"DO UPDATE SET {sets}" if others else "DO NOTHING"
        conflict = f" ON CONFLICT ({listed(self._key)}) {action}" if self._upserts else ""
        c.run(
            f"INSERT INTO {table.sql} ({listed(names)}) SELECT {values} "
            f"FROM {quoted(_STAGED)} AS s WHERE true{conflict}"
        )

    # asking

    @property
    def _path(self) -> str:
        return self._database.url.partition(":")[2]

    @property
    def _absent(self) -> bool:
        """Whether the database is a file that is not there yet."""
        return self._database.dialect != "postgresql" and not os.path.exists(self._path)

    def _look(self, ask: Callable[[Connection], T], otherwise: T) -> T:
        """What `ask` returns; changes nothing, so it makes no file."""
        if self._absent:
            return otherwise
        try:
            with connected(self._database) as connection:
                return ask(connection)
        except SqlFailure as failure:
            if failure.transient and not failure.refused:
                return self._changed(ask)
            raise self._failed(failure) from failure

    def _changed(self, attempt: Callable[[Connection], T]) -> T:
        try:
            return patiently(self._database, attempt, self._gave_up)
        except SqlFailure as failure:
            raise self._failed(failure) from failure

    def _gave_up(self, why: str) -> OutputError:
        return OutputError(
            "HR-SQL-010",
            f"{self._database.place} did not come back: {why}",
            "Nothing is lost: start the job again when it is there, and it delivers what is due.",
        )

    def _failed(self, failure: SqlFailure) -> OutputError:
        if failure.refused:
            return OutputError(
                "HR-SQL-002",
                f"cannot connect to {self._database.place}: {failure}",
                "Check the address, the user and the password (in the URI, PGPASSWORD or "
                "PGPASSFILE), and that the server runs.",
            )
        return OutputError(
            "HR-SQL-007",
            f"the database refused what was to be written to {self.what}: {failure}",
            "Correct the table (its constraints, triggers, permissions) and start the job again: "
            "nothing is lost, the epoch is delivered then.",
        )

    def _unfit(self, why: str) -> OutputError:
        return OutputError(
            "HR-OUTPUT-006",
            f"rows of the output do not fit {self.what}: {why}",
            "Correct the values (coalesce, where), or write to another table; nothing of this "
            "batch is committed.",
        )

    def _is_ours(self, producer: str) -> bool:
        known = self._identity.known()
        return known is not None and producer.startswith(known)


def _as(type_name: str | None) -> str:
    return f"::{type_name}" if type_name else ""


def _same_output(c: Connection) -> str:
    """Of the table of epochs: the rows of a table, whose name may ignore case."""
    return "output = $1" if c.dialect == "postgresql" else "lower(output) = lower($1)"


def _checksum(rows: pa.Table) -> str:
    """Of the rows as they were staged; the same for the same references."""
    digest = hashlib.sha256()
    for column in rows.columns:
        for chunk in column.chunks:
            batch = pa.record_batch([chunk], names=["x"])
            digest.update(batch.serialize())
    return digest.hexdigest()[:32]


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


def _key_of(o: OutputRequest) -> tuple[str, ...]:
    key = o.options.get("key", ())
    return (key,) if isinstance(key, str) else tuple(key)


def _check(o: OutputRequest) -> None:
    refuse_unknown(o, ("table", "mode", "key", "create", PASSWORD))
    if database_of(o.rest, None) is None:
        raise OutputError(
            "HR-SQL-001",
            "the text after 'sql:' names no database",
            'Write "sql:postgresql://user@host/db", "sql:sqlite:path" or "sql:duckdb:path".',
        )
    table, mode = o.options.get("table"), o.options.get("mode")
    if not isinstance(table, str) or not table:
        raise bad_option(o, "table", table, 'Name the table: table="totals".')
    if TableName.of(table).name.lower() == EPOCHS:
        raise bad_option(o, "table", table, "It is where outputs note their epochs; name another.")
    if mode not in (None, "append", "upsert"):
        raise bad_option(o, "mode", mode, 'Pass mode="append" or mode="upsert".')
    if not isinstance(o.options.get("create", True), bool):
        raise bad_option(o, "create", o.options["create"], "Pass True or False.")
    key = o.options.get("key")
    texts = key if isinstance(key, list | tuple) else [key]
    if mode == "upsert" and not (texts and all(isinstance(k, str) and k for k in texts)):
        raise bad_option(o, "key", key, 'Name the columns that identify a row: key=["id"].')
    if mode != "upsert" and key:
        raise bad_option(o, "key", key, 'A key needs mode="upsert".')


def _open(o: OutputRequest) -> Sink:
    database = database_of(o.rest, o.options.get(PASSWORD))
    assert database is not None  # checked
    if database.secret is not None:
        _secrets[database.url] = database.secret
    elif database.url in _secrets:
        database = replace(database, secret=_secrets[database.url])
    return SqlSink(o, database)


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    options = {k: v for k, v in about["options"].items() if k != "url"}
    return about["options"]["url"], {**options, "key": about["key"]}


SQL = OutputKind(_check, _open, _reopen)
