"""Moments of a program's start, written to the file that STAMPS names, if it does."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MADE: dict[str, float] = {}


def stamp(name: str) -> None:
    """Note when `name` was over; the first time counts."""
    file = os.environ.get("STAMPS")
    if file and name not in _MADE:
        _MADE[name] = time.time()
        Path(file).write_text(json.dumps(_MADE))


def watch_spark() -> None:
    """Note when the JVM is up and when the session is there, whoever makes it."""
    if "STAMPS" not in os.environ:
        return
    context: Any = importlib.import_module("pyspark.core.context")
    context.launch_gateway = _stamped(context.launch_gateway, "jvm")
    builder: Any = importlib.import_module("pyspark.sql").SparkSession.Builder
    builder.getOrCreate = _stamped(builder.getOrCreate, "session")


def _stamped(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def called(*args: Any, **options: Any) -> Any:
        given = function(*args, **options)
        stamp(name)
        return given

    return called
