"""What other windows, or another trigger, mean for what a step has stored of its windows.

Windows may be others if all that they need is still there, in parts that can be put together:
each lies within one that there was, and begins and ends where what is stored begins and ends. A
trigger may come, go or change: what windows hold is the same with each. Lateness may come or grow:
what was over by then stays over. What is stored is rewritten by `driver/window_migration.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any, NamedTuple

from headrace.clock import millis, pretty
from headrace.ops.process.migration import CHANGED, MigratedPart
from headrace.ops.window.aligned import Window
from headrace.ops.window.assigners import AlignedAssigner, Session
from headrace.ops.window.firing_spec import GeneralWindows
from headrace.ops.window.spec import FoldWindows, PaneFolds, PaneWindows
from headrace.plan.nodes import Stateful
from headrace.plan.shapes import FROM, shape

CUT, GAP, FIRES, ENDS, WATCHES = "cut", "gap", "fires", "ends", "watches"
_PANES, _ANY = PaneWindows.at_rest, GeneralWindows.at_rest
_SAME = ("key", "by", "folds", "values", "slides", "rows", "kept", "result_time")
_FIRING = ("watched", "clocked", "per_row")  # what a shape says of a trigger
_WATCHED = "what its trigger watches"  # so begin the origins of its columns

Shape = Mapping[str, Any]
Facts = Mapping[str, Any]  # the kind and the shape of a step, among others


class WindowChange(NamedTuple):
    """How what is stored has to change, and what is said of it."""

    how: str
    part: MigratedPart


def window_change(node: Stateful, old: Facts) -> WindowChange | None:
    """What is other about its windows and may be; None where nothing is, or it may not."""
    if "window" not in (was := old.get("shape") or {}) or "window" not in (now := shape(node)):
        return None
    if any(was.get(part) != now.get(part) for part in _SAME) or _aggregates(was) != _aggregates(
        now
    ):
        return None
    if old["kind"] != node.what.at_rest:
        if (old["kind"], node.what.at_rest) == (_PANES, _ANY):
            return _fires(node, was, now)
        return _ends(was, now) if (old["kind"], node.what.at_rest) == (_ANY, _PANES) else None
    if was["window"] != now["window"]:
        return _session(node, was, now) if old["kind"] == _ANY else _cut(node, was, now)
    return _watches(node, was, now) if old["kind"] == _ANY else None


def others_beside(node: Stateful, old: Facts) -> str:
    """What else is other, where the windows could be others but for that."""
    was, now = old.get("shape") or {}, shape(node)
    others = [part for part in ("key", "values") if was.get(part) != now.get(part)]
    others += ["aggregates"] if _aggregates(was) != _aggregates(now) else []
    alike = {**was, **{part: now[part] for part in others if part in now}}
    if not others or window_change(node, {**old, "shape": alike}) is None:
        return ""
    return f"its windows and its {others[0]} are others: change them one after the other"


def as_windows_now(node: Stateful, old: Facts) -> Facts:
    """The facts in a manifest, as if the windows had always been what they are now."""
    change = window_change(node, old)
    if change is None:
        return old
    was, now = dict(old["shape"]), shape(node)
    for part in ("kind", "window", *_FIRING):
        was.pop(part, None)
        was |= {part: now[part]} if part in now else {}
    if change.how in (FIRES, WATCHES):
        columns = {what: of for what, of in _columns(was).items() if what not in _watched(was)}
        was[FROM] = {**was.get(FROM, {}), "columns": columns}
    return {**old, "kind": node.what.at_rest, "shape": was}


def _aggregates(of: Shape) -> list[Any]:
    """The aggregates by name: their order is of no account."""
    return sorted(of.get("aggregates", ()), key=lambda entry: str(entry[0]))


def _changed(how: str, name: str, because: str) -> WindowChange:
    return WindowChange(how, MigratedPart(name, CHANGED, because))


# Windows of time, from panes or folded one by one.


def window_of(described: Shape) -> Window:
    return Window(described["size"], described["slide"], described["offset"])


def _cut(node: Stateful, was: Shape, now: Shape) -> WindowChange | None:
    if not isinstance(node.what, PaneWindows | FoldWindows) or "slides" in now:
        return None
    old, new = window_of(was["window"]), window_of(now["window"])
    if not (_within(old, new) and _of_parts(node, old, new)):
        return None
    return _changed(CUT, "window", f"from {old} to {new}")


def _within(old: Window, new: Window) -> bool:
    """Whether each new window lies within an old one, which is stored while it is not over."""
    step = gcd(old.slide, new.slide)
    behind = old.slide - step + (new.offset - old.offset) % step  # the furthest after a beginning
    return behind + new.size <= old.size


def _of_parts(node: Stateful, old: Window, new: Window) -> bool:
    """Whether the new windows can be made of what is stored of the old ones."""
    if isinstance(node.what, PaneWindows):
        aligned = (new.offset - old.offset) % old.pane_size == 0
        return aligned and new.pane_size % old.pane_size == 0
    if isinstance(node.what, PaneFolds):
        aligned = (new.offset - old.offset) % old.pane_size == 0
        return aligned and new.pane_size == old.pane_size
    return isinstance(node.what, FoldWindows) and new.size == old.size


_BY_TIME = ("tumbling ", "sliding ")


def why_not(was: Any, now: Any) -> str:
    """Why windows cannot go on from what is stored of others; empty if there is no more to say."""
    if not isinstance(was, Mapping) or not isinstance(now, Mapping):
        return ""
    if "size" in was and "size" in now:
        old, new = window_of(was), window_of(now)
        if not _within(old, new):
            return ": they do not lie within those, so rows that some need would be gone"
        return f": what is stored is in pieces of {pretty(old.pane_size)}"
    texts = [str(window.get("assigner")) for window in (was, now)]
    if all(text.startswith(_BY_TIME) for text in texts):
        return ": windows that may show results more than once are stored one by one, and stay so"
    gaps = [gap_of(text) for text in texts]
    if None not in gaps and gaps[0] < gaps[1]:  # type: ignore[operator]
        return ": what was over by the shorter gap is gone"
    return ""


# Triggers.


def _fires(node: Stateful, was: Shape, now: Shape) -> WindowChange | None:
    """Windows that fired once get a trigger: none of those that are stored has fired."""
    what = node.what
    if not isinstance(what, GeneralWindows) or not isinstance(what.computed, tuple):
        return None
    cut = what.windowing.assigner
    same = isinstance(cut, AlignedAssigner) and cut.window == window_of(was["window"])
    if not same:
        return None
    said = f"from none to {what.firing(node.schema)}"
    said += "" if what.windowing.fires_once else ": what a window holds is one row to it"
    said += f"; {_STAYS_OVER}" if what.windowing.lateness else ""
    return _changed(FIRES, "trigger", said)


def _ends(was: Shape, now: Shape) -> WindowChange | None:
    """Windows fire once from now on, of panes; those that are open stay as they are until then."""
    window = window_of(now["window"])
    if was["window"] != {"assigner": str(window), "mode": "replace"}:
        return None
    return _changed(ENDS, "trigger", "to none: a window fires once, when it is over")


def _watches(node: Stateful, was: Shape, now: Shape) -> WindowChange | None:
    """Another trigger, which counts or watches something else, or goes by the clock."""
    if was.get("per_row") != now.get("per_row"):
        return None
    if was["clocked"] == now["clocked"] and not watches_anew(was, now):
        return None
    said = node.what.firing(node.schema)
    since = ", which counts from this start on" if watches_anew(was, now) else ""
    return _changed(WATCHES, "trigger", f"to {said}{since}")


def watches_anew(was: Shape, now: Shape) -> bool:
    """Whether what its trigger has counted, or watched, is of something else."""
    return was["watched"] != now["watched"] or _watched(was) != _watched(now)


def _watched(of: Shape) -> dict[str, list[str]]:
    """What the columns that a trigger watches come from, whatever the input is called."""
    return {
        what: sorted({text for texts in origins.values() for text in texts})
        for what, origins in _columns(of).items()
        if what.startswith(_WATCHED)
    }


def _columns(of: Shape) -> Shape:
    columns: Shape = of.get(FROM, {}).get("columns", {})
    return columns


# Lateness.

_STAYS_OVER = "what is over by now stays over"


def longer_lateness(node: Stateful, old: Facts) -> tuple[int, int] | None:
    """The lateness before and now, where windows wait longer than they did."""
    if not isinstance(node.what, GeneralWindows) or old["kind"] not in (_PANES, _ANY):
        return None
    origin = (old.get("shape") or {}).get(FROM, {})
    now = node.what.windowing.lateness
    unknown = now if old["kind"] == _ANY else 0
    before = origin.get("lengths", {}).get("lateness", unknown)
    return (before, now) if before < now else None


def lateness_part(node: Stateful, old: Facts) -> MigratedPart | None:
    """What is said of a longer lateness; with other words where windows had none of all that."""
    found = longer_lateness(node, old)
    if found is None or old["kind"] == _PANES:
        return None
    before, now = map(pretty, found)
    return MigratedPart("lateness", CHANGED, f"from {before} to {now}: {_STAYS_OVER}")


def as_late_now(node: Stateful, old: Facts, origin: Shape) -> Shape:
    """Where its rows came from, as if it had always waited as long as it does now."""
    if longer_lateness(node, old) is None or "lengths" not in origin:
        return origin
    return {**origin, "lengths": {**origin["lengths"], **node.what.lengths}}


# Sessions.

_GAP = "session gap "


def _session(node: Stateful, was: Shape, now: Shape) -> WindowChange | None:
    """A shorter gap: what is open ends sooner, and nothing that is over would be needed."""
    what, said = node.what, str(was["window"].get("assigner"))
    if not isinstance(what, GeneralWindows) or not isinstance(what.windowing.assigner, Session):
        return None
    before = gap_of(said)
    gap, modes = what.windowing.assigner.gap, {was["window"]["mode"], now["window"]["mode"]}
    if before is None or not isinstance(gap, int) or gap > before or len(modes) > 1:
        return None
    fires_alike = all(was.get(part) == now.get(part) for part in _FIRING)
    if "retract" in modes or not fires_alike:
        return None
    return _changed(GAP, "gap", f"from {pretty(before)} to {pretty(gap)}")


def gap_of(assigner: str) -> int | None:
    """The gap of sessions as a shape describes them; None if it is not the same for all rows."""
    text = assigner.removeprefix(_GAP)
    if text == assigner or not text[:1].isdigit() or not text.isalnum():
        return None
    return millis(text)
