"""A user's keyed process function, as a spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.ops.contract import Operator, Place, Spec
from headrace.ops.process.chunked import ChunkOperator
from headrace.ops.process.kept import Kept
from headrace.ops.process.operator import ProcessOperator
from headrace.schema import ddl_type


@dataclass(frozen=True, eq=False)
class ProcessSpec(Spec):
    """A user's keyed process function over named inputs."""

    names: tuple[str, ...]  # of the inputs, as the function sees them
    function: Any  # an instance of the user's KeyedProcess
    state: pa.Schema  # its declared values

    at_rest = "Process"
    kind = "process"

    @property
    def endless(self) -> bool:
        return len(self.state) > 0 and not type(self.function).forgets()

    @property
    def bound(self) -> str:
        return 'unbounded=True; otherwise say ttl="1h" for every value that it keeps.'

    @property
    def by_event_time(self) -> bool:
        kind = type(self.function)
        return kind.timed() or any(life_of(kept) == "event" for kept in kind._kept.values())

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (type(self.function),)

    @property
    def user_code(self) -> list[Any]:
        return [type(self.function), vars(self.function)]

    @property
    def python(self) -> str:
        path = "by chunk" if type(self.function).chunked() else "row by row"
        return f"{type(self.function).__name__}: a process function, {path}"

    @property
    def input_names(self) -> tuple[str, ...]:
        return self.names

    def __str__(self) -> str:
        return f"{type(self.function).__name__} over {', '.join(self.names)}"

    def state_shape(self, place: Place) -> dict[str, Any]:
        return {"kind": self.at_rest, **self.values_shape()}

    def values_shape(self) -> dict[str, Any]:
        """The values of its state, as plain JSON."""
        kind = type(self.function)
        values = [[n, ddl_type(v.type), v.word, life_of(v)] for n, v in kind._kept.items()]
        return {"values": values, "timers": kind.timed()}

    def operator(self, place: Place) -> Operator:
        fn, output, timed = self.function, place.output, place.timed
        if type(fn).chunked():
            return ChunkOperator(fn, place.key, place.input, output, timed)
        inputs = list(place.inputs)
        return ProcessOperator(fn, self.names, place.keys, inputs, output, timed, place.broadcast)


def life_of(kept: Kept) -> str:
    """By which time a value is forgotten: "", "event", "clock"."""
    return "" if kept.ttl is None else "clock" if kept.by_clock else "event"
