"""`headrace forget`, typed: what it prints, and how it ends."""

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

PROGRAM = """
import headrace as hr
job = hr.Job("shop")
orders = job.read("log:orders", name="orders")
spent = orders.key_by("customer").agg(n=hr.count(), unbounded=True, name="spent")
spent.write("collect:", name="o")
orders.key_by("shop").agg(who=hr.collect("customer"), unbounded=True, name="seen").select(
    "who"
).write("console:", name="shown")
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("shop.py").write_text(PROGRAM)
    log = hr.EmbeddedLog()
    log.create("orders", schema="customer string, shop string")
    log.append("orders", [{"customer": c, "shop": None} for c in ("c-17", "c-18")])
    driver = Driver(load_job(Path("shop.py")), Path(".headrace/jobs/shop"), until=None)
    driver.drain()
    driver.close()

    def type_in(*words: str) -> Any:
        try:
            return CliRunner().invoke(app, list(words))
        finally:
            forget(tmp_path)

    return type_in


def test_what_still_occurs_is_named_and_it_ends_with_1(call):
    typed = call("forget", "shop", "--key", "customer=c-17")
    assert typed.exit_code == 1
    assert "  state of step spent: 1 rows\n" in typed.output
    assert "still occurs 1 times in state of step 'seen'" in typed.output
    assert "--drop seen" in typed.output and "output shown (console console:)" in typed.output


def test_a_dry_run_changes_nothing_and_prints_json(call):
    typed = call("forget", "shop.py", "--key", "customer=c-18", "--dry-run", "--json")
    assert typed.exit_code == 0
    facts = json.loads(typed.output)
    assert facts["dry_run"] and not facts["gone"]
    assert {one["what"]: one["count"] for one in facts["erased"]}["topic orders"] == 1
    assert len(hr.collected(".headrace/jobs/shop", "o")) == 2


def test_a_value_that_nobody_has_ends_with_3(call):
    typed = call("forget", "shop", "--key", "customer=c-99")
    assert typed.exit_code == 3 and "nothing found" in typed.output


def test_a_column_that_is_not_there_and_keys_without_one_are_refused(call):
    typed = call("forget", "shop", "--key", "costumer=c-17")
    assert typed.exit_code == 1 and "HR-FORGET-003" in typed.output
    assert "Did you mean 'customer'" in typed.output
    typed = call("forget", "shop", "--key", "c-17")
    assert typed.exit_code == 1 and "HR-FORGET-002" in typed.output
    assert call("forget", "shop", "--key", "a=1", "--key", "c-17").exit_code == 2
