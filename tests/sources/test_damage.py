"""What inputs store in the job's folder, damaged in every way: the same rows, or a named error.

Every kind of input that stores anything is driven until it has; then every file that is found
there, whatever it is, is damaged in every way, at every stage of the job. A new kind of file
is damaged without being listed here.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.sources.reading import again, chunks, typed

import headrace as hr
from headrace.clock import ManualClock
from headrace.errors import HeadraceError, InputError
from headrace.schema import schema_of
from headrace.sources import Source, generate, open_source, rows
from headrace.sources import received as lines_received
from headrace.sources.received import LineWriter, Received
from headrace.sources.spark_rows import SparkRows
from headrace.sources.stored_rows import StoredInput
from headrace.testing import drive

SCHEMA = schema_of("n bigint")
COUNT = 40


@dataclass
class Stored:
    """An input with two parts: `more` brings the second. It is opened as by a restarted job."""

    home: Path
    open: Callable[[], Source]
    more: Callable[[], object] = lambda: None
    wait: Callable[[], object] = lambda: None  # until what is there can be read


def line(n: int) -> str:
    return json.dumps({"n": n}) + "\n"


def files(tmp: Path) -> Iterator[Stored]:
    (tmp / "in").mkdir()

    def put(*numbers: int) -> None:
        for k in numbers:
            text = "".join(line(n) for n in range(k * COUNT // 4, (k + 1) * COUNT // 4))
            (tmp / "in" / f"{k}.json").write_text(text)

    def more() -> None:
        (tmp / "in" / "0.json").unlink()  # as the guide allows
        put(2, 3)

    put(0, 1)
    job = str(tmp / "job")
    uri = f"files:{tmp}/in"
    yield Stored(tmp / "job", lambda: open_source(uri, SCHEMA, "json", folder=job), more)


def generated(tmp: Path) -> Iterator[Stored]:
    clock, made = ManualClock(5), generate(COUNT / 2, lambda i: {"n": i}, COUNT, schema=SCHEMA)

    def opened() -> Source:
        return open_source(made, folder=str(tmp / "job"), clock=clock)

    yield Stored(tmp / "job", opened, wait=lambda: clock.advance(10_000))


def in_memory(tmp: Path) -> Iterator[Stored]:
    """A large table: it travels to tasks as a file."""
    made = [
        rows(pa.table({"n": list(range(COUNT // 2))})),
        rows(pa.table({"n": list(range(COUNT))})),
    ]

    def opened() -> Source:
        return open_source(made[0], folder=str(tmp / "job"))

    yield Stored(tmp / "job", opened, made.reverse)


def received(tmp: Path) -> Iterator[Stored]:
    """A server that would send all lines again to whoever connects again."""
    server = socket.create_server(("127.0.0.1", 0))
    sources: list[Source] = []

    def serve() -> None:
        try:
            while True:
                connection, _ = server.accept()
                with connection:
                    for n in range(COUNT):
                        connection.sendall(line(n).encode())
        except OSError:
            return

    thread = threading.Thread(target=serve)
    thread.start()
    uri = f"socket:127.0.0.1:{server.getsockname()[1]}"

    def opened() -> Source:
        for source in sources:
            source.close()
        sources.append(open_source(uri, SCHEMA, "json", folder=str(tmp / "job"), until="end"))
        return Waiting(sources[-1])  # type: ignore[return-value]

    yield Stored(tmp / "job", opened)
    for source in sources:
        source.close()
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


class Waiting:
    """A socket that says how far it is only once all was received."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __reduce__(self) -> Any:
        return again, (self._source,)

    def latest(self, split: str) -> int:
        self._source.latest(split)
        self._source._receiver._thread.join()  # type: ignore[attr-defined]
        return self._source.latest(split)


KINDS = {
    "files": files, "generate": generated, "rows": in_memory, "socket": received,
}  # fmt: skip


def flipped(content: bytes, at: int) -> bytes:
    spoilt = bytearray(content)
    spoilt[at] ^= 1 << at % 8
    return bytes(spoilt)


def damages(content: bytes) -> Iterator[tuple[str, bytes | None]]:
    """What may become of a file: its content afterwards; None if it is gone."""
    yield "deleted", None
    yield "emptied", b""
    size = len(content)
    for at in sorted({0, 1, size // 3, size // 2, 2 * size // 3, size - 2, size - 1}):
        if 0 <= at < size:
            yield f"cut at {at}", content[:at]
            yield f"bit {at % 8} of byte {at} flipped", flipped(content, at)


def stored_files(home: Path) -> dict[Path, bytes]:
    found = home.rglob("*") if home.exists() else ()
    return {p: p.read_bytes() for p in found if p.is_file() and p.name != "receiving"}


def restore(home: Path, contents: dict[Path, bytes]) -> None:
    shutil.rmtree(home, ignore_errors=True)
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def read_on(stored: Stored, at: int, upto: int | None = None) -> tuple[list[int], int]:
    """A start of the job: check, then read on; the rows, and where the job stands then."""
    source = stored.open()
    (split,) = source.splits()
    source.check({split: at} if at else {})
    source.latest(split)
    stored.wait()
    end = source.latest(split)
    if upto is not None:
        end = source.clamp(split, at, end, upto)
    found = [typed(source, c) for c, _ in chunks(source, split, at, end)] if at != end else []
    return [n for table in found for n in table["n"].to_pylist()], end


@pytest.fixture(params=sorted(KINDS))
def stored(request, tmp_path, monkeypatch) -> Iterator[Stored]:
    monkeypatch.setattr("headrace.sources.memory.INLINE_BYTES", 1)
    monkeypatch.setattr(lines_received, "SEGMENT", 8_000)
    yield from KINDS[request.param](tmp_path)


@pytest.mark.parametrize("read", [0, COUNT // 3, COUNT])
def test_whatever_becomes_of_a_stored_file_rows_are_the_same_or_it_is_an_error(stored, read):
    first, at = read_on(stored, 0, read) if read else ([], 0)
    if not read:
        read_on(stored, 0)  # a job that was killed before its first commit
    older = stored_files(stored.home)
    assert older
    if read:
        stored.more()
    wanted = read_on(stored, at)[0]
    assert wanted == sorted(wanted) and set(wanted).isdisjoint(first)
    for path, content in older.items():
        for how, spoilt in damages(content):
            restore(stored.home, older)
            path.unlink() if spoilt is None else path.write_bytes(spoilt)
            assert same_or_named(stored, at, wanted), (path.name, how)


def test_a_stored_file_that_is_replaced_by_an_older_version_is_noticed_or_does_not_matter(stored):
    first, at = read_on(stored, 0, COUNT // 3)
    older = stored_files(stored.home)
    stored.more()
    rest, end = read_on(stored, at)
    newest = stored_files(stored.home)
    assert sorted(first + rest) == list(range(COUNT))

    for path, content in older.items():
        for stands, wanted in ((at, rest), (end, [])):
            restore(stored.home, {**newest, path: content})
            assert same_or_named(stored, stands, wanted), path.name


def same_or_named(stored: Stored, at: int, wanted: list[int]) -> bool:
    try:
        return sorted(read_on(stored, at)[0]) == wanted
    except HeadraceError as error:
        return bool(re.fullmatch(r"HR-(INPUT|STATE)-\d{3}", error.code) and error.hint)


def lines_of(home: Path, *numbers: int) -> None:
    writer = LineWriter(home)
    for n in numbers:
        writer.add(pa.array([line(n).encode()]))
    writer.close()


def test_the_lines_of_another_input_in_the_place_of_those_received_are_refused(tmp_path):
    lines_of(tmp_path / "one", 1)
    lines_of(tmp_path / "other", 2, 3)
    (last,) = (tmp_path / "one").rglob("*.log")
    whole = last.read_bytes()
    last.write_bytes(next((tmp_path / "other").rglob("*.log")).read_bytes())
    spoilt = stored_files(tmp_path)

    with pytest.raises(InputError, match="HR-INPUT-009"):
        LineWriter(tmp_path / "one")

    assert stored_files(tmp_path) == spoilt
    last.write_bytes(whole)
    LineWriter(tmp_path / "one").close()


def test_lines_that_were_put_behind_the_end_of_an_input_that_has_ended_are_not_read(tmp_path):
    writer = LineWriter(tmp_path)
    writer.add(pa.array([b"one"]))
    writer.finish()
    writer.close()
    last = max(tmp_path.rglob("*.log"))
    last.write_bytes(last.read_bytes() + b"two\n")

    assert Received(tmp_path).ended and Received(tmp_path).end == 1
    LineWriter(tmp_path).close()
    assert Received(tmp_path).ended and Received(tmp_path).end == 1


def test_a_folder_in_the_place_of_the_last_segment_is_an_error_with_its_name(tmp_path):
    lines_of(tmp_path, 1)
    (last,) = tmp_path.rglob("*.log")
    last.unlink()
    last.mkdir()
    with pytest.raises(InputError, match=last.name):
        Received(tmp_path).check()


def test_what_is_in_the_place_of_a_lock_is_named(tmp_path):
    """Of whoever stores rows: databases, spouts, frames of Spark."""
    rows, frames = StoredInput(tmp_path / "rows"), SparkRows(tmp_path / "frames")
    for home, store in ((rows.home, rows.lock), (frames.folder, frames.lock)):
        (home / "storing").mkdir(parents=True)
        error = _refused(store)
        assert error.code == "HR-INPUT-003" and str(home / "storing") in error.message
    topology = hr.Topology("locked")
    topology.spout("numbers", _Nothing())
    topology.bolt("out", "collect:").shuffle("numbers")
    (tmp_path / "job" / "inputs" / "numbers" / "storing").mkdir(parents=True)
    error = _refused(lambda: drive(topology, tmp_path / "job"))
    assert error.code == "HR-INPUT-003" and "numbers" in error.message


class _Nothing(hr.Spout):
    output = "n bigint"
    bounded = True

    def next_tuple(self, collector: Any) -> None:
        collector.end()


def _refused(work: Callable[[], object]) -> InputError:
    with pytest.raises(InputError) as caught:
        work()
    return caught.value
