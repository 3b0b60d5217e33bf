"""Chains of filters and projections, compiled once, run over Arrow chunks.

Invariant: the output has exactly the schema that `infer` announced, rows keep their order,
and columns whose name starts with "__" pass through untouched. One row's error never takes
the rest of the chunk with it: `Kernel.run` sets the bad rows aside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import StepError
from headrace.expr.lower import check_condition
from headrace.expr.types import UNREAD
from headrace.kernel import duckdb
from headrace.kernel.arrow import Mask, simple_mask
from headrace.kernel.sql import Chain, SelectStep, Step, sql_mask

Bad = list[tuple[int, str]]
_EXPLAINED = 50  # bad rows of a chunk that get a reason of their own


def compile_chain(steps: Sequence[Step], schema: pa.Schema) -> Kernel:
    """A kernel that runs `steps` one after another over chunks of `schema`."""
    return Kernel(tuple(SelectStep(s.where, s.columns) for s in steps), schema)


class Kernel:
    """A compiled chain. Calling it gives the whole result or a StepError.

    It may be pickled, and used from any process and thread: each prepares its own queries.
    """

    def __init__(self, steps: tuple[SelectStep, ...], schema: pa.Schema) -> None:
        self.steps = steps
        self.input = schema
        self._masks, rest = _front(steps, schema)
        self._chain = Chain(rest, schema)
        self.schema: pa.Schema = self._chain.schema

    def __reduce__(self) -> tuple[object, ...]:
        return (Kernel, (self.steps, self.input))

    def __call__(self, table: pa.Table) -> pa.Table:
        try:
            return self._run(table)
        except duckdb.Error as error:
            raise StepError("HR-STEP-002", plain(error)) from None

    def run(self, table: pa.Table) -> tuple[pa.Table, Bad]:
        """The result of the good rows, and (position in `table`, message) of each bad row."""
        try:
            return self._run(table), []
        except duckdb.Error:
            return self._apart(table)

    def _run(self, table: pa.Table) -> pa.Table:
        for mask in self._masks:
            table = _filtered(table, mask(table))
        return self._chain(table)

    def _apart(self, table: pa.Table) -> tuple[pa.Table, Bad]:
        """Ask for the rows that fail, explain each by running it alone, run the others."""
        rows = Chain(self.steps, self.input).failing(table)
        good = np.ones(table.num_rows, bool)
        good[rows] = False
        bad = [(int(row), self._reason(table.slice(row, 1), i)) for i, row in enumerate(rows)]
        return self(table.filter(pa.array(good))), bad

    def _reason(self, row: pa.Table, count: int) -> str:
        if count >= _EXPLAINED:
            return "an expression fails on this row"
        try:
            self._run(row)
        except duckdb.Error as error:
            return plain(error)
        return "an expression fails on this row"


def _front(
    steps: tuple[SelectStep, ...], schema: pa.Schema
) -> tuple[list[Mask], tuple[SelectStep, ...]]:
    """Leading filters as masks, and the steps that are left.

    Simple conditions need no SQL; and a chain that only filters needs none to carry its
    columns, so that SQL decides and Arrow picks the rows.
    """
    masks: list[Mask] = []
    only_filters = all(s.columns is None for s in steps)
    while steps and steps[0].where is not None:
        condition = steps[0].where
        check_condition(condition, schema)
        mask = simple_mask(condition.node, schema)
        if mask is None and not only_filters:
            break
        masks.append(mask or sql_mask(condition, schema))
        rest = SelectStep(columns=steps[0].columns)
        steps = steps[1:] if rest.columns is None else (rest, *steps[1:])
    return masks, steps


def _filtered(table: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    keeps_all = pc.all(mask, skip_nulls=False).as_py()
    return table if keeps_all else table.filter(mask)


# DuckDB's run-time errors in the user's words: lower case, one line, our names of types.


_TYPES = {
    "INT8": "tinyint", "INT16": "smallint", "INT32": "int", "INT64": "bigint",
    "BOOL": "boolean", "DOUBLE": "double", "FLOAT": "float", "VARCHAR": "string",
    "TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "int", "BIGINT": "bigint",
}  # fmt: skip
_RULES = [
    (r"^Python exception occurred while executing the UDF: \w+: ", ""),
    (r"^Could not convert string ['\"](.*)['\"] to ([A-Z0-9(), ]+)$", r"'\1' is not \2"),
    (r"^invalid (date|timestamp) field format: \"(.*?)\".*$", r"'\2' is not \1"),
    (r"^(date|timestamp) field value out of range: \"(.*?)\".*$", r"'\2' is not \1"),
    (r"^Type \w+ with value (\S+) can't be cast .* destination type (\w+).*$",
     r"\1 does not fit \2"),
    (r"^Overflow in (\w+) of \S+ \((.*)\).*$", r"overflow: \2"),
    (r"^Overflow (?:on|in) (.*)$", r"overflow: \1"),
]  # fmt: skip


def plain(error: Exception) -> str:
    """What went wrong, as one line for people."""
    text = str(error).split("\n")[0]
    if UNREAD * 2 in text:  # our own message
        return text.split(UNREAD * 2)[1].rpartition("' to ")[0]
    text = text.replace(UNREAD, "")
    text = re.sub(r"^[A-Z][A-Za-z ]*Error: ", "", text).rstrip("!. ")
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    for theirs, ours in _TYPES.items():
        text = re.sub(rf"\b{theirs}\b", ours, text)
    return text[:1].lower() + text[1:]
