"""The REST interface: what each route answers, and what is refused before it asks the service."""

from __future__ import annotations

import json
import re
import socket
import threading
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator

from headrace.errors import PlanError, ServerError
from headrace.server import openapi
from headrace.server.http import serve
from headrace.server.lifecycle import State
from headrace.server.limits import Limits
from headrace.server.route import Route
from headrace.server.routes import TABLE
from tests.server.memory_service import FIGURES, MemoryService
from tests.server.rest_client import TOKENS, ask

JOBS = "/api/v1/jobs"
FILLED = {"job": "shop", "number": "1", "savepoint": "sale"}
# What a route is asked, where its fields cannot be left out.
BODIES: dict[str, Any] = {
    "/api/v1/session": {"token": TOKENS["read"]},
    "/api/v1/jobs": {"program": "/jobs/new.py"},
    f"{JOBS}/{{job}}/rebalance": {"parallelism": 2},
    f"{JOBS}/{{job}}/state/query": {"step": "sum"},
    f"{JOBS}/{{job}}/savepoints": {"name": "sale"},
}
STATES = {"activate": State.INACTIVE, "remove": State.INACTIVE}
every_route = pytest.mark.parametrize("route", TABLE, ids=lambda r: f"{r.method} {r.path}")


def path_of(route: Route) -> str:
    return re.sub(r"{(\w+)}", lambda m: FILLED[m[1]], route.path)


@every_route
def test_every_route_answers_what_the_document_says(route, rest, service):
    removes = route.method == "DELETE" and route.path == f"{JOBS}/{{job}}"
    service.become("shop", STATES["activate"] if removes or "activate" in route.path.split("/")
                   else State.RUNNING)  # fmt: skip
    body = BODIES.get(route.path) if route.method == "POST" else None
    answer = ask(rest, route.method, path_of(route), body)
    assert answer.status == route.status, answer.body
    if isinstance(route.answer, dict):
        document = openapi.document(TABLE, "1")
        schema = {**route.answer, "components": document["components"]}
        Draft202012Validator(schema).validate(answer.json)
    elif isinstance(route.answer, str):
        assert answer.headers["content-type"].startswith(route.answer) and answer.body
    else:
        assert answer.body == b""


def test_the_document_is_one_of_openapi_and_names_every_route_once(rest):
    document = ask(rest, "GET", "/openapi.json").json
    assert document["openapi"] == "3.1.0"
    named = {(m.upper(), p) for p, methods in document["paths"].items() for m in methods}
    assert named == {(r.method, r.path) for r in TABLE} and len(named) == len(TABLE)
    ids = [o["operationId"] for methods in document["paths"].values() for o in methods.values()]
    assert len(set(ids)) == len(ids)


def test_a_job_is_moved_by_legal_verbs_only_and_the_events_say_who_did_it(rest):
    assert ask(rest, "POST", f"{JOBS}/shop/activate").json["state"] == "starting"
    refused = ask(rest, "POST", f"{JOBS}/shop/activate")
    assert (refused.status, refused.code) == (409, "HR-SERVER-002")
    assert "deactivate" in refused.json["error"]["hint"]
    assert ask(rest, "GET", f"{JOBS}/shop").json["verbs"][:2] == ["deactivate", "restart"]
    (event,) = ask(rest, "GET", f"{JOBS}/shop/events").json["events"]
    assert event["kind"] == "activate" and event["by"] == "operate from 127.0.0.1"
    assert ask(rest, "GET", "/api/v1/events?after=1").json == {"events": []}


def test_fields_and_parameters_reach_the_service_as_they_were_sent(rest, service):
    service.become("shop", State.RUNNING)
    ask(rest, "POST", f"{JOBS}/shop/upgrade", {"dry_run": True, "drop": ["a", "b"]})
    assert service.asked[-1] == ("plan_upgrade", {"drop": ["a", "b"]})
    ask(rest, "POST", f"{JOBS}/shop/upgrade", {"program": "/jobs/new.py", "note": "why"})
    assert service.asked[-1] == ("upgrade", {"program": "/jobs/new.py", "note": "why"})
    ask(rest, "GET", f"{JOBS}/shop/series?names=rate_in,steps.avg%20temp.busy&since=5&points=10")
    assert service.asked[-1] == (
        "series", {"names": ["rate_in", "steps.avg temp.busy"], "since": 5, "points": 10},
    )  # fmt: skip
    ask(rest, "POST", f"{JOBS}/shop/dead/replay", {"numbers": [3, 4], "dry_run": True})
    assert service.asked[-1] == ("replay_dead", {"numbers": [3, 4], "dry_run": True})


def test_a_name_may_have_any_characters(rest, service):
    for name in ("fire alarm", "a/b", "Größe", "..", "a%2Fb", "x?y#z", "'; DROP TABLE jobs; --"):
        service.submit(f"/jobs/{name.replace('..', 'dots')}.py", job=f"n{name}", activate=False)
        answer = ask(rest, "GET", f"{JOBS}/{quote('n' + name, safe='')}")
        assert answer.json["name"] == f"n{name}"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"", "HR-SERVER-065", "JSON"),
        (b"{", "HR-SERVER-060", "not JSON"),
        (b"\xff", "HR-SERVER-060", "not JSON"),
        (b'{"program": NaN}', "HR-SERVER-060", "NaN"),
        (b'{"program": "a", "program": "b"}', "HR-SERVER-060", "twice"),
        (b"[" * 100_000, "HR-SERVER-060", "nested"),
        ([], "HR-SERVER-063", "an object"),
        ({}, "HR-SERVER-062", "'program'"),
        ({"program": 1}, "HR-SERVER-063", "'program'"),
        ({"program": ""}, "HR-SERVER-063", "1 to"),
        ({"program": "x" * 5_000}, "HR-SERVER-063", "4096"),
        ({"program": "a\0b"}, "HR-SERVER-063", "NUL"),
        ({"program": "\ud800"}, "HR-SERVER-063", "half"),
        ({"program": "a", "activate": 1}, "HR-SERVER-063", "true or false"),
        ({"program": "a", "activte": True}, "HR-SERVER-061", "Did you mean 'activate'?"),
        ({"program": "a", "code": "import os"}, "HR-SERVER-061", "'code'"),
        ({"program": "a", "options": {"parallelism": True}}, "HR-SERVER-063", "'parallelism'"),
        ({"program": "a", "options": {"parallelism": 0}}, "HR-SERVER-063", "from 1"),
        ({"program": "a", "options": {"paralelism": 2}}, "HR-SERVER-061", "'parallelism'"),
    ],
)
def test_a_body_is_read_strictly(rest, service, body, code, words):
    headers = {"Content-Type": "application/json"} if body != b"" else {}
    answer = ask(rest, "POST", JOBS, body, headers=headers)
    assert answer.code == code and words in json.dumps(answer.json, ensure_ascii=False)
    assert answer.status == {"HR-SERVER-060": 400, "HR-SERVER-065": 415}.get(code, 422)
    assert service.asked == []


@pytest.mark.parametrize("body", [None, b"", {}])
def test_a_body_without_fields_that_are_needed_may_be_left_out(rest, body):
    assert ask(rest, "POST", f"{JOBS}/shop/activate", body).status == 200


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("limit=0", 422, "HR-SERVER-063"),
        ("limit=1001", 422, "HR-SERVER-063"),
        ("limit=x", 422, "HR-SERVER-063"),
        ("limit=1&limit=2", 422, "HR-SERVER-063"),
        ("limt=1", 422, "HR-SERVER-061"),
        ("after=-1", 422, "HR-SERVER-063"),
        ("after=99999999999999999999", 422, "HR-SERVER-063"),
        ("after=%ff", 400, "HR-SERVER-069"),
        ("&".join(f"a{i}=1" for i in range(101)), 400, "HR-SERVER-069"),
    ],
)
def test_parameters_are_read_strictly(rest, query, status, code):
    answer = ask(rest, "GET", f"/api/v1/events?{query}")
    assert (answer.status, answer.code) == (status, code)


def test_what_is_not_there_is_404_and_names_it(rest):
    for path in (f"{JOBS}/nobody", "/api/v2/jobs", f"{JOBS}/shop/nothing", "/page/none.js",
                 f"{JOBS}/", "//api/v1/jobs"):  # fmt: skip
        answer = ask(rest, "GET", path)
        assert answer.status == 404 and answer.json["error"]["fact"], path
    assert ask(rest, "GET", f"{JOBS}/shop/dead/x").status == 422


def test_head_options_and_other_methods(rest):
    got, head = ask(rest, "GET", JOBS), ask(rest, "HEAD", JOBS)
    assert head.status == 200 and head.body == b""
    assert head.headers["content-length"] == got.headers["content-length"]
    options = ask(rest, "OPTIONS", JOBS)
    assert options.status == 204 and options.headers["allow"] == "GET, POST, HEAD, OPTIONS"
    for method in ("PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"):
        refused = ask(rest, method, JOBS)
        assert refused.status == 405 and refused.headers["allow"] == options.headers["allow"]
    assert ask(rest, "POST", "/page/index.html").status in (404, 405)


def test_a_body_that_is_too_long_is_answered_also_if_its_length_is_not_stated(rest, service):
    for headers in ({}, {"Transfer-Encoding": "chunked"}):
        body: Any = b"x" * 1_100_000
        if headers:
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        answer = ask(rest, "POST", JOBS, body, headers=headers)
        assert (answer.status, answer.code) == (413, "HR-SERVER-066")
    assert service.asked == []


def test_a_body_that_does_not_come_is_not_waited_for():
    limits = Limits(body_seconds=0.2)
    with (
        serve(MemoryService("shop"), port=0, tokens=TOKENS, limits=limits) as rest,
        socket.create_connection(("127.0.0.1", rest.port), timeout=30) as connection,
    ):
        connection.sendall(
            b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n"
            b"Authorization: Bearer %s\r\n\r\n{" % TOKENS["operate"].encode()
        )
        assert connection.recv(12) == b"HTTP/1.1 408"


class FailingService(MemoryService):
    """It fails in the way that it is told."""

    error: Exception = ValueError("secret of the house")

    def jobs(self):
        raise self.error


def test_a_fault_tells_nothing_and_an_error_its_code_fact_and_hint(caplog):
    service = FailingService()
    with serve(service, port=0, tokens=TOKENS) as rest:
        answer = ask(rest, "GET", JOBS)
        assert (answer.status, answer.code) == (500, "HR-SERVER-059")
        assert b"secret" not in answer.body and "secret of the house" in caplog.text
        service.error = PlanError("HR-PLAN-001", "it is wrong", "Write it rightly.")
        answer = ask(rest, "GET", JOBS)
    assert answer.status == 400
    assert answer.json["error"] == {
        "code": "HR-PLAN-001", "fact": "it is wrong", "hint": "Write it rightly.",
        "kind": "PlanError",
    }  # fmt: skip


def test_a_figure_that_is_no_number_is_null(rest, service):
    service.figures_now["shop"] = {**FIGURES, "rate_in": float("nan"), "deep": [[float("inf")]]}
    figures = ask(rest, "GET", f"{JOBS}/shop").json["figures"]
    assert figures["rate_in"] is None and figures["deep"] == [[None]]


class WaitingService(MemoryService):
    """Its `why` waits until it is let go."""

    def __init__(self) -> None:
        super().__init__("shop")
        self.entered, self.go = threading.Semaphore(0), threading.Event()

    def why(self, name):
        self.entered.release()
        assert self.go.wait(60)
        return super().why(name)


def test_questions_that_take_long_hold_nobody_else_up_and_are_not_taken_without_end():
    service, statuses = WaitingService(), list[int]()
    with serve(service, port=0, tokens=TOKENS) as rest:
        askers = [
            threading.Thread(
                target=lambda: statuses.append(ask(rest, "GET", f"{JOBS}/shop/why").status)
            )
            for _ in range(40)
        ]
        for asker in askers:
            asker.start()
        for _ in range(4):
            assert service.entered.acquire(timeout=30)
        assert ask(rest, "GET", JOBS).status == 200  # meanwhile
        while len(statuses) < 8:  # 32 wait or are under way
            threading.Event().wait(0.01)
        assert set(statuses) == {503}
        service.go.set()
        for asker in askers:
            asker.join()
    assert sorted(statuses) == [200] * 32 + [503] * 8


def test_what_is_in_hand_is_answered_when_the_server_ends():
    service, statuses = WaitingService(), list[int]()
    rest = serve(service, port=0, tokens=TOKENS)
    asker = threading.Thread(
        target=lambda: statuses.append(ask(rest, "GET", f"{JOBS}/shop/why").status)
    )
    asker.start()
    assert service.entered.acquire(timeout=30)
    ending = threading.Thread(target=rest.close)
    ending.start()
    while True:  # no more are taken
        try:
            socket.create_connection(("127.0.0.1", rest.port), timeout=1).close()
        except OSError:
            break
    service.go.set()
    ending.join()
    asker.join()
    assert statuses == [200] and not rest.alive


def test_a_port_that_is_taken_and_a_host_that_there_is_not_are_refused(rest, service):
    with pytest.raises(ServerError) as caught:
        serve(service, port=rest.port, tokens=TOKENS)
    assert caught.value.code == "HR-SERVER-076" and str(rest.port) in str(caught.value)
    with pytest.raises(ServerError, match="HR-SERVER-076"):
        serve(service, "192.0.2.1", 0, tokens=TOKENS, plain_http=True)


def test_a_websocket_is_refused(rest):
    headers = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    assert ask(rest, "GET", JOBS, headers=headers, role=None).status == 401


def test_warnings_and_reasons_are_passed_on(rest, service):
    service.become("shop", State.FAILED, "HR-STEP-001 a step failed")
    job = ask(rest, "GET", f"{JOBS}/shop").json
    assert job["reason"].startswith("HR-STEP-001") and "activate" in job["verbs"]
    assert replace(service.job("shop").job).json["state"] == "failed"
