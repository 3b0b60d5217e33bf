"""Lookups: tables from files, databases and functions, refreshed by the clock."""

from __future__ import annotations

import gc
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import headrace as hr
from headrace.ops.join import lookup_tables
from headrace.testing import Harness

SCHEMA = "k bigint, v bigint, at timestamp"
NAMES = "k bigint, name string"


def table(*names: str) -> pa.Table:
    keys = [None if n == "nobody" else i for i, n in enumerate(names)]
    return pa.table({"k": pa.array(keys, pa.int64()), "name": list(names)})


def job(source: Any, **options: Any) -> hr.Job:
    job = hr.Job("lookup")
    rows = job.read("log:a", schema=SCHEMA, time="at", delay="1s", name="a")
    found = rows.lookup(source, on="k", name="found", **options)
    found.write("console:", name="out")
    found.window(hr.tumbling("1s")).agg(n=hr.count(), name="after").write("console:", name="n")
    return job


def rows(*keys: int | None, at: int = 1) -> list[tuple[Any, ...]]:
    time = pa.scalar(at * 1_000, pa.timestamp("ms", "UTC")).as_py()
    return [(k, 10 * (k or 0), time) for k in keys]


def shown(harness: Harness) -> list[tuple[Any, ...]]:
    return sorted((r["k"], r["v"], r["name"]) for r in harness.output("out"))


def in_parquet(folder: Path, made: pa.Table) -> Any:
    pa.parquet.write_table(made, folder / "names.parquet")
    return hr.table_file(folder / "names.parquet")


def in_csv(folder: Path, made: pa.Table) -> Any:
    pa.csv.write_csv(made, folder / "names.csv")
    return hr.table_file(folder / "names.csv")


def in_json(folder: Path, made: pa.Table) -> Any:
    frame = made.to_pandas()
    frame.to_json(folder / "names.jsonl", orient="records", lines=True)
    return hr.table_file(folder / "names.jsonl")


def in_folder(folder: Path, made: pa.Table) -> Any:
    for part in range(made.num_rows):
        pa.parquet.write_table(made.slice(part, 1), folder / f"{part}.parquet")
    return hr.table_file(folder)


def in_sqlite(folder: Path, made: pa.Table) -> Any:
    with sqlite3.connect(folder / "na mes%20.db") as connection:
        connection.execute("create table names (k integer, name text)")
        connection.executemany("insert into names values (?, ?)", made.to_pandas().values.tolist())
    connection.close()
    return hr.sql_table(f"sqlite:{folder}/na mes%20.db", "select k, name from names", schema=NAMES)


def as_arrow(folder: Path, made: pa.Table) -> Any:
    return made


def as_pandas(folder: Path, made: pa.Table) -> Any:
    return made.to_pandas()


SOURCES = [in_parquet, in_csv, in_json, in_folder, in_sqlite, as_arrow, as_pandas]


@pytest.mark.parametrize("place", SOURCES)
def test_a_table_may_lie_anywhere(place: Callable[..., Any], tmp_path: Path) -> None:
    with Harness(job(place(tmp_path, table("zero", "one", "two")))) as harness:
        harness.send("a", rows(2, 0, 7))
        assert shown(harness) == [(0, 0, "zero"), (2, 20, "two"), (7, 70, None)]


def test_a_null_key_is_found_nowhere() -> None:
    with Harness(job(table("zero", "nobody"))) as harness:
        harness.send("a", rows(None))
        assert [r["name"] for r in harness.output("out")] == [None]


def test_of_two_rows_with_one_key_the_last_counts() -> None:
    twice = pa.concat_tables([table("zero"), table("nought")])
    with Harness(job(twice)) as harness:
        harness.send("a", rows(0))
        assert shown(harness) == [(0, 0, "nought")]


def test_a_function_is_called_again_after_each_refresh() -> None:
    made = [table("zero"), table("nought", "one")]
    calls: list[int] = []

    def load() -> pd.DataFrame:
        calls.append(1)
        return made[min(len(calls), 2) - 1].to_pandas()

    with Harness(job(load, schema=NAMES, refresh="10s")) as harness:
        harness.send("a", rows(0))
        harness.send("a", rows(1))
        assert shown(harness) == [(0, 0, "zero"), (1, 10, None)]
        harness.advance("10s")
        harness.send("a", rows(0, 1))
        assert shown(harness) == [(0, 0, "nought"), (1, 10, "one")]
    assert len(calls) == 2


def test_a_missing_row_may_be_a_dead_letter() -> None:
    with Harness(job(table("zero"), on_missing="dead")) as harness:
        harness.send("a", rows(0, 5))
        assert shown(harness) == [(0, 0, "zero")]
        (letter,) = harness.dead()
        assert (letter["step"], letter["error"]) == ("found", "LookupError: no row for 5")
        assert (letter["input"], letter["offset"]) == ("a", 1)


def test_a_missing_row_may_wait_for_the_table(tmp_path: Path) -> None:
    source = in_parquet(tmp_path, table("zero"))
    options = {"on_missing": "wait", "refresh": "10s", "patience": "25s"}
    with Harness(job(source, **options)) as harness:
        harness.send("a", rows(1, 8))
        harness.advance("10s")
        harness.restart()
        assert shown(harness) == []
        in_parquet(tmp_path, table("zero", "one"))
        harness.crash()
        harness.advance("10s")
        assert shown(harness) == [(1, 10, "one")]
        assert harness.dead() == []
        harness.advance("10s")
        assert [letter["error"] for letter in harness.dead()] == ["LookupError: no row for 8"]
        assert harness.state("found")["waiting"].num_rows == 0


def test_a_row_that_has_waited_is_not_late_for_a_window(tmp_path: Path) -> None:
    source = in_parquet(tmp_path, table("zero"))
    options = {"on_missing": "wait", "refresh": "10s", "patience": "25s"}
    with Harness(job(source, **options)) as harness:
        harness.send("a", rows(1))
        harness.send("a", rows(0, at=60))
        in_parquet(tmp_path, table("zero", "one"))
        harness.advance("10s")
        harness.end()
        assert harness.late("after") == []
        assert sum(r["n"] for r in harness.output("n")) == 2


def test_nobody_waits_beyond_the_end(tmp_path: Path) -> None:
    source = in_parquet(tmp_path, table("zero"))
    with Harness(job(source, on_missing="wait", refresh="10s", patience="1d")) as harness:
        harness.send("a", rows(1))
        harness.end()
        assert [letter["error"] for letter in harness.dead()] == ["LookupError: no row for 1"]


def test_a_table_that_cannot_be_loaded_stops_the_job(tmp_path: Path) -> None:
    source = in_parquet(tmp_path, table("zero"))
    with Harness(job(source)) as harness:
        (tmp_path / "names.parquet").unlink()
        with pytest.raises(hr.HeadraceError, match="HR-JOIN-020") as caught:
            harness.send("a", rows(1))
        assert caught.value.site is not None and caught.value.site.file == __file__


def test_a_function_may_give_rows_that_leave_columns_out_or_none_at_all() -> None:
    made: list[list[dict[str, Any]]] = [[], [{"k": 1}, {"k": 2, "name": "two"}]]
    with Harness(job(lambda: made.pop(0), schema=NAMES, refresh="10s")) as harness:
        harness.send("a", rows(1, 2))
        assert shown(harness) == [(1, 10, None), (2, 20, None)]
        harness.advance("10s")
        harness.send("a", rows(1, 2))
        assert shown(harness) == [(1, 10, None), (2, 20, "two")]


@pytest.mark.parametrize("given", [[{"k": 1}], lambda: [{"k": 1}]])
def test_all_rows_of_a_list_may_leave_a_declared_column_out(given: Any) -> None:
    with Harness(job(given, schema=NAMES)) as harness:
        harness.send("a", rows(1, 2))
        assert shown(harness) == [(1, 10, None), (2, 20, None)]


def test_no_list_may_leave_the_key_out() -> None:
    refused = pytest.raises(hr.HeadraceError, match=r"HR-JOIN-020 .*not one column 'k'")
    with Harness(job(lambda: [{"name": "one"}], schema=NAMES)) as harness, refused:
        harness.send("a", rows(1))


def test_rows_that_are_no_dicts_are_told() -> None:
    told = "the rows of the list are tuple, not dict"
    refused = pytest.raises(hr.HeadraceError, match=f"HR-JOIN-020 .*{told}")
    with Harness(job(lambda: [(1, "one")], schema=NAMES)) as harness, refused:
        harness.send("a", rows(1))
    with pytest.raises(hr.PlanError, match=f"HR-JOIN-008 .*{told}"):
        job([(1, "one")], schema=NAMES).check()


SAID = {
    "mysql://u:hunter2@h/db": "mysql://u:***@h/db",
    "u:hunter2@h": "u:***@h",
    "postgresql://u:hunt@er2@h": "postgresql://u:***@h",
    "password='hunt er2' user=x": "password=*** user=x",
    "PASSWORD = hunter2": "PASSWORD = ***",
    "UID=a;PWD=hunter2;x": "UID=a;PWD=***;x",
    "{'password': 'hunter2'}": "{'password': ***}",
    '{"passwd":"hunter2"}': '{"passwd":***}',
    "no rows for ann@example.com: password authentication failed": None,
}


@pytest.mark.parametrize("text", SAID)
def test_what_a_function_says_is_told_without_passwords(text: str) -> None:
    def fails() -> Any:
        raise ValueError(text)

    refused = pytest.raises(hr.HeadraceError, match="HR-JOIN-020")
    with Harness(job(fails, schema=NAMES)) as harness, refused as caught:
        harness.send("a", rows(1))
    told = "".join(traceback.format_exception(caught.value))
    assert (SAID[text] or text) in told and "hunt" not in told


def test_a_function_that_gives_no_table_is_told() -> None:
    with Harness(job(lambda: None, schema=NAMES)) as harness:
        with pytest.raises(hr.HeadraceError, match=r"HR-JOIN-020 .*list of dicts, got NoneType"):
            harness.send("a", rows(1))
        assert harness.output("out") == []


@pytest.mark.parametrize("given", [table("zero"), table("zero").to_pandas()])
def test_what_never_changes_is_not_refreshed(given: Any) -> None:
    with pytest.raises(hr.PlanError, match="HR-JOIN-026"):
        job(given, refresh="10s").check()


def test_patience_without_waiting_is_refused() -> None:
    with pytest.raises(hr.PlanError, match="HR-JOIN-023 rows do not wait"):
        job(table("zero"), patience="10s").check()


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    source = hr.sql_table(f"sqlite:{tmp_path}/na mes#.db", "select k, name from x", schema=NAMES)
    refused = pytest.raises(hr.HeadraceError, match=r"HR-JOIN-020 .*unable to open database")
    with Harness(job(source)) as harness, refused:
        harness.send("a", rows(1))
    assert not list(tmp_path.iterdir())


def test_the_address_of_a_database_is_not_repeated_for_it_may_hold_a_password() -> None:
    with pytest.raises(hr.PlanError, match=r"HR-JOIN-022 .*'postgresql:'") as caught:
        hr.sql_table("postgresql://me:s3cret@there/db", "select 1", schema="x int")
    assert "s3cret" not in str(caught.value) and "psycopg.connect" in str(caught.value)
    for text in ("host=there password=s3cret", "s3cret@there: me"):
        with pytest.raises(hr.PlanError, match=r"HR-JOIN-022 .* open this text") as caught:
            hr.sql_table(text, "select 1", schema="x int")
        assert "s3cret" not in str(caught.value)


def test_a_lookup_opens_its_own_connections() -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(hr.PlanError, match=r"HR-JOIN-022 .* not a connection"):
        hr.sql_table(connection, "select 1", schema="x int")  # type: ignore[arg-type]
    connection.close()
    with pytest.raises(hr.PlanError, match="HR-PLAN-028"):
        hr.sql_table(lambda path: path, "select 1", schema="x int")  # type: ignore[arg-type,misc]


def test_the_copy_of_a_table_goes_with_its_program() -> None:
    before = set(lookup_tables._COPIES)
    made = job(lambda: [{"k": 1, "name": "one"}], schema=NAMES)
    with Harness(made) as harness:
        harness.send("a", rows(1))
        assert shown(harness) == [(1, 10, "one")]
    assert len(set(lookup_tables._COPIES) - before) == 1
    del made, harness
    gc.collect()
    assert not set(lookup_tables._COPIES) - before
