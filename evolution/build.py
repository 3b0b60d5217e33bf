"""A drawn program as a job: its inputs and outputs. Steps are in `build_steps.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
from evolution.build_joins import joined
from evolution.build_steps import Built, made
from evolution.kinds import JOINS
from evolution.places import ROW, Places
from evolution.spec import Branch, Input, Output, Version

SEEN = "seen"


def build(version: Version, number: int, root: Path, places: Places) -> hr.Job:
    job = hr.Job("chain")
    schema = ROW.replace("p bigint", f"p {version.numbers}")
    streams = {i.name: _read(job, i, root, places, schema) for i in version.inputs}
    for i in version.inputs:
        seen = streams[i.name].select("id", version=f"cast({number} as bigint)")
        seen.write("collect:", name=f"{SEEN} {i.place} {i.life}")
    for branch in version.branches:
        _write(_branch(branch, version, streams, number), branch.output, root)
    return job


def _read(job: hr.Job, i: Input, root: Path, places: Places, schema: str) -> hr.Stream:
    how: dict[str, Any] = {"time": i.time, "delay": "500ms", "name": i.name, "was": i.was}
    rows = places.rows[i.place]
    if i.kind == "log":
        return job.read(f"log:{i.place}", log=str(root / "log"), **how)
    if i.kind == "files":
        return job.read(f"files:{root}/in/{i.place}", schema=schema, format="json", **how)
    if i.kind == "socket":
        return job.read(f"socket:{places.address()}", schema=schema, format="json", **how)
    if i.kind == "generate":
        source = hr.generate(None, rows.__getitem__, total=len(rows), splits=2, schema=schema)
        return job.read(source, **how)
    return job.read(hr.rows(rows, schema), **how)


def _write(stream: hr.Stream, o: Output, root: Path) -> None:
    named: dict[str, Any] = {"name": o.name, "was": o.was}
    if o.kind == "log":
        stream.write(f"log:{o.place}", log=str(root / "log"), **named)
    elif o.kind == "files":
        stream.write(f"files:{root}/out/{o.place}", format=o.format, merge=o.merge, **named)
    elif o.kind == "console":
        stream.write("console:", format="json", **named)
    else:
        stream.write("collect:", **named)


def _branch(b: Branch, version: Version, streams: dict[str, hr.Stream], number: int) -> hr.Stream:
    sides = [streams[n].where(b.step.where) for n in b.step.inputs]
    time = version.input(b.step.inputs[0]).time
    found, columns = _step(b, sides, time)
    key = " || '/' || ".join(f"cast({k} as string)" for k in b.step.keys)
    return found.select(
        label=f"'{b.label}'", version=f"cast({number} as bigint)", key=key,
        **{n: f"coalesce(cast({c} as bigint), -1)" for n, c in zip("abc", columns, strict=True)},
    )  # fmt: skip


def _step(b: Branch, sides: list[hr.Stream], time: str) -> Built:
    return joined(b.step, sides) if b.step.kind in JOINS else made(b.step, sides, time)
