"""A match as a user's function sees it, and as a row: what a step emits of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import flat
from headrace.expr import Expr, parsed
from headrace.kernel import Kernel, SelectStep, compile_chain


class Match(Mapping[str, list[Any]]):
    """The rows that were matched: `match["large"][-1].amount`; a name without rows is empty."""

    __slots__ = ("_by_name", "_names", "key", "pattern", "rows")

    def __init__(
        self, pattern: str, key: Any, names: Sequence[str], rows: Sequence[tuple[str, Any]]
    ) -> None:
        self.pattern, self.key = pattern, key
        self.rows = rows  # (name, row) in order
        self._names = names
        self._by_name: dict[str, list[Any]] | None = None

    def __getitem__(self, name: str) -> list[Any]:
        if self._by_name is None:
            self._by_name = {n: [] for n in self._names}
            for part, row in self.rows:
                self._by_name[part].append(row)
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<Match {dict(self)}>"


# What is emitted of a match: its rows by name, columns computed from them, or what a function
# returns.
#
# A match as a row has the key, the pattern's name where there are several patterns, and a column
# for each name: a struct, or a list of structs where a match can have several such rows. Columns
# are expressions over that. Values only, and tables of them; no state.


PATTERN, ROWS, NAME = "pattern", "rows", "name"
Columns = tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """`whole` is a match as a row; `columns` are computed from it, or `function` is called."""

    rows: pa.Schema  # of the input
    whole: pa.Schema
    output: pa.Schema
    columns: Columns | None = None
    function: Callable[[Any], Any] | None = None
    named: bool = False  # the function's rows get the pattern's name

    @property
    def function_schema(self) -> pa.Schema:
        """The columns of the rows that the function returns."""
        return pa.schema([f for f in self.output if not (self.named and f.name == PATTERN)])


def whole_schema(
    keys: pa.Schema, rows: pa.Schema, parts: Mapping[str, bool] | None, named: bool
) -> pa.Schema:
    """A match as a row; `parts`: by name whether there can be several, None if unknown."""
    name_field = [pa.field(PATTERN, pa.string())] if named else []
    struct = pa.struct([pa.field(f.name, f.type) for f in rows])
    if parts is None:
        return pa.schema([*keys, *name_field, pa.field(ROWS, pa.list_(_pairs(struct)))])
    fields = [pa.field(n, pa.list_(struct) if several else struct) for n, several in parts.items()]
    return pa.schema([*keys, *name_field, *fields])


def parts_of(groups: Iterable[Iterable[tuple[str, bool]]]) -> dict[str, bool]:
    """The names of several patterns, and whether any of them can have several such rows."""
    parts: dict[str, bool] = {}
    for names in groups:
        for name, several in names:
            parts[name] = parts.get(name, False) or several
    return parts


@dataclass(frozen=True, slots=True)
class MatchRows:
    """Matches end to end: for each of their rows the match, its name, where it is."""

    owner: np.ndarray
    names: np.ndarray  # of objects
    rows: pa.Table  # the rows themselves, in that order
    keys: pa.Table  # a row per match
    patterns: Sequence[str | None]  # None: a row that is in no match yet

    def __len__(self) -> int:
        return len(self.patterns)


def whole_rows(matches: MatchRows, schema: pa.Schema, columns: pa.Schema) -> pa.Table:
    """The matches as rows of `schema`; `columns` are those of their rows."""
    structs = pa.StructArray.from_arrays(
        [flat(matches.rows.column(f.name)) for f in columns],
        fields=[pa.field(f.name, f.type) for f in columns],
    )
    generic = _pairs(structs.type)
    arrays = []
    for field in schema:
        if field.name in matches.keys.column_names:
            arrays.append(matches.keys.column(field.name))
        elif field.name == PATTERN and pa.types.is_string(field.type):
            arrays.append(pa.array(matches.patterns, pa.string()))
        elif field.name == ROWS and field.type == pa.list_(generic):
            arrays.append(_every(matches, structs))
        else:
            arrays.append(_part(matches, field, structs))
    return pa.table(arrays, schema=schema)


def _pairs(struct: pa.DataType) -> pa.DataType:
    """A row and its name in the match, for patterns that are not part of the program."""
    return pa.struct([pa.field(NAME, pa.string()), pa.field("row", struct)])


def _every(matches: MatchRows, structs: pa.StructArray) -> pa.Array:
    names = pa.array(matches.names, pa.string())
    fields = [pa.field(NAME, pa.string()), pa.field("row", structs.type)]
    pairs = pa.StructArray.from_arrays([names, structs], fields=fields)
    return pa.ListArray.from_arrays(_offsets(matches.owner, len(matches)), pairs)


def _part(matches: MatchRows, field: pa.Field, structs: pa.StructArray) -> pa.Array:
    own = np.flatnonzero(matches.names == field.name)
    owner = matches.owner[own]
    if pa.types.is_list(field.type):
        return pa.ListArray.from_arrays(_offsets(owner, len(matches)), structs.take(pa.array(own)))
    at = np.full(len(matches), -1, np.int64)
    at[owner] = own
    return structs.take(pa.array(at, mask=at < 0))


def _offsets(owner: np.ndarray, count: int) -> pa.Array:
    sizes = np.bincount(owner, minlength=count)
    return pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))


@lru_cache(maxsize=64)
def kernel_of(texts: tuple[tuple[str, str], ...], schema: pa.Schema) -> Kernel:
    """The columns as a compiled projection, once per process."""
    columns = tuple((name, parsed(text)) for name, text in texts)
    return compile_chain([SelectStep(columns=columns)], schema)
