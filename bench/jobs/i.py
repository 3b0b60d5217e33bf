"""I: the floor: how long a batch takes that has next to nothing to do, by number of levels.

A level counts the rows of each key in a user's process function and hands them on; with no
level, rows are only filtered. Spark's are `transformWithStateInPandas`, one after another.
Neighbouring levels have different keys, so each needs a shuffle of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.batches import period, with_rows
from bench.data import Shape, dataset
from bench.digest import Digest, rounded
from bench.digest import digest as digest_of
from bench.measure import Failed, Lab, Sample
from bench.rows import AT_MOST, Row, millis

SCHEMA = "sensor string, at timestamp, celsius double"
COUNTED = "sensor string, half string, celsius double, n bigint"
KEYS = ("sensor", "half")
SKIP = 5
ROWS = 50  # a batch


def rows(lab: Lab) -> list[Row]:
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise Failed("I: transformWithStateInPandas needs the package protobuf (6.33.5 or newer)")
    levels = (0, 1) if lab.quick else (0, 1, 2, 4)
    return [_floor(lab, n, 12 if lab.quick else 45) for n in levels]


def _floor(lab: Lab, levels: int, count: int) -> Row:
    case = f"I {levels}"
    contest = lab.pairs(case, "i", params(levels, count), digest, reps=2)

    def time(sample: Sample) -> float:
        return period(with_rows(dict(sample.figures)), SKIP)

    what = f"batch of {ROWS} rows, {levels} level{'' if levels == 1 else 's'}"
    target = 0.75 if levels else None
    ours, theirs = millis(contest.ours(time)), millis(contest.theirs(time))
    return Row(case, what, ours, theirs, contest.ratio(time), AT_MOST, target, equal=True)


def params(levels: int, count: int) -> dict[str, Any]:
    made = dataset(Shape("readings", count, ROWS, keys=20))
    return {"folder": made.folder, "levels": levels}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    """The rows, and the counts of each key; which row of a batch has which is not said."""
    last = KEYS[(params["levels"] + 1) % 2]
    return digest_of(place, ["sensor", "half", rounded("celsius")], [last, "n"])


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr
    from bench.with_headrace import drain

    class Count(hr.KeyedProcess):
        output = COUNTED
        n = hr.value(int, default=0)

        def on_row(self, row: Any, call: Any) -> Any:
            self.n += 1
            return row.sensor, row.half, row.celsius, self.n

    job = hr.Job("i")
    readings = job.read(f"files:{params['folder']}", schema=SCHEMA)
    stream = readings.select("sensor", half="substring(sensor, 8, 6)", celsius="celsius", n="0L")
    for level in range(params["levels"]):
        stream = stream.key_by(KEYS[level % 2]).process(Count(), unbounded=True)
    stream.write(f"files:{place}/out", format="parquet", name="counts")
    return drain(job, place, ROWS, params["cores"])


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from collections.abc import Iterator

    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessor,
        StatefulProcessorHandle,
    )

    from bench.with_spark import drain, session

    class Count(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.n = handle.getValueState("n", "n bigint")

        def handleInputRows(
            self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
        ) -> Iterator[pd.DataFrame]:
            held = self.n.get()
            n = held[0] if held else 0
            for table in rows:
                counted = table.assign(n=range(n + 1, n + 1 + len(table)))
                n += len(table)
                yield counted[["sensor", "half", "celsius", "n"]]
            self.n.update((n,))

        def close(self) -> None:
            pass

    spark = session(params["cores"])
    readings = (
        spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(params["folder"])
    )
    frame = readings.selectExpr("sensor", "substring(sensor, 8, 6) as half", "celsius", "0L as n")
    for level in range(params["levels"]):
        frame = frame.groupBy(KEYS[level % 2]).transformWithStateInPandas(
            Count(), COUNTED, "Append", "None"
        )
    return drain(frame, place, ROWS)
