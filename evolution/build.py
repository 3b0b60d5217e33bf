"""A drawn program as a job: the only place here that writes with the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
from evolution.spec import Branch, Input, Output, Step, Version

ROW = "id bigint, k string, p string, x bigint, y bigint, at bigint, made bigint"
SEEN = "seen"
Rows = dict[str, list[dict[str, Any]]]


class Sum(hr.KeyedProcess):
    output = "k string, p string, id bigint, n bigint, t bigint"
    n = hr.value("bigint", default=0)
    t = hr.value("bigint", default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.t += row.x
        return (row.k, row.p, row.id, self.n, self.t)


def build(version: Version, number: int, root: Path, rows: Rows) -> hr.Job:
    job = hr.Job("chain")
    streams = {i.name: _read(job, i, root, rows) for i in version.inputs}
    for i in version.inputs:
        seen = streams[i.name].select("id", version=f"cast({number} as bigint)")
        seen.write("collect:", name=f"{SEEN} {i.place} {i.life}")
    for branch in version.branches:
        _write(_branch(branch, streams, number), branch.output, root)
    return job


def _read(job: hr.Job, i: Input, root: Path, rows: Rows) -> hr.Stream:
    how: dict[str, Any] = {"time": i.time, "delay": "500ms", "name": i.name, "was": i.was}
    if i.kind == "log":
        return job.read(f"log:{i.place}", log=str(root / "log"), **how)
    if i.kind == "files":
        return job.read(f"files:{root}/in/{i.place}", schema=ROW, format="json", **how)
    return job.read(hr.rows(rows[i.place], ROW), **how)


def _write(stream: hr.Stream, o: Output, root: Path) -> None:
    if o.kind == "log":
        stream.write(f"log:{o.place}", log=str(root / "log"), name=o.name, was=o.was)
    elif o.kind == "files":
        stream.write(f"files:{root}/out/{o.place}", format=o.format, merge=o.merge, name=o.name,
                     was=o.was)  # fmt: skip
    else:
        stream.write("collect:", name=o.name, was=o.was)


def _branch(b: Branch, streams: dict[str, hr.Stream], number: int) -> hr.Stream:
    sides = [streams[n].where(b.step.where) for n in b.step.inputs]
    found, columns = _step(b.step, sides)
    key = " || '/' || ".join(b.step.keys)
    return found.select(
        label=f"'{b.label}'", version=f"cast({number} as bigint)", key=key,
        **{n: f"cast({c} as bigint)" for n, c in zip("abc", columns, strict=True)},
    )  # fmt: skip


def _step(s: Step, sides: list[hr.Stream]) -> tuple[hr.Stream, tuple[str, str, str]]:
    named: dict[str, Any] = {"name": s.name, "was": s.was}
    keyed, near = sides[0].key_by(*s.keys), f"{s.length * 1000 + 500}ms"
    sums: dict[str, Any] = {"n": hr.count(), "t": hr.sum(s.column), **named}
    of_window = ("unix_millis(window_start)", "n", "t")
    if s.kind == "none":
        return sides[0], ("id", "x", "y")
    if s.kind == "agg":
        return keyed.agg(t=hr.sum(s.column), unbounded=True, **named), ("id", "t", "0")
    if s.kind == "tumbling":
        return keyed.window(hr.tumbling(f"{s.length}s")).agg(**sums), of_window
    if s.kind == "sliding":
        return keyed.window(hr.sliding(f"{2 * s.length}s", f"{s.length}s")).agg(**sums), of_window
    if s.kind == "session":
        return keyed.window(hr.session(near)).agg(**sums), of_window
    if s.kind == "dedup":
        return keyed.deduplicate(within=near, **named), ("id", "x", "y")
    if s.kind == "throttle":
        return keyed.throttle(1, per=f"{s.length}s", **named), ("id", "x", "y")
    if s.kind == "changes":
        return keyed.changes_only(s.column, unbounded=True, **named), ("id", "x", "y")
    if s.kind == "top":
        best = keyed.top(2, by=s.column, unbounded=True, **named)
        return best, ("id", "rank", "case when change = '+' then 1 else -1 end")
    if s.kind == "process":
        return keyed.process(Sum(), unbounded=True, **named), ("id", "n", "t")
    if s.kind == "fold":
        folded = keyed.fold(0, lambda total, row: total + row.id, **named, unbounded=True)
        return folded, ("value", "0", "0")
    if s.kind == "match":
        pattern = hr.pattern("a", "x = 1").then("b", "x = 2").within(near)
        chosen = {"first": "a.id", "second": "b.id"}
        return keyed.match(pattern, select=chosen, **named), ("first", "second", "0")
    joined = sides[0].join(sides[1], on=list(s.keys), within=near, **named)
    return joined, ("id", "id_right", "0")
