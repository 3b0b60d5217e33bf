"""All tests in plain pytest processes, two at a time: those on Spark in one, since Spark starts
once, and the others by folder. Folders of few files share one: each process imports everything.
Those that mostly wait, for brokers, go on beside the two.

Prints the last line of each when it ends, all that a failed one printed, and at the end what
failed; what they print meanwhile is in build/tests, with their slowest tests, and the last line of
that is shown now and then. The exit code is 1 if any has failed. A test that waits for ever fails
after `timeout` (pyproject.toml); where that cannot end it, as in a library that does not return,
its group is ended.

Temporary folders are in memory where there is room: tests that look at what was written wait for
thousands of syncs of a disk otherwise, and none of them can tell the difference. Those of inputs
stay on the disk, whose files get the inode numbers of removed ones.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
PRINTED = ROOT / "build" / "tests"
AT_ONCE = 2  # processes
BESIDE = ("kafka",)
MUCH = 60_000  # characters of what a group printed; the file has all
PASSED, NONE_COLLECTED = 0, 5  # exit codes of pytest
LONGEST = ("sinks", "sources", "ops", "kafka", "windows", "joins", "streams", "others", "driver")
FEW = 6  # files of tests in a folder that shares its process
INSTALLED = "tests/test_installed.py"  # its environment is made once, for its tests on Spark too
MEMORY = Path("/dev/shm")
ROOM = 6 << 30  # bytes that must be free there; a group leaves some hundred MB
ON_DISK = ("sources",)
PATIENCE = 80 * 60  # seconds for all; at rest a machine of two cores takes two thirds of that
SILENCE = 5 * 60  # seconds without a group that ends, after which it is said what goes on
LAST_WORDS = 20  # seconds for a group to print where its threads are
OPTIONS = ("-q", "-p", "no:cacheprovider", "--durations=50")
Group = tuple[str, list[str]]  # a name, and arguments of pytest


def groups() -> Iterator[Group]:
    """Every test is in exactly one; those that take longest come first."""
    yield "on Spark", ["-m", "spark", f"--ignore={INSTALLED}"]
    yield "installed", [INSTALLED]
    folders = [d for d in TESTS.iterdir() if any(d.glob("test_*.py"))]
    found = {d.name: (len([*d.rglob("test_*.py")]), [str(d.relative_to(ROOT))]) for d in folders}
    top = sorted(str(file.relative_to(ROOT)) for file in TESTS.glob("test_*.py"))
    top.remove(INSTALLED)
    found["others"] = (len(top), top)
    small = sorted(name for name, (files, _) in found.items() if files < FEW)
    few = [found.pop(name) for name in small]
    found["small"] = (sum(files for files, _ in few), [place for _, (place,) in few])
    first = [name for name in LONGEST if name in found]
    then = sorted(found.keys() - first, key=lambda name: (-found[name][0], name))
    for name in (*first, *then):
        yield name, ["-m", "not spark", *found[name][1]]


@contextmanager
def environment(name: str) -> Iterator[dict[str, str]]:
    """Of a group's process, with a temporary folder of its own that is removed afterwards.

    Its name is short: sockets are made there, and their paths are limited.
    """
    with tempfile.TemporaryDirectory(
        prefix="hr", dir=MEMORY if name not in ON_DISK and _has_room() else None,
        ignore_cleanup_errors=True,
    ) as folder:  # fmt: skip
        os.chmod(folder, 0o711)  # a PostgreSQL that root starts is another user
        yield {**os.environ, "TMPDIR": folder}


def _has_room() -> bool:
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        return False
    may_run = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    return may_run and shutil.disk_usage(MEMORY).free >= ROOM


def run(group: Group, end: float) -> tuple[str, int, str]:
    """Its name, whether it passed, and what it printed; one that goes on at the end is ended."""
    name, arguments = group
    command = [sys.executable, "-m", "pytest", *OPTIONS, *arguments]
    path = _path(name)
    with path.open("wb") as file, environment(name) as env:
        running = subprocess.Popen(command, cwd=ROOT, env=env, stdout=file, stderr=file)
        try:
            code = running.wait(max(end - time.monotonic(), LAST_WORDS))
        except subprocess.TimeoutExpired:
            code = _end(running)
    return name, code, path.read_text(errors="replace")


def _path(name: str) -> Path:
    return PRINTED / f"{name.replace(' ', '-')}.log"


def _end(running: subprocess.Popen[bytes]) -> int:
    """Of a group that waits for ever: pytest prints its threads' stacks on this signal."""
    started = psutil.Process(running.pid).children(recursive=True)
    running.send_signal(signal.SIGABRT)
    try:
        return running.wait(LAST_WORDS)
    except subprocess.TimeoutExpired:
        running.kill()
        return running.wait()
    finally:
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def main() -> int:
    began, failed, failures = time.monotonic(), [], []
    PRINTED.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as two, ThreadPoolExecutor(1) as beside:
        waiting = {
            (beside if group[0] in BESIDE else two).submit(run, group, began + PATIENCE): group[0]
            for group in groups()
        }
        while waiting:
            ended, _ = wait(waiting, SILENCE, FIRST_COMPLETED)
            for future in ended:
                del waiting[future]
                name, code, printed = future.result()
                lines = printed.strip().splitlines() or ["nothing"]
                if code not in (PASSED, NONE_COLLECTED):
                    failed.append(name)
                    failures += [line for line in lines if line.startswith(("FAILED", "ERROR"))]
                    print(printed[-MUCH:], flush=True)
                print(f"{_clock(began)} {name:>12}: {lines[-1].strip('= ')}", flush=True)
            for future, name in waiting.items() if not ended else ():
                if future.running() and _path(name).exists():
                    at = _path(name).read_text(errors="replace").strip().splitlines()[-1:]
                    print(f"{_clock(began)} {name:>12}: at {''.join(at)}", flush=True)
    print(*failures, sep="\n", flush=True)
    verdict = f"failed: {', '.join(failed)}" if failed else "all passed"
    print(f"headrace: {verdict}, after {_clock(began)} (minutes:seconds)", flush=True)
    return 1 if failed else 0


def _clock(began: float) -> str:
    return "{:02.0f}:{:02.0f}".format(*divmod(time.monotonic() - began, 60))


if __name__ == "__main__":
    sys.exit(main())
