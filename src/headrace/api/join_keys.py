"""What every join needs: which inputs, by which columns, and the columns of its result.

Mistakes are reported in the draft; what follows from them is not judged again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa

from headrace.api.handles import AnyStream, AnyTable, Handle, StepBuilder, other_job
from headrace.api.window_arguments import gap_of
from headrace.clock import Duration, millis, pretty
from headrace.errors import PlanError
from headrace.ops.contract import Spec
from headrace.ops.join.sides import KEY, Columns
from headrace.ops.keys import HIDDEN_KEY, key_names
from headrace.ops.window.aligned import Window
from headrace.ops.window.assigners import (
    AlignedAssigner,
    Assigner,
    Everything,
    NonMerging,
    Session,
    WindowAssigner,
)
from headrace.ops.window.by_rows import RowWindow as RowSpec
from headrace.plan.columns import unknown
from headrace.plan.draft import UNKNOWN, unknown_columns
from headrace.plan.nodes import Edge
from headrace.schema import ddl_type

On = str | Sequence[str] | Mapping[str, str] | None
Keys = tuple[tuple[str, ...], ...]


class Keyed(Protocol):
    """What has columns, and perhaps a key."""

    _keys: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema: ...


@dataclass(frozen=True)
class JoinArguments:
    """The arguments of `join`, as the user wrote them."""

    on: On
    how: str
    within: Any
    window: Any
    time: str
    suffix: str
    lateness: Duration

    @property
    def left_only(self) -> bool:
        """Whether the result has the columns of the left side alone."""
        return self.how in ("semi", "anti")


def add_join(
    step: StepBuilder,
    inputs: Sequence[Handle],
    keys: Keys,
    what: Spec,
    schema: pa.Schema,
    **more: Any,
) -> Edge:
    """Add a join of these inputs; without keys and columns where they are not known."""
    edges = tuple(i._edge for i in inputs)
    known_keys = keys if len(schema) else tuple(() for _ in inputs)
    timed = all(e.node.timed for e in edges)
    output = schema if all(known_keys) else UNKNOWN
    return step.stateful(what, known_keys, output, inputs=edges, timed=timed, **more)


def same_job(step: StepBuilder, left: Handle, right: Any) -> Any:
    """The right stream; the left one in its place if the right one is of another job."""
    if getattr(right, "_draft", None) is left._draft:
        return right
    if hasattr(right, "_draft"):
        step.report(other_job())
    else:
        step.report(
            PlanError(
                "HR-JOIN-008",
                f"join needs a stream or a table, not a value of type {type(right).__name__}",
                "Pass a stream; for a table that is not a stream, use lookup(...).",
            )
        )
    return left


def keys_of(step: StepBuilder, streams: Sequence[Keyed], on: On) -> Keys:
    """The key columns of each stream; none of them where they are wrong."""
    keys = _keys_of_each(streams, on)
    if not all(keys) or len(set(map(len, keys))) > 1:
        hint = 'Pass on="id", on=["id", "day"], on={"left_column": "right_column"}, or key_by both.'
        step.report(PlanError("HR-JOIN-002", "join does not say which columns must be equal", hint))
        return tuple(() for _ in streams)
    wrong = [
        _of_side(problem, side, stream, len(streams))
        for side, (stream, key) in enumerate(zip(streams, keys, strict=True))
        for problem in unknown(key, stream.schema, step.site)
    ]
    step.report(*wrong)
    if wrong or any(len(s.schema) == 0 for s in streams):
        return tuple(() for _ in streams)
    kinds = [[s.schema.field(c).type for c in k] for s, k in zip(streams, keys, strict=True)]
    for other, columns in zip(kinds[1:], keys[1:], strict=True):
        own = dict(zip(keys[0], kinds[0], strict=True))
        _same_types(step, own, dict(zip(columns, other, strict=True)), len(streams))
    return keys


def _of_side(problem: PlanError, side: int, stream: Keyed, count: int) -> PlanError:
    """The problem with a key, and of which stream of the join it is."""
    which = ("the left side", "the right side")[side] if count == 2 else f"stream {side + 1}"
    name = stream._draft.name_of(stream._edge) if isinstance(stream, Handle) else None
    problem.message += f" in {which} of the join" + (f", {name!r}" if name else "")
    problem.hint = (problem.hint or "").partition(" If it is a text")[0]
    return problem


def table_keys(step: StepBuilder, left: AnyStream | AnyTable, right: AnyTable, on: On) -> Keys:
    """The columns of a stream that hold the key of a table, and that key."""
    if isinstance(on, Mapping):
        columns = {str(theirs): str(column) for column, theirs in on.items()}
    else:
        names = (on,) if isinstance(on, str) else tuple(on or right.keys)
        columns = dict(zip(right.keys, names, strict=True)) if len(names) == len(right.keys) else {}
    if set(columns) != set(right.keys):
        fact = f"join does not say which columns hold {', '.join(right.keys)}, the table's key"
        step.report(
            PlanError("HR-JOIN-002", fact, "Name one for each column of its key, and no more.")
        )
        return (), ()
    return keys_of(step, (left, right), {columns[k]: k for k in right.keys})


def age(within: Any) -> int | None:
    """How old a version may be."""
    if within is None:
        return None
    if isinstance(within, tuple | list) or (length := _signed(within)) < 0:
        hint = 'Write within="10m": versions older than that do not count.'
        raise PlanError("HR-JOIN-004", f"within is {within!r} for a join with a table", hint)
    return length


def _keys_of_each(streams: Sequence[Keyed], on: On) -> Keys:
    if on is None:
        return tuple(s._keys for s in streams)
    if isinstance(on, Mapping):
        return tuple(map(str, on)), *[tuple(map(str, on.values()))] * (len(streams) - 1)
    same = (on,) if isinstance(on, str) else tuple(on)
    return tuple(same for _ in streams)


def _same_types(
    step: StepBuilder, left: dict[str, pa.DataType], right: dict[str, pa.DataType], count: int
) -> None:
    for (column, kind), (theirs, other) in zip(left.items(), right.items(), strict=True):
        if kind != other and not pa.types.is_null(kind) and not pa.types.is_null(other):
            one, two = ("left", "right") if count == 2 else ("first", "other")
            fact = f"{one} {column!r} is {ddl_type(kind)} and {two} {theirs!r} is {ddl_type(other)}"
            hint = "Keys meet only when their types are equal: cast one of them before."
            step.report(PlanError("HR-JOIN-003", fact, hint))


def result_of(
    step: StepBuilder,
    left: pa.Schema,
    right: pa.Schema,
    keys: Keys,
    suffix: str,
    extra: Sequence[pa.Field] = (),
    *,
    left_only: bool = False,
) -> tuple[Columns, pa.Schema]:
    """Where each column of the result comes from, and their types."""
    if not all(keys) or unknown_columns(left) or unknown_columns(right):
        return (), UNKNOWN
    columns = [(_origin(f.name, keys[0]), f) for f in left]
    if not left_only:
        used = [*left.names, *(f.name for f in extra)]
        for field in (f for f in right if f.name not in keys[1]):
            name = f"{field.name}{suffix}" if field.name in used else field.name
            columns.append(((1, field.name), field.with_name(name)))
    return _unique(step, columns, extra)


def result_of_all(
    step: StepBuilder, schemas: Sequence[pa.Schema], keys: Keys, names: Sequence[str]
) -> tuple[Columns, pa.Schema]:
    """The same for several streams: a column that more than one has is called by its stream."""
    if not all(keys) or any(map(unknown_columns, schemas)):
        return (), UNKNOWN
    rest = [[f for f in s if f.name not in k] for s, k in zip(schemas, keys, strict=True)]
    all_names = [f.name for fields in rest for f in fields]
    hidden = key_names(len(keys[0]), HIDDEN_KEY)
    columns = [((KEY, n), schemas[0].field(k)) for n, k in zip(hidden, keys[0], strict=True)]
    for port, (fields, name) in enumerate(zip(rest, names, strict=True)):
        for f in fields:
            shared = all_names.count(f.name) > 1 or f.name in keys[0]
            columns.append(((port, f.name), f.with_name(f"{f.name}_{name}") if shared else f))
    return _unique(step, columns, ())


def _origin(name: str, keys: Sequence[str]) -> tuple[int, str]:
    if name not in keys:
        return 0, name
    return KEY, key_names(len(keys), HIDDEN_KEY)[keys.index(name)]


def _unique(
    step: StepBuilder,
    columns: Sequence[tuple[tuple[int, str], pa.Field]],
    extra: Sequence[pa.Field],
) -> tuple[Columns, pa.Schema]:
    fields = [*(f for _, f in columns), *extra]
    names = [f.name for f in fields]
    for name in sorted({n for n in names if names.count(n) > 1}):
        fact = f"the column {name!r} would be there twice"
        hint = 'Rename one of them before, or pass suffix="_other".'
        if name in [f.name for f in extra]:  # no suffix helps: it is the left one's
            hint = f"The join gives it by itself: say .drop({name!r}) before, or rename it."
        step.report(PlanError("HR-JOIN-006", fact, hint))
    if len(set(names)) < len(names):
        return (), UNKNOWN
    plain = [pa.field(f.name, f.type) for f in fields]
    return tuple(origin for origin, _ in columns), pa.schema(plain)


def interval(within: Any) -> tuple[int, int]:
    """`within` as the earliest and the latest time of the right row, less the left row's."""
    if isinstance(within, tuple | list):
        if len(within) != 2:
            hint = 'Write within="5m", or within=("-1m", "5m").'
            raise PlanError("HR-JOIN-004", f"within has {len(within)} parts", hint)
        lower, upper = (_signed(part) for part in within)
    else:
        upper = _signed(within)
        lower = -upper
    if lower > upper:
        fact = f"within goes from {_show(lower)} to {_show(upper)}, so nothing can be in it"
        raise PlanError("HR-JOIN-004", fact, 'Give the earlier end first: within=("-1m", "5m").')
    return lower, upper


def windows(step: StepBuilder, window: Any, left: pa.Schema, right: pa.Schema) -> Assigner:
    """`window` as windows of time that end, the same for both sides."""
    if isinstance(window, Window):
        return AlignedAssigner(window)
    if isinstance(window, Session):
        return window if isinstance(window.gap, int) else _gap(step, window, left, right)
    if isinstance(window, NonMerging) and not isinstance(window, Everything):
        return cast("Assigner", window)
    raise PlanError(
        "HR-JOIN-010",
        f"a join in windows cannot use {_in_words(window)}",
        "Use hr.tumbling, hr.sliding, hr.session, hr.cumulating or hr.calendar: windows of time "
        "that end.",
    )


def _gap(step: StepBuilder, window: Session, left: pa.Schema, right: pa.Schema) -> Session:
    """A session whose gap is an expression over the rows of either side."""
    session = Session(gap_of(step, window, left))
    gap_of(step, session, right)
    return session


def _in_words(window: Any) -> str:
    """The window, and why it cannot be that of a join."""
    if isinstance(window, RowSpec):
        return f"windows of rows ({window}): rows of two streams have no common order to count in"
    if isinstance(window, WindowAssigner):
        own = type(window).__name__
        return f"the assigner {own!r}: it assigns rows of one stream, and these are of two"
    return "hr.everything(), which never ends" if isinstance(window, Everything) else repr(window)


def _signed(length: Duration) -> int:
    if isinstance(length, str) and length.strip().startswith(("-", "+")):
        size = millis(length.strip()[1:])
        return -size if length.strip().startswith("-") else size
    return millis(length)


def _show(ms: int) -> str:
    return f"-{pretty(-ms)}" if ms < 0 else pretty(ms)


def patience(lateness: Duration) -> int:
    """How long a join waits for late rows."""
    length = millis(lateness)
    if length < 0:
        raise PlanError("HR-JOIN-009", f"lateness is {lateness!r}", "Choose zero or more.")
    return length


def one_of(value: object, choices: Sequence[str], what: str) -> str:
    if value in choices:
        return str(value)
    raise PlanError(
        "HR-JOIN-005", f"{what} cannot be {value!r}", f"Choose one of {', '.join(choices)}."
    )
