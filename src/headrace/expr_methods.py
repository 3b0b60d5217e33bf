"""Attributes of an expression: methods for common functions, fields of a struct."""

from __future__ import annotations

from typing import Any

from headrace.expr import Expr


def attribute(expr: Expr, name: str) -> Any:
    raise AttributeError(name)
