"""A generator in `flat_map` may yield one object again and again, changed in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import drive


@dataclass
class Sum:
    n: int = 0
    seen: list[int] = field(default_factory=list)


def one_dict(row: Any) -> Iterator[Any]:
    made: dict[str, Any] = {"n": 0, "seen": []}
    for i in range(row.v):
        made["n"] += i
        made["seen"].append(i)
        yield made


def one_record(row: Any) -> Iterator[Any]:
    made = Sum()
    for i in range(row.v):
        made.n += i
        made.seen.append(i)
        yield made


def one_list_in_tuples(row: Any) -> Iterator[Any]:
    seen: list[int] = []
    for i in range(row.v):
        seen.append(i)
        yield (sum(seen), seen)


FUNCTIONS = [one_dict, one_record, one_list_in_tuples]
EXPECTED = [(sum(range(i + 1)), list(range(i + 1))) for v in (3, 2) for i in range(v)]


def _run(tmp_path: Path, build: Any) -> list[Any]:
    job = hr.Job("yielded")
    stream = build(job.read(hr.rows([(3,), (2,)], "v bigint"), name="rows"))
    stream.write("collect:", name="out")
    return drive(job, tmp_path).output("out").to_pylist()


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_each_row_is_what_it_was_when_it_was_yielded(tmp_path: Path, fn: Any) -> None:
    rows = _run(tmp_path, lambda s: s.flat_map(fn, schema="n bigint, seen array<bigint>"))
    assert [(r["n"], r["seen"]) for r in rows] == EXPECTED


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_also_for_the_step_after(tmp_path: Path, fn: Any) -> None:
    def again(row: Any) -> tuple[Any, ...]:
        return (row.n, len(row.seen))

    def build(stream: Any) -> Any:
        made = stream.flat_map(fn, schema="n bigint, seen array<bigint>")
        return made.map(again, schema="n bigint, count bigint")

    rows = _run(tmp_path, build)
    assert [(r["n"], r["count"]) for r in rows] == [(n, len(seen)) for n, seen in EXPECTED]


def test_rows_without_lists(tmp_path: Path) -> None:
    rows = _run(tmp_path, lambda s: s.flat_map(one_dict, schema="n bigint"))
    assert [r["n"] for r in rows] == [n for n, _ in EXPECTED]
