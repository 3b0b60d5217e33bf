"""How a program will run, as text and as JSON.

The logical plan is the program as written; the physical plan says which task runs each
step, what was fused, what travels between levels, and which steps are Python and why. An
explanation is made from the program alone; what inputs and outputs guarantee is passed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from headrace.guarantees import JobGuarantee
from headrace.notebook import preformatted
from headrace.plan.logical import detail_of, kind_of, port_name, python_of
from headrace.plan.nodes import (
    Dead,
    Edge,
    Node,
    PythonChain,
    Read,
    SelectChain,
    Stateful,
    Write,
)
from headrace.plan.picture import svg_of
from headrace.plan.program import Program

INDENT = "  "


@dataclass(frozen=True)
class Explanation:
    """`print` it; `.text`, `.json` (plain values, ready to dump) and `.svg` say the same."""

    program: Program
    guarantee: JobGuarantee | None = None

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return preformatted(self.text)

    @cached_property
    def text(self) -> str:
        """The plan as text."""
        return "\n".join(_text(self.json))

    @cached_property
    def json(self) -> dict[str, Any]:
        """The plan as plain values."""
        return _data(self.program, self.guarantee)

    @cached_property
    def svg(self) -> str:
        """The plan as a picture."""
        return svg_of(self.json)


def explain(program: Program, guarantee: JobGuarantee | None = None) -> Explanation:
    """How `program` will run; `guarantee` says what its inputs and outputs offer."""
    return Explanation(program, guarantee)


def _data(program: Program, guarantee: JobGuarantee | None) -> dict[str, Any]:
    offers = guarantee.offers if guarantee is not None else ()
    guarantees = {o.name: o.guarantee for o in offers if o.role == "output"}
    return {
        "job": program.name,
        "slots": program.slots,
        "depth": program.depth,
        "on_error": program.on_error,
        "dead_limit": program.dead_limit,
        "logical": [{**asdict(s), "inputs": list(s.inputs)} for s in program.logical],
        "physical": [_level(program, level) for level in range(program.depth + 1)],
        "outputs": [_output(program, o, guarantees) for o in program.outputs()],
        "python": [
            {"step": s.name, "level": _where(program, s.name), "why": s.python}
            for s in program.logical
            if s.python
        ],
        "guarantee": guarantee.json if guarantee is not None else None,
    }


def _level(program: Program, level: int) -> dict[str, Any]:
    nodes = [n for n in _living(program) if level in program.levels[n.name]]
    return {
        "level": level,
        "task": "source" if level == 0 else "slot",
        "steps": [_physical(n) for n in nodes if not isinstance(n, Write)],
        "sends": [_sent(n, e, keys) for n, e, keys in _leaving(program, level)],
    }


def _living(program: Program) -> list[Node]:
    """The steps but those after the dead-letter stream, which run wherever a row dies."""
    dead: set[str] = set()
    for node in program.nodes.values():
        if isinstance(node, Dead) or any(e.node.name in dead for e in node.inputs):
            dead.add(node.name)
    return [n for n in program.nodes.values() if n.name not in dead]


def _leaving(program: Program, level: int) -> Iterator[tuple[Stateful, Edge, tuple[str, ...]]]:
    """What leaves the tasks of a level for operators further down."""
    for node in program.stateful():
        for edge, keys in zip(node.inputs, node.keys, strict=True):
            origin = edge.origin or edge
            if level in program.levels[origin.node.name]:
                yield node, edge, keys


def _sent(node: Stateful, edge: Edge, keys: tuple[str, ...]) -> dict[str, Any]:
    what = "partial aggregates" if node.what.sends_partials else "rows"
    every = edge in [node.inputs[i] for i in node.broadcast]
    dealt = node.what.dealt(node.inputs.index(edge))
    tasks = getattr(node.what, "tasks", None)  # of a step that has its own
    return {
        **({"dealt": dealt} if dealt else {}),
        **({"tasks": tasks} if tasks else {}),
        "to": node.name,
        "from": port_name(edge),
        "what": what,
        "by": list(keys),
        "every": every,
        "spread": node.what.spreads and not keys and not every,
    }


def _physical(node: Node) -> dict[str, Any]:
    chain = isinstance(node, SelectChain | PythonChain)
    names = [s.name for s in node.steps] if isinstance(node, SelectChain | PythonChain) else []
    return {
        "name": node.name,
        "kind": kind_of(node),
        "detail": "" if chain else detail_of(node),
        "inputs": [port_name(e) for e in node.inputs],
        "fused": names,
        "columns": node.schema.names,
        "pruned": [n for n in node.declared.names if n not in node.schema.names]
        if isinstance(node, Read) and node.declared
        else [],
        "mode": _mode(node),
    }


def _mode(node: Node) -> str:
    if isinstance(node, PythonChain) or python_of(node):
        return "python"
    return "vectorised"


def _output(program: Program, node: Write, guarantees: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": node.name,
        "uri": str(node.uri),
        "input": port_name(node.inputs[0]),
        "level": program.level(node.name),
        "guarantee": guarantees.get(node.name),
    }


def _where(program: Program, name: str) -> int:
    for node in program.nodes.values():
        names = [s.name for s in node.steps] if isinstance(node, PythonChain) else [node.name]
        if name in names:
            return program.level(node.name)
    return 0


def _text(data: Mapping[str, Any]) -> Iterator[str]:
    slots = data["slots"] or "chosen at the first start"
    yield f"job {data['job']}"
    yield f"{INDENT}slots: {slots}; on error: {data['on_error']}"
    yield ""
    yield "logical plan"
    yield from _rows(
        [[s["name"], s["kind"], _arrow(s["inputs"]), s["detail"]] for s in data["logical"]]
    )
    yield ""
    yield "physical plan"
    for level in data["physical"]:
        yield from _level_text(level)
    yield from _output_text(data["outputs"])
    yield ""
    yield from _python_text(data["python"])
    if data["guarantee"] is not None:
        yield ""
        yield from _guarantee_text(data["guarantee"])


def _arrow(inputs: list[str]) -> str:
    return f"<- {', '.join(inputs)}" if inputs else ""


def _level_text(level: Mapping[str, Any]) -> Iterator[str]:
    title = "source tasks" if level["level"] == 0 else "tasks by slot"
    yield f"{INDENT}level {level['level']}: {title}"
    yield from _rows([[s["name"], *_physical_words(s)] for s in level["steps"]], depth=2)
    for sent in level["sends"]:
        by = f"by {', '.join(sent['by'])}" if sent["by"] else "all to one slot"
        by = "to every slot" if sent["every"] else "spread over the slots" if sent["spread"] else by
        by = sent.get("dealt", by)
        yield f"{INDENT * 2}=> {sent['to']}: {sent['what']} of {sent['from']}, {by}"


def _physical_words(step: Mapping[str, Any]) -> list[str]:
    words = step["detail"]
    if step["fused"]:
        words = "fused: " + ", ".join(step["fused"]) if len(step["fused"]) > 1 else ""
    if step["kind"] == "read":
        words += f"; not read: {', '.join(step['pruned'])}" if step["pruned"] else ""
    return [step["mode"] if step["kind"] != "read" else "read", _arrow(step["inputs"]), words]


def _output_text(outputs: list[Mapping[str, Any]]) -> Iterator[str]:
    yield f"{INDENT}outputs"
    yield from _rows(
        [[o["name"], o["uri"], _arrow([o["input"]]), o["guarantee"] or ""] for o in outputs],
        depth=2,
    )


def _guarantee_text(guarantee: Mapping[str, Any]) -> Iterator[str]:
    yield f"if it is killed: {guarantee['whole']}"
    yield f"{INDENT}{guarantee['why']}"
    rows = [[o["role"], o["name"], o["guarantee"], o["why"]] for o in guarantee["offers"]]
    yield from _rows(rows)


def _python_text(steps: list[Mapping[str, Any]]) -> Iterator[str]:
    if not steps:
        yield "python: no step; all run vectorised"
        return
    yield "python"
    yield from _rows([[s["step"], f"level {s['level']}", s["why"]] for s in steps])


def _rows(rows: list[list[str]], depth: int = 1) -> Iterator[str]:
    """Rows of text with their columns aligned."""
    if not rows:
        return
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [c.ljust(w) for c, w in zip(row, widths, strict=True) if w]
        yield (INDENT * depth + INDENT.join(cells)).rstrip()
