"""Meaning as transcripts: what comes, what passes, what must come out, step by step.

A transcript is YAML, a list of cases; a case is a small program and its steps, played by a
harness in process or on Spark. Times are seconds since 1970, rows are lists in the order of
the columns, and what is expected is compared without order. Verbs are in `verbs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, RunError
from headrace.testing.harness import Harness
from headrace.testing.scope import made
from headrace.testing.verbs import VERBS, Mismatch

_KEYS = {"name", "stream", "job", "read", "spark", "steps"}


@dataclass(frozen=True)
class Case:
    """One program and its steps."""

    name: str
    program: Mapping[str, str]  # {"stream": expression} or {"job": statements}
    steps: tuple[tuple[str, Any], ...]  # verb, and what was said to it
    read: Mapping[str, Any] = field(default_factory=dict)  # how the stream `rows` is read
    spark: bool = True  # whether it is worth its time on Spark


def read_cases(path: str | Path) -> list[Case]:
    """The cases of a YAML file, checked for their shape."""
    return parse_cases(Path(path).read_text(encoding="utf-8"), Path(path).name)


def parse_cases(text: str, origin: str = "transcript") -> list[Case]:
    try:
        import yaml
    except ImportError as cause:
        raise RunError(
            "HR-TEST-010",
            "transcripts are YAML, and there is no PyYAML",
            "Install it: pip install 'headrace[testing]'.",
        ) from cause
    try:
        cases = yaml.safe_load(text)
    except yaml.YAMLError as cause:
        raise RunError(
            "HR-TEST-018",
            f"{origin} is no YAML: {' '.join(str(cause).split())}",
            "Put a program in quotes, or below `stream: |`, if it has a colon and a space.",
        ) from cause
    if not isinstance(cases, list) or not all(isinstance(fields, dict) for fields in cases):
        raise RunError(
            "HR-TEST-018",
            f"{origin} is no list of cases",
            "A file has a list; each of its cases begins with `- name: ...`.",
        )
    return [_case(fields, f"{origin}, case {n}") for n, fields in enumerate(cases, 1)]


def run_case(case: Case | Mapping[str, Any], on: str = "local") -> None:
    """Play a case; raise a `Mismatch`, an AssertionError, at the first step that is not so."""
    case = case if isinstance(case, Case) else _case(case, "case")
    with Harness(made(case.program, case.read), on=on) as harness:
        for number, (verb, said) in enumerate(case.steps, 1):
            place = f"case {case.name!r}, step {number} ({verb}), on {on}"
            try:
                VERBS[verb](harness, said, case.read)
            except Mismatch as fault:
                raise Mismatch(f"{place}:\n{fault}") from None
            except HeadraceError as error:
                error.add_note(f"in {place}")
                raise


def _case(fields: Mapping[str, Any], place: str) -> Case:
    unknown = sorted(set(fields) - _KEYS)
    program = {k: str(fields[k]) for k in ("stream", "job") if k in fields}
    wrong = (
        f"unknown key {unknown[0]!r}"
        if unknown
        else "it has no name"
        if not fields.get("name")
        else "it needs either stream or job"
        if len(program) != 1
        else "it has no steps"
        if not fields.get("steps")
        else _wrong_step(fields["steps"])
    )
    if wrong:
        raise RunError(
            "HR-TEST-011",
            f"{place} ({fields.get('name')!r}): {wrong}",
            f"A case has {', '.join(sorted(_KEYS))}; steps are {', '.join(VERBS)}.",
        )
    steps = tuple(next(iter(step.items())) for step in fields["steps"])
    spark = bool(fields.get("spark", True))
    return Case(str(fields["name"]), program, steps, dict(fields.get("read") or {}), spark)


def _wrong_step(steps: Sequence[Any]) -> str | None:
    for number, step in enumerate(steps, 1):
        if not isinstance(step, Mapping) or len(step) != 1 or next(iter(step)) not in VERBS:
            return f"step {number} is {step!r}"
    return None
