"""Steps that cannot emit anything before their input ends, over inputs that never do."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.epoch.values import upstream
from headrace.errors import PlanError
from headrace.ops.window.assigners import Everything
from headrace.ops.window.firing_spec import GeneralWindows
from headrace.ops.window.trigger_base import Trigger
from headrace.ops.window.triggers import AtMost, AtWatermark, Combined
from headrace.plan.nodes import Node, Stateful
from headrace.plan.program import Program
from headrace.sources import Source


def never_fires(node: Node) -> str | None:
    """Why the trigger of a step cannot fire before the input ends; None when it can."""
    what = node.what if isinstance(node, Stateful) else None
    if not isinstance(what, GeneralWindows) or not isinstance(what.windowing.assigner, Everything):
        return None
    if not _waits(what.windowing.trigger):
        return None
    return "its window has no end, and nothing but the end of the input makes it fire"


def _waits(trigger: Trigger) -> bool:
    """Whether it cannot fire before the watermark passes the window's end."""
    match trigger:
        case Combined(parts, every):
            return (any if every else all)(map(_waits, parts))
        case AtMost(_, of, _):
            return _waits(of)
    return isinstance(trigger, AtWatermark) and trigger.early is None


def refuse_never_firing(program: Program, sources: Mapping[str, Source]) -> None:
    """Refuse to run a step that would gather rows for ever and show none."""
    for node in program.stateful():
        because = never_fires(node)
        inputs = sorted(upstream(program, node.name)) if because else []
        endless = [name for name in inputs if not sources[name].bounded]
        if endless:
            raise PlanError(
                "HR-TRIGGER-013",
                f"step {node.name!r} would never emit anything: {because}, and {endless[0]!r} "
                "does not end",
                'Give the window a trigger, such as t.every("1m") or t.after_rows(100), or '
                'run the job with until="end".',
                site=node.site,
            )
