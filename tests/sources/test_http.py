"""The endpoint: what was answered with 200 is stored, once; everything else is refused and not."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.http_cases import SCHEMA, Poster, free_port, opened, wait_until
from tests.sources.reading import refusal

from headrace.errors import InputError
from headrace.sources import http_endpoint, open_source
from headrace.sources.http_bodies import records_of
from headrace.sources.http_keys import RememberedKeys
from headrace.sources.received import LineWriter
from headrace.state import faults
from headrace.testing.input_suite import chunks


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def endpoint(tmp_path, port):
    sources = []

    def start(**options: Any):
        sources.append(opened(tmp_path, port, **options))
        return sources[-1], Poster(tmp_path, port)

    yield start
    for source in sources:
        source.close()


def stored(source: Any) -> list[bytes]:
    end = source.received.end
    return [v for t, _ in chunks(source, "lines", 0, end) for v in t["__raw"].to_pylist()]


def test_lines_arrays_and_documents_are_records(endpoint):
    source, client = endpoint()
    for body in (
        b'{"n":1}\n{"n":2}',
        b'[{"n":3},\n {"n":4,\n "name":"a\\nb"}]',
        b'{"n":5,\r\n"name":"x"}\n',
        b"[]",
        b"",
        b'\xef\xbb\xbf[{"n":1.50}]',
    ):
        assert client.post(body)[0] == 200

    assert stored(source) == [
        b'{"n":1}', b'{"n":2}', b'{"n":3}', b'{"n":4,  "name":"a\\nb"}',
        b'{"n":5,  "name":"x"}', b'{"n":1.50}',
    ]  # fmt: skip


@pytest.mark.parametrize("body", [b"a\n\nb\n", b"\na\r\n\r\n\nb", b"\n", b"", b"a\n\n"])
def test_lines_of_text_are_those_of_a_file(tmp_path, port, body):
    source = open_source(f"http:{port}/orders", folder=str(tmp_path / "job"), name="in")
    (tmp_path / "a.txt").write_bytes(body)
    file = open_source(f"files:{tmp_path}/a.txt", format="text", until="end")
    try:
        source.latest("lines")
        wait_until(lambda: source._receiver.endpoint, source)
        assert Poster(tmp_path / "job", port).post(body)[0] == 200
        (split,) = file.splits() or [None]
        read = [] if split is None else chunks(file, split, 0, file.latest(split))
        assert stored(source) == [v for t, _ in read for v in t["__raw"].to_pylist()]
    finally:
        source.close()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=4) | st.none()),
        max_size=5,
    ),
    indent=st.sampled_from([None, 0, 2]),
)
def test_any_array_is_its_elements_as_they_were_written(rows, indent):
    body = json.dumps(rows, indent=indent).encode()

    found = records_of(body).to_pylist()

    assert [json.loads(r) for r in found] == rows
    assert not any(b"\n" in r or b"\r" in r for r in found)


@pytest.mark.parametrize(
    "body", [b"[1,]", b"[1", b"[", b"[1 2]", b"[] []", b"[{]", b'["\xff"]', b"[,1]"]
)
def test_an_array_that_is_not_json_is_400_and_nothing_is_stored(endpoint, body):
    source, client = endpoint()

    status, answer, _ = client.post(body)

    assert status == 400 and "not JSON" in answer["error"]
    assert source.received.end == 0


def test_bad_records_are_dead_letters_or_refused_with_their_reasons(endpoint, tmp_path, port):
    source, client = endpoint()
    assert client.post(b'{"n":1}\n{"n":"x"}\nno')[1] == {"stored": 3}
    parts = [source.decode(t)[1].tolist() for t, _ in chunks(source, "lines", 0, 3, 1)]
    assert [bad for part in parts for bad in part] == [False, True, True]
    source.close()

    source, client = endpoint(on_bad="refuse")
    status, answer, _ = client.post(b'{"n":1}\n{"n":"x"}\nno')
    assert status == 400 and source.received.end == 3
    assert "2 bad records, nothing is stored: record 2: " in answer["error"]
    assert client.post(b'{"n":1}')[1] == {"stored": 1}


def test_what_is_not_a_post_with_the_token_is_refused(endpoint, monkeypatch):
    source, client = endpoint(max_body_mb=1)
    status, answer, headers = client.post(b'{"n":1}', token="wrong")
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert client.token not in json.dumps([answer, headers])
    assert client.post(b"", method="GET")[0] == 405
    assert client.post(b"x" * (2 << 20))[0] == 413
    assert client.post(b"x", Content_Encoding="gzip")[0] == 415
    assert client.post(b"x", Idempotency_Key="k" * 300)[0] == 400
    client.path = "/other"
    assert client.post(b"x")[0] == 404
    assert source.received.end == 0


def test_chunked_bodies_have_the_same_limit(endpoint):
    source, client = endpoint(max_body_mb=1)
    assert client.post(iter([b'{"n":', b"1}\n", b'{"n":2}']))[1] == {"stored": 2}
    assert client.post(iter([b"x" * 1000] * 2000))[0] == 413
    assert stored(source) == [b'{"n":1}', b'{"n":2}']


POST = b"POST /orders HTTP/1.1\r\nHost: x\r\n"
CHUNKED, LAST = b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n\r\n"
RECORD = b'{"n":1}'
NEXT = POST + b"Content-Length: 7\r\n" + LAST + RECORD  # a whole request


def said(port: int, sent: bytes) -> list[int]:
    """The status of each answer, until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(sent)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", answer)]


@pytest.mark.parametrize(
    ("sent", "statuses", "count"),
    [
        (CHUNKED + LAST + b'7\r\n{"n":1}\r\n0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n', [200], 1),
        (CHUNKED + LAST + b"7;a=" + b"b" * 500 + b'\r\n{"n":1}\r\n0\r\n\r\n', [200], 1),
        (CHUNKED + b'\r\n7\r\n{"n":1}\r\n0\r\nX-Sum: 1\r\n\r\n' + NEXT, [200, 200], 2),
        (CHUNKED + LAST + b'7\r\n{"n":1}, 0\r\n\r\n', [400], 0),
        (CHUNKED + LAST + b'7\r\n{"n":1}\r\n0\r\n' + b"X: 1\r\n" * 200 + b"\r\n", [400], 0),
        (b"Transfer-Encoding: gzip, chunked\r\n" + LAST + b"1\r\nx\r\n0\r\n\r\n", [501], 0),
        (b"Transfer-Encoding: xchunked\r\n" + LAST + RECORD, [501], 0),
        (CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n" + NEXT, [400], 0),
        (b"Content-Length: 7\r\nContent-Length: 2\r\n\r\n" + RECORD + NEXT, [400], 0),
        (b"Content-Length: 7\r\nContent-Length: 7\r\n" + LAST + RECORD, [200], 1),
        (b"Content-Length: " + b"9" * 5_000 + b"\r\n" + LAST, [413], 0),
        (b"Content-Length: 200000\r\n" + LAST + b"[" * 200_000, [400], 0),
        (b"X: 1\r\n" * 200 + LAST, [431], 0),
    ],
)
def test_a_body_is_read_as_http_has_it_or_refused_with_an_answer(
    endpoint, port, sent, statuses, count
):
    source, _ = endpoint(token=False)
    assert said(port, POST + sent) == statuses
    assert len(stored(source)) == count


@pytest.mark.parametrize("method", [b"GET", b"PUT", b"DELETE", b"PATCH", b"OPTIONS"])
def test_the_body_of_another_method_is_not_taken_for_a_request(endpoint, port, method):
    source, _ = endpoint(token=False)
    head = method + b" /orders HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(NEXT)

    assert said(port, head + NEXT) == [405]
    assert stored(source) == []


def test_numbers_of_any_length_are_records_in_arrays_and_documents(endpoint):
    source, client = endpoint()
    long = b"9" * 5_000
    for body in (b'[{"n":%b}, {"n":1}]' % long, b'{"n":\n%b}' % long):
        assert client.post(body)[0] == 200
    assert stored(source) == [b'{"n":%b}' % long, b'{"n":1}', b'{"n": %b}' % long]


def test_a_sender_that_goes_away_in_the_middle_leaves_nothing(endpoint, port):
    source, client = endpoint()
    head = f"POST /orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.token}\r\n"
    for rest in ("Content-Length: 100\r\n\r\n{}\n", "Transfer-Encoding: chunked\r\n\r\n5\r\n{}"):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall((head + rest).encode())
    assert client.post(b'{"n":1}')[0] == 200
    assert stored(source) == [b'{"n":1}']


def test_the_token_is_generated_once_and_only_its_owner_may_read_it(endpoint, tmp_path, port):
    source, client = endpoint()
    path, token = tmp_path / "inputs" / "in" / "token", client.token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and len(token) > 30
    assert token not in str(source.identity()) and token not in repr(vars(source))
    source.close()
    source, client = endpoint()
    assert client.token == token and client.post(b"{}")[0] == 200
    source.close()

    path.chmod(0o644)
    broken = open_source(f"http:{port}/orders", SCHEMA, folder=str(tmp_path), name="in")
    assert refusal(broken.latest, "lines").code == "HR-HTTP-003"


def test_a_token_may_come_from_the_environment(endpoint, tmp_path, monkeypatch, port):
    monkeypatch.setenv("SHOP_TOKEN", "from outside")
    _, client = endpoint(token_env="SHOP_TOKEN")
    assert client.post(b"{}", token="from outside")[0] == 200
    assert not (tmp_path / "inputs" / "in" / "token").exists()
    assert b"from outside" not in b"".join(
        p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()
    )

    monkeypatch.delenv("SHOP_TOKEN")
    options = {"token_env": "SHOP_TOKEN"}
    other = open_source("http:1/x", SCHEMA, options=options, folder=str(tmp_path), name="b")
    assert refusal(other.latest, "lines").code == "HR-HTTP-003"


@pytest.mark.parametrize(
    ("uri", "options", "code"),
    [
        ("http:orders", {}, "HR-INPUT-001"),
        ("http:0/orders", {}, "HR-INPUT-001"),
        ("http:99999/orders", {}, "HR-INPUT-001"),
        ("http:0.0.0.0:8080/x", {"token": False}, "HR-HTTP-001"),
        ("http:8080/x", {"token": "text"}, "HR-INPUT-013"),
        ("http:8080/x", {"max_body_mb": 0}, "HR-INPUT-013"),
        ("http:8080/x", {"on_bad": "x"}, "HR-INPUT-013"),
        ("http:8080/x", {"port": 1}, "HR-INPUT-013"),
    ],
)
def test_what_makes_no_sense_is_refused(uri, options, code):
    error = refusal(open_source, uri, SCHEMA, options=options)
    assert error.code == code and "text" not in error.message


def test_places_are_loopback_unless_they_say_otherwise(tmp_path, port):
    for uri, place in (
        ("http:80/a", "127.0.0.1:80/a"),
        ("http://0.0.0.0:80/a/b", "0.0.0.0:80/a/b"),
        ("http:[::1]:80", "[::1]:80/"),
    ):
        assert open_source(uri, SCHEMA, folder=str(tmp_path)).identity()["place"] == place
    assert refusal(open_source, "http:80/a", SCHEMA, until="end").code == "HR-INPUT-013"
    with socket.create_server(("127.0.0.1", port)):
        taken = open_source(f"http:{port}/a", SCHEMA, folder=str(tmp_path), name="t")
        with suppress(InputError):  # its thread may have failed already
            taken.latest("lines")
        taken._receiver._thread.join(20)  # type: ignore[attr-defined]
        assert refusal(taken.latest, "lines").code == "HR-HTTP-002"


def test_a_job_that_is_behind_makes_senders_wait(endpoint, monkeypatch):
    monkeypatch.setattr(http_endpoint, "MOST_AHEAD", 3)
    source, client = endpoint()
    assert client.post(b"{}\n" * 3)[0] == 200
    status, _, headers = client.post(b"{}")
    assert (status, headers["Retry-After"]) == (503, "1")

    source.commit({"lines": 2})

    assert client.post(b"{}")[0] == 200 and source.received.end == 4


def test_many_senders_at_once_store_every_record_once(endpoint):
    source, client = endpoint()

    def send(k: int) -> None:
        for i in range(20):
            body = f'{{"n":{100 * k + i}}}'.encode()
            for _ in range(2):  # each twice, under one key
                assert client.post(body, Idempotency_Key=f"{k}/{i}")[0] == 200

    threads = [threading.Thread(target=send, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = sorted(json.loads(line)["n"] for line in stored(source))
    assert found == sorted(100 * k + i for k in range(8) for i in range(20))


def test_a_key_is_remembered_over_a_restart_and_another_body_is_refused(endpoint):
    source, client = endpoint()
    assert client.post(b"{}\n{}", Idempotency_Key="a")[1] == {"stored": 2}
    source.close()
    source, client = endpoint()
    assert client.post(b"{}\n{}", Idempotency_Key="a")[1] == {"stored": 2, "repeated": True}
    assert client.post(b'{"n":1}', Idempotency_Key="a")[0] == 422
    assert source.received.end == 2


class Clock:
    now = 1_000

    def __call__(self) -> int:
        return self.now


def test_keys_of_a_post_that_was_not_stored_do_not_count_at_the_next_start(tmp_path):
    clock = Clock()

    def keys(writer: LineWriter) -> RememberedKeys:
        return RememberedKeys(tmp_path, writer, 10_000, clock)

    writer = LineWriter(tmp_path)
    first = keys(writer)
    first.add([("a", 2, 7), (None, 1, 0), ("b", 1, 8)])
    writer.add(pa.array([b"1", b"2", b"3", b"4"], pa.binary()))
    first.add([("c", 1, 9), ("a", 1, 9)])  # and here it is killed
    writer.close()

    writer = LineWriter(tmp_path)
    second = keys(writer)
    assert (second.get("b").rows, second.get("c")) == (1, None)
    writer.add(pa.array([b"5", b"6", b"7"], pa.binary()))  # in the place of those of "c" and "a"
    writer.close()

    writer = LineWriter(tmp_path)
    third = keys(writer)
    assert third.get("b") is not None and third.get("c") is None
    clock.now += 10_000
    assert third.get("b") is None
    third.add([("d", 1, 1)])
    assert list(third._known) == ["d"]
    writer.close()


def test_a_crash_between_the_keys_and_the_lines_stores_nothing(endpoint, tmp_path):
    source, client = endpoint()

    def fail(name: str) -> None:
        if name == "http.keys.durable":
            raise OSError(28, "No space left on device")

    with faults.hooked(fail):
        assert client.post(b"{}", Idempotency_Key="a")[0] == 503
    assert client.post(b"{}", Idempotency_Key="b")[0] == 503  # it stops: nothing is taken any more
    source._receiver._thread.join(20)
    assert refusal(source.latest, "lines").code == "HR-INPUT-003"
    source.close()
    source, client = endpoint()
    assert client.post(b"{}", Idempotency_Key="a")[1] == {"stored": 1}
    assert source.received.end == 1


def test_a_disk_that_is_full_when_keys_are_stored_fails_the_input(endpoint):
    source, client = endpoint()

    def fail(name: str) -> None:
        if name.startswith("log."):
            raise OSError(28, "No space left on device")

    with faults.hooked(fail):
        assert client.post(b"{}", Idempotency_Key="a")[0] == 503
        source._receiver._thread.join(20)
    assert refusal(source.latest, "lines").code == "HR-INPUT-003"


@pytest.mark.parametrize("where", ["storing", "receiving"])
def test_no_thread_ends_unnoticed(endpoint, monkeypatch, where):
    source, client = endpoint()

    def fail(*of: object) -> None:
        raise pa.ArrowInvalid("offset overflow")

    if where == "storing":
        monkeypatch.setattr(LineWriter, "add", fail)
        assert client.post(b"{}")[0] == 503
    else:
        monkeypatch.setattr(http_endpoint.Endpoint, "failed", property(fail), raising=False)
    source._receiver._thread.join(20)
    error = refusal(source.latest, "lines")
    assert error.code in ("HR-INPUT-003", "HR-INPUT-063") and "offset overflow" in error.message


def test_too_many_bytes_that_wait_make_senders_wait(endpoint, monkeypatch):
    monkeypatch.setattr(http_endpoint, "MOST_WAITING", 30)
    source, client = endpoint()
    go_on, found = threading.Event(), list[int]()

    def wait(name: str) -> None:
        if name == "http.keys.durable":
            go_on.wait(20)

    def send(key: str) -> None:
        found.append(client.post(b'{"n":1, "name":"' + b"x" * 30 + b'"}', Idempotency_Key=key)[0])

    threads = [threading.Thread(target=send, args=(key,)) for key in "abcdef"]
    with faults.hooked(wait):
        for thread in threads:
            thread.start()
            time.sleep(0.1)
        go_on.set()
        for thread in threads:
            thread.join()
    assert sorted(found) == [200, 200, 503, 503, 503, 503]  # one is stored, one waits
    assert source.received.end == 2 and client.post(b"{}")[0] == 200


SERVER = """
import sys, time
from pathlib import Path
from tests.sources.http_cases import opened
source = opened(Path(sys.argv[1]), int(sys.argv[2]))
print("ready", flush=True)
time.sleep(60)
"""


def test_what_was_answered_survives_kills_under_load_once(tmp_path, port):
    """A sender that repeats what was not answered, with its key, and a server that is killed."""
    answered, client = 0, Poster(tmp_path, port)
    for _ in range(4):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(tmp_path), str(port)],
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert server.stdout is not None and server.stdout.readline() == b"ready\n"
        killer = threading.Timer(0.3, server.send_signal, [signal.SIGKILL])
        killer.start()
        while server.poll() is None:
            try:
                body = f'{{"n":{answered}}}'.encode()
                if client.post(body, Idempotency_Key=str(answered))[0] == 200:
                    answered += 1
            except (OSError, ValueError):
                time.sleep(0.01)
            except Exception as cause:  # http.client's own
                assert "http.client" in type(cause).__module__
        killer.cancel()
        server.stdout.close()

    assert answered > 4
    source = opened(tmp_path, port)
    try:
        client.post(f'{{"n":{answered}}}'.encode(), Idempotency_Key=str(answered))
        found = [json.loads(line)["n"] for line in stored(source)]
    finally:
        source.close()
    assert found == list(range(answered + 1))


def test_two_processes_do_not_listen_on_one_folder(tmp_path, port):
    first = opened(tmp_path, port)
    second = open_source(f"http:{port}/orders", SCHEMA, folder=str(tmp_path), name="in")
    try:
        assert second.latest("lines") == 0
        assert Poster(tmp_path, port).post(b"{}")[0] == 200
        assert second.latest("lines") == 1
        first.close()
        deadline = time.monotonic() + 20
        while second._receiver.endpoint is None and time.monotonic() < deadline:  # type: ignore[attr-defined]
            time.sleep(0.01)
        assert Poster(tmp_path, port).post(b"{}")[0] == 200
        assert second.latest("lines") == 2
    finally:
        first.close()
        second.close()
