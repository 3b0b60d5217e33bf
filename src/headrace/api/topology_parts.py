"""The components of a topology as steps, and what can be wrong with a bolt."""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.api.bolt_options import reliability
from headrace.api.connected import ConnectedStreams
from headrace.api.handles import StepBuilder
from headrace.api.stream import ProcessResult, Stream, WindowResult
from headrace.api.topology_components import (
    Component,
    Subscription,
    many_copies,
    nested,
    no_such_stream,
    not_by_fields,
    number_taken,
    other_types,
    output_grouping,
    window_direct,
)
from headrace.clock import millis
from headrace.errors import PlanError, Site
from headrace.hashing import hash_alike
from headrace.ops.topology.attributes import of_class, unwatched
from headrace.ops.topology.bolt import CLOCK, DEFAULT, EVENT, Bolt, not_watched
from headrace.ops.topology.groupings import ALL, CUSTOM, DIRECT, FIELDS, TO
from headrace.ops.topology.multilang import ShellBolt, ShellBoltSpec, unsent_fields
from headrace.ops.topology.numbered import NUMBER, Numbered
from headrace.ops.topology.operator import NOTHING, BoltSpec, sent_schema, stream_schemas
from headrace.ops.topology.waiting import Reliability
from headrace.plan.columns import unknown
from headrace.plan.draft import UNKNOWN, Draft
from headrace.plan.nodes import LATE, Edge, step_of
from headrace.plan.signature import output_schema

Inputs = Sequence[tuple[Subscription, Stream]]


def add_bolt(draft: Draft, part: Component, inputs: Inputs, defaults: Mapping[str, Any]) -> Stream:
    """A bolt as a step whose key is the number of its task."""
    bolt, edges = part.what, tuple(stream._edge for _, stream in inputs)
    step = StepBuilder(draft, edges[0], part.id, part.options.pop("was", None))
    how = Reliability(0, 0, 1)
    with draft.attempt(step.site):
        how = reliability(part.id, bolt, part.options, defaults)
    _refuse_options(step, part)
    timed = all(edge.node.timed for edge in edges)
    step.report(*bolt_problems(bolt, timed=timed))
    for subscription, stream in inputs:
        _check_fields(draft, subscription, stream)
    _check_types(draft, part, inputs)
    declared = type(bolt).output
    schema = NOTHING if declared is None else step.attempt(lambda: output_schema(declared))
    schema = sent_schema(bolt, DEFAULT, schema) if len(schema) else schema
    sides: dict[str, pa.Schema] = {}
    with draft.attempt(step.site):
        sides = stream_schemas(bolt)
    kind = BoltSpec
    if isinstance(bolt, ShellBolt):
        kind = ShellBoltSpec
        step.report(*unsent_fields(bolt, part.id, [stream.schema for _, stream in inputs]))
    what = kind(
        tuple(s.label for s, _ in inputs),
        bolt,
        type(bolt).state(),
        tasks=part.tasks,
        groupings=tuple(s.grouping for s, _ in inputs),
        component=part.id,
        labels=tuple((s.component, s.stream) for s, _ in inputs),
        reliability=how,
    )
    keys = tuple(() for _ in edges)
    edge = step.stateful(what, keys, schema, inputs=edges, timed=timed, sides=sides)
    emitted = Stream(draft, edge)
    if declared is None and not sides:
        end_tuples(emitted)
    return emitted


def end_tuples(stream: Stream) -> None:
    """The tuples end here: a step must lead somewhere."""
    stream.tap(_see_nothing)


def _see_nothing(row: Any) -> None:
    """All that is done with them."""


def add_process(draft: Draft, part: Component, inputs: Inputs) -> Stream:
    """A process function as a bolt: its key are the fields by which tuples are grouped."""
    for subscription, _ in inputs:
        if subscription.grouping.kind != FIELDS:
            draft.report(not_by_fields(part, subscription), subscription.site)
    options = {n: part.options.pop(n) for n in ("unbounded", "was") if n in part.options}
    edges = tuple(stream._edge for _, stream in inputs)
    _refuse_options(StepBuilder(draft, edges[0]), part)
    for subscription, stream in inputs:
        _check_fields(draft, subscription, stream)
    keys = tuple(s.grouping.fields for s, _ in inputs)
    names = tuple(re.sub(r"\W", "_", s.label) for s, _ in inputs)
    connected = ConnectedStreams(draft, edges, keys, names, ProcessResult)
    return connected.process(part.what, name=part.id, **options)


def add_window(draft: Draft, part: Component, inputs: Inputs) -> Stream:
    """Windows of each task: the key of the window function is the number of the task."""
    dealt = []
    _check_types(draft, part, inputs)
    for subscription, stream in inputs:
        _check_fields(draft, subscription, stream)
        if NUMBER in stream.schema.names:
            draft.report(number_taken(subscription), subscription.site)
        if subscription.grouping.kind == DIRECT:
            draft.report(window_direct(part), subscription.site)
            continue
        what = Numbered(subscription.grouping, part.tasks)
        fields = [f for f in stream.schema if f.name != NUMBER]
        schema = pa.schema([*fields, (NUMBER, pa.int64())]) if fields else UNKNOWN
        dealt.append(Stream(draft, StepBuilder(draft, stream._edge).chunks(what, schema)))
    first, *others = dealt or [inputs[0][1]]
    rows = first.union(*others, name=f"{part.id} inputs") if others else first
    options = dict(part.options)
    of_process = {n: options.pop(n) for n in ("schema", "agg", "was") if n in options}
    cut = rows.key_by(NUMBER).window(**options)
    return cut.process(part.what, name=part.id, unbounded=True, **of_process)  # so many tasks


def add_output(draft: Draft, part: Component, inputs: Inputs) -> None:
    """An output as a bolt: each of its tasks writes what is sent to it."""
    sent = []
    for subscription, stream in inputs:
        _check_fields(draft, subscription, stream)
        if subscription.grouping.kind in (DIRECT, CUSTOM):
            draft.report(output_grouping(part, subscription.grouping), subscription.site)
        elif subscription.grouping.kind == ALL and part.tasks > 1:
            draft.report(many_copies(part), subscription.site)
        sent.append(stream)
    first, *others = sent
    rows = first.union(*others, name=f"{part.id} inputs") if others else first
    rows.write(part.what, name=part.id, **part.options)


def read_stream(
    emitted: Stream,
    what: Any,
    id: str,
    stream: str,
    site: Site | None,
    *,
    direct: bool | None = None,
) -> Stream:
    """One of the streams of a component; `direct`: for a bolt that reads it so, or not so."""
    node = emitted._edge.node
    known = [DEFAULT, *node.sides, *([LATE] if isinstance(emitted, WindowResult) else [])]
    if isinstance(what, Bolt) and type(what).output is None:
        known.remove(DEFAULT)
    if stream not in known:
        raise no_such_stream(id, stream, known, site)
    if stream == LATE:
        return Stream(emitted._draft, Edge(step_of(node), LATE))
    found = emitted if stream == DEFAULT else Stream(emitted._draft, Edge(node, stream))
    is_direct = TO in found.schema.names
    if direct is None:
        return found.drop(TO) if is_direct else found
    if direct != is_direct:
        raise PlanError(
            "HR-TOPOLOGY-014",
            f"the stream {stream!r} of {id!r} is "
            + ("direct, and must be read by .direct" if is_direct else "not direct"),
            f"Read it with .direct({id!r}, ...)."
            if is_direct
            else f"Declare it in the bolt: direct = ({stream!r},), and use emit_direct.",
            site=site,
        )
    return found


def _check_fields(draft: Draft, subscription: Subscription, stream: Stream) -> None:
    names = subscription.grouping.fields
    for problem in unknown(names, stream.schema, subscription.site):
        draft.report(problem, subscription.site)
    for column in stream.schema:
        if column.name in names and pa.types.is_nested(column.type):
            draft.report(nested(subscription, column), subscription.site)


def _check_types(draft: Draft, part: Component, inputs: Inputs) -> None:
    """Inputs that are grouped by as many fields: equal values must go to the same task."""
    first: dict[int, tuple[Subscription, list[pa.Field]]] = {}
    for subscription, stream in inputs:
        names = subscription.grouping.fields
        if part.tasks == 1 or not set(names) <= set(stream.schema.names):
            continue
        fields = [stream.schema.field(name) for name in names]
        known, theirs = first.setdefault(len(names), (subscription, fields))
        for before, now in zip(theirs, fields, strict=True):
            if not hash_alike(before.type, now.type):
                problem = other_types(part, known, before, subscription, now)
                draft.report(problem, subscription.site)


def _refuse_options(step: StepBuilder, part: Component) -> None:
    if part.options:
        option = next(iter(part.options))
        step.report(
            PlanError(
                "HR-TOPOLOGY-004",
                f"the bolt {part.id!r} has no option {option!r}",
                "Say how many tasks it has with tasks=."
                if option in ("parallelism", "parallelism_hint", "num_tasks", "task", "executors")
                else "A bolt has max_replays, backoff and timeout, and is set up in its class; "
                "outputs have the options of write.",
            )
        )


# What can be wrong with a bolt by itself.


def bolt_problems(bolt: Bolt, *, timed: bool) -> Iterator[PlanError]:
    """Whatever would fail, or be lost without an error, when it runs."""
    kind = type(bolt)
    yield from _methods(kind)
    yield from _ticks(kind, timed)
    yield from _streams(kind)
    other = next(iter({**kind.by_task, **kind.shared}), None)
    if other is not None:
        yield PlanError(
            "HR-TOPOLOGY-018",
            f"{kind.__name__}.{other} is state that a bolt cannot have",
            "The state of a bolt is that of the task already: use hr.value, hr.list_of, hr.map_of.",
        )
    declared = {*kind._kept, *kind.transient}
    for name, value in {**of_class(kind, Bolt), **vars(bolt)}.items():
        if name not in declared and (part := unwatched(value)) is not None:
            yield not_watched(kind, name, part)
    for method in ("process", "tick"):
        for name in sorted(_stored(getattr(kind, method)) - declared):
            yield PlanError(
                "HR-TOPOLOGY-019",
                f"{kind.__name__}.{method} assigns self.{name}, which the class does not declare: "
                "the value would be lost with the batch",
                f"Declare it: {name} = hr.value(int, default=0); or, if it may be lost, such as a "
                f"cache, say transient = ({name!r},).",
            )


def _methods(kind: type[Bolt]) -> Iterator[PlanError]:
    called = {"process": "tup, collector", "tick": "collector", "prepare": "context", "cleanup": ""}
    for method, arguments in called.items():
        fn = getattr(kind, method)
        count = len(arguments.split(", ")) if arguments else 0
        wrong = ""
        if method == "process" and fn is Bolt.process:
            wrong = "has no process"
        elif inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
            wrong = f"yields or awaits in {method}"
        elif callable(fn) and not _takes(fn, count + 1):
            wrong = f"has a {method} that cannot be called with ({arguments})"
        if wrong:
            yield PlanError(
                "HR-TOPOLOGY-022",
                f"{kind.__name__} {wrong}",
                f"Write def {method}({', '.join(filter(None, ('self', arguments)))}), and emit "
                "with collector.emit.",
            )
    mixed = [
        n
        for n in dir(kind)
        if n.startswith("on_") and getattr(kind, n) is not getattr(Bolt, n, None)
    ]
    if mixed:
        yield PlanError(
            "HR-TOPOLOGY-022",
            f"{kind.__name__} is a bolt and has {mixed[0]}, which is for process functions",
            "Write process(self, tup, collector) and tick(self, collector); or a hr.KeyedProcess.",
        )


def _takes(fn: Any, count: int) -> bool:
    try:
        inspect.signature(fn).bind(*[None] * count)
    except ValueError:  # a builtin that has no signature
        return True
    except TypeError:
        return False
    return True


def _ticks(kind: type[Bolt], timed: bool) -> Iterator[PlanError]:
    fact = hint = ""
    if kind.tick_every is not None and millis(kind.tick_every) < 1:
        fact, hint = f"has tick_every {kind.tick_every!r}", 'Give a length: tick_every = "10s".'
    elif kind.tick_every is not None and kind.tick is Bolt.tick:
        fact, hint = "has tick_every and no tick", "Write tick(self, collector)."
    elif kind.tick_every is None and kind.tick is not Bolt.tick:
        fact, hint = "has a tick that is never called", 'Say how often: tick_every = "10s".'
    elif kind.tick_by not in (CLOCK, EVENT):
        fact, hint = f"has tick_by {kind.tick_by!r}", 'Say "clock" or "event".'
    elif kind.tick_every is not None and kind.tick_by == EVENT and not timed:
        fact = "ticks by event time, but its input has none"
        hint = 'Name the time column of the spout: time="at", delay="2s"; or tick by the clock.'
    if fact:
        yield PlanError("HR-TOPOLOGY-023", f"{kind.__name__} {fact}", hint)


def _streams(kind: type[Bolt]) -> Iterator[PlanError]:
    known = [*([DEFAULT] if kind.output is not None else []), *kind.outputs]
    if isinstance(kind.direct, str) or not set(kind.direct) <= set(known):
        yield PlanError(
            "HR-TOPOLOGY-024",
            f"{kind.__name__} says direct = {kind.direct!r}, and has the streams "
            f"{', '.join(map(repr, known)) or 'none'}",
            'Name streams of the bolt in a tuple: direct = ("default",).',
        )
    if DEFAULT in kind.outputs:
        yield PlanError(
            "HR-TOPOLOGY-024",
            f"{kind.__name__} declares {DEFAULT!r} among its outputs",
            f"{DEFAULT!r} is the stream of output: declare its fields there.",
        )


def _stored(fn: Any) -> set[str]:
    """The attributes of its first argument that a function assigns."""
    code = getattr(fn, "__code__", None)
    if code is None or not code.co_argcount:
        return set()
    own, names, before = code.co_varnames[0], set[str](), None
    for step in dis.get_instructions(code):
        if step.opname == "STORE_ATTR" and before is not None and before == own:
            names.add(str(step.argval))
        quick = step.opname.startswith("LOAD_FAST")  # of two at once the last is on top
        loaded = step.argval[-1] if quick and isinstance(step.argval, tuple) else step.argval
        before = loaded if quick else None
    return names
