"""Which records a task drops, as the driver has decided for the epoch.

The decision (`Split.shed`) is part of the epoch's offset, and nothing else goes into the rule but
the record's offset and priority: whoever reads the record again, in whatever range, does the same
with it.

The rule: a record is used if its number, from 0 up to 2**32, is below `keep`. The number is the
upper half of splitmix64(seed ^ offset), where the seed is the first eight bytes (little endian) of
the SHA-256 of the job, the input and the split, joined by null characters. Where the lowest are
dropped, records of a priority from `all` on have a `keep` of 2**32, those from `some` on that of
`keep`, and others that of `rest`; null is below every number. A used row weighs 2**32 / `keep`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.chunk import WEIGHT
from headrace.hashing import mixed
from headrace.kernel import Kernel, SelectStep, compile_chain
from headrace.ops.shedding import WHOLE
from headrace.plan.nodes import Read

_SAMPLE = 4_096  # priorities looked at in a chunk

Doubles = npt.NDArray[np.float64]
Chances = npt.NDArray[np.uint64]


def seed_of(job: str, input: str, split: str) -> int:
    digest = sha256("\0".join((job, input, split)).encode()).digest()
    return int.from_bytes(digest[:8], "little")


def numbers_of(seed: int, offsets: npt.NDArray[np.int64]) -> Chances:
    """The number of each record, from 0 up to 2**32."""
    return _hashes(seed, offsets) >> np.uint64(32)


def _hashes(seed: int, offsets: npt.NDArray[np.int64]) -> Chances:
    return mixed(offsets.astype(np.uint64) ^ np.uint64(seed))


class ShedRows:
    """Drops records of one split in one epoch; counts nothing."""

    def __init__(
        self, job: str, node: Read, split: str, decision: Mapping[str, Any] | None
    ) -> None:
        assert node.shed is not None
        self._node, self._decision = node, decision or {}
        self._seed = seed_of(job, node.name, split)
        self._seen: list[list[Any]] = []  # priorities, each with how many there are

    @property
    def by_priority(self) -> bool:
        return self._node.shed is not None and self._node.shed.priority is not None

    @property
    def priorities(self) -> list[list[Any]]:
        """Priorities of the records that were there, each with about how many have it."""
        return self._seen

    def before_decoding(
        self, chunk: pa.Table, offsets: npt.NDArray[np.int64]
    ) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """The records that are used, with their weight, where that goes by the offset alone."""
        if self.by_priority:
            return chunk, offsets
        keep = self._decision.get("keep", WHOLE)
        if keep < WHOLE:
            used = numbers_of(self._seed, offsets) < np.uint64(keep)
            chunk, offsets = chunk.filter(pa.array(used)), offsets[used]
        return self._weighed(chunk, np.full(len(offsets), WHOLE / keep)), offsets

    def by_rank(
        self, rows: pa.Table, ranks: Doubles, offsets: npt.NDArray[np.int64]
    ) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """The rows that are used, with their weight, by their priorities."""
        hashes = _hashes(self._seed, offsets)
        self._see(ranks, hashes)
        if not self._decision:
            return self._weighed(rows, np.ones(len(offsets))), offsets
        keep = chances(self._decision, ranks)
        used = (hashes >> np.uint64(32)) < keep
        rows, offsets, keep = rows.filter(pa.array(used)), offsets[used], keep[used]
        return self._weighed(rows, WHOLE / keep), offsets

    def ranks(self, rows: pa.Table) -> tuple[Doubles, dict[int, Any]]:
        """The priority of each row that has one, and why the others have none, by place."""
        found, failed = _priority_kernel(self._node).run(rows)
        column = pc.cast(found.column(0), pa.float64(), safe=False)
        ranks = pc.fill_null(column, -np.inf).to_numpy()
        ranks = np.where(np.isnan(ranks), -np.inf, np.minimum(ranks, np.finfo(np.float64).max))
        return ranks, dict(failed)

    def _weighed(self, rows: pa.Table, weights: Doubles) -> pa.Table:
        weighed = self._node.weight is not None
        return rows.append_column(WEIGHT, pa.array(weights)) if weighed else rows

    def _see(self, ranks: Doubles, hashes: Chances) -> None:
        """Take note of priorities: of a sample, by the lower half of the hash."""
        if not len(ranks):
            return
        share = max(1, len(ranks) // _SAMPLE)
        sample = ranks[(hashes & np.uint64(WHOLE - 1)) < np.uint64(WHOLE // share)]
        values, counts = np.unique(sample, return_counts=True)
        self._seen += [
            [None if np.isneginf(value) else value, count * share]
            for value, count in zip(values.tolist(), counts.tolist(), strict=True)
        ]


def chances(decision: Mapping[str, Any], ranks: Doubles) -> Chances:
    """`keep` of records with these priorities."""
    upper, lower = decision["all"], decision["some"]
    keep = np.full(len(ranks), decision["rest"], np.uint64)
    keep[ranks >= (-np.inf if lower is None else lower)] = decision["keep"]
    if upper is not None:
        keep[ranks >= upper] = WHOLE
    return keep


@lru_cache(maxsize=64)
def _priority_kernel(node: Read) -> Kernel:
    """The compiled priority of an input, once per process."""
    assert node.shed is not None
    columns = (("priority", node.shed.priority),)
    return compile_chain([SelectStep(columns=columns)], node.without_weight(node.schema))
