"""Outputs of jobs as Spark DataFrames: `hr.to_spark(path)`, and `run.to_spark(output)`.

A Python data source of Spark reads the files that the output's records name, so a DataFrame has
whole epochs and each row once, while the job writes on. A streaming DataFrame has epochs as its
offsets: each is read once. Files are checked as by `hr.read_output`; nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.engine.failure import marked
from headrace.errors import OutputError
from headrace.sinks.open import OutputPart, output_parts, output_schema, read_part

FORMAT = "headrace"
_EPOCH = "epoch"
_NONE = -1  # the offset before all epochs


@dataclass
class _FilePartition(InputPartition):
    part: OutputPart


class OutputFrames(DataSource):
    """The output of a job at `path`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(output_schema(self._path))

    def reader(self, schema: Any) -> DataSourceReader:
        return CommittedRows(self._path, output_schema(self._path))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return CommittedEpochs(self._path, output_schema(self._path))

    @property
    def _path(self) -> str:
        return str(self.options["path"])


@dataclass
class CommittedRows(DataSourceReader):
    path: str
    columns: pa.Schema

    def partitions(self) -> list[InputPartition]:
        return [_FilePartition(part) for part in output_parts(self.path)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self.path, self.columns, partition)


@dataclass
class CommittedEpochs(DataSourceStreamReader):
    path: str
    columns: pa.Schema

    def initialOffset(self) -> dict[str, int]:
        return {_EPOCH: _NONE}

    def latestOffset(self, *limits: Any) -> dict[str, int]:
        with marked():
            return {_EPOCH: max((p.file.last for p in self._parts()), default=_NONE)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        with marked():
            found = self._parts()
        return [_FilePartition(p) for p in found if start[_EPOCH] < p.file.epoch <= end[_EPOCH]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self.path, self.columns, partition)

    def _parts(self) -> list[OutputPart]:
        parts = output_parts(self.path)
        if any(p.file.level for p in parts):
            raise OutputError(
                "HR-SPARK-007",
                f"files of the output at {self.path!r} are merged: which rows are of which epoch "
                "is no longer known",
                "Write the output with merge=False; or read all of it: to_spark(path).",
            )
        if len({p.chain for p in parts}) > 1:
            raise OutputError(
                "HR-SPARK-007",
                f"{self.path!r} holds rows of several jobs, each with epochs of its own",
                "Let each job write to a folder of its own; or read all of it: to_spark(path).",
            )
        return parts


def _rows(path: str, columns: pa.Schema, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, _FilePartition):  # Spark's own, where there are no files
        return
    with marked():
        table = read_part(path, partition.part, columns)
    yield from table.to_batches()


def to_spark(path: str | Path, *, streaming: bool = False) -> DataFrame:
    """The files output at `path` as a Spark DataFrame: the epochs that are committed now.

    With streaming=True a streaming DataFrame: these epochs and all that follow, each once; the
    output must be written with merge=False.
    """
    from headrace.sinks.on_driver import session

    place = str(Path(path).absolute())
    output_schema(place)  # an error if it is none
    spark: SparkSession = session()
    spark.dataSource.register(OutputFrames)
    reader = spark.readStream if streaming else spark.read
    frame: DataFrame = reader.format(FORMAT).load(place)
    return frame
