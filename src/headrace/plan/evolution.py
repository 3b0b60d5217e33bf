"""What a changed program means for the state that an earlier version left behind.

State is found by the name of a step and fits if what identifies it is the same (`shapes.py`);
your functions may change. A step without a name of its own is also identified by what it
reads from. All here is comparison of values: nothing is read, moved or deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from headrace.ops.process.spec import ProcessSpec
from headrace.plan.comparison import (
    DROPPED,
    INPUT,
    NEW,
    OPERATOR,
    OUTPUT,
    REFUSED,
    RENAMED,
    SAME,
    VALUE,
    Change,
    Comparison,
    consent,
)
from headrace.plan.evolving_edges import described, input_changes, output_changes
from headrace.plan.evolving_names import Match, matches
from headrace.plan.evolving_origins import chain_difference, origin_differences
from headrace.plan.evolving_steps import differences
from headrace.plan.evolving_unnamed import confusable, unnamed_hint
from headrace.plan.evolving_values import correction, misnamed, refusals, value_parts
from headrace.plan.nodes import Stateful
from headrace.plan.program import Program
from headrace.plan.shapes import FROM, STATELESS, fingerprint, shape

__all__ = [
    "DROPPED", "INPUT", "NEW", "OPERATOR", "OUTPUT", "REFUSED", "RENAMED", "SAME", "VALUE",
    "Change", "Comparison", "compare", "describe", "fingerprint", "shape",
]  # fmt: skip

Facts = Mapping[str, Any]  # what a manifest says of one step
Ops = Mapping[str, Facts]

_described: WeakKeyDictionary[Program, Ops] = WeakKeyDictionary()  # it goes with its program


def describe(program: Program) -> Ops:
    """What a manifest should say of each operator, for `compare` to read later."""
    if program not in _described:
        _described[program] = {
            n.name: {"kind": n.what.at_rest, "fingerprint": fingerprint(n), "shape": shape(n)}
            for n in program.stateful()
        }
    return _described[program]


def compare(
    program: Program,
    ops: Ops,
    inputs: Mapping[str, Any] | Iterable[str] = (),
    outputs: Mapping[str, Any] | Iterable[str] = (),
    versions: Mapping[str, int] | None = None,
    reads: Mapping[str, Mapping[str, Any]] | None = None,
    writes: Mapping[str, Mapping[str, Any]] | None = None,
) -> Comparison:
    """The program beside the manifest's operators, inputs and outputs.

    `inputs` and `outputs` are the manifest's descriptions by name, `reads` and `writes` those
    of what the program has now; where there is none, the uri has to do. `versions` gives the
    state format of each operator now, where it is known.
    """
    known = described(inputs)
    sources = matches(program.sources(), known, INPUT)
    steps = _Steps(program, ops, versions or {}, sources)
    changes = [
        *steps.changes(),
        *input_changes(program.sources(), sources, known, reads or {}),
        *output_changes(program.outputs(), described(outputs), writes or {}),
    ]
    return Comparison(tuple(changes))


class _Steps:
    """The steps of a program beside those of a manifest."""

    def __init__(
        self, program: Program, ops: Ops, versions: Mapping[str, int], inputs: Mapping[str, Match]
    ) -> None:
        self._nodes = [n for n in program.stateful() if not n.what.stateless]
        self._ops = {n: facts for n, facts in ops.items() if not _stateless(facts)}
        self._versions = versions
        self._told = describe(program)
        self._found = matches(self._nodes, self._ops, "step")
        both = {**inputs, **self._found}
        self._renames = {m.before: name for name, m in both.items() if m.before is not None}

    def changes(self) -> Iterator[Change]:
        for node in self._nodes:
            yield from self._one(node, self._found[node.name])
        used = {match.before for match in self._found.values()}
        fresh = [n for n in self._nodes if self._found[n.name].before is None]
        for name in self._ops:
            if name not in used:
                yield Change(name, OPERATOR, DROPPED, hint=self._dropped(name, fresh))

    def _one(self, node: Stateful, match: Match) -> Iterator[Change]:
        if match.unknown:
            yield Change(node.name, OPERATOR, REFUSED, match.because, match.hint, "HR-EVOLVE-003")
            return
        if match.before is None:
            yield Change(node.name, OPERATOR, NEW)
            return
        old = self._ops[match.before]
        refused = self._refused(node, old, renamed=match.before != node.name)
        if refused is not None:
            yield refused
        elif match.before == node.name:
            yield Change(node.name, OPERATOR, SAME)
        else:
            yield Change(node.name, OPERATOR, RENAMED, f"from {match.before}")
        if refused is None:
            yield from _values(node, old)

    def _refused(self, node: Stateful, old: Facts, *, renamed: bool) -> Change | None:
        because = self._unlike(node, old)
        if because:
            return _refused(node, old, because)
        if node.derived is None or renamed or "shape" not in old:
            return None
        because = self._unsure(node, old)
        hint = unnamed_hint(node)
        return (
            Change(node.name, OPERATOR, REFUSED, because, hint, "HR-EVOLVE-005")
            if because
            else None
        )

    def _unlike(self, node: Stateful, old: Facts) -> str:
        """Why the state does not fit; empty if it does."""
        version = self._versions.get(node.name)
        if version is not None and old.get("version", version) != version:
            return f"its state has format {old['version']} and this release writes {version}"
        told = self._told[node.name]
        if old["fingerprint"] == told["fingerprint"]:
            return ""
        because = differences(node, old, told["shape"])
        if "shape" in old and FROM in old["shape"] and FROM in told["shape"]:
            origin = old["shape"][FROM], told["shape"][FROM]
            more = origin_differences(*origin, self._renames)
            because = "; ".join(part for part in (because, *more) if part)
        return because

    def _unsure(self, node: Stateful, old: Facts) -> str:
        """Why a step without a name of its own may be another than the one it was."""
        new = self._told[node.name]
        origin = old["shape"].get(FROM, {}), new["shape"].get(FROM, {})
        return chain_difference(*origin, self._renames) or confusable(
            new, self._told.values(), old, self._ops.values()
        )

    def _dropped(self, name: str, fresh: Iterable[Stateful]) -> str:
        alike = [n.name for n in fresh if not self._unlike(n, self._ops[name])]
        if alike:
            return f"If {alike[0]!r} is the same step under a new name, say was={name!r} there."
        return f"Consent to losing its state with {consent(name)}, or put the step back."


def _stateless(facts: Facts) -> bool:
    return bool(facts.get("shape", {}).get(STATELESS))


def _refused(node: Stateful, old: Facts, because: str) -> Change:
    hint, code = _fresh_start(node.name), "HR-EVOLVE-001"
    if isinstance(node.what, ProcessSpec) and old["kind"] == node.what.at_rest and "shape" in old:
        parts = list(value_parts(node.what, old["shape"]))
        if misnamed(parts) and because == refusals(parts):  # and nothing else is wrong
            hint, code = correction(parts), "HR-EVOLVE-003"
    return Change(node.name, OPERATOR, REFUSED, because, hint, code)


def _values(node: Stateful, old: Facts) -> Iterator[Change]:
    """What becomes of the values of a process function, where they are not the same."""
    if not isinstance(node.what, ProcessSpec) or "shape" not in old:
        return
    for part in value_parts(node.what, old["shape"]):
        name = f"{node.name}.{part.path}"
        hint = f"Consent to losing it with {consent(name)}, or put it back."
        because = part.because
        yield Change(name, VALUE, part.verdict, because, hint if part.verdict == DROPPED else "")


def _fresh_start(name: str) -> str:
    return (
        f"Undo the change, or give the step another name to start it afresh: "
        f"{name!r} is then dropped, which needs your consent."
    )
