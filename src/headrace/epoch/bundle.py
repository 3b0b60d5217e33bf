"""What every process of a run holds: the program, its inputs, outputs and clock, opened.

Inputs and outputs are opened once, on the driver, where relative paths mean what the user
meant; they are small, and travel with the program. So do the clock and the callback for durable
steps: a test passes its own. Opening changes nothing.

Each input and output has an id besides its name: what it stores in the job's folder, and what it
has written elsewhere, goes by the id. That is the name under which it first appeared, and it stays
when the name changes; the id of an input that was dropped is not used again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.clock import Clock, SystemClock
from headrace.errors import written_at
from headrace.ops.watermarks import ComputedTime
from headrace.plan.nodes import LETTER_SCHEMA, Node, Read
from headrace.plan.program import Program
from headrace.sinks import Sink, open_sink, reopen_sink, with_guarantee
from headrace.sources import Source, open_source
from headrace.state.manifest import InputFacts, OutputFacts


@dataclass(frozen=True)
class Bundle:
    program: Program
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    clock: Clock = field(default_factory=SystemClock)
    on_step: Callable[[str], None] | None = None  # called at each durable step, with its name
    reads: Mapping[str, InputFacts] = field(default_factory=dict)  # as a manifest has them
    writes: Mapping[str, OutputFacts] = field(default_factory=dict)
    endless: bool = False  # it does not run until="end"

    def place_of(self, output: str) -> str:
        """The place of an output, as a key; the job's own for dead letters has none."""
        return self.writes[output].place if output in self.writes else "None"


DEAD = "dead"  # the job's own output for dead letters, when the program has none
Ids = Mapping[str, str]


def open_inputs(
    program: Program, folder: str, until: str | None, clock: Clock, ids: Ids
) -> dict[str, Source]:
    return {r.name: open_input(r, folder, until, clock, ids[r.name]) for r in program.sources()}


def open_input(r: Read, folder: str, until: str | None, clock: Clock, id: str) -> Source:
    with written_at(r.site):
        return open_source(
            r.uri,
            r.without_weight(r.declared or r.schema),
            r.format,
            r.options,
            folder=folder,
            name=r.name,
            key=id,
            until=until,
            clock=clock,
            time=_time_column(r),
            guessed=r.guessed,
            used=r.without_weight(r.schema).names,
        )


def _time_column(read: Read) -> str | None:
    """The column of event time, "" if several make it, None if none does."""
    if isinstance(read.time, str):
        return read.time
    return "" if isinstance(read.time, ComputedTime) else None


def open_sinks(program: Program, folder: str, ids: Ids | None = None) -> dict[str, Sink]:
    """The job's outputs by name, and its own for dead letters."""
    keys = ids or {}
    sinks: dict[str, Sink] = {}
    for w in program.outputs():
        with written_at(w.site):
            key = keys.get(w.name)
            options = with_guarantee(w.uri, w.options, program.guarantee)
            sinks[w.name] = open_sink(w.uri, w.schema, options, folder, w.name, key)
    if program.dead() is None:
        sinks[DEAD] = open_dead(folder)
    return sinks


def open_dead(folder: str) -> Sink:
    return open_sink(f"files:{folder}/dead", LETTER_SCHEMA, {"format": "parquet"}, folder, DEAD)


def as_written(name: str, written: Mapping[str, OutputFacts], folder: str, bundle: Bundle) -> Sink:
    """An output as a manifest describes it, to publish what that manifest promises.

    One with secrets cannot be made of its description: it is the program's, if that is the same.
    """
    if name not in written and name == DEAD:
        return open_dead(folder)
    about, id = written[name].about, written[name].id
    for current, facts in bundle.writes.items():
        sink = bundle.sinks[current]
        if sink.secret and facts.id == id and dict(facts.about) == dict(about):
            return sink
    return reopen_sink(dict(written[name].about), folder, name, written[name].id)


@dataclass(frozen=True)
class Edges:
    """How a job's inputs and outputs are opened, and what is called at durable steps."""

    inputs: Callable[[Program, str, str | None, Clock, Ids], Mapping[str, Source]] = open_inputs
    outputs: Callable[[Program, str, Ids], Mapping[str, Sink]] = open_sinks
    on_step: Callable[[str], None] | None = None


REAL = Edges()


def ids_of(
    nodes: Iterable[Node],
    stored: Mapping[str, InputFacts] | Mapping[str, OutputFacts],
    retired: Collection[str] = (),
) -> Ids:
    """The id of each input, or output: as the last manifest has it, or a new one."""
    before = {n.name: _stored_name(n, stored) for n in nodes}
    used = {stored[old].id for old in before.values() if old is not None} | {*retired}
    ids = dict[str, str]()
    for name, old in before.items():
        ids[name] = stored[old].id if old is not None else _new_id(name, used)
        used.add(ids[name])
    return ids


def _stored_name(node: Node, stored: Collection[str]) -> str | None:
    if node.name in stored:
        return node.name
    return node.was if node.was is not None and node.was in stored else None


def _new_id(name: str, used: Collection[str]) -> str:
    id, n = name, 1
    while id in used:
        n += 1
        id = f"{name}~{n}"
    return id


def describe_inputs(
    program: Program, sources: Mapping[str, Source], ids: Ids
) -> dict[str, InputFacts]:
    """With their event time, because a watermark is a time of that column."""
    times = {r.name: None if r.time is None else str(r.time) for r in program.sources()}
    return {n: InputFacts(ids[n], s.identity(), times[n]) for n, s in sources.items()}


def describe_outputs(
    sinks: Mapping[str, Sink], ids: Ids, stored: Mapping[str, OutputFacts]
) -> dict[str, OutputFacts]:
    """With the last epoch in which each had rows, according to the last manifest."""
    before = {facts.id: facts for facts in stored.values()}

    def last(name: str, sink: Sink) -> int:
        facts = before.get(ids[name])
        return facts.last if facts is not None and sink.knows(facts.about) else 0

    return {
        name: OutputFacts(ids[name], sink.describe(), last(name, sink))
        for name, sink in sinks.items()
        if name in ids
    }
