"""Forgetting a key: one person's rows, out of all that is a stopped job's own.

In this order, each step durable and safe to repeat; a crash between any two leaves a folder that a
start goes on from, and a forget that is begun again finishes:

    1. refuse while a driver lives; take the fence, and the folder for itself: a start waits
    2. publish what is promised: from here on nothing of it is needed in `staged`
    3. write the files of state again that have rows of the key, under new names
    4. put manifests and savepoints in place that name these, and no longer what an output will
       not have any more
    5. remove the files that no manifest names, and what was staged
    6. erase from outputs of files, each in one step, then from requests to replay, then from topics
    7. scan every file, and say what was erased and where the value still is
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.clock import MAX_TIME, SystemClock
from headrace.ddl import read_type
from headrace.driver.commit import Committer
from headrace.driver.forget_places import (
    Hits,
    TopicPlace,
    file_outputs,
    hits_of,
    look_at_topic,
    other_places,
    received_topics,
    topics_of,
)
from headrace.driver.forget_report import ErasedPlace, ForgetReport
from headrace.driver.forget_scan import scan
from headrace.driver.forget_state import StateErasure, key_columns, look_at_state, renamed_state
from headrace.epoch.bundle import DEAD, Bundle
from headrace.errors import PlanError, StateError, did_you_mean
from headrace.guarantees import AT_MOST_ONCE
from headrace.key_match import KeyMatch
from headrace.plan.program import Program
from headrace.sinks import EpochWriter, Timelines
from headrace.sinks.columns import unpacked
from headrace.sinks.erasing import (
    ErasurePlan,
    erase,
    erase_aside,
    plan_erasure,
    remove_empty_folders,
)
from headrace.sinks.files import FilesSink, chain_of
from headrace.sinks.ownership import Identity
from headrace.spare_bytes import has_spare
from headrace.state import sealed
from headrace.state.deliveries import BegunMark
from headrace.state.epochs import EpochLog, PublishedMark
from headrace.state.faults import point
from headrace.state.manifest import Manifest
from headrace.state.prune import RUNS, STAGED
from headrace.state.resends import Resends
from headrace.state.savepoints import Savepoint, SavepointFolder, creating


def forget(
    folder: str | Path, key: str | Mapping[str, Any], *, dry_run: bool = False
) -> ForgetReport:
    """Erase one key from all that is a stopped job's own; `folder` is the job's.

    `key` are values by the names of columns, `{"person": "p-17"}`; of several, rows are erased that
    have them all. A text alone is a value of the job's only key column. Erased are the state of all
    steps that are keyed by these columns, in every epoch and savepoint that is kept, and rows with
    these columns in outputs of files, topics of the embedded log and dead letters. At the end every
    file is scanned; the report says what was erased, where the value still occurs, and what has to
    be done in places that are not the job's. With `dry_run` it says what would be erased.
    """
    log = EpochLog(folder)
    name = str(sealed.read_sealed(log.folder / "job.json", "job")["job"])
    _refuse_living(log, name)
    if dry_run:
        return _Forgetting.of(log, name, key).preview()
    token = log.take_fence()
    try:
        with creating(log.folder):
            log.check_fence(token)
            work = _Forgetting.of(log, name, key)
            _publish_promised(log, name, token)
            return _Forgetting.of(log, name, work.match.columns).carry_out(token)
    finally:
        log.release()


def _refuse_living(log: EpochLog, name: str) -> None:
    driver = log.driver()
    if driver is not None:
        raise StateError(
            "HR-FORGET-001",
            f"job {name!r} is running: {driver} drives it in {str(log.folder)!r}",
            "Stop it first (headrace deactivate), and start it again when its key is forgotten.",
        )


def _publish_promised(log: EpochLog, name: str, token: int) -> None:
    """As a start does it; each output as the manifest describes it, which has promised it."""
    done = PublishedMark(log.folder).epoch()
    for epoch in log.epochs():
        if epoch > done and log.read(epoch).rewound is not None:
            raise StateError(
                "HR-FORGET-004",
                f"job {name!r} has gone back to an earlier epoch, and its outputs are not told yet",
                "Start it once, so that they take back what was given up; then stop it, and repeat "
                "this.",
            )
    once = AT_MOST_ONCE if BegunMark(log.folder).taken else None  # as the last start was asked
    program = Program(name, {}, {}, {}, guarantee=once)
    bundle = Bundle(program, {}, {}, SystemClock(), writes={})
    Committer(bundle, log, token, 0, bundle.clock, keep=MAX_TIME).recover()
    point("forget.published")


@dataclass
class _Forgetting:
    """One key, and all that a job has of it."""

    log: EpochLog
    name: str
    match: KeyMatch
    manifests: list[Manifest]
    savepoints: list[Savepoint]
    outputs: dict[str, FilesSink]
    topics: list[TopicPlace]
    received: list[TopicPlace]
    erased: dict[tuple[str, str], int] = field(default_factory=dict)

    @staticmethod
    def of(log: EpochLog, name: str, key: str | Mapping[str, Any]) -> _Forgetting:
        named = SavepointFolder(log.folder)
        savepoints = [named.read(one) for one in named.names()]
        manifests = [log.read(epoch) for epoch in log.epochs()]
        both = [*reversed(manifests), *(one.manifest for one in savepoints)]
        outputs = file_outputs(log.folder, both)
        topics = topics_of(both)
        columns = _columns(key, both, topics)
        match = KeyMatch(columns, {name: _kinds(name, both, topics) for name in columns})
        return _Forgetting(
            log,
            name,
            match,
            manifests,
            savepoints,
            outputs,
            topics,
            received_topics(log.folder),
        )

    @property
    def all(self) -> list[Manifest]:
        """The newest first; those of savepoints last."""
        return [*reversed(self.manifests), *(one.manifest for one in self.savepoints)]

    def preview(self) -> ForgetReport:
        report = ForgetReport(self.name, str(self.match), dry_run=True)
        self._look()
        self._count_topics()
        report.erased = self._report()
        report.others = other_places(self.all, self.match)
        return report

    def carry_out(self, token: int) -> ForgetReport:
        writer = EpochWriter(token, lambda: self.log.check_fence(token), self._timelines())
        state, plans = self._look()
        renamed = state.write(self.match)
        point("forget.written")
        self._rewrite(state, renamed, plans)
        self._remove_unnamed()
        for plan in plans:
            erase(plan, writer)
            erase_aside(plan.merging, hits_of(self.match))
            remove_empty_folders(plan.merging.target)
            point("forget.output")
        self._requests(hits_of(self.match), erase=True)
        self._count_topics(erase=True)
        report = ForgetReport(self.name, str(self.match))
        report.erased = self._report()
        left = self._manifests_now()
        found = scan(self.log.folder, left, self.outputs, self.topics, self.received, self.match)
        for place, count in self._rows_left():
            found.note(place, "rows of the key were not erased: repeat this", count)
        found.fill(report)
        report.others = other_places(self.all, self.match)
        return report

    def _timelines(self) -> Timelines:
        return Timelines.of(self.manifests[-1] if self.manifests else Manifest())

    # Looking

    def _look(self) -> tuple[StateErasure, list[ErasurePlan]]:
        state = look_at_state(self.log.folder, self.all, self.match)
        for step, count in state.rows.items():
            self._note(f"state of step {step}", count)
        hits, plans = hits_of(self.match), dict[str, ErasurePlan]()
        for id, sink in self.outputs.items():
            for chain, merging in sink.mergings().items():
                if chain not in plans:
                    plans[chain] = plan_erasure(merging, hits)
                    aside = erase_aside(merging, hits, dry_run=True)
                    what = "dead letters" if id == DEAD else f"output {sink.target}"
                    self._note(what, plans[chain].rows + aside)
        self._note("requests to replay dead letters", self._requests(hits), "letters")
        letters = sum(1 for m in self.all for e in m.examples.values() if self._tells(e))
        self._note("examples of dead letters in manifests", letters, "texts")
        return state, list(plans.values())

    def _requests(self, hits: Hits, *, erase: bool = False) -> int:
        """How many letters of the key there are in requests to replay some."""
        resends, found = Resends(self.log.folder), 0
        for number in resends.numbers():
            letters = resends.read(number)
            mask = hits(letters)
            found += int(mask.sum())
            if erase and (mask.any() or has_spare(letters)):
                resends.rewrite(number, letters.filter(pa.array(~mask)))
        return found

    def _rows_left(self) -> Iterator[tuple[str, int]]:
        """What outputs still have by their columns: lines do not say what a number is of."""
        hits = hits_of(self.match)
        yield "requests to replay dead letters", self._requests(hits)
        for sink in self.outputs.values():
            for merging in sink.mergings().values():
                yield f"output {str(sink.target)!r}", plan_erasure(merging, hits).rows

    def _tells(self, example: Mapping[str, str]) -> bool:
        return bool(self.match.in_json(dict(example)))

    def _count_topics(self, *, erase: bool = False) -> None:
        for place in (*self.topics, *self.received):
            hits = hits_of(self.match, place.column)
            found = look_at_topic(place, hits)
            what = f"input {place.root.name}" if place in self.received else f"topic {place.topic}"
            self._note(what, found, "records")
            if erase and place.spare >= 0:
                place.open().erase(place.topic, hits, spare=place.spare)
                point("forget.topic")

    def _note(self, what: str, count: int, unit: str = "rows") -> None:
        if count:
            self.erased[what, unit] = self.erased.get((what, unit), 0) + count

    def _report(self) -> list[ErasedPlace]:
        return [ErasedPlace(what, count, unit) for (what, unit), count in self.erased.items()]

    # Changing

    def _rewrite(
        self, state: StateErasure, renamed: Mapping[Any, Any], plans: Sequence[ErasurePlan]
    ) -> None:
        """Manifests and savepoints, each in one step; the newest first."""
        for manifest in reversed(self.manifests):
            new = self._without(manifest, renamed, plans)
            if new != manifest:
                self.log.rewrite(new)
        named = SavepointFolder(self.log.folder)
        for savepoint in self.savepoints:
            new = self._without(savepoint.manifest, renamed, plans)
            if new != savepoint.manifest:
                named.rewrite(replace(savepoint, manifest=new))
        point("forget.named")

    def _without(
        self, manifest: Manifest, renamed: Mapping[Any, Any], plans: Sequence[ErasurePlan]
    ) -> Manifest:
        epochs = {plan.merging.chain: plan for plan in plans}
        job = Identity(self.log.folder).known()

        def last(id: str, last: int) -> int:
            plan = epochs.get(chain_of(job, id)) if job is not None else None
            return last if plan is None else _last_with_rows(manifest, plan, last)

        return replace(
            manifest,
            state=renamed_state(manifest, renamed),
            outputs={},  # all of it is published
            examples={s: e for s, e in manifest.examples.items() if not self._tells(e)},
            writes={
                name: replace(facts, last=last(facts.id, facts.last))
                for name, facts in manifest.writes.items()
            },
            last_dead=last(DEAD, manifest.last_dead),
        )

    def _remove_unnamed(self) -> None:
        """Files of state that no manifest names any more, and all that was staged."""
        now = self._manifests_now()
        named = {run[0] for m in now for table in m.state.values() for run in table["runs"]}
        for path in sorted((self.log.folder / RUNS).glob("*")):
            if path.name not in named:
                path.unlink(missing_ok=True)
                point("forget.removed")
        for path in sorted((self.log.folder / STAGED).rglob("*")):
            if path.is_file():
                path.unlink(missing_ok=True)

    def _manifests_now(self) -> list[Manifest]:
        named = SavepointFolder(self.log.folder)
        stored = [self.log.read(epoch) for epoch in self.log.epochs()]
        return [*stored, *(named.read(name).manifest for name in named.names())]


def _last_with_rows(manifest: Manifest, plan: ErasurePlan, last: int) -> int:
    """The last epoch of which an output has rows once the key is gone, as a manifest counts."""
    timelines = Timelines.of(manifest)
    if (timelines.at(last), last) not in plan.before - plan.epochs:
        return last
    left = (e for timeline, e in plan.epochs if e <= last and timelines.at(e) == timeline)
    return max(left, default=0)


# The key's columns


def _columns(
    key: str | Mapping[str, Any],
    manifests: Sequence[Manifest],
    topics: Sequence[TopicPlace],
) -> dict[str, str]:
    keys = {
        name
        for manifest in manifests
        for facts in manifest.ops.values()
        for names in key_columns(facts)
        for name in names
    }
    if isinstance(key, str):
        if len(keys) != 1:
            raise StateError(
                "HR-FORGET-002",
                f"the key {key!r} names no column, and the job's steps are keyed by "
                f"{', '.join(sorted(keys)) if keys else 'none'}",
                'Name it: --key COLUMN=VALUE on the command line, {"column": value} in Python.',
            )
        return {next(iter(keys)): key}
    known = keys | {name for schema in _schemas(manifests, topics) for name in schema.names}
    return {_known(name, known, keys): _text(name, value) for name, value in key.items()}


def _schemas(manifests: Sequence[Manifest], topics: Sequence[TopicPlace]) -> Iterator[pa.Schema]:
    """The columns of outputs and topics, as far as they are known."""
    for manifest in manifests:
        for facts in manifest.writes.values():
            with suppress(KeyError, ValueError):
                yield unpacked(str(facts.about["schema"]))
    for place in topics:
        schema = place.open().describe(place.topic).schema
        if schema is not None:
            yield schema


def _kinds(
    name: str, manifests: Sequence[Manifest], topics: Sequence[TopicPlace]
) -> list[pa.DataType]:
    """The types of the columns of a name: of steps' keys, outputs and topics."""
    found = {s.field(name).type for s in _schemas(manifests, topics) if s.names.count(name) == 1}
    for manifest in manifests:
        for facts in manifest.ops.values():
            for column in (facts.shape or {}).get("key") or ():
                if isinstance(column, list) and column[0] == name:
                    with suppress(PlanError):
                        found.add(read_type(str(column[1])))
    return sorted(found, key=str)


def _known(name: str, known: set[str], keys: set[str]) -> str:
    """The column; an error if neither a step nor an output or topic has one of that name."""
    if known and name not in known:
        raise StateError(
            "HR-FORGET-003",
            f"no step of the job is keyed by {name!r}, and no output or topic has such a column",
            did_you_mean(name, sorted(known))
            + (f"Its steps are keyed by: {', '.join(sorted(keys))}." if keys else ""),
        )
    return name


def _text(name: str, value: Any) -> str:
    if value is None:
        raise StateError(
            "HR-FORGET-005",
            f"the key column {name!r} has no value: null is nobody's, and a text would be 'None'",
            "Say whose rows are to be forgotten. Rows without the column leave by a program of "
            f'yours (where "{name} is not null").',
        )
    if isinstance(value, bool):
        return json.dumps(value)
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)
