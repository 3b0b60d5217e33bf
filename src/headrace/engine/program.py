"""How a job's program travels to Spark's workers: once, in flight, never at rest.

The program is pickled by value once per query and unpickled once per worker process; each
task after that finds it by its digest. Nothing of this is ever written to a file of ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cloudpickle

from headrace.plan.program import Program
from headrace.sources import Source


@dataclass(frozen=True)
class Cargo:
    """A program and its opened sources, as bytes that every worker can open."""

    digest: str
    content: bytes

    @staticmethod
    def pack(program: Program, sources: Mapping[str, Source], modules: tuple[Any, ...]) -> Cargo:
        for module in modules:  # the user's script is not installed where the workers run
            cloudpickle.register_pickle_by_value(module)
        try:
            content = cloudpickle.dumps((program, dict(sources)))
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)
        return Cargo(hashlib.sha256(content).hexdigest(), content)

    def open(self) -> tuple[Program, dict[str, Source]]:
        return _opened(self)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cargo) and other.digest == self.digest


@lru_cache(maxsize=4)
def _opened(cargo: Cargo) -> tuple[Program, dict[str, Source]]:
    program, sources = cloudpickle.loads(cargo.content)
    return program, sources
