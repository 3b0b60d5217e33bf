"""Databases as inputs: snapshots, growing columns, rows that appear late, types, secrets."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.databases import database, new_table, run, uri
from tests.joins.postgres import PASSWORD
from tests.sources.reading import again, read_split, refusal
from tests.sources.sql_cases import SPLIT, read_to_end

from headrace.clock import ManualClock
from headrace.connect.sql import connect
from headrace.sources import Source, open_source
from headrace.state import faults

DIALECTS = ("sqlite", "duckdb", "postgresql")


def opened(tmp: Path, dialect: str, until: str | None = None, **options: Any) -> Source:
    schema, clock = options.pop("schema", None), options.pop("clock", None)
    return open_source(
        uri(dialect, tmp), schema, options=options, folder=str(tmp / "job"), name="in",
        until=until, clock=clock,
    )  # fmt: skip


def values(source: Source, column: str = "n") -> list[Any]:
    return [r[column] for r in read_split(source, SPLIT)[0]]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_snapshot_stays_what_it_was_and_an_incomplete_one_is_begun_again(tmp_path, dialect):
    table, where = new_table(dialect), database(dialect, tmp_path)
    run(where, f"CREATE TABLE {table} (n bigint)", f"INSERT INTO {table} VALUES (1), (2)")

    class Crash(BaseException):
        pass

    def crash(name: str) -> None:
        if name == "source.snapshot.added":
            raise Crash

    with faults.hooked(crash), pytest.raises(Crash):
        opened(tmp_path, dialect, table=table).discover()
    half = opened(tmp_path, dialect, table=table)
    assert (half.latest(SPLIT), half.ended(SPLIT, 0)) == (0, False)
    run(where, f"INSERT INTO {table} VALUES (3)")
    source = read_to_end(half)
    run(where, f"DELETE FROM {table}")

    assert sorted(values(again(source))) == [1, 2, 3]
    later = read_to_end(opened(tmp_path, dialect, table=table))
    assert sorted(values(later)) == [1, 2, 3]


def test_types_of_postgres_are_exact(tmp_path):
    table, where = new_table("postgresql"), database("postgresql", tmp_path)
    run(
        where,
        f"CREATE TABLE {table} (a uuid, b json, c jsonb, d int[], e bytea, f date, g timestamp, "
        "h timestamptz, i numeric(30,10), j text[], k real, l smallint, m boolean)",
        f"INSERT INTO {table} VALUES ('1e1c1d8e-0000-0000-0000-000000000001', '{{ \"a\": 1.0 }}', "
        "'{\"b\":  2}', '{1,NULL}', '\\x00ff', '0001-01-01', '2024-02-29 12:00:00.000001', "
        "'2024-02-29 12:00:00+02', 12345678901234567890.0123456789, '{\"a,b\",\"\"}', 0.1, -3, "
        "true)",
        f"INSERT INTO {table} (l) VALUES (NULL)",
    )
    source = read_to_end(opened(tmp_path, "postgresql", table=table))
    first, second = read_split(source, SPLIT)[0]
    at = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    assert first == {
        "a": "1e1c1d8e-0000-0000-0000-000000000001", "b": '{ "a": 1.0 }', "c": '{"b": 2}',
        "d": [1, None], "e": b"\0\xff", "f": dt.date(1, 1, 1),
        "g": at + dt.timedelta(microseconds=1), "h": at - dt.timedelta(hours=2),
        "i": decimal.Decimal("12345678901234567890.0123456789"), "j": ["a,b", ""],
        "k": pa.scalar(0.1, pa.float32()).as_py(), "l": -3, "m": True,
    }  # fmt: skip
    assert set(second.values()) == {None}


@pytest.mark.parametrize(
    ("column", "value"),
    [("interval", "'1 day'"), ("time", "'12:00'"), ("numeric", "1"), ("inet", "'::1'"),
     ("int[]", "'{{1,2},{3,4}}'"), ("numeric(4,1)", "'NaN'"), ("money", "1")],
)  # fmt: skip
def test_what_has_no_exact_type_is_refused_by_name(tmp_path, column, value):
    table, where = new_table("postgresql"), database("postgresql", tmp_path)
    run(where, f"CREATE TABLE {table} (odd {column})", f"INSERT INTO {table} VALUES ({value})")

    def read() -> None:
        opened(tmp_path, "postgresql", table=table).discover()

    error = refusal(read)
    assert error.code == "HR-SQL-003" and "'odd'" in error.message


@pytest.mark.parametrize(
    ("column", "value"),
    [("timestamp", "'infinity'"), ("timestamptz", "'-infinity'"), ("date", "'infinity'"),
     ("timestamp", "'0044-03-15 (BC) 12:00:00'"), ("date", "'12000-01-01'"),
     ("timestamp[]", "['infinity']")],
)  # fmt: skip
def test_a_time_of_duckdb_that_nothing_holds_is_refused_by_name(tmp_path, column, value):
    where = database("duckdb", tmp_path)
    run(where, f"CREATE TABLE t (odd {column})", f"INSERT INTO t VALUES ({value})")
    error = refusal(opened(tmp_path, "duckdb", table="t").discover)
    assert error.code == "HR-SQL-003" and "'odd'" in error.message


def test_sqlite_is_checked_value_by_value(tmp_path):
    where = database("sqlite", tmp_path)
    run(where, "CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1), ('two')")
    assert refusal(opened(tmp_path, "sqlite", table="t").discover).code == "HR-SQL-003"
    error = refusal(opened, tmp_path, "sqlite", query="SELECT 1 AS one")
    assert error.code == "HR-SQL-003" and "schema=" in str(error.hint)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_new_rows_are_followed_by_a_growing_column(tmp_path, dialect, cuts):
    table, where = new_table(dialect), database(dialect, tmp_path)
    run(where, f"CREATE TABLE {table} (n bigint, v text)")
    clock, written = ManualClock(0), 0
    for life in range(4):
        source = opened(tmp_path, dialect, table=table, growing="n", clock=clock)
        for _ in range(3):
            some = range(written + 1, written + 1 + life)
            for n in some:
                run(where, f"INSERT INTO {table} VALUES ({n}, 'x')")
            written += life
            clock.advance(2_000)
            source.discover()
        assert values(source) == list(range(1, written + 1))
        source.close()
    assert not source.bounded and not source.ended(SPLIT, source.latest(SPLIT))


def test_rows_with_the_same_value_are_never_cut(tmp_path, monkeypatch):
    from headrace.sources import sql_growing

    monkeypatch.setattr(sql_growing, "MOST_AT_ONCE", 2)
    where = database("sqlite", tmp_path)
    run(where, "CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1),(2),(2),(2),(3),(3),(4)")
    source = read_to_end(opened(tmp_path, "sqlite", until="end", table="t", growing="n"))
    assert values(source) == [1, 2, 2, 2, 3, 3, 4]


def test_a_row_of_a_transaction_that_commits_late_is_waited_for(tmp_path):
    """Ids are taken in the order 1, 2; 2 is committed first."""
    table, where = new_table("postgresql"), database("postgresql", tmp_path)
    run(where, f"CREATE TABLE {table} (n bigserial, v text)")
    clock = ManualClock(0)
    source = opened(tmp_path, "postgresql", table=table, growing="n", clock=clock)
    slow = connect(where)
    slow.begin()
    slow.run(f"INSERT INTO {table} (v) VALUES ('slow')")
    run(where, f"INSERT INTO {table} (v) VALUES ('fast')")
    for _ in range(3):
        clock.advance(2_000)
        source.discover()
    assert source.latest(SPLIT) == 0  # 2 is visible, but 1 may still come
    slow.commit()
    slow.close()
    clock.advance(2_000)
    source.discover()

    assert values(source) == [1, 2] and values(source, "v") == ["slow", "fast"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_row_that_appears_before_the_position_is_noticed(tmp_path, dialect):
    table, where = new_table(dialect), database(dialect, tmp_path)
    run(where, f"CREATE TABLE {table} (n bigint)", f"INSERT INTO {table} VALUES (1), (5)")
    clock = ManualClock(0)
    source = opened(tmp_path, dialect, table=table, growing="n", clock=clock)
    source.discover()
    run(where, f"INSERT INTO {table} VALUES (3), (6)")
    clock.advance(2_000)
    assert refusal(source.discover).code == "HR-SQL-012"


def test_times_need_time_to_settle(tmp_path):
    table, where = new_table("postgresql"), database("postgresql", tmp_path)
    run(
        where,
        f"CREATE TABLE {table} (at timestamptz)",
        f"INSERT INTO {table} VALUES ('2024-01-02')",
    )
    clock = ManualClock(0)
    assert (
        refusal(opened(tmp_path, "postgresql", table=table, growing="at").check).code
        == "HR-SQL-013"
    )
    source = opened(tmp_path, "postgresql", table=table, growing="at", settle="10s", clock=clock)
    source.check()
    source.discover()
    clock.advance(5_000)
    run(where, f"INSERT INTO {table} VALUES ('2024-01-01')")
    source.discover()
    assert source.latest(SPLIT) == 0
    clock.advance(6_000)
    source.discover()
    assert [t.day for t in values(source, "at")] == [1, 2]


def test_what_cannot_be_followed_is_refused(tmp_path):
    where = database("sqlite", tmp_path)
    run(where, "CREATE TABLE t (n INTEGER, v TEXT)", "INSERT INTO t VALUES (NULL, 'x')")
    assert refusal(opened(tmp_path, "sqlite", table="t", growing="v").check).code == "HR-SQL-011"
    assert refusal(opened(tmp_path, "sqlite", table="t", growing="m").check).code == "HR-SQL-011"
    assert refusal(opened(tmp_path, "sqlite", table="t", growing="n").discover).code == "HR-SQL-011"
    assert refusal(opened, tmp_path, "sqlite", table="nix").code == "HR-SQL-004"
    for wrong in ({}, {"table": "t", "query": "q"}, {"table": "t", "poll": "1s"}, {"tabel": "t"}):
        assert refusal(opened, tmp_path, "sqlite", **wrong).code == "HR-INPUT-013"


def test_a_password_is_neither_shown_nor_stored(tmp_path):
    table, where = new_table("postgresql"), database("postgresql", tmp_path)
    run(where, f"CREATE TABLE {table} (n bigint)", f"INSERT INTO {table} VALUES (1)")
    source = read_to_end(opened(tmp_path, "postgresql", table=table))
    assert all(PASSWORD not in text for text in (repr(vars(source)), str(source.identity())))
    contents = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert contents and all(PASSWORD.encode() not in c for c in contents)


def test_a_declared_column_that_sqlite_does_not_have_is_refused(tmp_path):
    """SQLite reads a name in double quotes as a text, if there is no such column."""
    where = database("sqlite", tmp_path)
    run(where, "CREATE TABLE t (n INTEGER, area TEXT)", "INSERT INTO t VALUES (1, 'north')")
    wrong = pa.schema([("n", pa.int64()), ("aera", pa.string())])
    right = pa.schema([("n", pa.int64()), ("AREA", pa.string())])  # SQLite ignores case
    for options in ({"table": "t"}, {"query": "SELECT * FROM t"}, {"table": "t", "growing": "n"}):
        for ask in ("check", "discover"):
            error = refusal(getattr(opened(tmp_path, "sqlite", schema=wrong, **options), ask))
            assert error.code == "HR-INPUT-005" and "'aera'" in error.message
            assert "n, area" in str(error.hint)
    source = opened(tmp_path, "sqlite", until="end", schema=right, table="t", growing="n")
    assert values(read_to_end(source), "AREA") == ["north"]


def test_a_column_of_sqlite_that_is_dropped_is_noticed(tmp_path):
    where, clock = database("sqlite", tmp_path), ManualClock(0)
    run(where, "CREATE TABLE t (n INTEGER, area TEXT)", "INSERT INTO t VALUES (1, 'north')")
    schema = pa.schema([("n", pa.int64()), ("area", pa.string())])

    def start() -> Source:
        return opened(tmp_path, "sqlite", schema=schema, table="t", growing="n", clock=clock)

    source = start()
    source.discover()
    run(where, "ALTER TABLE t RENAME COLUMN area TO region", "INSERT INTO t VALUES (2, 'south')")
    clock.advance(2_000)
    assert refusal(source.discover).code == "HR-SQL-004"  # while it runs
    source.close()
    assert refusal(start().check).code == "HR-INPUT-005"
    run(where, "ALTER TABLE t RENAME COLUMN region TO area")
    source = start()
    clock.advance(2_000)
    source.discover()
    run(where, "ALTER TABLE t RENAME COLUMN n TO m", "INSERT INTO t VALUES (3, 'west')")
    clock.advance(2_000)
    assert refusal(source.discover).code == "HR-SQL-004"
    assert values(source, "area") == ["north", "south"]


@pytest.mark.parametrize(
    "change", ["DELETE FROM {} WHERE n = 2", "UPDATE {} SET n = 3 WHERE n = 2"]
)
@pytest.mark.parametrize("until", [None, "end"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_newest_row_may_go_while_it_settles(tmp_path, dialect, change, until):
    table, where = new_table(dialect), database(dialect, tmp_path)
    run(where, f"CREATE TABLE {table} (n bigint)", f"INSERT INTO {table} VALUES (1), (2)")
    clock, options = ManualClock(0), {"table": table, "growing": "n", "settle": "10s"}
    source = opened(tmp_path, dialect, until, clock=clock, **options)
    source.discover()
    run(where, change.format(table))
    clock.advance(11_000)
    source.discover()
    if until:
        assert values(source) == [1] and source.ended(SPLIT, 1)
        return
    run(where, f"INSERT INTO {table} VALUES (4)")
    for _ in range(4):
        clock.advance(11_000)
        source.discover()
    assert values(source) == ([1, 4] if change.startswith("DELETE") else [1, 3, 4])


def test_a_dollar_in_the_text_of_a_query_of_sqlite_is_no_parameter(tmp_path):
    where = database("sqlite", tmp_path)
    run(
        where,
        'CREATE TABLE "us$1" (n INTEGER, v TEXT)',
        "INSERT INTO \"us$1\" VALUES (1, '$5'), (2, '?5'), (3, '$5')",
    )
    assert run(where, "SELECT name FROM sqlite_schema") == [("us$1",)]
    schema = pa.schema([("n", pa.int64()), ("v", pa.string())])
    query = "SELECT * FROM \"us$1\" WHERE v = '$5'"
    for i, options in enumerate(({"query": query}, {"query": query, "growing": "n"})):
        source = opened(tmp_path, "sqlite", "end", schema=schema, **options)
        assert values(read_to_end(source)) == [1, 3]
        assert values(source, "v") == ["$5", "$5"]
        source.close()
        run(where, "SELECT 1")
        (tmp_path / "job").rename(tmp_path / f"job{i}")
    source = opened(tmp_path, "sqlite", "end", table="us$1", growing="n")
    assert values(read_to_end(source)) == [1, 2, 3]


@pytest.mark.parametrize("restarted", ["", "restarted", "after a commit"])
@pytest.mark.parametrize("rows", [1, 3, 7])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_late_row_is_noticed_where_all_rows_share_a_value(
    tmp_path, dialect, rows, restarted, monkeypatch
):
    from headrace.sources import sql_growing

    monkeypatch.setattr(sql_growing, "LOOKED_BACK", 4)
    table, where = new_table(dialect), database(dialect, tmp_path)
    run(where, f"CREATE TABLE {table} (n bigint)")
    for n in [5] * rows:
        run(where, f"INSERT INTO {table} VALUES ({n})")
    clock = ManualClock(0)
    source = opened(tmp_path, dialect, table=table, growing="n", clock=clock)
    for _ in range(3):
        source.discover()
        clock.advance(2_000)
    assert values(source) == [5] * rows
    if restarted:
        if restarted == "after a commit":
            source.commit({SPLIT: rows})
        source.close()
        source = opened(tmp_path, dialect, table=table, growing="n", clock=clock)
        source.discover()
        clock.advance(2_000)
    run(where, f"INSERT INTO {table} VALUES (5)")
    assert refusal(source.discover).code == "HR-SQL-012"


@pytest.mark.parametrize("late", [55, 60, 79, 80])
@pytest.mark.parametrize("same", [1, 9])
def test_a_row_that_appears_while_the_job_is_down_is_noticed_though_rows_are_forgotten(
    tmp_path, monkeypatch, late, same
):
    """Each life stores some rows in a segment of its own, and commits them."""
    from headrace.sources import sql_growing, stored_rows

    monkeypatch.setattr(sql_growing, "LOOKED_BACK", 4)
    monkeypatch.setattr(stored_rows, "SEGMENT", 4096)
    where, clock = database("sqlite", tmp_path), ManualClock(0)
    run(where, "CREATE TABLE t (n INTEGER, v TEXT)")
    for n in range(0, 90, 10):
        for _ in range(1 if n < 80 else same):
            run(where, f"INSERT INTO t VALUES ({n}, '{'x' * 5000}')")
        source = opened(tmp_path, "sqlite", table="t", growing="n", clock=clock)
        source.discover()
        source.commit({SPLIT: source.latest(SPLIT)})
        source.close()
        clock.advance(2_000)
    assert source.start(SPLIT) > 0
    source = opened(tmp_path, "sqlite", table="t", growing="n", clock=clock)
    source.discover()  # as it was: nothing is refused
    source.close()
    run(where, f"INSERT INTO t VALUES ({late}, 'late')")

    clock.advance(2_000)
    source = opened(tmp_path, "sqlite", table="t", growing="n", clock=clock)
    if same == 1 or late == 80:  # the others are further back than it looks
        assert refusal(source.discover).code == "HR-SQL-012"


def test_writers_of_tables_that_inherit_are_waited_for(tmp_path):
    table, where = new_table("postgresql"), database("postgresql", tmp_path)
    run(
        where,
        f"CREATE TABLE {table} (n bigserial, v text)",
        f"CREATE TABLE {table}_child () INHERITS ({table})",
        f"CREATE TABLE {table}_grandchild () INHERITS ({table}_child)",
    )
    clock = ManualClock(0)
    source = opened(tmp_path, "postgresql", table=table, growing="n", clock=clock)
    for round, child in enumerate((f"{table}_child", f"{table}_grandchild")):
        slow = connect(where)
        slow.begin()
        slow.run(f"INSERT INTO {child} (v) VALUES ('slow')")
        run(where, f"INSERT INTO {table} (v) VALUES ('fast')")
        for _ in range(3):
            clock.advance(2_000)
            source.discover()
        assert source.latest(SPLIT) == 2 * round
        slow.commit()
        slow.close()
        clock.advance(2_000)
        source.discover()
        assert values(source, "v") == ["slow", "fast"] * (round + 1)


def test_what_the_server_says_in_the_middle_of_the_rows_is_an_error_of_the_input(tmp_path):
    for bad, options in ((90_000, dict[str, str]()), (1, {"growing": "i"})):
        query = f"SELECT i, 100 / (i - {bad}) AS q FROM generate_series(1, 100000) i"
        source = opened(tmp_path / f"{bad}", "postgresql", query=query, **options)
        error = refusal(source.discover)
        source.close()
        assert error.code == "HR-SQL-004" and "division by zero" in error.message


def test_a_connection_that_ends_in_the_middle_of_the_rows_is_opened_again(tmp_path):
    query = "SELECT i, repeat('x', 1000) AS t FROM generate_series(1, 60000) i"
    source, ended = opened(tmp_path, "postgresql", query=query), list[int]()

    def end(name: str) -> None:
        if name == "source.snapshot.added" and not ended:
            ended.extend(
                n for (n,) in run(
                    database("postgresql", tmp_path),
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                    "WHERE query LIKE '%repeat(%' AND pid <> pg_backend_pid()",
                )
            )  # fmt: skip

    with faults.hooked(end):
        source.discover()

    assert ended == [1]
    assert [r["i"] for r in read_split(source, SPLIT)[0]] == [*range(1, 60_001)]
    source.close()
