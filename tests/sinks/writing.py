"""What the tests of sinks share: outputs of every kind, epochs, refusals."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks import file_cases, lake_cases, sql_cases, webhook_cases

from headrace.errors import OutputError
from headrace.log import EmbeddedLog
from headrace.sinks import Sink, collected, open_sink, read_output
from headrace.testing.output_drivers import ALONE as ALONE
from headrace.testing.output_drivers import SCHEMA as SCHEMA
from headrace.testing.output_drivers import OutputCase as Output
from headrace.testing.output_drivers import expected as expected
from headrace.testing.output_drivers import made as made
from headrace.testing.output_drivers import stage as stage
from headrace.testing.output_drivers import table as table


def values(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(c.to_pylist() for c in rows.columns), strict=True))


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
    **sql_cases.cases(Output),
    **file_cases.CASES,
}
EXACT |= lake_cases.exact(Output, SCHEMA)
EVERY = {**EXACT, "console": console, "webhook": webhook_cases.case}


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
