"""All tests in plain pytest processes, two at a time: those on Spark in one, since Spark starts
once, and the others by folder.

Prints the last line of each when it ends, and all that a failed one printed; what they print
meanwhile is in build/tests. The exit code is 1 if any has failed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
PRINTED = ROOT / "build" / "tests"
AT_ONCE = 2  # processes
PASSED, NONE_COLLECTED = 0, 5  # exit codes of pytest
Group = tuple[str, list[str]]  # a name, and arguments of pytest


def groups() -> Iterator[Group]:
    """Every test is in exactly one; those that take longest come first."""
    yield "on Spark", ["-m", "spark"]
    folders = [d for d in TESTS.iterdir() if any(d.glob("test_*.py"))]
    for folder in sorted(folders, key=lambda d: -len([*d.rglob("test_*.py")])):
        yield folder.name, ["-m", "not spark", str(folder.relative_to(ROOT))]
    top = sorted(str(file.relative_to(ROOT)) for file in TESTS.glob("test_*.py"))
    yield "others", ["-m", "not spark", *top]


def run(group: Group) -> tuple[str, int, str]:
    """Its name, whether it passed, and what it printed."""
    name, arguments = group
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    path = PRINTED / f"{name.replace(' ', '-')}.log"
    with path.open("wb") as file:
        ran = subprocess.run(command, cwd=ROOT, stdout=file, stderr=file, check=False)
    return name, ran.returncode, path.read_text(errors="replace")


def main() -> int:
    began, failed = time.monotonic(), []
    PRINTED.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for ended in as_completed([pool.submit(run, group) for group in groups()]):
            name, code, printed = ended.result()
            lines = printed.strip().splitlines() or ["nothing"]
            if code not in (PASSED, NONE_COLLECTED):
                failed.append(name)
                print(printed, flush=True)
            print(f"{name:>12}: {lines[-1].strip('= ')}", flush=True)
    minutes = (time.monotonic() - began) / 60
    verdict = f"failed: {', '.join(failed)}" if failed else "all passed"
    print(f"headrace: {verdict}, in {minutes:.0f} minutes", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
