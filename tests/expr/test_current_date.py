"""current_date(): the date of the epoch, the same when the epoch is done again."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import headrace as hr
from headrace.expr import as_expr, parsed, same
from headrace.kernel import SelectStep, compile_chain, never_true
from headrace.kernel.sql import epoch_clock
from headrace.schema import schema_of
from headrace.testing import Harness

DAY = 86_400_000
TABLE = pa.table({"day": pa.array([dt.date(1970, 1, 1), dt.date(1970, 1, 3)])})


def test_the_date_is_that_of_the_epoch_also_when_it_is_done_again():
    job = hr.Job("dated")
    rows = job.read("log:x", schema="n int", name="x")
    rows.with_columns(d=hr.current_date(), e="current_date + 1").where("d >= current_date()").write(
        "collect:", name="out"
    )
    with Harness(job, clock=10 * DAY + 5) as test:
        test.send("x", [{"n": 1}])
        test.crash()
        test.send("x", [{"n": 2}], at=dt.datetime(1970, 1, 12, 23, 59, tzinfo=dt.UTC))
        test.send("x", [{"n": 3}], at=dt.datetime(1970, 1, 13, tzinfo=dt.UTC))
        made = {r["n"]: (r["d"], r["e"]) for r in test.table().to_pylist()}
    days = {1: 11, 2: 12, 3: 13}
    assert made == {n: (dt.date(1970, 1, d), dt.date(1970, 1, d + 1)) for n, d in days.items()}


def test_one_kernel_follows_the_clock():
    columns = (("r", parsed("day < current_date()")),)
    kernel = compile_chain([SelectStep(columns=columns)], TABLE.schema)
    for clock, expected in ((-1, [False, False]), (DAY, [True, False]), (5 * DAY, [True, True])):
        with epoch_clock(clock):
            assert kernel(TABLE).column("r").to_pylist() == expected


def test_without_an_epoch_there_is_no_date():
    kernel = compile_chain([SelectStep(where=parsed("day < current_date()"))], TABLE.schema)
    with pytest.raises(hr.PlanError, match="HR-EXPR-006"):
        kernel(TABLE)
    assert not never_true(parsed("current_date() < date '1970-01-01'"))


def test_a_column_of_that_name_is_not_the_date():
    assert same(parsed("Current_Date"), parsed("current_date()"))
    schema = schema_of("current_date int")
    with pytest.raises(hr.PlanError, match="backticks"):
        as_expr("current_date + 1", schema)
    assert as_expr("`current_date` + 1", schema).columns == {"current_date"}
