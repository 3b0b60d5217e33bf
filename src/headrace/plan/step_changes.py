"""What changed about a step itself and the values it stores, in the user's words.

It compares the shape in a manifest with the shape now, all but where rows and columns come
from (`origin_changes.py`). Whatever differs is a difference, named where there are words for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.clock import pretty
from headrace.ddl import read_type
from headrace.ops.contract import Spec
from headrace.ops.process.held_rows import HELD_ROWS
from headrace.ops.process.migration import (
    CHANGED,
    DROPPED,
    NEW,
    REFUSED,
    RENAMED,
    UNKNOWN,
    MigratedPart,
    fits,
)
from headrace.ops.process.operator import ProcessSpec, life_of
from headrace.ops.process.state_kinds import ValueState
from headrace.ops.window.aligned import Window
from headrace.plan.aggregate_changes import (
    AGGREGATES,
    aggregate_parts,
    aggregate_refusals,
    words,
)
from headrace.plan.nodes import Stateful
from headrace.plan.setting_changes import as_now, why_no_setting
from headrace.plan.shapes import FROM
from headrace.plan.wider_columns import why_no_key
from headrace.plan.window_changes import others_beside, why_not
from headrace.schema import ddl_type

Shape = Mapping[str, Any]


def differences(node: Stateful, old: Mapping[str, Any], new: Shape) -> str:
    """Why the state is not that of this step; empty if it is, as far as it goes by itself."""
    kind = node.what.at_rest
    windows = kind in WINDOWS and old["kind"] in WINDOWS and "shape" in old
    if old["kind"] != kind and not windows:
        before = step_text(old["kind"], old.get("shape"))
        return f"it was {before} and is {step_text(kind, new)}"
    if "shape" not in old:
        return _some_change(node)
    if beside := others_beside(node, old):
        return beside
    was = _itself(old["shape"])
    if old["kind"] == kind:
        was = as_now(node, was, new)
    if isinstance(node.what, ProcessSpec):
        key = _differences(node, {"key": was["key"]}, {"key": new["key"]})
        refused = refusals(list(value_parts(node.what, was)))
        regrouped = node.what.regrouped(was, new)
        held = held_differences(was, new)
        return "; ".join([*key, *regrouped, *held, *([refused] if refused else [])])
    aggregates = list[str]()
    if old["kind"] == kind and node.what.aggregates:
        aggregates = aggregate_refusals([*aggregate_parts(node, was, new)])
        was = {**was, AGGREGATES: new[AGGREGATES]}
    if was == _itself(new):
        return "; ".join(aggregates)
    changes = [*_differences(node, was, new), *aggregates]
    if windows and not changes:
        return firing_difference(node, was)
    return "; ".join(changes) or _some_change(node)


def _some_change(node: Stateful) -> str:
    if node.what.at_rest == Spec.at_rest:
        return f"the key or the settings of this {node.what.kind} changed"
    return "its key, window or columns changed"


def _itself(shape: Shape) -> dict[str, Any]:
    return {part: value for part, value in shape.items() if part != FROM}


def _differences(node: Stateful, old: Shape, new: Shape) -> Iterator[str]:
    if old.get("key") != new.get("key"):
        was, now = old.get("key", ()), new.get("key", ())
        yield f"its key was {words(was)} and is {words(now)}{why_no_key(node, was, now)}"
    if old.get("by") != new.get("by"):
        was, now = (s.get("by", "event") for s in (old, new))
        yield f"it went by {was} time and goes by {now} time"
    if "window" in old and "window" in new:
        yield from window_differences(old, new)
        if stored_text(old) != stored_text(new):
            return  # nothing of what is stored can be the same
        yield from row_differences(old, new)
    for part in ("aggregates", "values"):
        was, now = _entries(old, part), _entries(new, part)
        yield from _entry_differences(f"the {part[:-1]}", "", was, now, words)
        yield from ordering(f"its {part}", was, now)
    if old.get("folds") != new.get("folds"):
        yield f"it was a {old.get('folds')} and is a {new.get('folds')}"
    if "what" in old and "what" in new:
        yield from _settings(old, new)


def _entries(shape: Shape, part: str) -> dict[str, list[Any]]:
    """What a shape lists under `part`, by name."""
    return {name: rest for name, *rest in shape.get(part, ())}


def _entry_differences(
    what: str, whose: str, was: Shape, now: Shape, text: Callable[[Any], str]
) -> Iterator[str]:
    yield from (f"{what} {n!r}{whose} is new" for n in now if n not in was)
    yield from (f"{what} {n!r}{whose} is gone" for n in was if n not in now)
    yield from (
        f"{what} {n!r}{whose} was {text(was[n])} and is {text(now[n])}"
        for n in now
        if n in was and was[n] != now[n]
    )


def _settings(old: Shape, new: Shape) -> Iterator[str]:
    """What differs between two steps that bring their own meaning."""
    kind, was, now = new["kind"], old["what"], new["what"]
    if old["kind"] != kind:
        yield f"it was a {old['kind']} and is a {kind}"
        return
    for name in dict.fromkeys((*now, *was)):
        before, after = was.get(name), now.get(name)
        if before == after:
            continue
        if (kind, name) == ("top", "holds"):
            yield _held(after)
            continue
        why = why_no_setting(kind, name, was, now)
        if kind in _FORGETTING and name == "within" and _longer(before, after):
            yield _forgotten(before, after)
        elif isinstance(before, dict | list) or isinstance(after, dict | list):
            yield f"{name!r} of this {kind} changed{why}"
        else:
            texts = (_setting(name, value) for value in (before, after))
            yield f"{name!r} of this {kind} was {' and is '.join(texts)}{why}"


_FORGETTING = ("deduplicate", "join")


def _longer(before: Any, after: Any) -> bool:
    """Whether rows would be needed that the shorter time, or the narrower bounds, have let go."""
    if isinstance(before, list):
        return bool(after[0] < before[0] or before[1] < after[1])
    return before is not None and (after is None or before < after)


def _forgotten(before: Any, after: Any) -> str:
    was, now = (
        " to ".join(map(pretty, w)) if isinstance(w, list) else _setting("within", w)
        for w in (before, after)
    )
    return f"its within was {was} and is {now}: what was over by that is gone"


def _held(now: Any) -> str:
    """What a `top` with `each` stores, now and before."""
    if now is None:
        return "it stored all rows and stores only the best, since they never get worse"
    return "it stored only the best rows, of which none could come up when another got worse"


def _setting(name: str, value: Any) -> str:
    is_duration = name in ("within", "per", "period") and isinstance(value, int)
    return pretty(value) if is_duration else "none" if value is None else str(value)


# What changed about the windows of a step.
#
# Both sides are plain JSON from `shapes.shape`; whether state fits is not decided here.


_ALL_ROWS = "all rows"
ONCE = ("WindowAgg", "WindowFold", "PaneFold", "RowWindow")  # their windows fire once
WINDOWS = (*ONCE, "AnyWindow", "TriggeredRowWindow")
_STEPS = {
    **dict.fromkeys(WINDOWS, "a window"),
    "Rolling": "a running aggregate",
    "Fold": "a running reduce or fold",
    "Process": "a process function",
    "Bolt": "a bolt",
}
_VALUES = {"WindowValue": "per window"}


def step_text(kind: str, shape: Shape | None = None) -> str:
    """What a user calls a step of this kind."""
    own = (shape or {}).get("kind", kind)
    return _STEPS.get(kind) or ("another kind of step" if own == "Apply" else f"a {own}")


def window_text(window: str | Shape) -> str:
    """A window as `shape` describes it: "tumbling 5s", "session gap 3s", "3 rows"."""
    if isinstance(window, str):  # "$cut" is the column that the plan made of an expression
        return window.replace("$cut", "an expression")
    if "assigner" in window:
        return str(window["assigner"])
    return str(Window(window["size"], window["slide"], window["offset"]))


def window_differences(old: Shape, new: Shape) -> Iterator[str]:
    """What is different about the windows, and about what is stored for each."""
    was, now = (window_text(s["window"]) for s in (old, new))
    if was != now:
        yield f"its window was {was} and is {now}{why_not(old['window'], new['window'])}"
    else:
        yield from _setting_differences(was, *(_window_settings(s["window"]) for s in (old, new)))
    was, now = (_mode(s["window"]) for s in (old, new))
    if was != now:
        yield f"its mode was {was!r} and is {now!r}"
    was, now = stored_text(old), stored_text(new)
    if was != now:
        why = "the rows of windows that are open are gone"
        if was == _ALL_ROWS:
            why = "what is computed of stored rows is not made of them at a start"
        yield f"it stored {was} of each window and stores {now}: {why}"


def _window_settings(window: str | Shape) -> Shape:
    return {} if isinstance(window, str) else window.get("settings", {})


def _setting_differences(window: str, old: Shape, new: Shape) -> Iterator[str]:
    """What differs between the attributes of two assigners of the user's own."""
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            was, now = (s.get(name, "not there") for s in (old, new))
            yield f"{name!r} of its window {window} was {was} and is {now}"


def row_differences(old: Shape, new: Shape) -> Iterator[str]:
    """What is different about the rows, and the values of a `WindowProcess`, that are stored."""
    if "rows" not in old or "rows" not in new:
        return
    for part, what, whose in (("rows", "column", " of its rows"), ("kept", "value", "")):
        was, now = _entries(old, part), _entries(new, part)
        yield from _entry_differences(f"the {what}", whose, was, now, _value)
        yield from ordering(f"the {what}s{whose}", was, now)


def ordering(what: str, was: Shape, now: Shape) -> Iterator[str]:
    """What is stored goes by its place: the same in another order is something else."""
    if list(was) != list(now) and was == now:
        yield f"{what} were {', '.join(was)} and are {', '.join(now)}: their order changed"


def firing_difference(node: Stateful, old: Shape) -> str:
    """What is different about when windows fire, where nothing else is."""
    now = node.what.firing(node.schema)
    why = ""
    if {old["kind"], node.what.at_rest} == {"RowWindow", "TriggeredRowWindow"}:
        why = ": of windows that rows end, other counts are stored with a trigger than without"
    if old["kind"] in ONCE:
        return f"its windows fired once, when they were over, and now it has {now or 'none'}{why}"
    if now is None:
        return (
            "it had a trigger, lateness=, evict= or info=, and its windows fire once, when they "
            f"are over, now{why}"
        )
    return f"its trigger stored other values than it does now, with {now}"


def _mode(window: str | Shape) -> str:
    return "replace" if isinstance(window, str) else str(window.get("mode", "replace"))


def stored_text(shape: Shape) -> str:
    """What is stored of each window."""
    if "rows" in shape:
        return _ALL_ROWS
    return f"the value of its {shape['folds']}" if "folds" in shape else "aggregates"


def _value(described: list[str]) -> str:
    """The type of a column; of a value also whether it is stored per window or per key."""
    kind, *owner = described
    return f"{kind} {_VALUES.get(owner[0], 'per key')}" if owner else kind


# What a changed process function means for the values that the earlier one has stored.
#
# A value is found by its name, or by the one it says it had (`was=`), and so are the fields of
# a record (`was_fields=`). It may be new, renamed, wider, have other fields, or be gone, which
# needs consent; it cannot be another kind of value. What is stored is rewritten by
# `driver/state_migration.py`.


_LIVES = {"": "no ttl", "event": "a ttl by event time", "clock": "a ttl by the clock"}
ON_TIMER = "on_timer"


class StoredValue(NamedTuple):
    """One value of a process function, as a manifest describes it."""

    name: str
    type: str
    word: str
    life: str  # by which time it is forgotten: "", "event", "clock"


def sources(
    values: Mapping[str, ValueState], stored: Mapping[str, StoredValue]
) -> dict[str, StoredValue | None]:
    """For each value now, what it was; None for a new one."""
    return {
        name: stored.get(name) or (stored.get(declared.was) if declared.was else None)
        for name, declared in values.items()
    }


def held_differences(old: Shape, new: Shape) -> Iterator[str]:
    """Why rows that a process function with `order=` has held cannot be used, or would be lost.

    One without it has held none: with `order=` it goes on from the values and timers.
    """
    if HELD_ROWS not in old:
        return
    if HELD_ROWS not in new:
        yield (
            'it had order="event_time": rows that it holds until the watermark passes them would '
            "be lost"
        )
        return
    before, after = ([name for name, _ in shape[HELD_ROWS]] for shape in (old, new))
    if before != after:
        yield f"it holds rows of {words(before)}, and its inputs are {words(after)}"
        return
    for (name, columns_before), (_, columns_now) in zip(
        old[HELD_ROWS], new[HELD_ROWS], strict=True
    ):
        whose = f" of the rows of {name} that it holds" if name else " of the rows that it holds"
        was, now = ({n: rest for n, *rest in part} for part in (columns_before, columns_now))
        yield from _entry_differences("the column", whose, was, now, _value)
        yield from ordering(f"the columns{whose}", was, now)


def known_values(shape: Mapping[str, Any]) -> dict[str, StoredValue]:
    return {entry[0]: StoredValue(*entry) for entry in shape["values"]}


def value_parts(what: ProcessSpec, old: Mapping[str, Any]) -> Iterator[MigratedPart]:
    """What becomes of each value that changes; `old` is the shape in a manifest."""
    kind, stored = type(what.function), known_values(old)
    before = sources(kind._kept, stored)
    for name, was in before.items():
        earlier = kind._kept[name].was
        if was is not None:
            yield from _one(name, kind._kept[name], was)
        elif earlier is None:
            yield MigratedPart(name, NEW)
        else:
            names = ", ".join(map(repr, stored)) or "no value"
            yield MigratedPart(
                name, UNKNOWN, f"says it was {earlier!r}, but what is stored has {names}"
            )
    used = {was.name for was in before.values() if was is not None}
    yield from (MigratedPart(name, DROPPED) for name in stored if name not in used)
    if old["timers"] and not kind.timed():
        yield MigratedPart(ON_TIMER, DROPPED)


def _one(name: str, value: ValueState, was: StoredValue) -> Iterator[MigratedPart]:
    if was.name != name:
        yield MigratedPart(name, RENAMED, f"from {was.name}")
    if was.word != value.word:
        yield MigratedPart(name, REFUSED, f"was {_article(was.word)} and is {_article(value.word)}")
    elif was.type != ddl_type(value.type):
        yield from fits(read_type(was.type), value.type, name, value.whole, value.was_fields)
    if was.life != life_of(value):
        yield MigratedPart(name, CHANGED, f"from {_LIVES[was.life]} to {_LIVES[life_of(value)]}")


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def misnamed(parts: Sequence[MigratedPart]) -> bool:
    """Whether nothing is wrong but an earlier name that is not known."""
    refused = {p.verdict for p in parts} & {REFUSED, UNKNOWN}
    return refused == {UNKNOWN}


def correction(parts: Sequence[MigratedPart]) -> str:
    """What to do about earlier names that are not known: of values, or of fields in them."""
    fields = any("." in p.path for p in parts if p.verdict == UNKNOWN)
    if fields:
        return "Correct was_fields=, or leave this field out of it."
    return "Correct was=, or leave it out: the value is then new."


def refusals(parts: Sequence[MigratedPart]) -> str:
    refused = (p for p in parts if p.verdict in (REFUSED, UNKNOWN))
    return "; ".join(f"the value {p.path!r} {p.because}" for p in refused)
