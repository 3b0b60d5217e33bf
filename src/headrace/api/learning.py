"""Steps that learn: change detection, and models that predict and then learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.api.handles import JoinT, Results, StepBuilder, StreamT, TableT, TimedT, names_of
from headrace.errors import PlanError
from headrace.ops.learn.drift import Drift, drift_fields
from headrace.ops.learn.learn import Learn, learn_fields
from headrace.ops.learn.models import new_detector, new_model
from headrace.plan.columns import clashes
from headrace.plan.draft import UNKNOWN
from headrace.plan.nodes import Edge
from headrace.schema import ddl_type


class Learning(Results[StreamT, TimedT, JoinT, TableT]):
    """Detectors and models, by key or one for all rows."""

    def drift(
        self,
        column: str,
        detector: str = "adwin",
        *,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
        **options: Any,
    ) -> TimedT:
        """A row for each change of a column: when it was found, and the detector's figures.

        `detector` is "adwin", "page_hinkley" or "kswin", of river; `options` are its own. Values
        are seen in order of event time, once the watermark has passed them.
        """
        step = self._step(name, was)
        return self._timed(_drift(step, self._keys, column, (detector, options), unbounded))

    def learn(
        self,
        model: Any,
        target: str,
        features: str | Sequence[str],
        *,
        probabilities: bool = False,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """Each row with the `prediction` of a river model, which then learns the row.

        A row whose `target` is null is only predicted. With `probabilities`, a classifier's row has
        those of all labels. Rows are seen in order of event time, once the watermark has passed
        them. The model is state: one for each key, or one for all rows.
        """
        step, names = self._step(name, was), names_of(features)
        options = (target, names, probabilities)
        return self._timed(_learn(step, self._keys, model, options, unbounded))


def _drift(
    step: StepBuilder,
    keys: tuple[str, ...],
    column: str,
    chosen: tuple[str, dict[str, Any]],
    unbounded: bool,
) -> Edge:
    (detector, options), timed = chosen, step.edge.node.timed
    schema, what = UNKNOWN, Drift(column, "adwin", timed, "", ())
    step.require_columns([column])
    with step.draft.attempt(step.site):
        text, settings = new_detector(detector, options)
        what = Drift(column, detector, timed, text, settings)
        fields = drift_fields(detector, timed)
        step.report(*clashes(keys, fields, "part of the key"))
        key = step.key_fields(keys)
        if key is not None and column in step.schema.names:
            _check_number(step.schema, column, "drift goes by")
            schema = pa.schema([*key, *(f for f in fields if f.name not in keys)])
    accepted = unbounded or not keys
    return step.stateful(what, (keys,), schema, unbounded=accepted)


def _learn(
    step: StepBuilder,
    keys: tuple[str, ...],
    model: Any,
    chosen: tuple[str, tuple[str, ...], bool],
    unbounded: bool,
) -> Edge:
    (target, features, probabilities), timed = chosen, step.edge.node.timed
    schema, types = UNKNOWN, tuple[tuple[str, str], ...]()
    what = Learn(target, features, types, probabilities, timed, "", (("model", "none"),))
    read = (target, *features)
    if not isinstance(target, str) or target in features:
        step.report(_bad_target(target))
        return step.stateful(what, (keys,), schema, unbounded=unbounded or not keys)
    step.require_columns(read)
    step.unique(read)
    with step.draft.attempt(step.site):
        made = new_model(model)
        if not features:
            hint = 'Name them: learn(model, target="y", features=["a", "b"]).'
            raise PlanError("HR-LEARN-012", "learn has no features", hint)
        if probabilities and not made.classifies:
            hint = "Leave probabilities out."
            raise PlanError("HR-LEARN-016", "a regressor has no probabilities", hint)
        if all(name in step.schema.names for name in read):
            for name in features:
                _check_number(step.schema, name, "learn has the feature")
            kind = step.schema.field(target).type
            _check_target(target, kind, made.classifies, made.binary)
            types = tuple((n, ddl_type(step.schema.field(n).type)) for n in read)
            added = learn_fields(kind, made.classifies, probabilities)
            step.report(*clashes(step.schema.names, added, "a column of the rows"))
            names = [f.name for f in added]
            schema = pa.schema([*(f for f in step.schema if f.name not in names), *added])
        what = Learn(target, features, types, probabilities, timed, made.text, made.settings)
    return step.stateful(what, (keys,), schema, unbounded=unbounded or not keys)


def _bad_target(target: object) -> PlanError:
    return PlanError(
        "HR-LEARN-012",
        f"learn has the target {target!r}, which is no column, or a feature as well",
        'Name the column to predict, and others to predict it from: learn(model, target="y", '
        'features=["a", "b"]).',
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _check_number(schema: pa.Schema, name: str, what: str) -> None:
    kind = schema.field(name).type
    if not _is_number(kind) and not pa.types.is_boolean(kind):
        raise PlanError(
            "HR-LEARN-010",
            f"{what} {name!r}, which is {ddl_type(kind)}",
            f'Make a double of it: with_columns({name}="cast({name} as double)").'
            if pa.types.is_decimal(kind)
            else "Make a number or a boolean of it: with_columns(is_red=\"color = 'red'\").",
        )


def _check_target(name: str, kind: pa.DataType, classifies: bool, binary: bool) -> None:
    is_label = pa.types.is_boolean(kind) or (
        not binary and (pa.types.is_integer(kind) or pa.types.is_string(kind))
    )
    if is_label if classifies else _is_number(kind):
        return
    wanted = "a boolean" if binary else "text, a whole number or a boolean"
    model = f"a classifier whose labels are {wanted}" if classifies else "a regressor of numbers"
    raise PlanError(
        "HR-LEARN-011",
        f"the target {name!r} is {ddl_type(kind)}, and the model is {model}",
        "Make the column fit, with_columns(y=...), or choose another model.",
    )
