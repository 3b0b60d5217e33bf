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
from tests.sources import file_cases, lake_cases, sql_cases
from tests.sources.http_cases import http_input
from tests.sources.kafka_cases import kafka_partitions, kafka_plain, kafka_transactions
from tests.sources.listening_cases import listening_input
from tests.sources.reading import snapshot
from tests.sources.spark_cases import spark_input
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


def files(
    put: Callable[[Path], None], spoil: Callable[[Path], object]
) -> Callable[[Path], Iterator[Case]]:
    def make(tmp: Path) -> Iterator[Case]:
        (tmp / "in").mkdir()
        put(tmp / "in")
        job = str(tmp / "job")
        yield Case(
            lambda: open_source(f"files:{tmp}/in", SCHEMA, folder=job, until="end"),
            spoil=lambda: spoil(tmp / "in"),
        )

    return make


def spoil_json(folder: Path) -> None:
    (folder / "z.json").write_text('{"n": "one", "name": "a"}\n')


def spoil_csv(folder: Path) -> None:
    (folder / "z.csv").write_text("name,n\na,one\n")


def spoil_parquet(folder: Path) -> None:
    pq.write_table(pa.table({"n": [0.5], "name": ["a"]}), folder / "z.parquet")


SPOIL = {
    "avro": file_cases.spoil_avro, "compressed json": spoil_json, "compressed csv": spoil_csv,
}  # fmt: skip


def split_files(tmp: Path) -> Iterator[Case]:
    """A folder that is watched, each file a split."""

    def put(name: str, rows: Sequence[dict[str, Any]]) -> None:
        (tmp / "in").mkdir(exist_ok=True)
        (tmp / "in" / f"{name}.json").write_text("".join(json.dumps(r) + "\n" for r in rows))

    def open_one() -> Source:
        options = {"splits": "file"}
        job = str(tmp / "job")
        source = open_source(f"files:{tmp}/in", SCHEMA, options=options, folder=job, name="in")
        source.discover()
        return source

    def add() -> dict[str, Any]:
        put("c", ROWS[:100])
        return {"files 3": ROWS[:100]}

    put("a", ROWS[:1_000])
    put("b", ROWS[1_000:])
    yield Case(open_one, {"files": ROWS[:1_000], "files 2": ROWS[1_000:]}, add_split=add)


def folders(put: Callable[[pa.Table, Path], None]) -> Callable[[Path], Iterator[Case]]:
    """Five folders, whose names hold a column."""

    def make(tmp: Path) -> Iterator[Case]:
        found = [row | {"part": f"é/{row['n'] // 500}"} for row in ROWS]
        for k in range(5):
            folder = tmp / "in" / f"part=é%2F{k}"
            folder.mkdir(parents=True)
            put(pa.Table.from_pylist(ROWS[k * 500 : (k + 1) * 500]), folder)
        named: dict[str, Any] = {"options": {"partition_by": "part"}, "folder": str(tmp / "job")}
        schema = schema_of("n bigint, part string, name string")
        yield Case(lambda: open_source(f"files:{tmp}/in", schema, until="end", **named), found)

    return make


def lines_in(rows: pa.Table, folder: Path) -> None:
    (folder / "a.json").write_text("".join(json.dumps(r) + "\n" for r in rows.to_pylist()))


def log(typed: bool) -> Callable[[Path], Iterator[Case]]:
    def make(tmp: Path) -> Iterator[Case]:
        root = str(tmp / "log")
        topic = EmbeddedLog(root)
        topic.create("t", schema=SCHEMA if typed else None)
        for i in range(0, COUNT, 1_000):
            part: Any = ROWS[i : i + 1_000]
            topic.append("t", part if typed else [json.dumps(r).encode() for r in part])
        schema = None if typed else SCHEMA
        yield Case(
            lambda: open_source("log:t", schema, options={"log": root}, until="end"),
            spoil=None if typed else lambda: topic.append("t", [b'{"n": "one"}']),
        )

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
    sent = [json.dumps(r) + "\n" for r in ROWS]

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
                with connection:
                    connection.sendall("".join(sent).encode())
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

    yield Case(open_one, spoil=lambda: sent.append('{"n": "one"}\n'))
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
    for source in opened:
        source.close()


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


CASES: dict[str, Callable[[Path], Iterator[InputCase]]] = {
    "memory": made(rows(ROWS, SCHEMA)),
    "memory in a file": made(rows(LONG, SCHEMA), LONG),
    "generate": made(generate(10, lambda i: ROWS[i], COUNT, schema=SCHEMA)),
    "json": files(put_json, spoil_json),
    "csv": files(put_csv, spoil_csv),
    "parquet": files(put_parquet, spoil_parquet),
    "a split for each file": split_files,
    **{name: files(partial(put, ROWS), SPOIL[name]) for name, put in file_cases.PUT.items()},
    "folders of json": folders(lines_in),
    "folders of parquet": folders(lambda rows, at: pq.write_table(rows, at / "a.parquet")),
    "typed topic": log(typed=True),
    "byte topic": log(typed=False),
    "socket": lines,
    "script": script,
    "spout": spout,
    "loop": loop,
    "http": partial(http_input, ROWS),
    "sse": partial(sse_input, ROWS),
    "listen": partial(listening_input, ROWS),
    "dataframe": partial(spark_input, ROWS),
    "kafka": kafka_plain,
    "kafka partitions": kafka_partitions,
    "kafka transactions": kafka_transactions,
    **sql_cases.cases(Case, ROWS, SCHEMA),
}
CASES |= lake_cases.cases(Case, SCHEMA, ROWS)


SPOILED = (
    "avro", "byte topic", "compressed csv", "compressed json", "csv", "http", "json", "kafka",
    "listen", "parquet", "socket", "sse",
)  # fmt: skip
WITH_NEW_SPLITS = ("a split for each file", "kafka partitions")  # others have the same for ever


@pytest.fixture(params=sorted(CASES))
def case(request, tmp_path, cuts) -> Iterator[InputCase]:
    if cuts and request.param in ("socket", "sse", "listen", "kafka partitions"):
        pytest.skip("a few bytes at a time take minutes; test_sockets.py, test_sse.py have them")
    yield from CASES[request.param](tmp_path)


class TestEveryInput(InputSuite):
    @pytest.mark.constants
    def test_the_number_of_rows_is_about_right(self, case):
        super().test_the_number_of_rows_is_about_right(case)

    @pytest.mark.parametrize("case", SPOILED, indirect=True)
    def test_bad_data_is_set_aside_with_a_reason_and_the_rows_around_it_are_read(self, case):
        assert case.spoil is not None
        super().test_bad_data_is_set_aside_with_a_reason_and_the_rows_around_it_are_read(case)

    @pytest.mark.parametrize("case", WITH_NEW_SPLITS, indirect=True)
    def test_a_new_split_is_found_while_the_input_is_open_and_at_the_next_start(self, case):
        assert case.add_split is not None
        super().test_a_new_split_is_found_while_the_input_is_open_and_at_the_next_start(case)

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
        "files": {"json", "csv", "parquet", "avro", "a split for each file"},
        "iceberg": {"iceberg", "iceberg by commits"},
        "http": {"http"},
        "sse": {"sse"},
        "mqtt": set(),  # tests/mqtt, with a broker
        "kafka": {"kafka", "kafka partitions", "kafka transactions"},
        "listen": {"listen"},
        "log": {"typed topic"},
        "socket": {"socket"},
        "sql": {"sqlite table", "postgresql growing"},
    }
    assert set(KINDS) == set(kinds)
    assert all(cases <= set(CASES) for cases in kinds.values())
