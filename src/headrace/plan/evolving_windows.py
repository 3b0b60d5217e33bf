"""What changed about the windows of a step, in the words of the one who wrote it.

It compares what a manifest tells of a step with what the step is now, as plain JSON from
`evolution.shape`. It never names a class of ours; whether state fits is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.clock import pretty
from headrace.ops.window.aligned import Window
from headrace.ops.window.triggers import AtWatermark
from headrace.plan.nodes import AnyWindow, Stateful

ONCE = ("WindowAgg", "WindowFold")  # their windows fire once and say no more than the result
WINDOWS = (*ONCE, "AnyWindow", "RowWindow")
_STEPS = {
    **dict.fromkeys(WINDOWS, "a window"),
    "Rolling": "a running aggregate",
    "Fold": "a running reduce or fold",
    "Process": "a process function",
}
_VALUES = {"WindowValue": "per window"}
Shape = Mapping[str, Any]


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
            for n in now if n in was and was[n] != now[n]
        )  # fmt: skip
        yield from ordering(f"the {what}s{whose}", was, now)


def ordering(what: str, was: Shape, now: Shape) -> Iterator[str]:
    """What is stored goes by its place: the same in another order is something else."""
    if list(was) != list(now) and was == now:
        yield f"{what} were {', '.join(was)} and are {', '.join(now)}: their order changed"


def firing_difference(node: Stateful, old: Shape) -> str:
    """What is different about when windows fire: asked where nothing else was found."""
    now = _extras(node)
    if old["kind"] in ONCE:
        return f"its windows fired once, when they were over, and now it has {now}"
    if not isinstance(node, AnyWindow):
        return (
            "it had a trigger, lateness=, evict= or info=, and its windows fire once, when they "
            "are over, now"
        )
    return f"its trigger kept other things than it does now, with {now}"


def _extras(node: Stateful) -> str:
    """What was asked of windows beyond firing once."""
    if not isinstance(node, AnyWindow):
        return "none"
    windowing = node.windowing
    found = [
        f"the trigger '{windowing.trigger}'" if windowing.trigger != AtWatermark() else "",
        f"lateness {pretty(windowing.lateness)}" if windowing.lateness else "",
        f"mode {windowing.mode!r}" if windowing.mode != "replace" else "",
        "an evictor" if node.evictor is not None else "",
    ]
    said = [f for f in found if f]
    if said:
        return " and ".join(said)
    return "info=True" if "pane" in node.schema.names else "no trigger"


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
