"""Lines that clients send to the job: stored before they are offered, never half of one."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.listening_cases import client, listening, wait_for, wait_until
from tests.sources.reading import read_split, refusal

from headrace.errors import InputError
from headrace.schema import schema_of
from headrace.sources import listening as module
from headrace.sources import open_source


@pytest.fixture
def opened(tmp_path):
    sources = []

    def open_one(**more):
        sources.append(listening(tmp_path, **more))
        return sources[-1]

    yield open_one
    for source in sources:
        source.close()


def decoded(source):
    """The values of good lines, and reasons of bad ones, in order of what was stored."""
    good, bad = [], []
    for range in source.cut("lines", 0, source.latest("lines"), 1):
        for chunk, _ in source.read(range):
            rows, mask, reasons = source.decode(chunk)
            good += rows.column(0).to_pylist()
            bad += reasons
            assert rows.num_rows + mask.sum() == chunk.num_rows and len(reasons) == mask.sum()
    return good, bad


def test_lines_of_several_clients_are_stored(opened):
    source = opened()
    with client(source) as one, client(source) as two:
        one.sendall(b"a\nb")
        two.sendall(b"c\n")
        wait_for(source, 2)
        one.sendall(b"b\n")
        wait_for(source, 3)

    assert sorted(decoded(source)[0]) == ["a", "bb", "c"]


def test_half_a_line_of_a_client_that_has_gone_is_a_dead_letter(opened):
    source = opened()
    with client(source) as one:
        one.sendall(b"whole\n12")
    wait_for(source, 2)

    assert decoded(source) == (["whole"], ["the connection ended in the middle of this line"])
    assert source.where("lines", 1).endswith("line 2")


def test_a_connection_that_is_reset_leaves_what_came_before(opened):
    source = opened()
    one = client(source)
    one.sendall(b"whole\n")
    wait_for(source, 1)
    one.sendall(b"ha")
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()  # by a reset
    with client(source) as two:
        two.sendall(b"next\n")
        wait_until(lambda: "next" in decoded(source)[0], source)

    good, bad = decoded(source)
    assert good == ["whole", "next"]
    assert set(bad) <= {"the connection ended in the middle of this line"}  # if "ha" came at all


@pytest.mark.parametrize("format", ["text", "csv", "json"])
def test_a_line_that_is_too_long_is_a_dead_letter_and_the_next_one_is_read(opened, format):
    source = opened(options={"max_line_kb": 1}, schema=schema_of("value string"), format=format)
    good = b'{"value": "ok"}' if format == "json" else b"ok"
    with client(source) as one:
        one.sendall(b"x" * 5_000 + b"\n" + good + b"\n" + b"y" * 700_000 + b"\n" + good + b"\n")
        wait_for(source, 4)

    values, reasons = decoded(source)
    assert values == ["ok", "ok"]
    assert reasons == ["the line is longer than 1 kB: this is how it begins"] * 2


def test_a_line_that_does_not_fit_its_schema_is_a_dead_letter_beside_a_broken_one(opened):
    source = opened(schema=schema_of("n bigint"))
    with client(source) as one:
        one.sendall(b'{"n": 1}\nno json\n{"n": 2}\n{"n":')
    wait_for(source, 4)

    good, bad = decoded(source)
    assert good == [1, 2]
    assert len(bad) == 2 and bad[1] == "the connection ended in the middle of this line"


def test_a_client_is_told_what_is_durable(opened):
    source = opened(options={"ack": True})
    with client(source) as one:
        one.sendall(b"a\nb\n")
        answers = one.makefile("rb")
        while (stored := int(answers.readline())) < 2:
            pass
        assert stored == 2 and source.received.end == 2
        one.sendall(b"c\n")
        assert answers.readline() == b"3\n"
        one.sendall(b"half")
        one.shutdown(socket.SHUT_WR)
        assert answers.read() == b"4\n"  # it is a dead letter, and stored


def test_a_client_that_never_reads_its_answers_is_no_harm(opened):
    source = opened(options={"ack": True})
    with client(source) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        for i in range(2_000):
            one.sendall(b"%d\n" % i)
        wait_for(source, 2_000)
    assert decoded(source)[0] == [str(i) for i in range(2_000)]


def test_a_restart_offers_what_was_stored_and_listens_on(opened):
    first = opened()
    with client(first) as one:
        one.sendall(b"one\nhal")
        wait_for(first, 1)
        first.close()
        assert one.recv(10) == b""  # the client sees that the job has gone
    second = opened()
    with client(second) as one:
        one.sendall(b"two\n")
        wait_for(second, 3)

    assert decoded(second) == (["one", "two"], ["the job stopped in the middle of this line"])


def test_the_address_of_an_earlier_start_is_none_of_this_one(opened):
    first = opened()
    before = first.listens_at
    first.close()
    assert first.listens_at is None
    second = opened()
    assert second.listens_at is not None and second.listens_at[1] != before[1]


def test_more_clients_than_can_be_served_wait(opened, monkeypatch):
    monkeypatch.setattr(module, "MOST_CLIENTS", 1)
    source = opened()
    first, second = client(source), client(source)
    second.sendall(b"second\n")
    first.sendall(b"first\n")
    wait_for(source, 1)
    assert decoded(source)[0] == ["first"]
    first.close()
    wait_for(source, 2)
    assert decoded(source)[0] == ["first", "second"]
    second.close()


def test_senders_wait_while_the_job_is_far_behind(opened, monkeypatch):
    monkeypatch.setattr(module, "MOST_AHEAD", 2)
    monkeypatch.setattr(module, "PIECE", 4)
    source = opened()
    with client(source) as one:
        one.sendall(b"a\nb\nc\nd\ne\nf\n")
        wait_for(source, 2)
        pause = threading.Event()
        pause.wait(0.3)
        assert source.latest("lines") <= 3
        while source.latest("lines") < 6:
            source.commit({"lines": source.latest("lines")})
            pause.wait(0.01)
    assert source.latest("lines") == 6


def test_a_port_that_another_has_is_an_error_of_the_job(opened, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        source = open_source(f"listen:{port}", folder=str(tmp_path / "other"), name="in")
        with suppress(InputError):  # it may have failed by then
            source.latest("lines")
        source._receiver._thread.join(20)
        assert refusal(source.latest, "lines").code == "HR-INPUT-081"
        source.close()


@pytest.mark.parametrize(
    ("uri", "options", "code"),
    [
        ("listen:", {}, "HR-INPUT-001"),
        ("listen:name", {}, "HR-INPUT-001"),
        ("listen:70000", {}, "HR-INPUT-001"),
        ("listen:0.0.0.0:99", {}, "HR-INPUT-080"),
        ("listen:99", {"ack": 1}, "HR-INPUT-013"),
        ("listen:99", {"max_line_kb": 0}, "HR-INPUT-013"),
        ("listen:99", {"colour": 1}, "HR-INPUT-013"),
    ],
)
def test_what_cannot_be_listened_on_is_refused(uri, options, code):
    assert refusal(open_source, uri, None, None, options).code == code


def test_there_is_no_end_to_run_to():
    assert refusal(open_source, "listen:99", until="end").code == "HR-INPUT-013"
    assert open_source("listen:0.0.0.0:99", options={"anyone": True}).place == "0.0.0.0:99"


LINES = st.lists(st.text("ab,\r é", max_size=3).filter(lambda t: not t.endswith("\r")), max_size=9)


@given(LINES, st.lists(st.integers(1, 9)), st.booleans())
@settings(max_examples=20, deadline=None)
def test_however_bytes_are_cut_the_lines_are_those_that_were_sent(
    tmp_path_factory, lines, sizes, crlf
):
    source = listening(tmp_path_factory.mktemp("job"))
    end = "\r\n" if crlf else "\n"
    data = "".join(line + end for line in lines).encode()
    try:
        with client(source) as one:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for size in sizes:
                one.sendall(data[:size])
                data = data[size:]
            one.sendall(data)
        wait_for(source, len(lines))
        assert decoded(source) == (lines, [])
        assert [r["value"] for r in read_split(source, "lines", 0)[0]] == lines
    finally:
        source.close()
