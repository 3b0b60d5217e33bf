"""sample: so many rows drawn at random, each with the same chance, or with one by its weight.

Every row gets a random number from its place in the input (event time, split, offset), its key, the
names of the job and the step, and the seed: the rows with the smallest numbers are the sample. So a
replay draws the same rows, and a sample merged of partials is the sample of all rows, to the last
byte. With weights the number is exponential, divided by the weight (Efraimidis and Spirakis).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, doubles, flat, floats, integers, valid
from headrace.hashing import hash_keys, seed_of
from headrace.ops.agg.base import Arguments, UnsuitableType
from headrace.ops.agg.order import repeats
from headrace.ops.agg.ordered import lists_of
from headrace.ops.agg.plain import numeric
from headrace.ops.agg.span import stretches
from headrace.ops.sketch.base import Sketch
from headrace.ops.sketch.sizes import in_words

Draws = npt.NDArray[np.float64]
_FIRST, _LAST = np.finfo(np.float64).tiny, np.finfo(np.float64).max  # of those that are drawn


@dataclass(frozen=True)
class Drawn:
    """The sampled values of all rows, their random numbers, and where each row's begin."""

    values: pa.Array
    draws: Draws
    starts: Index
    sizes: Index


@dataclass(frozen=True)
class Reservoir(Sketch[Drawn]):
    k: int = 1
    seed: int = 0
    step: str = ""  # "job/step": two of them draw independently of each other

    ordered = True

    def words(self) -> list[str]:
        return [str(self.k), *([f"seed={self.seed}"] if self.seed else [])]

    def numbers(self) -> list[int | float] | None:
        return None

    def memory(self) -> int:
        return 16 * self.k

    def room(self) -> str:
        return f"{in_words(self.memory())} per key at most, of values of 8 bytes"

    def at_rest(self) -> dict[str, Any]:
        return {"format": 1, "k": self.k, "seed": self.seed}

    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        if pa.types.is_null(kind):
            raise UnsuitableType("a column")
        if not pa.types.is_null(by):
            numeric(by)
        return pa.list_(kind)

    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        return {"v": pa.list_(kind), "u": pa.list_(pa.float64())}

    def made(self, rows: Arguments, group: Index, groups: int) -> list[Column]:
        draws = self._draws(rows)
        chosen = np.flatnonzero(np.isfinite(draws))
        return self._best(flat(rows.column), draws, chosen, group[chosen], groups)

    def single(self, rows: Arguments) -> list[Column]:
        return self.made(rows, np.arange(rows.count), rows.count)

    def decoded(self, columns: Sequence[Column]) -> Drawn:
        values, draws = (flat(c).flatten() for c in columns)
        sizes = integers(pc.list_value_length(flat(columns[0])))
        return Drawn(values, floats(draws), np.cumsum(sizes) - sizes, sizes)

    def union(self, sketches: Drawn, rows: Index, group: Index, groups: int) -> list[Column]:
        sizes = sketches.sizes[rows]
        chosen = stretches(sketches.starts[rows], sizes)
        owner = np.repeat(group, sizes)
        return self._best(sketches.values, sketches.draws, chosen, owner, groups)

    def _best(
        self, values: pa.Array, draws: Draws, chosen: Index, group: Index, groups: int
    ) -> list[Column]:
        """The values with the smallest numbers of each group, in the order of these."""
        order = np.lexsort((draws[chosen], group))
        chosen, group = chosen[order], group[order]
        sizes = np.bincount(group, minlength=groups)
        place = np.arange(len(group)) - (np.cumsum(sizes) - sizes)[group]
        chosen, sizes = chosen[place < self.k], np.minimum(sizes, self.k)
        drawn = pa.array(draws[chosen])
        return [lists_of(values.take(pa.array(chosen)), sizes), lists_of(drawn, sizes)]

    def _draws(self, rows: Arguments) -> Draws:
        """The random number of each row; infinite for rows that cannot be drawn."""
        place = [integers(column) for column in (*rows.order.columns, rows.order.key)]
        seeds = np.full(rows.count, seed_of(self.seed, self.step))
        parts = [*place, repeats(place), seeds]
        bits = hash_keys([pa.array(part) for part in parts]) >> np.uint64(11)
        uniform = (bits.astype(np.float64) + 0.5) * 0.5**53
        present = valid(rows.column)
        if rows.by is None:
            return np.where(present, uniform, np.inf)
        weight = floats(doubles(rows.by))
        drawable = present & (weight > 0)
        slow = -np.log(uniform) / np.where(drawable, weight, 1.0)
        drawn = np.where(np.isinf(weight), uniform * _FIRST, np.minimum(slow, _LAST))
        return np.where(drawable, drawn, np.inf)

    def result(self, columns: Sequence[Column]) -> Column:
        return flat(columns[0])
