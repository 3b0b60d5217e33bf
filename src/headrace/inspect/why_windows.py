"""Why a window emits nothing: its trigger, its end, its function.

A window emits its result when it is over, unless its trigger decides otherwise; one without an
end has nothing but its trigger. Each reason is a function over the `WhyCase`, as in `why.py`.
"""

from __future__ import annotations

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.driver.never_firing import never_fires
from headrace.inspect.progress import moment, span
from headrace.inspect.why_case import Reason, Reasons, WhyCase
from headrace.ops.window.assigners import Everything
from headrace.ops.window.firing_spec import FiringWindows
from headrace.ops.window.trigger_base import Trigger
from headrace.ops.window.triggers import AtWatermark
from headrace.plan.nodes import Node, Stateful

_NEXT_BATCH = "The next batch emits its result. Is the job running?"


def dead_triggers(case: WhyCase) -> Reasons:
    for node in case.nodes():
        if (because := never_fires(node)) is not None and not case.manifest.ended:
            yield Reason(
                "trigger",
                node.name,
                f"step {node.name!r} emits nothing while it runs: {because}",
                "Give the window a trigger, such as t.every(...) or t.after_rows(...).",
            )


def endless_windows(case: WhyCase) -> Reasons:
    """Windows that never end wait for their trigger; one that goes by the clock shows when."""
    for name in case.endless():
        node = case.node(name)
        if node is not None and never_fires(node) is not None:
            continue
        if case.manifest.ops[name].wake < MAX_TIME:
            continue
        trigger = _trigger(node)
        trigger_text = f" ({trigger})" if trigger else ""
        yield Reason(
            "trigger",
            name,
            f"step {name!r} waits for its trigger{trigger_text}: its window has no end",
            "Only the trigger, or the end of the input, makes it emit a result.",
            {"trigger": trigger},
        )


def silent_firings(case: WhyCase) -> Reasons:
    """Windows that fired, all of them without a result."""
    for name in case.manifest.ops:
        fired = case.firings(name, "fired")
        if fired and case.firings(name, "mute") == fired:
            times = "once" if fired == 1 else f"{fired:,} times"
            yield Reason(
                "nothing",
                name,
                f"windows of step {name!r} have fired {times}, and each time they emitted nothing",
                _silence(case, name),
                {"fired": fired},
            )


def _silence(case: WhyCase, name: str) -> str:
    if case.counts(name).dead:
        return "Its function failed: see the job's dead letters, each has its error."
    windows = _windows(case.node(name))
    evicts = windows is None or windows.evictor is not None
    return (
        "Its evictor leaves no row, or its function returns none: look at both."
        if evicts
        else "Its function returns no row: look at its input."
    )


def lost_windows(case: WhyCase) -> Reasons:
    """Windows that were over before the trigger showed all their rows."""
    for name in case.manifest.ops:
        if lost := case.firings(name, "lost"):
            trigger = _trigger(case.node(name))
            trigger_text = f" ({trigger})" if trigger else ""
            many = f"{lost:,} windows" if lost > 1 else "a window"
            yield Reason(
                "lost",
                name,
                f"{many} of step {name!r} ended with rows that the trigger{trigger_text} had not "
                "shown: these rows are gone",
                "The end of a window does not make it fire: the step has may_lose=True. With "
                "t.at_watermark(early=...) each window emits a result when it is over.",
                {"windows": lost, "trigger": trigger},
            )


def waiting_windows(case: WhyCase) -> Reasons:
    for name in case.waiting():
        due, reached = case.manifest.ops[name].next, case.reached(name)
        windows = _windows(case.node(name))
        if windows is not None and windows.windowing.loses:
            yield _triggered(case, name, windows.windowing.trigger, due)
        elif case.clocked(name):
            yield _clock(name, due, case.clock)
        else:
            yield _window(case, name, due, reached)


def _triggered(case: WhyCase, name: str, trigger: Trigger, due: int) -> Reason:
    """A step whose windows end without a result, unless the trigger emits one before."""
    time = "clock" if case.clocked(name) else "watermark"
    when = f"when the {time} reaches {moment(due)}"
    ends = f"It is judged again {when}" if trigger.marked else f"The next window is over {when}"
    return Reason(
        "trigger",
        name,
        f"step {name!r} waits for its trigger ({trigger}): the end of a window emits no result",
        f"{ends}. Rows that the trigger has not shown when their window is over are lost "
        "(may_lose=True).",
        {"trigger": str(trigger), "next": due},
    )


def _window(case: WhyCase, name: str, due: int, reached: int) -> Reason:
    begun = reached > MIN_TIME
    far = f"is {span(due - reached)} away" if begun else "has not begun"
    text = f"step {name!r} waits for the watermark to reach {moment(due)}; it {far}"
    hint = "A window emits its result when it is over: newer rows move the watermark."
    if reached >= due:
        text, hint = f"step {name!r} is due: the watermark has passed {moment(due)}", _NEXT_BATCH
    elif case.holding(name) is None and begun:
        hint = f"All inputs are silent, so the clock moves it: in {span(due - reached)}."
    elif trigger := _early(case.node(name)):
        hint = f"Its trigger goes by it ({trigger}): newer rows move the watermark."
    elif any(map(case.unmarked, case.inputs_of(name))):
        hint = "A window emits its result when it is over: only a watermark in the rows ends it."
    return Reason(
        "window", name, text, hint, {"next": due, "watermark": reached if begun else None}
    )


def _early(node: Node | None) -> Trigger | None:
    """The trigger of a window without an end that fires by event time."""
    windows = _windows(node)
    endless = windows is not None and isinstance(windows.windowing.assigner, Everything)
    return windows.windowing.trigger if windows is not None and endless else None


def _windows(node: Node | None) -> FiringWindows | None:
    """What a step does, if it has windows with a trigger."""
    what = node.what if isinstance(node, Stateful) else None
    return what if isinstance(what, FiringWindows) else None


def waiting_clocks(case: WhyCase) -> Reasons:
    for name, facts in case.manifest.ops.items():
        if facts.wake < MAX_TIME:
            yield _clock(name, facts.wake, case.clock)


def _clock(name: str, due: int, clock: int) -> Reason:
    left = due - clock
    when = f"in {span(left)}" if left > 0 else "that is due"
    return Reason(
        "clock",
        name,
        f"step {name!r} waits for the clock to reach {moment(due)}: {when}",
        "It goes by processing time: only waiting helps." if left > 0 else _NEXT_BATCH,
        {"wake": due},
    )


def _trigger(node: Node | None) -> str | None:
    """What makes a window fire besides its end, in words; None if it is not known."""
    windows = _windows(node)
    if windows is None:
        return None
    trigger = windows.windowing.trigger
    early = trigger.early if isinstance(trigger, AtWatermark) else None
    return str(early or trigger)
