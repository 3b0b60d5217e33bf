"""What a changed program means for the state that an earlier version left behind.

State is found by the name of a step and fits if what identifies it is the same (`shapes.py`);
your functions may change. A step without a name of its own is also identified by what it
reads from. All here is comparison of values: nothing is read, moved or deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from headrace.ops.process.migration import MigratedPart
from headrace.ops.process.operator import ProcessSpec
from headrace.plan.aggregate_changes import (
    aggregate_parts,
    aggregate_refusals,
    aggregate_sources,
    lacks_since,
    not_of_past,
    under_names_now,
    unsure_aggregates,
)
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
    NameMatch,
    consent,
    matches,
)
from headrace.plan.nodes import Read, Stateful, Write
from headrace.plan.origin_changes import (
    chain_difference,
    confusable,
    origin_differences,
    unnamed_hint,
)
from headrace.plan.program import Program
from headrace.plan.setting_changes import setting_parts, unsure_settings
from headrace.plan.shapes import FROM, STATELESS, fingerprint, shape
from headrace.plan.step_changes import correction, differences, misnamed, refusals, value_parts
from headrace.plan.window_changes import (
    as_late_now,
    as_windows_now,
    lateness_part,
    window_change,
)

__all__ = [
    "DROPPED", "INPUT", "NEW", "OPERATOR", "OUTPUT", "REFUSED", "RENAMED", "SAME", "VALUE",
    "Change", "Comparison", "compare", "compare_programs", "describe", "fingerprint", "shape",
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
    """Compare the program with the manifest's operators, inputs and outputs.

    `inputs` and `outputs` are the manifest's descriptions by name, `reads` and `writes` those
    of what the program has now; where there is none, the uri has to do. `versions` has the
    state format of each operator now, where it is known.
    """
    stored = described(inputs)
    sources = matches(program.sources(), stored, INPUT)
    steps = _Steps(program, ops, versions or {}, sources)
    changes = [
        *steps.changes(),
        *input_changes(program.sources(), sources, stored, reads or {}),
        *output_changes(program.outputs(), described(outputs), writes or {}),
    ]
    return Comparison(tuple(changes))


def compare_programs(before: Program, after: Program) -> Comparison:
    """Compare two programs as if the one had run and the other were to continue.

    Inputs and outputs are compared as they are written: nothing is opened.
    """
    return compare(
        after,
        describe(before),
        {node.name: _now(node, {}) for node in before.sources()},
        {node.name: _now(node, {}) for node in before.outputs()},
        {node.name: node.operator().version for node in after.stateful()},
    )


class _Steps:
    """The steps of a program, compared with those of a manifest."""

    def __init__(
        self,
        program: Program,
        ops: Ops,
        versions: Mapping[str, int],
        inputs: Mapping[str, NameMatch],
    ) -> None:
        self._nodes = [n for n in program.stateful() if not n.what.stateless]
        self._names = program.nodes.keys()
        self._ops = {n: facts for n, facts in ops.items() if not _stateless(facts)}
        self._versions = versions
        self._facts = describe(program)
        self._matches = matches(self._nodes, self._ops, "step")
        both = {**inputs, **self._matches}
        self._renames = {m.before: name for name, m in both.items() if m.before is not None}

    def changes(self) -> Iterator[Change]:
        for node in self._nodes:
            yield from self._one(node, self._matches[node.name])
        used = {match.before for match in self._matches.values()}
        fresh = [n for n in self._nodes if self._matches[n.name].before is None]
        for name in self._ops:
            if name not in used:
                yield Change(name, OPERATOR, DROPPED, hint=self._dropped(name, fresh))

    def _one(self, node: Stateful, match: NameMatch) -> Iterator[Change]:
        if match.unknown:
            yield Change(node.name, OPERATOR, REFUSED, match.because, match.hint, "HR-EVOLVE-003")
            return
        if match.before is None:
            yield Change(node.name, OPERATOR, NEW)
            return
        before = self._ops[match.before]
        old = as_windows_now(node, before)
        refused = self._refused(node, old, renamed=match.before != node.name)
        if refused is not None:
            yield refused
        elif match.before == node.name:
            yield Change(node.name, OPERATOR, SAME)
        else:
            yield Change(node.name, OPERATOR, RENAMED, f"from {match.before}")
        if refused is None:
            if change := window_change(node, before):
                yield _value(node, change.part)
            if late := lateness_part(node, before):
                yield _value(node, late)
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
        new = self._facts[node.name]
        if old["fingerprint"] == new["fingerprint"]:
            return ""
        because = differences(node, old, new["shape"])
        if "shape" in old and FROM in old["shape"] and FROM in new["shape"]:
            origin = self._origin(node, old), new["shape"][FROM]
            more = origin_differences(*origin, self._renames)
            because = "; ".join(part for part in (because, *more) if part)
        return because

    @staticmethod
    def _origin(node: Stateful, old: Facts) -> Mapping[str, Any]:
        """Where its rows and columns came from, under the names now of its aggregates."""
        origin = as_late_now(node, old, old["shape"][FROM])
        if old["kind"] != node.what.at_rest or not node.what.aggregates:
            return origin
        return under_names_now(origin, aggregate_sources(node, old["shape"]))

    def _unsure(self, node: Stateful, old: Facts) -> str:
        """Why a step without a name of its own may be another than the one it was."""
        new = self._facts[node.name]
        origin = old["shape"].get(FROM, {}), new["shape"].get(FROM, {})
        return (
            chain_difference(*origin, self._renames)
            or unsure_aggregates(node, old["shape"], new["shape"])
            or unsure_settings(node, old["shape"], new["shape"])
            or self._unsure_windows(node)
            or confusable(new, self._facts.values(), old, self._ops.values())
        )

    def _unsure_windows(self, node: Stateful) -> str:
        before = self._ops[str(self._matches[node.name].before)]
        change = window_change(node, before)
        part = change.part if change else lateness_part(node, before)
        return f"it has no name of its own, and its {part.path} is another" if part else ""

    def _dropped(self, name: str, fresh: Iterable[Stateful]) -> str:
        alike = [n.name for n in fresh if not self._unlike(n, as_windows_now(n, self._ops[name]))]
        if alike:
            new, old = self._as_written(alike[0], name)
            return f"If {new!r} is the same step under a new name, pass was={old!r} there."
        return f"Consent to losing its state with {consent(name)}, or put the step back."

    def _as_written(self, new: str, old: str) -> tuple[str, str]:
        """The names of two steps, without that of the part of a step that both are."""
        for place in (at for at, letter in enumerate(new) if letter == " "):
            step, part = new[:place], new[place:]
            if step in self._names and old.endswith(part) and old != part:
                return step, old.removesuffix(part)
        return new, old


def _stateless(facts: Facts) -> bool:
    return bool(facts.get("shape", {}).get(STATELESS))


def _refused(node: Stateful, old: Facts, because: str) -> Change:
    hint, code = _fresh_start(node.name), "HR-EVOLVE-001"
    if isinstance(node.what, ProcessSpec) and old["kind"] == node.what.at_rest and "shape" in old:
        parts = list(value_parts(node.what, old["shape"]))
        if misnamed(parts) and because == refusals(parts):  # and nothing else is wrong
            hint, code = correction(parts), "HR-EVOLVE-003"
    elif old["kind"] == node.what.at_rest and node.what.aggregates and "shape" in old:
        parts = list(aggregate_parts(node, old["shape"], shape(node)))
        if because == "; ".join(aggregate_refusals(parts)):  # and nothing else is wrong
            if misnamed(parts):
                hint, code = correction(parts), "HR-EVOLVE-003"
            elif lacks_since(node, parts):
                hint = _SINCE
            elif not_of_past(node, parts):
                hint = ONLY_NEW
    return Change(node.name, OPERATOR, REFUSED, because, hint, code)


def _values(node: Stateful, old: Facts) -> Iterator[Change]:
    """What becomes of values, aggregates, keys and settings that are not the same."""
    if "shape" not in old or old["kind"] != node.what.at_rest:
        return
    parts = [*setting_parts(node, old["shape"], shape(node))]
    if isinstance(node.what, ProcessSpec):
        parts += value_parts(node.what, old["shape"])
    elif node.what.aggregates:
        parts += aggregate_parts(node, old["shape"], shape(node))
    yield from (_value(node, part) for part in parts)


def _value(node: Stateful, part: MigratedPart) -> Change:
    name = f"{node.name}.{part.path}"
    hint = f"Consent to losing it with {consent(name)}, or put it back."
    return Change(name, VALUE, part.verdict, part.because, hint if part.verdict == DROPPED else "")


ONLY_NEW = (
    'Say agg(..., since="restart"): a new aggregate then counts from this start on, and what is '
    "open now lacks the rows before. To have it of all rows, compute it in a job with a folder of "
    "its own, which reads its inputs from their beginning."
)
_SINCE = (
    'Say agg(..., since="restart"): a new aggregate then counts from this start on, and what is '
    'open now lacks the rows before. Or since="beginning": it is computed of past rows as well, '
    "as far as the inputs still hold them all."
)


def _fresh_start(name: str) -> str:
    return (
        f"Undo the change, or give the step another name to start it afresh: "
        f"{name!r} is then dropped, which needs your consent."
    )


# The inputs and outputs of a changed program, compared with those that a manifest describes.
#
# An input is what it reads: kind, place, and the identity of what is there. An output is where
# it writes, and in which format. A name alone decides nothing: offsets mean something only in
# the place they are of, and what is published stays where it is.


Described = Mapping[str, Any]
ByName = Mapping[str, Described]
URI = "uri"  # all that is known where there is no description
OURS = ("id", "last", "time")  # what a manifest notes about an input or output besides
PLACE = ("kind", "place", "format", URI)  # what says where an output writes


def described(descriptions: Mapping[str, Any] | Iterable[str]) -> dict[str, Described]:
    """Descriptions by name; of older manifests and of tests there is a uri, or only a name."""
    if not isinstance(descriptions, Mapping):
        return {name: {} for name in descriptions}
    return {n: {URI: d} if isinstance(d, str) else d for n, d in descriptions.items()}


def input_changes(
    reads: Iterable[Read], matched: Mapping[str, NameMatch], stored: ByName, now: ByName
) -> Iterator[Change]:
    fresh = []
    for node in reads:
        match, own = matched[node.name], _now(node, now)
        if match.unknown:
            yield Change(node.name, INPUT, REFUSED, match.because, match.hint, "HR-EVOLVE-003")
        elif match.before is None:
            fresh.append(node)
            yield Change(node.name, INPUT, NEW)
        elif _identity(stored[match.before], own) != _identity(own, stored[match.before]):
            because = _other_thing(stored[match.before], own)
            yield Change(node.name, INPUT, REFUSED, because, _elsewhere(match.before))
        else:
            yield _continued(node.name, match.before, INPUT)
    used = {match.before for match in matched.values()}
    for name in stored:
        if name not in used:
            alike = [n.name for n in fresh if _alike(stored[name], _now(n, now))]
            hint = _forgotten(name, alike)
            yield Change(name, INPUT, DROPPED, hint=hint, by_name=bool(alike))


def output_changes(writes: Iterable[Write], stored: ByName, now: ByName) -> Iterator[Change]:
    matched = matches(writes, stored, OUTPUT)
    for node in writes:
        match, own = matched[node.name], _now(node, now)
        if match.unknown:
            yield Change(node.name, OUTPUT, REFUSED, match.because, match.hint, "HR-EVOLVE-003")
        elif match.before is None:
            yield Change(node.name, OUTPUT, NEW)
        elif moved := _moved(stored[match.before], own):
            hint = (
                "Undo the change, or give the output another name=: it begins there, and what "
                f"{match.before!r} has written stays where it is."
            )
            yield Change(node.name, OUTPUT, REFUSED, moved, hint)
        else:
            yield _continued(node.name, match.before, OUTPUT)
    used = {match.before for match in matched.values()}
    yield from (Change(name, OUTPUT, DROPPED) for name in stored if name not in used)


def _continued(name: str, before: str, role: str) -> Change:
    if name == before:
        return Change(name, role, SAME)
    return Change(name, role, RENAMED, f"from {before}")


def _now(node: Read | Write, now: ByName) -> Described:
    """What is known of an input or output of the program; its uri beside its description."""
    uri = {URI: node.uri} if isinstance(node.uri, str) else {}
    return {**now.get(node.name, {}), **uri}


def _identity(description: Described, other: Described) -> dict[str, Any]:
    """What identifies it, of what both descriptions have; a uri only where there is no more."""
    common = {k: v for k, v in description.items() if k in other and k not in OURS}
    if len(common) > 1:
        common.pop(URI, None)
    return common


def _alike(description: Described, other: Described) -> bool:
    identity = _identity(description, other)
    return bool(identity) and identity == _identity(other, description)


def _other_thing(old: Described, new: Described) -> str:
    if any(old.get(k) != new.get(k) for k in ("kind", "place", URI) if k in old and k in new):
        return f"it has read {_place_text(old)} and now reads {_place_text(new)}"
    return (
        f"what is at {_place_text(new)} is not what it has read: it was "
        f"{old.get('thing')!r} and is {new.get('thing')!r}"
    )


def _moved(old: Described, new: Described) -> str:
    changed = [k for k in PLACE if k in old and k in new and old[k] != new[k]]
    if changed == [URI] and "place" in old and "place" in new:
        return ""  # the same place, written otherwise
    if not changed:
        return ""
    return (
        f"it has written {_place_text(old, 'format')} and now writes {_place_text(new, 'format')}"
    )


def _place_text(description: Described, *more: str) -> str:
    """A place as its user would know it."""
    if "place" not in description:
        return str(description.get(URI, "another place"))
    place = ":".join(str(description[k]) for k in ("kind", "place") if description.get(k))
    extra = [str(description[k]) for k in more if description.get(k)]
    return f"{place} as {' '.join(extra)}" if extra else place


def _elsewhere(name: str) -> str:
    return (
        "Undo the change. To read the other place, give the input another name and consent to "
        f"forgetting how far {name!r} was read: {consent(name)}. The new input is read from its "
        "beginning, into the state that is there."
    )


def _forgotten(name: str, alike: list[str]) -> str:
    if alike:
        return (
            f"If {alike[0]!r} is the same input under a new name, pass was={name!r} there. To read "
            f"it again from its beginning, into the state that is there, say {consent(name)}."
        )
    return f"Put it back, or consent to forgetting how far it was read: {consent(name)}."
