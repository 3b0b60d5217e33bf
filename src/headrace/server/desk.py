"""Where the records of jobs lie while a server works: in memory, and stored as they change.

Whoever changes a record holds the desk's lock.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.clock import Clock
from headrace.inspect.live import last_note
from headrace.server.home import Home
from headrace.server.lifecycle import State, may_become
from headrace.server.programs import Snapshot, opened
from headrace.server.records import JobRecord
from headrace.server.refusals import unknown_job
from headrace.server.store import Store
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest

SERVER = "server"  # who does what a job does by itself


class Desk:
    def __init__(self, home: Home, store: Store, clock: Clock) -> None:
        self.home, self.store, self.clock = home, store, clock
        self.lock = threading.RLock()
        self._records = {record.name: record for record in store.records()}
        # by folder: the newest manifest that was read, and of which file
        self._manifests: dict[str, tuple[Any, Manifest]] = {}

    def now(self) -> int:
        return self.clock.now()

    def records(self) -> list[JobRecord]:
        """By name."""
        with self.lock:
            return sorted(self._records.values(), key=lambda record: record.name)

    def record(self, name: str) -> JobRecord:
        with self.lock:
            if name not in self._records:
                raise unknown_job(name)
            return self._records[name]

    def knows(self, name: str) -> bool:
        return name in self._records

    def put(self, record: JobRecord) -> JobRecord:
        """Store a record, then go by it."""
        with self.lock:
            before = self._records.get(record.name)
            if before is None or before.state != record.state:
                record = replace(record, since=self.now())
            self.store.put(record)
            self._records[record.name] = record
            return record

    def to(self, record: JobRecord, state: State, **changes: Any) -> JobRecord:
        """Put a job into a state to which it comes by itself."""
        assert may_become(record.state, state), f"{record.state} to {state}"
        return self.put(replace(record, state=state, **changes))

    def remove(self, name: str) -> None:
        with self.lock:
            self.store.remove(name)
            del self._records[name]
            self.home.remove_job(name)

    def say(self, job: str | None, kind: str, text: str, by: str = SERVER) -> None:
        self.store.add_event(self.now(), job, kind, text, by)

    # what belongs to a record

    def manifest(self, record: JobRecord) -> Manifest | None:
        """The newest manifest of a job; it is read only when there is another."""
        log, known = EpochLog(record.folder), self._manifests.get(record.folder)
        file = log.newest_file()
        if known is not None and known[0] == file:
            return known[1]
        manifest = log.latest()
        if manifest is not None:
            self._manifests[record.folder] = (file, manifest)
        return manifest

    def last_word(self, record: JobRecord) -> int | None:
        """When the run of a job has last said how it is doing, by its own clock; None before it
        has: it says so from when it is ready to read."""
        live = last_note(record.folder)
        ours = live is not None and live.run == str(self.run_folder(record))
        return live.time if live is not None and ours else None

    def run_folder(self, record: JobRecord) -> Path:
        return self.home.run(record.name, record.run)

    def program(self, record: JobRecord, version: int | None = None) -> Snapshot:
        """The copy of the program of a version; default: of that which is in place."""
        wanted = record.version if version is None else version
        program = record.program
        for one in self.store.versions(record.name):
            if one.version == wanted:
                program = one.program
        return opened(program, self.home.version(record.name, wanted))

    def in_users_words(self, record: JobRecord, text: str) -> str:
        """A text in which the copies of the program are called as the user calls the files, and
        those of another version than the one in place as files of that version."""
        versions = str(self.home.version(record.name, 0).parent)
        if versions not in text:
            return text

        def named(found: re.Match[str]) -> str:
            version, file = int(found[1]), found[2] or ""
            own = self.program(record, version).own
            return f"{own}{file}" + ("" if version == record.version else f" of version {version}")

        return re.sub(re.escape(versions) + r"/(\d+)/program(/[^\"\n]*?\.py\b)?", named, text)


def epoch_of(record: JobRecord) -> int:
    """The newest epoch of a job; 0 if it has none."""
    return EpochLog(record.folder).newest()
