"""How a job's program travels to Spark's workers: once, in flight, never at rest.

The program is pickled by value once per query and unpickled once per worker process; each
task after that finds it by its digest. Nothing of this is ever written to a file of ours.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import cloudpickle

from headrace.runtime.bundle import Bundle


@dataclass(frozen=True)
class Cargo:
    """A bundle as bytes that every worker can open."""

    digest: str
    content: bytes

    @staticmethod
    def pack(bundle: Bundle, modules: tuple[ModuleType, ...]) -> Cargo:
        for module in modules:  # the user's script is not installed where the workers run
            cloudpickle.register_pickle_by_value(module)
        try:
            content = cloudpickle.dumps(bundle)
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)
        return Cargo(hashlib.sha256(content).hexdigest(), content)

    def open(self) -> Bundle:
        return _opened(self)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cargo) and other.digest == self.digest


@lru_cache(maxsize=4)
def _opened(cargo: Cargo) -> Bundle:
    bundle: Bundle = cloudpickle.loads(cargo.content)
    return bundle
