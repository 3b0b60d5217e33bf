"""`headrace doctor`, typed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.app import app
from headrace.cli.loading import load_job
from headrace.testing import Driver
from tests.terminal import forget

JOBS = Path(".headrace") / "jobs"
PROGRAM = """
import headrace as hr
job = hr.Job("shop")
orders = job.read("log:orders", name="orders")
spent = orders.key_by("k").agg(total=hr.sum("v"), unbounded=True, name="spent")
spent.write("files:totals", name="totals")
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("shop.py").write_text(PROGRAM)
    log = hr.EmbeddedLog()
    log.create("orders", schema="k string, v bigint")
    log.append("orders", [{"k": f"k{i % 3}", "v": i} for i in range(12)])
    driver = Driver(load_job(Path("shop.py")), JOBS / "shop", until=None, max_batch=4)
    driver.drain()
    driver.close()

    def type_in(*words: str) -> Any:
        try:
            return CliRunner().invoke(app, ["doctor", *words])
        finally:
            forget(tmp_path)

    return type_in


@pytest.mark.parametrize("place", ["shop", "shop.py", str(JOBS / "shop")])
def test_a_healthy_job_is_0(call, place):
    result = call(place)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("job shop in ") and result.stdout.endswith("healthy\n")


def test_a_damaged_job_is_1_and_says_what_to_do(call):
    victim = next((JOBS / "shop" / "runs").iterdir())
    victim.unlink()
    result = call("shop.py")
    assert result.exit_code == 1
    assert f"DAMAGED {victim.absolute()}" in result.stdout
    assert "  it is missing\n" in result.stdout
    assert result.stdout.splitlines()[-1] == "damaged: 1 file; the job does not start so"

    found = json.loads(call("shop", "--json").stdout)
    assert (found["healthy"], found["starts"]) == (False, False)
    (one,) = found["damage"]
    assert one["file"] == str(victim.absolute()) and one["repair"] is None
    assert any("headrace" in line or "backup" in line for line in found["advice"])


def test_a_job_whose_own_file_is_damaged_is_a_job(call):
    (JOBS / "shop" / "job.json").write_text("")
    result = call("shop")
    assert result.exit_code == 1 and "job.json" in result.stdout


def test_a_repair_is_done_and_said(call):
    (JOBS / "shop" / "published").unlink()
    (JOBS / "shop" / "published").mkdir()
    assert call("shop").exit_code == 1
    result = call("shop", "--repair")
    assert result.exit_code == 0, result.output
    assert "repaired: " in result.stdout and "published: removed" in result.stdout
    assert call("shop").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--topic", "orders"],
        [".headrace/log"],
        [".headrace/log/orders"],
        ["--log", ".headrace/log"],
    ],
)
def test_topics_are_looked_at_alone(call, words):
    result = call(*words)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("topic orders, 12 records: ")

    segment = next(Path(".headrace/log/orders").glob("*.log"))
    with segment.open("ab") as file:
        file.write(b"half a block")
    result = call(*words)
    assert result.exit_code == 0 and "12 bytes of an append that was not finished" in result.stdout
    assert "repaired: " in call(*words, "--repair").stdout
    assert "harmless" not in call(*words).stdout

    segment.write_bytes(segment.read_bytes()[:-20])
    result = call(*words)
    assert result.exit_code == 1 and f"DAMAGED {segment.absolute()}" in result.stdout
    assert "of partition 0 cannot be read" in result.stdout


@pytest.mark.parametrize(
    "words", [[], ["nobody"], ["nobody.py"], ["--topic", "none"], ["--nothing"], ["shop", "x"]]
)
def test_what_cannot_be_looked_at_is_2(call, words):
    assert call(*words).exit_code == 2


def test_a_job_that_runs_is_looked_at_and_not_repaired(call):
    driver = Driver(load_job(Path("shop.py")), JOBS / "shop", until=None)
    try:
        assert call("shop").exit_code == 0
        refused = call("shop", "--repair")
        assert refused.exit_code == 2 and "HR-DOCTOR-001" in refused.stderr
    finally:
        driver.close()
