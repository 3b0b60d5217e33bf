"""`with_columns` of Python functions: types, other columns untouched, rows that fail."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Optional

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import PlanError
from headrace.testing import drive

ROWS = pa.table(
    {
        "k": ["a", "b", "c"],
        "v": pa.array([1, 4, None], pa.int32()),
        "ns": pa.array([1, 2, 3], pa.timestamp("ns", "UTC")),
        "f": pa.array([0.5, 1.5, 2.5], pa.float32()),
    }
)
FACTOR = [2]


def root(row: Any) -> float:
    return math.sqrt(row.v)


def twice(row) -> Optional[int]:  # noqa: UP045
    return None if row.v is None else row.v * 2


def letters(row: Any) -> list[str]:
    BUFFER[:] = [row.k, row.k]
    return BUFFER


BUFFER: list[str] = []


def plain(row):
    return row.v


def played(tmp_path: Path, build: Any, rows: Any = ROWS) -> tuple[pa.Table, list[dict[str, Any]]]:
    job = hr.Job("columns")
    build(job.read(hr.rows(rows), name="rows")).write("collect:", name="out")
    job.dead.write("collect:", name="letters")
    driver = drive(job, tmp_path)
    return driver.output("out"), driver.output("letters").to_pylist()


def test_the_types_come_from_hints_or_are_said(tmp_path: Path) -> None:
    out, dead = played(
        tmp_path,
        lambda s: s.with_columns(
            w=twice,
            l=letters,
            t=plain,
            u=lambda row: str(FACTOR) + row.k,
            types={"t": "decimal(9,2)", "u": str},
        ),
    )
    assert not dead
    assert out.schema.field("w").type == pa.int64()
    assert out.schema.field("t").type == pa.decimal128(9, 2)
    assert out["w"].to_pylist() == [2, 8, None]
    assert out["l"].to_pylist() == [["a", "a"], ["b", "b"], ["c", "c"]]  # one list, filled anew
    assert out["u"].to_pylist() == ["[2]a", "[2]b", "[2]c"]
    assert out.select(ROWS.column_names).equals(ROWS)  # to the nanosecond


def test_a_row_on_which_it_raises_or_that_does_not_fit_is_a_dead_letter(tmp_path: Path) -> None:
    def odd(row: Any) -> int:
        return "text" if row.k == "a" else len(row.k)  # type: ignore[return-value]

    out, dead = played(tmp_path, lambda s: s.with_columns(r=root, o=odd))
    assert out["k"].to_pylist() == ["b"] and out["r"].to_pylist() == [2.0]
    assert [d["step"] for d in dead] == ["rows.with_columns"] * 2
    assert "column 'o' (bigint)" in dead[0]["error"] and "TypeError" in dead[1]["error"]


def test_all_are_computed_of_the_row_as_it_came(tmp_path: Path) -> None:
    def old(row: Any) -> int:
        return (row.v or 0) + 1

    out, _ = played(
        tmp_path,
        lambda s: s.with_columns(v=old, a="v * 10", k=lambda r: hr.concat(r.k, hr.lit("!"))),
    )
    assert out.column_names == ["k", "v", "ns", "f", "a"]
    assert out["v"].to_pylist() == [2, 5, 1]
    assert out["a"].to_pylist() == [10, 40, None]
    assert out["k"].to_pylist() == ["a!", "b!", "c!"]


def test_a_traced_lambda_is_an_expression_as_ever() -> None:
    job = hr.Job("j")
    stream = job.read(hr.rows(ROWS), name="rows").with_columns(x=lambda r: r.v + 1)
    typed = stream.with_columns(y=lambda r: r.v + 1, z="v", types={"y": "double", "z": "bigint"})
    typed.write("collect:")
    assert "python: no step" in str(job.explain())
    assert typed.schema.field("y").type == pa.float64()
    assert typed.schema.field("z").type == pa.int64()


def test_a_column_may_be_called_types(tmp_path: Path) -> None:
    out, _ = played(tmp_path, lambda s: s.with_columns(types="v + 1", x="k"))
    assert out["types"].to_pylist() == [2, 5, None]


@pytest.mark.parametrize(
    ("build", "code", "says"),
    [
        (lambda s: s.with_columns(x=plain), "HR-PLAN-011", "plain"),
        (lambda s: s.with_columns(x=lambda r: int(r.v)), "HR-EXPR-005", "types="),
        (lambda s: s.with_columns(x=root, types={"x": "dubble"}), "HR-SCHEMA-002", "dubble"),
        (lambda s: s.with_columns(x=lambda: 1, types={"x": "int"}), "HR-PLAN-028", "1 argument"),
        (lambda s: s.with_columns(x=root, y="x + 1"), "HR-EXPR-001", "'x'"),
    ],
)
def test_what_is_not_known_is_refused(build: Any, code: str, says: str) -> None:
    job = hr.Job("j")
    build(job.read(hr.rows(ROWS))).write("collect:")
    with pytest.raises(PlanError) as caught:
        job.check()
    assert [p.code for p in caught.value.problems] == [code] and says in str(caught.value)
