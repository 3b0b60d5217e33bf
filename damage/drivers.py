"""Two drivers of a whole job: the old one stopped anywhere, and let go after a newer took over.

Stopped means: at a crash point, or right after a look at the fence that found it unchanged, a
newer driver takes the folder and runs some epochs; then the old one goes on. It must fail as
fenced or do no harm; the newer one must not be stopped by it; and after one more start every
output is what the model says.

Points inside the log are left out: who is stopped there has the topic locked, and keeps the
newer one waiting, which then fails by name.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import headrace as hr
from damage.matrix import Crash
from damage.world import as_text, forget, small
from headrace.driver import commit
from headrace.errors import FencedError, HeadraceError
from headrace.state import faults
from headrace.state.epochs import EpochLog
from headrace.testing import Driver

ROWS, BATCH, KEYS = 200, 4, 3
EPOCHS = 4  # of the old driver
TOPICS = ("typed", "bytes")
BEFORE_THE_FENCE = ("fence.opened", "fence.written", "fence.synced")


class Pair:
    """A job with every kind of output on one folder, for two drivers."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder, self.more = root, root / "job", False
        log = self.log
        log.create("in", schema="k string, v bigint, at bigint")
        log.create("bytes")
        log.append("in", [{"k": f"k{i % KEYS}", "v": i, "at": i} for i in range(ROWS)])

    @property
    def log(self) -> hr.EmbeddedLog:
        return hr.EmbeddedLog(str(self.root / "log"))

    def job(self) -> hr.Job:
        job, log = hr.Job("pair", slots=1), str(self.root / "log")
        rows = job.read("log:in", log=log, name="in", time="at", delay="1s")
        rows.write(f"files:{self.root}/parquet", name="parquet")
        rows.write(f"files:{self.root}/json", format="json", name="json")
        rows.write("log:typed", log=log, key="k", partitions=2, name="typed")
        rows.write("log:bytes", log=log, name="bytes")
        sums = rows.key_by("k").agg(n=hr.count(), total=hr.sum("v"), unbounded=True, name="sum")
        sums.select("k", "n", "total").write("collect:", name="sums")
        if self.more:
            rows.write("collect:", name="more")
        return job

    def start(self, **options: Any) -> Driver:
        forget()
        return Driver(
            self.job(), self.folder, until=None, max_batch=BATCH, tasks=1, for_good=True,
            **options,
        )  # fmt: skip

    def run(self, epochs: int, **options: Any) -> None:
        driver = self.start(**options)
        for _ in range(epochs):
            driver.epoch()
        driver.close()

    def finish(self, **options: Any) -> None:
        forget()
        driver = Driver(
            self.job(), self.folder, until=None, max_batch=10 * ROWS, tasks=1, **options
        )
        driver.drain()
        driver.close()

    def outputs(self) -> dict[str, Counter[str]]:
        found = {name: hr.read_output(self.root / name) for name in ("parquet", "json")}
        found["sums"] = hr.collected(str(self.folder), "sums")
        rows = {name: Counter(map(as_text, t.to_pylist())) for name, t in found.items()}
        log = self.log
        typed = (t for p in log.latest("typed") for _, t in log.read("typed", p, 0))
        rows["typed"] = Counter(as_text(r) for t in typed for r in t.to_pylist())
        values = (v for _, t in log.read("bytes", 0, 0) for v in t["value"].to_pylist())
        rows["bytes"] = Counter(as_text(json.loads(v)) for v in values)
        return rows


def expected() -> dict[str, Counter[str]]:
    """By the rows alone."""
    rows = [{"k": f"k{i % KEYS}", "v": i, "at": i} for i in range(ROWS)]
    n, total, sums = Counter[str](), Counter[str](), list[dict[str, Any]]()
    for r in rows:
        key = str(r["k"])
        n[key] += 1
        total[key] += int(str(r["v"]))
        sums.append({"k": key, "n": n[key], "total": total[key]})
    plain = Counter(map(as_text, rows))
    return {
        **dict.fromkeys(("parquet", "json", *TOPICS), plain),
        "sums": Counter(map(as_text, sums)),
    }


def running(pair: Pair) -> dict[str, Any]:
    """The old driver runs epochs that merge and prune."""
    pair.run(4)
    return {}


def recovering(pair: Pair) -> dict[str, Any]:
    """Its start finds a manifest whose outputs were not published."""
    pair.run(3)

    def crash(name: str) -> None:
        if name == "commit.manifest":
            raise Crash

    driver = pair.start()
    try:
        with faults.hooked(crash):
            driver.epoch()
    except Crash:
        pass
    return {}


def adopting(pair: Pair) -> dict[str, Any]:
    """Its program has one more output than the folder knows of."""
    pair.run(4)
    pair.more = True
    return {}


def going_back(pair: Pair) -> dict[str, Any]:
    """Its folder was restored from a copy, and outputs are ahead."""
    pair.run(3)
    shutil.copytree(pair.folder, pair.root / "copy")
    pair.run(4)
    shutil.rmtree(pair.folder)
    shutil.copytree(pair.root / "copy", pair.folder)
    return {"go_back": True}


SCENES: dict[str, Callable[[Pair], dict[str, Any]]] = {
    "running": running, "recovering": recovering, "adopting": adopting, "going back": going_back,
}  # fmt: skip


@dataclass
class Found:
    cases: int = 0
    records: int = 0
    points: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        self.cases += other.cases
        self.records += other.records
        self.points += other.points
        self.violations += other.violations


class Old:
    """The old driver, in a thread: it waits at its n-th point until it is let go."""

    def __init__(self, pair: Pair, options: dict[str, Any], at: int | None) -> None:
        self._pair, self._options, self._at = pair, options, at
        self._stopped, self._go = threading.Event(), threading.Event()
        self.passed: list[str] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def run_until_stopped(self) -> None:
        self._thread.start()
        self._stopped.wait()

    def let_go(self) -> None:
        self._go.set()
        self._thread.join()

    def at_point(self, name: str) -> None:
        if threading.current_thread() is not self._thread or name.startswith("log."):
            return
        self.passed.append(name)
        if len(self.passed) == self._at:
            self._stopped.set()
            self._go.wait()

    def _run(self) -> None:
        try:
            self._pair.run(EPOCHS, **self._options)
        except BaseException as error:
            self.error = error
        finally:
            self._stopped.set()


@contextmanager
def watched(hook: Callable[[str], None]) -> Iterator[None]:
    """Every point, and every look at the fence that found it unchanged."""
    check = EpochLog.check_fence

    def checked(log: EpochLog, token: int) -> None:
        check(log, token)
        hook("fence.checked")

    with patch.object(EpochLog, "check_fence", checked), faults.hooked(hook):
        yield


def points(scene: str, root: Path) -> list[str]:
    """What the old driver passes when nobody disturbs it."""
    root.mkdir(parents=True)
    pair = Pair(root)
    old = Old(pair, SCENES[scene](pair), None)
    with watched(old.at_point):
        old.run_until_stopped()
        old.let_go()
    if old.error is not None:
        raise old.error
    return old.passed


@dataclass(frozen=True, slots=True)
class Case:
    scene: str
    at: int  # the point at which the old driver stops
    epochs: int  # of the newer one meanwhile
    halt: str | None = (
        None  # where the newer one is when the old one is let go; None: between epochs
    )


class Newer:
    """The driver that takes over; on its way it may let the old one go."""

    def __init__(self, case: Case, pair: Pair, old: Old, options: dict[str, Any]) -> None:
        self._case, self._old, self._let_go = case, old, False
        with faults.hooked(self._at_point):
            self._driver = pair.start(**options)
            for _ in range(case.epochs):
                self._driver.epoch()
            if case.halt is None:
                self._release()
            for _ in range(2):
                self._driver.epoch()
        self._release()
        self._driver.close()

    def _at_point(self, name: str) -> None:
        if threading.current_thread() is threading.main_thread() and name == self._case.halt:
            self._release()

    def _release(self) -> None:
        if not self._let_go:
            self._let_go = True
            self._old.let_go()


def judge(case: Case, root: Path, found: Found) -> None:
    root.mkdir(parents=True)
    pair = Pair(root)
    options = SCENES[case.scene](pair)
    old, wrong = Old(pair, options, case.at), list[str]()
    with watched(old.at_point):
        old.run_until_stopped()
        name = old.passed[-1]
        try:
            Newer(case, pair, old, options)
        except FencedError as error:
            if name not in BEFORE_THE_FENCE:  # else the old one has taken it after the newer
                wrong.append(f"the newer driver was stopped: {error}")
        except Exception as error:
            wrong.append(f"the newer driver failed: {type(error).__name__} {error}")
        finally:
            old.let_go()
    if not isinstance(old.error, HeadraceError | None):
        wrong.append(f"the old driver failed: {type(old.error).__name__} {old.error}")
    try:
        pair.finish(**({"go_back": True} if case.scene == "going back" else {}))
        wrong += differences(pair.outputs(), expected(), case.scene)
    except Exception as error:
        wrong.append(f"the next start failed: {type(error).__name__} {error}")
    found.cases += 1
    found.points[name] += 1
    found.records += sum(rows.total() for rows in expected().values())
    found.violations += [f"{case} {name}: {w}" for w in wrong]
    shutil.rmtree(root)


def judged(case: Case) -> Found:
    """One case by itself, in a folder of its own."""
    found = Found()
    with tiny(), tempfile.TemporaryDirectory() as name:
        judge(case, Path(name) / "two", found)
    return found


def undisturbed(scene: str) -> list[str]:
    with tiny(), tempfile.TemporaryDirectory() as name:
        return points(scene, Path(name) / "calm")


def differences(
    found: dict[str, Counter[str]], wanted: dict[str, Counter[str]], scene: str
) -> list[str]:
    """Topics get what is after the epoch gone back to once more, as the start says."""
    wrong = []
    for name, rows in wanted.items():
        lost, more = rows - found[name], found[name] - rows
        twice = scene == "going back" and name in TOPICS
        if lost or (
            more and not (twice and max(found[name].values()) == 2 and set(more) <= set(rows))
        ):
            wrong.append(f"{name} lacks {lost.total()}, has {more.total()} too many")
    return wrong


@contextmanager
def tiny() -> Iterator[None]:
    """Merging, tidying and pruning all the time."""
    with small(), patch.object(commit, "_TIDY_EVERY", 2), patch.dict(
        "os.environ", {"HEADRACE_KEEP_EPOCHS": "2"}
    ):  # fmt: skip
        yield


def cases(scene: str, passed: int) -> Iterator[Case]:
    """The old driver at each point, and the newer one anywhere between its start and much later."""
    for at in range(1, passed + 1):
        for epochs, halt in ((0, None), (0, "commit.checked"), (1, None), (1, "sink.publish"),
                             (20, None)):  # fmt: skip
            yield Case(scene, at, epochs, halt)
