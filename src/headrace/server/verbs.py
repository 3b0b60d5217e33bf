"""What the verbs do to a record: the move of the table, and what is to follow from it.

Each verb is refused where the table does not have it. Here nothing is waited for: the supervisor
brings about what the record then says; only `kill` ends the processes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headrace.server.desk import Desk, epoch_of
from headrace.server.lifecycle import WITH_PROCESS, State, Verb, after, is_legal
from headrace.server.records import BACK, READY, START, STOP, TRIAL, JobRecord, Upgrade
from headrace.server.refusals import busy, illegal
from headrace.server.upgrades import put_in_place

_ANEW: Mapping[str, Any] = {"failures": 0, "restarts": 0, "retry_at": 0, "reason": None}


class Verbs:
    def __init__(
        self, desk: Desk, wake: Callable[[], None], is_busy: Callable[[str], bool]
    ) -> None:
        """`is_busy`: whether something that takes long is under way for a job."""
        self._desk, self._wake, self._is_busy = desk, wake, is_busy

    def check(self, name: str, verb: Verb) -> JobRecord:
        """The record of a job for which a verb is legal now."""
        record = self._desk.record(name)
        if not is_legal(record.state, verb):
            raise illegal(name, record.state, verb)
        return record

    def _check_gone(self, name: str) -> None:
        record = self._desk.record(name)
        if record.state == State.KILLED and record.launched:
            raise busy(name, "its processes are being ended")

    def _move(self, name: str, verb: Verb, by: str, text: str, **changes: Any) -> JobRecord:
        with self._desk.lock:
            record = self.check(name, verb)
            state = after(record.state, verb)
            assert state is not None  # `remove` is not done here
            self._desk.say(name, str(verb), text, by)
            moved = self._desk.put(replace(record, state=state, **changes))
        self._wake()
        return moved

    def activate(self, name: str, by: str) -> JobRecord:
        with self._desk.lock:
            self._check_gone(name)
            record = self._desk.record(name)
            waits = record.state == State.WAITING  # it is started now, for what it was to do
            fresh = {"launched": False, "asked": False, "then": STOP}
            fresh["draining"] = record.draining and waits
            text = "it is to run, and to drain" if fresh["draining"] else "it is to run"
            return self._move(name, Verb.ACTIVATE, by, text, **_ANEW, **fresh)

    def deactivate(self, name: str, by: str) -> JobRecord:
        text = "it is to stop after the batch in hand"
        return self._move(name, Verb.DEACTIVATE, by, text, then=STOP, draining=False, reason=None)

    def restart(self, name: str, by: str) -> JobRecord:
        return self._move(name, Verb.RESTART, by, "it is to start again", then=START, **_ANEW)

    def rebalance(self, name: str, parallelism: int | None, by: str) -> JobRecord:
        with self._desk.lock:
            record = self.check(name, Verb.REBALANCE)
            options = {k: v for k, v in record.options.items() if k != "parallelism"}
            if parallelism is not None:
                options["parallelism"] = parallelism
            text = f"{'as many tasks as cores' if parallelism is None else f'{parallelism} tasks'}"
            return self._move(
                name, Verb.REBALANCE, by, text, options=options, **self._again(record)
            )

    def upgrade(self, name: str, version: int, drop: tuple[str, ...], by: str) -> JobRecord:
        """The version is stored, and its plan was looked at."""
        with self._desk.lock:
            record = self.check(name, Verb.UPGRADE)
            before = record.version
            if record.upgrade is not None and record.upgrade.phase == BACK:
                raise busy(name, f"version {before} is on its way back")
            if record.upgrade is not None and record.upgrade.phase == TRIAL:
                before = self._proved(record, record.upgrade)
            upgrade = Upgrade(version, before, record.state, READY, drop)
            text = f"version {version} takes the place of version {record.version}"
            changes = {"upgrade": upgrade, **self._again(record)}
            moved = self._move(name, Verb.UPGRADE, by, text, **changes)
            if moved.state not in WITH_PROCESS and not moved.launched:  # its folder is at rest
                moved = put_in_place(self._desk, moved)
            return moved

    def _proved(self, record: JobRecord, trial: Upgrade) -> int:
        """What to go back to from the version after one that has not committed anything."""

        return trial.before if epoch_of(record) == trial.epoch else record.version

    def _again(self, record: JobRecord) -> dict[str, Any]:
        """For a job that is to run, another start."""
        if record.state in WITH_PROCESS:
            return {"then": START, **_ANEW}
        if record.state in (State.WAITING, State.FAILED):
            return {"then": STOP, **_ANEW}
        return {}

    def drain(self, name: str, by: str) -> JobRecord:
        text = "it is to read what is there, close every window and end"
        return self._move(name, Verb.DRAIN, by, text, draining=True, reason=None)

    def kill(self, name: str, by: str) -> JobRecord:
        text = "it is killed at once; the batch in hand is done again when it is started"
        return self._move(
            name, Verb.KILL, by, text, reason=f"killed by {by}", then=STOP, draining=False
        )

    def remove(self, name: str, by: str) -> None:
        with self._desk.lock:
            record = self.check(name, Verb.REMOVE)
            self._check_gone(name)
            if self._is_busy(name):
                raise busy(name, "its state is being taken back")
            self._desk.remove(name)
            self._desk.say(name, "removed", f"its folder stays: {record.folder}", by)
