"""What every source promises, whatever it reads."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources import lake_cases, sql_cases
from tests.sources.http_cases import http_input
from tests.sources.kafka_cases import kafka_plain, kafka_transactions
from tests.sources.reading import snapshot
from tests.sources.sse_cases import sse_input

from headrace.clock import ManualClock
from headrace.log import EmbeddedLog
from headrace.schema import schema_of
from headrace.sources import Source, generate, open_source, rows
from headrace.sources.loop import LoopSource
from headrace.sources.open import KINDS
from headrace.sources.spouts import Spout, SpoutSource
from headrace.state.loops import LoopFolder
from headrace.state.manifest import FIRST
from headrace.testing import InputCase, InputSuite
from headrace.testing.script import FakeSource, Page, Script

SCHEMA = schema_of("n bigint, name string")
COUNT = 2_500
ROWS = [{"n": i, "name": f"row {i} é"} for i in range(COUNT)]
LONG = [row | {"name": row["name"] * 80} for row in ROWS]


@dataclass
class Case(InputCase):
    """An input that holds the rows above."""

    rows: Sequence[dict[str, Any]] = tuple(ROWS)


def put_json(folder: Path) -> None:
    for k in range(5):
        lines = [json.dumps(r) + "\n" for r in ROWS[k * 500 : (k + 1) * 500]]
        (folder / f"{k}.json").write_text("".join(lines))


def put_csv(folder: Path) -> None:
    (folder / "a.csv").write_text("name,n\r\n" + "".join(f"{r['name']},{r['n']}\r\n" for r in ROWS))


def put_parquet(folder: Path) -> None:
    table = pa.Table.from_pylist(ROWS).append_column("more", pa.array([0.5] * COUNT))
    pq.write_table(table.slice(0, 2_000), folder / "a.parquet", row_group_size=300)
    pq.write_table(table.slice(2_000), folder / "b.parquet")


def files(put: Callable[[Path], None]) -> Callable[[Path], Iterator[Case]]:
    def make(tmp: Path) -> Iterator[Case]:
        (tmp / "in").mkdir()
        put(tmp / "in")
        job = str(tmp / "job")
        yield Case(lambda: open_source(f"files:{tmp}/in", SCHEMA, folder=job, until="end"))

    return make


def log(typed: bool) -> Callable[[Path], Iterator[Case]]:
    def make(tmp: Path) -> Iterator[Case]:
        root = str(tmp / "log")
        topic = EmbeddedLog(root)
        topic.create("t", schema=SCHEMA if typed else None)
        for i in range(0, COUNT, 1_000):
            part: Any = ROWS[i : i + 1_000]
            topic.append("t", part if typed else [json.dumps(r).encode() for r in part])
        schema = None if typed else SCHEMA
        yield Case(lambda: open_source("log:t", schema, options={"log": root}, until="end"))

    return make


def made(
    source: Source, rows: Sequence[dict[str, Any]] = tuple(ROWS)
) -> Callable[[Path], Iterator[Case]]:
    def make(tmp: Path) -> Iterator[Case]:
        clock = ManualClock(5)
        opened = [open_source(source, folder=str(tmp / "job"), name="in", clock=clock)]
        opened[0].latest(opened[0].splits()[0])
        clock.advance(10**9)
        again = partial(open_source, source, folder=str(tmp / "job"), name="in", clock=clock)
        yield Case(again, rows)

    return make


def lines(tmp: Path) -> Iterator[Case]:
    """A server that sends all lines to the first who does more than look in."""
    server = socket.create_server(("127.0.0.1", 0))
    text = "".join(json.dumps(r) + "\n" for r in ROWS).encode()

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
                with connection:
                    connection.sendall(text)
            except OSError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    uri, job = f"socket:127.0.0.1:{server.getsockname()[1]}", str(tmp / "job")
    opened: list[Source] = []

    def open_one() -> Source:
        for source in opened:
            source.close()
        opened.append(open_source(uri, SCHEMA, folder=job, name="in", until="end"))
        source = opened[-1]
        source.latest("lines")
        receiver = source._receiver  # type: ignore[attr-defined]
        receiver._thread.join()  # it ends with the connection: all is stored
        return source

    yield Case(open_one)
    for source in opened:
        source.close()
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


class Numbers(Spout):
    output = SCHEMA
    replays = bounded = True

    def open(self, context: Any) -> None:
        self.at = 0 if context.last is None else context.last + 1

    def next_tuple(self, collector: Any) -> None:
        if self.at == COUNT:
            collector.end()
        else:
            collector.emit(ROWS[self.at], id=self.at)
            self.at += 1


def spout(tmp: Path) -> Iterator[Case]:
    opened: list[Source] = []

    def open_one() -> Source:
        for source in opened:
            source.close()
        source = open_source(SpoutSource(Numbers()), folder=str(tmp / "job"), name="in")
        opened.append(source)
        source.discover()
        while not source.ended("0", source.latest("0")):
            source.discover()
        return source

    yield Case(open_one)
    opened[-1].close()


def script(tmp: Path) -> Iterator[Case]:
    """What a test says, with marks among the rows."""
    said, page = Script(tmp / "script"), Page(ended=("in",))
    for i in range(0, COUNT, 500):
        page = said.rows(page, "in", "0", pa.Table.from_pylist(ROWS[i : i + 500], SCHEMA))
        page = page.marked("in", "0", watermark=i).marked("in", "0", idle=True)
    said.put(page)
    yield Case(lambda: FakeSource(Script(tmp / "script"), "in", SCHEMA))


def loop(tmp: Path) -> Iterator[Case]:
    """Rows that the job itself has sent back, in several epochs."""
    sent = LoopFolder(tmp / "job", "again")
    for epoch, i in enumerate(range(0, COUNT, 1_500)):
        sent.add(3 * epoch + 2, FIRST, pa.Table.from_pylist(ROWS[i : i + 1_500], SCHEMA))
    source = LoopSource("again", SCHEMA)
    yield Case(lambda: open_source(source, folder=str(tmp / "job"), name="in"))


def elsewhere(make: Callable[[Path], Iterator[Any]]) -> Callable[[Path], Iterator[Case]]:
    """A case that another file describes: how its source is opened."""
    return lambda tmp: map(Case, make(tmp))


CASES: dict[str, Callable[[Path], Iterator[InputCase]]] = {
    "memory": made(rows(ROWS, SCHEMA)),
    "memory in a file": made(rows(LONG, SCHEMA), LONG),
    "generate": made(generate(10, lambda i: ROWS[i], COUNT, schema=SCHEMA)),
    "json": files(put_json),
    "csv": files(put_csv),
    "parquet": files(put_parquet),
    "typed topic": log(typed=True),
    "byte topic": log(typed=False),
    "socket": lines,
    "script": script,
    "spout": spout,
    "loop": loop,
    "http": partial(http_input, ROWS),
    "sse": partial(sse_input, ROWS),
    "kafka": elsewhere(kafka_plain),
    "kafka transactions": elsewhere(kafka_transactions),
    **sql_cases.cases(Case, ROWS, SCHEMA),
}
CASES |= lake_cases.cases(Case, SCHEMA, ROWS)


@pytest.fixture(params=sorted(CASES))
def case(request, tmp_path, cuts) -> Iterator[InputCase]:
    if cuts and request.param in ("socket", "sse"):
        pytest.skip("a few bytes at a time take minutes; test_sockets.py, test_sse.py have them")
    yield from CASES[request.param](tmp_path)


class TestEveryInput(InputSuite):
    @pytest.mark.constants
    def test_the_number_of_rows_is_about_right(self, case):
        super().test_the_number_of_rows_is_about_right(case)

    def test_a_position_that_the_input_has_not_reached_is_refused_at_the_start(self, case, request):
        if request.node.callspec.params["case"] == "script":
            pytest.skip("a script is what the test says")
        super().test_a_position_that_the_input_has_not_reached_is_refused_at_the_start(case)


def test_to_open_and_check_a_new_input_makes_nothing(tmp_path):
    (tmp_path / "in").mkdir()
    put_json(tmp_path / "in")
    EmbeddedLog(tmp_path / "log").create("t", schema=SCHEMA)
    before, job = snapshot(tmp_path), str(tmp_path / "job")
    inputs: list[Any] = [
        f"files:{tmp_path}/in", "log:t", "socket:localhost:9", rows(ROWS, SCHEMA),
        generate(5, lambda i: ROWS[i], schema=SCHEMA), SpoutSource(Numbers()),
    ]  # fmt: skip

    for uri in inputs:
        options = {"log": str(tmp_path / "log")} if uri == "log:t" else {}
        source = open_source(uri, SCHEMA, options=options, folder=job, name="in")
        source.check()
        source.identity()

    assert snapshot(tmp_path) == before


def test_every_kind_of_input_passes_this_suite() -> None:
    kinds = {
        "delta": {"delta", "delta by commits"},
        "files": {"json", "csv", "parquet"},
        "iceberg": {"iceberg", "iceberg by commits"},
        "http": {"http"},
        "sse": {"sse"},
        "mqtt": set(),  # tests/mqtt, with a broker
        "kafka": {"kafka", "kafka transactions"},
        "log": {"typed topic"},
        "socket": {"socket"},
        "sql": {"sqlite table", "postgresql growing"},
    }
    assert set(KINDS) == set(kinds)
    assert all(cases <= set(CASES) for cases in kinds.values())
