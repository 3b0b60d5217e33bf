"""A version takes the place of another, and goes back if it fails before its first batch.

    ready    nothing runs: a savepoint is made, and the new version is put in place
    trial    it runs, and has not committed an epoch of its own
    back     it has failed: the state is taken back to the savepoint, if the start of the new
             version had moved it, and the old version comes back

A changed program commits the change itself as an epoch; that one is not its own. Each phase is
stored before it begins and may be begun again, so a server that dies goes on with it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

from headrace.driver.savepoints import create_savepoint, delete_savepoint
from headrace.errors import HeadraceError
from headrace.server.desk import Desk, epoch_of
from headrace.server.lifecycle import State
from headrace.server.questions import Questions
from headrace.server.records import BACK, TRIAL, JobRecord, Upgrade
from headrace.state.epochs import EpochLog
from headrace.state.savepoints import SavepointFolder

TRIES = 3  # of a new version that is killed, or fails of what may pass
_OURS = re.compile(r"upgrade-(\d+)")


def put_in_place(desk: Desk, record: JobRecord) -> JobRecord:
    """The savepoint, then the new version. Nothing may run. If the savepoint cannot be made, the
    old version stays."""
    upgrade = record.upgrade
    assert upgrade is not None
    try:
        savepoint, epoch = _savepoint(record, upgrade)
    except HeadraceError as error:
        desk.store.set_outcome(record.name, upgrade.version, "refused")
        text = f"version {upgrade.version} is not put in place, for want of a savepoint: {error}"
        desk.say(record.name, "upgrade failed", text)
        return desk.put(replace(record, upgrade=None, reason=text))
    trial = replace(upgrade, phase=TRIAL, savepoint=savepoint, epoch=epoch)
    for earlier in {upgrade.before, record.version}:  # the latter: of a trial that never ended
        desk.store.set_outcome(record.name, earlier, "replaced")
    desk.store.set_outcome(record.name, upgrade.version, "on trial")
    where = f", after the savepoint {savepoint!r} of epoch {epoch}" if savepoint else ""
    desk.say(record.name, "upgraded", f"version {upgrade.version} is in place{where}")
    program = desk.program(record, upgrade.version).program
    return desk.put(
        replace(record, version=upgrade.version, program=program, upgrade=trial, failures=0)
    )


def _savepoint(record: JobRecord, upgrade: Upgrade) -> tuple[str | None, int]:
    epoch = epoch_of(record)
    if not EpochLog(record.folder).epochs():
        return None, 0
    name = f"upgrade-{upgrade.version}"
    if name in SavepointFolder(record.folder).names():
        delete_savepoint(record.folder, name)  # of a server that has died since
    create_savepoint(record.folder, name)
    return name, epoch


def has_proved_itself(desk: Desk, record: JobRecord) -> bool:
    """Whether a version on trial has committed an epoch of its own."""
    upgrade = record.upgrade
    if upgrade is None or upgrade.phase != TRIAL or epoch_of(record) <= upgrade.epoch:
        return False
    manifest = desk.manifest(record)
    return manifest is not None and manifest.epoch > upgrade.epoch and manifest.dropped is None


def settle(desk: Desk, record: JobRecord) -> JobRecord:
    """The new version stays. Its savepoint is kept until the next one does."""
    upgrade = record.upgrade
    assert upgrade is not None
    with suppress(HeadraceError):
        for name in SavepointFolder(record.folder).names():
            ours = _OURS.fullmatch(name)
            if ours and int(ours[1]) < upgrade.version:
                delete_savepoint(record.folder, name)
    desk.store.set_outcome(record.name, upgrade.version, "in place")
    settled = desk.put(replace(record, upgrade=None))
    text = f"version {upgrade.version} has committed its first batch"
    desk.say(record.name, "upgrade done", text)
    return settled


def give_up(desk: Desk, record: JobRecord, why: str) -> JobRecord:
    """The version on trial has failed: from now on the old one is on its way back."""
    upgrade = record.upgrade
    assert upgrade is not None
    text = f"version {upgrade.version} has failed before its first batch: {why}"
    desk.say(record.name, "rolling back", text)
    back = replace(upgrade, phase=BACK, why=why)
    return desk.to(record, State.STARTING, reason=text, upgrade=back, launched=False)


def go_back(desk: Desk, questions: Questions, record: JobRecord) -> JobRecord:
    """Bring the old version back; takes as long as a start of Python. Nothing may run."""
    upgrade = record.upgrade
    assert upgrade is not None
    new, old = upgrade.version, upgrade.before
    failed = f"version {new} has failed before its first batch"
    desk.store.set_outcome(record.name, new, "rolled back")
    moved = upgrade.savepoint is not None and epoch_of(record) > upgrade.epoch
    try:
        if moved:
            program = desk.program(record, old)
            words = ["rewind", str(program.file), "--to-savepoint", str(upgrade.savepoint)]
            chosen = ["--job", record.chosen] if record.chosen else []
            place = ["--folder", record.folder, "--yes"]
            questions.ask([*words, *place, *chosen], program)
    except HeadraceError as error:
        text = f"{failed}, and the state cannot be taken back for version {old}: {error}"
        text += f"\nIt has failed of: {upgrade.why}"
        return _ended(desk, record, State.FAILED, text)
    desk.store.set_outcome(record.name, old, "in place")
    again = upgrade.state != State.FAILED
    text = f"{failed}; version {old} {'runs again' if again else 'is in place again'}"
    text += f", from the savepoint {upgrade.savepoint!r}" if moved else ""
    text += f": {upgrade.why}"
    return _ended(desk, record, State.STARTING if again else State.FAILED, text, old)


def _ended(
    desk: Desk, record: JobRecord, state: State, text: str, version: int | None = None
) -> JobRecord:
    desk.say(record.name, "rolled back", text)
    with desk.lock:
        now = desk.record(record.name)
        stuck = state == State.FAILED and version is None and now.state != State.KILLED
        if now.state != State.STARTING and not stuck:  # a user has decided otherwise meanwhile
            state = now.state
        version = now.version if version is None else version
        program = desk.program(now, version).program
        changes = {"upgrade": None, "failures": 0, "version": version, "program": program}
        return desk.to(now, state, reason=text, **changes)
