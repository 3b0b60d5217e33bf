"""An example over everything its generator sends: in this process, or on Spark as its users do.

Here it is loaded from its file, as `headrace run` does it, and the records are cut into small
batches; on Spark it is `python -m examples.<name>`. Both stay in the folder with the outputs.
"""

from __future__ import annotations

import contextlib
import io
import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from examples.data.playing import Running, fill

import headrace as hr
from headrace.cli.loading import load_job
from headrace.clock import ManualClock
from headrace.testing import Driver

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLACES = ["here", pytest.param("spark", marks=pytest.mark.spark)]


@contextlib.contextmanager
def played(
    request: Any,
    folders: pytest.TempPathFactory,
    name: str,
    max_batch: int,
    during: Callable[[Running], None] | None = None,
    **env: str,
) -> Iterator[str]:
    """Play it where the fixture's parameter says; what it printed.

    `during` is what the example does while it runs; on Spark it does so by itself.
    """
    place, printed = folders.mktemp(name), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.chdir(place)
        patch.setenv("HEADRACE_LOG", str(place / "log"))
        for variable, value in env.items():
            patch.setenv(variable, value)
        if request.param == "spark":
            request.getfixturevalue("spark")
            runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        else:
            _here(name, max_batch, during)
        yield printed.getvalue()


@dataclass(frozen=True)
class Here:
    """A job that goes on in this process, as a `Running`; its clock moves when it rests."""

    job: hr.Job
    max_batch: int
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_800_000_000_000))

    def catch_up(self, until: str | None = None) -> Any:
        driver = Driver(self.job, "job", until=until, max_batch=self.max_batch, clock=self.clock)
        try:
            return driver.drain()
        finally:
            driver.close()

    def state(self, step: str) -> hr.StepState:
        return hr.peek(self.job, step, folder="job")

    def rest(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1_000))


def _here(name: str, max_batch: int, during: Callable[[Running], None] | None) -> None:
    data = import_module(f"examples.data.{name}")
    fill(data.topics())
    here = Here(load_job(EXAMPLES / f"{name}.py"), max_batch)
    if during is not None:
        during(here)
    last = here.catch_up(until="end")
    assert last is not None and last.ended and last.epoch > 3
    data.report(last)
