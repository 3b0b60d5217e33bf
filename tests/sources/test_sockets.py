"""Lines from a socket: stored before they are offered, so that a crash replays them."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.reading import read_split, refusal

from headrace.errors import InputError, StateError
from headrace.log import writer as log_writer
from headrace.schema import schema_of
from headrace.sources import open_source, received
from headrace.sources.received import LineWriter, Received


class Server:
    """Sends what a test says to whoever connects."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(20)
        self.port = self._listening.getsockname()[1]
        self._connection: socket.socket | None = None

    def accept(self) -> None:
        self.hang_up()
        self._connection, _ = self._listening.accept()

    def send(self, data: bytes) -> None:
        assert self._connection is not None
        self._connection.sendall(data)

    def hang_up(self, *, reset: bool = False) -> None:
        if self._connection is not None:
            if reset:
                linger = struct.pack("ii", 1, 0)
                self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self.hang_up()
        self._listening.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def opened(server, tmp_path):
    """Opens the input of the job, as often as it is started."""
    sources = []

    def open_one(schema=None, **more):
        uri = f"socket:127.0.0.1:{server.port}"
        sources.append(open_source(uri, schema, folder=str(tmp_path), name="in", **more))
        return sources[-1]

    yield open_one
    for source in sources:
        source.close()


def wait_for(source, end: int) -> None:
    """Until the lines up to `end` are durable; the receiver says so by its own progress."""
    step = threading.Event()
    for _ in range(2_000):
        if source.latest("lines") >= end:
            return
        step.wait(0.01)
    raise AssertionError(f"only {source.latest('lines')} of {end} lines came")


def texts(source, start=0):
    return [r["value"] for r in read_split(source, "lines", start)[0]]


def decoded(source):
    reasons: list[str] = []
    rows, _ = read_split(source, "lines", reasons=reasons)
    return rows, reasons


def test_lines_are_offered_when_they_are_durable(server, opened, tmp_path):
    source = opened()
    assert source.latest("lines") == 0
    server.accept()
    server.send(b"one\ntwo\nthr")
    wait_for(source, 2)

    assert texts(source) == ["one", "two"]
    assert Received(tmp_path / "inputs" / "in").end == 2
    server.send(b"ee\n")
    wait_for(source, 3)
    assert texts(source, 2) == ["three"]


def test_a_restart_replays_what_was_stored_and_receives_on(server, opened):
    first = opened()
    first.latest("lines")
    server.accept()
    server.send(b"one\n")
    wait_for(first, 1)
    first.close()
    server.hang_up()

    second = opened()
    assert second.latest("lines") == 1
    assert texts(second) == ["one"]
    server.accept()
    server.send(b"two\n")
    wait_for(second, 2)
    assert texts(second) == ["one", "two"]


def test_a_lost_connection_is_made_again(server, opened):
    source = opened()
    source.latest("lines")
    server.accept()
    server.send(b"one\nhal")
    server.hang_up()
    server.accept()
    server.send(b"two\n")
    wait_for(source, 3)

    rows, reasons = decoded(source)
    assert [r["value"] for r in rows] == ["one", "two"] and len(reasons) == 1
    assert not source.bounded and not source.ended("lines", 3)


def test_only_one_process_receives_and_the_next_waits_its_turn(server, opened):
    first, second = opened(), opened()
    first.latest("lines")
    server.accept()
    server.send(b"one\n")
    wait_for(first, 1)

    assert second.latest("lines") == 1  # what the other has stored so far
    first.close()
    server.accept()
    server.send(b"two\n")
    wait_for(second, 2)
    assert texts(second) == ["one", "two"]


def test_until_the_end_means_until_the_server_hangs_up(server, opened):
    source = opened(schema_of("a bigint"), until="end")
    source.latest("lines")
    server.accept()
    server.send(b'{"a": 1}\n')
    wait_for(source, 1)
    assert not source.ended("lines", 1)
    server.hang_up()
    source._receiver._thread.join(20)

    assert source.ended("lines", 1) and read_split(source, "lines")[0] == [{"a": 1}]
    source.close()
    again = opened(schema_of("a bigint"), until="end")
    assert again.latest("lines") == 1 and again.ended("lines", 1)


@pytest.mark.parametrize("how", ["closed", "reset", "stopped"])
@pytest.mark.parametrize("until", [None, "end"])
def test_half_a_line_is_never_taken_for_a_line(server, opened, how, until):
    source = opened(schema_of("a bigint, b bigint"), format="csv", until=until)
    source.latest("lines")
    server.accept()
    server.send(b"1,100\n2,20")  # of 2,2000
    wait_for(source, 1)
    if how == "stopped":
        source.close()
        server.hang_up()
        source = opened(schema_of("a bigint, b bigint"), format="csv", until=until)
    else:
        server.hang_up(reset=how == "reset")
    wait_for(source, 2)

    rows, reasons = decoded(source)
    whole = how == "closed" and until == "end"  # the end of the input ends its last line
    assert rows == [{"a": 1, "b": 100}, {"a": 2, "b": 20}][: 1 + whole]
    assert len(reasons) == 1 - whole
    assert whole or "in the middle of this line" in reasons[0]


def test_what_is_committed_is_forgotten_by_segments(server, opened, monkeypatch):
    monkeypatch.setattr(received, "SEGMENT", 512)
    source = opened()
    source.latest("lines")
    server.accept()
    for i in range(6):
        server.send(b"line%d\n" % i)
        wait_for(source, i + 1)

    source.commit({"lines": 5})

    assert source.start("lines") == 4
    assert texts(source, 4) == ["line4", "line5"]
    assert refusal(source.cut, "lines", 1, 5, 1).code == "HR-INPUT-011"


def test_a_full_disk_stops_the_job_and_loses_no_stored_line(server, opened, monkeypatch):
    source = opened()
    source.latest("lines")
    server.accept()
    server.send(b"one\n")
    wait_for(source, 1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwritev", full)
    server.send(b"two\n")
    source._receiver._thread.join(20)

    assert refusal(source.latest, "lines").code == "HR-INPUT-003"
    assert source.received.end == 1


def test_a_server_that_serves_once_loses_nothing_to_a_check(server, opened):
    source = opened(until="end")
    source.check()
    source.latest("lines")
    server.accept()
    server.send(b"one\n")
    server.close()
    source._receiver._thread.join(20)

    assert texts(source) == ["one"] and source.ended("lines", 1)


def test_nobody_listening_is_refused(server, opened):
    server.close()
    source = opened()

    error = refusal(wait_for, source, 1)

    assert error.code == "HR-INPUT-015" and str(server.port) in error.message


@pytest.mark.parametrize(
    "rest", ["", "host", "host:", ":80", "host:http", "host:0", "host:99999", "a:b:-1"]
)
def test_what_is_no_address_is_refused(tmp_path, rest):
    assert refusal(open_source, f"socket:{rest}", folder=str(tmp_path)).code == "HR-INPUT-001"


def test_a_socket_needs_a_folder_and_a_format_of_lines(tmp_path):
    homeless = open_source("socket:h:1")
    assert homeless.schema == schema_of("value string")
    assert refusal(homeless.latest, "lines").code == "HR-INPUT-013"
    error = refusal(open_source, "socket:h:1", None, "parquet", folder=str(tmp_path))
    assert error.code == "HR-INPUT-004"


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=8),
    st.binary(max_size=9),
    st.integers(400, 2_000),
)  # fmt: skip
@settings(max_examples=20, deadline=None)
def test_what_was_received_is_there_whatever_was_torn(tmp_path_factory, adds, torn, size):
    home = tmp_path_factory.mktemp("home")
    model = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(received, "SEGMENT", size)
        for lines in adds:
            writer = LineWriter(home)
            writer.add(pa.array([b"%d" % n for n in lines]))
            writer.close()
            model += lines
            assert writer.end == len(model)
            last = max((home / "lines").glob("*.log"))
            with last.open("ab") as file:
                file.write(torn)
    LineWriter(home).close()

    chunks = list(Received(home).read(0, len(model), blank=True)) if model else []
    assert [int(v) for table, _ in chunks for v in table.column(0).to_pylist()] == model
    assert [n for _, offsets in chunks for n in offsets] == list(range(len(model)))


def test_an_input_that_has_ended_may_go_on_and_has_ended_still(tmp_path):
    first = LineWriter(tmp_path)
    first.add(pa.array([b"one"]))
    first.finish()
    first.finish()
    first.close()
    assert Received(tmp_path).ended and Received(tmp_path).end == 1

    second = LineWriter(tmp_path)
    second.add(pa.array([b"two", b""]))
    second.close()

    stored = Received(tmp_path)
    assert stored.ended
    assert stored_lines(stored, 0, blank=True) == {0: b"one", 2: b"two", 3: b""}
    assert stored_lines(stored, 0, blank=False) == {0: b"one", 2: b"two"}


def stored_lines(there: Received, start: int, *, blank: bool) -> dict[int, bytes]:
    """By offset: all lines from `start` on."""
    chunks = there.read(start, there.end, blank=blank)
    pairs = [zip(o.tolist(), t.column(0).to_pylist(), strict=True) for t, o in chunks]
    return {offset: line for part in pairs for offset, line in part}


def test_lines_of_an_earlier_version_are_refused_by_name(opened, tmp_path):
    old = tmp_path / "inputs" / "in" / "spool"
    old.mkdir(parents=True)
    (old / f"{0:020d}.lines").write_bytes(b"one\n")

    with pytest.raises(StateError, match=str(old)) as refused:
        opened().check()

    assert refused.value.code == "HR-STATE-002"


def test_a_restart_after_a_segment_that_got_no_line_goes_on(tmp_path, monkeypatch):
    """The disk fills up after the roll; all that is there is read, committed and forgotten."""
    monkeypatch.setattr(received, "SEGMENT", 64 << 10)
    home = tmp_path / "inputs" / "in"
    writer = received.LineWriter(home)
    writer.add(pa.array([os.urandom(1_000) for _ in range(70)], pa.binary()))
    with monkeypatch.context() as full:
        full.setattr(log_writer, "encode", _no_space)
        with pytest.raises(InputError, match="No space left"):
            writer.add(pa.array([b"y"]))
    writer.close()
    received.Received(home).forget(70)

    there = received.Received(home)
    assert (there.start, there.end, there.ended) == (70, 70, False)
    again = received.LineWriter(home)
    again.add(pa.array([b"y"]))
    again.close()
    assert stored_lines(there, 70, blank=True) == {70: b"y"}


def _no_space(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_lines_of_an_earlier_version_are_refused_whoever_asks(opened, tmp_path):
    old = tmp_path / "inputs" / "in" / "spool"
    old.mkdir(parents=True)
    (old / "0000000000000000.lines").write_bytes(b"a")
    for ask in (lambda: opened().has_more("lines", 1), lambda: received.received(tmp_path)):
        with pytest.raises(StateError) as caught:
            ask()
        assert caught.value.code == "HR-STATE-002"
