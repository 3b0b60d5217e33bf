"""Why there is no output: what each step waits for, read from the last manifest.

`why` compares three values, a program, a manifest and a clock reading, and
touches nothing. Without the program it reports what the manifest alone shows. Each kind of
reason is one small function over the `WhyCase`; their order is the order of `REASONS`: what
most often explains an empty output comes first.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.driver.split_state import alignment_bounds, idle_after, slowest_split, too_far_ahead
from headrace.inspect.progress import LATE_HINT, OFTEN, moment, span
from headrace.inspect.why_case import Reason, Reasons, StepCounts, WhyCase, watermark_position
from headrace.inspect.why_windows import (
    dead_triggers,
    endless_windows,
    lost_windows,
    silent_firings,
    waiting_clocks,
    waiting_windows,
)
from headrace.ops.watermarks import Bounded, Punctuated
from headrace.plan.logical import words
from headrace.plan.program import Program
from headrace.state.manifest import LIVE, Manifest, Split, StepFacts

NEW, STARTED = "new", "started"  # a job without a manifest


def why(
    program: Program | None, manifest: Manifest | None, clock: int, before: str = NEW
) -> list[Reason]:
    """The reasons why outputs are empty or nothing new comes, most likely first.

    Without a manifest, `before` says how far the job has come without one.
    """
    if manifest is None:
        return _first_batch(program, before)
    case = WhyCase(program, manifest, clock)
    return [reason for one in REASONS for reason in one(case)]


def _first_batch(program: Program | None, before: str) -> list[Reason]:
    """No batch is done: there was no run, or no row, or it is not done with the first."""
    name = program.name if program else ""
    if before == NEW:
        text = f"job {name!r} has not run" if name else "no run has started here"
        return [Reason("not run", name, text, "Start it with headrace run.")]
    hint = (
        "Is it the right place, and is anything writing to it? If it has rows, the first batch is "
        "not done yet, or it failed: then the run says why."
    )
    texts = {r.name: f"input {r.name!r} is empty" for r in program.sources()} if program else {}
    return [
        Reason("empty", where, f"{text}: it has delivered no rows yet", hint)
        for where, text in (texts or {"": "the job's input is empty"}).items()
    ]


def empty_inputs(case: WhyCase) -> Reasons:
    for name in case.inputs:
        if case.fates(name)["read"]:
            continue
        count = len(case.splits_of([name]))
        place = f"{count} split{'s' * (count != 1)}" if count else "no split yet"
        yield Reason(
            "empty",
            name,
            f"input {name!r} has never delivered a row ({place})",
            "Is it the right place, and is anything writing to it?",
            {"splits": count},
        )


def dead_rows(case: WhyCase) -> Reasons:
    for name in case.inputs:
        fates = case.fates(name)
        if fates["read"] and case.counts(name).dead == fates["read"]:
            text = f"all {fates['read']:,} rows of input {name!r} are dead letters"
            yield Reason(
                "dead",
                name,
                text + case.example(name),
                "See the job's dead letters: each says what is wrong with it.",
                dict(fates),
            )
    for step in case.steps():
        if step.received and step.dead == step.received:
            text = f"step {step.failed!r} failed on all {step.received:,} rows"
            yield Reason(
                "dead",
                step.failed,
                text + case.example(step.failed),
                "See the job's dead letters: each has the error and its traceback.",
                {"in": step.received, "dead": step.dead},
            )


def filtered_rows(case: WhyCase) -> Reasons:
    for step in case.steps():
        if step.filtered and not step.emitted:
            parts = case.filters(step.name)
            names = " and ".join(repr(n) for n, _ in parts)
            conditions = [c for _, c in parts if c]
            yield Reason(
                "filtered",
                parts[-1][0],
                f"step{'s' * (len(parts) > 1)} {names} let none of {step.received:,} rows through",
                f"The condition is: {' AND '.join(conditions)}."
                if conditions
                else "Look at the condition.",
                {"in": step.received, "filtered": step.filtered, "conditions": conditions},
            )


def late_rows(case: WhyCase) -> Reasons:
    for step in case.steps():
        if step.late and step.late == step.received:
            yield _late(case, step, "all")


def often_late(case: WhyCase) -> Reasons:
    """Not why there is no output, but why rows are missing from it."""
    for step in case.steps():
        if step.late * OFTEN > step.received > step.late:
            yield _late(case, step, f"{step.late:,} of")


def _late(case: WhyCase, step: StepCounts, part: str) -> Reason:
    reached = case.manifest.ops.get(step.name, StepFacts()).watermark
    return Reason(
        "late",
        step.name,
        f"{part} {step.received:,} rows came too late for step {step.name!r}, whose watermark "
        f"{watermark_position(reached)}",
        f"{LATE_HINT[0].upper()}{LATE_HINT[1:]} max_skew= keeps a row from the future from moving "
        "the watermark.",
        {"in": step.received, "late": step.late, "watermark": reached},
    )


def unmarked_inputs(case: WhyCase) -> Reasons:
    """Inputs whose rows carry the watermark, of which none has come yet."""
    for name in {i: None for step in case.waiting() for i in sorted(case.inputs_of(step))}:
        if case.unmarked(name):
            strategy, read = case.reads[name].watermark, case.fates(name)["read"]
            missing = "no punctuation came yet" if isinstance(strategy, Punctuated) else "none yet"
            yield Reason(
                "watermark",
                name,
                f"the rows of input {name!r} carried no watermark: {missing}, in {read:,} "
                f"row{'s' * (read != 1)}",
                f"Only a punctuation moves it. The condition is: {words(strategy.predicate)}."
                if isinstance(strategy, Punctuated)
                else f"It is what the program's own class says ({strategy}): look at that.",
                {"read": read},
            )


def holding_splits(case: WhyCase) -> Reasons:
    """The split whose watermark is the lowest of those that a waiting step depends on."""
    reported: set[int] = set()
    for name in case.waiting():
        split = None if case.clocked(name) else case.holding(name)
        if split is not None and split.id not in reported and not case.unmarked(split.input):
            reported.add(split.id)
            yield _holds(case, split)


def _holds(case: WhyCase, split: Split) -> Reason:
    silent, idle = max(0, case.clock - split.seen), idle_after(case.reads.get(split.input))
    begun = split.watermark > MIN_TIME
    place = f"it is at {moment(split.watermark)}" if begun else _not_begun(case, split.input)
    unsure = "" if split.input in case.reads else ", if the program does not say otherwise"
    return Reason(
        "split",
        split.input,
        f"the watermark is held back by split {split.name!r} of input {split.input!r}: {place}, "
        f"and it has been silent for {span(silent)}",
        f"If it stays silent it is idle in {span(split.seen + idle - case.clock)} and counts no "
        f"more (idle is {span(idle)}{unsure}).",
        {
            "split": split.name,
            "watermark": split.watermark if begun else None,
            "silent": silent,
            "idle_at": split.seen + idle,
        },
    )


def _not_begun(case: WhyCase, name: str) -> str:
    """What is surely true of a split without a watermark."""
    read = case.reads.get(name)
    plain = read is not None and isinstance(read.watermark, Bounded)
    if plain and not case.fates(name)["dead"]:  # then any row would have moved it
        return "it has delivered no rows yet"
    return "no row of it has moved the watermark yet"


def waiting_tuples(case: WhyCase) -> Reasons:
    """Tuples of a bolt that failed, or are not acked: what comes after it waits for them."""
    for name, facts in case.manifest.ops.items():
        if facts.holds is not None:
            at = f" at {moment(facts.holds)}" if facts.holds > MIN_TIME else ""
            yield Reason(
                "waits",
                name,
                f"tuples that failed or are not acked wait in {name!r}, and hold the watermark of "
                f"the steps after it back{at}",
                "They are processed again when they are due, at most max_replays times: see "
                "backoff= and timeout= of the bolt.",
                {"holds": facts.holds, "due": facts.wake},
            )


def waiting_rows(case: WhyCase) -> Reasons:
    """Operators that have emitted nothing yet and wait for neither event time nor the clock."""
    for name, facts in case.manifest.ops.items():
        step, due = case.counts(name), min(facts.next, facts.wake)
        accepted = step.received - step.late - step.dead
        reported = case.firings(name, "fired") or case.firings(name, "lost")
        waits = not step.emitted and due >= MAX_TIME and not case.manifest.ended
        if accepted > 0 and waits and not reported:
            yield Reason(
                "rows",
                name,
                f"step {name!r} has received {accepted:,} rows and emitted none; it waits for more",
                "No time makes it go on: windows bounded by rows have to fill, and a process "
                "function emits when it chooses to.",
                {"taken": accepted, "held": facts.held},
            )


def aligned_splits(case: WhyCase) -> Reasons:
    bounds = alignment_bounds(case.program) if case.program else {}
    splits = case.splits_of(bounds)
    live = {s.id for s in splits if s.state == LIVE}
    slowest, held_back = slowest_split(splits, live, bounds), too_far_ahead(splits, live, bounds)
    for split in splits:
        if split.id in held_back and slowest is not None:
            yield Reason(
                "aligned",
                split.input,
                f"split {split.name!r} of input {split.input!r} is not read until split "
                f"{slowest.name!r} of {slowest.input!r} has caught up to within "
                f"{span(bounds[split.input])}",
                "They are aligned. A longer align= lets it run further ahead.",
                {"split": split.name, "watermark": split.watermark, "slowest": slowest.name},
            )


def backlogs(case: WhyCase) -> Reasons:
    if case.manifest.lag:
        yield Reason(
            "behind",
            case.manifest.job,
            f"{case.manifest.lag:,} rows were there that the last batch did not read",
            "They are read in the batches that follow, unless align= holds them back.",
            {"lag": case.manifest.lag},
        )


def starved_steps(case: WhyCase) -> Reasons:
    for causes, names in case.starved().items():
        listed = ", ".join(map(repr, names))
        at = f": all rows stop at {' and '.join(map(repr, causes))}" if causes else ""
        yield Reason(
            "starved",
            names[0],
            f"no row has come to {listed}{at}",
            "The reasons for the steps before it explain this.",
            {"steps": list(names), "stopped_at": list(causes)},
        )


def ended(case: WhyCase) -> Reasons:
    if case.manifest.ended:
        yield Reason(
            "ended",
            case.manifest.job,
            "the job has read all its inputs to the end",
            "Every window is closed, and nothing more will come.",
        )


REASONS: tuple[Callable[[WhyCase], Reasons], ...] = (
    empty_inputs, dead_rows, filtered_rows, late_rows, dead_triggers, silent_firings,
    lost_windows, endless_windows, unmarked_inputs, waiting_tuples, holding_splits, waiting_windows,
    waiting_clocks, waiting_rows, aligned_splits, often_late, backlogs, starved_steps,
    ended,
)  # fmt: skip
