"""What identifies things at rest, in manifests: texts and JSON that never change.

Renaming a class or improving a sentence must not make a job's state that of another step, so
what is stored is written out here and in `at_rest`, and pinned by tests/plan/test_at_rest.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.schema import ddl_type


class Identified:
    """A value whose text identifies state; what people read may differ from it one day."""

    __slots__ = ()

    def at_rest(self) -> str:
        """Its text in manifests."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.at_rest()


def described(schema: pa.Schema) -> list[list[str]]:
    """Columns and their types as plain JSON."""
    return [[f.name, ddl_type(f.type)] for f in schema]


def fingerprint_of(shape: Mapping[str, Any]) -> str:
    """A stable hash of plain JSON."""
    canonical = json.dumps(shape, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
