"""J: the start: from the command to the first row in the output of a small bounded job.

Cold: the files of Python, Java and both engines are put out of the page cache first. Warm:
right after. The programs are those in `bench/start`; the clock is that of the process that
starts them and looks for the first output file with a row in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import CACHE, ROOT, Shape, dataset
from bench.measure import OURS, THEIRS, Failed, Lab, Sample, environment
from bench.memory import watching
from bench.rows import AT_MOST, Row, seconds

LIMIT = 12.0  # seconds, warm and cold
ROWS = 10_000


def rows(lab: Lab) -> list[Row]:
    source = dataset(Shape("readings", 1, ROWS, keys=20, rate=50)).folder
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for rep in range(lab.pairs_of(3)):
        for who in (OURS, THEIRS) if rep % 2 == 0 else (THEIRS, OURS):
            for state in ("cold", "warm"):
                if state == "cold":
                    forget()
                stamps = start(lab, who, state, source)
                found.setdefault((who, state), []).append(stamps)
    return [row for state in ("cold", "warm") for row in _rows(state, found)]


def _rows(state: str, found: dict[tuple[str, str], list[dict[str, float]]]) -> Iterator[Row]:
    ours, theirs = (_middle(found[who, state]) for who in (OURS, THEIRS))
    yield Row(
        f"J {state}", f"{state} start to first output: {_phases(ours)}",
        seconds(ours["output"]), seconds(theirs["output"]), ours["output"], AT_MOST, LIMIT, "s",
    )  # fmt: skip


def _middle(runs: list[dict[str, float]]) -> dict[str, float]:
    """The run whose first output was in the middle."""
    middle = median(sorted(r["output"] for r in runs)[: len(runs) | 1])
    return min(runs, key=lambda r: abs(r["output"] - middle))


def _phases(stamps: dict[str, float]) -> str:
    """How long each phase took, up to the first output; a phase ends where it is named."""
    known = sorted((at, name) for name, at in stamps.items() if at <= stamps["output"])
    before, parts = 0.0, []
    for at, name in known:
        parts.append(f"{name} {at - before:.1f}")
        before = at
    return ", ".join(parts)


def start(lab: Lab, who: str, state: str, source: str) -> dict[str, float]:
    """Seconds from the command to the end of each phase."""
    place = CACHE / "work" / uuid.uuid4().hex[:12]
    place.mkdir(parents=True)
    load = os.getloadavg()[0]
    environ = {**environment(), "STAMPS": str(place / "stamps.json")}
    try:
        with (place / "log.txt").open("wb") as log:
            began = time.time()
            child = subprocess.Popen(
                [sys.executable, "-m", f"bench.start.{who}", source, str(place)],
                cwd=ROOT, env=environ, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
            with watching(child.pid) as watch:
                output = _first_output(child, place / "out")
                code = child.wait()
        if code or output is None:
            raise Failed(f"J: {who} failed\n{(place / 'log.txt').read_text()[-4000:]}")
        stamps = json.loads((place / "stamps.json").read_text())
    finally:
        shutil.rmtree(place, ignore_errors=True)
    found = {name: at - began for name, at in {**stamps, "output": output}.items()}
    sample = Sample(who, {"phases": found}, None, watch.rss, watch.pss, load, watch.others)
    lab.samples.setdefault(f"J {state}", []).append(sample)
    lab.say(f"  J {state:<12} {who:<7} {found['output']:6.1f} s   load {load:.1f}")
    return found


def _first_output(child: subprocess.Popen[bytes], folder: Path) -> float | None:
    """When the first file with a row in it was there."""
    empty: set[Path] = set()
    while True:
        over = child.poll() is not None
        for path in folder.glob("part-*.parquet"):
            if path not in empty:
                now = time.time()
                held = _rows_in(path)
                if held:
                    return now
                if held == 0:
                    empty.add(path)
        if over:
            return None
        time.sleep(0.01)


def _rows_in(path: Path) -> int | None:
    """None while it is being written."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return None


def forget() -> None:
    """Put the files of Python, Java and the packages out of the page cache."""
    homes = [Path(sys.prefix), Path(sys.base_prefix) / "lib", ROOT / "src", *_java()]
    for home in homes:
        for path in home.rglob("*"):
            if path.is_file() and not path.is_symlink():
                _drop(path)


def _java() -> list[Path]:
    java = shutil.which("java")
    return [Path(java).resolve().parent.parent] if java else []


def _drop(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
