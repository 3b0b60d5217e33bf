"""`headrace state` as its user types it."""

from __future__ import annotations

import csv
import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.app import app
from headrace.cli.loading import load_job
from headrace.testing import Driver
from tests.terminal import forget

JOB = """
    import headrace as hr

    job = hr.Job("kept")
    rows = job.read("log:rows", schema="k int, n bigint, at bigint", time="at", delay="1s")
    rows.key_by("k").agg(most=hr.max("n"), unbounded=True, name="most").write("collect:")
    slid = rows.key_by("k").window(hr.sliding("1m", "10s"))
    slid.agg(n=hr.count(), name="slid").write("collect:", name="counts")
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "job.py").write_text(dedent(JOB), encoding="utf-8")
    hr.EmbeddedLog().create("rows", schema="k int, n bigint, at bigint")
    rows = [{"k": i % 3, "n": i, "at": i * 1_000} for i in range(60)]
    hr.EmbeddedLog().append("rows", rows)

    def type_in(command: str, *words: str) -> Any:
        try:
            return CliRunner().invoke(app, ["state", command, "job.py", *words])
        finally:
            forget(tmp_path)

    return type_in


@pytest.fixture
def ran(call: Callable[..., Any]) -> Callable[..., Any]:
    try:
        Driver(load_job(Path("job.py")), ".headrace/jobs/kept", until=None).drain()
    finally:
        forget(Path.cwd())
    return call


def lines(result: Any) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_ls_names_the_steps_with_key_and_columns(ran):
    assert ran("ls").stdout.splitlines() == [
        "most: 3 rows by k; k, most",
        "slid: 18 rows by k; k, window_start, window_end, n",
    ]


def test_get_shows_all_or_one_key_read_as_its_type(ran):
    assert {r["k"]: r["most"] for r in lines(ran("get", "most"))} == {0: 57, 1: 58, 2: 59}
    assert lines(ran("get", "most", "--key", "k=1")) == [{"k": 1, "most": 58}]


def test_get_finds_the_key_that_is_null(call):
    hr.EmbeddedLog().append("rows", [{"k": None, "n": 77, "at": 59_000}])
    Driver(load_job(Path("job.py")), ".headrace/jobs/kept", until=None).drain()
    forget(Path.cwd())
    assert lines(call("get", "most", "--key", "k is null")) == [{"k": None, "most": 77}]


def test_get_cuts_windows_by_time_and_sorts(ran):
    found = lines(ran("get", "slid", "--since", "00:00:10", "--until", "00:00:30", "--top", "n"))
    assert [(r["n"], r["window_end"]) for r in found] == [
        (n, "1970-01-01 00:00:30+00:00") for n in (7, 7, 6)
    ]


def test_a_stretch_without_an_end_goes_up_to_the_newest_rows(ran):
    assert sum(r["n"] for r in lines(ran("get", "slid", "--since", "00:00:30"))) == 30
    assert sum(r["n"] for r in lines(ran("get", "slid", "--until", "00:00:30"))) == 30


def test_a_limit_says_what_it_leaves_out(ran):
    result = ran("get", "most", "--limit", "1")
    assert len(lines(result)) == 1
    assert "2 more" in result.stderr


def test_a_csv_file_has_lists_and_maps_as_json(call):
    more = """
    class Seen(hr.KeyedProcess):
        ns = hr.list_of(int)
        by = hr.map_of(str, float)
        output = "k int"

        def on_row(self, row, ctx):
            self.ns.append(row.n)
            if row.k:
                self.by["é"] = row.n / 2

    rows.key_by("k").process(Seen(), unbounded=True, name="seen").write("collect:", name="none")
    """
    Path("job.py").write_text(dedent(JOB) + dedent(more), encoding="utf-8")
    Driver(load_job(Path("job.py")), ".headrace/jobs/kept", until=None).drain()
    forget(Path.cwd())
    assert call("export", "seen", "out.csv").exit_code == 0
    with Path("out.csv").open(encoding="utf-8", newline="") as file:
        found = {int(row["k"]): row for row in csv.DictReader(file)}
    for k in range(3):
        assert json.loads(found[k]["ns"]) == list(range(k, 60, 3))
        assert json.loads(found[k]["by"]) == ({"é": (57 + k) / 2} if k else {})


SHARING = """
    import headrace as hr

    class Limits(hr.KeyedProcess):
        output = "k int"
        limits = hr.shared_map(int, float)
        n = hr.value(int, default=0)

        def on_rules(self, row, ctx):
            self.limits[row.k] = float(row.n)

        def on_rows(self, row, ctx):
            self.n += 1

    job = hr.Job("kept")
    rows = job.read("log:rows", schema="k int, n bigint, at bigint", name="rows")
    rules = job.read("log:rules", schema="k int, n bigint, at bigint", name="rules")
    both = hr.connect(by="k", rows=rows, rules=rules.broadcast())
    both.process(Limits(), unbounded=True, name="p").write("collect:")
"""


def test_what_all_keys_share_has_a_name_of_its_own(call, tmp_path):
    (tmp_path / "job.py").write_text(dedent(SHARING), encoding="utf-8")
    hr.EmbeddedLog().create("rules", schema="k int, n bigint, at bigint")
    hr.EmbeddedLog().append("rules", [{"k": k, "n": k * 10, "at": 0} for k in (1, 2)])
    try:
        Driver(load_job(Path("job.py")), ".headrace/jobs/kept", until=None).drain()
    finally:
        forget(tmp_path)
    assert call("ls").stdout.splitlines() == [
        "p: 3 rows by k; k, n", "p.limits: 2 rows by key; key, value",
    ]  # fmt: skip
    assert lines(call("get", "p.limits", "--key", "key=2")) == [{"key": 2, "value": 20.0}]
    asked = call("sql", 'SELECT sum(value) AS s FROM "p.limits"', "--json")
    assert lines(asked) == [{"s": 30.0}]
    assert call("export", "p.limits", "limits.jsonl").exit_code == 0
    assert Path("limits.jsonl").read_text(encoding="utf-8").count("\n") == 2
    refused = call("get", "p.limits", "--key", "k=2")
    assert refused.exit_code == 1 and "HR-CLI-020" in refused.output
    assert "The key of 'p.limits' is: key." in refused.output


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_export_writes_a_file(ran, suffix):
    assert ran("export", "most", f"out.{suffix}").exit_code == 0
    text = Path(f"out.{suffix}")
    if suffix == "parquet":
        assert sorted(pq.read_table(text)["most"].to_pylist()) == [57, 58, 59]
    else:
        assert "58" in text.read_text(encoding="utf-8")


def test_sql_has_every_step_as_a_table(ran):
    query = "SELECT m.k, s.n FROM most m JOIN slid s USING (k) ORDER BY k, window_start LIMIT 1"
    assert lines(ran("sql", query, "--json")) == [{"k": 0, "n": 4}]


def test_sql_for_a_server_is_bounded(ran):
    """However many rows a query has, and whatever it takes: a few are held, and nothing is put on
    disk."""

    def asked(query: str) -> Any:
        return json.loads(ran("sql", query, "--whole", "--limit", "2").stdout)

    assert asked("SELECT k, k + 1 AS k FROM most ORDER BY 1") == {
        "columns": ["k", "k"], "rows": [[0, 1], [1, 2]], "epoch": 1, "more": 1
    }  # fmt: skip
    assert asked("SELECT 1 AS one") == {"columns": ["one"], "rows": [[1]], "epoch": 1, "more": 0}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = asked("SELECT range AS n, repeat('x', 1000) AS x FROM range(1000000)")
    assert [row[0] for row in answer["rows"]] == [0, 1] and answer["more"] == 999_998
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # of a million kB
    error = ran("sql", "SELECT list(range) AS n FROM range(100000000)", "--whole").output
    assert "HR-STATE-034" in error and "Out of Memory" in error
    assert not list(Path.cwd().glob(".tmp*"))


NUMBERS = """
    SELECT k, 'key ' || k AS name, sum(most) * 1000000 AS total, avg(most) / 8 AS mean,
        (k + 0.5)::DECIMAL(5, 2) AS exact, nullif(k, 1) AS two
    FROM most WHERE k < 2 GROUP BY k ORDER BY k
"""


def test_sql_shows_numbers_to_the_right_and_as_json_they_are_numbers(ran):
    assert ran("sql", NUMBERS).stdout.splitlines() == [
        "k  name      total   mean  exact   two",
        "0  key 0  57000000  7.125   0.50     0",
        "1  key 1  58000000   7.25   1.50  null",
    ]
    assert lines(ran("sql", NUMBERS, "--json", "--limit", "1")) == [
        {"k": 0, "name": "key 0", "total": 57_000_000, "mean": 7.125, "exact": 0.5, "two": 0}
    ]
    assert '"total": 57000000,' in ran("sql", NUMBERS, "--json").stdout  # no text, no fraction


def test_a_decimal_that_no_double_is_stays_exact(ran):
    query = "SELECT 12345678901234567890.12::DECIMAL(30, 2) AS d FROM most LIMIT 1"
    assert lines(ran("sql", query, "--json")) == [{"d": "12345678901234567890.12"}]
    assert ran("sql", query).stdout.splitlines()[1] == "12345678901234567890.12"


def test_get_says_that_a_window_is_closed(ran):
    hr.EmbeddedLog().append("rows", [{"k": 7, "n": 1, "at": 600_000}])
    Driver(load_job(Path("job.py")), ".headrace/jobs/kept", until=None).drain()
    forget(Path.cwd())

    closed = ran("get", "slid", "--until", "00:00:10")
    assert (closed.exit_code, closed.stdout) == (0, "")
    assert closed.stderr == (
        "'slid' has no state in that time: its watermark is 1970-01-01 00:09:59; "
        "windows that end by then are closed, and their results emitted\n"
    )
    of_key = ran("get", "slid", "--key", "k=1").stderr
    assert of_key.startswith("'slid' has no state for that key: its watermark is 1970")
    assert ran("get", "most", "--key", "k=9").stderr == "'most' has no state for that key\n"
    assert ran("get", "slid", "--key", "k=7").stderr == ""


def test_get_says_that_every_window_of_an_ended_job_is_closed(call):
    Driver(load_job(Path("job.py")), ".headrace/jobs/kept", until="end").drain()
    forget(Path.cwd())
    assert "its input has ended, every window is closed" in call("get", "slid").stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("get", "mast"), "HR-STATE-030 'kept' has no step 'mast'"),
        (("get", "most", "--key", "z=1"), "HR-CLI-020 'z=1' is not COLUMN=VALUE"),
        (("get", "most", "--key", "k=x"), "HR-CLI-020 'x' is no int32"),
        (("export", "most", "out.xlsx"), "HR-CLI-021 'out.xlsx' ends in '.xlsx'"),
        (("export", "most", "nowhere/out.csv"), "HR-CLI-022 'nowhere/out.csv' cannot be written"),
        (("sql", "SELECT"), "HR-STATE-034 the query cannot be answered"),
    ],
)
def test_a_mistake_is_named(ran, words, message):
    result = ran(*words)
    assert result.exit_code == 1
    assert message in result.stderr


def test_a_job_that_never_ran_has_no_state(call):
    result = call("ls")
    assert result.exit_code == 1
    assert "HR-STATE-035 'kept' has never run" in result.stderr
