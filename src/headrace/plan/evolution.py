"""What a changed program means for the state that an earlier version left behind.

State is found by the name of a step. It fits if what shapes it is unchanged: kind, key,
window, aggregates, declared values; neither Python code nor the step's place matters. All
here is comparison of values: nothing is read, moved or deleted.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.clock import pretty
from headrace.errors import StateError
from headrace.ops.window.process import WindowProcess
from headrace.plan.aggs import partial_schema
from headrace.plan.evolving_values import (
    correction,
    misnamed,
    refusals,
    value_parts,
    values_shape,
)
from headrace.plan.evolving_windows import (
    WINDOWS,
    firing_difference,
    kept_word,
    row_differences,
    step_word,
    window_differences,
)
from headrace.plan.nodes import (
    AnyWindow,
    Apply,
    Fold,
    Node,
    Process,
    Rolling,
    RowWindow,
    Stateful,
    WindowAgg,
    WindowFold,
)  # fmt: skip
from headrace.plan.program import Program
from headrace.schema import ddl_type

SAME, NEW, RENAMED, DROPPED, REFUSED = "same", "new", "renamed", "dropped", "refused"
OPERATOR, INPUT, OUTPUT, VALUE = "operator", "input", "output", "value"


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one operator, input or output."""

    name: str
    role: str
    verdict: str
    because: str = ""
    hint: str = ""
    code: str = "HR-EVOLVE-001"  # of the error, if it is refused

    def __str__(self) -> str:
        because = f", because {self.because}" if self.verdict == REFUSED else f" {self.because}"
        return f"{self.role:<8}  {self.name}: {self.verdict}{because}".rstrip()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A program beside what its folder holds; print it, or `check` it before a start."""

    changes: tuple[Change, ...]

    def __str__(self) -> str:
        lines = ([str(c), *([f"    {c.hint}"] if c.hint else [])] for c in self.changes)
        return "\n".join(line for pair in lines for line in pair)

    def of(self, verdict: str, role: str = OPERATOR) -> tuple[Change, ...]:
        return tuple(c for c in self.changes if c.verdict == verdict and c.role == role)

    def moves(self) -> dict[str, str]:
        """For each renamed operator, input and output: its name now -> its name before."""
        return {
            c.name: c.because.removeprefix("from ")
            for c in self.changes
            if c.verdict == RENAMED and c.role != VALUE
        }

    def check(self, drop: Collection[str] | bool = ()) -> None:
        """Refuse to start where state would be misread, or lost without consent."""
        for change in self.of(REFUSED) + self.of(REFUSED, INPUT):
            raise StateError(
                f"the {change.role} {change.name!r} cannot go on from its state, because "
                f"{change.because}", code=change.code, hint=change.hint,
            )  # fmt: skip
        gone = self.of(DROPPED) + self.of(DROPPED, VALUE)
        lost = [c for c in gone if not (drop is True or (drop and c.name in drop))]
        if lost:
            names = ", ".join(repr(c.name) for c in lost)
            hints = " ".join(dict.fromkeys(c.hint for c in lost))
            raise StateError(
                f"the program no longer has {names}, whose state is in the job's folder",
                code="HR-EVOLVE-002", hint=hints,
            )  # fmt: skip


def fingerprint(node: Stateful) -> str:
    """A stable hash of what shapes the state of a step."""
    canonical = json.dumps(shape(node), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def shape(node: Stateful) -> dict[str, Any]:
    """What shapes the state of a step, as plain JSON."""
    schema = node.inputs[0].schema
    key = [[n, ddl_type(schema.field(n).type)] for n in node.keys[0]]
    found: dict[str, Any] = {"kind": type(node).__name__, "key": key}
    if isinstance(node, WindowAgg | WindowFold):
        window = node.window
        found["window"] = {"size": window.size, "slide": window.slide, "offset": window.offset}
    if isinstance(node, AnyWindow):
        found["window"] = {"assigner": str(node.windowing.assigner), "mode": node.windowing.mode}
        found["watched"] = sorted(w.name + w.agg for w in node.windowing.trigger.watches())
        found["clocked"] = node.windowing.trigger.clocked
        if node.evictor is not None:  # it needs the rows themselves
            found["rows"] = _columns(schema)
    if isinstance(node, RowWindow):
        found["window"] = str(node.window)
    if isinstance(node, AnyWindow | RowWindow) and node.function is not None:
        found["rows"] = _columns(schema)
        fn = node.function.fn
        kept: Mapping[str, Any] = fn.values if isinstance(fn, WindowProcess) else {}
        found["kept"] = [[n, ddl_type(v.type), type(v).__name__] for n, v in kept.items()]
    if isinstance(node, WindowAgg | Rolling | AnyWindow | RowWindow):
        found["aggregates"] = [
            [name, agg.kind, _columns(partial_schema(((name, agg),), schema))]
            for name, agg in node.aggs
        ]
    if isinstance(node, Fold | WindowFold):
        found["folds"] = "reduce" if node.zero is None else "fold"
        found["values"] = _columns(node.value)
    if isinstance(node, Process):
        found["key"] = [kind for _, kind in key]  # each input has its own names for the key
        found |= values_shape(node)
    if isinstance(node, Apply):
        found["key"] = [kind for _, kind in key]
        found |= {"kind": node.what.kind, "what": node.what.shape()}
    return found


def describe(program: Program) -> dict[str, dict[str, Any]]:
    """What a manifest should say of each operator, for `compare` to read later."""
    return {
        n.name: {"kind": type(n).__name__, "fingerprint": fingerprint(n), "shape": shape(n)}
        for n in program.stateful()
    }


def compare(
    program: Program,
    ops: Mapping[str, Mapping[str, Any]],
    inputs: Mapping[str, str] | Iterable[str] = (),
    outputs: Mapping[str, str] | Iterable[str] = (),
    versions: Mapping[str, int] | None = None,
) -> Comparison:
    """The program beside the manifest's operators, inputs and outputs (name -> uri).

    `versions` gives the state format of each operator now, where it is known.
    """
    changes = [
        *_operators(program, ops, versions or {}),
        *_edges(INPUT, program.sources(), _named(inputs)),
        *_edges(OUTPUT, program.outputs(), _named(outputs)),
    ]
    return Comparison(tuple(changes))


def _operators(
    program: Program, ops: Mapping[str, Mapping[str, Any]], versions: Mapping[str, int]
) -> Iterator[Change]:
    before = {n.name: _before(n, ops) for n in program.stateful()}
    for node in program.stateful():
        old = before[node.name]
        if old is None:
            yield Change(node.name, OPERATOR, NEW)
            continue
        because = _unlike(node, ops[old], versions.get(node.name))
        if because:
            yield _refused(node, ops[old], because)
        elif old == node.name:
            yield Change(node.name, OPERATOR, SAME)
        else:
            yield Change(node.name, OPERATOR, RENAMED, f"from {old}")
        if not because:
            yield from _values(node, ops[old])
    fresh = [n for n in program.stateful() if before[n.name] is None]
    for name in ops:
        if name not in before.values():
            yield Change(name, OPERATOR, DROPPED, hint=_dropped(name, ops[name], fresh))


def _before(node: Node, known: Collection[str]) -> str | None:
    """The name under which the step's state lies."""
    if node.name in known:
        return node.name
    return node.was if node.was is not None and node.was in known else None


def _unlike(node: Stateful, old: Mapping[str, Any], version: int | None) -> str:
    """Why the state does not fit; empty if it does."""
    if version is not None and old.get("version", version) != version:
        return f"its state has format {old['version']} and this release writes {version}"
    if old["fingerprint"] == fingerprint(node):
        return ""
    kind = type(node).__name__
    windows = kind in WINDOWS and old["kind"] in WINDOWS and "shape" in old
    if old["kind"] != kind and not windows:
        was = step_word(old["kind"], old.get("shape"))
        return f"it was {was} and is {step_word(kind, shape(node))}"
    if isinstance(node, Process) and "shape" in old:
        key = _differences({"key": old["shape"]["key"]}, {"key": shape(node)["key"]})
        refused = refusals(list(value_parts(node, old["shape"])))
        return "; ".join([*key, *([refused] if refused else [])])
    differences = list(_differences(old["shape"], shape(node))) if "shape" in old else []
    if isinstance(node, Apply):
        kind = node.what.kind
        return "; ".join(differences) or f"the key or the settings of this {kind} changed"
    if windows and not differences:
        return firing_difference(node, old["shape"])
    return "; ".join(differences) or "its key, window or columns changed"


def _refused(node: Stateful, old: Mapping[str, Any], because: str) -> Change:
    hint, code = _fresh_start(node.name), "HR-EVOLVE-001"
    if isinstance(node, Process) and old["kind"] == type(node).__name__ and "shape" in old:
        parts = list(value_parts(node, old["shape"]))
        if misnamed(parts) and because == refusals(parts):  # and nothing else is wrong
            hint, code = correction(parts), "HR-EVOLVE-003"
    return Change(node.name, OPERATOR, REFUSED, because, hint, code)


def _values(node: Stateful, old: Mapping[str, Any]) -> Iterator[Change]:
    """What becomes of the values of a process function, where they are not the same."""
    if not isinstance(node, Process) or "shape" not in old:
        return
    for part in value_parts(node, old["shape"]):
        name = f"{node.name}.{part.path}"
        hint = f"Consent to losing it with {_consent(name)}, or put it back."
        because = part.because
        yield Change(name, VALUE, part.verdict, because, hint if part.verdict == DROPPED else "")


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if old.get("key") != new.get("key"):
        yield f"its key was {_list(old.get('key'))} and is {_list(new.get('key'))}"
    if "window" in old and "window" in new:
        yield from window_differences(old, new)
        if kept_word(old) != kept_word(new):
            return  # nothing of what is kept can be alike
        yield from row_differences(old, new)
    for part in ("aggregates", "values"):
        was, now = ({c[0]: c for c in s.get(part, ())} for s in (old, new))
        yield from (f"the {part[:-1]} {n!r} is new" for n in now if n not in was)
        yield from (f"the {part[:-1]} {n!r} is gone" for n in was if n not in now)
        yield from (
            f"the {part[:-1]} {n!r} was {_list(was[n][1:])} and is {_list(now[n][1:])}"
            for n in now if n in was and now[n] != was[n]
        )  # fmt: skip
    if old.get("folds") != new.get("folds"):
        yield f"it was a {old.get('folds')} and is a {new.get('folds')}"
    if "what" in old and "what" in new:
        yield from _settings(old, new)


def _settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two steps that bring their own meaning."""
    kind, was, now = new["kind"], old["what"], new["what"]
    if old["kind"] != kind:
        yield f"it was a {old['kind']} and is a {kind}"
        return
    for name in dict.fromkeys((*now, *was)):
        before, after = was.get(name), now.get(name)
        if before == after:
            continue
        if isinstance(before, dict | list) or isinstance(after, dict | list):
            yield f"{name!r} of this {kind} changed"
        else:
            yield f"{name!r} of this {kind} was {_setting(name, before)} and is " + _setting(
                name, after
            )


def _setting(name: str, value: Any) -> str:
    lasts = name in ("within", "per", "period") and isinstance(value, int)
    return pretty(value) if lasts else "none" if value is None else str(value)


def _edges(role: str, nodes: Iterable[Node], known: Mapping[str, str]) -> Iterator[Change]:
    seen = set()
    for node in nodes:
        old = _before(node, known)
        uri = getattr(node, "uri", None)
        seen.add(old)
        if old is None:
            yield Change(node.name, role, NEW)
        elif role == INPUT and known[old] and isinstance(uri, str) and uri != known[old]:
            because = f"its offsets are of {known[old]} and it reads {uri}"
            yield Change(node.name, role, REFUSED, because, _fresh_start(node.name))
        elif old != node.name:
            yield Change(node.name, role, RENAMED, f"from {old}")
        else:
            yield Change(node.name, role, SAME)
    yield from (Change(name, role, DROPPED) for name in known if name not in seen)


def _fresh_start(name: str) -> str:
    return (
        f"Undo the change, or give the step another name to start it afresh: "
        f"{name!r} is then dropped, which needs your consent."
    )


def _dropped(name: str, old: Mapping[str, Any], fresh: Iterable[Stateful]) -> str:
    alike = [n.name for n in fresh if fingerprint(n) == old["fingerprint"]]
    if alike:
        return f"If {alike[0]!r} is the same step under a new name, say was={name!r} there."
    return f"Consent to losing its state with {_consent(name)}, or put the step back."


def _consent(name: str) -> str:
    """As a program says it, and as one types it."""
    return f"drop={name!r} (--drop {shlex.quote(name)} on the command line)"


def _named(known: Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    return dict(known) if isinstance(known, Mapping) else dict.fromkeys(known, "")


def _columns(schema: pa.Schema) -> list[list[str]]:
    return [[f.name, ddl_type(f.type)] for f in schema]


def _list(value: Any) -> str:
    if isinstance(value, str):
        return value
    return " ".join(_list(v) for v in value or ()) or "nothing"
