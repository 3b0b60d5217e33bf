"""`hr.connect_server`: what scripts do with a server, and what they are told when they cannot."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.server import client as client_module
from headrace.server.client import ServedJob, ServerConnection
from headrace.server.home import Home
from headrace.server.http import serve
from headrace.server.lifecycle import State, Verb
from headrace.server.values import JobView
from tests.server.memory_service import FIGURES, STARTED, MemoryService
from tests.server.rest_client import TOKENS
from tests.server.worlds import World, program


@pytest.fixture
def server(rest) -> ServerConnection:
    return hr.connect_server(rest.url, TOKENS["operate"])


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setattr(client_module, "_LOOK_EVERY", 0.01)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_SERVER_TOKEN", raising=False)


def refused(call, code: str) -> str:
    with pytest.raises(hr.HeadraceError) as caught:
        call()
    assert caught.value.code == code, caught.value
    assert not any(token in str(caught.value) for token in TOKENS.values())
    return str(caught.value)


def test_jobs_are_the_values_that_the_server_has(server, service):
    assert server.jobs() == service.jobs()
    assert server.info() == service.info() and server.role == "operate"
    job = server.job("fire alarm")
    assert job.details() == service.job("fire alarm")
    assert job.view.state is State.INACTIVE and job.figures() == FIGURES
    assert job.details().verbs[0] is Verb.ACTIVATE
    assert job.logs(limit=2) == service.logs("fire alarm", limit=2)
    assert job.series("rate_in", points=5) == service.series("fire alarm")
    assert service.asked[-2] == ("series", {"names": ["rate_in"], "points": 5})
    assert job.why() == {"job": "fire alarm", "reasons": []}
    assert job.plan()["job"] == "fire alarm" and job.dead(limit=1)["total"] == 0


def test_every_verb_is_a_method(server, service):
    job = server.submit("/jobs/new.py", activate=False, parallelism=2)
    assert service.asked[-1] == ("submitted", {"options": {"parallelism": 2}})
    assert repr(job) == f"<job 'new' on the server at {server.url}>"
    assert job.activate().state is State.STARTING
    service.become("new", State.RUNNING)
    assert job.rebalance(8).parallelism == 8
    service.become("new", State.RUNNING)
    assert job.restart().state is State.STOPPING
    service.become("new", State.RUNNING)
    plan = job.plan_upgrade("/jobs/b.py", drop=["x"])
    assert not plan.refused and "same" in plan.text
    assert service.asked[-1] == ("plan_upgrade", {"program": "/jobs/b.py", "drop": ["x"]})
    assert job.upgrade(note="n").version == 2
    service.become("new", State.RUNNING)
    assert job.drain().state is State.DRAINING
    assert job.deactivate().state is State.STOPPING
    assert job.kill().state is State.KILLED
    assert [event.kind for event in job.events()][:2] == ["submitted", "activate"]
    assert server.events(after=1, limit=1)[0].id == 2
    job.remove()
    refused(lambda: server.job("new"), "HR-SERVER-001")


def test_every_verb_of_the_table_is_there():
    for verb in set(Verb) - {Verb.SUBMIT}:
        assert callable(getattr(ServedJob, str(verb)))


def test_what_the_server_refuses_is_raised_as_it_was_there(server):
    text = refused(server.job("shop").deactivate, "HR-SERVER-002")
    assert "not legal for job 'shop', which is inactive" in text and "activate" in text
    refused(lambda: server.submit("/etc/x.py"), "HR-SERVER-004")


class Refusing(MemoryService):
    """It raises what it is told."""

    error: Exception

    def jobs(self):
        raise self.error


@pytest.mark.parametrize("kind", [hr.PlanError, hr.StateError, hr.FencedError, hr.StepError])
def test_an_error_keeps_its_class(kind):
    service = Refusing()
    service.error = kind("HR-PLAN-010", "'?' cannot name a job", "Begin with a letter.")
    with serve(service, port=0, tokens=TOKENS) as rest:
        connected = hr.connect_server(rest.url, TOKENS["read"])
        with pytest.raises(HeadraceError) as caught:
            connected.jobs()
    assert type(caught.value) is kind
    assert str(caught.value) == str(service.error)


def test_a_reader_may_look_and_is_told_which_token_to_use(rest):
    reader = hr.connect_server(rest.url, TOKENS["read"])
    assert reader.role == "read" and reader.job("shop").state == "inactive"
    assert "role 'operate'" in refused(reader.job("shop").activate, "HR-SERVER-052")


def test_a_wrong_token_no_token_and_a_token_that_cannot_be_one(rest, monkeypatch):
    wrong = hr.connect_server(rest.url, "some-other-token")
    assert "headrace server token" in refused(wrong.jobs, "HR-SERVER-051")
    assert "HEADRACE_SERVER_TOKEN" in refused(lambda: hr.connect_server(rest.url), "HR-SERVER-082")
    for token in ("a\nb", "ü" * 20, "x" * 5_000):
        refused(lambda token=token: hr.connect_server(rest.url, token), "HR-SERVER-082")
    monkeypatch.setenv("HEADRACE_SERVER_TOKEN", TOKENS["read"])
    assert hr.connect_server(rest.url).role == "read"


@pytest.mark.parametrize(
    "url",
    ["box:8780", "ftp://box", "http://", "http://box:port", "http://me:secret@box", "http://[::1",
     "http://box/path", "http://box?token=secret", "http://box#secret"],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_its_secrets(url):
    assert "secret" not in refused(lambda: hr.connect_server(url, TOKENS["read"]), "HR-SERVER-081")


def test_a_server_that_is_gone(service):
    with serve(service, port=0, tokens=TOKENS) as rest:
        server = hr.connect_server(rest.url, TOKENS["read"])
        assert len(server.jobs()) == 2
    assert f"no server at {rest.url}" in refused(server.jobs, "HR-SERVER-080")


class Canned(BaseHTTPRequestHandler):
    """It answers everything alike."""

    answer: tuple[int, str, bytes] = (200, "text/html", b"<p>router")

    def do_GET(self) -> None:
        status, kind, content = self.answer
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Location", "http://elsewhere.example/")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def answering(status: int, kind: str, content: bytes) -> Iterator[ServerConnection]:
    handler = type("Handler", (Canned,), {"answer": (status, kind, content)})
    with HTTPServer(("127.0.0.1", 0), handler) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            yield hr.connect_server(f"http://127.0.0.1:{other.server_port}", TOKENS["read"])
        finally:
            other.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "kind", "content"),
    [
        (200, "text/html", b"<p>the page of a router"),
        (302, "text/html", b"moved"),
        (200, "application/json", b"{"),
        (500, "application/json", b'{"detail": "x"}'),
        (404, "application/json", b"[]"),
    ],
)
def test_something_else_that_answers_there_is_no_server(status, kind, content):
    with answering(status, kind, content) as other:
        assert "is no server of Headrace" in refused(other.jobs, "HR-SERVER-083")


def test_a_port_that_does_not_speak_http():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(10_000)
            connection.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        other = hr.connect_server(f"http://127.0.0.1:{listener.getsockname()[1]}", TOKENS["read"])
        refused(other.jobs, "HR-SERVER-083")
        thread.join()


def test_a_server_of_another_version_is_named_as_such(service):
    job = service.jobs()[0].json
    older = {name: value for name, value in job.items() if name != "capacity"}
    newer = {**job, "planet": "mars"}
    unknown = {**job, "state": "hibernating"}
    for row, words in ((older, "lacks 'capacity'"), (unknown, "the state 'hibernating'")):
        with answering(200, "application/json", json.dumps({"jobs": [row]}).encode()) as other:
            assert words in refused(other.jobs, "HR-SERVER-084")
    with answering(200, "application/json", json.dumps({"jobs": [newer]}).encode()) as other:
        assert other.jobs() == service.jobs()[:1]  # what is new there is left out
    gone = {"error": {"code": "HR-SERVER-053", "fact": "there is no '/x'", "hint": None}}
    with answering(404, "application/json", json.dumps(gone).encode()) as other:
        assert "another version" in refused(other.jobs, "HR-SERVER-084")


def test_wait_returns_when_it_is_there_and_says_why_it_will_not_be(server, service):
    job = server.job("shop")
    job.activate()
    timer = threading.Timer(0.1, service.become, ("shop", State.RUNNING))
    timer.start()
    assert job.wait("running", timeout=30).state == "running"
    timer.join()
    assert "after 0 s" in refused(lambda: job.wait("ended", timeout=0), "HR-SERVER-085")
    service.become("shop", State.FAILED, "HR-STEP-001 it raised")
    text = refused(lambda: job.wait(("running", "ended")), "HR-SERVER-086")
    assert "is failed, and stays so: HR-STEP-001 it raised" in text
    assert job.wait("failed").reason == "HR-STEP-001 it raised"
    assert "'runing'" in refused(lambda: job.wait("runing"), "HR-SERVER-089")


def test_wait_outlasts_a_server_that_is_started_again(service):
    first = serve(service, port=0, tokens=TOKENS)
    job = hr.connect_server(first.url, TOKENS["operate"]).job("shop")
    job.activate()
    first.close()
    found = list[JobView]()
    waiting = threading.Thread(target=lambda: found.append(job.wait("running", timeout=60)))
    waiting.start()
    service.become("shop", State.RUNNING)
    with serve(service, port=first.port, tokens=TOKENS):
        waiting.join()
    assert found[0].state == "running"


def test_without_an_address_it_is_the_server_of_this_folder(service, tmp_path, monkeypatch):
    assert "no server is known here" in refused(hr.connect_server, "HR-SERVER-088")
    home = Home(tmp_path / ".headrace" / "server")
    home.make()
    home.tokens_file.write_text(json.dumps(TOKENS))
    home.tokens_file.chmod(0o600)
    with serve(service, port=0, tokens=TOKENS) as rest:
        home.say_address(rest.url, STARTED)
        assert hr.connect_server().url == rest.url
        assert hr.connect_server(rest.url).role == "operate"
        home.tokens_file.chmod(0o644)
        refused(hr.connect_server, "HR-SERVER-073")
        monkeypatch.setenv("HEADRACE_SERVER_URL", "http://192.0.2.1:1")
        refused(hr.connect_server, "HR-SERVER-082")  # that one's token is not known here


def test_lines_are_followed_into_the_next_run(server, service):
    lines = server.job("shop").follow_logs(limit=2)
    assert [next(lines), next(lines)] == ["started", "epoch 1"]
    assert next(lines) == "epoch 2"


def test_no_value_is_without_its_field_in_the_interface():
    """What the client reads of an answer is what the document promises."""
    from headrace.server.schemas import COMPONENTS

    assert {one.name for one in fields(JobView)} == set(COMPONENTS["Job"]["required"])


def test_a_whole_life_over_the_wire_with_real_processes(world: World) -> None:
    path = world.write("shop.py", program())
    world.send('{"k": "a", "n": 1}', '{"k": "b", "n": 2}')
    daemon = world.open()
    with serve(daemon.service, port=0, tokens=daemon.tokens) as rest:
        server = hr.connect_server(rest.url, daemon.tokens["operate"])
        job = server.submit(path)
        assert job.wait("running").pid is not None
        world.until(lambda: (job.figures() or {}).get("totals", {}).get("read") == 2)
        assert job.view.epoch >= 1 and job.series("rate_in").times
        shown = job._repr_html_()
        assert "running for" in shown and "<summary>plan</summary>" in shown and ">sums<" in shown
        refused(lambda: server.submit(path), "HR-SERVER-003")
        refused(lambda: server.submit("/etc/passwd"), "HR-SERVER-004")
        refused(job.activate, "HR-SERVER-002")
        assert any("epoch" in line or line for line in job.logs().lines) or job.logs().runs
        job.deactivate()
        job.wait("inactive")
        job.activate()
        job.wait("running")
        job.drain()
        assert job.wait("ended").reason
        kinds = [event.kind for event in job.events()]
        assert kinds[0] == "submitted" and "running" in kinds
        assert Path(job.view.folder).is_dir()
        folder = Path(job.view.folder)
        job.remove()
        assert server.jobs() == [] and folder.is_dir()


def test_in_a_notebook_a_job_shows_itself_with_figures_and_plan(server, service):
    service.become("shop", State.FAILED, "HR-STEP-001 <i>it</i> raised")
    shown = server.job("shop")._repr_html_()
    assert "<b>shop</b>" in shown and "failed for" in shown and "version 1" in shown
    assert "HR-STEP-001 &lt;i&gt;it&lt;/i&gt; raised" in shown
    assert ">1200</b>" in shown and ">1.5s</b>" in shown and "avg temp" in shown
    table = server._repr_html_()
    assert server.url in table and "fire alarm" in table and "&lt;i&gt;" in table
    service.figures_now.clear()
    assert "rows/s" not in server.job("shop")._repr_html_()


def test_in_a_notebook_a_server_that_is_gone_is_said_to_be(service):
    with serve(service, port=0, tokens=TOKENS) as rest:
        server = hr.connect_server(rest.url, TOKENS["read"])
        job = server.job("shop")
    assert "no server at" in server._repr_html_() and "no server at" in job._repr_html_()
