"""Moments of a program's start, written to the file that STAMPS names, if it does."""

from __future__ import annotations

import importlib
import json
import os
import time
from pathlib import Path
from typing import Any

_MADE: dict[str, float] = {}


def stamp(name: str) -> None:
    """Note when `name` was over; the first time counts."""
    file = os.environ.get("STAMPS")
    if file and name not in _MADE:
        _MADE[name] = time.time()
        Path(file).write_text(json.dumps(_MADE))


def watch_jvm() -> None:
    """Note when the JVM is up, which is somewhere inside making the session."""
    if "STAMPS" not in os.environ:
        return
    context: Any = importlib.import_module("pyspark.core.context")
    launch = context.launch_gateway

    def launched(*args: Any, **options: Any) -> Any:
        gateway = launch(*args, **options)
        stamp("jvm")
        return gateway

    context.launch_gateway = launched
