"""Meaning as transcripts: what comes, what passes, what must come out, step by step.

A transcript is YAML, a list of cases; a case is a small program and its steps, played by a
harness in process or on Spark. Times are seconds since 1970, rows are lists in the order of
the columns, and what is expected is compared without order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace.errors import HeadraceError, RunError
from headrace.testing.harness import Harness
from headrace.testing.script import moment

_KEYS = {"name", "stream", "job", "read", "spark", "steps"}


@dataclass(frozen=True)
class Case:
    """One program and its steps."""

    name: str
    program: Mapping[str, str]  # {"stream": expression} or {"job": statements}
    steps: tuple[tuple[str, Any], ...]  # verb, and its argument
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
            f"{origin} is not YAML: {' '.join(str(cause).split())}",
            "Put a program in quotes, or below `stream: |`, if it has a colon and a space.",
        ) from cause
    if not isinstance(cases, list) or not all(isinstance(fields, dict) for fields in cases):
        raise RunError(
            "HR-TEST-018",
            f"{origin} is not a list of cases",
            "A file has a list; each of its cases begins with `- name: ...`.",
        )
    return [_case(fields, f"{origin}, case {n}") for n, fields in enumerate(cases, 1)]


def run_case(case: Case | Mapping[str, Any], on: str = "local") -> None:
    """Play a case; raise a `Mismatch`, an AssertionError, at the first step that is not so."""
    case = case if isinstance(case, Case) else _case(case, "case")
    with Harness(job_of(case.program, case.read), on=on) as harness:
        for number, (verb, argument) in enumerate(case.steps, 1):
            place = f"case {case.name!r}, step {number} ({verb}), on {on}"
            try:
                VERBS[verb](harness, argument, case.read)
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


# The verbs of transcripts: what each step does with a harness.
#
# send        rows: a list for the only input, or {input:, rows:, split:, at:}
# watermark   seconds for all inputs, or {input: seconds}
# advance     seconds that pass on the clock; `clock` is another word for it
# idle        an input, or {input:, split:}; nothing for the only one
# crash, end  nothing
# restart     nothing, or a changed program {stream: or job:, drop: [steps]}
# expect      rows of the only output since the last look, or {output: rows}
# late        rows too late since the last look, or {step: rows}
# dead        [step, part of the error] of the dead letters since the last look


Argument = Any
Read = Mapping[str, Any]


class Mismatch(AssertionError):
    """A transcript expects something else than what came."""


def _send(harness: Harness, argument: Argument, read: Read) -> None:
    fields: Mapping[str, Any] = argument if isinstance(argument, Mapping) else {"rows": argument}
    name = fields.get("input") or _only(harness)
    schema = harness.inputs.get(name, pa.schema([]))  # the harness refuses what it has not
    rows = [_row(row, schema) for row in fields["rows"]]
    at = {"at": _ms(fields["at"])} if "at" in fields else {}
    harness.send(name, rows, split=fields.get("split", 0), **at)


def _watermark(harness: Harness, argument: Argument, read: Read) -> None:
    every: Mapping[str, Any] = dict.fromkeys(harness.inputs, argument)
    times = argument if isinstance(argument, Mapping) else every
    for name, time in times.items():
        harness.watermark(name, _ms(time))


def _advance(harness: Harness, argument: Argument, read: Read) -> None:
    harness.advance(argument)


def _idle(harness: Harness, argument: Argument, read: Read) -> None:
    fields = argument if isinstance(argument, Mapping) else {"input": argument}
    harness.idle(fields.get("input") or _only(harness), fields.get("split", 0))


def _crash(harness: Harness, argument: Argument, read: Read) -> None:
    harness.crash()


def _end(harness: Harness, argument: Argument, read: Read) -> None:
    harness.end()


def _restart(harness: Harness, argument: Argument, read: Read) -> None:
    changed = dict(argument or {})
    drop = changed.pop("drop", ())
    harness.restart(job_of(changed, read) if changed else None, drop=drop)


def _expect(harness: Harness, argument: Argument, read: Read) -> None:
    for name, rows in _by_name(argument):
        _compare(rows, plain_rows(harness.output(name)))


def _late(harness: Harness, argument: Argument, read: Read) -> None:
    for name, rows in _by_name(argument):
        _compare(rows, plain_rows(harness.late(name)))


def _dead(harness: Harness, argument: Argument, read: Read) -> None:
    left = [[letter["step"], letter["error"]] for letter in harness.dead()]
    matched = []
    for step, error in argument or ():
        match = next((d for d in left if d[0] == step and str(error) in d[1]), None)
        if match is not None:
            left.remove(match)
            matched.append([step, error])
    _compare(argument or (), [*matched, *left])


def _by_name(argument: Argument) -> list[tuple[str | None, Iterable[Any]]]:
    if isinstance(argument, Mapping):
        return [(str(name), rows or ()) for name, rows in argument.items()]
    return [(None, argument or ())]


def _compare(expected: Iterable[Any], came: Iterable[Any]) -> None:
    missing, extra = differences(expected, came)
    if missing or extra:
        lines = [f"  expected, did not come: {row}" for row in missing]
        lines += [f"  came, not expected:     {row}" for row in extra]
        raise Mismatch("\n".join(lines))


def _row(row: Any, schema: pa.Schema) -> Any:
    """A row as the harness takes it: seconds are times where the column is one."""
    if isinstance(row, Mapping):
        return {n: _value(v, schema.field(n).type) for n, v in row.items()}
    if len(row) != len(schema):  # the harness says so, with the columns
        return tuple(row)
    return tuple(_value(v, f.type) for v, f in zip(row, schema, strict=True))


def _value(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind) and isinstance(value, int | float):
        return pa.scalar(_ms(value), pa.timestamp("ms", "UTC")).as_py()
    return value


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)


def _only(harness: Harness) -> str:
    return next(iter(harness.inputs)) if len(harness.inputs) == 1 else "rows"


VERBS: dict[str, Callable[[Harness, Argument, Read], None]] = {
    "send": _send, "watermark": _watermark, "advance": _advance, "clock": _advance,
    "idle": _idle, "crash": _crash, "restart": _restart, "end": _end, "expect": _expect,
    "late": _late, "dead": _dead,
}  # fmt: skip


# Rows as a transcript writes them: plain values, compared without order.


def plain_rows(rows: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    return [[plain(v) for v in row.values()] for row in rows]


def plain(value: Any) -> Any:
    """Times as seconds, whole numbers as integers, others as exact as fifteen digits are."""
    if isinstance(value, datetime):
        return plain(moment(value) / 1_000)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float | Decimal):
        number = float(f"{value:.15g}")
        return int(number) if number.is_integer() else number
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def differences(expected: Iterable[Any], came: Iterable[Any]) -> tuple[list[str], list[str]]:
    """What was expected and did not come, and what came and was not expected."""
    left, right = (Counter(repr(plain(row)) for row in rows) for rows in (expected, came))
    return sorted((left - right).elements()), sorted((right - left).elements())


# The program of a case: Python text, and the names it may use.
#
# hr, t     headrace, and its triggers
# rows      in `stream`: the input "rows" (key string, value bigint, at timestamp, its time)
# job       in `job`: the job; `read(name, **options)` makes such an input


ROWS, OUT = "rows", "out"
COLUMNS = "key string, value bigint, at timestamp"


def job_of(program: Mapping[str, str], read: Mapping[str, Any]) -> hr.Job:
    """The job that the text of a case builds; `read` says how its inputs are read."""
    job = hr.Job("transcript")
    reading = _reader(job, read)
    # Functions of "__main__" travel to Spark's workers by value: these cannot be imported.
    names = {"__name__": "__main__", "hr": hr, "t": hr.triggers, "job": job, "read": reading}
    if "job" in program:
        exec(compile(program["job"], "<job>", "exec"), names)
        return job
    names[ROWS] = reading()
    result = eval(compile(program["stream"].strip(), "<stream>", "eval"), names)
    result.write("collect:", name=OUT)
    return job


def _reader(job: hr.Job, options: Mapping[str, Any]) -> Callable[..., hr.Stream]:
    def read(name: str = ROWS, **more: Any) -> hr.Stream:
        chosen = {"time": "at", **options, **more}
        if not {"delay", "watermark"} & set(chosen) and chosen["time"] == "at":
            chosen.setdefault("in_order", True)
        return job.read(f"log:{name}", schema=COLUMNS, name=name, **chosen)

    return read
