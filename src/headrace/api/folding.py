"""The user's own reduce and fold functions: checked, wrapped, their accumulator typed.

`reduce` starts with a key's first row and keeps the columns that are not keys; `fold`
starts with a zero, made anew for each key so that no two share a list.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.api.step_builder import PLAIN, Adding
from headrace.callables import PyFunction, site_of
from headrace.errors import PlanError
from headrace.plan.signature import check_takes, value_schema
from headrace.schema import SchemaLike


def reduced(
    at: Adding, fn: Callable[[Any, Any], Any], keys: tuple[str, ...]
) -> tuple[PyFunction, pa.Schema]:
    """A reduce function and the columns it folds."""
    with at.draft.attempt(at.site):
        check_takes(fn, 2, "reduce")
        if len(at.schema) and set(at.schema.names) <= set(keys):
            raise PlanError(
                "HR-PLAN-021",
                "reduce has nothing to fold: every column is part of the key",
                "Use .agg(count=hr.count()) to count rows.",
            )
    value = pa.schema([f for f in at.schema if f.name not in keys])
    return PyFunction(fn, site_of(fn), PLAIN), value


def accumulator(
    at: Adding, zero: Any, fn: Callable[[Any, Any], Any], schema: SchemaLike | None
) -> tuple[PyFunction, PyFunction, pa.Schema]:
    """A fold function, the maker of its start value, and the accumulator's columns."""
    with at.draft.attempt(at.site):
        check_takes(fn, 2, "fold")
        if callable(zero):
            check_takes(zero, 0, "the zero of fold")
    make = zero if callable(zero) else partial(copy.deepcopy, zero)
    value = at.attempt(lambda: value_schema(fn, zero, schema, "fold"))
    with at.draft.attempt(at.site):
        _check_record(zero, value)
    return PyFunction(fn, site_of(fn), PLAIN), PyFunction(make, site_of(fn), PLAIN), value


def _check_record(zero: object, value: pa.Schema) -> None:
    missing = [n for n in value.names if type(zero) is dict and n not in zero]
    if missing and value.names != ["value"]:
        raise PlanError(
            "HR-PLAN-045",
            f"the zero of fold is a dict without {missing[0]!r}",
            "A dict stands for a record: give it every column. To fold into a dict as one "
            'value, call its column so: schema="value map<string, bigint>".',
        )
