"""The verbs of transcripts: what each step does with a harness.

send        rows: a list for the only input, or {input:, rows:, split:, at:}
watermark   seconds for all inputs, or {input: seconds}
advance     seconds that pass on the clock; `clock` is another word for it
idle        an input, or {input:, split:}; nothing for the only one
crash, end  nothing
restart     nothing, or a changed program {stream: or job:, drop: [steps]}
expect      rows of the only output since the last look, or {output: rows}
late        rows too late since the last look, or {step: rows}
dead        [step, part of the error] of the dead letters since the last look
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from headrace.testing.harness import Harness
from headrace.testing.plain import differences, plain_rows
from headrace.testing.scope import made

Said = Any
Read = Mapping[str, Any]


class Mismatch(AssertionError):
    """A transcript expects something else than what came."""


def _send(harness: Harness, said: Said, read: Read) -> None:
    given: Mapping[str, Any] = said if isinstance(said, Mapping) else {"rows": said}
    name = given.get("input") or _only(harness)
    schema = harness.inputs.get(name, pa.schema([]))  # the harness refuses what it has not
    rows = [_row(row, schema) for row in given["rows"]]
    at = {"at": _ms(given["at"])} if "at" in given else {}
    harness.send(name, rows, split=given.get("split", 0), **at)


def _watermark(harness: Harness, said: Said, read: Read) -> None:
    every: Mapping[str, Any] = dict.fromkeys(harness.inputs, said)
    times = said if isinstance(said, Mapping) else every
    for name, time in times.items():
        harness.watermark(name, _ms(time))


def _advance(harness: Harness, said: Said, read: Read) -> None:
    harness.advance(said)


def _idle(harness: Harness, said: Said, read: Read) -> None:
    given = said if isinstance(said, Mapping) else {"input": said}
    harness.idle(given.get("input") or _only(harness), given.get("split", 0))


def _crash(harness: Harness, said: Said, read: Read) -> None:
    harness.crash()


def _end(harness: Harness, said: Said, read: Read) -> None:
    harness.end()


def _restart(harness: Harness, said: Said, read: Read) -> None:
    changed = dict(said or {})
    drop = changed.pop("drop", ())
    harness.restart(made(changed, read) if changed else None, drop=drop)


def _expect(harness: Harness, said: Said, read: Read) -> None:
    for name, rows in _by_name(said):
        _compare(rows, plain_rows(harness.output(name)))


def _late(harness: Harness, said: Said, read: Read) -> None:
    for name, rows in _by_name(said):
        _compare(rows, plain_rows(harness.late(name)))


def _dead(harness: Harness, said: Said, read: Read) -> None:
    left = [[letter["step"], letter["error"]] for letter in harness.dead()]
    found = []
    for step, error in said or ():
        match = next((d for d in left if d[0] == step and str(error) in d[1]), None)
        if match is not None:
            left.remove(match)
            found.append([step, error])
    _compare(said or (), [*found, *left])


def _by_name(said: Said) -> list[tuple[str | None, Iterable[Any]]]:
    if isinstance(said, Mapping):
        return [(str(name), rows or ()) for name, rows in said.items()]
    return [(None, said or ())]


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


VERBS: dict[str, Callable[[Harness, Said, Read], None]] = {
    "send": _send, "watermark": _watermark, "advance": _advance, "clock": _advance,
    "idle": _idle, "crash": _crash, "restart": _restart, "end": _end, "expect": _expect,
    "late": _late, "dead": _dead,
}  # fmt: skip
