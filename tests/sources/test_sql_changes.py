"""Changes of a PostgreSQL table: a snapshot and all that follows, once each, whatever crashes."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import re
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.databases import encoded_database, new_table, postgres_database, run, uri
from tests.joins.postgres import USER
from tests.sources.reading import read_split, refusal
from tests.sources.sql_cases import SPLIT

from headrace.clock import ManualClock
from headrace.connect.sql import close_idle, connect, connected
from headrace.schema import schema_of
from headrace.sources import Source, open_source
from headrace.state import faults


class Crash(BaseException):
    pass


@pytest.fixture
def table():
    """A table; its slots are dropped afterwards, else the server keeps all changes for ever."""
    name, where = new_table("postgresql"), postgres_database()
    run(where, f"CREATE TABLE {name} (id bigint PRIMARY KEY, v text)")
    yield name
    run(where, "SELECT pg_drop_replication_slot(slot_name)::text FROM pg_replication_slots")


def opened(tmp: Path, table: str, clock: Any = None, **options: Any) -> Source:
    return open_source(
        uri("postgresql", tmp), options.pop("schema", None), folder=str(tmp / "job"), name="in",
        options={"table": table, "changes": True, **options}, clock=clock,
    )  # fmt: skip


class Follower:
    """A job that is started again and again, crashes, and applies what it reads."""

    def __init__(self, tmp: Path, table: str) -> None:
        self.clock, self._make = ManualClock(0), lambda: opened(tmp, table, self.clock)
        self.source = self._make()
        self.at, self.state, self.seen = 0, dict[int, Any](), list[dict[str, Any]]()

    def restart(self) -> None:
        self.source.close()
        self.source = self._make()
        self.source.check({SPLIT: self.at} if self.at else {})

    def look(self) -> None:
        self.clock.advance(5_000)
        self.source.discover()
        rows, _ = read_split(self.source, SPLIT, self.at)
        self.at = self.source.latest(SPLIT)
        for row in rows:
            if row["change_op"] == "delete":
                self.state.pop(row["id"])  # it must be there
            else:
                assert (row["id"] in self.state) == (row["change_op"] == "update"), row
                self.state[row["id"]] = row["v"]
        self.seen += rows


def now(table: str) -> dict[int, Any]:
    return dict(run(postgres_database(), f"SELECT id, v FROM {table}"))


def change(draw: random.Random, connection: Any, table: str, n: int) -> None:
    kind = draw.choice(["insert", "insert", "update", "delete", "move"])
    id = draw.randrange(n)
    if kind == "insert":
        connection.run(
            f"INSERT INTO {table} VALUES ({id}, 'v{draw.random()}') ON CONFLICT DO NOTHING"
        )
    elif kind == "update":
        connection.run(f"UPDATE {table} SET v = 'u{draw.random()}' WHERE id = {id}")
    elif kind == "delete":
        connection.run(f"DELETE FROM {table} WHERE id = {id}")
    else:
        connection.run(
            f"UPDATE {table} SET id = {id + n} WHERE id = {id} "
            f"AND NOT EXISTS (SELECT 1 FROM {table} WHERE id = {id + n})"
        )


@pytest.mark.parametrize("full", [False, True])
def test_every_change_comes_once_whatever_crashes(tmp_path, table, full):
    """While one transaction is open all the time, and the job crashes at any point."""
    draw, where = random.Random(5), postgres_database()
    if full:
        run(where, f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    writer, slow = connect(where), connect(where)
    for _ in range(20):
        change(draw, writer, table, 8)
    follower = Follower(tmp_path, table)

    def crash(name: str) -> None:
        if name.startswith("source.changes") and draw.random() < 0.25:
            raise Crash
        if name.startswith("source.changes.snapshot") or draw.random() < 0.3:
            writer.run(
                f"INSERT INTO {table} VALUES ({draw.randrange(8)}, 'x') ON CONFLICT DO NOTHING"
            )

    for step in range(40):
        if step > 3 and step % 4 == 0:  # not while the slot is made, which waits for it
            slow.begin()
            slow.run(f"INSERT INTO {table} VALUES ({1_000 + step}, 'slow')")
        for _ in range(draw.randrange(4)):
            change(draw, writer, table, 8)
        try:
            with faults.hooked(crash):
                follower.look()
        except Crash:
            follower.restart()
        if step > 3 and step % 4 == 2:
            slow.commit()
    slow.rollback()
    for _ in range(400):  # with tiny cuts a look is a transaction
        if follower.state != now(table):
            follower.look()

    assert follower.state == now(table)
    assert "snapshot" in {r["change_op"] for r in follower.seen}
    lsns = [r["change_lsn"] for r in follower.seen]
    assert lsns == sorted(lsns)
    writer.close()
    slow.close()


def test_a_transaction_that_was_open_at_the_snapshot_is_not_lost(tmp_path, table):
    where = postgres_database()
    slow = connect(where)
    follower = Follower(tmp_path, table)

    def between(name: str) -> None:
        if name == "source.changes.slot":  # after the slot, before the snapshot
            slow.begin()
            slow.run(f"INSERT INTO {table} VALUES (1, 'open')")
            run(where, f"INSERT INTO {table} VALUES (2, 'in both')")

    with faults.hooked(between):
        follower.look()
    slow.commit()
    slow.close()
    follower.look()

    assert follower.state == {1: "open", 2: "in both"}
    assert [(r["id"], r["change_op"]) for r in follower.seen] == [(2, "snapshot"), (1, "insert")]


def test_values_of_changes_are_exact(tmp_path, table):
    where = postgres_database()
    run(
        where,
        f"ALTER TABLE {table} ADD b boolean, ADD x double precision, ADD d numeric(12,3), "
        "ADD day date, ADD at timestamptz, ADD plain timestamp, ADD raw bytea, ADD tags text[], "
        "ADD ns int[], ADD u uuid, ADD j jsonb",
    )
    follower = Follower(tmp_path, table)
    follower.look()
    run(
        where,
        f"INSERT INTO {table} VALUES (1, 'é ''\n', true, 0.1, -1.250, '1969-12-31', "
        "'2024-02-29 12:00:00.5+02', '2024-02-29 12:00:00', '\\x00ff', "
        '\'{"a,\\"b", NULL, "NULL", ""}\', \'{1,NULL}\', '
        "'1e1c1d8e-0000-0000-0000-000000000001', '{\"a\": [1]}')",
        f"INSERT INTO {table} (id) VALUES (2)",
    )
    follower.look()
    follower.look()
    first, second = (dict(r) for r in follower.seen)
    at = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    told = {k: first.pop(k) for k in ("change_op", "change_lsn", "change_time")}
    assert told["change_op"] == "insert" and told["change_lsn"] > 0
    assert abs(told["change_time"] - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)
    assert first == {
        "id": 1, "v": "é '\n", "b": True, "x": 0.1, "d": decimal.Decimal("-1.250"),
        "day": dt.date(1969, 12, 31), "at": at + dt.timedelta(hours=-2, milliseconds=500),
        "plain": at, "raw": b"\0\xff", "tags": ['a,"b', None, "NULL", ""], "ns": [1, None],
        "u": "1e1c1d8e-0000-0000-0000-000000000001", "j": '{"a": [1]}',
    }  # fmt: skip
    assert {v for k, v in second.items() if k != "id" and not k.startswith("change")} == {None}


def test_what_cannot_be_followed_stops_with_its_name(tmp_path, table):
    where = postgres_database()
    run(where, f"ALTER TABLE {table} ALTER v SET STORAGE EXTERNAL")
    run(
        where, f"INSERT INTO {table} VALUES (1, '{'x' * 20_000}')", f"ALTER TABLE {table} ADD w int"
    )

    def code(place: str, *statements: str) -> str:
        follower = Follower(tmp_path / place, table)
        follower.look()
        run(where, *statements)
        error = refusal(follower.look)
        assert refusal(follower.look).code == error.code  # and again: nothing is skipped
        follower.source.close()
        return error.code

    assert code("toast", f"UPDATE {table} SET w = 1") == "HR-SQL-023"
    assert code("truncate", f"TRUNCATE {table}") == "HR-SQL-024"
    type_changed = (
        f"ALTER TABLE {table} ALTER w TYPE bigint",
        f"INSERT INTO {table} VALUES (2, 'a')",
    )
    assert code("type", *type_changed) == "HR-SQL-025"
    gone = f"ALTER TABLE {table} DROP w", f"INSERT INTO {table} VALUES (3, 'a')"
    assert code("gone", *gone) == "HR-SQL-025"


def test_long_values_and_new_columns_are_no_problem_with_full_identity(tmp_path, table):
    where, long = postgres_database(), "x" * 20_000
    run(
        where,
        f"ALTER TABLE {table} ALTER v SET STORAGE EXTERNAL",
        f"ALTER TABLE {table} REPLICA IDENTITY FULL",
        f"INSERT INTO {table} VALUES (1, '{long}')",
    )
    follower = Follower(tmp_path, table)
    follower.look()
    run(where, f"ALTER TABLE {table} ADD w int", f"UPDATE {table} SET w = 1")
    follower.look()
    assert [(r["change_op"], r["v"]) for r in follower.seen] == [
        ("snapshot", long), ("update", long),
    ]  # fmt: skip


def test_a_slot_that_is_gone_or_was_advanced_is_refused(tmp_path, table):
    where = postgres_database()
    follower = Follower(tmp_path, table)
    follower.look()
    slot = follower.source._slot()
    follower.source.close()
    run(where, f"INSERT INTO {table} VALUES (1, 'a')")
    run(where, f"SELECT 1 FROM pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
    assert refusal(follower.restart).code == "HR-SQL-022"
    run(where, f"SELECT pg_drop_replication_slot('{slot}')::text")
    assert refusal(follower.restart).code == "HR-SQL-021"


@pytest.mark.parametrize("deferred", [True, False])
def test_rows_that_exchange_or_pass_on_their_keys_are_all_there(tmp_path, table, deferred):
    """Whoever applies the changes in their order, by the key, has the table."""
    where, how = postgres_database(), "DEFERRABLE INITIALLY DEFERRED" if deferred else ""
    run(
        where,
        f"DROP TABLE {table}",
        f"CREATE TABLE {table} (id bigint, v text, PRIMARY KEY (id) {how})",
        f"ALTER TABLE {table} REPLICA IDENTITY FULL",
        f"INSERT INTO {table} SELECT i, 'v' || i FROM generate_series(1, 20) i",
    )
    follower = Follower(tmp_path, table)
    follower.look()
    assert follower.state == now(table)
    swaps = [
        f"UPDATE {table} SET id = 21 - id",
        f"UPDATE {table} SET id = id + 1, v = v || '!'",
        f"UPDATE {table} SET id = id % 20 + 2",
    ]
    with connected(where) as connection:
        for statement in swaps if deferred else [f"UPDATE {table} SET id = id + 100"]:
            connection.run(statement)
            follower.look()
            assert follower.state == now(table), statement
        connection.begin()
        for statement in (
            f"UPDATE {table} SET v = v || '?' WHERE id % 2 = 0",
            *(swaps[:1] if deferred else ()),
            f"DELETE FROM {table} WHERE id % 5 = 0",
            f"UPDATE {table} SET v = 'last' WHERE id % 3 = 0",
            f"INSERT INTO {table} VALUES (5, 'new') ON CONFLICT DO NOTHING" if not deferred else
            f"INSERT INTO {table} VALUES (5, 'new')",
        ):  # fmt: skip
            connection.run(statement)
        connection.commit()
    follower.look()
    assert follower.state == now(table)


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(
    "statements",
    [
        ["DROP COLUMN v", "ADD COLUMN v text DEFAULT 'new'"],
        ["RENAME v TO x", "RENAME w TO v", "RENAME x TO w"],
    ],
)
def test_another_column_of_the_same_name_is_noticed(tmp_path, table, statements, running):
    where = postgres_database()
    run(where, f"ALTER TABLE {table} ADD w text", f"INSERT INTO {table} VALUES (1, 'v', 'w')")
    follower = Follower(tmp_path, table)
    follower.look()
    run(where, *(f"ALTER TABLE {table} {s}" for s in statements))
    run(where, f"INSERT INTO {table} (id, v) VALUES (2, 'x')")

    error = refusal(follower.look if running else follower.restart)

    assert error.code == "HR-SQL-025" and "'v'" in error.message
    follower.source.close()


def test_a_column_that_was_added_says_how_to_go_on(tmp_path, table):
    where = postgres_database()
    run(where, f"INSERT INTO {table} VALUES (1, 'a')")
    follower = Follower(tmp_path, table)
    follower.look()
    run(where, f"ALTER TABLE {table} ADD w int DEFAULT 7")
    run(where, f"INSERT INTO {table} VALUES (2, 'b', 8)")
    follower.look()
    assert follower.state == {1: "a", 2: "b"}
    error = refusal(follower.restart)
    follower.source.close()
    assert error.code == "HR-INPUT-005" and "'w'" in error.message

    found = re.search(r'schema="([^"]+)"', error.hint)
    assert found is not None
    source = opened(tmp_path, table, schema=schema_of(found[1]))
    source.check({SPLIT: 2})
    assert [r["v"] for r in read_split(source, SPLIT)[0]] == ["a", "b"]
    source.close()


def test_a_type_without_an_exact_one_is_left_out_and_not_cast(tmp_path, table):
    run(postgres_database(), f"ALTER TABLE {table} ADD cost money")
    error = refusal(opened, tmp_path, table)
    assert error.code == "HR-SQL-003" and "query" not in error.hint
    assert "id, v, change_op, change_lsn, change_time" in error.hint


def test_bytes_that_are_no_text_are_an_error_of_the_input(tmp_path):
    place = encoded_database("SQL_ASCII")
    row = "INSERT INTO t VALUES (1, convert_from('\\xe9', 'SQL_ASCII'))"

    def begun(i: int, **options: Any) -> tuple[Source, ManualClock]:
        clock, about = ManualClock(0), {"table": "t", **options}
        source = open_source(
            f"sql:{place}", options=about, folder=str(tmp_path / f"{i}"), name="in", clock=clock
        )
        return source, clock

    with psycopg.connect(place, autocommit=True) as other:
        other.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        later, clock = begun(3, changes=True)
        later.discover()
        other.execute(row)
        clock.advance(5_000)
        three = [begun(0, changes=True)[0], begun(1, growing="id")[0], begun(2)[0]]
        for source in (later, *three):
            error = refusal(source.discover)
            source.close()
            assert error.code == "HR-SQL-004" and "invalid byte sequence" in error.message
        other.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE database = current_database()"
        )


def test_changes_until_the_end_end(tmp_path, table):
    where = postgres_database()
    run(where, f"INSERT INTO {table} VALUES (1, 'a')")
    source = open_source(
        uri("postgresql", tmp_path), folder=str(tmp_path / "job"), name="in", until="end",
        options={"table": table, "changes": True},
    )  # fmt: skip
    while not source.ended(SPLIT, source.latest(SPLIT)):
        source.discover()
    assert [r["id"] for r in read_split(source, SPLIT)[0]] == [1]
    assert not source.has_more(SPLIT, 1)
    run(where, f"INSERT INTO {table} VALUES (2, 'b')")
    assert source.has_more(SPLIT, 1)
    source.close()


def test_wrong_options_and_names_are_refused(tmp_path, table):
    assert refusal(opened, tmp_path, table, growing="id").code == "HR-INPUT-013"
    assert refusal(opened, tmp_path, table, slot="A B").code == "HR-INPUT-013"
    lite = "sql:sqlite:x.db"
    wrong = {"table": "t", "changes": True}
    assert refusal(open_source, lite, options=wrong).code == "HR-INPUT-013"
    run(postgres_database(), f"ALTER TABLE {table} ADD change_op text")
    assert refusal(opened, tmp_path, table).code == "HR-SQL-026"


def test_another_table_or_publication_than_the_one_read_is_refused(tmp_path, table):
    where, name = postgres_database(), table.partition(".")[2]

    def code(place: str, *statements: str, back: tuple[str, ...] = ()) -> None:
        for running in (True, False):
            follower = Follower(tmp_path / f"{place}{running}", table)
            follower.look()
            slot = follower.source._slot()
            run(where, *(s.format(slot=slot) for s in statements))
            run(where, f"INSERT INTO {table} VALUES ({int(running) + 100}, 'lost')")
            ask = follower.look if running else follower.restart
            assert refusal(ask).code == "HR-SQL-027", place
            follower.source.close()
            run(where, *back)

    new = f"CREATE TABLE {table} (id bigint PRIMARY KEY, v text)"
    code("dropped", f"DROP TABLE {table}", new)
    code("out", f'ALTER PUBLICATION "{{slot}}" DROP TABLE {table}', back=(f"DELETE FROM {table}",))
    add = f'ALTER PUBLICATION "{{slot}}" ADD TABLE {table}'
    lost = f"INSERT INTO {table} VALUES (7, 'lost')"
    drop = f'ALTER PUBLICATION "{{slot}}" DROP TABLE {table}'
    code("out and in", drop, lost, add, back=(f"DELETE FROM {table}",))
    back = (f"DROP TABLE {table}_old",)
    code("renamed", f"ALTER TABLE {table} RENAME TO {name}_old", new, back=back)


def test_a_slot_of_another_table_is_refused(tmp_path, table):
    where = postgres_database()
    run(where, f"CREATE TABLE {table}2 (id bigint PRIMARY KEY, v text)")
    slot = table.partition(".")[0] + "_shared"
    opened(tmp_path / "a", table, slot=slot).discover()
    second = opened(tmp_path / "b", f"{table}2", slot=slot)
    error = refusal(second.discover)
    assert error.code == "HR-SQL-027" and slot in error.message


def test_what_the_server_cannot_capture_is_refused_before_anything_is_made(tmp_path, table):
    where = postgres_database()
    run(
        where,
        f"CREATE TABLE {table}_bare (id bigint, v text)",
        f"CREATE TABLE {table}_other (id bigint PRIMARY KEY, v text NOT NULL UNIQUE)",
        f"ALTER TABLE {table}_other REPLICA IDENTITY USING INDEX t_other_v_key",
        f"CREATE TABLE {table}_sum (id bigint PRIMARY KEY, v text, "
        "w bigint GENERATED ALWAYS AS (id * 2) STORED)",
        f"CREATE TABLE {table}_child () INHERITS ({table})",
    )
    before = run(where, "SELECT count(*) FROM pg_publication")
    for odd in (f"{table}_bare", f"{table}_other", f"{table}_sum", table):
        for ask in ("check", "discover"):
            error = refusal(getattr(opened(tmp_path, odd), ask))
            assert error.code == "HR-SQL-028" and odd in error.message
    assert run(where, "SELECT count(*) FROM pg_publication") == before
    run(where, f"ALTER TABLE {table}_bare REPLICA IDENTITY FULL", f"DROP TABLE {table}_child")
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("change_op", pa.string())])
    for i, fine in enumerate((f"{table}_bare", f"{table}_sum")):
        source = opened(tmp_path / str(i), fine, clock := ManualClock(0), schema=schema)
        source.check()
        source.discover()
        run(where, f"INSERT INTO {fine} VALUES (1, 'a')", f"UPDATE {fine} SET v = 'b'")
        for _ in range(4):  # with tiny cuts a look is a transaction
            clock.advance(5_000)
            source.discover()
        ops = [r["change_op"] for r in read_split(source, SPLIT)[0]]
        assert ops == ["insert", *(["delete", "insert"] if i == 0 else ["update"])]
        source.close()


def test_a_replica_identity_that_changes_is_noticed(tmp_path, table):
    where = postgres_database()
    run(where, f"ALTER TABLE {table} ALTER v SET NOT NULL", f"ALTER TABLE {table} ADD UNIQUE (v)")
    run(where, f"INSERT INTO {table} VALUES (1, 'a')")
    follower = Follower(tmp_path, table)
    follower.look()
    run(where, f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX t_v_key")
    run(where, f"DELETE FROM {table}", f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT")
    assert refusal(follower.look).code == "HR-SQL-028"


def test_doubles_are_exact_whatever_the_server_is_set_to(tmp_path, table):
    where = postgres_database()
    run(where, f"ALTER TABLE {table} ADD x double precision")
    run(where, f"ALTER ROLE {USER} SET extra_float_digits = 0")
    close_idle()
    try:
        source = opened(tmp_path, table, clock := ManualClock(0))
        source.discover()
        run(where, f"INSERT INTO {table} VALUES (1, 'a', 0.1::float8 + 0.2::float8)")
        clock.advance(5_000)
        source.discover()
        assert [r["x"] for r in read_split(source, SPLIT)[0]] == [0.1 + 0.2]
    finally:
        run(where, f"ALTER ROLE {USER} RESET extra_float_digits")
        close_idle()


def test_a_partitioned_table_is_refused_since_its_partitions_come_and_go_unseen(tmp_path, table):
    where = postgres_database()
    run(
        where,
        f"CREATE TABLE {table}_p (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        f"CREATE TABLE {table}_p1 PARTITION OF {table}_p FOR VALUES FROM (0) TO (100)",
    )
    error = refusal(opened(tmp_path, f"{table}_p").check)
    assert error.code == "HR-SQL-028" and "partitioned" in error.message
    follower = Follower(tmp_path, f"{table}_p1")  # a partition is a table
    run(where, f"INSERT INTO {table}_p VALUES (1, 'a')")
    follower.look()
    assert follower.state == {1: "a"}


OUTSIDE = [
    ("timestamptz", "'infinity'"), ("timestamp", "'-infinity'"), ("date", "'infinity'"),
    ("date", "'-infinity'"), ("timestamptz", "'0044-03-15 BC'"), ("date", "'0044-03-15 BC'"),
    ("timestamptz", "'12000-01-01'"), ("date", "'12000-01-01'"), ("timestamptz[]", "'{infinity}'"),
    ("int[]", "'[2:3]={5,6}'"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), OUTSIDE)
def test_a_value_that_cannot_be_held_is_named_in_a_snapshot_and_in_changes(
    tmp_path, table, kind, value
):
    where = postgres_database()
    run(where, f"ALTER TABLE {table} ADD w {kind}")
    clock = ManualClock(0)
    source = opened(tmp_path, table, clock)
    source.discover()
    run(where, f"INSERT INTO {table} VALUES (1, 'a', {value})")
    clock.advance(5_000)
    error = refusal(source.discover)
    assert error.code == "HR-SQL-003" and "'w'" in error.message
    source.close()

    for i, options in enumerate(({"changes": True}, {})):
        snapshot = open_source(
            uri("postgresql", tmp_path), None, folder=str(tmp_path / f"job{i}"),
            options={"table": table, **options},
        )  # fmt: skip
        error = refusal(snapshot.discover)
        assert error.code == "HR-SQL-003", error
        assert ("'w'" in error.message or "array" in error.message) and "schema=" in error.hint


@pytest.mark.parametrize(
    ("kind", "value"),
    [("timestamptz", "'0001-01-01 00:00+00'"), ("timestamp", "'9999-12-31 23:59:59.999999'"),
     ("date", "'0001-01-01'"), ("date", "'9999-12-31'"), ("date[]", "'{9999-12-31,NULL}'"),
     ("timestamptz[]", "'{}'"), ("timestamptz", "NULL")],
)  # fmt: skip
def test_the_first_and_the_last_time_are_read(tmp_path, table, kind, value):
    where = postgres_database()
    run(where, f"ALTER TABLE {table} ADD w {kind}", f"INSERT INTO {table} VALUES (1, 'a', {value})")
    clock = ManualClock(0)
    source = opened(tmp_path, table, clock)
    source.discover()
    run(where, f"INSERT INTO {table} VALUES (2, 'a', {value})")
    clock.advance(5_000)
    source.discover()
    first, second = read_split(source, SPLIT)[0]
    assert first["w"] == second["w"] and (first["w"] is None) == (value == "NULL")
