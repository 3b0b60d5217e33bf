"""Another process for tests: an interpreter that shares nothing with this one but files.

It has another working folder and another hash seed, as a task on another machine may. It is
started once and serves one call after the other, as the workers of a cluster do.
"""

from __future__ import annotations

import atexit
import io
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import cloudpickle

T = TypeVar("T")
_SERVE = "from headrace.testing.another_process import serve; serve()"
_children: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}  # by where modules are found


def in_another_process(function: Callable[..., T], *args: Any) -> T:
    """What `function(*args)` returns there; AssertionError with what it raises."""
    path = tuple(os.path.abspath(p) for p in sys.path)  # "" is this folder
    child = _children.get(path)
    if child is None or child.poll() is not None:
        _close()
        child = _children[path] = _started(path)
    assert child.stdin is not None and child.stdout is not None
    try:
        cloudpickle.dump((dict(os.environ), cloudpickle.dumps((function, args))), child.stdin)
        child.stdin.flush()
        good, answer = cloudpickle.load(child.stdout)
    except (OSError, EOFError) as cause:
        raise AssertionError(f"the other process ended: {child.wait()}") from cause
    if not good:
        raise AssertionError(
            f"it cannot be done in another process, as the tasks of a job are:\n{answer}"
        )
    result: T = cloudpickle.loads(answer)
    return result


def _started(path: tuple[str, ...]) -> subprocess.Popen[bytes]:
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": seed}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _SERVE],
        cwd=os.path.dirname(__file__),
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


@atexit.register
def _close() -> None:
    while _children:
        _, child = _children.popitem()
        child.terminate()
        child.communicate()


def serve() -> None:
    """In the other process: do what comes, until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed goes elsewhere
    with suppress(EOFError), io.BufferedReader(io.FileIO(0, closefd=False)) as requests:
        while True:
            environment, call = cloudpickle.load(requests)
            os.environ.clear()
            os.environ.update(environment)
            cloudpickle.dump(_answer(call), answers)
            answers.flush()


def _answer(call: bytes) -> tuple[bool, Any]:
    """Whether it was done, and what it returns; or what it raised."""
    try:
        function, args = cloudpickle.loads(call)
        return True, cloudpickle.dumps(function(*args))
    except BaseException:
        return False, traceback.format_exc()
