"""Operator state of a job that starts with another number of tasks, dealt out to these.

Done on the driver before a run, as an epoch of its own: tasks then find one row each. Lists are put
together in the order of the tasks, and split evenly or united for all, as declared. Values go from
task i of m to task i * n // m of n; where several meet, the class says how they become one. What
is missing for that is refused before anything is changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa

from headrace.chunk import HASH
from headrace.errors import StateError
from headrace.hashing import first_hash, slot_range
from headrace.ops.process.function import KeyedProcess
from headrace.ops.process.operator import ProcessSpec
from headrace.ops.process.operator_kinds import UNION, OperatorList, OperatorValue
from headrace.ops.process.operator_state import OPERATOR, TASK, operator_table
from headrace.plan.nodes import Stateful
from headrace.plan.program import Program
from headrace.plan.step_changes import known_values, sources
from headrace.rows import pylist, table_of
from headrace.state.manifest import Manifest, StepFacts, table_key
from headrace.state.runs import RunCache, RunWriter
from headrace.state.spec import GONE
from headrace.state.store import Segment, SlotState, open_table

State = dict[str, Any]
Ops = Mapping[str, StepFacts]


def rescaled(
    program: Program, state: Mapping[str, Any], ops: Ops, tasks: int, moves: Mapping[str, str]
) -> Iterator[tuple[Stateful, StepFacts]]:
    """The steps that have operator state of another number of tasks, and what is known of them.

    `moves` has the name under which the state of a step is stored, where it is another one.
    """
    for node in program.stateful():
        name = moves.get(node.name, node.name)
        facts = ops.get(name)
        if facts is None or facts.tasks in (None, tasks) or not isinstance(node.what, ProcessSpec):
            continue
        if type(node.what.function).by_task and table_key(name, OPERATOR) in state:
            yield node, facts


def refuse_rescaled(
    program: Program, stored_in: Manifest, tasks: int | None, moves: Mapping[str, str]
) -> None:
    """Refuse a start whose number of tasks a stored value does not allow."""
    if tasks is None:
        return
    for node, facts in rescaled(program, stored_in.state, stored_in.ops, tasks, moves):
        kind = type(node.what.function)  # type: ignore[attr-defined]
        stored = sources(kind._kept, known_values(facts.shape or {"values": ()}))
        for name, declared in kind.by_task.items():
            alone = isinstance(declared, OperatorValue) and declared.merge is None
            if alone and stored[name] is not None:
                raise StateError(
                    "HR-STATE-037",
                    f"{kind.__name__}.{name} of step {node.name!r} is a value of each of "
                    f"{facts.tasks} tasks, and this start has {tasks}",
                    "Say how the values of two tasks become one: hr.operator_value(..., "
                    f"merge=...); or start it with parallelism={facts.tasks} "
                    f"(--parallelism {facts.tasks} on the command line).",
                    site=node.site,
                )


def redistribute(
    program: Program, folder: str, state: State, ops: Ops, tasks: int, slots: int
) -> tuple[State, dict[str, StepFacts]]:
    """The tables of a manifest for so many tasks, and what is then known of their steps."""
    state, known = dict(state), dict(ops)
    writer = RunWriter(folder, f"rescaled-{uuid.uuid4().hex[:12]}")
    cache = RunCache(folder)
    for node, facts in list(rescaled(program, state, ops, tasks, {})):
        kind, table = type(node.what.function), table_key(node.name, OPERATOR)  # type: ignore[attr-defined]
        spec = operator_table(kind)
        before = open_table(spec, SlotState.from_json(state[table]), 0, slots, slots, cache)
        rows = before.scan().sort_by(TASK)
        if rows.num_rows:
            rows = dealt_out(kind, node.name, rows, facts.tasks or tasks, tasks)
            homes = [first_hash(slot_range(i, tasks, slots)[0], slots) for i in range(tasks)]
            rows = rows.append_column(HASH, pa.array(homes, pa.uint64()))
            rows = rows.append_column(GONE, pa.repeat(False, tasks))
            ref = writer.add(rows.select(spec.run.names).cast(spec.run), 0, slots)
            state[table] = SlotState((Segment(0, slots, (ref,)),)).to_json()
        known[node.name] = replace(facts, tasks=tasks)
    writer.close()
    return state, known


def dealt_out(
    kind: type[KeyedProcess], step: str, rows: pa.Table, before: int, tasks: int
) -> pa.Table:
    """One row for each of `tasks`, of the rows that the tasks before have stored."""
    dealt = pa.table([pa.array(range(tasks), pa.int32())], names=[TASK])
    for name, declared in kind.by_task.items():
        column = rows.column(name).combine_chunks()
        if isinstance(declared, OperatorList):
            values = _lists(column, declared, tasks)
        else:
            places = [task * tasks // before for task in rows.column(TASK).to_pylist()]
            values = _values(f"{kind.__name__}.{name}", step, column, declared, places, tasks)
        dealt = dealt.append_column(name, values)
    return dealt


def _lists(column: pa.ListArray, declared: OperatorList, tasks: int) -> pa.Array:
    items = column.flatten()
    if declared.redistribute == UNION:
        items = _distinct(items)  # else each change of the number would multiply them
        ends = [len(items) * task for task in range(tasks + 1)]
        items = pa.concat_arrays([items] * tasks)
    else:
        ends = [len(items) * task // tasks for task in range(tasks + 1)]
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, type=declared.type)


def _distinct(items: pa.Array) -> pa.Array:
    """The items, equal ones once, in the order in which they first come."""
    if not pa.types.is_nested(items.type):
        return items.unique()
    first: dict[str, int] = {}
    for place, item in enumerate(pylist(pa.chunked_array([items]))):
        first.setdefault(repr(item), place)
    return items.take(pa.array(list(first.values()), pa.int64()))


def _values(
    title: str, step: str, column: pa.Array, declared: OperatorValue, places: list[int], tasks: int
) -> pa.ChunkedArray:
    start, merge = declared.start(), declared.merge
    met: list[list[Any]] = [[] for _ in range(tasks)]
    for place, stored in zip(places, pylist(pa.chunked_array([column])), strict=True):
        found = declared.loaded(stored)
        if found is not None and found != start:  # a task with the default adds nothing
            met[place].append(found)
    try:
        made = [reduce(merge, found) if found else declared.start() for found in met]  # type: ignore[arg-type]
        rows = [(declared.stored(value),) for value in made]
        return table_of(rows, pa.schema([("value", declared.type)])).column(0)
    except Exception as error:
        raise StateError(
            "HR-STATE-038",
            f"the values of {title} of step {step!r} cannot be merged: {error}",
            f"Correct merge= of {title}, or start the job with as many tasks as before.",
        ) from error
