"""The oracle comes to an end whatever fails in Spark; a text that always fails, in all rows."""

from __future__ import annotations

from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from tests.expr.spark_oracle import Failure, Oracle

TABLE = pa.table({"n": [1, 2, 3]})


@pytest.fixture
def oracle():
    """One in whose Spark every query fails."""
    spark = MagicMock()
    spark.newSession.return_value.conf.get.return_value = "true"
    frame = spark.newSession.return_value.createDataFrame.return_value
    frame.where.return_value = frame
    frame.selectExpr.side_effect = RuntimeError("no")
    return Oracle(spark, TABLE)


def test_a_text_that_fails_in_every_row_has_as_many_failures(oracle):
    found = oracle.outcomes(["a", "b"], {})
    assert found.keys() == {"a", "b"}
    assert [[type(v) for v in values] for values in found.values()] == [[Failure] * 3] * 2


def test_a_text_that_fails_also_where_all_rows_are_skipped_has_no_outcome(oracle):
    assert oracle.outcomes(["a"], {"a": {0, 1, 2}}) == {"a": [None] * 3}
