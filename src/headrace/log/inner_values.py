"""What records hold inside their values: fields that a schema does not have, and JSON.

A value is stored unchanged, or refused: nothing inside is left out or turned to text.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import uuid
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from headrace.column_types import inside


def has_struct(kind: pa.DataType) -> bool:
    return pt.is_struct(kind) or any(has_struct(inner) for inner in inside(kind))


def extra_name(value: Any, kind: pa.DataType, path: str) -> str | None:
    """The first name in a Python value that `kind` does not have, as a path."""
    if value is None:
        return None
    if pt.is_struct(kind):
        items = _items(value)
        for name, inner in items:
            if kind.get_field_index(str(name)) < 0:
                return f"{path}.{name}"
            extra = extra_name(inner, kind.field(name).type, f"{path}.{name}")
            if extra:
                return extra
        return None
    if not has_struct(kind) or isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return None
    if pt.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return next((x for p in pairs if (x := extra_name(p[1], kind.item_type, path))), None)
    within = inside(kind)[0]
    return next((x for v in value if (x := extra_name(v, within, path))), None)


def _items(value: Any) -> list[tuple[Any, Any]]:
    """The names and values of what may be stored as a struct."""
    if isinstance(value, Mapping):
        return list(value.items())
    names: Iterable[str] = getattr(value, "_fields", ())
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    return [(name, getattr(value, name)) for name in names]


def json_of(record: Any) -> bytes:
    """A dictionary as JSON; ValueError or TypeError of what JSON does not have."""
    _check_keys(record)
    return json.dumps(record, default=_plain, ensure_ascii=False, allow_nan=False).encode()


def _check_keys(value: Any) -> None:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            texts = json.loads(json.dumps(dict.fromkeys(value)))
            if len(texts) < len(value):
                raise ValueError(f"two of the keys {list(value)!r} are the same text")
        for inner in value.values():
            _check_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner)


def _plain(value: Any) -> Any:
    """A value that JSON has, of one that it does not."""
    number = isinstance(value, np.bool_ | np.integer | np.floating)
    if number and not isinstance(value, np.timedelta64):  # which NumPy counts among them
        return value.item()
    if isinstance(value, Mapping | np.ndarray):
        plain = dict(value) if isinstance(value, Mapping) else value.tolist()
        _check_keys(plain)
        return plain
    if isinstance(value, dt.date | dt.time | np.datetime64 | Decimal | uuid.UUID):
        if value != value:
            raise ValueError(f"{value} is not a JSON value")
        return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)
    raise TypeError(f"{type(value).__name__} {value!r:.80} is not a JSON value")
