"""Records that are shed: which, how many, what estimates are worth, and when none are.

The model is plain Python: it knows the rule as it is documented, and what each manifest says was
decided; from these it computes which records are used, with which weight.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.driver.dead_replay import letters_of
from headrace.driver.local_runner import run_tasks
from headrace.driver.offers import offered
from headrace.driver.planner import Pace, Planner
from headrace.epoch.values import Offset
from headrace.inspect.progress import account, progress_of, status_line
from headrace.state import faults
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest
from headrace.testing import Driver

SCHEMA = "n bigint, p int, at bigint"
FATES = ("used", "filtered", "late", "dead", "shed")
MASK = (1 << 64) - 1
BURSTS = (700, 2_900, 90, 5_000, 40)


def number(job: str, input: str, split: str, offset: int) -> int:
    """The number of a record, from 0 up to 2**32, as the guide describes it."""
    seed = int.from_bytes(sha256(f"{job}\0{input}\0{split}".encode()).digest()[:8], "little")
    x = ((seed ^ offset) + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return (x ^ (x >> 31)) >> 32


def keep_of(decision: dict[str, Any] | None, offset: int, priority: int | None) -> int:
    """How many of 2**32 numbers let a record of this offset and priority be used."""
    if decision is None:
        return 1 << 32
    if "before" in decision:
        return 0 if offset < decision["before"] else 1 << 32
    if "all" not in decision:
        return int(decision["keep"])
    rank = -math.inf if priority is None else priority
    if decision["all"] is not None and rank >= decision["all"]:
        return 1 << 32
    some = -math.inf if decision["some"] is None else decision["some"]
    return int(decision["keep"] if rank >= some else decision["rest"])


def row(n: int) -> dict[str, Any]:
    return {"n": n, "p": None if n % 11 == 0 else n * 7 % 13, "at": n}


@dataclass
class World:
    """A topic of two partitions to which rows come in bursts, and a job that reads it."""

    place: Path
    shed: Any
    name: str = "shedding"
    tasks: int = 2
    most: int = 500
    lean: bool = False  # a job without state
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000_000))
    parts: list[list[dict[str, Any]]] = field(default_factory=lambda: [[], []])
    manifests: list[Manifest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = hr.EmbeddedLog(str(self.place / "log"))
        if "in" not in self.log.topics():
            self.log.create("in", partitions=2, schema=SCHEMA)

    def job(self) -> hr.Job:
        job = hr.Job(self.name)
        rows = job.read(
            "log:in", log=str(self.place / "log"), name="rows", time="at", delay="1s",
            shed=self.shed,
        )  # fmt: skip
        rows.write("collect:", name="out")
        if self.lean:
            return job
        rows.select("n").where("n % 2 = 0").write("collect:", name="even")
        rows.key_by("p").agg(count=hr.count(), unbounded=True).write("collect:", name="counts")
        return job

    def start(self, **more: Any) -> Driver:
        return Driver(
            self.job(), self.place / "job", **{"until": None, "tasks": self.tasks,
            "max_batch": self.most, "clock": self.clock} | more,
        )  # fmt: skip

    def burst(self, rows: int) -> None:
        """As many rows come, three quarters of them to the first partition."""
        begin = sum(map(len, self.parts))
        for part, numbers in enumerate(([n for n in range(begin, begin + rows) if n % 4], [
            n for n in range(begin, begin + rows) if not n % 4])):  # fmt: skip
            if numbers:
                self.parts[part] += map(row, numbers)
                self.log.append("in", [row(n) for n in numbers], partition=part)

    def settle(self, driver: Driver) -> Driver:
        self.clock.advance(1_000)
        while driver.epoch() is not None:
            assert driver.manifest is not None
            self.manifests.append(driver.manifest)
            check_counts(driver.manifest)
        return driver

    def played(self, bursts: tuple[int, ...] = BURSTS) -> Driver:
        driver = self.start()
        for rows in bursts:
            self.burst(rows)
            self.settle(driver)
        driver.close()
        return driver

    def expected(self) -> dict[int, float]:
        """By the number of each row that is used: its weight."""
        used: dict[int, float] = {}
        for before, after in pairwise([Manifest(), *self.manifests]):
            begun = {s.name: s.at for s in before.splits}
            for split in after.splits:
                records = self.parts[int(split.name)]
                for offset in range(begun.get(split.name, 0), split.at):
                    one = records[offset]
                    keep = keep_of(split.shed, offset, one["p"])  # type: ignore[arg-type]
                    if number(self.name, "rows", split.name, offset) < keep:
                        used[one["n"]] = (1 << 32) / keep
        return used


def check_counts(manifest: Manifest) -> None:
    for counts in (*manifest.counts.values(), *manifest.epoch_counts.values()):
        assert counts["read"] == sum(counts.get(fate, 0) for fate in FATES)


def numbers(driver: Driver, name: str = "out") -> list[int]:
    return sorted(driver.output(name).column("n").to_pylist())


KINDS = {
    "random": hr.shedding.random(rows=800, weight="w"),
    "oldest": hr.shedding.oldest(rows=800),
    "lowest": hr.shedding.lowest("p", rows=800),
    "weighed": hr.shedding.lowest("p + 1", rows=800, weight="w"),
}


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_records_that_the_rule_says_are_used_and_all_are_counted(
    kind: str, tasks: int, tmp_path: Path
) -> None:
    shed = KINDS[kind] if kind != "weighed" else hr.shedding.lowest("p", rows=800, weight="w")
    world = World(tmp_path, shed, tasks=tasks)
    driver = world.played()
    used = world.expected()
    assert numbers(driver) == sorted(used)
    assert numbers(driver, "even") == sorted(n for n in used if n % 2 == 0)
    if shed.weight:
        found = {r["n"]: r["w"] for r in driver.output("out").to_pylist()}
        assert found == used
    assert driver.manifest is not None
    total = sum(BURSTS)
    counts = driver.manifest.counts["rows"]
    assert counts == {
        "read": total, "used": len(used), "filtered": 0, "late": 0, "dead": 0,
        "shed": total - len(used),
    }  # fmt: skip
    assert total // 10 < len(used) < total // 2
    assert max(m.lag for m in world.manifests) <= 800 + 2  # a row of each split more, by rounding


def test_decisions_do_not_depend_on_how_an_epoch_is_cut(tmp_path: Path) -> None:
    """Every epoch is done again from its offset as Spark has it, by other numbers of tasks."""
    world = World(tmp_path, KINDS["random"])
    driver = world.start()
    seen = 0
    for rows in BURSTS:
        world.burst(rows)
        bundle, log = driver.start.bundle, driver.start.log
        wide = Planner(bundle, log, world.clock, Pace(2, driver.start.slots, max_batch=500))
        begin, end = wide.start(), wide.advance(wide.start())
        again = Offset.from_json(json.loads(json.dumps(end.to_json())))
        assert again == end
        counts = []
        for tasks in (1, 2, 5):
            planner = Planner(bundle, log, world.clock, Pace(tasks, 8, max_batch=7))
            planner.start()
            reports = run_tasks(bundle, planner.tasks(begin, again))
            counted = Counter[str]()
            for report in reports:
                counted.update(report.inputs.get("rows", {}))
            counts.append(counted)
        assert counts[0] == counts[1] == counts[2]
        seen += counts[0]["shed"]
        world.settle(driver)
    assert seen > 4_000


class Crash(Exception):
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["oldest", "weighed"])
def test_a_crash_at_any_step_neither_loses_nor_doubles_a_record(kind: str, tmp_path: Path) -> None:
    passed: Counter[str] = Counter()
    bursts = (2_900,)
    with faults.hooked(lambda name: passed.update([name])):
        undisturbed = World(tmp_path / "undisturbed", KINDS[kind], lean=True).played(bursts)
    wanted = Counter(map(repr, undisturbed.output("out").to_pylist()))
    assert undisturbed.manifest is not None and undisturbed.manifest.counts["rows"]["shed"] > 500
    assert {"source.read", "commit.manifest", "sink.publish", "sink.stage"} <= set(passed)
    for name, times in sorted(passed.items()):
        if name.startswith("log."):  # of the appends that this test makes
            continue
        for nth in sorted({1, times} if kind == "weighed" else {times}):
            world = World(tmp_path / f"{name}-{nth}", KINDS[kind], lean=True)
            driver = _crashing(world, bursts, name, nth)
            assert driver.manifest is not None
            assert driver.manifest.counts == undisturbed.manifest.counts, (name, nth)
            found = Counter(map(repr, driver.output("out").to_pylist()))
            assert found == wanted, f"after a crash at {name}, passing {nth}"


def _crashing(world: World, bursts: tuple[int, ...], point: str, nth: int) -> Driver:
    passed: Counter[str] = Counter()

    def hook(name: str) -> None:
        passed.update([name])
        if name == point and passed[name] == nth:
            raise Crash(name)

    driver: Driver | None = None
    with faults.hooked(hook):
        for rows in bursts:
            world.burst(rows)
            world.clock.advance(1_000)
            while True:
                try:
                    driver = driver or world.start()
                    driver.drain()
                    break
                except Crash:
                    driver = None
    assert driver is not None
    driver.close()
    return driver


def test_nothing_is_shed_that_is_not_asked_for_or_does_not_wait(tmp_path: Path) -> None:
    world = World(tmp_path / "unasked", None)
    driver = world.played()
    assert numbers(driver) == list(range(sum(BURSTS)))
    assert driver.manifest is not None and "shed" not in driver.manifest.counts["rows"]
    assert progress_of(driver.manifest, {}).shed is None
    for kind, shed in KINDS.items():
        world = World(tmp_path / kind, shed)
        driver = world.played((500, 1_300, 700, 1_300))  # a batch, and as many as may wait
        assert numbers(driver) == list(range(3_800))
        assert driver.manifest is not None and driver.manifest.counts["rows"]["shed"] == 0
        assert all(s.shed is None for m in world.manifests for s in m.splits)


@pytest.mark.parametrize("until", ["now", "end"])
def test_a_run_that_ends_sheds_nothing(until: str, tmp_path: Path) -> None:
    world = World(tmp_path, KINDS["random"])
    world.burst(5_000)
    driver = world.start(until=until)
    driver.drain()
    assert numbers(driver) == list(range(5_000))


def test_the_watermark_goes_by_the_rows_that_are_used(tmp_path: Path) -> None:
    world = World(tmp_path, KINDS["oldest"])
    driver = world.start()
    world.burst(5_000)
    driver.epoch()
    assert driver.manifest is not None
    read = numbers(driver)
    by_part = {0: [n for n in read if n % 4], 1: [n for n in read if n % 4 == 0]}
    for split in driver.manifest.splits:
        newest = max(by_part[int(split.name)])
        assert split.watermark == newest - 1_000
    assert min(read) > 3_000


@pytest.mark.parametrize(
    "shed",
    [
        hr.shedding.random(rows=30_000, weight="w"),
        hr.shedding.lowest("p", rows=30_000, weight="w"),
    ],
    ids=lambda shed: shed.how,
)
def test_estimates_are_right_on_average(shed: Any, tmp_path: Path) -> None:
    """100 streams, a split each: the mean of the estimates is right within its standard error."""
    draw = random.Random(7)
    values = [draw.lognormvariate(3, 1) for _ in range(2_000)]
    ranks = [draw.randrange(5) for _ in values]

    def one(numbers: np.ndarray) -> dict[str, Any]:
        each = numbers // 100 % len(values)
        return {"s": numbers % 100, "v": np.array(values)[each], "p": np.array(ranks)[each]}

    clock, job = ManualClock(1_000_000), hr.Job("streams")
    source = hr.generate(
        100_000.0, one, schema="s bigint, v double, p bigint", splits=100, vectorised=True
    )
    read = job.read(source, name="rows", shed=shed)
    aggregates = {"plain": hr.count(), "n": hr.sum("w"), "total": hr.sum("v * w")}
    read.key_by("s").agg(**aggregates, unbounded=True).write("collect:", name="out")
    driver = Driver(job, tmp_path, until=None, clock=clock, max_batch=10_000, tasks=1)
    driver.drain()
    for ms in (200, 1_800):  # the first rows show which priorities there are
        clock.advance(ms)
        driver.drain()
    driver.close()
    last = {r["s"]: r for r in driver.output("out").to_pylist()}.values()
    assert driver.manifest is not None and driver.manifest.counts["rows"]["read"] == 200_000
    assert len(last) == 100 and fmean(r["plain"] for r in last) < 1_200
    for name, truth in (("n", len(values)), ("total", sum(values))):
        estimates = [r[name] for r in last]
        error = stdev(estimates) / math.sqrt(len(estimates))
        assert 0 < error < 0.05 * truth
        assert abs(fmean(estimates) - truth) < 3 * error


def test_a_changed_shed_is_no_change_of_state(tmp_path: Path) -> None:
    world = World(tmp_path, None)
    for shed in (None, *KINDS.values(), None):
        world.shed = shed
        driver = world.start()
        world.burst(2_500)
        world.settle(driver)
        driver.close()
    counted = Counter(numbers(driver))
    assert set(counted.values()) == {1}
    assert driver.manifest is not None
    counts = driver.manifest.counts["rows"]
    assert counts["read"] == 2_500 * 6 and counts["used"] == len(counted)
    assert counts["shed"] == counts["read"] - counts["used"] > 0
    latest = {r["p"]: r["count"] for r in driver.output("counts").to_pylist()}
    assert sum(latest.values()) <= len(counted)
    of_p = Counter(row(n)["p"] for n in counted)
    assert latest == {p: of_p[p] for p in latest} and len(latest) == 14


def test_a_bad_record_is_dead_with_its_weight(tmp_path: Path) -> None:
    """A letter that is replayed stands for as many records as it did."""
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("in")

    def start(schema: str) -> Driver:
        job = hr.Job("letters")
        shed = hr.shedding.random(rows=100, weight="w")
        rows = job.read(
            "log:in", log=str(tmp_path / "log"), schema=schema, format="json", name="rows",
            shed=shed,
        )  # fmt: skip
        rows.select("w", text="cast(n as string)").write("collect:", name="out")
        return Driver(job, tmp_path / "job", until=None, max_batch=100)

    log.append("in", [b'{"n": "x"}' if n % 2 else b'{"n": "%d"}' % n for n in range(2_000)])
    driver = start("n bigint")
    driver.drain()
    driver.close()
    assert driver.manifest is not None
    counts = driver.manifest.counts["rows"]
    check_counts(driver.manifest)
    assert counts["read"] == 2_000 and counts["shed"] > 1_000
    letters = letters_of(EpochLog(tmp_path / "job")).open()
    assert letters.num_rows == counts["dead"] > 20
    before = driver.output("out").num_rows
    hr.replay_dead(tmp_path / "job")
    driver = start("n string")
    driver.drain()
    rows = driver.output("out").to_pylist()
    assert len(rows) == before + counts["dead"]
    texts = [r["w"] for r in rows if r["text"] == "x"]
    assert len(texts) == counts["dead"] and min(texts) == 1.0 and max(texts) > 2
    assert abs(sum(texts) - 1_000) < 500


def test_what_is_shed_is_shown(tmp_path: Path) -> None:
    world = World(tmp_path, KINDS["random"])
    driver = world.played((3_000,))
    assert driver.manifest is not None
    progress = progress_of(driver.manifest, {})
    shed = driver.manifest.counts["rows"]["shed"]
    assert progress.total["shed"] == progress.shed == shed > 0
    assert account(progress)[0].endswith(f"+ dead 0 + shed {shed:,}")
    assert f"shed {shed}" in status_line(progress, 0, 0)
    (warning,) = progress.warnings
    assert f"{shed:,} of 3,000 records" in warning
    bundle = driver.start.bundle
    offers = str(offered(bundle.program, bundle.sources, bundle.sinks))
    assert "records may be shed, as asked: random beyond 800 records, weight w" in offers
    assert offers.startswith("if it is killed: exactly once")


def row_stream(job: hr.Job, **more: Any) -> hr.Stream:
    source = hr.generate(10.0, row, schema=SCHEMA)
    return job.read(source, name="rows", time="at", delay="1s", shed=RANDOM, **more)


RANDOM = hr.shedding.random(lag="30s")


@pytest.mark.parametrize(
    ("build", "code", "part"),
    [
        (lambda j: j.read(hr.rows([{"n": 1}]), shed=RANDOM).write("console:"), "003", "an end"),
        (lambda j: row_stream(j, align="5s").write("console:"), "006", "aligned"),
        (
            lambda j: j.read(
                hr.generate(1.0, row, schema=SCHEMA), time="at", name="rows",
                watermark=hr.watermarks.punctuated("n = 1"), shed=RANDOM,
            ).write("console:"),
            "006", "single records",
        ),
        (
            lambda j: row_stream(j).table("n", unbounded=True).changes().write("console:"),
            "006", "as a table",
        ),
        (
            lambda j: j.read(
                hr.generate(1.0, lambda i: {"change": "+"}, schema="change string"),
                name="rows", shed=RANDOM,
            ).write("console:"),
            "006", "changes of other rows",
        ),
        (
            lambda j: j.read(
                hr.generate(1.0, row, schema=SCHEMA), shed=hr.shedding.random(rows=1, weight="n")
            ).write("console:"),
            "004", "'n'",
        ),
        (
            lambda j: j.read(
                hr.generate(1.0, row, schema=SCHEMA), shed=hr.shedding.lowest("'a'", rows=1)
            ).write("console:"),
            "005", "of type string",
        ),
        (
            lambda j: j.read(
                hr.generate(1.0, row, schema=SCHEMA), shed=hr.shedding.lowest("q", rows=1)
            ).write("console:"),
            None, "'q'",
        ),
        (
            lambda j: j.read(hr.generate(1.0, row, schema=SCHEMA), shed="random").write("console:"),
            "002", "'random'",
        ),
        (lambda j: hr.shedding.random(), "001", "when"),
        (lambda j: hr.shedding.oldest(lag="0s"), "001", "lag"),
        (lambda j: hr.shedding.oldest(rows=0), "001", "rows"),
        (lambda j: hr.shedding.random("1s", weight="a b"), "001", "weight"),
    ],
)  # fmt: skip
def test_it_is_refused_where_it_makes_no_sense(build: Any, code: str | None, part: str) -> None:
    job = hr.Job("refused")
    with pytest.raises(hr.PlanError, match=part) as caught:
        build(job)
        job.check()
    assert code is None or f"HR-SHED-{code}" in str(caught.value)


def test_a_table_of_results_may_rest_on_rows_that_are_shed() -> None:
    job = hr.Job("results")
    counts = row_stream(job).key_by("p").window(hr.tumbling("5s")).agg(n=hr.count())
    counts.table("p", unbounded=True).changes().write("console:")
    job.check()
