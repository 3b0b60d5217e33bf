"""A job under test: rows, time and failures go in step by step, what it gives is looked at.

Plan, operators, state, outputs and commits are the real ones; only the edges are fakes: the
inputs and the clock are what the test says, the outputs are collected wherever they would
go. A step (`send`, `watermark`, `advance`, `idle`, `end`) is one batch of the job, and when
it returns, all that it made due is done. `on="spark"` plays the same script on real Spark.
"""

from __future__ import annotations

import difflib
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from headrace.chunk import HASH
from headrace.clock import Duration
from headrace.driver.start import Start
from headrace.errors import InputError, RunError, did_you_mean
from headrace.inspect.progress import Progress, progress_of
from headrace.inspect.step_state import read_snapshot
from headrace.plan.evolution import Comparison
from headrace.plan.nodes import Stateful
from headrace.plan.program import Drafted
from headrace.rows import table_of
from headrace.sinks import collected
from headrace.testing.drive import InProcess, Play, Stage
from headrace.testing.script import (
    CRASHED,
    CrashPoint,
    Page,
    Script,
    ScriptClock,
    Time,
    fake_edges,
    later,
    moment,
    not_back,
)
from headrace.testing.watched import LETTERS, WatchedJob, is_added, late_of

Row = dict[str, Any]


class Harness:
    """A job, driven step by step; use it as a context manager, or `close` it."""

    def __init__(
        self,
        job: Drafted,
        *,
        on: str = "local",
        folder: str | Path | None = None,
        clock: Time = 0,
        tasks: int = 2,
    ) -> None:
        """`on`: "local" is this process, "spark" is Spark. `folder`: where the job keeps its
        things, else a temporary one. `clock`: what time it is at first. `tasks`: how many
        share the keys."""
        self._stage_of = _stages(on)
        self._job, self._tasks = WatchedJob(job), tasks
        self._temporary = None if folder else tempfile.mkdtemp(prefix="headrace-test-")
        self._folder = Path(folder or self._temporary or "").absolute()
        self._script = Script(self._folder / "script")
        self._crash = CrashPoint(self._folder / "script")
        self._seen: dict[str, int] = {}
        page = self._script.turn()
        self._script.put(replace(page, clock=max(page.clock, moment(clock))))
        try:
            self._stage = self._start()
            if page.inputs:  # a folder taken up again: what was left is done
                self._settle()
        except BaseException:
            self._forget()
            raise

    # what happens to the job

    def send(
        self, input: str, rows: Iterable[object], at: Time | None = None, split: int = 0
    ) -> None:
        """Rows come on an input: dicts, tuples, dataclasses, or an Arrow table.

        `at` sets the clock first. A split is there from the first time it is named.
        """
        page = self._script.turn()
        table = records(input, rows, self.inputs[self._input(input)])
        if at is not None:
            page = replace(page, clock=not_back(page.clock, moment(at)))
        self._step(self._script.rows(page, input, str(split), table))

    def watermark(self, input: str, time: Time) -> None:
        """The input says that it has reached `time`, on all its splits."""
        page = self._script.turn()
        for split in page.splits(self._input(input)):
            page = page.marked(input, split, watermark=moment(time))
        self._step(page)

    def advance(self, by: Duration | datetime) -> None:
        """Time passes: a duration ("5s"), or until a datetime. What is due fires."""
        page = self._script.turn()
        self._step(replace(page, clock=later(page.clock, by)))

    def idle(self, input: str, split: int = 0) -> None:
        """The split falls silent: until it has rows again, it holds no watermark back."""
        self._step(self._script.turn().marked(self._input(input), str(split), idle=True))

    def end(self) -> None:
        """All inputs end, so all windows close."""
        self._step(replace(self._script.turn(), ended=tuple(self.inputs)))

    def crash(self) -> None:
        """Let the next batch die when everything is written and nothing is committed.

        The job is then started again from its folder and does that batch once more.
        """
        self._crash.ask()

    def restart(self, job: Drafted | None = None, *, drop: str | Collection[str] = ()) -> None:
        """Stop, and start again on the same folder: the same job, or a changed one.

        `drop` names the steps whose state may be lost because the program has them no more.
        """
        before, page = self._job, self._script.turn()
        changed = before if job is None else WatchedJob(job)
        self._stage.close()
        try:
            self._job = changed
            self._stage = self._start([drop] if isinstance(drop, str) else drop)
        except BaseException:  # refused: the job before can still be started again
            self._job = before
            self._script.put(page)
            raise
        self._settle()

    # what the job gave

    def output(self, name: str | None = None) -> list[Row]:
        """The rows that an output was given since the last call; the name may be left out if
        there is only one output."""
        return self._fresh(chosen(name, self._job.outputs, "output"))

    def table(self, name: str | None = None) -> pa.Table:
        """All rows that an output was given so far."""
        return self._all(chosen(name, self._job.outputs, "output"))

    def late(self, step: str | None = None) -> list[Row]:
        """The rows that came too late for a step, from all its inputs, since the last call."""
        name = chosen(step, self._job.windows, "window")
        ports = self._job.windows[name]
        return [row for port in ports for row in self._fresh(late_of(name, port))]

    def dead(self) -> list[Row]:
        """The dead letters since the last call."""
        return self._fresh(LETTERS)

    def state(self, step: str | None = None) -> dict[str, pa.Table]:
        """What a step remembers after the last batch, by name of its table."""
        name = chosen(step, self._job.stateful, "step with state")
        return tables_of(self._stage.start, name)

    @property
    def inputs(self) -> Mapping[str, pa.Schema]:
        """The inputs by name, and their columns."""
        return {name: read.schema for name, read in self._job.inputs.items()}

    @property
    def now(self) -> int:
        """The clock, in milliseconds since 1970."""
        return self._script.page.clock

    @property
    def progress(self) -> Progress | None:
        """The last batch in figures: watermark, where every record went; None before any."""
        latest = self._stage.start.log.latest()
        return None if latest is None else progress_of(latest, {})

    @property
    def comparison(self) -> Comparison | None:
        """What the last start kept, dropped or renamed; None for a new folder."""
        comparison = self._stage.start.comparison
        if comparison is None:
            return None
        return Comparison(tuple(c for c in comparison.changes if not is_added(c.name)))

    def close(self) -> None:
        """Stop the job; a temporary folder is removed."""
        self._stage.close()
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # how it is done

    def _start(self, drop: Collection[str] = ()) -> Stage:
        self._follow_names()
        edges = fake_edges(self._script, self.inputs, self._crash)
        folder, clock = str(self._folder / "job"), ScriptClock(self._script)
        return self._stage_of(Play(self._job, folder, clock, edges, self._tasks, drop))

    def _follow_names(self) -> None:
        """Move what the script holds of an input to its new name."""
        page = self._script.turn()
        reads = [r for r in self._job.inputs.values() if r.name not in page.inputs]
        moved = {r.was: r.name for r in reads if r.was is not None and r.was in page.inputs}
        if moved:
            self._script.put(page.renamed(moved))

    def _forget(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _step(self, page: Page) -> None:
        if self._script.page.ended:
            raise RunError(
                "HR-TEST-007",
                "the inputs have ended",
                "Nothing comes after end(): say it last, or start another harness.",
            )
        self._script.put(page)
        self._settle()

    def _settle(self) -> None:
        try:
            self._stage.settle()
        except RunError as error:
            if error.code != CRASHED:
                raise
            self._stage.close()
            self._stage = self._start()
            self._stage.settle()

    def _input(self, name: str) -> str:
        return chosen(name, self._job.inputs, "input")

    def _all(self, name: str) -> pa.Table:
        return collected(str(self._stage.start.log.folder), name)

    def _fresh(self, name: str) -> list[Row]:
        table = self._all(name)
        try:
            rows: list[Row] = table.slice(self._seen.get(name, 0)).to_pylist()
        except (OverflowError, ValueError) as error:  # they stay unseen
            raise RunError(
                "HR-TEST-017",
                f"the rows of {name!r} hold a time that Python does not have: {error}",
                "Python's times are of the years 1 to 9999; table() gives the rows as Arrow.",
            ) from error
        self._seen[name] = table.num_rows
        return rows


def _stages(on: str) -> Callable[[Play], Stage]:
    if on == "local":
        return InProcess
    if on == "spark":
        from headrace.testing.on_spark import OnSpark

        return OnSpark
    raise RunError("HR-TEST-005", f"a harness cannot play on {on!r}", 'Pass on="local" or "spark".')


# Which input, output or step a test means: by its name, or the only one there is.


def chosen(name: str | None, known: Collection[str], what: str) -> str:
    """The name, if it is known; without one, the only one there is."""
    if name is None and len(known) == 1:
        return next(iter(known))
    if name in known:
        return str(name)
    fact = f"has no {what} {name!r}" if name is not None else f"has {len(known)} {what}s"
    raise RunError(
        "HR-TEST-004",
        f"the job {fact}",
        f"{did_you_mean(name, known)}Known: {', '.join(map(repr, known)) or 'none'}.",
    )


# What the steps of a job remember, table by table, as the operators keep it.


def tables_of(start: Start, step: str) -> dict[str, pa.Table]:
    """The tables of a step by name; `__t` is the time by which a table forgets its rows."""
    node = start.bundle.program.nodes[step]
    assert isinstance(node, Stateful)
    tables = read_snapshot(start.log, node, start.slots).tables
    return {name: table.scan().drop_columns([HASH]) for name, table in tables.items()}


# Rows as a test writes them, as the table that the input would have given.


def records(input: str, rows: Iterable[object], schema: pa.Schema) -> pa.Table:
    """The rows under the input's schema; what does not fit is refused."""
    try:
        if isinstance(rows, pa.Table):
            return rows.select(schema.names).cast(schema)
        listed = list(rows)
        for row in listed:
            _refuse_unknown(row, schema)
        return table_of(listed, schema)
    except (pa.ArrowException, ValueError, TypeError, AttributeError, KeyError) as cause:
        raise InputError(
            "HR-TEST-006",
            f"rows sent to {input!r} do not fit it: {cause}",
            f"It has the columns {', '.join(f'{f.name} {f.type}' for f in schema)}.",
        ) from cause


def _refuse_unknown(row: object, schema: pa.Schema) -> None:
    """A slip in a column's name would else be a null."""
    if not isinstance(row, Mapping):
        return
    for name in row:
        if name not in schema.names:
            close = difflib.get_close_matches(str(name), schema.names, 1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"there is no column {name!r}{meant}")
