"""One chain: versions of a program on one folder, crashes and new rows between them.

A start is made as `headrace plan` makes it and then for good; both must agree, what is refused
must have changed no byte, and every error must be one of ours. When all has run to the end, what
the outputs hold is compared with the model.
"""

from __future__ import annotations

import hashlib
import json
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import headrace as hr
from evolution.build import ROW, build
from evolution.compare import Begun, compare, stored
from evolution.draw import KINDS, Drawer
from evolution.judge import OPEN, REFUSED, STARTS, judge
from evolution.spec import Version
from headrace.errors import HeadraceError
from headrace.runtime.refusing import Consent, refuse
from headrace.runtime.start import review
from headrace.state.faults import hooked
from headrace.testing import Driver

BATCH = 9


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


class Chain:
    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        self.drawer, self.result = Drawer(self.random), Result(seed)
        self.rows: dict[str, list[dict[str, Any]]] = {place: [] for _, place in KINDS}
        self.log = hr.EmbeddedLog(str(root / "log"))
        self.begun: list[Begun] = []
        self.places = set[tuple[str, str]]()
        self.number = 0

    def play(self) -> Result:
        self._prepare()
        version = self.drawer.first()
        if not self._version(version, STARTS, ""):
            return self.result
        for _ in range(self.random.choice((1, 2, 3))):
            before = self.begun[-1].version.settled()
            self._append()
            after = self.drawer.change(before)
            verdict, rule = judge(before, after, self.places, stored(self.root, self.begun))
            if not list((self.root / "job" / "epochs").glob("0*.json")):
                verdict, rule = OPEN, "nothing was committed yet: all is new"
            ended = any(all(i.kind == "rows" for i in b.version.inputs) for b in self.begun)
            if verdict == STARTS and ended:
                verdict, rule = OPEN, "all inputs were at their end"
            self.result.opened += verdict == OPEN
            if not self._version(after, verdict, rule) and self.random.random() < 0.5:
                self._append()
                self._version(before, STARTS, "the version before")
            if self.result.violations:
                return self.result
        last = self.begun[-1].version.settled()
        if self._version(last, STARTS, "the last version", until="end"):
            self.result.violations += compare(self.root, self.begun, self.rows, self.result)
            self._make_again(last)
        return self.result

    def _make_again(self, last: Version) -> None:
        """A topic that was deleted and made again, with the same records, is another one."""
        topics = [i.place for i in last.inputs if i.kind == "log"]
        if topics:
            self.log.delete(topics[0])
            self.log.create(topics[0], schema=ROW)
            self.log.append(topics[0], self.rows[topics[0]])
            self._version(last, REFUSED, "a topic was made again", until="end")

    def _prepare(self) -> None:
        for kind, place in KINDS:
            if kind == "log":
                self.log.create(place, schema=ROW)
            elif kind == "files":
                (self.root / "in" / place).mkdir(parents=True)
        for kind, place in KINDS:
            self._grow(kind, place, 12)

    def _append(self) -> None:
        for kind, place in KINDS:
            if kind != "rows":
                self._grow(kind, place, self.random.choice((0, 5, 10)))

    def _grow(self, kind: str, place: str, count: int) -> None:
        held, r = self.rows[place], self.random
        base = 1_000_000 * [p for _, p in KINDS].index(place)
        new = []
        for n in range(len(held), len(held) + count):
            at = (held + new)[-1]["at"] + r.choice((1000, 1000, 2000)) if held + new else 0
            new.append({"id": base + n, "k": r.choice("ab"), "p": r.choice("cd"),
                        "x": r.randrange(6), "y": r.randrange(5), "at": at,
                        "made": at + 60_000})  # fmt: skip
        held += new
        if not new:
            return
        if kind == "log":
            self.log.append(place, new)
        elif kind == "files":
            lines = "".join(json.dumps(row) + "\n" for row in new)
            files = sorted((self.root / "in" / place).iterdir())
            if files and r.random() < 0.5:  # of the newest file only: the order stays
                with files[-1].open("a") as file:
                    file.write(lines)
            else:
                (self.root / "in" / place / f"{len(held):06}.json").write_text(lines)

    def _version(self, version: Version, verdict: str, rule: str, until: str | None = None) -> bool:
        """Start a version and let it run, perhaps into a crash; whether it started."""
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
        job = build(version, self.number, self.root, self.rows)
        planned = self._tried(lambda: self._plan(job, version, until))
        if changed := self._changed(before):
            self._wrong(f"plan has changed {changed}")
        killer = _Killer(crash)
        driver: Driver | None = None

        def begin() -> None:
            nonlocal driver
            with hooked(killer):
                driver = self._driver(job, version, until)

        try:
            refused = self._tried(begin)
        except Killed as killed:
            self._crashed(killed)
            if planned is not None or verdict == REFUSED:
                self._wrong(f"the start went on, and must be refused: {planned or rule}")
            return "killed"
        if str(planned) != str(refused):
            self._wrong(f"plan says {planned}\nand the start {refused}")
        if refused is not None:
            self.result.refused += 1
            if changed := self._changed(before):
                self._wrong(f"a refused start has changed {changed}: {refused}")
            if verdict == STARTS:
                self._wrong(f"refused, and must start: {refused}")
            return f"refused {refused.code}"
        if verdict == REFUSED:
            self._wrong(f"started, and must be refused: {rule}")
        assert driver is not None
        self.places |= {(b.output.kind, b.output.place) for b in version.branches}
        self.begun.append(Begun(self.number, version, crashed=False))
        return self._run(driver, killer)

    def _run(self, driver: Driver, killer: Callable[[str], None]) -> str:
        try:
            with hooked(killer):
                failed = self._tried(driver.drain)
        except Killed as killed:
            self._crashed(killed)
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
        refuse(found, Consent(version.drop, take_over=True, for_good=True))

    def _tried(self, act: Callable[[], Any]) -> HeadraceError | None:
        try:
            act()
        except HeadraceError as error:
            if not error.hint or not error.code.startswith("HR-") or error.code.endswith("-000"):
                self._wrong(f"an error without code or hint: {error}")
            return error
        except Exception as error:
            self._wrong(f"a bare exception: {error!r}\n{traceback.format_exc()[-1500:]}")
            return HeadraceError(repr(error))
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


class _Killer:
    """Raises at the n-th durable step."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, point: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed(point)
