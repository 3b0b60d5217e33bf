"""T: D's function as a bolt, against the same as a process function by rows.

Both ours, over the same rows. The bolt has two tasks and reads by the sensor, so it has what it
knows of the sensors in a map of its task, which is read and written with every batch; the process
function has a value for each key. What they emit must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.functions import moved
from bench.jobs.b import rate
from bench.jobs.d import RESULT, SCHEMA, digest, params
from bench.measure import OURS, Contest, Entry, Lab, check_equal
from bench.rows import Row, speed

TASKS = 2


def rows(lab: Lab) -> list[Row]:
    batch, batches = (20_000, 4) if lab.quick else (500_000, 6)
    given = params(batch, batches)
    entries = [
        Entry(f"T {how}", OURS, {**given, "how": how}) for how in ("bolt", "process function")
    ]
    found = lab.rounds("t", entries, digest, reps=2)
    for ran in found:
        check_equal("T", ran)
    contest = Contest([(bolt, process) for bolt, process in found])
    what = "a bolt to the same process function, both ours"
    bolt, process = speed(contest.ours(rate)), speed(contest.theirs(rate))
    return [Row("T", what, bolt, process, contest.ratio(rate), target=0.8, equal=True)]


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from bench.with_headrace import drain

    job = _topology(params, place) if params["how"] == "bolt" else _stream(params, place)
    return drain(job, place, params["batch"], params["cores"])


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
        n = hr.value(int, default=0)
        last = hr.value(float)
        output = RESULT

        def on_row(self, row: Any, ctx: Any) -> tuple[str, int, float]:
            self.n, change = moved(self.n, self.last, row.celsius)
            self.last = row.celsius
            return row.sensor, self.n, change

    job = hr.Job("t")
    readings = job.read(f"files:{params['folder']}", schema=SCHEMA, time="at", in_order=True)
    changes = readings.key_by("sensor").process(Changes(), unbounded=True, name="changes")
    changes.write(f"files:{place}/out", format="parquet", name="out")
    return job
