"""Tables of databases: exact types, upserts and retractions, secrets, kills, a server that goes."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.databases import database, encoded_database, new_table, run, selected, server, uri
from tests.joins.postgres import PASSWORD
from tests.sinks.sql_cases import DIALECTS, output
from tests.sinks.writing import ALONE, Output, in_child, made, refusal
from tests.sources.reading import read_split

from headrace.connect import sql
from headrace.schema import schema_of
from headrace.sinks import open_sink
from headrace.sources import open_source

TYPES = schema_of(
    "id bigint, small smallint, x double, f float, yes boolean, text string, raw binary, day date, "
    "at timestamp, amount decimal(20,4)"
)
ROW = {
    "id": 2**62, "small": -5, "x": 0.1, "f": 0.5, "yes": True, "text": "é '\"\n", "raw": b"\0\xff",
    "day": dt.date(1969, 2, 28), "at": dt.datetime(1960, 1, 1, 12, 0, 0, 123456, dt.UTC),
    "amount": decimal.Decimal("-1234567890123456.7890"),
}  # fmt: skip
KEYED = schema_of("k bigint, v string")
CHANGES = schema_of("k bigint, v string, change string")


def in_flight(references: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """References as a manifest stores them."""
    stored: list[dict[str, Any]] = json.loads(json.dumps(references))
    return stored


def publish(sink: Any, epoch: int, rows: list[dict[str, Any]], parts: int = 1) -> Any:
    table = pa.Table.from_pylist(rows, sink.schema)
    step = -(-len(rows) // parts) or 1
    staged = []
    for i in range(0, len(rows), step):
        staged += sink.stage(table.slice(i, step), epoch, f"{os.getpid()}/{i}")
    staged = in_flight(staged)
    sink.publish(epoch, staged, ALONE)
    return staged


@pytest.mark.parametrize("dialect", DIALECTS)
def test_values_are_written_and_read_exactly(tmp_path, dialect):
    from headrace.connect.sql import TableName, connected

    out = output(tmp_path, dialect, Output, TYPES)
    empty = dict.fromkeys(ROW) | {"id": 1}
    sink = made(out.open())
    publish(sink, 0, [ROW, empty])

    table = TableName.of(str(sink._table))
    query = f"SELECT * FROM {table.sql}"
    with connected(database(dialect, tmp_path)) as connection:
        declared = TYPES if dialect == "sqlite" else None  # decimals are text there
        schema = connection.describe(query, declared)
        rows = pa.concat_tables(connection.fetch(query, schema)).to_pylist()
    if dialect == "sqlite":
        assert schema == TYPES
    assert sorted(rows, key=lambda r: r["id"]) == [empty, ROW]


def test_lists_and_uuids_in_postgres(tmp_path):
    table = new_table("postgresql")
    where = database("postgresql", tmp_path)
    run(where, f"CREATE TABLE {table} (u uuid, n int[], t text[], c varchar(3), k bigserial)")
    schema = schema_of("u string, n array<int>, t array<string>, c string")
    sink = made(output(tmp_path, "postgresql", Output, schema, table=table).open())
    id = "1e1c1d8e-0000-0000-0000-000000000001"
    publish(sink, 0, [{"u": id, "n": [1, None], "t": ["a", ""], "c": "abc"}])

    assert run(where, f"SELECT u::text, n, t, c, k FROM {table}") == [
        (id, [1, None], ["a", ""], "abc", 1)
    ]
    for bad in ({"u": "x"}, {"c": "abcd"}, {"c": "a\0"}):
        row = dict.fromkeys(schema.names) | bad
        error = refusal(sink.stage, pa.Table.from_pylist([row], schema), 1, "a")
        assert error.code == "HR-OUTPUT-006"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_last_row_of_a_key_stays(tmp_path, dialect):
    out = output(tmp_path, dialect, Output, KEYED, mode="upsert", key=["k"])
    sink = made(out.open())
    draw, model = random.Random(7), dict[int, str]()
    for epoch in range(6):
        rows = [{"k": draw.randrange(9), "v": f"{epoch}/{i}"} for i in range(draw.randrange(20))]
        publish(sink, epoch, rows, 3)
        model |= {r["k"]: r["v"] for r in rows}
        assert out.rows() == sorted(model.items())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_retracted_is_deleted_however_changes_are_cut(tmp_path, dialect):
    """The model is a table; its changes, a `-` and a `+` for each update, make the output."""
    out = output(tmp_path, dialect, Output, CHANGES, mode="upsert", key="k")
    sink = made(out.open())
    draw, table, changes = random.Random(3), dict[int, str](), list[dict[str, Any]]()
    for epoch in range(25):
        for _ in range(draw.randrange(12)):
            k, v = draw.randrange(6), draw.choice([None, "a", "b"])
            if k in table:
                changes.append({"k": k, "v": table.pop(k), "change": "-"})
            if v is not None:
                table[k] = v
                changes.append({"k": k, "v": v, "change": "+"})
        if draw.random() < 0.6:
            # "+" of another task may come before its "-" in the same batch
            mixed = sorted(changes, key=lambda _: draw.random()) if draw.random() < 0.3 else changes
            publish(sink, epoch, mixed, 2)
            changes = []
            assert out.rows() == sorted(table.items())


def test_a_key_that_is_none_is_noticed(tmp_path):
    out = output(tmp_path, "sqlite", Output, CHANGES, mode="upsert", key="k")
    sink = made(out.open())
    rows = [{"k": 1, "v": "a", "change": "+"}, {"k": 1, "v": "b", "change": "+"}]
    assert refusal(publish, sink, 0, rows).code == "HR-SQL-008"
    for bad in ({"k": None, "v": "a", "change": "+"}, {"k": 1, "v": "a", "change": "?"}):
        assert refusal(publish, sink, 0, [bad]).code == "HR-OUTPUT-006"


def test_tables_that_do_not_fit_are_refused_at_the_start(tmp_path):
    where = database("sqlite", tmp_path)
    run(
        where,
        "CREATE TABLE a (k INTEGER, v INTEGER)",
        "CREATE TABLE b (k INTEGER, v TEXT, w TEXT NOT NULL)",
        "CREATE TABLE c (k INTEGER)",
        "CREATE TABLE d (k INTEGER, v TEXT)",
    )

    def code(table: str, schema: pa.Schema = KEYED, **options: Any) -> str:
        return refusal(
            output(tmp_path, "sqlite", Output, schema, table=table, **options).open().check
        ).code

    assert code("a") == code("c") == "HR-OUTPUT-006"
    assert code("b") == "HR-SQL-005"
    assert code("d", mode="upsert", key="k") == "HR-SQL-006"
    assert code("e", create=False) == "HR-SQL-004"
    assert code("e", schema_of("m map<string, int>")) == "HR-SQL-003"
    assert code("d", mode="upsert", key="nix") == "HR-OUTPUT-008"


@pytest.mark.parametrize(
    "options",
    [{}, {"table": "t", "mode": "upsert"}, {"table": "t", "key": "k"}, {"table": "t", "tabel": 1},
     {"table": "t", "mode": "replace"}, {"table": "t", "create": "no"},
     {"table": "headrace_epochs"}, {"table": "main.Headrace_Epochs"}],
)  # fmt: skip
def test_wrong_options_are_refused_when_the_program_is_built(options, tmp_path):
    error = refusal(open_sink, "sql:sqlite:x.db", KEYED, options, str(tmp_path), "o")
    assert error.code == "HR-OUTPUT-008"


def test_a_text_that_names_no_database_is_refused_without_showing_it(tmp_path):
    for text in (
        "sql:mysql://me:s3cret@h/db",
        "sql:",
        "sql:postgresql:me:s3cret@h",
        "sql:sqlite://x",
    ):
        error = refusal(open_sink, text, KEYED, {"table": "t"}, str(tmp_path), "o")
        assert error.code in ("HR-SQL-001", "HR-OUTPUT-001") and "s3cret" not in str(error)


def test_a_password_is_neither_shown_nor_stored(tmp_path):
    out = output(tmp_path, "postgresql", Output, KEYED)
    sink = made(out.open())
    publish(sink, 0, [{"k": 1, "v": "a"}])

    shown = [repr(vars(sink)), str(sink.describe()), sink.what]
    assert all(PASSWORD not in text for text in shown)
    files = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert files and all(PASSWORD.encode() not in content for content in files)
    wrong = uri("postgresql", tmp_path).replace(PASSWORD, "an0ther")
    error = refusal(open_sink(wrong, KEYED, {"table": "t"}, str(tmp_path), "o").check)
    assert error.code == "HR-SQL-002" and "an0ther" not in str(error)


def test_another_content_of_the_same_epoch_is_noticed(tmp_path):
    out = output(tmp_path, "sqlite", Output, KEYED)
    sink = made(out.open())
    staged = publish(sink, 0, [{"k": 1, "v": "a"}])
    others = in_flight(sink.stage(pa.table({"k": [2], "v": ["b"]}, KEYED), 0, "other"))

    assert refusal(sink.publish, 0, others, ALONE).code == "HR-OUTPUT-013"
    assert refusal(sink.check_same, 0, others).code == "HR-OUTPUT-013"
    sink.check_same(0, staged)
    assert out.rows() == [(1, "a")]


def test_an_epoch_that_an_earlier_release_recorded_is_told_from_another(tmp_path):
    out = output(tmp_path, "sqlite", Output, KEYED)
    sink = made(out.open())
    staged = publish(sink, 0, [{"k": 1, "v": "a"}])
    others = in_flight(sink.stage(pa.table({"k": [2], "v": ["b"]}, KEYED), 0, "other"))
    of_rows = hashlib.sha256()  # what it recorded: a checksum of the rows, not of their files
    for values in (pa.array([1]), pa.array(["a"])):
        of_rows.update(pa.record_batch([values], names=["x"]).serialize())
    earlier = "UPDATE headrace_epochs SET checksum = ?", [of_rows.hexdigest()[:32]]
    with closing(sqlite3.connect(tmp_path / "rows.sqlite")) as base, base:
        assert base.execute(*earlier).rowcount == 1

    sink.publish(0, staged, ALONE)
    sink.check_same(0, staged)
    assert refusal(sink.publish, 0, others, ALONE).code == "HR-OUTPUT-013"
    assert refusal(sink.check_same, 0, others).code == "HR-OUTPUT-013"
    assert out.rows() == [(1, "a")]


def test_a_table_that_was_dropped_is_noticed(tmp_path):
    out = output(tmp_path, "sqlite", Output, KEYED)
    sink = made(out.open())
    publish(sink, 1, [{"k": 1, "v": "a"}])
    assert sink.reached(1)
    run(database("sqlite", tmp_path), "DROP TABLE t")

    assert not sink.reached(1)
    assert refusal(out.open().check).code == "HR-SQL-009"


def test_nothing_is_held_by_a_table_that_is_gone(tmp_path):
    """Also while the table of epochs still says so: `hr.outputs` asks this."""
    out = output(tmp_path, "sqlite", Output, KEYED)
    sink = made(out.open())
    publish(sink, 1, [{"k": 1, "v": "a"}])
    assert out.open().held().number == 1
    run(database("sqlite", tmp_path), "DROP TABLE t")
    assert out.open().held().number == 0


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP", "SQL_ASCII"])
def test_texts_are_themselves_in_a_database_of_another_encoding(tmp_path, encoding):
    place = encoded_database(encoding)
    text = "日本" if encoding == "EUC_JP" else "é ü"
    sink = made(open_sink(f"sql:{place}", KEYED, {"table": "t"}, str(tmp_path / "job"), "o"))
    publish(sink, 0, [{"k": 1, "v": text}])

    with psycopg.connect(place, client_encoding="UTF8") as other:
        assert other.execute("SELECT v FROM t").fetchall() == [(text,)]
    read = open_source(f"sql:{place}", options={"table": "t"}, folder=str(tmp_path / "b"), name="i")
    while not read.ended("rows", read.latest("rows")):
        read.discover()
    assert [r["v"] for r in read_split(read, "rows")[0]] == [text]
    read.close()


def test_a_character_that_the_encoding_does_not_have_fails_the_batch(tmp_path):
    place, lists = encoded_database("LATIN1"), schema_of("k bigint, v array<string>")
    for i, (schema, value) in enumerate(((KEYED, "5 €"), (lists, ["a", "5 €"]))):
        options = {"table": f"t{i}"}
        sink = made(open_sink(f"sql:{place}", schema, options, str(tmp_path / f"{i}"), "o"))
        rows = pa.Table.from_pylist([{"k": 1, "v": value}], schema)
        error = refusal(lambda s=sink, r=rows: s.stage(r, 0, "a"))
        assert error.code == "HR-OUTPUT-006" and "character" in error.message


def test_what_the_database_refuses_is_delivered_once_it_may_be(tmp_path):
    out = output(tmp_path, "sqlite", Output, KEYED, table="t")
    where = database("sqlite", tmp_path)
    run(where, "CREATE TABLE t (k INTEGER CHECK (k < 5), v TEXT)")
    sink = made(out.open())
    staged = in_flight(sink.stage(pa.table({"k": [3, 7], "v": ["a", "b"]}, KEYED), 0, "a"))

    assert refusal(sink.publish, 0, staged, ALONE).code == "HR-SQL-007"
    assert out.rows() == []
    run(where, "ALTER TABLE t RENAME TO old", "CREATE TABLE t (k INTEGER, v TEXT)")
    sink.publish(0, staged, ALONE)
    assert out.rows() == [(3, "a"), (7, "b")]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("point", ["sql.claimed:2", "sql.written:2", "sql.committed:2"])
def test_a_driver_that_is_killed_in_a_transaction_is_taken_up_by_the_next(tmp_path, dialect, point):
    table = new_table(dialect)
    job, place = str(tmp_path / "job"), uri(dialect, tmp_path)

    def life() -> None:
        sink = made(open_sink(place, KEYED, {"table": table}, job, "o"))
        for epoch in range(4):
            publish(sink, epoch, [{"k": epoch, "v": f"{i}"} for i in range(3)])

    def killed_life() -> None:
        os.environ["HEADRACE_CRASH"] = point
        life()

    assert in_child(killed_life) == (-signal.SIGKILL, "")
    assert in_child(life) == (0, "")
    whole = sorted((e, f"{i}") for e in range(4) for i in range(3))
    assert selected(database(dialect, tmp_path), table) == whole


def test_a_server_that_is_restarted_is_waited_for(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(sql, "LONGEST_PAUSE", 0.2)
    out = output(tmp_path, "postgresql", Output, KEYED)
    sink = made(out.open())
    publish(sink, 0, [{"k": 0, "v": "a"}])
    running = server()
    running.stop()
    back = threading.Timer(1.0, running.start)
    back.start()
    try:
        publish(sink, 1, [{"k": 1, "v": "b"}])
    finally:
        back.join()

    assert Counter(out.rows()) == Counter([(0, "a"), (1, "b")])
    said = " ".join(caplog.messages)
    assert "trying again" in said and "connected again" in said and PASSWORD not in said


def test_a_running_job_waits_for_a_server_whatever_it_asks(tmp_path, monkeypatch):
    """Also what is there, before each commit; a start does not wait, but has no broken connection
    of a run before it."""
    monkeypatch.setattr(sql, "LONGEST_PAUSE", 0.2)
    out = output(tmp_path, "postgresql", Output, KEYED)
    sink, starting = made(out.open()), out.open()
    publish(sink, 0, [{"k": 0, "v": "a"}])
    running = server()
    running.stop()
    back = threading.Timer(0.5, running.start)
    back.start()
    try:
        assert refusal(starting.check).code == "HR-SQL-002"
        held = sink.held()
    finally:
        back.join()
    assert held is not None and held.number == 0
    with sql.connected(database("postgresql", tmp_path)) as one:  # it is idle when it is ended
        ended = one.run("SELECT pg_backend_pid()")[0][0]
    with psycopg.connect(server().url) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [ended])
        other.execute("SELECT pg_sleep(0.05)")
    starting.check()


@pytest.mark.parametrize("dialect", ["sqlite", "duckdb"])
def test_a_file_that_another_process_has_locked_is_waited_for_at_a_start(
    dialect, tmp_path, monkeypatch
):
    from headrace.connect import sql_sqlite

    monkeypatch.setattr(sql_sqlite, "_PATIENCE", 0.05)
    place = uri(dialect, tmp_path)
    run(database(dialect, tmp_path), "CREATE TABLE t (k bigint, v text)")
    sink = open_sink(place, KEYED, {"table": "t"}, str(tmp_path / "job"), "o")
    source = open_source(place, options={"table": "t"}, folder=str(tmp_path / "b"), name="i")
    path = place.partition(f"{dialect}:")[2]
    lock = {
        "sqlite": f"import sqlite3; c = sqlite3.connect({path!r}); c.execute('BEGIN EXCLUSIVE')",
        "duckdb": f"import duckdb; c = duckdb.connect({path!r})",
    }[dialect]
    with locked(lock) as holder:
        threading.Timer(0.4, holder.kill).start()
        sink.check()
        source.check()
    monkeypatch.setattr(sql, "LOCKED", 0.1)
    with locked(lock):
        assert refusal(sink.check).code == "HR-SQL-010"


@contextmanager
def locked(program):
    """Another process that has the lock which its program takes."""
    command = [sys.executable, "-c", f"{program}; print(flush=True); import time; time.sleep(60)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        yield holder
        holder.kill()


def test_a_server_that_does_not_come_back_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sql, "PATIENCE", 0.0)
    where = Path(tmp_path / "busy.db")
    place = f"sql:sqlite:{where}"
    from headrace.connect import sql_sqlite

    monkeypatch.setattr(sql_sqlite, "_PATIENCE", 0.05)
    sink = made(open_sink(place, KEYED, {"table": "t"}, str(tmp_path / "job"), "o"))
    found = sql.database_of(place.removeprefix("sql:"), None)
    assert found is not None
    with sql.connected(found) as other:
        other.begin()
        assert refusal(publish, sink, 0, [{"k": 1, "v": "a"}]).code == "HR-SQL-010"
        other.rollback()


@pytest.mark.parametrize("dialect", ["sqlite", "duckdb"])
def test_a_table_is_the_same_in_any_case_where_the_database_ignores_it(tmp_path, dialect):
    place = uri(dialect, tmp_path)
    first = made(open_sink(place, KEYED, {"table": "sales"}, str(tmp_path / "a"), "o"))
    staged = publish(first, 0, [{"k": 1, "v": "a"}])
    other = open_sink(place, KEYED, {"table": "Sales"}, str(tmp_path / "b"), "o")
    assert refusal(other.check).code == "HR-OUTPUT-004"
    same = made(open_sink(place, KEYED, {"table": "SALES"}, str(tmp_path / "a"), "o"))
    same.publish(0, staged, ALONE)
    assert selected(database(dialect, tmp_path), "sales") == [(1, "a")]


@pytest.mark.parametrize("dialect", ["sqlite", "duckdb", "postgresql"])
def test_a_view_is_refused_at_the_start(tmp_path, dialect):
    where, table = database(dialect, tmp_path), new_table(dialect)
    run(
        where,
        f"CREATE TABLE {table}_b (k bigint, v text)",
        f"CREATE VIEW {table} AS SELECT * FROM {table}_b",
    )
    out = output(tmp_path, dialect, Output, KEYED, table=table)
    assert refusal(out.open().check).code == "HR-SQL-029"
    if dialect != "postgresql":
        return
    run(
        where,
        f"CREATE FUNCTION {table}_f() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN INSERT INTO {table}_b VALUES (NEW.k, NEW.v); RETURN NEW; END$$",
        f"CREATE TRIGGER x INSTEAD OF INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_f()",
    )
    publish(made(out.open()), 0, [{"k": 1, "v": "a"}])
    assert selected(where, f"{table}_b") == [(1, "a")]


def test_a_name_that_postgresql_would_cut_is_refused(tmp_path):
    place = uri("postgresql", tmp_path)
    fits, long = "x" * 63, "\u00e9" * 32
    for table in (long, f"{long}.t", "s." + "y" * 64):
        error = refusal(open_sink, place, KEYED, {"table": table}, str(tmp_path), "o")
        assert error.code == "HR-SQL-030"
    for name, code in ((long, "HR-SQL-030"), (fits, None)):
        schema = pa.schema([("k", pa.int64()), (name, pa.string())])
        table = new_table("postgresql")
        sink = open_sink(place, schema, {"table": table}, str(tmp_path / name[0]), "o")
        if code:
            assert refusal(sink.check).code == code
        else:
            publish(made(sink), 0, [{"k": 1, name: "a"}])
            assert selected(database("postgresql", tmp_path), table) == [(1, "a")]


def test_a_zero_character_within_an_array_fails_the_batch_and_not_the_delivery(tmp_path):
    schema = schema_of("k bigint, v array<string>")
    sink = made(output(tmp_path, "postgresql", Output, schema).open())
    rows = pa.Table.from_pylist([{"k": 1, "v": ["a", "b\0"]}], schema)
    assert refusal(sink.stage, rows, 0, "a").code == "HR-OUTPUT-006"
    publish(sink, 0, [{"k": 1, "v": ["a", None]}, {"k": 2, "v": None}])


@pytest.mark.parametrize("dialect", ["sqlite", "duckdb", "postgresql"])
def test_the_hint_for_a_missing_index_can_be_followed(tmp_path, dialect):
    where, table = database(dialect, tmp_path), new_table(dialect)
    run(where, f"CREATE TABLE {table} (k bigint, v text)")
    out = output(tmp_path, dialect, Output, KEYED, table=table, mode="upsert", key="k")
    error = refusal(out.open().check)
    assert error.code == "HR-SQL-006"
    run(where, error.hint.partition(";")[0])
    out.open().check()


@pytest.mark.parametrize(
    ("dialect", "columns"),
    [
        ("sqlite", "k text COLLATE NOCASE PRIMARY KEY, n bigint"),
        ("sqlite", "n bigint, k text COLLATE rtrim UNIQUE"),
        ("sqlite", "k text, n bigint, UNIQUE (k COLLATE NOCASE)"),
        ("sqlite", "k text COLLATE binary PRIMARY KEY, n bigint"),
        ("duckdb", "n bigint, k text COLLATE NOCASE PRIMARY KEY"),
        ("duckdb", 'k text COLLATE "C" PRIMARY KEY, n text COLLATE NOCASE'),
        ("postgresql", "k text COLLATE alike PRIMARY KEY, n bigint"),
        ("postgresql", "k uuid PRIMARY KEY, n bigint"),
        ("postgresql", 'k text COLLATE "C" PRIMARY KEY, n text COLLATE alike'),
    ],
)
def test_a_key_that_the_table_compares_otherwise_is_refused(tmp_path, dialect, columns):
    where, table = database(dialect, tmp_path), new_table(dialect)
    if "alike" in columns:
        alike = "(provider=icu, locale='und-u-ks-level2', deterministic=false)"
        run(where, "DROP COLLATION IF EXISTS alike CASCADE", f"CREATE COLLATION alike {alike}")
    run(where, f"CREATE TABLE {table} ({columns})")
    schema = schema_of("k string")
    sink = output(tmp_path, dialect, Output, schema, table=table, mode="upsert", key="k").open()
    if "uuid" in columns:
        one = "1E1C1D8E-0000-0000-0000-00000000000a"
        for bad in (one, one.lower().replace("-", "")):
            rows = pa.Table.from_pylist([{"k": bad}], schema)
            assert refusal(made(sink).stage, rows, 0, "a").code == "HR-OUTPUT-006"
        publish(made(sink), 0, [{"k": one.lower()}])
    elif any(f"k text COLLATE {exact}" in columns for exact in ("binary", '"C"')):
        sink.check()
    else:
        assert refusal(sink.check).code == "HR-SQL-031"
