"""An input of a user's own: a small class whose rows are counted.

The class says how far each of its splits goes and returns the rows of a range. An offset is a
number of rows; that a range has exactly its rows is checked here, so that none is missing and none
doubled. One with other offsets is a `Source` (contract.py).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.errors import HeadraceError, InputError
from headrace.rows import fitted, table_of
from headrace.schema import schema_of
from headrace.sources.contract import BEGINNING, Chunk, Range, Source, refuse_shorter


class Input(Source):
    """Subclass me: an input of your own, for `job.read(...)`; small, and it can be pickled.

    Declare `kind`, a short text that is stored in job folders and must not change, and `schema`;
    write `latest` and `fetch`. The same range must give the same rows whenever it is read, in any
    process. What cannot be read again is a `hr.Spout`.
    """

    kind: ClassVar[str] = ""
    bounded = False
    raw = False
    dense = True
    because = "the class promises the same rows for the same range"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.label = cls.kind
        declared = cls.__dict__.get("schema")
        if declared is not None and not isinstance(declared, property | pa.Schema):
            cls.schema = schema_of(declared)

    @property
    def place(self) -> str:
        """Where the rows come from, as a user would recognise it; without secrets."""
        return ""

    @property
    def thing(self) -> str:
        """What is there, if another may take its place under the same name: an id, a version."""
        return ""

    def splits(self) -> list[str]:
        """The names of the parts that can be read side by side."""
        return ["0"]

    def latest(self, split: str) -> int:
        """How many rows the split has now: these can be read, now and later."""
        raise NotImplementedError

    def start(self, split: str) -> int:
        """The first row that is still there."""
        return 0

    def commit(self, offsets: Mapping[str, int]) -> None:
        """The rows before these, by split, are safe: they may be removed."""

    def fetch(self, split: str, start: int, end: int) -> Any:
        """The rows [start, end) of a split: an Arrow table, or dicts."""
        raise NotImplementedError

    def to_the_end(self) -> Input:
        """The same input, which ends where it ends now."""
        same, ends = copy.copy(self), {split: self.latest(split) for split in self.splits()}
        vars(same).update(bounded=True, latest=ends.__getitem__, splits=partial(list, ends))
        return same

    def identity(self) -> dict[str, str]:
        return {"kind": self.kind, "place": self.place, "thing": self.thing}

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        """Check that every split has what the job has read of it."""
        known = set(self.splits())
        for split, offset in offsets.items():
            with _named(self, "latest"):
                end = self.latest(split) if split in known else 0
            refuse_shorter(self.in_words(split), offset, end)
            if offset < self.start(split):
                raise InputError(
                    "HR-INPUT-011",
                    f"{self.in_words(split)} begins at {self.start(split)}, but the job has read "
                    f"up to {offset} only",
                    "What lies between is no longer there: restore it, or start with a new job "
                    "folder.",
                )

    def read(self, range: Range) -> Iterator[Chunk]:
        with _named(self, "fetch"):
            table = self._table(self.fetch(range.split, range.start, range.end))
        if table.num_rows != range.end - range.start:
            raise InputError(
                "HR-INPUT-061",
                f"fetch({range.split!r}, {range.start}, {range.end}) of the input {self.kind!r} "
                f"returned {table.num_rows} rows, not {range.end - range.start}",
                "Return the rows from start up to end, end not included; `latest` is the number "
                "of rows that can be read.",
            )
        yield table, np.arange(range.start, range.end, dtype=np.int64)

    def _table(self, rows: pa.Table | Iterable[Any]) -> pa.Table:
        if isinstance(rows, pa.Table):
            return fitted(rows.select(self.schema.names), self.schema)
        return table_of(list(rows), self.schema)


class _named:
    """What the user's class raises, as an error of the input."""

    def __init__(self, input: Input, method: str) -> None:
        self._input, self._method = input, method

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, cause: BaseException | None, trace: object) -> None:
        if isinstance(cause, Exception) and not isinstance(cause, HeadraceError):
            raise InputError(
                "HR-INPUT-062",
                f"{self._method} of the input {self._input.kind!r} failed: "
                f"{type(cause).__name__}: {cause}",
                "Nothing of the batch is committed. Correct the cause and start the job again.",
            ) from cause


def check_own(source: Any) -> None:
    """Refuse an input whose class could not be read, or not be recognised at the next start."""
    if not isinstance(source, Input):
        return
    kind = type(source)
    wrong = (
        "declares no kind"
        if not kind.kind
        else "declares no schema"
        if not isinstance(getattr(source, "schema", None), pa.Schema)
        else "has no latest"
        if kind.latest is Input.latest
        else "has no fetch"
        if kind.fetch is Input.fetch and kind.read is Input.read
        else ""
    )
    if wrong:
        raise InputError(
            "HR-INPUT-060",
            f"the input {kind.__name__} {wrong}",
            'Write kind = "..." and schema = "column type, ..." in the class, and the methods '
            "latest(self, split) and fetch(self, split, start, end).",
        )
