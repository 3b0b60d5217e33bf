"""The attributes of a bolt that it does not declare: whether a batch has changed one of them.

What has changed would be lost with the batch. Plain values cannot change; lists, dicts and sets are
compared with a copy. Of any other object nobody can say cheaply whether it has changed, so the
class has to: `transient = ("model",)` says that it may be lost, or is only read.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import logging
import operator
import pathlib
import re
import types
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.expr import Expr
from headrace.ops.calls.resource import Resource

CONTAINERS = (list, dict, set, deque, bytearray)
_LARGE = 1_000  # elements of a container that is not copied at every depth
_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, range, slice, decimal.Decimal,
    fractions.Fraction, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo,
    uuid.UUID, enum.Enum, re.Pattern, pathlib.PurePath, np.generic, np.dtype, pa.DataType,
    pa.Schema, pa.Field, pa.Scalar, pa.Array, pa.ChunkedArray, pa.RecordBatch, pa.Table,
    type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, operator.itemgetter,
    operator.attrgetter, logging.Logger, logging.LoggerAdapter, Resource, Expr,
    type(Ellipsis), type(NotImplemented),
)  # fmt: skip


def of_class(kind: type, base: type) -> dict[str, Any]:
    """The attributes of a user's class, and of those it inherits from down to `base`, but for
    methods and the like: all of its objects share them."""
    found: dict[str, Any] = {}
    for part in reversed(kind.__mro__):
        if part not in base.__mro__:
            found |= vars(part)
    return {
        name: value
        for name, value in found.items()
        if not name.startswith("__") and not hasattr(type(value), "__get__")
        and not hasattr(base, name)
    }  # fmt: skip


def unwatched(value: Any) -> Any:
    """The part of an attribute whose changes would not be seen; None if there is none."""
    if isinstance(value, bytearray) or _is_plain(value):
        return None
    if isinstance(value, CONTAINERS):
        inner = _elements(value)
        seen = unwatched if len(value) <= _LARGE else _changeable
        return next((found for e in inner if (found := seen(e)) is not None), None)
    return _changeable(value)


def _changeable(value: Any) -> Any:
    """The part of a value that may change; None if it cannot."""
    if _is_plain(value):
        return None
    if isinstance(value, tuple | frozenset):
        parts: Iterable[Any] = value
    elif isinstance(value, types.MethodType):
        parts = (value.__self__,)
    elif isinstance(value, functools.partial):
        parts = (value.func, *value.args, *value.keywords.values())
    elif _is_frozen(value):
        parts = [getattr(value, f.name) for f in dataclasses.fields(value)]
    else:
        return value
    return next((found for p in parts if (found := _changeable(p)) is not None), None)


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN)


def _is_frozen(value: Any) -> bool:
    of = getattr(type(value), "__dataclass_params__", None)
    return of is not None and bool(of.frozen)


def _elements(value: Any) -> Iterable[Any]:
    return (*value, *value.values()) if isinstance(value, Mapping) else value


def copied(value: Any) -> Any:
    """A copy that shows whether it was changed; of a large one its own elements have to do."""
    return copy.deepcopy(value) if len(value) <= _LARGE else copy.copy(value)


def restore(value: Any, before: Any) -> None:
    """Put the elements back that a container had when it was copied."""
    elements = copy.copy(before)
    value.clear()
    value.update(elements) if isinstance(value, dict | set) else value.extend(elements)


def changed(before: Any, now: Any) -> bool:
    """Whether an attribute is another than before the batch."""
    if isinstance(now, CONTAINERS):
        return type(before) is not type(now) or bool(before != now)
    return before is not now
