"""Whole batches, and rows that go round: transform, iterate and repeat.

A loop that nothing could end is refused here, when it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import pyarrow as pa

from headrace.api.handles import AnyStream, JoinT, Results, StepBuilder, StreamT, TableT, TimedT
from headrace.clock import Duration
from headrace.errors import PlanError
from headrace.ops.loops import EMPTY, SAME, Iterate, Loop
from headrace.ops.stream.whole_batches import Transform
from headrace.plan.draft import UNKNOWN
from headrace.plan.signature import check_takes
from headrace.schema import SchemaLike, schema_of

Body = Callable[[pa.Table, Loop], Any]
_MOST_LEVELS = 100  # times a body may be written out


class Loops(Results[StreamT, TimedT, JoinT, TableT]):
    """Streams whose batches can be seen whole, once or again and again."""

    def transform(
        self,
        fn: Callable[[Any], Any],
        *,
        engine: str = "arrow",
        output: SchemaLike | None = None,
        time: str | None = None,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """All rows of a batch through a function from Arrow table to Arrow table, in one task.

        On a keyed stream each task has a table of its own, with all rows of its keys. `output`
        says the columns it returns, if they are others, and `time` which of them is the event
        time; without it that is the newest of the batch. With engine="spark" it is a function
        from DataFrame to DataFrame, called where the run was started.
        """
        step = self._step(name, was)
        with self._draft.attempt(step.site):
            check_takes(fn, 1, "transform")
            _check_engine(engine, self._keys)
            if engine == "spark":
                _check_spark_types(step.schema)
        schema = step.schema if output is None else step.attempt(lambda: schema_of(output))
        what = Transform(
            fn,
            _time(step, time, schema),
            step.edge.node.timed or time is not None,
            engine == "spark",
        )
        return self._timed(step.stateful(what, (self._keys,), schema, timed=what.timed))

    def iterate(
        self,
        body: Body,
        *,
        times: int | None = None,
        until: str | Callable[[pa.Table, pa.Table], bool] | None = None,
        most: int = 1_000,
        feed: SchemaLike | None = None,
        output: SchemaLike | None = None,
        keep: Mapping[str, SchemaLike] | None = None,
        over: str = "turns",
        pause: Duration | None = None,
        time: str | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """Rows go round: what body(rows, loop) returns, an Arrow table, goes in again.

        It ends after so many `times`, or `until` "same" (nothing changed), "empty" (nothing is
        left) or a function of the rows before and after says so; `most` turns at most. What is left
        is the result; or, with `output`, what the body emitted by `loop.emit(table)`. `feed` says
        the columns that go round if they are not those of the input, which is `loop.rows`.
        `keep` names tables that stay from batch to batch: `loop.kept["model"]`. With over="batches"
        a turn is a batch: what the body returns waits for the next one, or for `pause`.
        """
        step = self._step(name, was)
        with self._draft.attempt(step.site):
            check_takes(body, 2, "iterate")
        _check_exit(step, times, until, over, pause)
        fed = None if feed is None else step.attempt(lambda: schema_of(feed))
        emitted = None if output is None else step.attempt(lambda: schema_of(output))
        schema = emitted or fed or step.schema
        tables = tuple((n, step.attempt(partial(schema_of, s))) for n, s in (keep or {}).items())
        _check_keys(
            step,
            self._keys,
            (*tables, *([("feed", fed)] if fed and over != "turns" else [])),
        )
        what = Iterate(
            body,
            fed,
            emitted is not None,
            tables,
            None if times is None else step.count(times, "iterate", "rounds"),
            until,
            step.count(most, "iterate", "rounds"),
            over == "batches",
            None if pause is None else step.span(pause, "iterate(pause=)"),
            _time(step, time, schema),
            step.edge.node.timed or time is not None,
            bool(self._keys),
        )
        edge = step.stateful(what, (self._keys,), schema, unbounded=unbounded, timed=what.timed)
        return self._timed(edge)


class Repeating(AnyStream):
    """Streams whose steps can be written several times over."""

    def repeat(self, body: Callable[[Self], Self], times: int) -> Self:
        """The steps of body(stream), so many times one after the other: each runs on its own.

        What they name is "name" the first time, then "name-2", "name-3" ...
        """
        step = self._step()
        count = step.count(times, "repeat", "rounds")
        if count > _MOST_LEVELS:
            step.report(
                PlanError(
                    "HR-LOOP-006",
                    f"repeat writes its steps {count} times",
                    f"At most {_MOST_LEVELS}; use iterate, which goes round in one step.",
                )
            )
        stream = self
        for number in range(1, min(count, _MOST_LEVELS) + 1):
            with self._draft.round(number):
                result = body(stream)
            if not isinstance(result, Repeating):
                raise PlanError(
                    "HR-LOOP-007",
                    f"the body of repeat gave {result!r}, not a stream that it could go on with",
                    "Return the stream after its last step; after key_by, that of a step on keys.",
                    site=step.site,
                )
            stream = result
        return stream


def _check_engine(engine: str, keys: tuple[str, ...]) -> None:
    if engine not in ("arrow", "spark"):
        raise PlanError(
            "HR-STREAM-008",
            f"transform(engine=) is {engine!r}",
            'Write engine="arrow" or engine="spark".',
        )
    if engine == "spark" and keys:
        raise PlanError(
            "HR-STREAM-008",
            "Spark transforms all rows of a batch at once, but the stream has a key",
            "Leave key_by out: Spark spreads the work itself, by its own groupBy.",
        )


def _check_spark_types(schema: pa.Schema) -> None:
    for field in schema:
        kind = _unsupported(field.type)
        if kind is not None:
            raise PlanError(
                "HR-STREAM-011",
                f"Spark has no type for column {field.name!r}, which is {kind}",
                'Cast it before, or leave it out: select(...), drop(...); or use engine="arrow".',
            )


def _unsupported(kind: pa.DataType) -> pa.DataType | None:
    """What of a type a Spark DataFrame cannot hold."""
    if pa.types.is_dictionary(kind):
        return _unsupported(kind.value_type)
    if pa.types.is_decimal(kind):
        return None if kind.precision <= 38 and kind.scale >= 0 else kind
    if pa.types.is_nested(kind) and not any(test(kind) for test in _UNSUPPORTED):
        inside = (_unsupported(kind.field(i).type) for i in range(kind.num_fields))
        return next((part for part in inside if part is not None), None)
    return kind if any(test(kind) for test in _UNSUPPORTED) else None


_UNSUPPORTED = (
    pa.types.is_unsigned_integer, pa.types.is_float16, pa.types.is_string_view,
    pa.types.is_binary_view, pa.types.is_date64, pa.types.is_time32, pa.types.is_interval,
    pa.types.is_list_view, pa.types.is_large_list_view, pa.types.is_union,
    pa.types.is_run_end_encoded,
)  # fmt: skip


def _check_exit(step: StepBuilder, times: object, until: object, over: str, pause: object) -> None:
    if over not in ("turns", "batches"):
        step.report(
            PlanError(
                "HR-LOOP-002",
                f"iterate(over=) is {over!r}",
                'Write over="turns" or over="batches".',
            )
        )
    if over == "turns" and times is None and until is None:
        step.report(
            PlanError(
                "HR-LOOP-001",
                "this loop has no exit: nothing says when it is over",
                'Pass times=10, until="same", until="empty" or until=lambda before, after: ...; or '
                'over="batches" for one that never ends.',
            )
        )
    if until is not None and until not in (SAME, EMPTY) and not callable(until):
        step.report(
            PlanError(
                "HR-LOOP-002",
                f"iterate(until=) is {until!r}",
                'Write "same", "empty" or a function.',
            )
        )
    if callable(until):
        with step.draft.attempt(step.site):
            check_takes(until, 2, "iterate(until=)")
    if over == "batches" and (times is not None or until is not None):
        step.report(
            PlanError(
                "HR-LOOP-003",
                "a loop over batches goes on as long as the job does",
                "Leave times= and until= out; return no rows to end it.",
            )
        )
    if over == "turns" and pause is not None:
        step.report(
            PlanError(
                "HR-LOOP-003",
                "pause= has no meaning within a batch",
                'Leave it out, or over="batches".',
            )
        )


def _check_keys(
    step: StepBuilder, keys: tuple[str, ...], tables: tuple[tuple[str, pa.Schema | None], ...]
) -> None:
    for name, schema in tables:
        missing = [k for k in keys if schema and k not in schema.names]
        if missing:
            step.report(
                PlanError(
                    "HR-LOOP-004",
                    f"the rows of {name!r} have no column {missing[0]!r}, which is the key",
                    "What a keyed loop keeps or feeds back stays with its key: add the column, or "
                    "iterate without key_by, in one task.",
                )
            )


def _time(step: StepBuilder, time: str | None, schema: pa.Schema) -> str | None:
    if time is None or schema is UNKNOWN or not len(schema):
        return None
    kind = schema.field(time).type if time in schema.names else None
    if kind is not None and (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
        return time
    step.report(
        PlanError(
            "HR-LOOP-005",
            f"{time!r} is not a column of times",
            "Name a timestamp column of the output, or one of milliseconds.",
        )
    )
    return None
