"""A notebook: what streams, jobs, plans and runs look like, and where mistakes are."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import notebook
from headrace.engine.card import CardReporter, card_html
from headrace.errors import Site
from headrace.inspect import figures_card
from headrace.notebook import Card
from headrace.printed import html_table
from tests.cli.test_status import PROGRESS
from tests.look.kernel import executed, failure, html, printed
from tests.test_docs import DOCS, blocks

NASTY = "<script>alert('x')</script> & \"co\""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """One kernel for all tests that need no Spark."""
    return executed(
        [
            "import headrace as hr\n"
            'job = hr.Job("sketch")\n'
            'made = [{"n": n, "text": "<i>&"} for n in range(9)]\n'
            'words = job.read(hr.rows(made), name="words")\n'
            "words",
            'words.key_by("n")',
            'words.where("n > 3").show(2)',
            'rows = words.head(1)\nassert rows.to_pylist() == [{"n": 0, "text": "<i>&"}]',
            'x = 1\nwords.where("m > 3").show()',
            "def wrong(row):\n    return row.n // 0",
            'job = hr.Job("failing", on_error="fail")\n'
            'job.read(hr.rows([{"n": 1}])).map(wrong, schema="n bigint").show()',
            'job = hr.Job("plans")\n'
            'read = job.read("log:none", schema="t string", name="in")\n'
            'read.where("t = \'<i>\'").write("log:o")\n'
            "job.explain()",
            "job",
            'hr.pattern("a")',
        ],
        tmp_path_factory.mktemp("notebook"),
    )


def test_a_stream_shows_its_columns(cells):
    (shown,) = html(cells[0])
    assert "<b>words</b>" in shown and ">n</td>" in shown and ">bigint</td>" in shown
    (shown,) = html(cells[1])
    assert "KeyedStream by n" in shown


def test_rows_are_a_table_in_which_everything_is_escaped(cells):
    (shown,) = html(cells[2])
    assert shown.count("&lt;i&gt;&amp;") == 2 and "<i>" not in shown
    assert "the first 2 rows, computed in process from" in shown
    assert printed(cells[3]).startswith("the first 1 row, computed in process from 1 row of input")


def test_a_mistake_names_the_cell_and_shows_its_line_and_nothing_else(cells):
    assert failure(cells[4]) == (
        "HR-EXPR-001 there is no column 'm'  (cell [5], line 2)\n"
        '  > words.where("m > 3").show()\n'
        "  The columns here are n, text. If it is a text: hr.lit('m'), in SQL text in quotes."
    )


def test_a_function_that_fails_is_shown_where_it_was_defined(cells):
    shown = failure(cells[6])
    assert "ZeroDivisionError" in shown
    assert "(cell [6], line 2)\n  > return row.n // 0\n" in shown


def test_plans_jobs_and_patterns_are_escaped(cells):
    (plan,) = html(cells[7])
    assert "logical plan" in plan and "&lt;i&gt;" in plan and "<i>" not in plan
    (job,) = html(cells[8])
    assert "<b>job plans</b>" in job and ">in</td>" in job
    (pattern,) = html(cells[9])
    assert "<b>pattern</b>" in pattern


def test_all_html_is_escaped():
    rows = hr.Job("x").read(hr.rows([{"t": NASTY}])).head(quiet=True).rename_columns([NASTY])
    step = {"name": NASTY, "kind": NASTY, "busy": 0.5}
    figures = {"bottleneck": {"step": NASTY, "why": NASTY}, "steps": [step], "totals": {"read": 1}}
    everything = [
        html_table(rows, NASTY),
        figures_card.figures_html(figures, [1, 2], {"rate_in": [1.0, 2.0]}),
        figures_card.steps_html(figures),
        figures_card.jobs_html([{"name": NASTY, "state": NASTY, "reason": NASTY}]),
        figures_card.warnings_html([NASTY]),
        figures_card.plan_html(f"<svg>{NASTY}</svg>"),
        card_html(NASTY, NASTY, [], warnings=[NASTY]),
        card_html(NASTY, NASTY, [NASTY], NASTY),
        notebook.heading(NASTY, NASTY),
        notebook.grid([(NASTY, NASTY)], [(NASTY,)]),
        hr.Job(NASTY)._repr_html_(),
    ]
    assert [h for h in everything if "<script" in h or "'x'" in h] == []


def test_without_a_notebook_nothing_changes(capsys):
    assert not notebook.is_live()
    assert notebook.cell_number(__file__) is None
    assert str(Site("/tmp/ipykernel_1/2.py", 3)) == "2.py:3"
    notebook.show("<b>html</b>", "text")
    assert capsys.readouterr().out == "text\n"


class Handle:
    def __init__(self, shown: list[str]) -> None:
        self.shown, self.display_id = shown, "1"

    def update(self, bundle: dict[str, str], raw: bool) -> None:
        self.shown.append(f"update: {bundle['text/plain']}")


def test_a_card_is_shown_once_and_then_replaced(monkeypatch):
    shown: list[str] = []

    def display(bundle: dict[str, str], display_id: bool | str) -> Handle:
        shown.append(f"display {display_id}: {bundle['text/plain']}")
        return Handle(shown)

    cell = 1
    monkeypatch.setattr(notebook, "_display", display)
    monkeypatch.setattr(notebook, "_cell_now", lambda: cell)
    reporter = CardReporter("job")
    reporter.starting()
    reporter.say("job: running")
    reporter.show_again()  # below the same cell
    assert shown == [
        "display True: job: starting\nstarting Spark",
        "update: job: starting\nstarting Spark\nrunning",
    ]
    cell = 2
    reporter.show_again()
    reporter.show_again()
    assert shown[2:] == ["display 1: job: starting\nstarting Spark\nrunning"]


def test_a_card_comes_to_show_the_last_epoch_even_if_nothing_follows_it(monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr(Card, "draw", lambda self, html, text: shown.append(text))
    monkeypatch.setattr("headrace.engine.card.time.monotonic", lambda: now)
    reporter, now = CardReporter("job"), 100.0
    reporter._state = "running"
    reporter.progress(replace(PROGRESS, epoch=1))
    now += 0.1
    reporter.progress(replace(PROGRESS, epoch=2))  # too soon to draw again
    assert "epoch 1 " in shown[-1] and not [text for text in shown if "epoch 2 " in text]
    now += 0.6
    reporter.tick()
    assert "epoch 2 " in shown[-1]
    drawn = len(shown)
    reporter.tick()
    assert len(shown) == drawn


@pytest.mark.spark
def test_the_page_on_notebooks_is_a_notebook_that_runs(tmp_path: Path) -> None:
    page = (DOCS / "guide" / "notebooks.md").read_text(encoding="utf-8")
    sources = [b.text for b in blocks(page) if b.kind == "python"]
    interrupted = (
        "import os, signal\n\n"
        "def interrupt(progress):\n"
        "    if progress.epoch == 1:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n\n"
        'endless = hr.Job("endless")\n'
        'endless.read(hr.generate(50, lambda i: {"n": i})).write("collect:", name="out")\n'
        "run = hr.run(endless, on_progress=interrupt)\n"
        "run.wait().state"
    )
    failing = (
        "def wrong(row):\n"
        "    return row.n // 0\n\n"
        'job = hr.Job("failing", on_error="fail")\n'
        'job.read(hr.rows([{"n": 1}])).map(wrong, schema="n bigint").write("collect:")\n'
        'hr.run(job, until="end").wait()'
    )
    cells = executed([*sources, interrupted, "run", failing], tmp_path, timeout=180)
    *good, failed = cells
    assert [o for c in good for o in c.outputs if o.output_type == "error"] == []
    where = f"(cell [{len(cells)}], line 2)\n  > return row.n // 0\n"
    assert "ZeroDivisionError" in failure(failed) and where in failure(failed)
    assert "failed after epoch 0" in html(failed)[0]
    *_, stopped, again = good
    card, plan = html(stopped)  # one card, however many lines the run has said, and its plan
    assert "stopped after epoch" in card and "stopping after this batch" in card
    assert stopped.outputs[-1]["data"]["text/plain"] == "'stopped'"
    assert html(again) == [card, plan]
    assert ">rows/s in<" in card and ">latency p95, from arrival<" in card
    assert plan.startswith("<details><summary>plan</summary><img")
    drawn = b64decode(plan.partition("base64,")[2].partition("'")[0]).decode()
    assert drawn.startswith("<svg") and "<title>endless</title>" in drawn
    (ended,) = [h for c in cells[: len(sources)] for h in html(c) if "ended after epoch" in h]
    assert "<b>" in ended and "read 600 = used 600 + filtered 0" in ended
