"""A window without end or trigger over an endless input is refused before Spark starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import triggers as t
from headrace.clock import SystemClock
from headrace.driver.never_firing import refuse_never_firing
from headrace.epoch.bundle import open_inputs
from headrace.errors import PlanError
from headrace.plan.program import build


def _job(tmp_path: Path, **said: Any) -> hr.Job:
    log = hr.EmbeddedLog(tmp_path / "log")
    log.create("rows", schema="k string, at bigint", exist_ok=True)
    job = hr.Job("silent", folder=str(tmp_path / "job"))
    rows = job.read("log:rows", log=tmp_path / "log", time="at", delay="1s")
    some = job.read(hr.rows([("a", 1)], "k string, at bigint"), time="at", delay="1s", name="some")
    both = rows.union(some.where("k <> 'x'"))
    both.key_by("k").window(hr.everything(), **said).agg(n=hr.count(), name="all").write("console:")
    return job


def _check(job: hr.Job, tmp_path: Path, until: str | None) -> None:
    program = build(job)
    ids = {r.name: r.name for r in program.sources()}
    sources = open_inputs(program, str(tmp_path / "job"), until, SystemClock(), ids)
    refuse_never_firing(program, sources)


def test_a_run_is_refused_with_the_step_and_the_input(tmp_path: Path) -> None:
    job = _job(tmp_path)
    with pytest.raises(PlanError, match=r"HR-TRIGGER-013 step 'all' .* 'rows' does not end") as no:
        hr.run(job, quiet=True)
    assert no.value.site is not None and no.value.site.file == __file__
    assert 'until="end"' in (no.value.hint or "")


def test_it_may_run_to_the_end_or_with_a_trigger(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="HR-TRIGGER-013"):
        _check(_job(tmp_path), tmp_path, None)
    _check(_job(tmp_path), tmp_path, "end")
    _check(_job(tmp_path, trigger=t.after_rows(2)), tmp_path, None)
    _check(_job(tmp_path, trigger=t.at_watermark(early=t.every("1m"))), tmp_path, None)


def test_a_trigger_that_only_the_end_lets_fire_is_none(tmp_path: Path) -> None:
    end = t.at_watermark()
    for waits in (t.first(end), t.all_of(end, t.after_rows(2)), t.any_of(end, t.first(end))):
        with pytest.raises(PlanError, match="HR-TRIGGER-013"):
            _check(_job(tmp_path, trigger=waits), tmp_path, None)
    _check(_job(tmp_path, trigger=t.any_of(end, t.after_rows(2))), tmp_path, None)


def test_an_input_that_ends_by_itself_will_do(tmp_path: Path) -> None:
    job = hr.Job("silent")
    some = job.read(hr.rows([("a", 1)], "k string, at bigint"), time="at", delay="1s")
    some.key_by("k").window(hr.everything()).agg(n=hr.count()).write("console:")
    _check(job, tmp_path, None)


def test_rules_may_be_endless(tmp_path: Path) -> None:
    """They do not hold a watermark back, so the window ends with the rows."""

    class Ruled(hr.KeyedProcess):
        rules = hr.shared_map(str, int)
        output = "k string, at bigint"

        def on_rows(self, row: Any, ctx: Any) -> Any:
            return row

        def on_rule(self, row: Any, ctx: Any) -> None:
            self.rules[row.k] = row.at

    log = hr.EmbeddedLog(tmp_path / "log")
    log.create("rule", schema="k string, at bigint")
    job = hr.Job("ruled")
    rows = job.read(hr.rows([("a", 1)], "k string, at bigint"), time="at", delay="1s", name="rows")
    rules = job.read("log:rule", log=tmp_path / "log")
    ruled = hr.connect(rows=rows.key_by("k"), rule=rules.broadcast()).process(Ruled())
    ruled.key_by("k").window(hr.everything()).agg(n=hr.count()).write("console:")
    _check(job, tmp_path, None)
