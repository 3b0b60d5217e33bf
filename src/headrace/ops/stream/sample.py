"""A share of the rows, chosen by where each came from: without state, and the same in a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.ops.contract import ChunkSpec
from headrace.ops.stream.places import place_hashes

_ALL = 2**64


@dataclass(frozen=True)
class Share(ChunkSpec):
    """About `fraction` of the rows."""

    fraction: float
    seed: int

    kind = "sample"

    def __str__(self) -> str:
        return f"{self.fraction:.6g} of the rows"

    @property
    def chosen_by(self) -> str:
        return f" by seed {self.seed}" if self.seed else ""

    def run(self, chunk: pa.Table, schema: pa.Schema) -> tuple[pa.Table, list[tuple[int, Any]]]:
        """The rows of a chunk that are taken; none fails."""
        limit = round(self.fraction * _ALL)
        if limit >= _ALL:
            return chunk, []
        taken = place_hashes(chunk, self.seed) < np.uint64(limit)
        return chunk.filter(pa.array(taken)), []
