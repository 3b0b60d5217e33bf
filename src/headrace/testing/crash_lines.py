"""Crashes inside of an output's own code: before every line of it, and after every call it makes.

A crash is an exception that nobody catches; the object that was at work is gone with what it had
open. What counts as an output's code are the files of its class and of the classes it extends, and
whatever else is neither Headrace nor installed.
"""

from __future__ import annotations

import gc
import inspect
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from headrace.sinks import Sink
from headrace.testing.output_drivers import (
    ALONE,
    OutputCase,
    SimulatedCrash,
    agree,
    copied,
    expected,
    is_exact,
    made,
    stage,
)

_INSTALLED = tuple(
    {str(Path(p).resolve()) for p in sysconfig.get_paths().values()}
    | {p for p in sysconfig.get_paths().values()}
    | {str(Path(__file__).parents[1]), "<"}
)


class CrashPoints:
    """Counts the places in an output's code that a call passes; crashes at the n-th."""

    def __init__(self, sink: Sink, at: int | None = None) -> None:
        self.sink = sink
        self._files, self._at = _files_of(getattr(sink, "_output", sink)), at
        self._known: dict[str, bool] = {}
        self.passed: list[str] = []

    def run(self, call: Callable[[], object]) -> bool:
        """Whether the call came to its end."""
        traced, profiled = sys.gettrace(), sys.getprofile()
        try:
            sys.settrace(self._trace)
            sys.setprofile(self._profile)
            call()
        except SimulatedCrash as crash:
            sys.settrace(None)
            sys.setprofile(None)
            traceback.clear_frames(crash.__traceback__)  # a process that ends has nothing open
            return False
        finally:
            sys.settrace(traced)
            sys.setprofile(profiled)
        return True

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not self._is_ours(frame.f_code.co_filename):
            return None
        if event == "line":
            self._pass(frame)
        return self._trace

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_return" and self._is_ours(frame.f_code.co_filename):
            self._pass(frame)

    def _pass(self, frame: FrameType) -> None:
        self.passed.append(f"{frame.f_code.co_name}, line {frame.f_lineno}")
        if len(self.passed) == self._at:
            sys.setprofile(None)
            sys.settrace(None)
            raise SimulatedCrash(self.passed[-1])

    def _is_ours(self, file: str) -> bool:
        known = self._known.get(file)
        if known is None:
            known = self._known[file] = file in self._files or not file.startswith(_INSTALLED)
        return known


def crash_inside(case: OutputCase, at: int | None) -> list[str]:
    """Publish an epoch that crashes at the `at`-th place, restart, and compare; what was passed."""
    sink = made(case.open())
    sink.publish(0, stage(sink, 0), ALONE)
    staged = stage(sink, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # who crashes closes nothing
        gc.freeze()  # what was there before is not looked through: that takes a tenth of a second
        try:
            passed = _publish_once(case, staged, at)
            gc.collect()
        finally:
            gc.unfreeze()
    where = passed[-1] if passed else ""
    if is_exact(case):
        seen = case.rows()
        assert seen in (expected(1), expected(2)), f"a reader sees half an epoch after {where}"
    again = made(case.open())
    again.publish(1, staged, ALONE)
    try:
        agree(case, expected(2))
        again.publish(2, stage(again, 2), ALONE)
        agree(case, expected(3))
    except AssertionError as cause:
        raise AssertionError(f"rows are lost or doubled by a crash at {where}: {cause}") from cause
    return passed


def _publish_once(case: OutputCase, staged: list[dict[str, Any]], at: int | None) -> list[str]:
    """What is passed on the way; the object that publishes is gone afterwards."""
    sink = copied(case.open())
    points = CrashPoints(sink, at)
    points.run(lambda: sink.publish(1, staged, ALONE))
    return points.passed


def _files_of(output: object) -> set[str]:
    """The files of its class, and of those it extends that are no common base."""
    found = set()
    for kind in type(output).__mro__:
        common = kind.__module__ in ("headrace.sinks.contract", "headrace.sinks.own", "builtins")
        if not common:
            try:
                found.add(inspect.getfile(kind))
            except (TypeError, OSError):  # a class of a notebook, or of C
                continue
    return found
