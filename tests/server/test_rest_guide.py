"""The page about REST: its table is that of the routes, and its requests are answered."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools.routes import PAGE, with_table

from headrace.server.home import Home
from headrace.server.lifecycle import State
from headrace.server.prometheus import FAMILIES, metrics_of
from headrace.server.refusals import REQUESTS
from headrace.server.routes import TABLE
from tests.server.memory_service import STARTED, view
from tests.server.rest_client import TOKENS
from tests.server.test_prometheus import limited, read

TEXT = PAGE.read_text(encoding="utf-8")
CURLS = re.findall(r"^curl .*$", TEXT, re.MULTILINE)
SOURCE = Path(__file__).resolve().parents[2] / "src"


def test_the_table_is_that_by_which_requests_are_served():
    assert with_table(TEXT) == TEXT, "python -m tools.routes writes it"
    assert all(f"| `{r.method} {r.path}` |" in TEXT for r in TABLE)
    lies = TEXT.replace("| `GET /api/v1/jobs` | `read` |", "| `GET /api/v1/jobs` | |")
    assert lies != TEXT and with_table(lies) == TEXT


def test_every_status_of_a_refusal_is_explained():
    told = set(map(int, re.findall(r"\b[45]\d\d\b", TEXT[TEXT.index("An error is") :])))
    assert {*REQUESTS.values()} <= told


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
@pytest.mark.parametrize("line", CURLS, ids=range(len(CURLS)))
def test_every_request_of_the_page_is_answered(rest, service, tmp_path, line):
    service.become("shop", State.INACTIVE)
    home = Home(tmp_path / ".headrace" / "server")
    home.make()
    home.tokens_file.write_text(json.dumps(TOKENS))
    home.tokens_file.chmod(0o600)
    home.say_address(rest.url, STARTED)
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "headrace"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace_command "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ, "PYTHONPATH": str(SOURCE), "PATH": f"{command.parent}:{os.environ['PATH']}",
    }  # fmt: skip
    typed = line.replace("http://127.0.0.1:8780", rest.url).replace("curl ", "curl -sS --fail ", 1)
    done = subprocess.run(
        ["sh", "-c", typed], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_the_page_shows_requests():
    assert len(CURLS) >= 5


def test_every_metric_that_an_alert_names_exists():
    names = set(re.findall(r"\bheadrace_job_\w+[a-z]", TEXT))
    known = {name for name, _ in read(metrics_of([view("shop")], {"shop": limited()}))}
    whole = {name for name, (kind, _) in FAMILIES.items() if kind == "histogram"}
    assert names and names <= known | whole
