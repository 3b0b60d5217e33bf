"""Topologies: a program as components that name what they read, as Storm and Heron write it.

A second way to write a job, not a second engine: a spout is an input, a bolt a step with state or
an output, and all that holds for streams holds here. Components may be declared in any order, so
they become steps only when the program is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.api.handles import Handle, other_job
from headrace.api.job import Job
from headrace.api.stream import Stream
from headrace.api.topology_components import (
    Component,
    Subscription,
    bad_tasks,
    declared_twice,
    no_bolt,
    no_fields,
    no_inputs,
    no_names,
    no_stream,
    splits_decide,
    stream_options,
    too_late,
    twice,
    unknown_component,
)
from headrace.api.topology_loops import goes_back, read_again, send_back
from headrace.api.topology_parts import (
    add_bolt,
    add_output,
    add_process,
    add_window,
    end_tuples,
    read_stream,
)
from headrace.clock import Duration
from headrace.errors import Site, building_at, call_site
from headrace.hints import named_arguments, no_such_name
from headrace.ops.process.function import KeyedProcess
from headrace.ops.topology.bolt import DEFAULT, Bolt
from headrace.ops.topology.groupings import (
    ALL,
    CUSTOM,
    DIRECT,
    FIELDS,
    GLOBAL,
    MOST_TASKS,
    PARTIAL_KEY,
    SHUFFLE,
    StreamGrouping,
)
from headrace.plan.draft import Draft, bad_name
from headrace.plan.signature import check_takes
from headrace.sources.spouts import Spout, SpoutSource


@named_arguments
class BoltInputs:
    """A bolt that was declared: say what it reads, and how tuples are dealt out to its tasks.

    Every method returns the bolt again, which may read several streams.
    """

    def __init__(self, topology: Topology, component: Component) -> None:
        self._topology, self._component = topology, component

    def shuffle(self, component: str, stream: str = DEFAULT) -> BoltInputs:
        """Tuples are spread evenly over the tasks."""
        return self._add(component, stream, StreamGrouping(SHUFFLE))

    def local(self, component: str, stream: str = DEFAULT) -> BoltInputs:
        """The same as `shuffle`: which process runs a task is not for a topology to say."""
        return self._add(component, stream, StreamGrouping(SHUFFLE))

    def fields(self, component: str, *names: str, stream: str = DEFAULT) -> BoltInputs:
        """Tuples that agree on these fields go to the same task."""
        return self._add(component, stream, StreamGrouping(FIELDS, names))

    def partial_key(self, component: str, *names: str, stream: str = DEFAULT) -> BoltInputs:
        """Tuples that agree on these fields go to one of two tasks, the less loaded one."""
        return self._add(component, stream, StreamGrouping(PARTIAL_KEY, names))

    def all(self, component: str, stream: str = DEFAULT) -> BoltInputs:
        """Every task gets every tuple."""
        return self._add(component, stream, StreamGrouping(ALL))

    def global_(self, component: str, stream: str = DEFAULT) -> BoltInputs:
        """All tuples go to task 0."""
        return self._add(component, stream, StreamGrouping(GLOBAL))

    def direct(self, component: str, stream: str = DEFAULT) -> BoltInputs:
        """The bolt that emits a tuple says which task it goes to, with `emit_direct`."""
        return self._add(component, stream, StreamGrouping(DIRECT))

    def custom(
        self, component: str, fn: Callable[[Any, int], Any], stream: str = DEFAULT
    ) -> BoltInputs:
        """`fn(tup, tasks)` returns the number of a task, or a list of numbers."""
        with self._topology.plain.attempt(call_site()):
            check_takes(fn, 2, "custom")
        return self._add(component, stream, StreamGrouping(CUSTOM, function=fn))

    if not TYPE_CHECKING:

        def __getattr__(self, method: str) -> Any:
            raise no_such_name("a bolt's inputs", method, dir(BoltInputs))

    def _add(self, component: str, stream: str, grouping: StreamGrouping) -> BoltInputs:
        site, draft, own = call_site(), self._topology.plain, self._component
        if not isinstance(component, str) or not isinstance(stream, str):
            draft.report(no_names(component, stream), site)
            return self
        added = Subscription(component, stream, grouping, site)
        if own.done:
            draft.report(too_late(own.id), site)
        elif any(s.label == added.label for s in own.inputs):
            draft.report(twice(own.id, added.label), site)
        else:
            own.inputs.append(added)
            if grouping.kind in (FIELDS, PARTIAL_KEY) and not grouping.fields:
                draft.report(no_fields(grouping.kind, component), site)
        return self


@named_arguments
class Topology(Job):
    """A job written as spouts and bolts. It is a `hr.Job`: `hr.run(topology)` runs it, and
    `topology.read` begins a stream program beside it."""

    def __init__(
        self,
        name: str,
        folder: str | None = None,
        *,
        on_error: str = "dead",
        dead_limit: int | float | None = None,
        slots: int | None = None,
        guarantee: str | None = None,
        max_replays: int = 3,
        backoff: Duration = 0,
        timeout: Duration = "30s",
    ) -> None:
        """See `hr.Job`. A tuple that fails is processed again up to `max_replays` times, the first
        time after `backoff`, and then after twice as long each time; one that a bolt with
        `acks = True` does not ack within `timeout` has failed. Bolts may say otherwise."""
        self._replays = {"max_replays": max_replays, "backoff": backoff, "timeout": timeout}
        self._components: dict[str, Component] = {}
        self._building = False
        super().__init__(
            name,
            folder,
            on_error=on_error,
            dead_limit=dead_limit,
            slots=slots,
            guarantee=guarantee,
        )

    def __repr__(self) -> str:
        return f"<Topology {self.name!r}: {', '.join(self._components) or 'nothing yet'}>"

    @property
    def draft(self) -> Any:
        """The steps of the program, those of all components declared so far among them."""
        self._build(list(self._components))
        return self.plain

    @draft.setter
    def draft(self, draft: Draft) -> None:
        self.plain = draft

    def read(self, uri: Any, **options: Any) -> Stream:
        """An input of a stream program beside the topology; see `hr.Job.read`."""
        with self._unbuilt():
            return super().read(uri, **options)

    @property
    def dead(self) -> Stream:
        """The rows that could not be processed, and why; see `hr.Job.dead`."""
        with self._unbuilt():
            return super().dead

    def spout(self, id: str, what: Any, tasks: int | None = None, **options: Any) -> None:
        """Declare where tuples come from: any input, with the options of `read`, a `hr.Spout`, or
        a stream."""
        site = call_site()
        part = self._declare(id, what, 1, options, site)
        if part is None:
            return
        if isinstance(what, Spout):
            with self.plain.attempt(site):
                what = SpoutSource(what, 1 if tasks is None else tasks)
        elif tasks is not None:
            self.plain.report(splits_decide(id), site)
        if isinstance(what, Handle):
            part.built = Stream(self.plain, what._edge)
            self._refuse_foreign(what, options, site)
        else:
            part.built = self.read(what, name=id, **options)
        part.done = True

    def bolt(self, id: str, what: Any, tasks: int = 1, **options: Any) -> BoltInputs:
        """Declare a bolt: a `hr.Bolt`, a `hr.KeyedProcess`, or an output such as "files:path".

        A `hr.Bolt` takes `max_replays`, `backoff` and `timeout`, as the topology does for all.
        The options of an output are those of `write`; of a process function `unbounded`. With
        `window=` it is a window function, for the windows of each task: the options are those
        of `window` and `process`.
        """
        site = call_site()
        part = self._declare(id, what, tasks, options, site)
        wrong = type(tasks) is not int or not 1 <= tasks <= MOST_TASKS
        if wrong:
            self.plain.report(bad_tasks(id, tasks), site)
        made = Component(str(id), what, 1 if wrong else tasks, site, options)
        return BoltInputs(self, part if part is not None and not wrong else self._replace(made))

    def stream(self, id: str, stream: str = DEFAULT) -> Stream:
        """The tuples that a component emits, as a stream: to go on with its methods."""
        site = call_site()
        if id not in self._components:
            raise unknown_component(id, self._components, site)
        self._build([id])
        part = self._components[id]
        if part.built is None:
            raise no_stream(id, stream, site)
        return read_stream(part.built, part.what, id, stream, site)

    # from components to steps

    def _declare(
        self, id: str, what: Any, tasks: int, options: dict[str, Any], site: Site | None
    ) -> Component | None:
        problem = bad_name(id, "a component")
        if problem is None and id in self._components:
            problem = declared_twice(id)
        if problem is not None:
            self.plain.report(problem, site)
            return None
        part = Component(id, what, tasks, site, options)
        self._components[id] = part
        return part

    def _replace(self, part: Component) -> Component:
        """A component with a mistake, which has been reported: its inputs are still judged."""
        if part.id in self._components and self._components[part.id].site == part.site:
            self._components[part.id] = part
        return part

    def _refuse_foreign(self, stream: Handle, options: dict[str, Any], site: Site | None) -> None:
        if stream._draft is not self.plain:
            self.plain.report(other_job(), site)
        if options:
            self.plain.report(stream_options(next(iter(options))), site)

    def _unbuilt(self) -> Any:
        return _Building(self)

    def _build(self, ids: list[str]) -> None:
        """Make steps of these components and of all that they read, if they are none yet."""
        if self._building:
            return
        loops, failed = list[tuple[Component, Subscription]](), list[Component]()
        with self._unbuilt():
            for part in self._in_order(ids):
                with building_at(part.site):
                    if not self._add(part):
                        failed.append(part)
                part.done = True
                loops += [(part, read) for read in part.inputs if self._goes_back(part, read)]
            for part, read in loops:
                send_back(self, part, read, self._components[read.component])
            for part in failed:
                with building_at(part.site):
                    self._end_all(part)

    def _in_order(self, ids: list[str]) -> list[Component]:
        """What is to be built, in the order of the program, each after what it reads, but for what
        goes back to it: who sends that is built as well."""
        order: dict[str, Component] = {}

        def visit(id: str) -> None:
            part = self._components.get(id)
            if part is None or part.done or id in order:
                return
            back = [read.component for read in part.inputs if self._goes_back(part, read)]
            for read in part.inputs:
                if not self._goes_back(part, read):
                    visit(read.component)
            order.setdefault(id, part)
            for sender in back:
                visit(sender)

        for id in ids:
            visit(id)
        return list(order.values())

    def _goes_back(self, part: Component, read: Subscription) -> bool:
        return goes_back(part, read, self._components)

    def _add(self, part: Component) -> bool:
        """Make a step of a component; False if that cannot be, which has been reported."""
        inputs = [
            (s, stream) for s in part.inputs if (stream := self._read_by(part, s)) is not None
        ]
        if len(inputs) < len(part.inputs):
            return False
        if not inputs:
            self.plain.report(no_inputs(part.id), part.site)
        elif "window" in part.options:
            part.built = add_window(self.plain, part, inputs)
        elif isinstance(part.what, Bolt):
            part.built = add_bolt(self.plain, part, inputs, self._replays)
        elif isinstance(part.what, KeyedProcess):
            part.built = add_process(self.plain, part, inputs)
        elif isinstance(part.what, str):
            add_output(self.plain, part, inputs)
        else:
            self.plain.report(no_bolt(part.id, part.what), part.site)
            return False
        return bool(inputs)

    def _end_all(self, part: Component) -> None:
        """What a component would have read leads somewhere, and so does what it may have meant by
        a name that is not there, or has left out: only its own mistake is reported."""
        wrong = not part.inputs or any(
            read.component not in self._components for read in part.inputs
        )
        meant = self._components if wrong else {read.component for read in part.inputs}
        for id in meant:
            component = self._components.get(id)
            if component is not None and component.built is not None:
                end_tuples(component.built)

    def _read_by(self, reader: Component, subscription: Subscription) -> Stream | None:
        id, draft = subscription.component, self.plain
        if self._goes_back(reader, subscription):
            return read_again(self, reader, subscription, self._components[id])
        with draft.attempt(subscription.site):
            if id not in self._components:
                raise unknown_component(id, self._components, None)
            part = self._components[id]
            if isinstance(part.what, str) and part.inputs:
                raise no_stream(id, subscription.stream, None)
            if part.built is None:
                return None  # its own mistake has been reported
            direct = subscription.grouping.kind == DIRECT
            return read_stream(part.built, part.what, id, subscription.stream, None, direct=direct)
        return None


class _Building:
    """While the steps of a topology are written, its draft is what has been written so far."""

    def __init__(self, topology: Topology) -> None:
        self._topology, self._before = topology, topology._building

    def __enter__(self) -> None:
        self._topology._building = True

    def __exit__(self, *_: object) -> None:
        self._topology._building = self._before
