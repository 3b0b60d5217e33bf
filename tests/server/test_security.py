"""Who is let in (RELIABILITY 27, 28): tokens, roles, cookies, hosts, origins, limits, paths."""

from __future__ import annotations

import gzip
import http.client
import inspect
import io
import json
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.errors import ServerError
from headrace.server import patience
from headrace.server import tokens as tokens_module
from headrace.server.http import HttpServer, serve
from headrace.server.lifecycle import State
from headrace.server.limits import Clients, Limits
from headrace.server.page_files import page_files
from headrace.server.prometheus import metrics_of
from headrace.server.routes import TABLE
from headrace.server.security import Door
from headrace.server.tokens import SESSION_SECONDS, Sessions, Tokens
from tests.server.memory_service import MemoryService, view
from tests.server.rest_client import TOKENS, ask
from tests.server.test_rest import BODIES, JOBS, every_route, path_of

WITH_TOKEN = [route for route in TABLE if route.role is not None]
with_token = pytest.mark.parametrize("route", WITH_TOKEN, ids=lambda r: f"{r.method} {r.path}")


# tokens


@with_token
@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", "Bearer wrong", f"Bearer {TOKENS['operate'][:-1]}", "Basic b3A6b3A=",
     f"Bearer {TOKENS['operate'].upper()}", f"Bearer {TOKENS['read']}{TOKENS['operate']}", None],
)  # fmt: skip
def test_every_route_is_refused_without_or_with_a_wrong_token(route, given, open_rest):
    rest, service = open_rest
    headers = {} if given is None else {"Authorization": given}
    body = BODIES.get(route.path) if route.method == "POST" else None
    answer = ask(rest, route.method, path_of(route), body, role=None, headers=headers)
    assert answer.status == 401 and answer.code in ("HR-SERVER-050", "HR-SERVER-051")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert service.asked == [] and service.job("shop").job.state == State.INACTIVE


@pytest.fixture(scope="module")
def open_rest() -> Iterator[tuple[HttpServer, MemoryService]]:
    """One server for many requests, of which none changes anything."""
    service = MemoryService("shop")
    with serve(service, port=0, tokens=TOKENS, limits=Limits(guesses=1_000_000)) as rest:
        yield rest, service


@every_route
def test_the_role_read_changes_nothing(route, open_rest):
    rest, service = open_rest
    if route.role != "operate":
        # what it may: nothing that makes an event
        assert route.method == "GET" or route.path.endswith(("/session", "/state/query"))
        return
    body = BODIES.get(route.path) if route.method == "POST" else None
    answer = ask(rest, route.method, path_of(route), body, role="read")
    assert (answer.status, answer.code) == (403, "HR-SERVER-052")
    assert service.asked == []


def test_tokens_are_compared_as_hashes_in_constant_time_each_with_all(monkeypatch):
    compared = list[tuple[int, int]]()
    real = tokens_module.hmac.compare_digest

    def watched(a, b):
        compared.append((len(a), len(b)))
        return real(a, b)

    monkeypatch.setattr(tokens_module.hmac, "compare_digest", watched)
    tokens = Tokens(TOKENS)
    for token in (TOKENS["read"], TOKENS["operate"], "x", "", "x" * 999):
        compared.clear()
        tokens.role_of(token)
        assert compared == [(32, 32)] * 2
    assert "==" not in inspect.getsource(Tokens.role_of)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"read": "short", "operate": "o" * 32}, "HR-SERVER-071"),
        ({"read": "r" * 32, "operate": "with a space in it and more"}, "HR-SERVER-071"),
        ({"read": "r" * 32, "owner": "o" * 32}, "HR-SERVER-071"),
        ({"read": "r" * 32}, "HR-SERVER-072"),
        ({"read": "r" * 32, "operate": "r" * 32}, "HR-SERVER-072"),
    ],
)
def test_tokens_that_are_none_are_refused_before_anything_starts(given, code):
    with pytest.raises(ServerError) as caught:
        serve(MemoryService(), port=0, tokens=given)
    assert caught.value.code == code
    assert not any(token in str(caught.value) for token in given.values())


def test_a_token_in_an_address_is_refused_also_if_it_is_right(rest):
    for name in ("token", "access_token"):
        answer = ask(rest, "GET", f"{JOBS}?{name}={TOKENS['operate']}")
        assert (answer.status, answer.code) == (400, "HR-SERVER-064")
        answer = ask(rest, "GET", f"{JOBS}?{name}={TOKENS['operate']}", role=None)
        assert answer.status == 401


def test_no_token_is_in_an_answer_or_on_the_screen(tmp_path):
    program = """
import http.client, logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
from headrace.server.http import serve
from tests.server.memory_service import MemoryService
from tests.server.rest_client import TOKENS, ask
class Failing(MemoryService):
    def jobs(self):
        raise ValueError("broken")
with serve(Failing("shop"), port=0, tokens=TOKENS) as rest:
    for role in TOKENS:
        for path in ("/api/v1/jobs", "/metrics", "/api/v1/jobs/shop", "/openapi.json", "/x"):
            for method in ("GET", "POST", "BREW"):
                print(ask(rest, method, path, {"token": TOKENS[role]}, role=role))
        print(ask(rest, "GET", "/api/v1/jobs?token=" + TOKENS[role]))
        print(ask(rest, "POST", "/api/v1/session", {"token": TOKENS[role]}).status)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=True,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    shown = done.stdout + done.stderr
    assert "broken" in shown and "HR-SERVER-059" in shown
    assert not any(token in shown for token in TOKENS.values())


# wrong tokens, and too many requests


class HandClock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_guesses_make_their_client_wait_longer_each_time_and_no_other():
    clock = HandClock()
    clients = Clients(Limits(), clock)
    waits = list[float]()
    for guess in range(40):
        clients.wrong("1.1.1.1", f"guess {guess}")
        waits.append(clients.waits("1.1.1.1"))
        clock.now += waits[-1]
    assert waits[:4] == [0.0] * 4 and waits[4:11] == [1, 2, 4, 8, 16, 32, 60] and max(waits) == 60
    assert clients.waits("2.2.2.2") == 0
    clock.now += Limits().forgive + 1
    clients.wrong("1.1.1.1", "one mistake")
    assert clients.waits("1.1.1.1") == 0


def test_a_program_with_an_old_token_locks_nobody_out():
    clients = Clients(Limits(), HandClock())
    for _ in range(1_000):
        clients.wrong("127.0.0.1", "the token before")
    assert clients.waits("127.0.0.1") == 0


def test_while_a_client_waits_no_token_is_looked_at(rest):
    for guess in range(5):
        given = {"Authorization": f"Bearer guess-{guess}-of-a-token"}
        assert ask(rest, "GET", JOBS, role=None, headers=given).status == 401
    answer = ask(rest, "GET", JOBS)  # the right one
    assert (answer.status, answer.code) == (429, "HR-SERVER-055")
    assert int(answer.headers["retry-after"]) >= 1
    answer = ask(rest, "POST", "/api/v1/session", {"token": TOKENS["read"]}, role=None)
    assert answer.status == 429


def test_too_many_requests_are_refused_with_the_time_to_wait():
    limits = Limits(rate=0.01, burst=3)
    with serve(MemoryService("shop"), port=0, tokens=TOKENS, limits=limits) as rest:
        assert [ask(rest, "GET", JOBS).status for _ in range(3)] == [200] * 3
        answer = ask(rest, "GET", JOBS)
        assert (answer.status, answer.code) == (429, "HR-SERVER-056")
        assert 90 < int(answer.headers["retry-after"]) <= 100
        assert ask(rest, "GET", "/").status == 429


def test_how_many_clients_are_remembered_is_bounded():
    clients = Clients(Limits(clients=10, burst=1, rate=0.001), HandClock())
    assert clients.request("first") == 0 and clients.request("first") > 0
    for number in range(10):
        clients.request(f"client {number}")
    assert len(clients._clients) == 10 and clients.request("first") == 0  # forgotten


# the session of the page


def test_the_page_exchanges_a_token_for_a_cookie_that_scripts_cannot_read(rest, service):
    answer = ask(rest, "POST", "/api/v1/session", {"token": TOKENS["operate"]}, role=None)
    assert answer.status == 200 and answer.json == {"role": "operate"}
    cookie, *flags = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={SESSION_SECONDS}"} == set(flags)
    assert TOKENS["operate"] not in cookie
    own = f"http://127.0.0.1:{rest.port}"
    page = {"Cookie": f"other=1; {cookie}", "Origin": own, "Sec-Fetch-Site": "same-origin"}
    assert ask(rest, "GET", "/api/v1/server", role=None, headers=page).json["role"] == "operate"
    assert ask(rest, "POST", f"{JOBS}/shop/activate", role=None, headers=page).status == 200

    over = ask(rest, "DELETE", "/api/v1/session", role=None, headers=page)
    assert over.status == 204 and "Max-Age=0" in over.headers["set-cookie"]
    refused = ask(rest, "GET", JOBS, role=None, headers=page)
    assert (refused.status, refused.code) == (401, "HR-SERVER-050")
    assert "session has ended" in refused.json["error"]["fact"]


def test_a_wrong_token_gets_no_session(rest):
    for token in ("", "wrong", TOKENS["read"] + "x"):
        answer = ask(rest, "POST", "/api/v1/session", {"token": token}, role=None)
        assert answer.status in (401, 422) and "set-cookie" not in answer.headers


def test_a_session_ends_with_its_time_and_with_its_token_and_survives_a_restart():
    clock = HandClock()
    sessions = Sessions(Tokens(TOKENS), clock)
    cookie = sessions.start("read")
    assert sessions.role_of(cookie) == "read"
    assert Sessions(Tokens(TOKENS), clock).role_of(cookie) == "read"  # after a restart
    changed = Tokens({**TOKENS, "read": "another-token-of-the-role"})
    assert Sessions(changed, clock).role_of(cookie) is None
    clock.now += SESSION_SECONDS
    assert sessions.role_of(cookie) is None


def test_a_session_that_was_ended_stays_so_after_a_restart(tmp_path):
    clock, file = HandClock(), tmp_path / "sessions.json"
    sessions = Sessions(Tokens(TOKENS), clock, file)
    one, other = sessions.start("operate"), sessions.start("read")
    sessions.end(one)
    for _ in range(2):
        sessions = Sessions(Tokens(TOKENS), clock, file)
        assert (sessions.role_of(one), sessions.role_of(other)) == (None, "read")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert one.split(".")[3] not in file.read_text()  # not what the cookie is signed with
    for damage in ("", "[]", "{", '{"a": "x"}', "\xff"):
        file.write_text(damage)
        clock.now += 1
        sessions = Sessions(Tokens(TOKENS), clock, file)
        assert (sessions.role_of(one), sessions.role_of(other)) == (None, None)
        fresh = sessions.start("read")
        assert sessions.role_of(fresh) == "read"
        sessions.end(fresh)
        assert sessions.role_of(fresh) is None
    clock.now += SESSION_SECONDS
    sessions.end(sessions.start("read"))
    assert len(json.loads(file.read_text())) == 1  # those that are over are forgotten


def test_a_session_whose_end_cannot_be_stored_ends_and_says_so(tmp_path):
    sessions = Sessions(Tokens(TOKENS), HandClock(), tmp_path / "gone" / "sessions.json")
    cookie = sessions.start("read")
    with pytest.raises(ServerError, match="HR-SERVER-037"):
        sessions.end(cookie)
    assert sessions.role_of(cookie) is None


def test_a_cookie_that_was_changed_in_any_character_is_none():
    sessions = Sessions(Tokens(TOKENS), HandClock())
    cookie = sessions.start("read")
    for at in range(len(cookie)):
        other = "1" if cookie[at] != "1" else "2"
        assert sessions.role_of(cookie[:at] + other + cookie[at + 1 :]) is None
    assert sessions.role_of(cookie.replace("read", "operate", 1)) is None
    for junk in ("", ".", "...", "read.9999999999..", "é.1.a.b", "x" * 5_000, f"{cookie}.x"):
        assert sessions.role_of(junk) is None


# hosts and origins


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example",
     "10.0.0.1", "0.0.0.0", "", "127.0.0.1@evil.example", "evil.example/127.0.0.1", "[::2]",
     "127.0.0.1:x", "localhost\\@evil.example"],
)  # fmt: skip
def test_a_name_that_nobody_gave_the_server_is_refused_everywhere(open_rest, host):
    rest, _ = open_rest
    for path in ("/", JOBS, "/metrics", "/page/js/main.js", "/nothing"):
        answer = ask(rest, "GET", path, headers={"Host": host.format(port=rest.port)})
        assert answer.status in (400, 403)
        if answer.status == 403:
            assert answer.code == "HR-SERVER-057"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:{port}", "127.0.0.1:{port}", "[::1]"])
def test_the_names_of_loopback_are_let_in(open_rest, host):
    rest, _ = open_rest
    assert ask(rest, "GET", JOBS, headers={"Host": host.format(port=rest.port)}).status == 200


def test_names_are_those_of_the_owner_and_0000_means_every_address():
    tokens = Tokens(TOKENS)
    named = Door(tokens, "box.example", 1, ("jobs.example",))
    for host in ("box.example", "jobs.example:443", "BOX.example.", "localhost"):
        named.check_host([host])
    for hosts in (["10.0.0.7"], ["a.example"], [], ["localhost", "localhost"]):
        with pytest.raises(ServerError, match="HR-SERVER-057"):
            named.check_host(hosts)
    every = Door(tokens, "0.0.0.0", 1)
    for host in ("10.0.0.7:8780", "[2001:db8::1]:8780"):
        every.check_host([host])
    with pytest.raises(ServerError, match="HR-SERVER-057"):
        every.check_host(["rebound.example"])


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "file://",
     "http://127.0.0.1.evil.example", "chrome-extension://abc", "http://u@127.0.0.1", ""],
)  # fmt: skip
def test_the_page_of_another_site_may_ask_nothing(open_rest, origin):
    rest, service = open_rest
    for method, path in (("POST", f"{JOBS}/shop/kill"), ("DELETE", f"{JOBS}/shop"), ("GET", JOBS),
                         ("POST", "/api/v1/session"), ("OPTIONS", JOBS)):  # fmt: skip
        body = BODIES.get(path) if method == "POST" else None
        answer = ask(rest, method, path, body, headers={"Origin": origin})
        assert (answer.status, answer.code) == (403, "HR-SERVER-058"), (method, path)
        assert not [h for h in answer.headers if h.startswith("access-control")]
    assert service.asked == []


def test_a_cookie_changes_nothing_unless_the_browser_says_where_it_was(rest, service):
    role, cookie = "operate", ask(rest, "POST", "/api/v1/session", {"token": TOKENS["operate"]})
    page = {"Cookie": cookie.headers["set-cookie"].split(";")[0]}
    for more in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        answer = ask(rest, "POST", f"{JOBS}/shop/activate", role=None, headers={**page, **more})
        assert answer.code == "HR-SERVER-058", role
    assert ask(rest, "GET", JOBS, role=None, headers=page).status == 200
    crossed = {**page, "Sec-Fetch-Site": "cross-site"}
    assert ask(rest, "GET", JOBS, role=None, headers=crossed).status == 403
    assert service.job("shop").job.state == State.INACTIVE


# paths

TRAVERSALS = [
    "/../{f}", "/page/../{f}", "/page/../../{f}", "/page/%2e%2e/%2e%2e/{f}", "/page/..%2f..%2f{f}",
    "/page/..%5c..%5c{f}", "/page/....//....//{f}", "/page/%252e%252e%252f{f}", "/page//{f}",
    "/page/{f}", "/page/./../{f}", "/page/%00/{f}", "/page/index.html%00.js", "/page/\\..\\{f}",
    "/page/..;/{f}", "/page/%c0%ae%c0%ae/{f}", "/page/%uff0e%uff0e/{f}", "/page/..%00/{f}",
    "//{f}", "/page/~/{f}", "/page/file:///{f}", "/page/__init__.py", "/page/../app.py",
    JOBS + "/..%2f..%2f{f}/logs", JOBS + "/%2e%2e/logs", JOBS + "/../../{f}",
    JOBS + "/shop/savepoints/..%2f..%2f{f}", JOBS + "/shop/logs?run=../{f}",
    JOBS + "/shop/plan.svg/../../{f}", JOBS + "/shop%2f..%2f{f}",
]  # fmt: skip


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_reads_what_is_outside(open_rest, tmp_path, path):
    rest, _ = open_rest
    (tmp_path / "secret.txt").write_text("the content of a file outside")
    for file in ("etc/passwd", str(tmp_path / "secret.txt").lstrip("/"), "secret.txt"):
        answer = ask(rest, "GET", path.format(f=file))
        assert answer.status in (400, 404, 405, 422), answer.body
        assert b"root:" not in answer.body and b"content of a file" not in answer.body


def test_only_the_files_of_the_page_are_served_by_their_exact_names(tmp_path):
    (tmp_path / "page" / "js").mkdir(parents=True)
    (tmp_path / "page" / "index.html").write_text("<p>page")
    (tmp_path / "page" / "js" / "a.js").write_text("1")
    (tmp_path / "page" / "notes.py").write_text("secret = 1")
    (tmp_path / "outside.js").write_text("2")
    found = page_files(tmp_path / "page")
    page, script = sorted(found)
    assert page == "" and re.fullmatch("page/[0-9a-f]{16}/js/a.js", script)


def test_no_route_takes_code(rest, service):
    """A program is a path; a name that says otherwise is only a name."""
    fields = {f for r in TABLE if r.body for f in r.body["properties"]}
    assert not fields & {"code", "source", "script", "command", "module", "env", "file", "content"}
    for program in ("/etc/passwd", "/jobs/../etc/passwd.py", "http://evil.example/a.py"):
        answer = ask(rest, "POST", JOBS, {"program": program})
        assert (answer.status, answer.code) == (403, "HR-SERVER-004")
    assert service.asked == []


# what browsers are told


def test_every_answer_carries_the_headers_that_browsers_keep_to(rest):
    for path, role in (("/", None), (JOBS, "read"), (JOBS, None), ("/nothing", "read"),
                       ("/metrics", "read"), (f"{JOBS}/shop/plan.svg", "read")):  # fmt: skip
        answer = ask(rest, "GET", path, role=role)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "script-src" not in answer.headers["content-security-policy"] or path == "/"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        kept = "no-cache" if path == "/" and answer.status == 200 else "no-store"
        assert answer.headers["cache-control"] == kept
        assert "server" not in answer.headers


def test_files_of_the_page_are_fetched_once_and_the_page_each_time(rest):
    page = ask(rest, "GET", "/", role=None)
    script = re.search(rb'src="(page/[^"]+main.js)"', page.body)
    assert script is not None and page.headers["cache-control"] == "no-cache"
    tag = {"If-None-Match": page.headers["etag"]}
    assert ask(rest, "GET", "/", role=None, headers=tag).status == 304
    path = f"/{script[1].decode()}"
    plain = ask(rest, "GET", path, role=None)
    assert "immutable" in plain.headers["cache-control"]
    packed = ask(rest, "GET", path, role=None, headers={"Accept-Encoding": "br, gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body and len(packed.body) < len(plain.body)
    assert ask(rest, "GET", path.replace("page/", "page/0"), role=None).status == 404


# where it listens


def test_it_listens_on_loopback_unless_it_is_told(service):
    assert inspect.signature(serve).parameters["host"].default == "127.0.0.1"
    for host in ("0.0.0.0", "::", "192.168.1.1", "box.example"):
        with pytest.raises(ServerError) as caught:
            serve(service, host, 0, tokens=TOKENS)
        assert caught.value.code == "HR-SERVER-075"
    with serve(service, "0.0.0.0", 0, tokens=TOKENS, plain_http=True) as rest:
        assert ask(rest, "GET", JOBS).status == 200


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost "
        "-addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    )
    subprocess.run(
        [*command.split(), "-keyout", key, "-out", cert], check=True, capture_output=True
    )
    return cert, key


def test_with_tls_it_speaks_nothing_else_and_the_cookie_is_secure(service, certificate):
    import ssl

    cert, key = certificate
    with serve(service, "0.0.0.0", 0, tokens=TOKENS, cert=cert, key=key) as rest:
        assert rest.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(cert))
        connection = http.client.HTTPSConnection("localhost", rest.port, context=context)
        body = json.dumps({"token": TOKENS["read"]})
        connection.request("POST", "/api/v1/session", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith("__Host-") and "Secure" in cookie.split("; ")
        connection.close()
        plain = http.client.HTTPConnection("127.0.0.1", rest.port)
        plain.request("GET", "/", headers={"Authorization": f"Bearer {TOKENS['read']}"})
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            plain.getresponse()
        plain.close()


def test_a_certificate_that_is_none_is_refused_by_name(service, certificate, tmp_path):
    cert, key = certificate
    (tmp_path / "junk.pem").write_text("junk")
    for pair in (
        (cert, None),
        (None, key),
        (cert, tmp_path / "no.pem"),
        (tmp_path / "junk.pem", key),
    ):
        with pytest.raises(ServerError) as caught:
            serve(service, port=0, tokens=TOKENS, cert=pair[0], key=pair[1])
        assert caught.value.code == "HR-SERVER-077"


# hostile names


def test_hostile_names_have_no_effect_on_metrics():
    hostile = 'x"} 1\nheadrace_job_state{job="other",state="running"} 1\n\\'
    text = metrics_of([view(hostile, State.RUNNING)], {})
    lines = [line for line in io.StringIO(text) if not line.startswith("#")]
    assert len(lines) == 9 + 3 and all(re.match(r"headrace_job_\w+{job=\"x\\\"} 1\\n", line)
                                       for line in lines)  # fmt: skip


def test_who_opens_connections_and_asks_nothing_keeps_nobody_out(service, monkeypatch):
    """Neither by many, nor by one letter after the other."""
    monkeypatch.setattr(patience, "_FULL", 8)
    with serve(service, port=0, tokens=TOKENS) as rest, ExitStack() as open_ones:
        for number in range(40):
            silent = socket.create_connection(("127.0.0.1", rest.port))
            open_ones.callback(silent.close)
            silent.sendall(b"GET / HTTP/1.1\r\nX-Letters: a"[: number + 1])
            if number % 10 == 9:
                assert ask(rest, "GET", JOBS).status == 200
        silent.settimeout(60)
        monkeypatch.setattr(patience, "HEAD_SECONDS", 0.2)
        late = socket.create_connection(("127.0.0.1", rest.port))
        open_ones.callback(late.close)
        late.settimeout(60)
        late.sendall(b"GET / HTTP/1.1\r\n")
        assert late.recv(1) == b""
        # One that asks is given its time, however short that to ask is.
        assert ask(rest, "GET", JOBS).status == 200


def test_a_clock_that_is_set_back_locks_nobody_out():
    clock = HandClock()
    door = Door(Tokens(TOKENS), "127.0.0.1", 8780, clock=clock)
    door.count("127.0.0.1")
    clock.now -= 3600
    for _ in range(100):
        door.count("127.0.0.1")
    assert door.role(TOKENS["read"], "127.0.0.1") == "read"
