"""A table of a database as an output: rows and epoch in one transaction.

    job...write("sql:postgresql://host/db", table="totals", mode="upsert", key="area")

Beside the table there is another, `headrace_epochs`: which producer has delivered, up to which
epoch, and a checksum of what. A transaction first claims its epoch there, then writes its rows;
who finds the epoch claimed has nothing to do. So a commit whose outcome is unknown is asked for
again, and a driver that was stopped and let go later changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from headrace.connect.sql import (
    Column,
    Connection,
    Database,
    SqlFailure,
    TableName,
    database_of,
    door_to,
    listed,
    patiently,
    quoted,
)
from headrace.errors import OutputError
from headrace.schema import ddl_type
from headrace.secrets import PASSWORD, Secret
from headrace.sinks.columns import packed
from headrace.sinks.contract import (
    Description,
    EpochWriter,
    HeldEpochs,
    OutputKind,
    OutputRequest,
    Reached,
    Reference,
    Sink,
    Timelines,
)
from headrace.sinks.delivered import DeliveredSink, digest
from headrace.sinks.durable import noted
from headrace.sinks.formats import without_dictionaries
from headrace.sinks.sql_epochs import (
    OtherRows,
    claimed_epoch,
    create_epochs,
    is_same,
    recorded_epochs,
)
from headrace.sinks.sql_fit import TableFit, beyond_ascii
from headrace.sinks.sql_options import check_names, check_options, key_of
from headrace.sinks.sql_writing import CHANGE, TableWriter
from headrace.state.faults import point

T = TypeVar("T")
State = tuple[list[Column] | None, dict[frozenset[str], str], Mapping[str, int]]
_NOTHING: State = (None, {}, {})
_ENCODING = "SELECT current_setting('server_encoding')"
_UNTRANSLATABLE = "22P05"  # SQLSTATE
_secrets: dict[str, Secret] = {}  # by database: as this process has seen them; never stored


class SqlSink(DeliveredSink):
    because = "the rows of an epoch and its number are one transaction of the database"

    def __init__(self, o: OutputRequest, database: Database) -> None:
        upserts = o.options.get("mode") == "upsert"
        plain = {k: v for k, v in o.options.items() if k != "mode" or not upserts}
        super().__init__(replace(o, options=plain))
        self._database, self._table = database, TableName.of(o.options["table"])
        self._upserts, self._key = upserts, key_of(o)
        self._creates: bool = o.options.get("create", True)
        self._retracts = upserts and CHANGE in o.schema.names
        names = [
            f for f in without_dictionaries(o.schema) if not self._retracts or f.name != CHANGE
        ]
        self._rows = pa.schema(names)  # what the table holds
        form = self._rows, self._key, upserts, self._retracts
        self._fit = TableFit(self.what, database.dialect, self._table, *form)
        self._writer = TableWriter(self.what, *form)
        self._columns: dict[str, Column] | None = None  # of the table, once they are known
        self._known: Mapping[str, int] | None = None  # its producers, within a check
        self._any_text: bool | None = None  # whether the database holds every character
        self._starting = True  # nothing is running that could wait for the database

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
            if self._look(lambda c: c.is_view(c.resolve(self._table)), False):
                raise OutputError(
                    "HR-SQL-029",
                    f"{self.what} is a view, to which rows cannot be written",
                    "Write to the table behind it, or give the view a trigger INSTEAD OF INSERT.",
                )
            self._fit.check({c.name: c for c in columns}, keys)
        self.check_owner()
        self._known = None

    def open(self) -> None:
        """Create the table, unless it is there, and the one of epochs."""

        def create(c: Connection) -> None:
            table = c.resolve(self._table)
            create_epochs(c, table)
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

        self._starting = False
        self._changed(create)
        self._columns = None

    def _check_columns_of_ours(self) -> None:
        check_names(self._database, self._rows.names)
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
                f"{self.what} is gone, but headrace_epochs has epoch {max(recorded.values())} of "
                "this job",
                "Restore the table. To begin with an empty one, delete the job's rows of "
                "headrace_epochs as well, and start with a new job folder.",
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
        keys = c.keys(table) if self._upserts and columns is not None else {}
        return columns, keys, self._delivered(c)

    # what is there

    def producers(self) -> Mapping[str, int]:
        return self._look(self._delivered, {}) if self._known is None else self._known

    def _delivered(self, c: Connection) -> Mapping[str, int]:
        return {producer: epoch for producer, (epoch, _) in self._recorded(c).items()}

    def held(self) -> HeldEpochs | None:
        """Nothing, if the table is gone, whatever the one of epochs says."""

        def delivered(c: Connection) -> Mapping[str, int]:
            return self._delivered(c) if c.columns(c.resolve(self._table)) is not None else {}

        known = self._identity.known() is not None
        return self.held_of(self._look(delivered, {}) if known else {})

    def reached(self, epoch: int) -> bool:
        held = self.held()
        return held is not None and held.number >= epoch

    def beyond(self, timelines: Timelines) -> Reached:
        held = self.held()
        return timelines.beyond(held.all) if held is not None else {}

    def check_same(self, epoch: int, staged: list[Reference]) -> None:
        if staged:
            rows = pa.concat_tables([self._staging.read(r) for r in staged])
            producer = noted(staged[0], "producer")
            for name, (last, stored) in self._look(
                self._recorded, dict[str, tuple[int, str]]()
            ).items():
                if name == producer and last == epoch and not is_same(stored, digest(staged), rows):
                    raise self.conflict(epoch)

    def _recorded(self, c: Connection) -> dict[str, tuple[int, str]]:
        return recorded_epochs(c, c.resolve(self._table))

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
        typed = self._fit.fitted(rows, self._columns)
        if self._database.dialect == "postgresql":
            self._check_characters(typed)
        return typed

    def _check_characters(self, rows: pa.Table) -> None:
        """Fail the batch for characters that the encoding of the database does not have."""
        odd = "".join(sorted(set().union(*map(beyond_ascii, rows.columns))))
        if not odd:
            return
        if self._any_text is None:
            ((encoding,),) = self._look(lambda c: c.run(_ENCODING), [("UTF8",)])
            self._any_text = encoding in ("UTF8", "SQL_ASCII")
        if self._any_text:
            return
        try:
            asked = "SELECT length($1)"
            patiently(self._database, lambda c: c.run(asked, odd), self._gave_up)
        except SqlFailure as failure:
            if failure.state != _UNTRANSLATABLE:
                raise self._failed(failure) from failure
            raise self._fit.unfit(f"the database cannot hold a character ({failure})") from failure

    def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        self._starting = False
        gone, written = self._writer.reduced(rows)

        def attempt(c: Connection) -> None:
            table = c.resolve(self._table)
            with c.transaction():
                if not claimed_epoch(c, table, producer, epoch, rows, self._digest):
                    return
                point("sql.claimed")
                columns = self._columns or {x.name: x for x in c.columns(table) or ()}
                self._writer.write(c, table, columns, written, gone)
                point("sql.written")
            point("sql.committed")

        try:
            self._changed(attempt)
        except OtherRows as cause:
            raise self.conflict(epoch) from cause

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
        return self._changed(ask)

    def _changed(self, attempt: Callable[[Connection], T]) -> T:
        try:
            return patiently(self._database, attempt, self._gave_up, starting=self._starting)
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

    def _is_ours(self, producer: str) -> bool:
        known = self._identity.known()
        return known is not None and producer.startswith(known)


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


SQL = OutputKind(check_options, _open, _reopen)
