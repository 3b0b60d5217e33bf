"""Tracing: a lambda is called once with columns instead of values, and becomes expressions.

Invariant: only what is sure to mean the same for every row is traced. A lambda that needs a
value, or that reads something which may change between rows, raises `Untraceable` with a
reason for people; it then runs as Python. Functions made with `def` are never traced.
"""

from __future__ import annotations

import builtins
import dataclasses
import datetime as dt
import decimal
import dis
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import types as pt

from headrace.errors import PlanError
from headrace.expr.expression import Expr, col, lit, parsed
from headrace.expr.lower import check, fields_of, unknown_column
from headrace.expr.operators import TRACING, Untraceable
from headrace.rows import row_class

_CONSTANTS = (type(None), bool, int, float, str, bytes, dt.date, dt.timedelta, decimal.Decimal)
_BUILTINS = (abs, dict, tuple, list, bool, int, float, str, bytes)  # they ask, and are refused


class TracedRow:
    """What a traced lambda sees as the row: its columns as attributes and items."""

    def __init__(self, columns: Mapping[str, Expr], schema: pa.Schema) -> None:
        object.__setattr__(self, "_columns", dict(columns))
        object.__setattr__(self, "_schema", schema)

    _columns: dict[str, Expr]
    _schema: pa.Schema

    def __getattr__(self, name: str) -> Expr:
        return self[name]

    def __getitem__(self, name: str | int) -> Expr:
        if isinstance(name, int):
            return list(self._columns.values())[name]
        if name not in self._columns:
            raise unknown_column(name, self._schema)
        return self._columns[name]

    def keys(self) -> list[str]:
        return list(self._columns)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self._columns.values())

    def __len__(self) -> int:
        return len(self._columns)

    def _replace(self, **changes: Any) -> TracedRow:
        for name in changes:
            self[name]
        columns = {n: changes.get(n, e) for n, e in self._columns.items()}
        return TracedRow(columns, self._schema)

    def _asdict(self) -> dict[str, Expr]:
        return dict(self._columns)

    def __setattr__(self, name: str, value: object) -> None:
        raise Untraceable(f"it assigns to the row's {name!r}")

    def _refuse(self, *_: object) -> NoReturn:
        raise Untraceable("it needs the row as a value: its text, its truth, or to compare it")

    __str__ = __repr__ = __format__ = __bool__ = __eq__ = __ne__ = __lt__ = __hash__ = _refuse
    __contains__ = __reversed__ = __reduce_ex__ = _refuse


def as_expr(spec: Any, schema: pa.Schema) -> Expr:
    """What `spec` means over `schema`: an Expr, a column's name, SQL text, a lambda or a literal.

    Raises PlanError HR-EXPR-001 to -004, and Untraceable for a function that has to run as
    Python.
    """
    if isinstance(spec, str):
        expr = col(spec) if spec in schema.names else parsed(spec)
    elif callable(spec) and not isinstance(spec, Expr):
        return trace(spec, schema)
    else:
        expr = spec if isinstance(spec, Expr) else lit(spec)
    check(expr, schema)
    return expr


def trace(fn: Callable[..., Any], schema: pa.Schema) -> Expr:
    """The expression that a lambda of one row computes."""
    result = _called(fn, schema)
    if isinstance(result, TracedRow | Mapping | tuple | list):
        raise Untraceable("it returns a whole row where one value is expected")
    expr = _as_value(result)
    _checked([expr], fn, schema)
    return expr


def trace_row(fn: Callable[..., Any], schema: pa.Schema) -> dict[str, Expr]:
    """The columns that a lambda of one row makes: from a dict, the row itself, a dataclass, a
    named tuple, or one value (its own name, else "value")."""
    result = _called(fn, schema)
    columns = {name: _as_value(value) for name, value in _fields(result).items()}
    if not columns:
        raise Untraceable("it returns a row without columns")
    _checked(columns.values(), fn, schema)
    return columns


def _fields(result: Any) -> Mapping[str, Any]:
    if isinstance(result, TracedRow):
        return result._asdict()
    if isinstance(result, Mapping):
        if all(isinstance(k, str) for k in result):
            return result
        raise Untraceable("it returns a dict whose keys are not all names")
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return dict(zip(result._fields, result, strict=True))
    if isinstance(result, Expr):
        return {result.name or "value": result}
    if isinstance(result, _CONSTANTS):
        return {"value": result}
    raise Untraceable(f"it returns a {type(result).__name__}")


def _as_value(result: Any) -> Expr:
    if isinstance(result, Expr):
        return result
    try:
        return lit(result)
    except PlanError:
        raise Untraceable(f"it returns a {type(result).__name__}") from None


def _checked(exprs: Iterable[Expr], fn: Callable[..., Any], schema: pa.Schema) -> None:
    """Types that do not meet in SQL may well meet in Python: then it runs there."""
    try:
        for expr in exprs:
            check(expr, schema)
    except PlanError as error:
        if error.code != "HR-EXPR-003" or _fails_in_python(fn, schema):
            raise
        raise Untraceable(error.message) from None


_SAMPLES: list[tuple[Callable[[pa.DataType], bool], Any]] = [
    (pt.is_boolean, True),
    (pt.is_integer, 1),
    (pt.is_floating, 1.0),
    (pt.is_string, "a"),
    (pt.is_binary, b"a"),
    (pt.is_timestamp, dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    (pt.is_date, dt.date(2024, 1, 1)),
    (pt.is_decimal, decimal.Decimal(1)),
    (pt.is_list, []),
]


def _fails_in_python(fn: Callable[..., Any], schema: pa.Schema) -> bool:
    """Whether Python, too, refuses the types: tried on one row of plain values."""
    values: list[Any] = [next((v for test, v in _SAMPLES if test(f.type)), {}) for f in schema]
    try:
        fn(row_class(tuple(schema.names))(*values))
    except (TypeError, AttributeError):
        return True
    except Exception:
        return False  # it works on other values, perhaps
    return False


def _called(fn: Callable[..., Any], schema: pa.Schema) -> Any:
    if not isinstance(fn, types.FunctionType) or fn.__name__ != "<lambda>":
        raise Untraceable("it is a function, not a lambda")
    if fn.__code__.co_argcount != 1 or fn.__code__.co_kwonlyargcount or fn.__code__.co_flags & 0xC:
        raise Untraceable("it does not take exactly one row")
    for name, value in _read(fn):
        _constant(name, value)
    token = TRACING.set(lambda expr: fields_of(expr, schema))
    try:
        return fn(TracedRow({n: col(n) for n in schema.names}, schema))
    except (Untraceable, PlanError):
        raise
    except Exception as error:
        raise Untraceable(f"it raised {type(error).__name__}: {error}") from None
    finally:
        TRACING.reset(token)


def _read(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What the lambda reads from outside: (name, value) of globals and closed-over variables."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    for code in _codes(fn.__code__):
        for step in dis.get_instructions(code):
            name = str(step.argval)
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                if name in fn.__globals__:
                    yield name, fn.__globals__[name]
                elif hasattr(builtins, name):
                    yield name, getattr(builtins, name)
            elif step.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF") and name in cells:
                yield name, cells[name].cell_contents
            elif step.opname in ("STORE_GLOBAL", "IMPORT_NAME", "YIELD_VALUE"):
                raise Untraceable("it has effects besides its value")
            elif step.opname == "IS_OP" or step.opname.endswith("_NONE"):
                raise Untraceable("it asks with `is` (use .is_null() on columns)")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)


def _constant(name: str, value: Any) -> None:
    """Refuse what may be another thing at the next row."""
    if isinstance(value, _CONSTANTS) or type(value) is Expr or _is_harmless(value):
        return
    if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] == "headrace":
        return
    if str(getattr(value, "__module__", "")).split(".")[0] == "headrace" or _is_plain_class(value):
        return
    if callable(value):
        raise Untraceable(f"it calls {name}(), which needs values")
    raise Untraceable(f"it reads {name!r}, which may change from row to row")


def _is_harmless(value: Any) -> bool:
    return any(value is builtin for builtin in _BUILTINS)


def _is_plain_class(value: Any) -> bool:
    if not isinstance(value, type):
        return False
    if dataclasses.is_dataclass(value):
        return not hasattr(value, "__post_init__")
    return issubclass(value, tuple) and hasattr(value, "_fields")
