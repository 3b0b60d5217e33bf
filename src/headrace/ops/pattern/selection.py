"""What is told of a match: its rows by name, columns made of them, or what a function gives.

A match as a row has the key, the pattern's name where there are several patterns, and a column
for each name: a struct, or a list of structs where a match can have several such rows. Columns
are expressions over that. Values only, and tables made of them; no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.expr import Expr, parsed
from headrace.kernel import Kernel, SelectStep, compile_chain
from headrace.ops.agg.groups import flat

PATTERN, ROWS, NAME = "pattern", "rows", "name"
Columns = tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """`whole` is a match as a row; of it `columns` are made, or `function` is called instead."""

    rows: pa.Schema  # of the input
    whole: pa.Schema
    output: pa.Schema
    columns: Columns | None = None
    function: Callable[[Any], Any] | None = None
    named: bool = False  # the function's rows get the pattern's name

    @property
    def given(self) -> pa.Schema:
        """The columns of the rows that the function gives."""
        return pa.schema([f for f in self.output if not (self.named and f.name == PATTERN)])


def whole_schema(
    keys: pa.Schema, rows: pa.Schema, parts: Mapping[str, bool] | None, named: bool
) -> pa.Schema:
    """A match as a row; `parts`: by name whether there can be several, None if not known."""
    said = [pa.field(PATTERN, pa.string())] if named else []
    struct = pa.struct([pa.field(f.name, f.type) for f in rows])
    if parts is None:
        return pa.schema([*keys, *said, pa.field(ROWS, pa.list_(_pairs(struct)))])
    fields = [pa.field(n, pa.list_(struct) if many else struct) for n, many in parts.items()]
    return pa.schema([*keys, *said, *fields])


def parts_of(groups: Iterable[Iterable[tuple[str, bool]]]) -> dict[str, bool]:
    """The names of several patterns, and whether any of them can have several such rows."""
    found: dict[str, bool] = {}
    for names in groups:
        for name, many in names:
            found[name] = found.get(name, False) or many
    return found


@dataclass(frozen=True, slots=True)
class Laid:
    """Matches laid end to end: for each of their rows the match, its name, where it is."""

    owner: np.ndarray
    names: np.ndarray  # of objects
    rows: pa.Table  # the rows themselves, in that order
    keys: pa.Table  # a row per match
    patterns: Sequence[str | None]  # None: a row that no pattern has taken

    def __len__(self) -> int:
        return len(self.patterns)


def whole_rows(laid: Laid, schema: pa.Schema, columns: pa.Schema) -> pa.Table:
    """The matches as rows of `schema`; `columns` are those of their rows."""
    structs = pa.StructArray.from_arrays(
        [flat(laid.rows.column(f.name)) for f in columns],
        fields=[pa.field(f.name, f.type) for f in columns],
    )
    generic = _pairs(structs.type)
    made = []
    for field in schema:
        if field.name in laid.keys.column_names:
            made.append(laid.keys.column(field.name))
        elif field.name == PATTERN and pa.types.is_string(field.type):
            made.append(pa.array(laid.patterns, pa.string()))
        elif field.name == ROWS and field.type == pa.list_(generic):
            made.append(_every(laid, structs))
        else:
            made.append(_part(laid, field, structs))
    return pa.table(made, schema=schema)


def _pairs(struct: pa.DataType) -> pa.DataType:
    """A row and the name it has in the match, for matches of patterns not known before."""
    return pa.struct([pa.field(NAME, pa.string()), pa.field("row", struct)])


def _every(laid: Laid, structs: pa.StructArray) -> pa.Array:
    names = pa.array(laid.names, pa.string())
    fields = [pa.field(NAME, pa.string()), pa.field("row", structs.type)]
    pairs = pa.StructArray.from_arrays([names, structs], fields=fields)
    return pa.ListArray.from_arrays(_offsets(laid.owner, len(laid)), pairs)


def _part(laid: Laid, field: pa.Field, structs: pa.StructArray) -> pa.Array:
    mine = np.flatnonzero(laid.names == field.name)
    owner = laid.owner[mine]
    if pa.types.is_list(field.type):
        return pa.ListArray.from_arrays(_offsets(owner, len(laid)), structs.take(pa.array(mine)))
    at = np.full(len(laid), -1, np.int64)
    at[owner] = mine
    return structs.take(pa.array(at, mask=at < 0))


def _offsets(owner: np.ndarray, count: int) -> pa.Array:
    sizes = np.bincount(owner, minlength=count)
    return pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))


@lru_cache(maxsize=64)
def kernel_of(texts: tuple[tuple[str, str], ...], schema: pa.Schema) -> Kernel:
    """The columns as a compiled projection, once per process."""
    columns = tuple((name, parsed(text)) for name, text in texts)
    return compile_chain([SelectStep(columns=columns)], schema)
