"""The answer to "why is there no output", as text for people and as JSON.

Reasons first, numbered, the most likely on top; then where all rows went, step by step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from headrace.clock import MAX_TIME
from headrace.inspect.progress import span
from headrace.inspect.why import NEW, STARTED, why
from headrace.inspect.why_case import Reason, StepCounts, WhyCase, watermark_position
from headrace.notebook import preformatted
from headrace.plan.program import Program
from headrace.state.manifest import Manifest

_COLUMNS = ("in", "out", "filtered", "late", "dead")


@dataclass(frozen=True)
class Why:
    """`print` it; `.reasons`, `.text` and `.json` (plain values, ready to dump) say the same."""

    job: str
    program: Program | None
    manifest: Manifest | None
    clock: int
    before: str = NEW  # how far it has come, if there is no manifest yet
    stall_reason: Reason | None = None  # what its run has reported

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return preformatted(self.text)

    @cached_property
    def reasons(self) -> list[Reason]:
        """Every `Reason`, the most likely first."""
        reasons = why(self.program, self.manifest, self.clock, self.before)
        return [self.stall_reason, *reasons] if self.stall_reason else reasons

    @cached_property
    def text(self) -> str:
        """The answer as text."""
        return "\n".join([*_head(self), *_numbered(self.reasons), *_account(self)])

    @cached_property
    def json(self) -> dict[str, Any]:
        """The answer as plain values."""
        head = {"job": self.job, "clock": self.clock, "reasons": list(map(asdict, self.reasons))}
        if self.manifest is None:
            return {**head, "epoch": 0}
        reached = self.manifest.watermark
        return {
            **head,
            "epoch": self.manifest.epoch,
            "committed": self.manifest.wall,
            "watermark": None if abs(reached) == MAX_TIME else reached,
            "ended": self.manifest.ended,
            "inputs": self.manifest.counts,
            "outputs": _outputs(self),
            "steps": {s.name: dict(zip(_COLUMNS, _numbers(s), strict=True)) for s in _steps(self)},
        }


def answer_why(
    job: str,
    program: Program | None,
    manifest: Manifest | None,
    clock: int,
    before: str = NEW,
    stall_reason: Reason | None = None,
) -> Why:
    """Why there is no output, of a job whose last manifest this is."""
    if manifest is not None and manifest.epoch == 0:  # of Spark's first turn: nothing was read
        return Why(job, program, None, clock, STARTED, stall_reason)
    return Why(job, program, manifest, clock, before, stall_reason)


def _head(answer: Why) -> Iterator[str]:
    if answer.manifest is None:
        yield f"job {answer.job!r}"
        return
    ago = span(max(0, answer.clock - answer.manifest.wall))
    wrote = ", ".join(f"{rows:,} to {name!r}" for name, rows in _outputs(answer).items())
    yield f"job {answer.job!r} after batch {answer.manifest.epoch}, {ago} ago"
    yield f"  the watermark {watermark_position(answer.manifest.watermark)}; rows written: {wrote}"


def _outputs(answer: Why) -> dict[str, int]:
    assert answer.manifest is not None
    rows = answer.manifest.rows
    return {name: rows.get(name, 0) for name in answer.manifest.writes}


def _numbered(reasons: list[Reason]) -> Iterator[str]:
    if not reasons:
        yield "  nothing holds it back: every row has gone where the program sends it"
    for number, reason in enumerate(reasons, 1):
        yield f"  {number}. {reason.text}"
        yield f"     {reason.hint}"


def _account(answer: Why) -> Iterator[str]:
    if answer.manifest is None:
        return
    yield "so far"
    for name, fates in answer.manifest.counts.items():
        parts = " + ".join(f"{f} {n:,}" for f, n in fates.items() if f != "read")
        yield f"  input {name!r}: read {fates['read']:,} = {parts}"
    rows = [["step", *_COLUMNS]]
    rows += [[s.name, *(f"{n:,}" for n in _numbers(s))] for s in _steps(answer)]
    if len(rows) == 1:  # from an input straight to an output
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [c.rjust(w) for c, w in zip(others, widths[1:], strict=True)]
        yield "  ".join(["", first.ljust(widths[0]), *cells])


def _steps(answer: Why) -> Iterable[StepCounts]:
    assert answer.manifest is not None
    case = WhyCase(answer.program, answer.manifest, answer.clock)
    return case.user_steps().values()


def _numbers(step: StepCounts) -> tuple[int, ...]:
    return (step.received, step.emitted, step.filtered, step.late, step.dead)
