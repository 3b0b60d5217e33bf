"""A service whose jobs are values in memory, moved by the real table of legal moves.

For tests of what stands before the service: HTTP, security, client, CLI. What a real service does
with its processes and its store is tested where it is; `test_rest_whole.py` joins both.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.errors import ServerError
from headrace.server import lifecycle
from headrace.server.lifecycle import State, Verb
from headrace.server.refusals import illegal, unknown_job
from headrace.server.service import Service
from headrace.server.values import (
    Event,
    JobDetails,
    JobView,
    LogPart,
    Series,
    ServerInfo,
    UpgradePlan,
    Version,
)

STARTED = 1_700_000_000_000
FIGURES: dict[str, Any] = {
    "time": STARTED, "epoch": 7, "committed": STARTED, "took_ms": 120,
    "phases": {"source": 80, "commit": 5}, "rate_in": 1200.5, "rate_out": 60.0, "lag_rows": 4,
    "lag_seconds": 0.5, "watermark": STARTED - 1000, "watermark_delay": 1.0, "capacity": 0.4,
    "latency": {"event": {"p50": 900, "p95": 1500, "p99": 1900}, "ingest": None},
    "latencies": {"event": {"count": 10, "sum": 12_500.0, "buckets": [[1000.0, 6], [2000.0, 9]]},
                  "ingest": {"count": 0, "sum": 0.0, "buckets": [[1000.0, 0], [2000.0, 0]]}},
    "memory": {"driver": 10_000_000, "jvm": 200_000_000, "workers": None}, "gc_ms": 12,
    "retries": 1, "totals": {"read": 10_000, "used": 9_000, "filtered": 900, "late": 60,
                             "dead": 40},
    "inputs": [{"name": "orders", "read": 10_000, "used": 9_000, "filtered": 900, "late": 60,
                "dead": 40, "rate": 1200.5, "lag_rows": 4, "lag_seconds": 0.5,
                "watermark": STARTED - 1000, "splits": 2, "latency": None}],
    "steps": [{"name": "avg temp", "kind": "window", "level": 1, "in": 9_000, "out": 300,
               "rate_in": 900.0, "rate_out": 30.0, "late": 60, "dead": 0, "execute_ms": 1.5,
               "process_ms": 30, "busy": 0.2, "state_rows": 50, "state_bytes": 4_000,
               "watermark": STARTED - 1000,
               "user": {"counters": {"alarms": 3}, "gauges": {"hottest": 99.5},
                        "histograms": {"wait": {"count": 6, "sum": 30.5,
                                                "buckets": [[1.0, 2], [2.5, 5]],
                                                "p50": 1.0, "p95": 2.0, "p99": 3.0}}}}],
    "outputs": [{"name": "alarms", "rows": 300, "rate": 30.0,
                 "publish_ms": 12.5, "busy": 0.1}],
    "windows": [{"step": "avg temp", "open": 5, "next": STARTED}], "bottleneck": None,
    "backpressure": {"held_back": False, "rows": None}, "warnings": [],
}  # fmt: skip


def view(name: str, state: State = State.INACTIVE) -> JobView:
    return JobView(
        name=name, state=state, reason=None, version=1, program=f"/jobs/{name}.py",
        folder=f"/jobs/.headrace/jobs/{name}", master=None, parallelism=None, pid=None,
        since=STARTED, restarts=0, epoch=7, committed=STARTED, rate_in=1200.5, lag_rows=4,
        lag_seconds=0.5, watermark=STARTED, watermark_delay=1.0, latency_p95=1500.0, late=60,
        dead=40, capacity=0.4,
    )  # fmt: skip


_ON_THE_WAY = (State.STARTING, State.STOPPING, State.DRAINING)


class MemoryService(Service):
    def __init__(self, *names: str) -> None:
        self._lock = threading.Lock()
        self._jobs = {name: view(name) for name in names}
        self._events: list[Event] = []
        self.figures_now: dict[str, Any] = {name: FIGURES for name in names}
        self.next: dict[str, tuple[Any, ...]] = {}  # what comes of a job that is on its way
        self.asked: list[tuple[str, dict[str, Any]]] = []  # methods that got something to do

    # the server

    def info(self) -> ServerInfo:
        states = [str(job.state) for job in self._jobs.values()]
        return ServerInfo(
            "0.1.0", STARTED, "/jobs/.headrace/server", ("/jobs",),
            {state: states.count(state) for state in states},
        )  # fmt: skip

    def jobs(self) -> list[JobView]:
        return [self._jobs[name] for name in sorted(self._jobs)]

    def job(self, name: str) -> JobDetails:
        job = self._job(name)
        if job.state in _ON_THE_WAY and name in self.next:
            self.become(name, *self.next.pop(name))  # when it is looked at again
        version = Version(1, job.program, STARTED, "owner", "0" * 64, current=True)
        return JobDetails(
            job, self.figures_now.get(name), {}, (version,), lifecycle.legal(job.state)
        )

    def figures(self) -> Mapping[str, Any]:
        return self.figures_now

    # moves

    def submit(
        self, program: str, *, job: str | None = None, options: Mapping[str, Any] | None = None,
        activate: bool = True, by: str = "owner",
    ) -> JobView:  # fmt: skip
        if not program.startswith("/jobs/") or ".." in program:
            raise ServerError("HR-SERVER-004", f"{program!r} is outside", "Put it into /jobs.")
        name = job or program.removeprefix("/jobs/").removesuffix(".py")
        if name in self._jobs:
            raise ServerError("HR-SERVER-003", f"there is a job {name!r}", "Upgrade it.")
        made = replace(view(name), program=program)
        with self._lock:
            self._jobs[name] = made
        self._note("submitted", name, by, options=dict(options or {}))
        return self.activate(name, by=by) if activate else made

    def activate(self, name: str, *, by: str = "owner") -> JobView:
        return self._move(name, Verb.ACTIVATE, by)

    def deactivate(self, name: str, *, by: str = "owner") -> JobView:
        return self._move(name, Verb.DEACTIVATE, by)

    def restart(self, name: str, *, by: str = "owner") -> JobView:
        return self._move(name, Verb.RESTART, by)

    def rebalance(self, name: str, parallelism: int | None, *, by: str = "owner") -> JobView:
        self._move(name, Verb.REBALANCE, by)
        return self._set(name, parallelism=parallelism)

    def upgrade(self, name: str, *, by: str = "owner", **fields: Any) -> JobView:
        self._move(name, Verb.UPGRADE, by)
        self.asked.append(("upgrade", fields))
        return self._set(name, version=self._job(name).version + 1)

    def plan_upgrade(self, name: str, **fields: Any) -> UpgradePlan:
        self.asked.append(("plan_upgrade", fields))
        return UpgradePlan(name, self._job(name).version + 1, False, "operator  sum: same")

    def drain(self, name: str, *, by: str = "owner") -> JobView:
        return self._move(name, Verb.DRAIN, by)

    def kill(self, name: str, *, by: str = "owner") -> JobView:
        return self._move(name, Verb.KILL, by)

    def remove(self, name: str, *, by: str = "owner") -> None:
        job = self._job(name)
        if not lifecycle.is_legal(job.state, Verb.REMOVE):
            raise illegal(name, job.state, Verb.REMOVE)
        with self._lock:
            del self._jobs[name]

    def become(self, name: str, state: State, reason: str | None = None) -> None:
        """What the job does by itself."""
        self._set(name, state=state, reason=reason)

    def reset(self, name: str, state: State) -> None:
        """The job is there and in this state, whatever was done with it."""
        with self._lock:
            self._jobs[name] = view(name, state)

    # looking

    def plan(self, name: str) -> dict[str, Any]:
        return {"job": self._job(name).name, "levels": []}

    def plan_svg(self, name: str) -> str:
        self._job(name)
        return '<svg xmlns="http://www.w3.org/2000/svg"/>'

    def series(self, name: str, **fields: Any) -> Series:
        self._job(name)
        self.asked.append(("series", fields))
        return Series((STARTED,), {"rate_in": (None,)})

    def events(self, name: str | None = None, *, after: int = 0, limit: int = 200) -> list[Event]:
        if name is not None:
            self._job(name)
        chosen = [e for e in self._events if name in (None, e.job) and e.id > after]
        return chosen[:limit] if after else chosen[-limit:]

    def logs(
        self, name: str, *, run: int | None = None, after: int | None = None, limit: int = 500
    ) -> LogPart:
        self._job(name)
        lines = ("started", "epoch 1", "epoch 2")[after or 0 :][:limit]
        return LogPart(run or 1, (1,), lines, (after or 0) + len(lines))

    def why(self, name: str) -> dict[str, Any]:
        self._job(name)
        return {"job": name, "reasons": []}

    def state(self, name: str) -> dict[str, Any]:
        self._job(name)
        return {"steps": [{"name": "sum", "kind": "agg", "key": ["k"], "rows": 2, "bytes": 100}]}

    def query_state(
        self, name: str, step: str, sql: str | None, limit: int = 100
    ) -> dict[str, Any]:
        self._job(name)
        if step != "sum":
            raise ServerError("HR-SERVER-001", f"no step {step!r}", "sum has state.")
        return {"columns": ["k"], "rows": [["a"]][:limit], "epoch": 7}

    def dead(
        self, name: str, *, step: str | None = None, reason: str | None = None, limit: int = 100
    ) -> dict[str, Any]:
        self._job(name)
        return {"total": 0, "groups": [], "letters": []}

    def dead_letter(self, name: str, number: int) -> dict[str, Any]:
        self._job(name)
        if number != 1:
            raise ServerError("HR-SERVER-001", f"no dead letter {number}", "There is one: 1.")
        return {"number": 1, "step": "sum", "time": STARTED, "error": "ValueError: x"}

    def replay_dead(self, name: str, *, by: str = "owner", **fields: Any) -> dict[str, Any]:
        self._job(name)
        self.asked.append(("replay_dead", fields))
        return {"letters": 1}

    def savepoints(self, name: str) -> list[dict[str, Any]]:
        self._job(name)
        return []

    def create_savepoint(self, name: str, savepoint: str, *, by: str = "owner") -> dict[str, Any]:
        self._job(name)
        return {"savepoint": savepoint, "epoch": 7}

    def delete_savepoint(self, name: str, savepoint: str, *, by: str = "owner") -> None:
        self._job(name)

    # inside

    def _job(self, name: str) -> JobView:
        job = self._jobs.get(name)
        if job is None:
            raise unknown_job(name)
        return job

    def _move(self, name: str, verb: Verb, by: str) -> JobView:
        with self._lock:
            job = self._job(name)
            if not lifecycle.is_legal(job.state, verb):
                raise illegal(name, job.state, verb)
            state = lifecycle.after(job.state, verb)
            assert state is not None
            self._jobs[name] = moved = replace(job, state=state)
        self._note(str(verb), name, by)
        return moved

    def _set(self, name: str, **fields: Any) -> JobView:
        with self._lock:
            self._jobs[name] = replace(self._job(name), **fields)
            return self._jobs[name]

    def _note(self, kind: str, name: str, by: str, **fields: Any) -> None:
        with self._lock:
            number = len(self._events) + 1
            self._events.append(Event(number, STARTED + number, name, kind, kind, by))
            self.asked.append((kind, fields))
