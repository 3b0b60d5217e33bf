"""The page of the demo: it shows the job, allows nothing, and ends without a trace of a process."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from examples.demo.page import page

import headrace as hr
from headrace.cli.loading import load_job
from headrace.server.home import Home
from headrace.testing import Driver

PROGRAM = """
import headrace as hr

job = hr.Job("shown")
rows = job.read(hr.generate(None, lambda n: {"n": n}, total=30), name="rows")
rows.key_by("n").agg(m=hr.count(), unbounded=True, name="sums").write("collect:", name="out")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "programs" / "shown.py"
    path.parent.mkdir()
    path.write_text(PROGRAM)
    return path


def test_the_job_is_there_to_look_at_and_nothing_more(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job, folder = load_job(program), tmp_path / "job"
    with page(job, program, folder, tmp_path) as address:
        assert address is not None
        url, _, token = address.partition("/#token=")
        assert urlsplit(url).hostname == "127.0.0.1"
        server = hr.connect_server(url, token)
        assert server.role == "read"
        shown = server.job("shown")
        assert shown.figures() is None and shown.plan()["job"] == "shown"
        driver = Driver(load_job(program), folder)
        try:
            driver.drain()
            deadline = time.monotonic() + 60
            while shown.figures() is None and time.monotonic() < deadline:
                pass  # each question is a request, which takes its time
            assert (shown.figures() or {})["totals"]["read"] == 30
            assert shown.state == "running" and shown.details().versions[0].by == "the demo"
            with pytest.raises(hr.ServerError, match="role 'operate'"):
                shown.kill()
        finally:
            driver.close()
    home = Home(tmp_path / "server")
    assert not home.is_held() and home.address() is None
    assert token not in json.dumps(json.loads(home.tokens_file.read_text()))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=5)


def test_without_the_extra_there_is_no_page_and_no_error(program, tmp_path, monkeypatch):
    for name in ("uvicorn", "starlette", "starlette.concurrency"):
        monkeypatch.setitem(sys.modules, name, None)
    with page(load_job(program), program, tmp_path / "job", tmp_path) as address:
        assert address is None
