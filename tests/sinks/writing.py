"""What the tests of sinks share: outputs of every kind, epochs, refusals."""

from __future__ import annotations

import io
import json
import os
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from headrace.errors import OutputError
from headrace.log import EmbeddedLog
from headrace.schema import schema_of
from headrace.sinks import EpochWriter, Sink, collected, open_sink, read_output

SCHEMA = schema_of("epoch bigint, n bigint, text string")
ALONE = EpochWriter(1, lambda: None)  # the only driver there is


@dataclass
class Output:
    """An output that can be opened again and again, and read by somebody else."""

    open: Callable[[], Sink]
    rows: Callable[[], list[tuple[Any, ...]]]


def made(sink: Sink) -> Sink:
    """The sink, once a start has checked and opened it."""
    sink.check()
    sink.open()
    return sink


def table(epoch: int, *numbers: int) -> pa.Table:
    rows = [{"epoch": epoch, "n": n, "text": f'é "{n}"'} for n in numbers]
    return pa.Table.from_pylist(rows, SCHEMA)


def values(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(c.to_pylist() for c in rows.columns), strict=True))


def in_flight(references: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """References as a manifest keeps them."""
    kept: list[dict[str, Any]] = json.loads(json.dumps(references))
    return kept


def stage(sink: Sink, epoch: int, tasks: int = 2, attempt: str = "a") -> list[dict[str, Any]]:
    """What the tasks of an epoch stage; rows depend on the epoch only."""
    found = []
    for task in range(tasks):
        work = pickle.loads(cloudpickle.dumps(sink))
        rows = table(epoch, *(100 * epoch + 10 * task + i for i in range(3)))
        found += work.stage(rows, epoch, f"{attempt}/{task}")
    return in_flight(found)


def expected(epochs: int, tasks: int = 2) -> list[tuple[Any, ...]]:
    return sorted(
        (e, n, f'é "{n}"')
        for e in range(epochs)
        for t in range(tasks)
        for n in (100 * e + 10 * t + i for i in range(3))
    )


def files(tmp: Path, **options: Any) -> Output:
    uri, job = f"files:{tmp}/out", str(tmp / "job")
    return Output(
        lambda: open_sink(uri, SCHEMA, options, job, "o"),
        lambda: values(read_output(tmp / "out")),
    )


def collect(tmp: Path) -> Output:
    job = str(tmp / "job")
    return Output(
        lambda: open_sink("collect:", SCHEMA, {}, job, "o"),
        lambda: values(collected(job, "o")),
    )


def log(tmp: Path, typed: bool = True, **options: Any) -> Output:
    root = tmp / "log"
    topic = EmbeddedLog(root)
    if not typed:
        topic.create("t", 3)

    def rows() -> list[tuple[Any, ...]]:
        ends = topic.latest("t")
        tables = [t for p in ends for _, t in topic.read("t", p, 0)]
        if typed:
            return values(pa.concat_tables(tables)) if tables else []
        records = [json.loads(v) for t in tables for v in t["value"].to_pylist()]
        return sorted(tuple(r.values()) for r in records)

    options = {"log": str(root), "partitions": 3, **options}
    return Output(lambda: open_sink("log:t", SCHEMA, options, str(tmp / "job"), "o"), rows)


def console(tmp: Path) -> Output:
    """The terminal is a file here, so that it outlives the sink."""
    paper = tmp / "paper"

    def open_console() -> Sink:
        sink = open_sink("console:", SCHEMA, {"format": "json"}, str(tmp / "job"), "o")
        sink._stream = Paper(paper)  # type: ignore[attr-defined]
        return sink

    def rows() -> list[tuple[Any, ...]]:
        lines = paper.read_text().splitlines() if paper.exists() else []
        return sorted(tuple(json.loads(line).values()) for line in lines)

    return Output(open_console, rows)


class Paper(io.StringIO):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def __reduce__(self) -> Any:
        return (Paper, (self._path,))

    def write(self, text: str) -> int:
        with self._path.open("a") as file:
            return file.write(text)


EXACT: dict[str, Callable[[Path], Output]] = {
    "parquet": files,
    "json lines": lambda tmp: files(tmp, format="json"),
    "collect": collect,
    "typed topic": log,
    "keyed topic": lambda tmp: log(tmp, key="n"),
    "byte topic": lambda tmp: log(tmp, typed=False, key="n"),
}
EVERY = {**EXACT, "console": console}


def refusal(call: Callable[..., object], *args: Any, **kwargs: Any) -> OutputError:
    with pytest.raises(OutputError) as caught:
        call(*args, **kwargs)
    assert caught.value.hint
    return caught.value


def in_child(call: Callable[[], object]) -> tuple[int, str]:
    """How a forked child that makes the call ends, and the error it had."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException as error:
            os.write(writer, str(error).encode())
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text
