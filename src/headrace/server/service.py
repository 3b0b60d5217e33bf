"""What a server can be asked and told: one method for each route of the REST interface.

Methods may be called from any thread; they block for as long as the answer takes (questions that
need the user's program run a process, seconds). They return values of `values.py`, or plain JSON
where the command line's `--json` already says it, and raise HeadraceErrors;
`refusals.status_of(error)` is the HTTP status of one. `by` is who asks, for the events.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.driver.savepoints import create_savepoint, delete_savepoint, list_savepoints
from headrace.errors import ServerError
from headrace.plan.picture import svg_of
from headrace.server.desk import Desk
from headrace.server.lifecycle import legal
from headrace.server.logs import log_of
from headrace.server.processes import Processes
from headrace.server.programs import Programs, Snapshot
from headrace.server.questions import Questions
from headrace.server.records import JobRecord
from headrace.server.samples import HOUR
from headrace.server.sampling import Sampling
from headrace.server.submissions import Submissions, checked
from headrace.server.supervisor import JobSupervisor
from headrace.server.values import (
    Event,
    Figures,
    JobDetails,
    JobView,
    LogPart,
    Series,
    ServerInfo,
    UpgradePlan,
)
from headrace.server.verbs import Verbs
from headrace.server.views import view_of

Json = dict[str, Any]
_POINTS = 5_000  # of a graph, at most
_ROWS = 10_000  # of an answer, at most
_DATA = ("record", "rows")  # keys of answers: what is there is the user's, and stays as it is


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What a server is made of."""

    desk: Desk
    verbs: Verbs
    supervisor: JobSupervisor
    processes: Processes
    sampling: Sampling
    submissions: Submissions
    programs: Programs
    questions: Questions
    version: str  # of Headrace
    started: int


class Service:
    def __init__(self, parts: ServerParts) -> None:
        self._parts, self._desk, self._verbs = parts, parts.desk, parts.verbs

    def _view(self, record: JobRecord) -> JobView:
        parts = self._parts
        run = self._desk.run_folder(record)
        pid = parts.processes.look(run).pid if record.launched else None
        hanging = parts.supervisor.hanging.text(record.name)
        return view_of(record, parts.sampling.of(record.name), pid, hanging)

    def _program(self, record: JobRecord) -> Snapshot:
        return self._desk.program(record)

    def _ask(self, record: JobRecord, *words: str) -> Any:
        """The answer of a command about a job, with the program of the version in place."""
        program = self._program(record)
        chosen = ["--job", record.chosen] if record.chosen is not None else []
        arguments = [str(program.file) if word == "FILE" else word for word in words]
        place = ["--folder", record.folder, *chosen]
        return self._own(record, self._parts.questions.ask_json([*arguments, *place], program))

    def _own(self, record: JobRecord, answer: Any) -> Any:
        """An answer whose texts call the files of the program as the user does."""
        if isinstance(answer, str):
            return self._desk.in_users_words(record, answer)
        if isinstance(answer, dict):
            return {k: v if k in _DATA else self._own(record, v) for k, v in answer.items()}
        return [self._own(record, one) for one in answer] if isinstance(answer, list) else answer

    # the server

    def info(self) -> ServerInfo:
        parts, records = self._parts, self._desk.records()
        states = [str(record.state) for record in records]
        return ServerInfo(
            parts.version, parts.started, str(self._desk.home.path),
            tuple(map(str, parts.programs.allowed)), {s: states.count(s) for s in sorted(states)},
        )  # fmt: skip

    # jobs

    def jobs(self) -> list[JobView]:
        """Every job, by name."""
        return [self._view(record) for record in self._desk.records()]

    def job(self, name: str) -> JobDetails:
        record = self._desk.record(name)
        figures = self._parts.sampling.of(name)
        versions = tuple(
            replace(one, current=one.version == record.version)
            for one in self._desk.store.versions(name)
        )
        return JobDetails(
            self._view(record), None if figures is None else figures.to_json(), record.options,
            versions, legal(record.state),
        )  # fmt: skip

    def figures(self) -> Mapping[str, Figures]:
        """The last figures of every job that has any: for /metrics."""
        return {name: one.to_json() for name, one in self._parts.sampling.all().items()}

    def submit(
        self,
        program: str,
        *,
        job: str | None = None,
        options: Mapping[str, Any] | None = None,
        activate: bool = True,
        by: str = "owner",
    ) -> JobView:
        """Take a program from an allowed folder; `job` chooses one if it makes several. Options:
        master, parallelism, target_batch, max_batch."""
        record = self._parts.submissions.submit(program, job, options or {}, by)
        if activate:
            record = self._verbs.activate(record.name, by)
        return self._view(record)

    def activate(self, name: str, *, by: str = "owner") -> JobView:
        return self._view(self._verbs.activate(name, by))

    def deactivate(self, name: str, *, by: str = "owner") -> JobView:
        return self._view(self._verbs.deactivate(name, by))

    def restart(self, name: str, *, by: str = "owner") -> JobView:
        return self._view(self._verbs.restart(name, by))

    def rebalance(self, name: str, parallelism: int | None, *, by: str = "owner") -> JobView:
        """None: as many tasks as there are cores."""
        checked({"parallelism": parallelism})
        return self._view(self._verbs.rebalance(name, parallelism, by))

    def upgrade(
        self,
        name: str,
        *,
        program: str | None = None,
        drop: Collection[str] = (),
        note: str | None = None,
        by: str = "owner",
    ) -> JobView:
        """Another version of the program; without `program`, what is now at the same path."""
        return self._view(self._parts.submissions.upgrade(name, program, drop, note, by))

    def plan_upgrade(
        self, name: str, *, program: str | None = None, drop: Collection[str] = ()
    ) -> UpgradePlan:
        """The dry run of `upgrade`."""
        return self._parts.submissions.plan_upgrade(name, program, drop)

    def drain(self, name: str, *, by: str = "owner") -> JobView:
        return self._view(self._verbs.drain(name, by))

    def kill(self, name: str, *, by: str = "owner") -> JobView:
        self._verbs.kill(name, by)
        self._parts.supervisor.end_now(name)
        return self._view(self._desk.record(name))

    def remove(self, name: str, *, by: str = "owner") -> None:
        self._verbs.remove(name, by)
        self._parts.sampling.forget(name)

    # looking at a job

    def plan(self, name: str) -> Json:
        """`headrace explain --json` of the version that runs."""
        return self._parts.submissions.explain(self._desk.record(name))

    def plan_svg(self, name: str) -> str:
        return svg_of(self.plan(name))

    def series(
        self,
        name: str,
        *,
        since: int | None = None,
        until: int | None = None,
        names: Sequence[str] = (),
        points: int = 600,
    ) -> Series:
        """Figures by path ("rate_in", "steps.NAME.busy"); without names, all of them."""
        self._desk.record(name)
        until = self._desk.now() + 1 if until is None else until
        since = until - HOUR if since is None else since
        points = min(max(1, points), _POINTS)
        return self._desk.store.series(name, since, max(until, since + 1), names, points)

    def events(self, name: str | None = None, *, after: int = 0, limit: int = 200) -> list[Event]:
        """Of a job, or of all and the server: the first after an id; with 0, the newest `limit`,
        oldest first."""
        if name is not None:
            self._desk.record(name)
        return self._desk.store.events(name, max(0, after), min(max(1, limit), _ROWS))

    def logs(
        self, name: str, *, run: int | None = None, after: int | None = None, limit: int = 500
    ) -> LogPart:
        """Lines from byte `after`; without it, the last `limit` lines. Default: the last run."""
        record = self._desk.record(name)
        runs = self._desk.home.runs(name)
        number = record.run if run is None else run
        if run is not None and run not in runs:
            raise ServerError(
                "HR-SERVER-025",
                f"there is no log of run {run} of job {name!r}",
                f"There are those of: {', '.join(map(str, runs)) or 'none yet'}.",
            )
        part = log_of(self._desk.home.run(name, number), after, min(max(1, limit), _ROWS))
        lines = tuple(self._desk.in_users_words(record, line) for line in part.lines)
        return replace(part, run=number, runs=tuple(runs), lines=lines)

    def why(self, name: str) -> Json:
        """`headrace why --json`."""
        answer: Json = self._ask(self._desk.record(name), "why", "FILE", "--json")
        return answer

    def state(self, name: str) -> Json:
        """{steps: [{name, kind, key, rows, bytes}]}."""
        answer: Json = self._ask(self._desk.record(name), "state", "ls", "FILE", "--json")
        return answer

    def query_state(self, name: str, step: str, sql: str | None, limit: int = 100) -> Json:
        """{columns, rows, epoch}: one SELECT, or without `sql` the rows of the step."""
        query = sql or 'SELECT * FROM "{}"'.format(step.replace('"', '""'))
        if query.startswith("-"):  # it is an argument, not an option
            query = f" {query}"
        most = str(min(max(1, limit), _ROWS))
        answer: Json = self._ask(
            self._desk.record(name), "state", "sql", "FILE", query, "--whole", "--limit", most
        )
        return answer

    # dead letters

    def dead(
        self, name: str, *, step: str | None = None, reason: str | None = None, limit: int = 100
    ) -> Json:
        """{total, groups: [{step, error, count, first, last}], letters: [...]}, newest first."""
        record = self._desk.record(name)
        words = ["dead", "ls", record.folder, "--groups", "--limit", str(min(max(1, limit), _ROWS))]
        words += [f"--step={step}"] if step is not None else []
        words += [f"--error={reason}"] if reason is not None else []
        if self._desk.manifest(record) is None:
            return {"total": 0, "groups": [], "letters": []}
        answer: Json = self._parts.questions.ask_json(words, self._program(record))
        return answer

    def dead_letter(self, name: str, number: int) -> Json:
        record = self._desk.record(name)
        words = ["dead", "show", record.folder, str(int(number)), "--json"]
        answer: Json = self._parts.questions.ask_json(words, self._program(record))
        trace = answer.get("traceback")
        return {**answer, "traceback": trace and self._desk.in_users_words(record, trace)}

    def replay_dead(
        self,
        name: str,
        *,
        step: str | None = None,
        reason: str | None = None,
        numbers: Collection[int] | None = None,
        dry_run: bool = False,
        by: str = "owner",
    ) -> Json:
        """`headrace dead replay --json`."""
        record = self._desk.record(name)
        words = ["dead", "replay", "FILE", "--json", *(["--dry-run"] if dry_run else [])]
        words += [f"--step={step}"] if step is not None else []
        words += [f"--error={reason}"] if reason is not None else []
        words += [f"--number={int(number)}" for number in numbers or ()]
        answer: Json = self._ask(record, *words)
        if not dry_run:
            self._desk.say(name, "replay", "dead letters are to be sent again", by)
        return answer

    # savepoints

    def savepoints(self, name: str) -> list[Json]:
        found = list_savepoints(self._desk.record(name).folder)
        damaged = [{"name": f[0], "error": str(f[1])} for f in found if isinstance(f, tuple)]
        return [f.json for f in found if not isinstance(f, tuple)] + damaged

    def create_savepoint(self, name: str, savepoint: str, *, by: str = "owner") -> Json:
        record = self._desk.record(name)
        facts = create_savepoint(record.folder, savepoint)
        self._desk.say(name, "savepoint", f"{savepoint!r} of epoch {facts.json['epoch']}", by)
        return facts.json

    def delete_savepoint(self, name: str, savepoint: str, *, by: str = "owner") -> None:
        delete_savepoint(self._desk.record(name).folder, savepoint)
        self._desk.say(name, "savepoint", f"{savepoint!r} is deleted", by)
