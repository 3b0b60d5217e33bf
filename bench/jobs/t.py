"""T: D's function as a bolt, against the same as a process function by rows.

Both ours, over the same rows. The bolt has two tasks and reads by the sensor, so it has what it
knows of the sensors in maps of its task. The same process function has the same maps, for each of
two keys; D's own has a value for each sensor, and so nothing to look up. What they emit must be the
same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.functions import moved
from bench.jobs.b import rate
from bench.jobs.d import RESULT, SCHEMA, digest, job, params
from bench.measure import OURS, Contest, Entry, Lab, check_equal
from bench.rows import Row, speed

TASKS = 2


HOW = ("bolt", "process function", "value per key")


def rows(lab: Lab) -> list[Row]:
    batch, batches = (20_000, 4) if lab.quick else (500_000, 6)
    given = params(batch, batches)
    entries = [Entry(f"T {how}", OURS, {**given, "how": how}) for how in HOW]
    found = lab.rounds("t", entries, digest, reps=2)
    for ran in found:
        check_equal("T", ran)
    same = Contest([(bolt, process) for bolt, process, _ in found])
    by_key = Contest([(bolt, value) for bolt, _, value in found])
    return [
        _row("T", "a bolt to the same process function, both ours", same, target=0.8),
        _row("T by key", "the bolt to a process function with a value per key", by_key),
    ]


def _row(job: str, what: str, contest: Contest, target: float | None = None) -> Row:
    bolt, process = speed(contest.ours(rate)), speed(contest.theirs(rate))
    return Row(job, what, bolt, process, contest.ratio(rate), target=target, equal=True)


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from bench.with_headrace import drain

    jobs = {"bolt": _topology, "process function": _stream, "value per key": job}
    return drain(jobs[params["how"]](params, place), place, params["batch"], params["cores"])


def _topology(params: Mapping[str, Any], place: Path) -> Any:
    import headrace as hr

    class Changes(hr.Bolt):
        counts = hr.map_of(str, int)
        lasts = hr.map_of(str, float)
        output = RESULT

        def process(self, tup: Any, collector: Any) -> None:
            sensor, celsius = tup.sensor, tup.celsius
            n, change = moved(self.counts.get(sensor, 0), self.lasts.get(sensor), celsius)
            self.counts[sensor], self.lasts[sensor] = n, celsius
            collector.emit((sensor, n, change))

    topology = hr.Topology("t")
    folder = f"files:{params['folder']}"
    topology.spout("readings", folder, schema=SCHEMA, time="at", in_order=True)
    topology.bolt("changes", Changes(), tasks=TASKS).fields("readings", "sensor")
    topology.bolt("out", f"files:{place}/out", format="parquet").shuffle("changes")
    return topology


def _stream(params: Mapping[str, Any], place: Path) -> Any:
    import headrace as hr

    class Changes(hr.KeyedProcess):
        counts = hr.map_of(str, int)
        lasts = hr.map_of(str, float)
        output = RESULT

        def on_row(self, row: Any, ctx: Any) -> tuple[str, int, float]:
            sensor, celsius = row.sensor, row.celsius
            n, change = moved(self.counts.get(sensor, 0), self.lasts.get(sensor), celsius)
            self.counts[sensor], self.lasts[sensor] = n, celsius
            return sensor, n, change

    job = hr.Job("t")
    readings = job.read(f"files:{params['folder']}", schema=SCHEMA, time="at", in_order=True)
    parts = readings.with_columns(f"ascii(right(sensor, 1)) % {TASKS} as part")
    changes = parts.key_by("part").process(Changes(), unbounded=True, name="changes")
    changes.write(f"files:{place}/out", format="parquet", name="out")
    return job
