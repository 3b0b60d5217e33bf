"""Dead letters that are sent again: their rows enter the step that failed, and only that one.

A letter holds the row as the step received it, so what the record became on other branches is not
made a second time. A record of which letters are sent again is read once more, and counts by the
worst of what becomes of these letters. A letter whose row fits the program no longer is a dead
letter again, and says why: nothing is skipped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import OFFSET, SOURCE, TIME
from headrace.epoch.bundle import Bundle
from headrace.epoch.envelope import Envelope
from headrace.epoch.report import Report
from headrace.epoch.values import Epoch
from headrace.errors import InputError
from headrace.plan.nodes import (
    OUT,
    Dead,
    Edge,
    Node,
    PythonChain,
    Read,
    SelectChain,
    Stateful,
    Write,
    parts_of,
)
from headrace.plan.program import Program
from headrace.sources.columns import conform, fit
from headrace.sources.contract import MISFIT
from headrace.state.faults import point
from headrace.state.resends import Resends
from headrace.task.flow import Flow, uncounted
from headrace.task.letters import unpacked
from headrace.task.split_reader import SplitReader

_PLACES = (TIME, SOURCE, OFFSET)
Letters = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where rows enter a program: an input of a node, or the rest of a chain."""

    node: Node
    port: int
    schema: pa.Schema
    timed: bool


def entrance(program: Program, step: str, port: int) -> Entrance | None:
    """Where the rows of `step` enter, also if it has another name now; None if it is gone."""
    for name in ("name", "was"):
        for node in program.nodes.values():
            for at, part in enumerate(parts_of(node)):
                if getattr(part, name) == step:
                    return _entrance(program, node, at, port)
    return None


def _entrance(program: Program, node: Node, at: int, port: int) -> Entrance | None:
    if isinstance(node, Stateful):
        made = entrance(program, f"{node.name}:arguments", 0)  # of columns that it needs
        if made is not None:
            return made
    if isinstance(node, Write | Dead) or (not isinstance(node, Read) and port >= len(node.inputs)):
        return None
    if isinstance(node, Read):
        return Entrance(node, 0, node.schema, node.timed)
    if at:
        before = parts_of(node)[at - 1]
        return Entrance(_rest(node, at, before), 0, before.schema, before.timed)
    edge = node.inputs[port]
    return Entrance(node, port, edge.schema, edge.node.timed)


def _rest(chain: Node, at: int, before: Node) -> Node:
    """A chain from one of its steps on."""
    if isinstance(chain, SelectChain):
        return replace(chain, inputs=(Edge(before),), steps=chain.steps[at:])
    assert isinstance(chain, PythonChain)
    return replace(chain, inputs=(Edge(before),), steps=chain.steps[at:])


def send_again(bundle: Bundle, epoch: Epoch, flow: Flow, report: Report) -> Iterator[Envelope]:
    """The letters of the request that the epoch carries out, as the envelopes they become."""
    assert epoch.resent is not None
    letters = Resends(epoch.folder).read(epoch.resent)
    splits = {s.id: s for s in epoch.splits}
    for source, rows, own in _by_source(letters.to_pylist()):
        split = splits.get(source)
        if split is None and source >= 0:
            for one in own:
                _repeat(flow, one, f"input {one['input']!r} is not read any more")
            continue
        reader = None
        if split is not None:
            opened = bundle.sources[split.input]
            reader = SplitReader(bundle.program, opened, split, flow, epoch.clock, again=True)
            reader.begin(np.concatenate([table.column(OFFSET).to_numpy() for table, _ in rows]))
        else:
            flow.fate = uncounted  # rows that steps have made are no records of an input
        for table, places in rows:
            _enter(bundle.program, flow, reader, table, [own[i] for i in places])
            yield from flow.ready()
        if reader is not None:
            reader.end()
            reader.report_to(report)
    flow.fate = uncounted
    point("source.resent")


Grouped = list[tuple[pa.Table, list[int]]]


def _by_source(letters: Letters) -> Iterator[tuple[int, Grouped, Letters]]:
    """The letters of each split, with their rows by where they enter and by their columns."""
    entering: dict[tuple[str, int], Letters] = defaultdict(list)
    for letter in letters:
        entering[letter["enters"], letter["port"]].append(letter)
    found: dict[int, tuple[Grouped, Letters]] = defaultdict(lambda: ([], []))
    for own in entering.values():
        for table, places in unpacked([one["row"] for one in own]):
            sources = _sources(table)
            for source in np.unique(sources).tolist():
                of_it = np.flatnonzero(sources == source)
                rows, all_letters = found[source]
                first = len(all_letters)
                all_letters += [own[places[i]] for i in of_it.tolist()]
                rows.append((table.take(pa.array(of_it)), [*range(first, len(all_letters))]))
    for source, (rows, of_source) in found.items():
        yield source, rows, of_source


def _sources(table: pa.Table) -> np.ndarray:
    if not {SOURCE, OFFSET} <= {*table.column_names}:
        return np.full(table.num_rows, -1, np.int32)
    sources: np.ndarray = table.column(SOURCE).to_numpy()
    return sources


def _enter(
    program: Program, flow: Flow, reader: SplitReader | None, rows: pa.Table, letters: Letters
) -> None:
    """Rows of one step and of the same columns; those that do not fit it are letters again."""
    step, port, decoded = letters[0]["enters"], letters[0]["port"], None
    flow.raw = None
    try:
        if reader is not None and step == letters[0]["input"]:
            decoded = reader.again(rows)
        else:
            at = entrance(program, step, port)
            if at is None or isinstance(at.node, Read):
                raise _gone(step)
            fitting, reasons = _fitted(rows, at, step)
    except (InputError, KeyError, pa.ArrowException) as error:
        why = error.message if isinstance(error, InputError) else str(error)
        _repeat_all(flow, rows, letters, [why] * len(letters))
        return
    if reader is not None and decoded is not None:
        flow.push(reader.name, OUT, decoded)
        return
    assert at is not None
    bad = np.array([reason is not None for reason in reasons], np.bool_)
    if bad.any():
        unfit = [one for one, is_bad in zip(letters, bad, strict=True) if is_bad]
        whys = [reason for reason in reasons if reason is not None]
        _repeat_all(flow, rows.filter(pa.array(bad)), unfit, whys)
    if fitting.num_rows:
        flow.enter(at.node, at.port, fitting)


def _fitted(rows: pa.Table, at: Entrance, step: str) -> tuple[pa.Table, Sequence[str | None]]:
    """The rows in the columns that the step reads now; why the others do not fit."""
    fit(f"the stored row of step {step!r}", rows.schema, at.schema)
    if at.timed and TIME not in rows.column_names:
        raise InputError(
            "HR-DEAD-001",
            f"the stored row of step {step!r} has no event time, which rows have there now",
            "Send the record to an input of the program instead.",
        )
    typed, reasons = conform(rows, at.schema), [None] * rows.num_rows
    if MISFIT in typed.column_names:
        reasons = typed.column(MISFIT).to_pylist()
        typed = typed.drop_columns([MISFIT])
    places = [n for n in _PLACES if n in rows.column_names and (at.timed or n != TIME)]
    for name in places:
        typed = typed.append_column(name, rows.column(name))
    return typed.filter(pa.array([reason is None for reason in reasons], pa.bool_())), reasons


def _gone(step: str) -> InputError:
    return InputError(
        "HR-DEAD-002",
        f"step {step!r} is not in the program any more",
        "Give the step its name back (name=, or was= at the new name), and ask again.",
    )


def _repeat_all(flow: Flow, rows: pa.Table, letters: Letters, whys: Sequence[str]) -> None:
    flow.fate("dead", rows)
    for letter, why in zip(letters, whys, strict=True):
        _repeat(flow, letter, why)


def _repeat(flow: Flow, letter: dict[str, Any], why: str) -> None:
    flow.steps[letter["step"]]["dead"] += 1
    flow.dead.repeat(letter, f"cannot be sent again: {why}")
