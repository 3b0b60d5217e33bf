"""The first rows that a part of a program emits, or those of a table, and how they came about.

A look is a new job in a folder of its own, which is gone afterwards: it begins where the inputs
begin, reads what they hold now, and stops as soon as there are enough rows. If everything was
read, windows are closed as by until="end"; if not, only what was emitted by then is there. What
the rows of a table are, is known when all has been read: its changes are applied to each other.

Which rows are late depends on how input is cut into batches. So where there is state, batches are
as large as those of a run; where there is none, the first one has as many rows as are wanted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.inspect.progress import Progress, quoted
from headrace.look.in_process import Driver
from headrace.ops.join.lookup import Lookup
from headrace.ops.join.lookup_tables import SparkTable
from headrace.ops.join.table_changes import INSERT
from headrace.ops.stream.whole_batches import Transform
from headrace.plan.nodes import Read, Stateful
from headrace.plan.part import Part
from headrace.plan.program import Program, build
from headrace.sources.looked import ENDLESS_ROWS, Unforgetting, is_cut, to_look_at
from headrace.sources.spark_frames import SparkSource

IN_PROCESS, ON_SPARK = "in process", "on Spark"
Enough = Callable[[Progress], bool]


def look(part: Part, rows: int) -> tuple[pa.Table, str]:
    """Up to `rows` rows of the part's output, and a line that says what they are."""
    build(part)  # refuses what is wrong with the program first
    seen = part.reading(
        [
            replace(
                r, uri=to_look_at(r.uri, r.name, r.site, changes=bool(r.options.get("changes")))
            )
            for r in part.reads
        ]
    )
    program = build(seen)
    until = "now" if _endless(program.sources()) else "end"

    def enough(progress: Progress) -> bool:
        return not part.table_key and progress.outputs.get(part.output, 0) >= rows

    with tempfile.TemporaryDirectory(prefix="headrace-look-") as folder:
        if needs_spark(program):
            from headrace.look.on_spark import take  # slow to import

            where = ON_SPARK
            table, progress = take(seen, folder, until, enough)
        else:
            where = IN_PROCESS
            first = None if program.stateful() else rows
            table, progress = _take(seen, folder, until, first, enough)
    if part.table_key:
        table = _current(table, part.table_key)
    shown = table.slice(0, rows)
    early = progress is not None and enough(progress)
    return shown, "; ".join(_words(shown.num_rows, table.num_rows, where, progress, part, early))


def needs_spark(program: Program) -> bool:
    """Whether a step, or an input, asks Spark for something that only Spark can do."""
    if any(isinstance(read.uri, SparkSource) for read in program.sources()):
        return True
    specs = [node.what for node in program.nodes.values() if isinstance(node, Stateful)]
    return any(
        (isinstance(what, Transform) and what.spark)
        or (isinstance(what, Lookup) and isinstance(what.source, SparkTable))
        for what in specs
    )


def _endless(reads: Sequence[Read]) -> bool:
    """Whether an input made in the program has no end to run to."""
    return any(isinstance(r.uri, Unforgetting) and not r.uri.bounded for r in reads)


def _take(
    part: Part, folder: str, until: str, first: int | None, enough: Enough
) -> tuple[pa.Table, Progress | None]:
    driver = Driver(part, folder, until=until, tasks=1, first_batch=first, silent=False)
    last = None
    try:
        while (progress := driver.epoch()) is not None:
            last = progress
            if enough(progress):
                break
        return driver.output(part.output), last
    finally:
        driver.close()


def _current(changes: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The rows that a table has after these changes, by key; `change` is the last column."""
    *columns, change = changes.column_names
    numbered = changes.select(list(key)).append_column("", pa.array(range(changes.num_rows)))
    newest = numbered.group_by(list(key), use_threads=False).aggregate([("", "max")])
    last = changes.take(newest.column("_max"))
    rows = last.filter(pc.equal(last.column(change), INSERT)).select(columns)
    return rows.sort_by([(name, "ascending") for name in key])


# In words.


def _words(
    shown: int, emitted: int, where: str, progress: Progress | None, part: Part, early: bool
) -> list[str]:
    """`part` is the program as it was written, with the inputs it has."""
    ended = progress is None or progress.ended
    read = 0 if progress is None else sum(c["read"] for c in progress.counts.values())
    which = _rows(shown) if ended and shown == emitted else f"the first {_rows(shown)}"
    if part.table_key:
        some = "" if shown == emitted else f"the first {shown:,} of "
        which = f"{some}{_rows(emitted)} of the table"
    words = [f"{which}, computed {where} from {_rows(read)} of input"]
    if not ended:
        state = any(n.stateful for n in part.draft.graph())
        rest = "the rest was not read" if early else "more may come"
        hidden = "changes that the watermark has not passed" if part.table_key else ""
        hidden = hidden or ("windows still open" if state else "")
        words.append(rest + (f", and {hidden} are not shown" if hidden else ""))
    words += [
        f"input {r.name!r} has no end: only its first {ENDLESS_ROWS:,} rows were read"
        for r in part.reads
        if ended and is_cut(r.uri)
    ]
    return words if progress is None else words + _losses(progress)


def _losses(progress: Progress) -> list[str]:
    """What became of rows that are not to be seen."""
    words = []
    if progress.dead:
        are = "is a dead letter" if progress.dead == 1 else "are dead letters, such as"
        example = next(map(quoted, progress.examples.values()), "unknown")
        words.append(f"{_rows(progress.dead)} {are}: {example}")
    if progress.late:
        words.append(f"{_rows(progress.late)} came too late")
    return words


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
