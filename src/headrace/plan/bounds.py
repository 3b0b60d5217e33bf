"""What keeps the state of a step from growing for ever: the advice for each kind of step.

Only words: which steps are refused is for `check.py` to say.
"""

from __future__ import annotations

from headrace.plan.nodes import AnyWindow, Apply, Process, Stateful

_WINDOW = "otherwise use .window(...), whose state is dropped as time passes."
_OTHERWISE = {
    "deduplicate": 'otherwise say within="1h": what is older is forgotten.',
    "batch": 'otherwise say within="1m": what waits is given on by then.',
    "top": "otherwise take the best of each window: .window(...).agg(...).top(...).",
    "changes_only": "otherwise write it with process and a value that is forgotten: "
    'hr.value(str, ttl="1h").',
    "iterate": "otherwise leave keep= out.",
}


def bound_of(node: Stateful) -> str:
    """How the user can bound what it keeps, or accept that it grows."""
    by = ", ".join(node.keys[0])
    many = f"If there are only so many values of {by}, say"
    if isinstance(node, Process):
        return f'{many} unbounded=True; otherwise say ttl="1h" for every value that it keeps.'
    if isinstance(node, AnyWindow):
        return f"{many} unbounded=True; otherwise use hr.window_value, which ends with its window."
    kind = node.what.kind if isinstance(node, Apply) else ""
    if isinstance(node, Apply) and kind in ("join", "changes"):
        old = '; otherwise say join(..., within="1h"): older rows of the table are forgotten.'
        aged = hasattr(node.what, "within") and not getattr(node.what, "processing", True)
        return f"{many} table(..., unbounded=True){old if aged else '.'}"
    return f"{many} unbounded=True; {_OTHERWISE.get(kind, _WINDOW)}"
