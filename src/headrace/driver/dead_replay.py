"""The dead letters in a job's folder: which there are, and asking for some to be sent again.

A letter is dead until it is asked for, and gone from the list once a manifest says that it was sent
again. Asking writes one file or several (`state/resends.py`), which the job takes in with its next
epochs, whether it runs now or is started later. A letter is in at most one request that counts: a
request is made under the next number, and whoever comes second looks again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import Moment, SystemClock, moment_millis
from headrace.driver.start import folder_of
from headrace.epoch.bundle import DEAD
from headrace.errors import RunError
from headrace.plan.nodes import LETTER_SCHEMA
from headrace.plan.program import Drafted, Program, build
from headrace.settings import Settings
from headrace.sinks import Timelines, read_output
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest
from headrace.state.resends import Resends
from headrace.task.resending import entrance

AT_ONCE = 10_000  # letters of one request, which one epoch sends again
_AS_LONG_AS = 100  # times that another may have asked first
ASKED = "to be replayed"


@dataclass(frozen=True, slots=True)
class Letters:
    """The dead letters of a job, and what has become of each."""

    rows: pa.Table  # as `LETTER_SCHEMA` has them, by epoch, with "id" and "number"
    replayed: Mapping[str, int]  # by id: the epoch in which it was sent again
    asked: frozenset[str]  # ids of those that will be

    def open(self) -> pa.Table:
        """Those that were not sent again."""
        ids = self.rows.column("id").to_pylist()
        return self.rows.filter(pa.array([i not in self.replayed for i in ids], pa.bool_()))


def letters_of(log: EpochLog) -> Letters:
    """What is in a job's folder. Changes nothing."""
    where, manifest = log.folder / DEAD, log.latest() or Manifest()
    stored = where.is_dir() and any(where.iterdir())
    if not stored and any(counts["dead"] > 0 for counts in manifest.counts.values()):
        raise RunError(
            "HR-CLI-009",
            f"the dead letters of job {manifest.job!r} are not in its folder",
            "Where the program uses job.dead, they are in the output that it writes them to; those "
            "from before a savepoint that was restored are in the folder of the job it was of.",
        )
    rows = read_output(where) if stored else LETTER_SCHEMA.empty_table()
    for column in LETTER_SCHEMA:
        if column.name not in rows.column_names:  # all are of an earlier version
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
    rows = rows.select(LETTER_SCHEMA.names)
    rows = rows.append_column("id", pa.array(_ids_of(rows), pa.string()))
    rows = rows.append_column("number", pa.array(np.arange(1, rows.num_rows + 1)))
    resends = Resends(log.folder)
    replayed = {id: epoch for n, epoch in manifest.resent or () for id in _ids(resends, n)}
    asked = {id for n in resends.waiting(manifest) for id in _ids(resends, n)}
    return Letters(rows, replayed, frozenset(asked))


def _ids_of(rows: pa.Table) -> list[str]:
    """What a letter says, and its number among those of its epoch that say the same: any of these
    is as good as another."""
    ids, seen = list[str](), Counter[str]()
    names = [n for n in LETTER_SCHEMA.names if n not in ("place", "traceback", "at")]
    for letter in zip(*(rows.column(n).to_pylist() for n in names), strict=True):
        said = hashlib.blake2b(repr(letter).encode(), digest_size=16).hexdigest()
        seen[said] += 1
        ids.append(f"{said}-{seen[said]}")
    return ids


def _ids(resends: Resends, number: int) -> list[str]:
    ids: list[str] = resends.read(number).column("id").to_pylist()
    return ids


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters are meant; all that is given must hold."""

    step: str | None = None
    error: str | None = None  # a part of its text
    since: int | None = None  # by the clock, in ms: from here on
    until: int | None = None  # before this
    epochs: tuple[int, int] | None = None  # the first and the last
    numbers: frozenset[int] | None = None

    def of(self, rows: pa.Table) -> pa.Table:
        number, epoch, at = (rows.column(n) for n in ("number", "epoch", "at"))
        conditions = []
        if self.step is not None:
            conditions.append(pc.equal(rows.column("step"), self.step))
        if self.error is not None:
            conditions.append(pc.match_substring(rows.column("error"), self.error))
        if self.since is not None:
            conditions.append(pc.greater_equal(at, self.since))
        if self.until is not None:
            conditions.append(pc.less(at, self.until))
        if self.epochs is not None:
            first, last = self.epochs
            conditions += [pc.greater_equal(epoch, first), pc.less_equal(epoch, last)]
        if self.numbers is not None:
            conditions.append(pc.is_in(number, pa.array(sorted(self.numbers), pa.int64())))
        meant = np.ones(rows.num_rows, np.bool_)
        for condition in conditions:
            meant &= pc.fill_null(condition, False).to_numpy()
        return rows.filter(pa.array(meant))


@dataclass(frozen=True, slots=True)
class CannotReplay:
    """A letter that cannot be sent again."""

    number: int
    step: str
    why: str


@dataclass(frozen=True, slots=True)
class DeadReplay:
    """Which dead letters are sent again, and which cannot be: print it."""

    job: str
    folder: str
    asked: int  # letters that are asked for now; with dry_run, that would be
    waiting: int  # letters of the choice that were asked for before, and wait for the job
    refused: tuple[CannotReplay, ...]
    dry_run: bool = False
    requests: tuple[int, ...] = field(default=(), repr=False)

    @property
    def json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "requests": list(self.requests)}

    @property
    def lines(self) -> Iterator[str]:
        """What is asked for; then each letter that cannot be sent again, with the reason."""
        what = "would be replayed" if self.dry_run else "will be replayed"
        yield f"job {self.job}: {self.asked:,} dead {_letters(self.asked)} {what}"
        if self.waiting:
            yield f"  {self.waiting:,} wait to be replayed since they were asked for before"
        for one in self.refused:
            yield f"  {one.number} (step {one.step}) cannot be replayed: {one.why}"

    def __str__(self) -> str:
        return "\n".join(self.lines)


def _letters(count: int) -> str:
    return "letter" if count == 1 else "letters"


def replay_dead(
    job: Drafted | str | Path,
    *,
    step: str | None = None,
    error: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    epochs: tuple[int, int] | None = None,
    numbers: Collection[int] | None = None,
    folder: str | None = None,
    dry_run: bool = False,
) -> DeadReplay:
    """Send dead letters of a job again, into the steps that failed on them.

    `job` is the job, or its folder; with the job, steps that it has no longer are found at once.
    Meant are all letters, or those of a `step`, with a part of an `error`, that failed `since` and
    before `until`, in the `epochs` from the first to the last, or with these `numbers`, as
    `headrace dead ls` shows them. The job takes them in with its next batches, when it runs or is
    started. With `dry_run` nothing is asked for.
    """
    program = None if isinstance(job, str | Path) else build(job)
    place = str(job) if program is None else folder_of(program, Settings.load(), folder)
    now = SystemClock().now()
    choice = Choice(
        step,
        error,
        None if since is None else moment_millis(since, now),
        None if until is None else moment_millis(until, now),
        epochs,
        None if numbers is None else frozenset(numbers),
    )
    log = EpochLog(place)
    if not (log.folder / "job.json").is_file():
        raise RunError(
            "HR-DEAD-004",
            f"{place!r} is not the folder of a job",
            "Pass the job, or the folder in which it ran.",
        )
    return ask(log, choice, program, dry_run=dry_run)


def ask(log: EpochLog, choice: Choice, program: Program | None, *, dry_run: bool) -> DeadReplay:
    """Ask for the letters of a choice, in requests of at most `AT_ONCE`."""
    requests = list[int]()
    asked, disturbed = 0, 0
    while disturbed < _AS_LONG_AS:
        manifest, resends = log.latest() or Manifest(), Resends(log.folder)
        number, letters = resends.free(manifest), letters_of(log)
        chosen = choice.of(letters.open())
        refused = tuple(_refused(chosen, manifest, program))
        lost = {one.number for one in refused}
        pairs = zip(*(chosen.column(c).to_pylist() for c in ("number", "id")), strict=True)
        due = chosen.filter(
            pa.array([n not in lost and id not in letters.asked for n, id in pairs], pa.bool_())
        )
        waiting = chosen.num_rows - due.num_rows - len(lost) - asked
        while due.num_rows and not dry_run:
            part = due.slice(0, AT_ONCE)
            if not resends.make(number, part, manifest, SystemClock().now()):
                break
            requests.append(number)
            due, number, asked = due.slice(AT_ONCE), number + 1, asked + part.num_rows
        else:
            job = manifest.job or log.folder.name
            count = due.num_rows if dry_run else asked
            return DeadReplay(
                job, str(log.folder), count, max(0, waiting), refused, dry_run, tuple(requests)
            )
        disturbed += 1
    raise RunError(
        "HR-DEAD-005",
        f"others ask for dead letters in {str(log.folder)!r} to be replayed at the same time",
        "Ask again when they have come to an end; `headrace dead ls` shows what is asked for.",
    )


def _refused(rows: pa.Table, manifest: Manifest, program: Program | None) -> Iterator[CannotReplay]:
    """The letters that cannot be sent again, each with the reason."""
    line, stays = Timelines.of(manifest), manifest.stays().get("None", {})
    names = ("number", "step", "input", "epoch", "at", "enters", "port", "row")
    for values in zip(*(rows.column(n).to_pylist() for n in names), strict=True):
        number, step, input, epoch, at, enters, port, row = values
        why = ""
        if at is None:
            why = "an earlier version wrote it, and its row is not stored"
        elif row is None and step == input:
            why = "its value did not fit the column when it was read, and only the reason is stored"
        elif row is None:
            why = "it stands for a call over several rows or a timer: its row was used"
        elif any(line.upto(t) < epoch <= last for t, last in stays.items()):
            why = f"its epoch {epoch} was given up, and its record was read again"
        elif program is not None and enters != input and entrance(program, enters, port) is None:
            why = f"step {enters!r} is not in the program any more"
        if why:
            yield CannotReplay(number, step, why)
