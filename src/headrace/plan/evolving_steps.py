"""What changed about a step itself, in the words of the one who wrote it.

It compares the shape in a manifest with the shape now, all but where things come from
(`evolving_origins.py`). Whatever differs is a difference, named where there are words for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.clock import pretty
from headrace.plan.evolving_values import refusals, value_parts
from headrace.plan.evolving_windows import (
    WINDOWS,
    firing_difference,
    kept_word,
    ordering,
    row_differences,
    step_word,
    window_differences,
)
from headrace.plan.nodes import Apply, Process, Stateful
from headrace.plan.shapes import FROM

Shape = Mapping[str, Any]


def differences(node: Stateful, old: Mapping[str, Any], new: Shape) -> str:
    """Why the state is not that of this step; empty if it is, as far as it goes by itself."""
    kind = type(node).__name__
    windows = kind in WINDOWS and old["kind"] in WINDOWS and "shape" in old
    if old["kind"] != kind and not windows:
        before = step_word(old["kind"], old.get("shape"))
        return f"it was {before} and is {step_word(kind, new)}"
    if "shape" not in old:
        return _some_change(node)
    was = _itself(old["shape"])
    if isinstance(node, Process):
        key = _differences({"key": was["key"]}, {"key": new["key"]})
        refused = refusals(list(value_parts(node, was)))
        return "; ".join([*key, *([refused] if refused else [])])
    if was == _itself(new):
        return ""
    found = list(_differences(was, new))
    if windows and not found:
        return firing_difference(node, was)
    return "; ".join(found) or _some_change(node)


def _some_change(node: Stateful) -> str:
    if isinstance(node, Apply):
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
            for n in now if n in was and now[n] != was[n]
        )  # fmt: skip
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
