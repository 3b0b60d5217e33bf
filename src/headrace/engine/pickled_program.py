"""How a job's program travels to Spark's workers: once, in flight, never at rest.

The program is pickled by value once per query and unpickled once per worker process; each
task after that finds it by its digest. Nothing of this is ever written to a file of ours.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import cloudpickle

from headrace import import_path
from headrace.epoch.bundle import Bundle
from headrace.errors import is_users
from headrace.ops.watermarks import CustomWatermark
from headrace.plan.nodes import Chunks, Stateful


@dataclass(frozen=True)
class PickledBundle:
    """A bundle as bytes that every worker can open."""

    digest: str
    content: bytes
    folders: tuple[str, ...] = ()  # where the modules are that it names

    @staticmethod
    def pack(bundle: Bundle) -> PickledBundle:
        modules = _user_modules(bundle)
        for module in modules:  # the user's script is not installed where the workers run
            cloudpickle.register_pickle_by_value(module)
        try:
            content = cloudpickle.dumps(bundle)
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)
        return PickledBundle(
            hashlib.sha256(content).hexdigest(), content, tuple(import_path.users())
        )

    def open(self) -> Bundle:
        return _opened(self)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PickledBundle) and other.digest == self.digest


@lru_cache(maxsize=4)
def _opened(cargo: PickledBundle) -> Bundle:
    import_path.extend(cargo.folders)
    bundle: Bundle = cloudpickle.loads(cargo.content)
    return bundle


def _user_modules(bundle: Bundle) -> tuple[ModuleType, ...]:
    """The modules of the user's functions that are not installed packages."""
    program = bundle.program
    functions: list[Any] = [p.function.fn for p in program.python()]
    functions += [s.fn for s in bundle.sources.values() if hasattr(s, "fn")]
    watermarks = [r.watermark for r in program.sources()]
    functions += [w.kind for w in watermarks if isinstance(w, CustomWatermark)]
    for node in program.nodes.values():
        functions += node.what.functions if isinstance(node, Chunks | Stateful) else ()
    names = {getattr(f, "__module__", None) for f in functions}
    modules = [sys.modules[n] for n in names if n and n != "__main__" and n in sys.modules]
    return tuple(m for m in modules if _is_users(m))


def _is_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None) or ""
    installed = ("site-packages", "dist-packages")
    return bool(file) and is_users(file) and not any(place in file for place in installed)
