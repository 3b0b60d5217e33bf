"""A program comes to the server: copied, asked what job it makes, and compared with what runs.

Nothing of it is imported here: `headrace explain` and `headrace plan` do that, in processes of
their own, and what is wrong with the program is refused in their words.
"""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, ServerError, did_you_mean
from headrace.server.desk import Desk
from headrace.server.lifecycle import Verb
from headrace.server.processes import Processes, write_json
from headrace.server.programs import Programs, Snapshot
from headrace.server.questions import Questions
from headrace.server.records import JobRecord
from headrace.server.refusals import busy
from headrace.server.values import UpgradePlan, Version
from headrace.server.verbs import Verbs
from headrace.settings import Settings

OPTIONS = ("master", "parallelism", "target_batch", "max_batch")
PLAN = "plan.json"


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a job, each as its setting wants it."""
    for name in options:
        if name not in OPTIONS:
            raise ServerError(
                "HR-SERVER-022",
                f"{name!r} is not an option of a job",
                f"{did_you_mean(name, OPTIONS)}The options are {', '.join(OPTIONS)}.",
            )
    given = {name: value for name, value in options.items() if value is not None}
    Settings.load(**given)
    return given


class Submissions:
    def __init__(
        self, desk: Desk, verbs: Verbs, programs: Programs, questions: Questions,
        processes: Processes,
    ) -> None:  # fmt: skip
        self._desk, self._verbs, self._processes = desk, verbs, processes
        self._programs, self._questions = programs, questions
        self._preparing, self._lock = set[str](), threading.Lock()
        self._arrivals = desk.home.path / "incoming"
        shutil.rmtree(self._arrivals, ignore_errors=True)  # what a server that died was looking at

    def submit(
        self, program: str, job: str | None, options: Mapping[str, Any], by: str
    ) -> JobRecord:
        given = checked(options)
        with self._incoming() as place:
            snapshot = self._programs.snapshot(program, place)
            plan = self._explain(snapshot, job)
            name = str(plan["job"])
            with self._desk.lock:
                if self._desk.knows(name):
                    raise ServerError(
                        "HR-SERVER-003",
                        f"the server has a job {name!r} already",
                        "`headrace upgrade` gives it another version of its program.",
                    )
                self._refuse_forgotten(name, str(plan["folder"]))
                self._take(name, 1, place, plan)
                version = self._version(1, snapshot, by, None)
                self._desk.store.put_version(name, version)
                record = JobRecord(
                    name=name, program=snapshot.program, folder=str(plan["folder"]), since=0,
                    chosen=job, options=given,
                )  # fmt: skip
                record = self._desk.put(record)
                self._desk.say(name, "submitted", f"version 1, {snapshot.program}", by)
        return record

    def _refuse_forgotten(self, name: str, folder: str) -> None:
        """A run of the job may go on of which nothing is stored any more."""
        for run in self._desk.home.runs(name):
            pid = self._processes.look(self._desk.home.run(name, run)).pid
            if pid is not None:
                raise ServerError(
                    "HR-SERVER-039",
                    f"job {name!r} still runs, in process {pid}, of which the server has lost the "
                    "record",
                    f"Stop it: headrace deactivate {folder}. Then submit it again: it goes on.",
                )

    def upgrade(
        self, name: str, program: str | None, drop: Collection[str], note: str | None, by: str
    ) -> JobRecord:
        with self._alone(name), self._incoming() as place:
            record = self._verbs.check(name, Verb.UPGRADE)
            snapshot = self._programs.snapshot(program or record.program, place)
            version, plan = self._compared(record, snapshot)
            self._plan(record, snapshot, drop)
            with self._desk.lock:
                self._verbs.check(name, Verb.UPGRADE)  # it has taken a while
                self._take(name, version, place, plan)
                self._desk.store.put_version(name, self._version(version, snapshot, by, note))
                return self._verbs.upgrade(name, version, tuple(drop), by)

    def plan_upgrade(self, name: str, program: str | None, drop: Collection[str]) -> UpgradePlan:
        with self._alone(name), self._incoming() as place:
            record = self._desk.record(name)
            version = 1 + max(one.version for one in self._desk.store.versions(name))
            try:
                snapshot = self._programs.snapshot(program or record.program, place)
                self._compared(record, snapshot)
                text = self._plan(record, snapshot, drop)
            except HeadraceError as error:
                return UpgradePlan(name, version, True, str(error), error.code)
        return UpgradePlan(name, version, False, text)

    def _compared(self, record: JobRecord, snapshot: Snapshot) -> tuple[int, dict[str, Any]]:
        """The number of a new version of a job, and its plan; refused if it is of another job."""
        versions = self._desk.store.versions(record.name)
        current = next(one for one in versions if one.version == record.version)
        if snapshot.digest == current.digest:
            raise ServerError(
                "HR-SERVER-009",
                f"the program is that of version {current.version}, which is in place",
                "Change it, then upgrade; `headrace restart` starts it again as it is.",
            )
        plan = self._explain(snapshot, record.chosen)
        if plan["job"] != record.name:
            raise ServerError(
                "HR-SERVER-021",
                f"{snapshot.program!r} makes the job {plan['job']!r}, not {record.name!r}",
                "Give the job its old name; or submit the program as a job of its own.",
            )
        if str(plan["folder"]) != record.folder:
            raise ServerError(
                "HR-SERVER-024",
                f"the program has its state in {plan['folder']!r}, and job {record.name!r} has "
                f"it in {record.folder!r}",
                "Leave the folder as it was.",
            )
        return 1 + versions[0].version, plan

    def explain(self, record: JobRecord) -> dict[str, Any]:
        """The plan of the version that is in place."""
        path = self._desk.home.version(record.name, record.version) / PLAN
        with suppress(OSError, ValueError):
            stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return stored
        return self._explain(self._desk.program(record), record.chosen)

    def _explain(self, snapshot: Snapshot, job: str | None) -> dict[str, Any]:
        chosen = ["--job", job] if job is not None else []
        words = ["explain", str(snapshot.file), "--json", *chosen]
        plan: dict[str, Any] = self._questions.ask_json(words, snapshot)
        return plan

    def _plan(self, record: JobRecord, snapshot: Snapshot, drop: Collection[str]) -> str:
        """What happens to the state; refused if a start would be. The job may run meanwhile."""
        words = ["plan", str(snapshot.file), "--folder", record.folder, "--take-over"]
        words += ["--job", record.chosen] if record.chosen is not None else []
        for name in drop:
            words += ["--drop", name]
        return self._questions.ask(words, snapshot).strip()

    def _version(self, number: int, snapshot: Snapshot, by: str, note: str | None) -> Version:
        outcome = "in place" if number == 1 else "submitted"
        now = self._desk.now()
        return Version(number, snapshot.program, now, by, snapshot.digest, note, outcome=outcome)

    def _take(self, name: str, version: int, place: Path, plan: dict[str, Any]) -> None:
        """What has come becomes a version of a job."""
        target = self._desk.home.version(name, version)
        write_json(place / PLAN, plan)
        shutil.rmtree(target, ignore_errors=True)  # of a job that was removed
        target.parent.mkdir(parents=True, exist_ok=True)
        place.rename(target)

    @contextmanager
    def _incoming(self) -> Iterator[Path]:
        """A folder for what may be refused."""
        place = self._arrivals / uuid.uuid4().hex
        try:
            self._arrivals.mkdir(exist_ok=True)
            yield place
        except OSError as error:
            raise ServerError(
                "HR-SERVER-036",
                f"the program cannot be stored: {error}",
                "Is there room on the disk? A job's name becomes that of a folder: is it too long?",
            ) from error
        finally:
            shutil.rmtree(place, ignore_errors=True)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """One version at a time comes to a job."""
        with self._lock:
            if name in self._preparing:
                raise busy(name, "another version of it is looked at")
            self._preparing.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._preparing.discard(name)
