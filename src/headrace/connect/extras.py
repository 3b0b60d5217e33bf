"""Libraries that are extras of the package: imported when they are needed, or refused by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headrace.errors import PlanError, call_site


def needed(module: str, extra: str, what: str) -> Any:
    """The module; a PlanError if it is not installed. `what` needs it."""
    try:
        return import_module(module)
    except ImportError as cause:
        raise PlanError(
            "HR-EXTRA-001",
            f"{what} needs {module.partition('.')[0]!r}, which is not installed",
            f"Install it, on every machine of the cluster: pip install 'headrace[{extra}]'.",
            site=call_site(),
        ) from cause
