"""A program while it is being written: its steps so far, their names, its problems.

Mistakes are collected, not raised: a step with a mistake still gets a node, so that the
steps after it can be judged too and a user sees all problems at once. What could not be
worked out is marked in the schema itself: a column of Arrow's null type is not known (its
problem has been reported), and a schema without columns is not known at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa

from headrace.errors import HeadraceError, PlanError, Site
from headrace.expr import Expr
from headrace.plan.nodes import (
    OUT,
    Chunks,
    Edge,
    Node,
    Select,
    Stateful,
    Union,
    is_end,
    step_of,
)

NodeT = TypeVar("NodeT", bound=Node)

UNKNOWN = pa.schema([])
NAME = re.compile(r"^[^\W_][\w .-]*$")
NAME_HINT = "Begin with a letter or a digit; then letters, digits, spaces, '.', '_' or '-'."
DEAD = "dead"
FINISH = "columns"  # what a projection that finishes a step is called after it


def unknown_columns(schema: pa.Schema) -> frozenset[str]:
    """The columns whose type could not be worked out; their problem is reported already."""
    return frozenset(f.name for f in schema if pa.types.is_null(f.type))


def uncertain(schema: pa.Schema, names: frozenset[str]) -> bool:
    """Whether a judgement about `names` would only repeat an earlier problem."""
    twice = any(schema.names.count(n) > 1 for n in names)  # a clash, reported before
    return len(schema) == 0 or twice or bool(unknown_columns(schema) & names)


def bad_name(name: object, what: str) -> PlanError | None:
    """Why `name` cannot name a job, a step or a branch."""
    if not isinstance(name, str) or not NAME.match(name):
        return PlanError("HR-PLAN-010", f"{name!r} cannot name {what}", NAME_HINT)
    if name == DEAD:
        return PlanError(
            "HR-PLAN-010",
            f"the name {DEAD!r} is reserved",
            f"{DEAD!r} is the dead-letter stream of every job: choose another name.",
        )
    return None


@dataclass
class Draft:
    """The steps of one job in the order in which the user wrote them."""

    job: str
    folder: str | None = None
    on_error: str = "dead"
    dead_limit: int | float | None = None
    slots: int | None = None
    guarantee: str | None = None
    problems: list[PlanError] = field(default_factory=list)
    _nodes: list[Node] = field(default_factory=list)
    _scopes: dict[str, str] = field(default_factory=dict)  # step name -> where it lies
    _chosen: dict[str, Site | None] = field(default_factory=dict)  # names the user chose
    _renamed: dict[int, Node] = field(default_factory=dict)  # id of a node -> the node now
    _before: list[Node] = field(default_factory=list)  # keeps those ids from being reused
    _looked: list[Node] = field(default_factory=list)  # whose rows were shown
    _owners: dict[int, Node] = field(default_factory=dict)  # id of a problem -> its step
    _rounds: tuple[int, ...] = ()  # which of the times that a piece of program is written

    def report(self, problem: HeadraceError, site: Site | None = None) -> None:
        """Record a problem, and where the user caused it, for `check`."""
        if not isinstance(problem, PlanError):
            problem = PlanError(problem.code, problem.message, problem.hint)
        for part in problem.problems:
            part.site = part.site or site
            self.problems.append(part)

    @contextmanager
    def attempt(self, site: Site | None) -> Iterator[None]:
        """Collect the problem that the body raises, and go on."""
        try:
            yield
        except HeadraceError as problem:
            self.report(problem, site)

    @contextmanager
    def round(self, number: int) -> Iterator[None]:
        """The body writes a piece of program once more: names that it chooses get the number."""
        before = self._rounds
        self._rounds = (*before, number)
        try:
            yield
        finally:
            self._rounds = before

    def add(self, node: NodeT, *, chosen: str | None, kind: str, place: str = "") -> NodeT:
        """Add `node` to the program under its name; the node with that name."""
        place = place or (self.scope(node.inputs[0]) if node.inputs else "")
        derived = f"{place}.{kind}" if place and kind else place or kind
        name = self._name(chosen, derived, node.site)
        was = node.was and self._numbered(node.was)
        named = self._named(node, name, was, derived if chosen is None else None)
        opens = chosen is not None or node.stateful or isinstance(node, Union) or not node.inputs
        opens = opens or not kind  # a branch
        self._scopes[name] = name if opens else place
        self._nodes.append(named)
        self._own_problems(named)
        return named

    def rename(self, edge: Edge, name: str, was: str | None, site: Site | None) -> Edge:
        """Give the step behind `edge` a name, as `name=` would have done."""
        node = self._now(edge.node)
        if edge.port != OUT:
            self.report(_no_step(edge.port, node.name), site)
            return edge
        if step_of(node) is not node:
            return self._rename_both(node, name, was, site)
        del self._scopes[node.name]
        self._chosen.pop(node.name, None)
        new = self._name(name, node.name, site)
        before = self._numbered(was) if was else node.was
        renamed = self._named(node, new, before, None)
        self._nodes[self._nodes.index(node)] = renamed
        self._scopes[new] = new
        self._renamed[id(node)] = renamed
        self._before.append(node)
        self._own_problems(renamed)
        return Edge(renamed, edge.port)

    def _rename_both(self, node: Node, name: str, was: str | None, site: Site | None) -> Edge:
        """Rename a step and the projection that finishes it, whose name derives from it."""
        step = self.rename(node.inputs[0], name, was, site)
        del self._scopes[node.name]
        derived = f"{step.node.name}.{FINISH}"
        renamed = replace(node, name=self._free(derived), derived=derived, inputs=(step,))
        self._nodes[self._nodes.index(node)] = renamed
        self._scopes[renamed.name] = step.node.name
        self._renamed[id(node)] = renamed
        self._before.append(node)
        return Edge(renamed)

    def finish(self, edge: Edge, columns: tuple[tuple[str, Expr], ...], schema: pa.Schema) -> Edge:
        """A projection that is a part of the step behind `edge`."""
        node = Select(
            name="",
            schema=schema,
            inputs=(edge,),
            timed=edge.node.timed,
            site=edge.node.site,
            columns=columns,
            finishes=True,
        )
        return Edge(self.add(node, chosen=None, kind=FINISH))

    def scope(self, edge: Edge) -> str:
        """The place of a step, for the names of the steps after it.

        That is the nearest step upstream which the user named, or which is an input, a
        union, a branch or has state: steps added between do not change it.
        """
        node = self._now(edge.node)
        scope = self._scopes[node.name]
        return scope if edge.port == OUT else f"{scope}.{edge.port}"

    def node_behind(self, edge: Edge) -> Node:
        """The node that emits the rows behind `edge`, whatever was renamed meanwhile."""
        return self._now(edge.node)

    def name_of(self, edge: Edge) -> str:
        """The name of the step behind `edge`, and the port if it is not the main one."""
        node = self._now(step_of(self._now(edge.node)))
        return node.name if edge.port == OUT else f"{node.name}.{edge.port}"

    def is_named(self, edge: Edge) -> bool:
        """Whether the user chose the name of the step behind `edge`."""
        return self._now(step_of(self._now(edge.node))).name in self._chosen

    def graph(self) -> tuple[Node, ...]:
        """The steps, each after those it reads from, whatever was renamed meanwhile; without
        those that were only looked at."""
        return _without_looks(self.whole(), {self._now(n).name for n in self._looked})

    def whole(self) -> tuple[Node, ...]:
        """All steps, each after those it reads from, whatever was renamed meanwhile.

        A projection that finishes a step is left out where nobody reads it: only late rows are.
        """
        done: dict[str, Node] = {}
        read = {self._now(e.node).name for node in self._nodes for e in node.inputs}
        read |= {self._now(node).name for node in self._looked}
        for node in self._nodes:
            if step_of(node) is not node and node.name not in read:
                continue
            inputs = tuple(Edge(done[self._now(e.node).name], e.port) for e in node.inputs)
            moved = any(a.node is not b.node for a, b in zip(inputs, node.inputs, strict=True))
            done[node.name] = replace(node, inputs=inputs) if moved else node
        return tuple(done.values())

    def look_at(self, edge: Edge) -> None:
        """The rows behind `edge` are shown: if nothing else uses the step, it may be left out."""
        self._looked.append(edge.node)

    def problems_of(self, nodes: Sequence[Node]) -> list[PlanError]:
        """All problems but those of other steps, and of lines on which only others were written."""
        names, ours = {n.name for n in nodes}, {n.site for n in nodes}
        others = {n.site for n in self._nodes if n.name not in names} - ours - {None}
        owners = [self._owners.get(id(p)) for p in self.problems]
        return [
            problem
            for problem, owner in zip(self.problems, owners, strict=True)
            if (self._now(owner).name in names if owner else problem.site not in others)
        ]

    def _own_problems(self, node: Node) -> None:
        """What has been reported since the last step was written belongs to this one."""
        for problem in reversed(self.problems):
            if id(problem) in self._owners:
                break
            if problem.site == node.site:
                self._owners[id(problem)] = node

    def only(self, nodes: Sequence[Node]) -> Draft:
        """A draft of its own with these of the steps, under the names that they have here."""
        scopes = {n.name: self._scopes[n.name] for n in nodes}
        return replace(
            self,
            problems=self.problems_of(nodes),
            _nodes=[*nodes],
            _scopes=scopes,
            _chosen={n: site for n, site in self._chosen.items() if n in scopes},
            _renamed={},
            _before=[],
            _looked=[],
        )

    def _now(self, node: Node) -> Node:
        while id(node) in self._renamed:
            node = self._renamed[id(node)]
        return node

    def _name(self, chosen: str | None, derived: str, site: Site | None) -> str:
        if chosen is None:
            return self._free(derived)
        problem = bad_name(chosen, "a step")
        chosen = chosen if problem else self._numbered(chosen)
        if problem is None and chosen in self._scopes:
            problem = self._twice(chosen)
        if problem is not None:
            self.report(problem, site)
            return self._free(derived)
        self._chosen[chosen] = site
        return chosen

    def _numbered(self, name: str) -> str:
        """In the first round, and where there are none, a name is what it says."""
        first = all(n == 1 for n in self._rounds)
        return name if first else "-".join([name, *map(str, self._rounds)])

    def _twice(self, name: str) -> PlanError:
        first = self._chosen.get(name) or next(n.site for n in self._nodes if n.name == name)
        where = f" (the other at {first})" if first else ""
        return PlanError(
            "HR-PLAN-001",
            f"two steps are named {name!r}{where}",
            "State, metrics and errors go by a step's name: give each its own.",
        )

    def _named(self, node: NodeT, name: str, was: str | None, derived: str | None) -> NodeT:
        """The node under a name; with that of the job it seeds what the step draws at random."""
        of_step: dict[str, Any] = {}
        if isinstance(node, Chunks | Stateful):
            of_step["what"] = node.what.for_step(f"{self.job}/{name}")
        return replace(node, name=name, was=was, derived=derived, **of_step)

    def _free(self, name: str) -> str:
        free, n = name, 1
        while free in self._scopes:
            n += 1
            free = f"{name}-{n}"
        return free


def _without_looks(graph: tuple[Node, ...], looked: set[str]) -> tuple[Node, ...]:
    """The steps without those that lead to nothing but steps that were looked at."""
    left = dict[str, Node]()
    used, idle = set[str](), set[str]()  # of steps that stay, and only of steps that go
    for node in reversed(graph):
        stays = is_end(node) or node.name in used or not {node.name} & (looked | idle)
        (used if stays else idle).update(edge.node.name for edge in node.inputs)
        if stays:
            left[node.name] = node
    return tuple(reversed(left.values()))


def _no_step(port: str, name: str) -> PlanError:
    return PlanError(
        "HR-PLAN-010",
        f"the {port} rows of {name!r} are not a step that could have a name",
        f"Name the step itself, or one after it: .{port}.where(..., name=...).",
    )


# Names that a step gets when the user gives none, made from where it reads or writes.
#
# They depend on nothing but the place itself, so they are the same in every version of a
# program.


_ODD = re.compile(r"[^\w.-]+")


def place_name(uri: object, options: Mapping[str, object] = MappingProxyType({})) -> str:
    """A short name for what a uri points at: "log:temperature" is "temperature"."""
    if not isinstance(uri, str):
        label = getattr(uri, "label", "") or type(uri).__name__.lower().removesuffix("source")
        return _clean(label) or "input"
    scheme, _, rest = uri.partition(":")
    if scheme == "sql" and isinstance(options.get("table"), str):
        rest = str(options["table"])
    if scheme == "files":
        parts = [p for p in PurePosixPath(rest).parts if not set(p) & set("*?[") and p != "/"]
        rest = parts[-1].split(".")[0] or parts[-1] if parts else ""
    elif scheme == "kafka":
        rest = rest.rpartition("/")[2]
    return _clean(rest) or _clean(scheme) or "input"


def points_somewhere(uri: str) -> bool:
    """Whether the uri names a place of its own: "console:" does not."""
    scheme, _, rest = uri.partition(":")
    return bool(rest) and scheme != "console"


def _clean(text: str) -> str:
    return _ODD.sub("-", text).strip("-._")
