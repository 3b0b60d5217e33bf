"""How a chunk flows on inside a task: through stateless steps, to operators and outputs.

A `Flow` belongs to one task of one epoch. Chunks are pushed into a port; whatever follows
without a shuffle runs here and now. What reaches an operator is judged late or not,
prepared (pre-aggregated), and leaves in envelopes cut by task; what reaches an output is
staged here, so that only a reference travels.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, TIME, hidden_columns, visible
from headrace.clock import MIN_TIME
from headrace.epoch.accounting import PASSED, passes_on
from headrace.epoch.compact_columns import dictionary_encoded
from headrace.epoch.envelope import Envelope, send
from headrace.epoch.values import Epoch
from headrace.errors import HeadraceError
from headrace.hashing import hash_keys, tasks_of, with_plain_keys
from headrace.isolate import by_halving
from headrace.kernel import Kernel, compile_chain
from headrace.kernel.sql import epoch_clock
from headrace.plan.nodes import (
    OUT,
    Chunks,
    Node,
    Python,
    PythonChain,
    Select,
    SelectChain,
    Stateful,
    Union,
    Write,
    first_of,
    late_port,
)
from headrace.plan.program import Program
from headrace.sinks import Sink
from headrace.state.faults import point
from headrace.task.dead_letters import DeadLetters, errors_named_by_step
from headrace.task.letters import Reentry
from headrace.task.python_steps import ROW_KINDS, run_batches, run_rows

_FLUSH_ROWS = 1_000_000  # rows buffered for an operator before they are combined and sent
_TRIES = 1_000  # calls of a function of tables on parts of a chunk, to find the rows it fails on
_STAGE_BYTES = 256 << 20  # of rows buffered for an output before they are staged
Fate = Callable[[str, pa.Table], None]


class Outputs:
    """Stages what a task writes to the job's outputs, in large pieces and at the task's end.

    Staged files are durable and invisible; only the manifest makes them count.
    """

    def __init__(self, sinks: Mapping[str, Sink], epoch: Epoch, unique: str) -> None:
        self._sinks = {name: sink.at(epoch.clock) for name, sink in sinks.items()}
        self._epoch, self._unique = epoch.number, unique
        self._buffered: dict[str, list[pa.Table]] = defaultdict(list)
        self._bytes: dict[str, int] = defaultdict(int)
        self._count = 0
        self.staged: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.rows: dict[str, int] = defaultdict(int)

    def add(self, name: str, rows: pa.Table) -> None:
        self._buffered[name].append(rows)
        self._bytes[name] += rows.nbytes
        self.rows[name] += rows.num_rows
        if self._bytes[name] > _STAGE_BYTES:
            self._stage(name)

    def finish(self) -> None:
        for name in list(self._buffered):
            self._stage(name)

    def _stage(self, name: str) -> None:
        table = pa.concat_tables(self._buffered.pop(name))
        self._bytes.pop(name)
        self._count += 1
        unique = f"{self._unique}-{self._count}"
        self.staged[name].extend(self._sinks[name].stage(table, self._epoch, unique))
        point("sink.stage")


class Flow:
    def __init__(self, program: Program, epoch: Epoch, outputs: Outputs, dead: DeadLetters) -> None:
        self._program, self._epoch = program, epoch
        self._outputs, self.dead = outputs, dead
        self._operators = {n.name: epoch.operator(n) for n in program.stateful()}
        self._user_code = {n.name for n in program.stateful() if n.what.runs_user_code}
        self._buffered: dict[tuple[str, int], list[pa.Table]] = defaultdict(list)
        self._buffered_rows: Counter[tuple[str, int]] = Counter()
        self._ready: list[Envelope] = []
        self.steps: dict[str, Counter[str]] = defaultdict(Counter)
        self.fate: Fate = uncounted
        self.raw: dict[int, bytes] | None = None

    def push(self, name: str, port: str, rows: pa.Table) -> None:
        """Send rows that step `name` has emitted at `port` to whoever consumes them."""
        if not rows.num_rows:
            return
        for consumer, index in self._program.consumers_of(name, port):
            self.enter(self._program.nodes[consumer], index, rows)

    def enter(self, node: Node, index: int, rows: pa.Table) -> None:
        """Rows go into an input of a step, or of what is left of a chain of steps."""
        self.steps[node.name]["in"] += rows.num_rows
        if isinstance(node, Stateful):
            self._to_operator(node, index, rows)
        elif isinstance(node, Write):
            self.fate("used", rows)
            self._outputs.add(node.name, visible(rows))
        else:
            for output in self._transform(node, rows):
                self.steps[node.name]["out"] += output.num_rows
                self.push(node.name, OUT, output)

    def _transform(self, node: Node, rows: pa.Table) -> Iterator[pa.Table]:
        match node:
            case Union():
                yield rows.select([*node.schema.names, *hidden_columns(rows)])
            case Select() | SelectChain():
                with epoch_clock(self._epoch.clock):
                    output, bad = kernel_for(node).run(rows)
                for index, message in bad:
                    self._fail(node, 0, rows.slice(index, 1), message)
                yield output
            case Python() if node.kind not in ROW_KINDS:
                yield from self._batches(node, rows)
            case PythonChain() | Python():
                steps = node.steps if isinstance(node, PythonChain) else (node,)
                output, failed = run_rows(steps, rows)
                for f in failed:
                    self._fail(node, 0, rows.slice(f.index, 1), f.error, f.step)
                yield output
            case Chunks():
                output, lost = node.what.run(rows, node.schema)
                for index, error in lost:
                    self._fail(node, 0, rows.slice(index, 1), error)
                yield output
            case _:
                raise TypeError(f"cannot run {type(node).__name__}")

    def _batches(self, node: Python, rows: pa.Table) -> Iterator[pa.Table]:
        """What a function of tables returns; the rows on which it fails are found by halving."""

        def run(first: int, last: int) -> pa.Table:
            part = rows.slice(first, last - first)
            output = run_batches(node, part)
            if OFFSET not in output.column_names:
                self.fate("used", part)  # its rows are new ones: here the record was used
            return output

        def failed(first: int, last: int, error: Exception) -> None:
            self._fail(node, 0, rows.slice(first, last - first), error)

        return by_halving(rows.num_rows, run, failed, tries=_TRIES, fatal=HeadraceError)

    def _fail(
        self,
        node: Node,
        index: int,
        rows: pa.Table,
        error: BaseException | str,
        step: str | None = None,
    ) -> None:
        """Rows that the node received have failed in it; in one `step` of it, if it is a chain."""
        entry = Reentry(first_of(node).name, index, rows)
        self._bury(step or node.name, rows, [error] * rows.num_rows, entry)

    def _bury(
        self,
        step: str,
        rows: pa.Table,
        errors: Sequence[BaseException | str],
        entry: Reentry,
    ) -> None:
        self.steps[step]["dead"] += rows.num_rows
        self.fate("dead", rows)
        self.dead.add(step, rows, errors, self.raw, entry)

    def _to_operator(self, node: Stateful, index: int, rows: pa.Table) -> None:
        if node.processing:
            rows = stamped(rows, self._epoch.clock)
        if node.name not in self._user_code:
            self._judge(node, index, rows)
            return

        def judge(first: int, last: int) -> None:
            self._judge(node, index, rows.slice(first, last - first))

        def failed(first: int, last: int, error: Exception) -> None:
            self._fail(node, index, rows.slice(first, last - first), error)

        for _ in by_halving(rows.num_rows, judge, failed, fatal=HeadraceError):
            pass  # where the user's code fails, the rows on which it does are found

    def _fit(self, node: Stateful, index: int, rows: pa.Table) -> pa.Table:
        """The rows without those of which the operator can say at once that it cannot use them."""
        unfit = self._operators[node.name].unfit(index, rows)
        if unfit is None:
            return rows
        bad, reasons = unfit
        added = [n for n in rows.column_names if n.startswith("$")]  # the plan's, not the user's
        lost = rows.filter(pa.array(bad))
        self._bury(node.name, lost.drop_columns(added), reasons, Reentry(node.name, index, lost))
        return rows.filter(pa.array(~bad))

    def _judge(self, node: Stateful, index: int, rows: pa.Table) -> None:
        operator = self._operators[node.name]
        keys = () if index in node.broadcast else node.keys[index]
        rows = with_plain_keys(self._fit(node, index, rows), keys)
        late = operator.late(index, rows, self._epoch.before.get(node.name, MIN_TIME))
        late_rows = None
        if late is not None and late.any():
            late_rows, rows = rows.filter(pa.array(late)), rows.filter(pa.array(~late))
        prepared = operator.prepare(index, rows) if rows.num_rows else None
        if late_rows is not None:
            self.steps[node.name]["late"] += late_rows.num_rows
            self.fate("late", late_rows)
            self.push(node.name, late_port(index), late_rows)
        if prepared is not None:
            fate = PASSED if passes_on(node) else "used"
            self.fate(fate, prepared if operator.filters else rows)
            self._buffer(node, index, prepared)

    def _buffer(self, node: Stateful, index: int, prepared: pa.Table) -> None:
        entry = (node.name, index)
        self._buffered[entry].append(prepared)
        self._buffered_rows[entry] += prepared.num_rows
        if self._buffered_rows[entry] > _FLUSH_ROWS:
            self._flush(node, index)

    def _flush(self, node: Stateful, index: int) -> None:
        entry = (node.name, index)
        buffered = pa.concat_tables(self._buffered.pop(entry), promote_options="default")
        del self._buffered_rows[entry]
        with errors_named_by_step(node.name, node.site):
            rows = self._operators[node.name].combine(index, buffered)
        level = self._program.level(node.name)
        if index in node.broadcast:
            for task in range(self._epoch.tasks):
                self._ready.extend(send(level, task, node.name, index, rows))
            return
        keys = None  # of which hashes are made; an operator that makes its own knows
        if HASH not in rows.column_names:
            keys, rows = node.keys[index], dictionary_encoded(rows)
            hashes = hash_keys([rows.column(k) for k in keys], rows.num_rows)
            rows = rows.append_column(HASH, pa.array(hashes))
        for task, part in self._cut(rows):
            self._ready.extend(send(level, task, node.name, index, part, keys))

    def _cut(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        if self._epoch.tasks == 1:
            yield 0, rows
            return
        hashes = rows.column(HASH).to_numpy()
        tasks = tasks_of(hashes, self._epoch.slots, self._epoch.tasks)
        for task in range(self._epoch.tasks):
            selected = tasks == task
            if selected.all():
                yield task, rows
            elif selected.any():
                yield task, rows.filter(pa.array(selected))

    def ready(self) -> list[Envelope]:
        """Envelopes that are full enough to leave; the rest comes with `finish`."""
        ready, self._ready = self._ready, []
        return ready

    def finish(self) -> list[Envelope]:
        """All that is still buffered."""
        for name, index in list(self._buffered):
            node = self._program.nodes[name]
            assert isinstance(node, Stateful)
            self._flush(node, index)
        return self.ready()


def stamped(rows: pa.Table, clock: int) -> pa.Table:
    """The rows with the clock as their time."""
    times = pa.array(np.full(rows.num_rows, clock, dtype=np.int64))
    if TIME not in rows.column_names:
        return rows.append_column(TIME, times)
    return rows.set_column(rows.column_names.index(TIME), TIME, times)


def uncounted(fate: str, rows: pa.Table) -> None:
    pass


@lru_cache(maxsize=512)
def kernel_for(node: Any) -> Kernel:
    """The compiled chain of a Select node, once per process."""
    steps = node.steps if isinstance(node, SelectChain) else (node,)
    return compile_chain(steps, node.inputs[0].schema)
