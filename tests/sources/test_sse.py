"""Server-sent events: every event once, by its id, over lost connections, restarts and crashes."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.reading import refusal
from tests.sources.sse_cases import SCHEMA, serving, wait_for

from headrace.errors import InputError
from headrace.sources import open_source, sse
from headrace.sources.sse import EventParser
from headrace.state import faults
from headrace.testing.input_suite import chunks

EVENTS = [json.dumps({"n": i}) for i in range(20)]


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(sse, "SHORTEST_PAUSE", 0.01)


def opened(server, folder, **options):
    return open_source(f"sse:{server.url}", SCHEMA, options=options, folder=str(folder), name="in")


def to_the_end(server, folder, **options):
    """The input, when its receiver has come to an end."""
    source = open_source(
        f"sse:{server.url}", SCHEMA, options=options, folder=str(folder), name="in", until="end"
    )
    with suppress(InputError):  # it may know already
        source.latest("lines")
    source._receiver._thread.join(20)
    return source


def stored(source) -> list[bytes]:
    found = chunks(source, "lines", 0, source.received.end)
    return [v for t, _ in found for v in t["__raw"].to_pylist()]


def expected(events) -> list[bytes]:
    return [event.encode() for event in events]


def test_a_connection_that_is_lost_is_opened_again_after_the_last_event(tmp_path):
    with serving(EVENTS, each=3, stays=True) as server:
        source = opened(server, tmp_path)
        wait_for(source, 20)
        assert stored(source) == expected(EVENTS)
        assert [a.get("Last-Event-ID") for a in server.asked][:3] == [None, "3", "6"]
        source.close()

        server.events.extend(EVENTS[:2])
        source = opened(server, tmp_path)
        wait_for(source, 22)
        assert stored(source) == expected([*EVENTS, *EVENTS[:2]])
        source.close()


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6, 7])
def test_a_crash_between_the_id_and_the_events_loses_and_doubles_nothing(tmp_path, at):
    passed = 0

    def crash(name: str) -> None:
        nonlocal passed
        passed += name.startswith(("sse.", "log."))
        if name.startswith(("sse.", "log.")) and passed == at:
            raise OSError(5, "it was killed here")

    with serving(EVENTS, each=4, stays=True) as server:
        source = opened(server, tmp_path)
        with faults.hooked(crash), suppress(InputError):
            source.latest("lines")
            source._receiver._thread.join(1)
        source.close()
        source = opened(server, tmp_path)
        wait_for(source, 20)
        assert stored(source) == expected(EVENTS)
        source.close()


def test_secrets_come_from_the_environment_and_are_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("FEED_TOKEN", "geheim")
    monkeypatch.setenv("FEED_KEY", "noch geheimer")
    options = {"token_env": "FEED_TOKEN", "headers_env": {"X-Api-Key": "FEED_KEY"}}
    with serving(EVENTS, stays=True) as server:
        source = opened(server, tmp_path, **options)
        wait_for(source, 20)
        assert server.asked[0]["Authorization"] == "Bearer geheim"
        assert server.asked[0]["X-Api-Key"] == "noch geheimer"
        source.close()
        assert "geheim" not in f"{vars(source)} {source.identity()}"
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or b"geheim" not in path.read_bytes()
        monkeypatch.delenv("FEED_KEY")
        assert refusal(opened(server, tmp_path, **options).latest, "lines").code == "HR-HTTP-003"


@pytest.mark.parametrize(
    ("uri", "options", "code"),
    [
        ("sse:localhost/feed", {}, "HR-INPUT-001"),
        ("sse:ftp://localhost/feed", {}, "HR-INPUT-001"),
        ("sse:https://me:geheim@localhost/feed", {}, "HR-INPUT-001"),
        ("sse:https://localhost:x/feed", {}, "HR-INPUT-001"),
        ("sse:https://localhost/feed", {"headers_env": {"X": 1}}, "HR-INPUT-013"),
        ("sse:https://localhost/feed", {"headers": {"X": "geheim"}}, "HR-INPUT-013"),
    ],
)
def test_what_makes_no_sense_is_refused(uri, options, code):
    error = refusal(open_source, uri, SCHEMA, options=options)
    assert error.code == code and "geheim" not in error.message


def test_an_answer_that_will_not_change_stops_the_job_and_others_do_not(tmp_path):
    with serving(EVENTS, stays=True) as server:
        for status, code in ((404, "HR-HTTP-004"), (401, "HR-HTTP-004"), (302, "HR-HTTP-004")):
            server.status = status
            source = opened(server, tmp_path)
            with suppress(InputError):  # it may know already
                source.latest("lines")
            source._receiver._thread.join(20)
            assert refusal(source.latest, "lines").code == code
            source.close()
        server.status = 503
        source = opened(server, tmp_path)
        assert source.latest("lines") == 0
        server.status = 200
        wait_for(source, 20)
        source.close()
    gone = opened(server, tmp_path / "new")
    with suppress(InputError):
        gone.latest("lines")
    gone._receiver._thread.join(20)
    assert refusal(gone.latest, "lines").code == "HR-INPUT-015"


STREAM = (
    b"\xef\xbb\xbf: hello\r\nevent: a\r\ndata: 1\r\ndata: 2\r\nid: x\r\n\r\n"
    b"data\n\ndata:3\rid\r\rretry: 250\nevent: b\n\ndata: \xc3\xa9\nid: y\0\n\ndata: cut"
)


@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_events_are_the_same_wherever_the_stream_is_cut(cuts):
    bounds = [0, *sorted(cuts), len(STREAM)]
    parser = EventParser()
    found = [event for a, b in pairwise(bounds) for event in parser.feed(STREAM[a:b])]
    assert found == [("a", b"1\n2"), ("message", b""), ("message", b"3"), ("message", b"\xc3\xa9")]
    assert (parser.last, parser.retry) == ("", 250)


def test_an_event_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(sse, "MOST_EVENT", 10)
    assert refusal(list, EventParser().feed(b"data: 12345678901")).code == "HR-HTTP-007"


def test_other_events_are_left_out_and_their_ids_count(tmp_path):
    with serving(['{"n":1}\n\nevent: x\ndata: y', '{"n":2}'], stays=True) as server:
        source = opened(server, tmp_path)
        wait_for(source, 2)
        assert len(stored(source)) == 2
        source.close()


@pytest.mark.parametrize("how", ["reset", "silent", "short"])
def test_a_connection_that_breaks_is_not_the_end(tmp_path, how):
    with serving(EVENTS) as server:
        server.breaks = [f"{how} ids", f"{how} ids"]
        if how == "short":  # an orderly end of the connection, before the length it has said
            server.headers["Content-Length"] = "100000"
            threading.Timer(0.7, server.headers.pop, ["Content-Length"]).start()
        source = to_the_end(server, tmp_path, timeout="400ms")
        assert source.latest("lines") == 20 and source.ended("lines", 20)
        assert stored(source) == expected(EVENTS)
        assert [a.get("Last-Event-ID") for a in server.asked][:3] == [None, "5", "10"]
        source.close()


def test_events_without_ids_that_break_off_are_an_error(tmp_path):
    with serving(EVENTS) as server:
        server.breaks = ["reset"]
        source = to_the_end(server, tmp_path)
        assert refusal(source.latest, "lines").code == "HR-HTTP-009"
        source.close()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/html"},
        {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"},
    ],
)
def test_an_answer_that_is_not_events_is_refused(tmp_path, headers):
    with serving(EVENTS) as server:
        server.headers = headers
        source = to_the_end(server, tmp_path)
        assert refusal(source.latest, "lines").code == "HR-HTTP-008"
        source.close()
