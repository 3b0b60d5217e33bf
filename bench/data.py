"""Input files for the benchmarks: made once, the same bytes on every machine.

A dataset is a folder of files named in the order in which they are to be read, under
`.headrace/bench/data`; its `dataset.json` is written last, so half a dataset is made again.
Event time advances with the row number and each row lags behind by up to `disorder`, so no
row is ever late under a watermark of that delay.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".headrace" / "bench"
BASE = 1_700_000_000_000  # ms: event time of the first row
DISORDER = 2_000  # ms
FIRST_ID = 100_000_000  # ids of one width, so that lines are of about one length

Maker = Callable[["Shape", int, Path], int]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a dataset holds: `files` of `rows` each, `rate` rows per second of event time.

    With `first`, the files are those from that number on, as if those before had been read.
    """

    kind: str
    files: int
    rows: int
    keys: int = 10_000
    rate: int = 12_500
    first: int = 0

    @property
    def name(self) -> str:
        since = f"-from{self.first}" if self.first else ""
        return f"{self.kind}-{self.files}x{self.rows}-k{self.keys}-r{self.rate}{since}"


@dataclass(frozen=True, slots=True)
class Dataset:
    folder: str
    rows: int
    newest: int  # ms: the newest event time


def dataset(shape: Shape) -> Dataset:
    """The dataset of this shape, from the cache or made now."""
    folder = CACHE / "data" / shape.name
    about = folder / "dataset.json"
    if not about.exists():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "in").mkdir(parents=True)
        numbers = range(shape.first, shape.first + shape.files)
        newest = max(_make(shape, number, folder / "in") for number in numbers)
        made = Dataset(str(folder / "in"), shape.files * shape.rows, newest)
        about.write_text(json.dumps(asdict(made)))
    return Dataset(**json.loads(about.read_text()))


def _make(shape: Shape, number: int, folder: Path) -> int:
    """One file; the newest event time in it. Spark reads by time of change: keep the order."""
    suffix = "json" if shape.kind in ("json", "events") else "parquet"
    path = folder / f"part-{number:05d}.{suffix}"
    newest = _MAKERS[shape.kind](shape, number, path)
    os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
    return newest


def _times(shape: Shape, number: int, rng: np.random.Generator) -> np.ndarray:
    rows = np.arange(number * shape.rows, (number + 1) * shape.rows, dtype=np.int64)
    return BASE + rows * 1_000 // shape.rate - rng.integers(0, DISORDER, shape.rows)


def _values(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Temperatures in eighths of a degree: their sums are exact, in whatever order."""
    return rng.integers(-80, 800, shape.rows) / 8


def _names(shape: Shape) -> pa.Array:
    return pa.array([f"sensor-{i:07d}" for i in range(shape.keys)])


def _readings(shape: Shape, number: int, path: Path) -> int:
    """Sensor, time and temperature, every sensor in every file."""
    rng = np.random.default_rng([7, number])
    keys = rng.integers(0, shape.keys, shape.rows)
    return _write(shape, path, keys, _times(shape, number, rng), _values(shape, rng))


def _others(shape: Shape, number: int, path: Path) -> int:
    """Like readings, but others: the second stream of a join."""
    rng = np.random.default_rng([13, number])
    keys = rng.integers(0, shape.keys, shape.rows)
    return _write(shape, path, keys, _times(shape, number, rng), _values(shape, rng))


def _repeats(shape: Shape, number: int, path: Path) -> int:
    """Every row a sensor of its own, but one in ten that of one of the 100,000 rows before."""
    rng = np.random.default_rng([17, number])
    rows = np.arange(number * shape.rows, (number + 1) * shape.rows, dtype=np.int64)
    back = np.minimum(rng.integers(1, 100_000, shape.rows), rows)
    keys = np.where(rng.random(shape.rows) < 0.1, rows - back, rows)
    return _write(shape, path, keys, _times(shape, number, rng), _values(shape, rng))


def _by_key(shape: Shape, number: int, path: Path) -> int:
    """The same in order of time; of two neighbouring files, each has half of the sensors."""
    rng = np.random.default_rng([11, number])
    keys = rng.integers(0, shape.keys // 2, shape.rows) * 2 + number % 2
    times = np.sort(_times(shape, number // 2, rng))
    return _write(shape, path, keys, times, _values(shape, rng))


def _visits(shape: Shape, number: int, path: Path) -> int:
    """Sensors that come and go: each is there for 20.5 s of every 30 s, at first more often.

    So pauses are of 9.5 s and more; now and then one is of just 10 s.
    """
    rng = np.random.default_rng([23, number])
    times = _times(shape, number, rng)
    since = (20_500 * rng.random(shape.rows) ** 3).astype(np.int64)
    keys = (times - since) % 30_000 * shape.keys // 30_000
    return _write(shape, path, keys, times, _values(shape, rng))


def _calls(shape: Shape, number: int, path: Path) -> int:
    """Calls of pages, each by one of very many users, with a latency of all digits."""
    rng = np.random.default_rng([29, number])
    times = _times(shape, number, rng)
    names = pa.array([f"page-{i:04d}" for i in range(shape.keys)])
    columns = {
        "page": names.take(pa.array(rng.integers(0, shape.keys, shape.rows))),
        "at": pa.array(times * 1_000).cast(pa.timestamp("us", tz="UTC")),
        "user": rng.integers(0, 2**40, shape.rows),
        "ms": rng.lognormal(3.0, 1.0, shape.rows),
    }
    pq.write_table(pa.table(columns), path)
    return int(times.max())


def _once(shape: Shape, number: int, path: Path) -> int:
    """Every key once in all files together, in an order without order; all in one second."""
    order = np.random.default_rng(13).permutation(shape.keys)
    keys = order[number * shape.rows : (number + 1) * shape.rows]
    rng = np.random.default_rng([13, number])
    return _write(shape, path, keys, np.full(len(keys), BASE), _values(shape, rng))


def _touch(shape: Shape, number: int, path: Path) -> int:
    """Files of different keys each, drawn from all keys; all in one second."""
    rng = np.random.default_rng([17, number])
    keys = rng.choice(shape.keys, shape.rows, replace=False)
    return _write(shape, path, keys, np.full(shape.rows, BASE + 1), _values(shape, rng))


def _write(
    shape: Shape, path: Path, keys: np.ndarray, times: np.ndarray, values: np.ndarray
) -> int:
    stamps = pa.array(times * 1_000).cast(pa.timestamp("us", tz="UTC"))
    sensors = _names(shape).take(pa.array(keys))
    pq.write_table(pa.table({"sensor": sensors, "at": stamps, "celsius": values}), path)
    return int(times.max())


def _json(shape: Shape, number: int, path: Path) -> int:
    """Lines of about 100 bytes."""
    rng = np.random.default_rng([19, number])
    times = _times(shape, number, rng)
    columns = zip(
        range(FIRST_ID + number * shape.rows, FIRST_ID + (number + 1) * shape.rows),
        rng.integers(0, shape.keys, shape.rows).tolist(),
        _values(shape, rng).tolist(),
        rng.integers(0, 2, shape.rows).tolist(),
        times.tolist(),
        strict=True,
    )
    with path.open("w") as file:
        file.writelines(
            f'{{"id":{i},"area":"a{k % 100:02d}","sensor":"sensor-{k:07d}","celsius":{v},'
            f'"smoke":{"true" if s else "false"},"at":{t}}}\n'
            for i, k, v, s, t in columns
        )
    return int(times.max())


def _events(shape: Shape, number: int, path: Path) -> int:
    """Lines of about 100 bytes with a time as text."""
    rng = np.random.default_rng([31, number])
    times = _times(shape, number, rng)
    columns = zip(
        range(FIRST_ID + number * shape.rows, FIRST_ID + (number + 1) * shape.rows),
        rng.integers(0, shape.keys, shape.rows).tolist(),
        _values(shape, rng).tolist(),
        np.datetime_as_string(times.astype("datetime64[ms]")).tolist(),
        strict=True,
    )
    with path.open("w") as file:
        file.writelines(
            f'{{"id":{i},"area":"a{k % 100:02d}","sensor":"sensor-{k:07d}","celsius":{v},'
            f'"at":"{t}+00:00"}}\n'
            for i, k, v, t in columns
        )
    return int(times.max())


_MAKERS: dict[str, Maker] = {
    "readings": _readings,
    "others": _others,
    "repeats": _repeats,
    "by-key": _by_key,
    "visits": _visits,
    "calls": _calls,
    "once": _once,
    "touch": _touch,
    "json": _json,
    "events": _events,
}
