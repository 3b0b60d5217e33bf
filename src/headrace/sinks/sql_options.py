"""The options of a database output: checked by their text; nothing is connected here."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.connect.sql import Database, TableName, database_of
from headrace.errors import OutputError
from headrace.secrets import PASSWORD
from headrace.sinks.contract import OutputRequest, bad_option, refuse_unknown
from headrace.sinks.sql_epochs import EPOCHS

_LONGEST_NAME = {"postgresql": 63}  # bytes; what is longer would be cut


def check_options(o: OutputRequest) -> None:
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
    named, database = TableName.of(table), database_of(o.rest, None)
    assert database is not None
    check_names(database, [named.schema, named.name])
    if named.name.lower() == EPOCHS:
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


def key_of(o: OutputRequest) -> tuple[str, ...]:
    key = o.options.get("key", ())
    return (key,) if isinstance(key, str) else tuple(key)


def check_names(database: Database, names: Sequence[str]) -> None:
    """Refuse a name that the database would cut."""
    most = _LONGEST_NAME.get(database.dialect)
    for name in names:
        if most is not None and len(name.encode()) > most:
            raise OutputError(
                "HR-SQL-030",
                f"the name {name!r} has {len(name.encode())} bytes, and PostgreSQL cuts names "
                f"after {most}",
                "Choose a shorter name (select, rename).",
            )
