"""The conditions of patterns, by column: for each row one bit per expression.

Simple comparisons go straight to Arrow, all others are one compiled query. A row on which an
expression fails has the bits `BAD`; why it fails is asked for that row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import StepError
from headrace.expr import Expr, parsed
from headrace.kernel import SelectStep, compile_chain
from headrace.kernel.arrow import simple_mask

Bits = npt.NDArray[np.int64]
BAD = -1
WORD = 62  # bits of one number


class Conditions:
    def __init__(self, exprs: Sequence[Expr], schema: pa.Schema) -> None:
        self.words = max(-(-len(exprs) // WORD), 1)
        self._names, self._count = schema.names, len(exprs)
        masks = [simple_mask(expr.node, schema) for expr in exprs]
        self._simple = [(i, mask) for i, mask in enumerate(masks) if mask is not None]
        self._rest = [i for i, mask in enumerate(masks) if mask is None]
        columns = tuple((f"c{i}", exprs[i]) for i in self._rest)
        self._kernel = compile_chain([SelectStep(columns=columns)], schema) if columns else None

    def of(self, rows: pa.Table) -> list[Bits]:
        """The bits of each row, in as many numbers as it takes."""
        found = [np.zeros(rows.num_rows, np.int64) for _ in range(self.words)]
        table = rows.select(self._names)
        for i, mask in self._simple:
            _set(found, i, mask(table), slice(None))
        if self._kernel is not None:
            given, bad = self._kernel.run(table)
            good = np.ones(rows.num_rows, np.bool_)
            good[[row for row, _ in bad]] = False
            for i in self._rest:
                _set(found, i, given.column(f"c{i}"), good)
            found[0][~good] = BAD
        return found

    def reason(self, row: pa.Table) -> StepError:
        """Why an expression fails on this row."""
        assert self._kernel is not None
        _, bad = self._kernel.run(row.select(self._names))
        return StepError("HR-STEP-002", bad[0][1] if bad else "an expression fails on this row")


def _set(
    found: list[Bits], number: int, mask: pa.ChunkedArray | pa.Array, where: slice | np.ndarray
) -> None:
    true = np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
    found[number // WORD][where] |= true.astype(np.int64) << (number % WORD)


@lru_cache(maxsize=256)
def conditions(texts: tuple[str, ...], schema: pa.Schema) -> Conditions:
    """Compiled once per process."""
    return Conditions([parsed(text) for text in texts], schema)


def whole(words: Sequence[Bits]) -> list[int]:
    """The bits of each row as one number of any length."""
    first: list[int] = words[0].tolist()
    for place, word in enumerate(words[1:], 1):
        first = [a | b << (WORD * place) for a, b in zip(first, word.tolist(), strict=True)]
    return first
