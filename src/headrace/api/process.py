"""Keyed process functions, as users import them; what they are is said in `ops/keyed.py`."""

from __future__ import annotations

from headrace.ops.keyed import Context, KeyedProcess, Value, value

__all__ = ["Context", "KeyedProcess", "Value", "value"]
