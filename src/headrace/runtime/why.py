"""Why there is no output: what each step waits for, read from the last manifest.

`why` compares three values, a program, the body of a manifest and a clock reading, and
touches nothing. Without the program it says what the manifest alone shows. Each kind of
reason is one small function over the `Case`; their order is the order of `REASONS`: what
most often explains an empty output comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.window.assigners import Everything
from headrace.ops.window.triggers import AtWatermark
from headrace.plan.nodes import AnyWindow, Node
from headrace.plan.program import Program
from headrace.runtime.alignment import aligned, held_back, slowest_of
from headrace.runtime.epoch import LIVE, Split
from headrace.runtime.standing import idle_after
from headrace.runtime.status import moment, span
from headrace.runtime.why_case import Case


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps rows from the outputs: what it is, and what can be done."""

    kind: str
    where: str  # the name of the input, step or output
    text: str
    hint: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.text}\n  {self.hint}"


Reasons = Iterator[Reason]
_NEXT_BATCH = "The next batch gives its result. Is the job running?"


def why(program: Program | None, body: Mapping[str, Any] | None, clock: int) -> list[Reason]:
    """The reasons why outputs are empty or nothing new comes, most likely first."""
    if body is None:
        return [_not_run(program)]
    case = Case(program, body, clock)
    return [reason for one in REASONS for reason in one(case)]


def never_fires(node: Node) -> str | None:
    """Why the trigger of a step cannot fire before the input ends; None when it can."""
    if not isinstance(node, AnyWindow) or not isinstance(node.windowing.assigner, Everything):
        return None
    if node.windowing.trigger != AtWatermark():
        return None
    return "its window has no end, and nothing but the end of the input makes it fire"


def _not_run(program: Program | None) -> Reason:
    name = program.name if program else ""
    return Reason(
        "not run", name, f"job {name!r} has not run" if name else "no batch has run here",
        "Start it with headrace run; if it runs already, its first batch is not done yet.",
    )  # fmt: skip


def empty_inputs(case: Case) -> Reasons:
    for name in case.inputs:
        if case.fates(name)["read"]:
            continue
        count = len(case.splits_of([name]))
        place = f"{count} split{'s' * (count != 1)}" if count else "no split yet"
        yield Reason(
            "empty", name, f"input {name!r} has never given a row ({place})",
            "Is it the right place, and does anybody write there?", {"splits": count},
        )  # fmt: skip


def dead_rows(case: Case) -> Reasons:
    for name in case.inputs:
        fates = case.fates(name)
        if fates["read"] and case.counts(name).dead == fates["read"]:
            yield Reason(
                "dead", name, f"all {fates['read']:,} rows of input {name!r} are dead letters",
                "See the job's dead letters: each says what is wrong with it.", dict(fates),
            )  # fmt: skip
    for step in case.steps():
        if step.come and step.dead == step.come:
            yield Reason(
                "dead", step.failing, f"step {step.failing!r} failed on all {step.come:,} rows",
                "See the job's dead letters: each has the error and its traceback.",
                {"in": step.come, "dead": step.dead},
            )  # fmt: skip


def filtered_rows(case: Case) -> Reasons:
    for step in case.steps():
        if step.filtered and not step.gave:
            parts = case.filters(step.name)
            names = " and ".join(repr(n) for n, _ in parts)
            conditions = [c for _, c in parts if c]
            yield Reason(
                "filtered", parts[-1][0],
                f"step{'s' * (len(parts) > 1)} {names} let none of {step.come:,} rows through",
                f"The condition is: {' AND '.join(conditions)}." if conditions
                else "Look at the condition.",
                {"in": step.come, "filtered": step.filtered, "conditions": conditions},
            )  # fmt: skip


def late_rows(case: Case) -> Reasons:
    for step in case.steps():
        if step.late and step.late == step.come:
            reached = case.body["ops"].get(step.name, {}).get("watermark", MIN_TIME)
            yield Reason(
                "late", step.name,
                f"all {step.come:,} rows came too late for step {step.name!r}, whose watermark "
                f"is at {moment(reached)}",
                "They are in its .late stream. A longer delay gives rows more time; max_skew "
                "keeps a row from the future from moving the watermark.",
                {"in": step.come, "late": step.late, "watermark": reached},
            )  # fmt: skip


def dead_triggers(case: Case) -> Reasons:
    for node in case.nodes():
        if (because := never_fires(node)) is not None:
            yield Reason(
                "trigger", node.name, f"step {node.name!r} gives nothing while it runs: {because}",
                "Give the window a trigger, such as t.every(...) or t.after_rows(...).",
            )  # fmt: skip


def holding_splits(case: Case) -> Reasons:
    """The split whose watermark is the lowest of those that a waiting step depends on."""
    told: set[int] = set()
    for name in case.waiting():
        split = None if case.clocked(name) else case.holding(name)
        if split is not None and split.id not in told:
            told.add(split.id)
            yield _holds(case, split)


def _holds(case: Case, split: Split) -> Reason:
    silent, idle = max(0, case.clock - split.seen), idle_after(case.reads.get(split.input))
    begun = split.watermark > MIN_TIME
    stands = f"it stands at {moment(split.watermark)}" if begun else "it has given no row yet"
    unsure = "" if split.input in case.reads else ", if the program does not say otherwise"
    return Reason(
        "split", split.input,
        f"the watermark is held back by split {split.name!r} of input {split.input!r}: {stands}, "
        f"and it has been silent for {span(silent)}",
        f"If it stays silent it is idle in {span(split.seen + idle - case.clock)} and counts no "
        f"more (idle is {span(idle)}{unsure}).",
        {
            "split": split.name, "watermark": split.watermark if begun else None,
            "silent": silent, "idle_at": split.seen + idle,
        },
    )  # fmt: skip


def waiting_windows(case: Case) -> Reasons:
    for name in case.waiting():
        due, reached = case.body["ops"][name]["next"], case.reached(name)
        if case.clocked(name):
            yield _clock(name, due, case.clock)
        else:
            yield _window(name, due, reached, silent=case.holding(name) is None)


def _window(name: str, due: int, reached: int, *, silent: bool) -> Reason:
    begun = reached > MIN_TIME
    far = f"is {span(due - reached)} away" if begun else "has not begun"
    text = f"step {name!r} waits for the watermark to reach {moment(due)}; it {far}"
    hint = "A window gives its result when it is over: newer rows move the watermark."
    if reached >= due:
        text, hint = f"step {name!r} is due: the watermark has passed {moment(due)}", _NEXT_BATCH
    elif silent and begun:
        hint = f"All inputs are silent, so the clock moves it: in {span(due - reached)}."
    return Reason(
        "window", name, text, hint, {"next": due, "watermark": reached if begun else None}
    )


def waiting_clocks(case: Case) -> Reasons:
    for name, facts in case.body["ops"].items():
        if facts.get("wake", MAX_TIME) < MAX_TIME:
            yield _clock(name, facts["wake"], case.clock)


def _clock(name: str, due: int, clock: int) -> Reason:
    left = due - clock
    when = f"in {span(left)}" if left > 0 else "that is due"
    return Reason(
        "clock", name, f"step {name!r} waits for the clock to reach {moment(due)}: {when}",
        "It goes by processing time: only waiting helps." if left > 0
        else _NEXT_BATCH,
        {"wake": due},
    )  # fmt: skip


def waiting_rows(case: Case) -> Reasons:
    """Operators that have given nothing yet and wait for neither event time nor the clock."""
    for name, facts in case.body["ops"].items():
        step, due = case.counts(name), min(facts["next"], facts["wake"])
        taken = step.come - step.late - step.dead
        if taken > 0 and not step.gave and due >= MAX_TIME and not case.body["ended"]:
            yield Reason(
                "rows", name,
                f"step {name!r} has taken {taken:,} rows and given none; it waits for more rows",
                "No time makes it go on: windows bounded by rows have to fill, and a process "
                "function gives what it likes.", {"taken": taken, "held": facts["held"]},
            )  # fmt: skip


def aligned_splits(case: Case) -> Reasons:
    bounds = aligned(case.program) if case.program else {}
    splits = case.splits_of(bounds)
    live = {s.id for s in splits if s.state == LIVE}
    slowest, held = slowest_of(splits, live, bounds), held_back(splits, live, bounds)
    for split in splits:
        if split.id in held and slowest is not None:
            yield Reason(
                "aligned", split.input,
                f"split {split.name!r} of input {split.input!r} is not read until split "
                f"{slowest.name!r} of {slowest.input!r} has caught up to within "
                f"{span(bounds[split.input])}",
                "They are aligned. A longer align= lets it run further ahead.",
                {"split": split.name, "watermark": split.watermark, "slowest": slowest.name},
            )  # fmt: skip


def backlogs(case: Case) -> Reasons:
    if case.body["lag"]:
        yield Reason(
            "behind", case.body["job"],
            f"{case.body['lag']:,} rows were there that the last batch did not read",
            "They are read in the batches that follow, as fast as these are done.",
            {"lag": case.body["lag"]},
        )  # fmt: skip


def starved_steps(case: Case) -> Reasons:
    for causes, names in case.starved().items():
        listed = ", ".join(map(repr, names))
        at = f": all rows stop at {' and '.join(map(repr, causes))}" if causes else ""
        yield Reason(
            "starved", names[0], f"no row has come to {listed}{at}",
            "What is said of the steps before it explains this.",
            {"steps": list(names), "stopped_at": list(causes)},
        )  # fmt: skip


def ended(case: Case) -> Reasons:
    if case.body["ended"]:
        yield Reason(
            "ended", case.body["job"], "the job has read all its inputs to the end",
            "Every window is closed, and nothing more will come.",
        )  # fmt: skip


REASONS: tuple[Callable[[Case], Reasons], ...] = (
    empty_inputs, dead_rows, filtered_rows, late_rows, dead_triggers, holding_splits,
    waiting_windows, waiting_clocks, waiting_rows, aligned_splits, backlogs, starved_steps, ended,
)  # fmt: skip
