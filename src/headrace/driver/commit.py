"""Committing an epoch: one manifest, then outputs made visible. Doing it twice changes nothing.

The sequence, each step safe to repeat after a crash:

1. add up the reports of all tasks, and see that the outputs still hold what was published;
2. make the next manifest from the last one and the reports, and write it: from here on the
   epoch is true, whatever happens;
3. publish what the manifest names at every output, those of a group at once; where the job is
   at most once, an output that records no epochs gets none twice: that it begins is durable first;
4. remember how far publishing has come;
5. clear away what no manifest names any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.clock import MAX_TIME, MIN_TIME, Clock
from headrace.driver.shedding import joined
from headrace.driver.start_checks import output_lost, output_overtaken
from headrace.epoch.accounting import FATES, SHED
from headrace.epoch.bundle import DEAD, Bundle, as_written
from headrace.epoch.report import Report, Settled, Total, add_up
from headrace.epoch.values import Offset, watermark_of
from headrace.errors import RunError, StateError
from headrace.guarantees import AT_LEAST_ONCE, AT_MOST_ONCE
from headrace.ops.contract import WINDOWS_SEEN
from headrace.ops.shedding import LOWEST
from headrace.plan.evolution import describe
from headrace.plan.program import Program
from headrace.sinks import EpochWriter, Sink, Timelines, in_groups
from headrace.state.deliveries import BegunMark
from headrace.state.epochs import EpochLog, PublishedMark
from headrace.state.faults import hooked, point
from headrace.state.manifest import ENDED, Counts, Manifest, OutputFacts, Split, StepFacts
from headrace.state.store import SlotState

_TIDY_EVERY = 10  # epochs


class Committer:
    """The driver's side of the sink."""

    def __init__(
        self, bundle: Bundle, log: EpochLog, token: int, slots: int, clock: Clock, keep: int = 20
    ) -> None:
        self._program, self._sinks, self._on_step = bundle.program, bundle.sinks, bundle.on_step
        self._bundle, self._log, self._token = bundle, log, token
        self._slots, self._clock, self._keep = slots, clock, keep
        self._published, self._begun = PublishedMark(log.folder), BegunMark(log.folder, token)

    def commit(self, reports: Sequence[Report]) -> Manifest:
        with hooked(self._on_step):
            try:
                return self._commit(reports)
            except StateError:  # of a file that another driver has removed, perhaps
                self._log.check_fence(self._token)
                raise

    def _commit(self, reports: Sequence[Report]) -> Manifest:
        epoch = reports[0].epoch
        end = next(r.end for r in reports if r.end is not None)
        if reports[0].replay:  # as Spark's first batch of each start is, which is no news
            manifest = self._log.read(epoch)
        else:
            before = self._log.read(epoch - 1) if epoch > 1 else Manifest()
            total = add_up(reports, before.settled or ())
            self._check_held(total)
            manifest = self._manifest(before, epoch, reports[0].attempt, total, end)
            self._log.commit(manifest)
            point("commit.manifest")
        if not reports[0].replay or epoch > self._published.epoch():
            self.publish(manifest)
        if epoch % _TIDY_EVERY == 0:
            self._tidy(epoch)
        check_dead_limit(self._program, manifest)
        return manifest

    def _check_held(self, total: Total) -> None:
        """Raise unless the outputs that get rows hold what was published there, by us alone."""
        before = self._log.latest()
        manifest = before or Manifest()
        due = {name: facts.last for name, facts in manifest.writes.items()}
        due[DEAD] = manifest.last_dead
        for name, staged in total.staged.items():
            sink, epoch = self._sinks[name], due.get(name, 0)
            if staged and epoch and not sink.reached(epoch):
                held = sink.held()
                raise output_lost(self._bundle, self._log, name, held.number if held else 0, epoch)
            if staged and before is not None:
                beyond = sink.beyond(self._counts(before, name))
                if beyond:
                    raise output_overtaken(self._bundle, self._log, name, beyond)

    def recover(self, upto: int = MAX_TIME) -> list[str]:
        """Publish what a crash left unpublished, up to an epoch; returns what a user should know
        of it."""
        done, notes = self._published.epoch(), list[str]()
        newest = self._log.latest()
        self._begun.start(self._program.guarantee == AT_MOST_ONCE, newest)
        for epoch in self._log.epochs():
            if newest is not None and done < epoch <= upto:
                manifest = self._log.read(epoch)
                if not Timelines.of(newest).counts(manifest):
                    continue  # it was given up
                notes += self._go_back(manifest, newest)
                notes += self._publish(manifest, self._as_written(manifest), newest)
        self._tidy(self._log.newest())
        return notes

    def publish(self, manifest: Manifest) -> None:
        self._publish(manifest, self._sinks)

    def _publish(
        self, manifest: Manifest, sinks: Mapping[str, Sink], newest: Manifest | None = None
    ) -> list[str]:
        writer, notes = self._writer(manifest, recovers=newest is not None), list[str]()
        due = {name: sinks[name] for name, staged in manifest.outputs.items() if staged}
        for names in in_groups(due):
            if self._may_repeat(due[names[0]]):
                note = self._begin(manifest, names[0], newest or manifest)
                if note:
                    notes.append(note)
                    continue
            together = [(due[name], manifest.outputs[name]) for name in names]
            due[names[0]].publish_group(manifest.epoch, together, writer)
            point("sink.publish")
        self._published.reached(manifest.epoch)
        point("commit.published")
        return notes

    def _may_repeat(self, sink: Sink) -> bool:
        """Whether an output could get an epoch twice, and must not."""
        return self._program.guarantee == AT_MOST_ONCE and sink.guarantee == AT_LEAST_ONCE

    def _begin(self, manifest: Manifest, name: str, newest: Manifest) -> str:
        """Begin to deliver an epoch; a sentence if that has begun before, and must not again."""
        epoch, timeline, id = manifest.epoch, manifest.timeline, manifest.writes[name].id
        order = [line for line, _ in Timelines.of(newest).spans]
        if not self._begun.has(id, timeline, epoch, order):
            self._begun.begin(id, timeline, epoch)
            return ""
        self._begun.passed_over(id, timeline, epoch)
        rows = sum(staged["rows"] for staged in manifest.outputs[name])
        return (
            f"output {name!r}: the {rows} rows of epoch {epoch} may be missing there: their "
            "delivery had begun, and at most once means that it is not repeated"
        )

    def _as_written(self, manifest: Manifest) -> dict[str, Sink]:
        """The outputs that an earlier version of the program may have had, as it had them."""
        folder = str(self._log.folder)
        return {n: as_written(n, manifest.writes, folder, self._bundle) for n in manifest.outputs}

    def _go_back(self, manifest: Manifest, newest: Manifest) -> list[str]:
        """Take back what outputs have of timelines that were given up."""
        if manifest.rewound is None:
            return []
        writer, acknowledged = self._writer(manifest), manifest.acknowledged
        notes = list[str]()
        for name, sink in self._sinks.items():
            place = self._bundle.place_of(name)
            own = Timelines.of(newest, MAX_TIME)  # of its own timeline nothing is given up
            notes.append(sink.go_back(own.plus(acknowledged.get(place, {})), writer))
        return notes

    def _writer(self, manifest: Manifest, *, recovers: bool = False) -> EpochWriter:
        token, log = self._token, self._log
        return EpochWriter(token, lambda: log.check_fence(token), Timelines.of(manifest), recovers)

    def _counts(self, manifest: Manifest, output: str) -> Timelines:
        """What counts at the place of an output, and what stays there as the user knows."""
        place = self._bundle.place_of(output)
        return Timelines.of(manifest).plus(manifest.stays().get(place, {}))

    def _tidy(self, upto: int) -> None:
        """Clear away old manifests and what no manifest names: runs, and staged leftovers."""
        self._log.prune(self._keep)
        staged = [self._log.read(epoch).outputs for epoch in self._log.epochs()]
        live = {ref["file"] for outputs in staged for refs in outputs.values() for ref in refs}
        for sink in self._sinks.values():
            sink.discard(live, upto)

    def _manifest(
        self, before: Manifest, epoch: int, attempt: str, total: Total, end: Offset
    ) -> Manifest:
        splits = [_advanced(s, total) for s in end.splits]
        present = {(s.input, s.name) for s in splits}
        absent = [replace(s, shed=None) for s in before.splits if (s.input, s.name) not in present]
        ops = self._ops(before, total)
        return Manifest(
            epoch=epoch,
            token=self._token,
            attempt=attempt,
            job=self._program.name,
            clock=end.clock,
            wall=self._clock.now(),
            lag=end.lag or 0,
            splits=(*splits, *absent),
            next_split=before.next_split,
            watermark=max(self._watermark(splits, end.clock), before.watermark),
            ended=self._ended(splits, total),
            ops=ops,
            state=self._state(before, total),
            outputs={name: refs for name, refs in total.staged.items() if refs},
            reads=self._bundle.reads,
            writes=self._writes(epoch, before, total),
            last_dead=epoch if total.staged.get(DEAD) else before.last_dead,
            retired=before.retired,
            timeline=before.timeline,
            forks=before.forks,
            acknowledged=before.stays(),
            endless=before.endless or self._bundle.endless,
            epoch_counts={name: dict(counts) for name, counts in total.inputs.items()},
            counts=_fates(before.counts, total.inputs),
            steps=_summed(before.steps, total.steps, ("in", "out", "late", "dead")),
            examples={**before.examples, **total.examples},
            windows=_added(before.windows, _windows(total)),
            rows=_plus(before.rows, total.rows),
            metrics=_added(before.metrics, total.metrics),
            timing={phase: round(ms, 1) for phase, ms in total.timing.items()},
            settled=_still_open(total.settled, ops),
            resent=_resent(before, epoch, end),
            priorities=self._priorities(before, total),
        )

    def _priorities(self, before: Manifest, total: Total) -> dict[str, list[Any]] | None:
        """Of inputs that shed the lowest: what is known of the priorities of their records."""
        names = [r.name for r in self._program.sources() if r.shed and r.shed.how == LOWEST]
        earlier = before.priorities or {}
        return {n: joined(earlier.get(n, []), total.priorities.get(n, [])) for n in names} or None

    def _ended(self, splits: Sequence[Split], total: Total) -> bool:
        """Whether every input is at its end, and nothing was sent back that must still be read."""
        sent_back = any(total.staged.get(name) for name, s in self._sinks.items() if s.loops)
        return bool(splits) and all(s.state == ENDED for s in splits) and not sent_back

    def _writes(self, epoch: int, before: Manifest, total: Total) -> dict[str, OutputFacts]:
        """What is known of each output, with the last epoch in which it had rows."""
        earlier = before.writes or self._bundle.writes
        return {
            name: replace(facts, last=epoch if total.staged.get(name) else earlier[name].last)
            for name, facts in self._bundle.writes.items()
        }

    def _watermark(self, splits: Sequence[Split], clock: int) -> int:
        """What all inputs that have event time have reached."""
        timed = [r.name for r in self._program.sources() if r.time is not None]
        return watermark_of(timed, splits, clock)

    def _ops(self, before: Manifest, total: Total) -> dict[str, StepFacts]:
        described = describe(self._program)
        return {
            node.name: replace(
                total.ops.get(node.name) or before.ops.get(node.name) or StepFacts(),
                **described[node.name],
                version=node.operator().version,
                over=before.ops[node.name].over if node.name in before.ops else None,
            )
            for node in self._program.stateful()
        }

    def _state(self, before: Manifest, total: Total) -> dict[str, Any]:
        state = dict(before.state)
        for table, parts in total.state.items():
            stored = state.get(table)
            whole = SlotState.from_json(stored) if stored else SlotState.empty(self._slots)
            state[table] = whole.apply([SlotState.from_json(p) for p in parts]).to_json()
        return state


def _still_open(
    settled: Sequence[Settled], ops: Mapping[str, StepFacts]
) -> tuple[Settled, ...] | None:
    """Of fates that were counted, those of records that may wait in a step; None if there are
    none."""
    oldest = min((f.oldest for f in ops.values() if f.oldest is not None), default=None)
    if oldest is None:
        return None
    return tuple(fate for fate in settled if fate[4] >= oldest) or None


def _resent(before: Manifest, epoch: int, end: Offset) -> tuple[tuple[int, int], ...] | None:
    """The requests to send dead letters again that are done with this epoch; None if none is."""
    return before.resent if end.resent is None else (*(before.resent or ()), (end.resent, epoch))


def _advanced(split: Split, total: Total) -> Split:
    """The split with the watermark that its rows have moved it to, and what that remembers."""
    place = str(split.id)
    watermark = max(split.watermark, total.splits.get(place, MIN_TIME))
    return replace(split, watermark=watermark, memory=total.memory.get(place, split.memory))


def _summed(
    before: Mapping[str, Any], now: Mapping[str, Any], names: Sequence[str]
) -> dict[str, dict[str, int]]:
    return {
        key: {n: before.get(key, {}).get(n, 0) + now.get(key, {}).get(n, 0) for n in names}
        for key in sorted({*before, *now})
    }


def _fates(before: Counts, now: Counts) -> dict[str, dict[str, int]]:
    """What became of the records of each input; of one that sheds, how many it has."""
    counts = _summed(before, now, FATES)
    for name, fates in counts.items():
        parts = [c[name] for c in (before, now) if SHED in c.get(name, {})]
        if parts:
            fates[SHED] = sum(part[SHED] for part in parts)
    return counts


def _windows(total: Total) -> dict[str, dict[str, int]]:
    """What became of windows, of the steps that report it."""
    by_step = {s: {n: c[n] for n in WINDOWS_SEEN if c[n]} for s, c in total.steps.items()}
    return {step: counts for step, counts in by_step.items() if counts}


def _plus(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {key: before.get(key, 0) + now.get(key, 0) for key in sorted({*before, *now})}


def _added(
    before: Mapping[str, Mapping[str, int]], now: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Figures of the user's own by step, since the job's first start."""
    steps = sorted({*before, *now})
    return {step: _plus(before.get(step, {}), now.get(step, {})) for step in steps}


def check_dead_limit(program: Program, manifest: Manifest) -> None:
    """Stop the job when more records died than it allows."""
    limit = program.dead_limit
    if limit is None:
        return
    dead = sum(c["dead"] for c in manifest.counts.values())
    read = sum(c["read"] for c in manifest.counts.values())
    allowed = limit if isinstance(limit, int) else limit * read
    if dead > allowed:
        raise RunError(
            "HR-RUN-010",
            f"{dead} of {read} records are dead letters, more than the limit {limit}",
            "See the dead-letter output for the reasons; correct the input or raise dead_limit.",
        )
