"""A driver that dies at some step of its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.look.in_process import Driver
from headrace.state.faults import hooked


class _Died(BaseException):
    pass


def dies(job: Any, folder: Path, step: int) -> bool:
    """Run a job, two records a batch, until its driver dies at this step; False if it ended."""
    passed = 0

    def die(name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == step:
            raise _Died

    driver = Driver(job, folder, max_batch=2)
    try:
        with hooked(die):
            driver.drain()
        return False
    except _Died:
        return True
    finally:
        driver.close()
