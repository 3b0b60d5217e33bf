"""What Heron's Streamlets call otherwise: a few names for those who come from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.api.handles import JoinT, Results, StreamT, TableT, TimedT
from headrace.clock import Duration
from headrace.errors import PlanError, call_site
from headrace.ops.stream.repartition import Repartition
from headrace.ops.topology.groupings import CUSTOM, MOST_TASKS, SHUFFLE, StreamGrouping
from headrace.plan.signature import check_takes


class Streamlets(Results[StreamT, TimedT, JoinT, TableT]):
    """Streams as Heron's Streamlets."""

    def repartition(
        self,
        tasks: int,
        fn: Callable[[Any, int], Any] | None = None,
        *,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """Deal the rows out to so many tasks, in which the steps after it run.

        Evenly; or to the task, or the list of tasks, that `fn(row, tasks)` returns.
        """
        step = self._step(name, was)
        if type(tasks) is not int or not 1 <= tasks <= MOST_TASKS:
            step.report(_bad_tasks(tasks))
            tasks = 1
        if fn is not None:
            with self._draft.attempt(step.site):
                check_takes(fn, 2, "repartition")
        grouping = StreamGrouping(SHUFFLE if fn is None else CUSTOM, function=fn)
        return self._timed(step.stateful(Repartition(tasks, grouping), ((),), step.schema))

    def reduce_by_key_and_window(
        self,
        key: Any,
        value: Any,
        window: Any,
        fn: Callable[[Any, Any], Any],
        *,
        lateness: Duration = 0,
        name: str | None = None,
        was: str | None = None,
    ) -> Any:
        """Of each key and window: its values, two at a time through `fn(value, value)`.

        The same as `key_by(key).window(window).reduce(...)`, with the column `value`.
        """
        with self._draft.attempt(call_site()):
            check_takes(fn, 2, "reduce_by_key_and_window")
            if isinstance(value, list | tuple):
                raise _one_value(value)

        def reduce_values(one: Any, other: Any) -> Any:
            return one._replace(value=fn(one.value, other.value))

        rows: Any = self
        keyed = rows.key_by(key)
        rows = self._stream(keyed._edge)
        values = rows.select(*keyed.keys, value=value).key_by(*keyed.keys)
        cut = values.window(window, lateness=lateness)
        return cut.reduce(reduce_values, name=name, was=was)

    def clone(self, count: int) -> list[StreamT]:
        """This stream, so many times: any number of steps may read a stream anyway."""
        return [self._stream(self._edge) for _ in range(count)]

    def log(self, *, name: str | None = None) -> None:
        """Print the rows; see `write("console:")`."""
        rows: Any = self
        rows.write("console:", name=name)

    def consume(self, fn: Callable[[Any], Any], *, name: str | None = None) -> None:
        """Call a function with each row, at the end of the stream; see `tap`."""
        rows: Any = self
        rows.tap(fn, name=name)

    def to_sink(self, uri: str, *, name: str | None = None, **options: Any) -> None:
        """The same as `write`."""
        rows: Any = self
        rows.write(uri, name=name, **options)


def _one_value(value: object) -> PlanError:
    return PlanError(
        "HR-PLAN-062",
        f"reduce_by_key_and_window has the values {value!r}",
        'It reduces one value: "v", or an expression; for several use '
        "key_by(...).window(...).agg(...), or a struct.",
    )


def _bad_tasks(tasks: object) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-002",
        f"repartition has {tasks!r} tasks",
        f"Give a whole number from 1 to {MOST_TASKS}.",
    )
