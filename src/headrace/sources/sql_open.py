"""From "sql:..." to the input that it is: a snapshot, rows that grow, or changes."""

from __future__ import annotations

import re

from headrace.connect.sql import Database, database_of
from headrace.errors import InputError
from headrace.secrets import PASSWORD
from headrace.sources.contract import InputRequest, Source, refuse_unknown
from headrace.sources.sql import SqlSource
from headrace.sources.sql_changes import ChangesSource
from headrace.sources.sql_growing import GrowingSource


def open_sql(o: InputRequest) -> Source:
    refuse_unknown(o, ("table", "query", "growing", "settle", "poll", "changes", "slot", PASSWORD))
    database = database_of(o.rest, o.options.get(PASSWORD))
    if database is None:
        raise InputError(
            "HR-SQL-001",
            "the text after 'sql:' names no database",
            'Write "sql:postgresql://user@host/db", "sql:sqlite:path" or "sql:duckdb:path".',
        )
    table, query = o.options.get("table"), o.options.get("query")
    texts = [t for t in (table, query) if t is not None]
    if len(texts) != 1 or not isinstance(texts[0], str) or not texts[0]:
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} needs either table= or query=",
            'Write table="orders", or query="SELECT ... FROM orders".',
        )
    growing = o.options.get("growing")
    if o.options.get("changes", False):
        return _changes(o, database)
    if growing is None:
        for option in ("settle", "poll", "slot"):
            if option in o.options:
                raise InputError(
                    "HR-INPUT-013",
                    f"{o.uri!r} has {option}=, but not the column that grows",
                    'Name it: growing="id".',
                )
        return SqlSource(o, database)
    if not isinstance(growing, str):
        raise InputError(
            "HR-INPUT-013", f"{o.uri!r} has growing={growing!r}", 'Name a column: growing="id".'
        )
    return GrowingSource(o, database)


def _changes(o: InputRequest, database: Database) -> Source:
    wrong = [n for n in ("growing", "settle", "query") if n in o.options]
    slot = o.options.get("slot")
    if wrong or database.dialect != "postgresql":
        what = f"{wrong[0]}=" if wrong else "another database than PostgreSQL"
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has changes=True with {what}",
            "Changes are those of a table of PostgreSQL: leave one of the two out.",
        )
    if slot is not None and not re.fullmatch(r"[a-z0-9_]{1,63}", str(slot)):
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has slot={slot!r}",
            "A slot is named by lower-case letters, digits and underscores.",
        )
    return ChangesSource(o, database)
