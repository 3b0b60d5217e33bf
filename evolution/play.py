"""One chain: versions of a program on one folder, crashes and new rows between them.

A start is made as `headrace plan` makes it and then for good; both must agree, what is refused
must have changed no byte, and every error must be one of ours. When all has run to the end, what
the outputs hold is compared with the model.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import headrace as hr
from evolution.build import build
from evolution.changes import change
from evolution.compare import compare, stored
from evolution.draw import Drawer
from evolution.judge import STARTS, judge
from evolution.kinds import OPEN, REFUSED
from evolution.lives import Begun
from evolution.places import ALL, BOUNDED, Places
from evolution.spec import Version
from headrace.driver.start import review
from headrace.driver.start_checks import Consent, refuse
from headrace.errors import HeadraceError
from headrace.state.faults import hooked
from headrace.testing import Driver

BATCH = 9
OTHER_PAST = "HR-EVOLVE-009"  # which only who reads the past rows again can know


class Killed(BaseException):
    """The process would be gone."""


@dataclass
class Result:
    """What one chain has shown."""

    seed: int
    starts: int = 0
    refused: int = 0
    crashes: int = 0
    records: int = 0
    violations: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    opened: int = 0  # verdicts that the guide leaves open
    points: list[str] = field(default_factory=list)  # where it was killed
    compared: Counter[str] = field(default_factory=Counter)  # steps, by kind
    unclear: int = 0  # steps of which the guide does not say what they must emit


class Chain:
    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        self.drawer, self.result = Drawer(self.random), Result(seed)
        self.inputs, self.printed = Places(root, self.random), io.StringIO()
        self.begun: list[Begun] = []
        self.places = set[tuple[str, str]]()
        self.number = 0

    def play(self) -> Result:
        try:
            self._play()
        finally:
            self.inputs.close()
        return self.result

    def _play(self) -> None:
        for kind, place in ALL:
            self.inputs.grow(kind, place, 12)
        version = self.drawer.first()
        if not self._version(version, STARTS, ""):
            return
        for _ in range(self.random.choice((1, 2, 3))):
            before = self.begun[-1].version.settled()
            self._append()
            after = change(self.drawer, before)
            verdict, rule = judge(before, after, self.places, stored(self.root, self.begun))
            if not list((self.root / "job" / "epochs").glob("0*.json")):
                verdict, rule = OPEN, "nothing was committed yet: all is new"
            if not self._version(after, verdict, rule) and self.random.random() < 0.5:
                self._append()
                self._version(before, STARTS, "the version before")
            if self.result.violations:
                return
        last = self.begun[-1].version.settled()
        if self._version(last, STARTS, "the last version", until="end"):
            compare(self.root, self.begun, self.inputs, self.printed.getvalue(), self.result)
            self._make_again(last)

    def _ended(self, verdict: str, rule: str) -> tuple[str, str]:
        """What was at its end may be refused: the model does not know what was closed there."""
        used = [b.version.inputs for b in self.begun]
        ended = any(all(i.kind in BOUNDED for i in inputs) for inputs in used)
        more = self.inputs.grown & {i.place for inputs in used for i in inputs}
        if verdict == STARTS and rule != "again" and (ended or more):
            return OPEN, "an input was at its end"
        return verdict, rule

    def _make_again(self, last: Version) -> None:
        """A topic that was deleted and made again, with the same records, is another one."""
        topics = [i.place for i in last.inputs if i.kind == "log"]
        if topics:
            self.inputs.make_again(topics[0])
            self._version(last, REFUSED, "a topic was made again", until="end")

    def _append(self) -> None:
        for kind, place in ALL:
            if kind not in BOUNDED:
                self.inputs.grow(kind, place, self.random.choice((0, 5, 10)))
            elif self.random.random() < 0.1:
                self.inputs.grow(kind, place, 4)
                self.inputs.grown.add(place)

    def _version(self, version: Version, verdict: str, rule: str, until: str | None = None) -> bool:
        """Start a version and let it run, perhaps into a crash; whether it started."""
        verdict, rule = self._ended(verdict, rule)
        self.result.opened += verdict == OPEN
        crash = self.random.randrange(1, 60) if until is None and self.random.random() < 0.6 else 0
        started = self._start(version, verdict, rule, until, crash)
        self._note(version, verdict, rule, started)
        if started == "killed":
            return self._again(version, until)
        return started == "ran"

    def _again(self, version: Version, until: str | None) -> bool:
        """A start that has crashed can be made again as it was."""
        started = self._start(version, STARTS, "again", until, 0)
        self._note(version, STARTS, "again", started)
        if started != "ran":
            self._wrong("a start that crashed cannot be repeated")
        return started == "ran"

    def _note(self, version: Version, verdict: str, rule: str, started: str) -> None:
        said = f"{version.changes} drop={version.drop} -> {verdict} {rule}"
        self.result.history.append(f"{self.number}: {said}: {started}")

    def _start(
        self, version: Version, verdict: str, rule: str, until: str | None, crash: int
    ) -> str:
        self.number += 1
        self.result.starts += 1
        self._heal()
        before = self._bytes()
        job = build(version, self.number, self.root, self.inputs)
        planned = self._tried(lambda: self._plan(job, version, until))
        if changed := self._changed(before):
            self._wrong(f"plan has changed {changed}")
        killer = _Killer(crash)
        driver: Driver | None = None

        def begin() -> None:
            nonlocal driver
            with hooked(killer), redirect_stdout(self.printed):
                driver = self._driver(job, version, until)

        try:
            refused = self._tried(begin)
        except Killed as killed:
            self._crashed(killed)
            if planned is not None or verdict == REFUSED:
                self._wrong(f"the start went on, and must be refused: {planned or rule}")
            return "killed"
        read = refused is not None and refused.code == OTHER_PAST and planned is None
        if str(planned) != str(refused) and not read:
            self._wrong(f"plan says {planned}\nand the start {refused}")
        if refused is not None:
            self.result.refused += 1
            if changed := self._changed(before):
                self._wrong(f"a refused start has changed {changed}: {refused}")
            if verdict == STARTS:
                self._wrong(f"refused, and must start: {refused}")
            return f"refused {refused.code}"
        assert driver is not None
        if verdict == REFUSED:  # what it would do now is nobody's promise
            self._wrong(f"started, and must be refused: {rule}")
            driver.close()
            return "started"
        self.places |= {(b.output.kind, b.output.place) for b in version.branches}
        self.begun.append(Begun(self.number, version, crashed=False))
        self._receive(driver, version, until)
        return self._run(driver, killer)

    def _receive(self, driver: Driver, version: Version, until: str | None) -> None:
        """Let the socket input store what is sent, so that crashes come after that."""
        for i in (x for x in version.inputs if x.kind == "socket"):
            assert self.inputs.server is not None
            self.inputs.server.listen_for(i.life, until == "end")
            self.inputs.server.receive(driver.start.bundle.sources[i.name])

    def _run(self, driver: Driver, killer: Callable[[str], None]) -> str:
        try:
            with hooked(killer), redirect_stdout(self.printed):
                failed = self._tried(driver.drain)
        except Killed as killed:
            self._crashed(killed)
            for source in driver.start.bundle.sources.values():
                source.close()  # a thread that receives would live on
            self.begun[-1] = replace(self.begun[-1], crashed=True)
            return "ran"
        if failed is not None:
            self._wrong(f"the run failed: {failed}")
        driver.close()
        return "ran"

    def _driver(self, job: hr.Job, version: Version, until: str | None) -> Driver:
        return Driver(job, self.root / "job", until=until, max_batch=BATCH, drop=version.drop)

    def _plan(self, job: hr.Job, version: Version, until: str | None) -> None:
        found = review(job.program(), str(self.root / "job"), until=until)
        refuse(found, Consent(version.drop, take_over=True, for_good=True, silent=True))

    def _tried(self, act: Callable[[], Any]) -> HeadraceError | None:
        try:
            act()
        except HeadraceError as error:
            if not error.hint or not error.code.startswith("HR-") or error.code.endswith("-000"):
                self._wrong(f"an error without code or hint: {error}")
            return error
        except Exception as error:
            self._wrong(f"a bare exception: {error!r}\n{traceback.format_exc()[-1500:]}")
            return HeadraceError("HR-000", repr(error))
        return None

    def _crashed(self, killed: Killed) -> None:
        self.result.crashes += 1
        self.result.points.append(str(killed))

    def _wrong(self, what: str) -> None:
        self.result.violations.append(f"start {self.number}: {what}")

    def _heal(self) -> None:
        """What a crash has left half written in a topic's head is healed by any reader of it."""
        log = hr.EmbeddedLog(str(self.root / "log"))
        for topic in log.topics():
            log.latest(topic)

    def _changed(self, before: dict[str, str]) -> list[str]:
        after = self._bytes()
        return sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))

    def _bytes(self) -> dict[str, str]:
        """Every file's content and every folder, in all places."""
        return {
            str(p): hashlib.md5(p.read_bytes()).hexdigest() if p.is_file() else ""
            for p in self.root.rglob("*")
        }


def play(seed: int) -> Result:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # syncs cost nothing there
    with tempfile.TemporaryDirectory(prefix="headrace-chain-", dir=memory) as name:
        return Chain(Path(name), seed).play()


class _Killer:
    """Raises at the n-th durable step."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, point: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed(point)
