"""Steps that cannot give anything before their input ends, and inputs that never do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.errors import PlanError
from headrace.ops.window.assigners import Everything
from headrace.ops.window.triggers import AtWatermark
from headrace.plan.nodes import AnyWindow, Node, Read
from headrace.plan.program import Program
from headrace.sources import Source


def never_fires(node: Node) -> str | None:
    """Why the trigger of a step cannot fire before the input ends; None when it can."""
    if not isinstance(node, AnyWindow) or not isinstance(node.windowing.assigner, Everything):
        return None
    if node.windowing.trigger != AtWatermark():
        return None
    return "its window has no end, and nothing but the end of the input makes it fire"


def refuse_silent(program: Program, sources: Mapping[str, Source]) -> None:
    """Refuse to run a step that would gather rows for ever and show none."""
    for node in program.stateful():
        because = never_fires(node)
        endless = [n for n in _inputs(node) if not sources[n].bounded]
        if because is not None and endless:
            raise PlanError(
                f"step {node.name!r} would never give anything: {because}, and {endless[0]!r} "
                "does not end", code="HR-TRIGGER-013", site=node.site,
                hint='Give the window a trigger, such as t.every("1m") or t.after_rows(100), or '
                'run the job with until="end".',
            )  # fmt: skip


def _inputs(node: Node) -> Iterator[str]:
    """The names of all inputs whose rows reach the step."""
    if isinstance(node, Read):
        yield node.name
    for edge in node.inputs:
        yield from _inputs(edge.node)
