"""What changed about a step itself, in the words of the one who wrote it.

It compares the shape in a manifest with the shape now, all but where things come from
(`evolving_origins.py`). Whatever differs is a difference, named where there are words for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.clock import pretty
from headrace.ops.contract import Spec
from headrace.ops.process.spec import ProcessSpec
from headrace.ops.window.aligned import Window
from headrace.plan.evolving_values import refusals, value_parts
from headrace.plan.nodes import Stateful
from headrace.plan.shapes import FROM

Shape = Mapping[str, Any]


def differences(node: Stateful, old: Mapping[str, Any], new: Shape) -> str:
    """Why the state is not that of this step; empty if it is, as far as it goes by itself."""
    kind = node.what.at_rest
    windows = kind in WINDOWS and old["kind"] in WINDOWS and "shape" in old
    if old["kind"] != kind and not windows:
        before = step_word(old["kind"], old.get("shape"))
        return f"it was {before} and is {step_word(kind, new)}"
    if "shape" not in old:
        return _some_change(node)
    was = _itself(old["shape"])
    if isinstance(node.what, ProcessSpec):
        key = _differences({"key": was["key"]}, {"key": new["key"]})
        refused = refusals(list(value_parts(node.what, was)))
        return "; ".join([*key, *([refused] if refused else [])])
    if was == _itself(new):
        return ""
    found = list(_differences(was, new))
    if windows and not found:
        return firing_difference(node, was)
    return "; ".join(found) or _some_change(node)


def _some_change(node: Stateful) -> str:
    if node.what.at_rest == Spec.at_rest:
        return f"the key or the settings of this {node.what.kind} changed"
    return "its key, window or columns changed"


def _itself(shape: Shape) -> dict[str, Any]:
    return {part: said for part, said in shape.items() if part != FROM}


def _differences(old: Shape, new: Shape) -> Iterator[str]:
    if old.get("key") != new.get("key"):
        yield f"its key was {_list(old.get('key'))} and is {_list(new.get('key'))}"
    if old.get("by") != new.get("by"):
        was, now = (s.get("by", "event") for s in (old, new))
        yield f"it went by {was} time and goes by {now} time"
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
            for n in now
            if n in was and now[n] != was[n]
        )
        yield from ordering(f"its {part}", was, now)
    if old.get("folds") != new.get("folds"):
        yield f"it was a {old.get('folds')} and is a {new.get('folds')}"
    if "what" in old and "what" in new:
        yield from _settings(old, new)


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
        if isinstance(before, dict | list) or isinstance(after, dict | list):
            yield f"{name!r} of this {kind} changed"
        else:
            yield f"{name!r} of this {kind} was {_setting(name, before)} and is " + _setting(
                name, after
            )


def _setting(name: str, value: Any) -> str:
    lasts = name in ("within", "per", "period") and isinstance(value, int)
    return pretty(value) if lasts else "none" if value is None else str(value)


def _list(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return " ".join(f"{name}={said}" for name, said in value.items())
    return " ".join(_list(v) for v in value or ()) or "nothing"


# What changed about the windows of a step, in the words of the one who wrote it.
#
# It compares what a manifest tells of a step with what the step is now, as plain JSON from
# `evolution.shape`. It never names a class of ours; whether state fits is not decided here.


ONCE = ("WindowAgg", "WindowFold")  # their windows fire once and say no more than the result
WINDOWS = (*ONCE, "AnyWindow", "RowWindow")
_STEPS = {
    **dict.fromkeys(WINDOWS, "a window"),
    "Rolling": "a running aggregate",
    "Fold": "a running reduce or fold",
    "Process": "a process function",
}
_VALUES = {"WindowValue": "per window"}


def step_word(kind: str, shape: Shape | None = None) -> str:
    """What a user calls a step of this kind."""
    own = (shape or {}).get("kind", kind)
    return _STEPS.get(kind) or ("another kind of step" if own == "Apply" else f"a {own}")


def window_word(window: str | Shape) -> str:
    """A window as `shape` tells it: "tumbling 5s", "session gap 3s", "3 rows"."""
    if isinstance(window, str):  # "$cut" is the column that the plan made of an expression
        return window.replace("$cut", "an expression")
    if "assigner" in window:
        return str(window["assigner"])
    return str(Window(window["size"], window["slide"], window["offset"]))


def window_differences(old: Shape, new: Shape) -> Iterator[str]:
    """What is different about the windows, and about what is kept for each."""
    was, now = (window_word(s["window"]) for s in (old, new))
    if was != now:
        yield f"its window was {was} and is {now}"
    else:
        yield from _setting_differences(was, *(_window_settings(s["window"]) for s in (old, new)))
    was, now = (_mode(s["window"]) for s in (old, new))
    if was != now:
        yield f"its mode was {was!r} and is {now!r}"
    was, now = kept_word(old), kept_word(new)
    if was != now:
        yield f"it kept {was} of each window and keeps {now}"


def _window_settings(window: str | Shape) -> Shape:
    return {} if isinstance(window, str) else window.get("settings", {})


def _setting_differences(window: str, old: Shape, new: Shape) -> Iterator[str]:
    """What differs between the attributes of two assigners of the user's own."""
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            was, now = (s.get(name, "not there") for s in (old, new))
            yield f"{name!r} of its window {window} was {was} and is {now}"


def row_differences(old: Shape, new: Shape) -> Iterator[str]:
    """What is different about the rows, and the values of a `WindowProcess`, that are kept."""
    if "rows" not in old or "rows" not in new:
        return
    for part, what, whose in (("rows", "column", " of its rows"), ("kept", "value", "")):
        was, now = ({c[0]: c[1:] for c in s.get(part, ())} for s in (old, new))
        yield from (f"the {what} {n!r}{whose} is new" for n in now if n not in was)
        yield from (f"the {what} {n!r}{whose} is gone" for n in was if n not in now)
        yield from (
            f"the {what} {n!r}{whose} was {_value(was[n])} and is {_value(now[n])}"
            for n in now
            if n in was and was[n] != now[n]
        )
        yield from ordering(f"the {what}s{whose}", was, now)


def ordering(what: str, was: Shape, now: Shape) -> Iterator[str]:
    """What is stored goes by its place: the same in another order is something else."""
    if list(was) != list(now) and was == now:
        yield f"{what} were {', '.join(was)} and are {', '.join(now)}: their order changed"


def firing_difference(node: Stateful, old: Shape) -> str:
    """What is different about when windows fire: asked where nothing else was found."""
    now = node.what.firing(node.schema)
    if old["kind"] in ONCE:
        return f"its windows fired once, when they were over, and now it has {now or 'none'}"
    if now is None:
        return (
            "it had a trigger, lateness=, evict= or info=, and its windows fire once, when they "
            "are over, now"
        )
    return f"its trigger kept other things than it does now, with {now}"


def _mode(window: str | Shape) -> str:
    return "replace" if isinstance(window, str) else str(window.get("mode", "replace"))


def kept_word(shape: Shape) -> str:
    """What is kept of each window."""
    if "rows" in shape:
        return "all rows"
    return f"the value of its {shape['folds']}" if "folds" in shape else "aggregates"


def _value(said: list[str]) -> str:
    """The type of a column; of a value also what it is kept for."""
    kind, *owner = said
    return f"{kind} {_VALUES.get(owner[0], 'per key')}" if owner else kind
