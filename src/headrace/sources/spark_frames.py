"""A Spark DataFrame as an input: `hr.from_spark(df)`.

A DataFrame may give other rows each time it is computed (`rand()`, a table that has changed), so
the rows of it are stored in the job's folder first (`spark_rows.py`), and are read from there. A
batch DataFrame is stored once, whole, before the first epoch. A streaming one is read by a query
of its own while the job runs, one batch after the other. The driver's process does both
(`engine/spark_inputs.py`): only there is the DataFrame, which never travels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError, InputError, call_site
from headrace.schema import ddl_of, schema_of
from headrace.sources.contract import BEGINNING, Chunk, Range, Source, even_cuts, refuse_shorter
from headrace.sources.spark_rows import SparkRows

SPLIT = "rows"
LEAST = 65_536  # rows: fewer are not worth a task of their own


class SparkSource(Source):
    label = "spark"  # at rest
    raw = False
    forgets = True

    def __init__(
        self,
        frame: Any,
        schema: pa.Schema,
        *,
        streaming: bool,
        home: Path | None = None,
        name: str = "",
        until: str | None = None,
    ) -> None:
        self.frame, self.schema, self.streaming = frame, schema, streaming
        self.name, self.until = name, until
        self.bounded = not streaming or until == "end"
        self._home = home
        self._store: SparkRows | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"frame": None, "_store": None}

    def for_job(self, home: Path | None, name: str, until: str | None) -> SparkSource:
        """The same source as input `name` of a job."""
        return SparkSource(
            self.frame, self.schema, streaming=self.streaming, home=home, name=name, until=until
        )

    @property
    def store(self) -> SparkRows:
        if self._home is None:
            raise InputError(
                "HR-INPUT-013",
                "a DataFrame needs a job's folder, to store its rows",
                "Read it in a job.",
            )
        if self._store is None:
            self._store = SparkRows(self._home)
        return self._store

    @property
    def because(self) -> str:
        if self.streaming:
            return "each batch of Spark's query is stored once; its source must be replayable"
        return "its rows are stored in the job's folder before they are read"

    @property
    def title(self) -> str:
        """What it is, for `explain`."""
        return "a streaming DataFrame" if self.streaming else "a DataFrame"

    def identity(self) -> dict[str, str]:
        kind = "streaming" if self.streaming else "batch"
        return {"kind": "spark", "place": "", "thing": f"{kind}, {ddl_of(self.schema)}"}

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        if self._home is None or not self.store.begun:
            refuse_shorter(self.in_words(SPLIT), offsets.get(SPLIT, 0), 0)
            return
        at = offsets.get(SPLIT, self.store.start)
        refuse_shorter(self.in_words(SPLIT), at, self.store.end)
        if at < self.store.start:
            raise InputError(
                "HR-INPUT-011",
                f"the first {self.store.start} rows of {self.in_words(SPLIT)} were read and "
                "forgotten",
                "Go on from a later epoch, or start with a new job folder.",
            )
        wrong = self.store.check_checkpoint() if self.streaming else ""
        if wrong:
            raise InputError(
                "HR-SPARK-005",
                f"the query that reads input {self.name!r} cannot go on: {wrong}",
                f"Restore {str(self.store.folder)!r} whole, from a copy of the job's folder, or "
                "start with a new job folder.",
            )

    def has_more(self, split: str, offset: int) -> bool:
        return self.store.end != offset

    def splits(self) -> list[str]:
        return [SPLIT]

    def start(self, split: str) -> int:
        return self.store.start

    def latest(self, split: str) -> int:
        if not self.store.begun:
            raise InputError(
                "HR-SPARK-004",
                f"input {self.name!r} is {self.title}, and only Spark can compute its rows",
                "Run the job with hr.run(job); in a test without Spark read hr.rows(...) instead.",
            )
        return self.store.end

    def cut(self, split: str, start: int, end: int, pieces: int) -> list[Range]:
        refuse_shorter(self.in_words(split), start, end)
        bounds = even_cuts(start, end, pieces, LEAST)
        return [Range(split, a, b, self.store.files(a, b)) for a, b in pairwise(bounds)]

    def read(self, range: Range) -> Iterator[Chunk]:
        files = range.parts or self.store.files(range.start, range.end)
        yield from self.store.read(files, range.start, range.end)

    def where(self, split: str, offset: int) -> str:
        return f"{self.name} row {offset + 1}"

    def commit(self, offsets: Mapping[str, int]) -> None:
        safe = self.forgettable(SPLIT, offsets.get(SPLIT, 0))
        if self.store.start < safe:
            self.store.forget(safe)


def from_spark(frame: Any) -> SparkSource:
    """An input of a Spark DataFrame, batch or streaming, for `job.read`.

    Its rows are stored in the job's folder and read from there: those of a batch DataFrame once,
    before the first epoch; those of a streaming one as they come, by a query of its own whose
    checkpoint is in the job's folder.
    """
    if not hasattr(frame, "_jdf"):
        connect = hasattr(frame, "toArrow")
        raise InputError(
            "HR-SPARK-001",
            "from_spark cannot read a DataFrame of Spark Connect"
            if connect
            else f"from_spark takes a Spark DataFrame, not {type(frame).__name__}",
            "Make it in a session of this process: SparkSession.builder.master(...)."
            if connect
            else "Write hr.from_spark(spark.table(...)); rows in Python are hr.rows(...).",
            site=call_site(),
        )
    return SparkSource(frame, _schema(frame), streaming=bool(frame.isStreaming))


def _schema(frame: Any) -> pa.Schema:
    """The columns as Arrow has them; InputError names one that cannot be held."""
    fields = []
    for field in frame.schema.fields:
        kind = field.dataType.simpleString()
        quoted = "`" + field.name.replace("`", "``") + "`"
        try:
            fields += schema_of(f"{quoted} {kind}")
        except HeadraceError as cause:
            hint = (
                "Cast it, as in df.withColumn(name, df[name].cast('timestamp')): without a zone "
                "it is no point in time."
                if "timestamp_ntz" in kind
                else "Cast the column in Spark, or leave it out: df.drop(name)."
            )
            raise InputError(
                "HR-SPARK-002",
                f"column {field.name!r} of the DataFrame is of type {kind}, which cannot be held "
                f"({cause.message})",
                hint,
                site=call_site(),
            ) from cause
    if not fields:
        raise InputError("HR-SPARK-002", "the DataFrame has no columns", "Select some.")
    return schema_of(pa.schema(fields))
