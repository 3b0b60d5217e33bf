"""What a job's inputs and outputs guarantee together, and whether that is what it is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.epoch.bundle import Bundle
from headrace.errors import RunError
from headrace.guarantees import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, JobGuarantee, Offer
from headrace.ops.shedding import Shedding
from headrace.plan.program import Program
from headrace.sinks import Sink
from headrace.sources import Source


def offered(
    program: Program, sources: Mapping[str, Source], sinks: Mapping[str, Sink]
) -> JobGuarantee:
    """What these inputs and outputs guarantee together; loops are the job's own affair."""
    shed = {r.name: r.shed for r in program.sources() if r.shed is not None}
    inputs = (
        Offer("input", n, s.guarantee, s.because + _shedding(shed.get(n)))
        for n, s in sources.items()
        if not s.loops
    )
    outputs = (_output(program, n, s) for n, s in sinks.items() if not s.loops)
    return JobGuarantee((*inputs, *outputs))


def _shedding(shed: Shedding | None) -> str:
    """That records may be dropped on purpose, which is not what a crash does."""
    return "" if shed is None else f"; records may be shed, as asked: {shed}"


def _output(program: Program, name: str, sink: Sink) -> Offer:
    if program.guarantee == AT_MOST_ONCE and sink.guarantee == AT_LEAST_ONCE:
        if sink.retries:
            return Offer("output", name, AT_LEAST_ONCE, sink.retries)
        because = "the job is asked for it: what had begun before a crash is not delivered again"
        return Offer("output", name, AT_MOST_ONCE, because)
    return Offer("output", name, sink.guarantee, sink.because)


_WEAKER = {
    EXACTLY_ONCE: "Take another input or output in its place (each says what it offers: "
    'headrace explain), or ask for less: guarantee="at_least_once" or "at_most_once".',
    AT_LEAST_ONCE: "Take an input that can be read again in its place, such as a topic, or leave "
    "guarantee= out.",
    AT_MOST_ONCE: "Take an input or output that does not repeat in its place, or leave guarantee= "
    "out.",
}


def refuse_weaker(bundle: Bundle) -> None:
    """Refuse a job that is asked for more than its inputs and outputs give."""
    asked = bundle.program.guarantee
    found = offered(bundle.program, bundle.sources, bundle.sinks)
    if asked is not None and found.misses(asked):
        reasons = "; ".join(str(o) for o in found.offers if JobGuarantee((o,)).misses(asked))
        raise RunError(
            "HR-RUN-021",
            f"job {bundle.program.name!r} is asked for {asked!r}, and is {found.whole!r}: "
            f"{reasons}",
            _WEAKER[asked],
        )
