"""Lookups in a real PostgreSQL: its types, refresh, and a server that is gone for a while."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness
from tests.joins.postgres import PASSWORD, Postgres, postgres

NAMES = "k bigint, name string"
TYPES = (
    "k bigint, price decimal(10,2), born timestamp, day date, tags array<string>, "
    "id string, host string, net string, ids array<string>"
)
ONE = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def names(server: Postgres) -> Any:
    run(server, "drop table if exists names", "create table names (k int primary key, name text)",
        "insert into names values (0, 'zero'), (1, 'one')")  # fmt: skip
    return table(server, "select k, name from names")


def run(server: Postgres, *statements: str) -> None:
    import psycopg

    with psycopg.connect(server.url) as connection:
        for statement in statements:
            connection.execute(statement)


def table(server: Postgres, query: str, schema: str = NAMES) -> Any:
    import psycopg

    return hr.sql_table(partial(psycopg.connect, server.url), query, schema=schema)


def job(source: Any, **options: Any) -> hr.Job:
    job = hr.Job("lookup")
    rows = job.read("log:a", schema="k bigint", name="a")
    rows.lookup(source, on="k", name="found", **options).write("console:", name="out")
    return job


def found(harness: Harness) -> dict[int, str | None]:
    return {row["k"]: row["name"] for row in harness.output("out")}


def test_its_types_are_columns(server: Postgres) -> None:
    made = f"""select * from (values
        (0, 1.50, timestamptz '2024-01-01 10:00+02', date '2024-02-03', array['a', 'b'],
         uuid '{ONE}', inet '10.0.0.1', cidr '10.0.0.0/8', array[uuid '{ONE}', null]),
        (1, null, null, null, null, null, null, null, null)
    ) as t (k, price, born, day, tags, id, host, net, ids)"""
    with Harness(job(table(server, made, TYPES))) as harness:
        harness.send("a", [(0,), (1,)])
        by_key = {row.pop("k"): tuple(row.values()) for row in harness.output("out")}
    born = datetime(2024, 1, 1, 8, tzinfo=UTC)
    first = (Decimal("1.50"), born, date(2024, 2, 3), ["a", "b"], ONE, "10.0.0.1")
    assert by_key == {0: (*first, "10.0.0.0/8", [ONE, None]), 1: (None,) * 8}


def test_a_changed_row_is_seen_after_the_refresh(server: Postgres, names: Any) -> None:
    with Harness(job(names, refresh="10s")) as harness:
        harness.send("a", [(0,), (7,)])
        assert found(harness) == {0: "zero", 7: None}
        run(server, "update names set name = 'nought' where k = 0")
        harness.send("a", [(0,)])
        assert found(harness) == {0: "zero"}
        harness.advance("10s")
        harness.send("a", [(0,)])
        assert found(harness) == {0: "nought"}


def test_rows_wait_until_they_are_inserted(server: Postgres, names: Any) -> None:
    options = {"on_missing": "wait", "refresh": "10s", "patience": "25s"}
    with Harness(job(names, **options)) as harness:
        harness.send("a", [(1,), (7,), (8,)])
        assert found(harness) == {1: "one"}
        run(server, "insert into names values (7, 'seven')")
        harness.advance("10s")
        assert found(harness) == {7: "seven"}
        harness.advance("20s")
        assert [letter["error"] for letter in harness.dead()] == ["LookupError: no row for 8"]


def test_a_server_that_is_down_stops_the_job_and_the_next_start_goes_on(
    server: Postgres, names: Any
) -> None:
    with Harness(job(names, refresh="10s")) as harness:
        harness.send("a", [(0,)])
        server.stop()
        try:
            harness.send("a", [(1,)])
            assert found(harness) == {0: "zero", 1: "one"}  # the copy is there
            harness.advance("10s")
            with pytest.raises(hr.HeadraceError, match="HR-JOIN-020") as caught:
                harness.send("a", [(0,)])
        finally:
            server.start()
        assert "cannot be opened: OperationalError: connection refused" in str(caught.value)
        assert PASSWORD not in str(caught.value)
        harness.restart()
        assert found(harness) == {0: "zero"}


WRONG = {
    "no such table": ("select k, name from nowhere", NAMES, 'relation "nowhere" does not exist'),
    "a column is missing": ("select k from names", NAMES, "there is not one column 'name'"),
    "a column is there twice": ("select k, k, name from names", NAMES, "columns are: k, k, name"),
    "another type": ("select k, name from names", "k bigint, name bigint", "column 'name' is"),
    "objects": ("""select 1 k, '{"a": 1}'::jsonb as name""", NAMES, "column 'name' is struct"),
    "all kinds of objects": (
        """select k, name::jsonb from (values (0, '[1]'), (1, '{"a": 1}')) as t (k, name)""",
        NAMES, "column 'name' of the query does not fit: it has dict and list",
    ),
    "no number": ("select 1 k, 'NaN'::numeric as name", NAMES, "does not fit: it has Decimal"),
    "a range": ("select 1 k, int4range(1, 5) as name", NAMES, "does not fit: it has Range"),
    "no table": ("create temp table t (a int)", NAMES, "the query returns no table: 'create temp"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_query_is_told(server: Postgres, names: Any, what: str) -> None:
    query, schema, told = WRONG[what]
    with Harness(job(table(server, query, schema))) as harness:
        with pytest.raises(hr.HeadraceError) as caught:
            harness.send("a", [(0,)])
        assert caught.value.code == "HR-JOIN-020"
        assert told in str(caught.value) and PASSWORD not in str(caught.value)


def test_plans_do_not_tell_passwords(names: Any) -> None:
    assert PASSWORD not in str(job(names).explain())


BROKEN = (  # of most of these the driver repeats what it cannot read
    "postgresql:/u:hunter2@h/db", "postgres//u:hunter2@h/db", "u:hunter2@h/db", "hunter2",
    "postgresql://u:hunt er2@h/db", "host=h password='hunter2", "host=h pwd='hunter2' hunter2",
    "postgresql://h/db?hunter2", "postgresql://u:hunter2@127.0.0.1:hunter2/db",
)  # fmt: skip


@pytest.mark.parametrize("address", BROKEN)
def test_what_a_driver_cannot_read_of_an_address_is_not_repeated(address: str) -> None:
    import psycopg

    source = hr.sql_table(lambda: psycopg.connect(address), "select 1 k, '' name", schema=NAMES)
    refused = pytest.raises(hr.HeadraceError, match=r"HR-JOIN-020 .*Error")
    with Harness(job(source)) as harness, refused as caught:
        harness.send("a", [(0,)])
    told = "".join(traceback.format_exception(caught.value))
    assert "hunt" not in told and "er2" not in told and "Python shell" in told
    assert caught.value.site is not None and caught.value.site.file == __file__


@pytest.mark.spark
def test_workers_of_spark_open_connections(server: Postgres, names: Any, spark: Any) -> None:
    with Harness(job(names), on="spark") as harness:
        harness.send("a", [(0,), (1,), (7,)])
        assert found(harness) == {0: "zero", 1: "one", 7: None}
