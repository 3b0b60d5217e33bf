"""What a user's function takes and returns, read from its signature and hints.

Nothing here calls the function. A function whose rows cannot be known this way needs
`schema=`; that is a problem of the program, not a guess.
"""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.callables import title, unwrapped
from headrace.errors import PlanError, Site
from headrace.schema import SchemaLike, ddl_type, schema_of, type_of

VALUE = "value"  # the column of a function that returns plain values instead of records
_MANY = (
    list, tuple, set, frozenset, abc.Iterable, abc.Iterator, abc.Generator, abc.Sequence,
    abc.Collection,
)  # fmt: skip
_OUTPUT = ("match", "map_async")  # the methods that take output=, not schema=


def check_takes(fn: object, count: int, method: str, site: Site | None = None) -> None:
    """Refuse what cannot be called with `count` arguments."""
    if not callable(fn):
        raise PlanError(
            "HR-PLAN-028",
            f"{method} needs a function, not {fn!r}",
            f"Give a function of {count} argument{'s' * (count != 1)}.",
        )
    if isinstance(fn, type):
        return
    try:
        inspect.signature(fn).bind(*[None] * count)
    except ValueError:  # a builtin that has no signature
        return
    except TypeError as error:
        raise PlanError(
            "HR-PLAN-028",
            f"{method} calls its function with {count} argument{'s' * (count != 1)}, "
            f"but {title(fn)} does not take that: {error}",
            f"Write a function of {count} argument{'s' * (count != 1)}.",
            site=site,
        ) from error


def record_schema(spec: SchemaLike) -> pa.Schema:
    """A schema; a plain type such as `float` is one column, `value`."""
    return schema_of(spec) if _names_columns(spec) else pa.schema([(VALUE, type_of(spec))])


def output_schema(spec: SchemaLike) -> pa.Schema:
    """As `record_schema`, for a function that returns rows: there a dict or a tuple is a whole
    row, so neither can be the one value of a row."""
    schema = record_schema(spec)
    whole = pa.types.is_map(schema.field(0).type) or typing.get_origin(spec) is tuple
    if whole and not _names_columns(spec):
        raise PlanError(
            "HR-PLAN-011",
            f"{_show(spec)} does not say what columns a row has",
            "Say the columns with a dataclass, TypedDict or NamedTuple, or in words, "
            '"name type, ..."; for one column that holds all of it, '
            f'"{VALUE} {ddl_type(schema.field(0).type)}", and give a row: {{"{VALUE}": ...}}.',
        )
    return schema


def _names_columns(spec: SchemaLike) -> bool:
    if isinstance(spec, str | pa.Schema | abc.Mapping):
        return True
    return isinstance(spec, type) and (
        dataclasses.is_dataclass(spec) or typing.is_typeddict(spec) or hasattr(spec, "_fields")
    )


def row_schema(fn: Callable[..., Any], schema: SchemaLike | None, method: str) -> pa.Schema:
    """The rows that `fn` returns, one a call."""
    if schema is not None:
        return output_schema(schema)
    hint = _returns(fn, method)
    if _optional(hint):
        raise PlanError(
            "HR-PLAN-011",
            f"{title(fn)} may return None, but {method} emits one row for each row",
            "Use flat_map to leave rows out, or filter first.",
        )
    return _described(hint, fn, method)


def rows_schema(fn: Callable[..., Any], schema: SchemaLike | None, method: str) -> pa.Schema:
    """The rows that `fn` returns, any number a call: `list[Row]`, `Iterator[Row]`, ..."""
    if schema is not None:
        return output_schema(schema)
    hint = _returns(fn, method)
    args = typing.get_args(hint)
    if typing.get_origin(hint) not in _MANY or not args:
        raise PlanError(
            "HR-PLAN-011",
            f"{method} needs a function that returns many rows, but {title(fn)} is "
            f"declared to return {_show(hint)}",
            f"Annotate it with list[Row] or Iterator[Row], or pass {_word(method)}=.",
        )
    return _described(args[0], fn, method)


def column_type(fn: Callable[..., Any], name: str, kind: object, method: str) -> pa.DataType:
    """The type of the one value that `fn` returns: declared, or hinted by the function."""
    if kind is not None:
        return type_of(kind)
    hint = _hints(fn).get("return")
    options = [part for part in typing.get_args(hint) if part is not type(None)]
    if _optional(hint) and len(options) == 1:
        hint = options[0]
    try:
        if hint is not None:
            return type_of(hint)
    except PlanError:
        pass
    raise PlanError(
        "HR-PLAN-011",
        f"{method} does not know of what type {name!r} is, which {title(fn)} computes",
        f'Say it: types={{"{name}": "double"}}; or annotate the result: def f(row) -> float.',
    )


def any_schema(fn: Callable[..., Any], schema: SchemaLike | None, method: str) -> pa.Schema:
    """The rows that `fn` returns, one or many a call."""
    many = schema is None and typing.get_origin(_hints(fn).get("return")) in _MANY
    return rows_schema(fn, schema, method) if many else row_schema(fn, schema, method)


def value_schema(
    fn: Callable[..., Any], zero: object, schema: SchemaLike | None, method: str
) -> pa.Schema:
    """What a fold accumulates: declared, hinted by the function, or the type of its zero."""
    if schema is not None:
        return record_schema(schema)
    hint = _hints(fn).get("return")
    for kind in (hint, zero if isinstance(zero, type) else type(zero)):
        try:
            return record_schema(kind)
        except PlanError:
            continue
    raise _missing(fn, method)


def _described(hint: object, fn: Callable[..., Any], method: str) -> pa.Schema:
    try:
        return output_schema(hint)
    except PlanError as error:
        if error.code == "HR-PLAN-011":
            raise
        raise PlanError(
            "HR-PLAN-011",
            f"{method} cannot infer the columns of {_show(hint)}, which {title(fn)} returns",
            "Annotate the function with a dataclass, TypedDict or NamedTuple, "
            f'or pass {_word(method)}="name type, ...".',
        ) from error


def _returns(fn: Callable[..., Any], method: str) -> object:
    hint = fn if isinstance(fn, type) else _hints(fn).get("return")
    if hint is None:
        raise _missing(fn, method)
    return hint


def _missing(fn: object, method: str) -> PlanError:
    return PlanError(
        "HR-PLAN-011",
        f"{method} does not know what columns {title(fn)} returns",
        "Annotate the function's result (a dataclass, TypedDict, NamedTuple or plain "
        f'type), or pass {_word(method)}="name type, ...".',
    )


def _word(method: str) -> str:
    return "output" if method in _OUTPUT else "schema"


def _hints(fn: object) -> dict[str, Any]:
    try:
        return typing.get_type_hints(unwrapped(fn))
    except (TypeError, NameError):
        return {}


def _optional(hint: object) -> bool:
    return type(None) in typing.get_args(hint) or hint is type(None)


def _show(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)
