"""What can be wrong with a program as a whole: one small function for each.

A check reads the graph and yields problems; it changes nothing and knows no other check.
Mistakes inside one expression are found where it is written (`columns.py`), and are in the
draft already. What is unknown because of such a mistake is not judged again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from headrace.errors import PlanError
from headrace.ops.agg.named import part_names
from headrace.plan.draft import Draft, unknown_columns
from headrace.plan.nodes import (
    Dead,
    Node,
    Read,
    Select,
    Stateful,
    Union,
    Write,
    is_end,
)
from headrace.plan.process_checks import process_checks
from headrace.plan.shed_checks import shed_checks
from headrace.schema import ddl_of, ddl_type

Graph = Sequence[Node]
Problems = Iterator[PlanError]


_OF_WINDOWS = frozenset(  # what the operators of windows call columns of their own
    ("$at", "$begins", "$blamed", "$earliest", "$end", "$ends", "$epoch", "$fired", "$first",
     "$from", "$high", "$latest", "$low", "$new", "$number", "$offset", "$over", "$own", "$panes",
     "$rows", "$since", "$source", "$start", "$to", "$was", "$window")
)  # fmt: skip


def check(draft: Draft) -> list[PlanError]:
    """Every problem of the program, in the order of the user's file."""
    graph = draft.graph()
    problems = [*draft.problems_of(graph), *(p for find in CHECKS for p in find(graph))]
    unique = {(p.code, p.message, p.site): p for p in problems}
    return sorted(unique.values(), key=lambda p: (p.site.file, p.site.line) if p.site else ("", 0))


def window_without_time(graph: Graph) -> Problems:
    for node in graph:
        if (
            isinstance(node, Stateful)
            and _needs_time(node)
            and not all(e.node.timed for e in node.inputs)
        ):
            bare = [repr(r.name) for r in _sources(node) if not r.timed]
            verb = "have" if len(bare) > 1 else "has"
            yield PlanError(
                "HR-PLAN-002",
                f"the {node.what.kind} {node.name!r} needs event time, "
                f"but {' and '.join(bare) or 'its input'} {verb} none",
                'Name the time column where it is read: job.read(..., time="at", delay="2s"); '
                "or time=hr.ingestion() if no column has one.",
                site=node.site,
            )


def key_columns(graph: Graph) -> Problems:
    for node in (n for n in graph if isinstance(n, Stateful)):
        for edge, keys in zip(node.inputs, node.keys, strict=True):
            for field in edge.schema:
                if field.name in keys and pa.types.is_nested(field.type):
                    yield PlanError(
                        "HR-PLAN-013",
                        f"{node.name!r} has the key {field.name!r} of type {ddl_type(field.type)}",
                        "Key by plain columns: text, numbers, booleans, dates, timestamps.",
                        site=node.site,
                    )


def partial_names(graph: Graph) -> Problems:
    """State holds keys and the partials of aggregates: their columns need different names."""
    for node in graph:
        if not isinstance(node, Stateful):
            continue
        parts = {part: name for name, agg in node.what.aggregates for part in part_names(name, agg)}
        for key in node.keys[0]:
            if key in parts:
                yield PlanError(
                    "HR-PLAN-040",
                    f"{node.name!r} has the key {key!r}, which is how it calls a part of "
                    f"{parts[key]!r}",
                    f"Give the aggregate {parts[key]!r} or the key column another name.",
                    site=node.site,
                )


def window_names(graph: Graph) -> Problems:
    """Windows hold keys, results and rows beside columns of their own."""
    for node in graph:
        if not isinstance(node, Stateful) or node.what.kind != "window":
            continue
        results = [name for name, _ in node.what.aggregates]
        rows = [] if results else [name for edge in node.inputs for name in edge.schema.names]
        for name in dict.fromkeys((*node.keys[0], *results, *rows)):
            if name in _OF_WINDOWS:
                yield PlanError(
                    "HR-PLAN-068",
                    f"{node.name!r} has the column {name!r}, which is what windows call one of "
                    "their own",
                    "Give it another name before, with rename(...), or as a keyword.",
                    site=node.site,
                )


def unbounded_state(graph: Graph) -> Problems:
    for node in (n for n in graph if isinstance(n, Stateful)):
        if node.what.endless and not node.unbounded:
            by = ", ".join(node.keys[0])
            values = f"values of {by}" if by else "vertices"  # of a graph without a key
            yield PlanError(
                "HR-PLAN-003",
                f"the state of {node.name!r} grows without bound: one entry for every "
                f"{by or 'vertex'} ever seen",
                f"If there are only so many {values}, pass {node.what.bound}",
                site=node.site,
            )


def union_schemas(graph: Graph) -> Problems:
    for node in (n for n in graph if isinstance(n, Union)):
        first = node.inputs[0]
        for other in node.inputs[1:]:
            if _unsure(first.schema) or _unsure(other.schema):
                continue
            if not first.schema.equals(other.schema):
                yield PlanError(
                    "HR-PLAN-006",
                    f"{node.name!r} joins streams of different columns: "
                    f"{first.node.name!r} has {ddl_of(first.schema)}; "
                    f"{other.node.name!r} has {ddl_of(other.schema)}",
                    "Bring them to the same columns, types and order with select(...).",
                    site=node.site,
                )
            elif first.node.timed != other.node.timed:
                timed, bare = (first, other) if first.node.timed else (other, first)
                yield PlanError(
                    "HR-PLAN-006",
                    f"{node.name!r} joins {timed.node.name!r}, which has event time, with "
                    f"{bare.node.name!r}, which has none",
                    "Name the time column of both where they are read, or of neither.",
                    site=node.site,
                )


def dead_letters(graph: Graph) -> Problems:
    dead = {n.name for n in graph if isinstance(n, Dead)}
    for node in graph:
        if not any(e.node.name in dead for e in node.inputs):
            continue
        if isinstance(node, Select):
            dead.add(node.name)
        elif not isinstance(node, Write):
            yield PlanError(
                "HR-PLAN-019",
                f"{node.name!r} cannot follow the dead-letter stream",
                "Use where and select on it, then write it; read that output in another job.",
                site=node.site,
            )


def column_names(graph: Graph) -> Problems:
    for node in graph:
        before = {name for edge in node.inputs for name in edge.schema.names}
        for name in node.schema.names:
            if name.startswith("__") and name not in before:
                yield PlanError(
                    "HR-PLAN-010",
                    f"{node.name!r} emits a column {name!r}, but names beginning with '__' "
                    "are reserved",
                    "Rename the column.",
                    site=node.site,
                )


def targets(graph: Graph) -> Problems:
    texts = [n for n in graph if isinstance(n, Read) and isinstance(n.uri, str)]
    reads = {_place(n.uri, n.options) for n in texts}
    writes: dict[str, Write] = {}
    for node in graph:
        if not isinstance(node, Write) or not str(node.uri).partition(":")[2]:
            continue
        place = _place(str(node.uri), node.options)
        if place in reads:
            yield PlanError(
                "HR-PLAN-009",
                f"the job reads and writes {str(node.uri)!r}",
                "It would feed on its own output: write to another place.",
                site=node.site,
            )
        if place in writes:
            yield PlanError(
                "HR-PLAN-008",
                f"two outputs write to {str(node.uri)!r}: {writes[place].name!r} and {node.name!r}",
                "Write to two places, or union the streams and write once.",
                site=node.site,
            )
        writes.setdefault(place, node)


def _place(uri: str, options: Mapping[str, object]) -> str:
    """The same for one folder, however it is written; a database has many tables."""
    scheme, _, rest = uri.partition(":")
    if scheme == "sql":
        return f"{uri} {options.get('table')}"
    is_path = scheme == "files" and rest
    return f"files:{os.path.realpath(os.path.expanduser(rest))}" if is_path else uri


def nowhere(graph: Graph) -> Problems:
    if not any(map(is_end, graph)):
        yield PlanError(
            "HR-PLAN-005",
            "the job has no output",
            'Write a stream somewhere: stream.write("console:").',
            site=graph[0].site if graph else None,
        )
        return
    used = {e.node.name for n in graph for e in n.inputs}
    for node in graph:
        if node.name not in used and not is_end(node):
            what = "the input" if isinstance(node, Read) else "the step"
            yield PlanError(
                "HR-PLAN-004",
                f"{what} {node.name!r} leads to no output",
                "Write it, tap it, or leave it out.",
                site=node.site,
            )


def earlier_names(graph: Graph) -> Problems:
    names, claimed = {n.name for n in graph}, dict[str, str]()
    for node in graph:
        if node.was is None:
            continue
        if node.was in names:
            yield PlanError(
                "HR-PLAN-027",
                f"{node.name!r} says it was {node.was!r}, but a step of that name is still there",
                "Drop was=, or rename the other step.",
                site=node.site,
            )
        if node.was in claimed:
            yield PlanError(
                "HR-PLAN-027",
                f"{claimed[node.was]!r} and {node.name!r} both say they were {node.was!r}",
                "State can go to one step only.",
                site=node.site,
            )
        claimed[node.was] = node.name


CHECKS: tuple[Callable[[Graph], Problems], ...] = (
    window_without_time, key_columns, partial_names, window_names, unbounded_state, union_schemas,
    process_checks, dead_letters, column_names, targets, nowhere, earlier_names, shed_checks,
)  # fmt: skip


def _needs_time(node: Stateful) -> bool:
    return node.what.needs_time and not node.processing


def _sources(node: Node) -> list[Read]:
    if isinstance(node, Read):
        return [node]
    return [r for e in node.inputs for r in _sources(e.node)]


def _unsure(schema: pa.Schema) -> bool:
    return len(schema) == 0 or bool(unknown_columns(schema))
