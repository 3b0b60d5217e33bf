"""A source task: read, decode, stamp with time, and run the program as far as it goes.

One task reads one or more ranges, runs every step that needs no shuffle, and sends on what
operators need. The first task of an epoch also sends dead letters again, and carries the epoch's
control notes: what each level task must know, including the references to its state.
"""

from __future__ import annotations

import time as wall
import uuid
from collections.abc import Iterator

from headrace.epoch.bundle import DEAD, Bundle
from headrace.epoch.envelope import CONTROL, REPORT, WATERMARKS, Envelope, note
from headrace.epoch.report import Report
from headrace.epoch.values import SourceTask
from headrace.plan.nodes import DEAD_SCHEMA, OUT
from headrace.plan.program import Program
from headrace.state.faults import point
from headrace.task.dead_letters import DeadLetters
from headrace.task.flow import Flow, Outputs
from headrace.task.resending import send_again
from headrace.task.split_reader import SplitReader


def run_source(bundle: Bundle, task: SourceTask, retries: int = 0) -> Iterator[Envelope]:
    """Everything one source task does, as the envelopes it sends; `retries`: how often it was
    begun before."""
    program, epoch = bundle.program, task.epoch
    report = Report(epoch.number, epoch.attempt, task.replay, retries=retries)
    if task.index == 0:
        report.end, report.tasks = epoch.end, epoch.tasks
    if not task.replay:
        yield from _controls(program, task)
        yield from _read(bundle, task, report)
    yield note(program.depth + 1, 0, REPORT, report.to_json())


def _controls(program: Program, task: SourceTask) -> Iterator[Envelope]:
    if task.state is None:
        return
    content = {"epoch": task.epoch.to_json(), "state": task.state}
    for level in range(1, program.depth + 1):
        for index in range(task.epoch.tasks):
            yield note(level, index, CONTROL, content)


def _read(bundle: Bundle, task: SourceTask, report: Report) -> Iterator[Envelope]:
    began = wall.perf_counter()
    program, epoch = bundle.program, task.epoch
    unique = f"{epoch.number}-0-{task.index}-{uuid.uuid4().hex[:8]}"
    outputs = Outputs(bundle.sinks, epoch, unique)
    dead = DeadLetters(epoch, program.on_error, bundle.sources)
    flow = Flow(program, epoch, outputs, dead)
    splits = {s.id: s for s in epoch.splits}
    if task.index == 0 and epoch.resent is not None:
        yield from send_again(bundle, epoch, flow, report)
    for piece in task.pieces:
        split = splits[piece.split]
        reader = SplitReader(program, bundle.sources[split.input], split, flow, epoch.clock)
        yield from reader.run(piece)
        reader.report_to(report)
        point("source.read")
    yield from flow.finish()
    finish_dead(program, flow, outputs)
    yield from flow.finish()
    outputs.finish()
    report.staged, report.rows = dict(outputs.staged), dict(outputs.rows)
    report.examples = dead.examples()
    report.steps = {n: dict(c) for n, c in flow.steps.items()}
    report.work = flow.watch.work
    report.timing = {"source": (wall.perf_counter() - began) * 1_000}
    for level in range(1, program.depth + 1):
        for index in range(epoch.tasks):
            yield note(level, index, WATERMARKS, report.splits)


def finish_dead(program: Program, flow: Flow, outputs: Outputs) -> None:
    """Send the task's dead letters where the program wants them, else to the job's own."""
    if not len(flow.dead):
        return
    letters = flow.dead.table()
    stream = program.dead()
    if stream is None:
        outputs.add(DEAD, letters)
    else:
        flow.push(stream.name, OUT, letters.select(DEAD_SCHEMA.names))
