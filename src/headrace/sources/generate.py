"""Rows made by a function of their number: for demos, load and tests.

Row `i` is always `fn(i)`, so any range can be made again, in any process. How far the input
goes is the clock's business: `rate` rows a second since the first start, which is stored in the
job's folder. Split `s` of `n` holds the rows s, s + n, s + 2n, ...; an offset counts them.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.errors import HeadraceError, PlanError, StepError
from headrace.rows import fitted, table_of
from headrace.schema import SchemaLike, schema_of
from headrace.sources.contract import (
    BEGINNING,
    Chunk,
    Offset,
    Positions,
    Range,
    Source,
    refuse_shorter,
)
from headrace.state.sealed import create_sealed, make_folder, missing, read_sealed
from headrace.values import array_of

CHUNK_ROWS = 65_536
_START = "first-start"  # the file that holds it


@dataclass(frozen=True, kw_only=True)
class GenerateSource(Source):
    schema: pa.Schema
    fn: Callable[..., Any]
    rate: float | None = None  # rows a second; None: all at once
    total: int | None = None
    count: int = 1  # of splits
    vectorised: bool = False
    seed: int | None = None
    home: Path | None = None  # in the job's folder: where the first start is stored
    name: str = "input"
    clock: Clock = field(default_factory=SystemClock)
    since: dict[str, int] = field(default_factory=dict)  # the first start, once it is known
    raw: bool = False

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        return self.total is not None

    def for_job(
        self, home: Path | None, name: str, clock: Clock, schema: pa.Schema | None
    ) -> GenerateSource:
        """The same source as input `name` of a job."""
        schema = self.schema if schema is None else schema
        return replace(self, home=home, name=name, clock=clock, schema=schema, since={})

    def identity(self) -> dict[str, str]:
        """The number of splits says which rows an offset counts, the rate which rows there are
        since the first start; the function may change."""
        pace = "" if self.rate is None else f", {self.rate:g} rows a second"
        return {"kind": "generate", "place": "", "thing": f"{self.count} splits{pace}"}

    def check(self, offsets: Mapping[str, Offset] = BEGINNING) -> None:
        for split, offset in offsets.items():
            if self.total is not None:
                refuse_shorter(split, offset, self._share(self.total, int(split)))
        if self._start_file is not None and self.rate is not None:
            if self._start_file.exists():
                read_sealed(self._start_file, _START)
            elif any(offsets.values()):
                raise missing(self._start_file)

    def has_more(self, split: str, offset: Offset) -> bool:
        return not self.ended(split, offset)

    def splits(self) -> list[str]:
        return [str(i) for i in range(self.count)]

    def latest(self, split: str) -> int:
        return self._share(self._due(), int(split))

    def ended(self, split: str, offset: int) -> bool:
        return self.total is not None and offset >= self._share(self.total, int(split))

    def read(self, range: Range) -> Iterator[Chunk]:
        for first in np.arange(range.start, range.end, CHUNK_ROWS):
            offsets = np.arange(first, min(first + CHUNK_ROWS, range.end), dtype=np.int64)
            yield self._make(offsets * self.count + int(range.split)), offsets

    def _share(self, rows: int, split: int) -> int:
        return max(0, -(-(rows - split) // self.count))

    def _due(self) -> int:
        """How many rows there should be by now."""
        if self.rate is None:
            return self.total or 0
        elapsed = self.clock.now() - self._first_start()
        due = max(0, int(elapsed * self.rate / 1_000))
        return due if self.total is None else min(due, self.total)

    def _first_start(self) -> int:
        if "ms" not in self.since:
            path = self._start_file
            self.since["ms"] = self.clock.now() if path is None else self._stored_start(path)
        return self.since["ms"]

    @property
    def _start_file(self) -> Path | None:
        return self.home / _START if self.home else None

    def _stored_start(self, path: Path) -> int:
        if not path.exists():
            make_folder(path.parent)
            create_sealed(path, _START, {"ms": self.clock.now()})
        return int(read_sealed(path, _START)["ms"])

    def _make(self, numbers: Positions) -> pa.Table:
        try:
            if self.vectorised:
                return _columns(self.fn(numbers), len(numbers), self.schema)
            return table_of([_row(self.fn, i, self.seed) for i in numbers.tolist()], self.schema)
        except HeadraceError:
            raise
        except Exception as cause:
            raise StepError(
                "HR-STEP-001",
                f"input {self.name!r}: the function given to generate failed on rows "
                f"{numbers[0]} to {numbers[-1]}: {type(cause).__name__}: {cause}",
                "It is called with the number of the row and must give the schema's columns.",
            ) from cause


def generate(
    rate: float | None,
    fn: Callable[..., Any],
    total: int | None = None,
    *,
    schema: SchemaLike | None = None,
    splits: int = 1,
    vectorised: bool = False,
    seed: int | None = None,
) -> GenerateSource:
    """`rate` rows a second, `total` in all: row i is `fn(i)`.

    `vectorised`: fn gets an array of numbers and returns columns. `seed`: fn gets a random
    generator of its own for each row as a second argument. `rate` None makes all rows at once.
    """
    _check(rate, total, splits, vectorised, seed)
    return GenerateSource(
        schema=schema_of(schema) if schema is not None else _first_schema(fn, vectorised, seed),
        fn=fn,
        rate=rate,
        total=total,
        count=splits,
        vectorised=vectorised,
        seed=seed,
    )


def _check(
    rate: float | None, total: int | None, splits: int, vectorised: bool, seed: int | None
) -> None:
    problem = (
        "no total"
        if rate is None and total is None
        else f"rate {rate}"
        if rate is not None and rate <= 0
        else f"total {total}"
        if total is not None and total < 0
        else f"{splits} splits"
        if splits < 1
        else "both seed and vectorised"
        if vectorised and seed is not None
        else None
    )
    if problem:
        raise PlanError(
            "HR-INPUT-013",
            f"generate has {problem}",
            "Give a rate above 0, or rate=None and a total; one split or more; "
            "seed only without vectorised.",
        )


def _first_schema(fn: Callable[..., Any], vectorised: bool, seed: int | None) -> pa.Schema:
    """The columns of row 0."""
    try:
        first = fn(np.zeros(1, np.int64)) if vectorised else _row(fn, 0, seed)
    except Exception as cause:
        raise PlanError(
            "HR-INPUT-012",
            f"the function given to generate failed on row 0: {type(cause).__name__}: {cause}",
            "Mend it, or give generate(..., schema=...).",
        ) from cause
    if isinstance(first, pa.Table | pa.RecordBatch):
        return schema_of(first.schema)
    if dataclasses.is_dataclass(first):
        return schema_of(type(first))
    rows = {k: v if vectorised else [v] for k, v in _fields(first).items()}
    return schema_of(pa.table(rows).schema)


def _fields(row: Any) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    if hasattr(row, "_asdict"):
        fields: Mapping[str, Any] = row._asdict()
        return fields
    raise PlanError(
        "HR-INPUT-012",
        f"the function given to generate returned {type(row).__name__}",
        "Return a dict, a dataclass or a named tuple, or give generate(..., schema=...).",
    )


def _row(fn: Callable[..., Any], number: int, seed: int | None) -> Any:
    return fn(number) if seed is None else fn(number, random.Random(f"{seed}/{number}"))


def _columns(result: Any, rows: int, schema: pa.Schema) -> pa.Table:
    if isinstance(result, Mapping):
        result = pa.table({f.name: array_of(result[f.name], f.type) for f in schema})
    table = result if isinstance(result, pa.Table) else pa.Table.from_batches([result])
    if table.num_rows != rows:
        raise ValueError(f"it made {table.num_rows} rows, not {rows}")
    return fitted(table, schema)
