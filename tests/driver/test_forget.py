"""One key erased from a job: nothing of it is left anywhere, and all other keys go on as before."""

from __future__ import annotations

import decimal
import fcntl
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError, StateError
from headrace.files import close_lock, take_lock
from headrace.log import lock
from headrace.state import faults
from headrace.state.epochs import EpochLog
from headrace.testing import Driver
from tests.driver.forgetting import (
    build,
    build_small,
    occurrences,
    outputs,
    send,
    small_outputs,
    without,
)

GONE = "carl-333"
EVERY = 1 if "HEADRACE_EXAMPLES" in os.environ else 9  # of the points at which one may die


def run(root: Path, make: Callable[[Path], hr.Job] = build, folder: str = "job") -> Driver:
    driver = Driver(make(root), root / folder, max_batch=40, until=None)
    driver.drain()
    driver.close()
    return driver


def undisturbed(root: Path, make: Any = build, found: Any = outputs) -> dict[str, list[str]]:
    """The outputs of a job that never forgets, without the rows of the key."""
    money = make is build
    send(root, 0, 80, money=money)
    run(root, make)
    send(root, 80, 120, without=GONE, money=money)
    run(root, make)
    return without(found(root), GONE)


def test_nothing_is_left_of_it_and_other_keys_go_on_as_before(tmp_path):
    expected = undisturbed(tmp_path / "undisturbed")
    root = tmp_path / "here"
    send(root, 0, 80)
    run(root)
    hr.create_savepoint(root / "job", "before")
    assert len(occurrences(root, GONE)) > 50

    would = hr.forget(root / "job", {"person": GONE}, dry_run=True)
    report = hr.forget(root / "job", {"person": GONE})

    assert occurrences(root, GONE) == []
    assert report.gone and report.remaining == [] and report.erased == would.erased
    what = {one.what.split("/")[0] for one in report.erased}
    steps = ("summed", "visits", "joined", "running", "tallies", "pairs", "once", "raw_counts")
    topics = {f"topic {name}" for name in ("moves", "paid", "raw", "copied")}
    assert what == {*(f"state of step {s}" for s in steps), *topics, "dead letters", "output "}
    assert sum(report.looked.values()) > 50

    shutil.copytree(root, tmp_path / "copy")
    send(root, 80, 120, without=GONE)
    run(root)
    assert outputs(root) == expected

    again = hr.forget(root / "job", {"person": GONE})
    assert again.count == 0 and again.gone and "nothing found" in str(again)
    assert outputs(root) == expected


def test_neither_a_savepoint_nor_a_rewind_brings_it_back(tmp_path):
    expected = undisturbed(tmp_path / "undisturbed", build_small, small_outputs)
    root = tmp_path / "here"
    send(root, 0, 80, money=False)
    run(root, build_small)
    hr.create_savepoint(root / "job", "before", 3)
    hr.forget(root / "job", {"person": GONE})

    hr.restore_savepoint(root / "job", "before", job="people", to=root / "other")
    assert occurrences(root, GONE) == []

    send(root, 80, 120, without=GONE, money=False)
    hr.plan_rewind(build_small(root), to_epoch=4, keep=["copied"], folder=str(root / "job")).apply()
    run(root, build_small)
    assert occurrences(root, GONE) == []
    found = small_outputs(root)
    copied, once = Counter(found.pop("copied")), Counter(expected.pop("copied"))
    assert found == expected
    assert copied >= once and set(copied) == set(once)  # what a topic keeps comes twice


class Crash(Exception):
    pass


# A crash leaves files open, and the interpreter says so when it collects them.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_crash_at_any_step_leaves_a_job_that_goes_on_and_a_second_try_finishes(tmp_path, cuts):
    expected = undisturbed(tmp_path / "undisturbed", build_small, small_outputs)
    origin = tmp_path / "origin"
    passed: Counter[str] = Counter()
    for number, (name, nth) in enumerate([("", 0), *_points(origin, passed)]):
        if number % EVERY or (cuts and number % (5 * EVERY)):
            continue
        _fresh(origin)
        if name:
            _crash_at(origin, name, nth)
            send(origin, 80, 120, without=GONE, money=False)
            run(origin, build_small)
            assert without(small_outputs(origin), GONE) == expected, f"at {name}, passing {nth}"
        report = hr.forget(origin / "job", {"person": GONE})
        assert report.gone and occurrences(origin, GONE) == [], f"at {name}, passing {nth}"
        if name:
            assert small_outputs(origin) == expected, f"at {name}, passing {nth}"


def _fresh(root: Path) -> None:
    """A job with an epoch that is committed and not published: it was killed."""
    shutil.rmtree(root, ignore_errors=True)
    if not (kept := root.with_name("kept")).exists():
        send(root, 0, 80, money=False)
        with pytest.raises(Crash):
            _with_crash("commit.manifest", 3, lambda: run(root, build_small))
        shutil.copytree(root, kept)
        shutil.rmtree(root)
    shutil.copytree(kept, root)


def _points(root: Path, passed: Counter[str]) -> list[tuple[str, int]]:
    _fresh(root)
    with faults.hooked(lambda name: passed.update([name])):
        hr.forget(root / "job", {"person": GONE})
    steps = {
        "forget.published", "forget.written", "manifest.rewritten", "forget.named",
        "forget.removed", "sink.erase.written", "sink.erase.installed", "forget.output",
        "log.erase.noted", "log.erase.written", "log.erase.counts", "forget.topic",
    }  # fmt: skip
    assert steps <= set(passed)
    return [(name, nth) for name, n in sorted(passed.items()) for nth in sorted({1, n})]


def _crash_at(root: Path, name: str, nth: int) -> None:
    with pytest.raises(Crash):
        _with_crash(name, nth, lambda: hr.forget(root / "job", {"person": GONE}))


def _with_crash(point: str, nth: int, work: Callable[[], Any]) -> None:
    passed: Counter[str] = Counter()

    def hook(name: str) -> None:
        passed.update([name])
        if name == point and passed[name] == nth:
            raise Crash(name)

    with faults.hooked(hook):
        work()


def test_a_job_that_runs_is_refused(tmp_path):
    send(tmp_path, 0, 40, money=False)
    driver = Driver(build_small(tmp_path), tmp_path / "job", until=None)
    driver.drain()
    with pytest.raises(StateError) as refused:
        hr.forget(tmp_path / "job", {"person": GONE})
    assert refused.value.code == "HR-FORGET-001"
    driver.close()
    assert hr.forget(tmp_path / "job", {"person": GONE}).gone


def test_an_output_of_which_nothing_is_left_is_not_taken_for_lost(tmp_path):
    """The last epochs that an output got were all of the key: their files are gone."""
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("t", schema="person string, n bigint")

    def job() -> hr.Job:
        job = hr.Job("lonely")
        rows = job.read("log:t", log=str(tmp_path / "log"), name="t")
        rows.write(f"files:{tmp_path}/out", name="out", format="parquet")
        rows.write(f"files:{tmp_path}/by", partition_by="person", format="csv", name="by")
        return job

    for n, person in enumerate(["anna", "anna", GONE, GONE]):
        log.append("t", [{"person": person, "n": n}])
        run(tmp_path, lambda _: job())
    hr.create_savepoint(tmp_path / "job", "mark")
    assert hr.forget(tmp_path / "job", {"person": GONE}).gone
    assert occurrences(tmp_path, GONE) == []

    log.append("t", [{"person": "anna", "n": 4}])
    run(tmp_path, lambda _: job())
    for name in ("out", "by"):
        rows = hr.read_output(str(tmp_path / name)).to_pylist()
        assert sorted(r["n"] for r in rows) == [0, 1, 4]
    hr.plan_rewind(job(), to_epoch=3, folder=str(tmp_path / "job")).apply()
    run(tmp_path, lambda _: job())
    for name in ("out", "by"):
        rows = hr.read_output(str(tmp_path / name)).to_pylist()
        assert sorted(r["n"] for r in rows) == [0, 1, 4]
    assert hr.forget(tmp_path / "job", {"person": "anna"}).gone  # and then nothing at all is left
    assert hr.read_output(str(tmp_path / "out")).num_rows == 0
    log.append("t", [{"person": "bert", "n": 5}])
    run(tmp_path, lambda _: job())
    assert hr.read_output(str(tmp_path / "by")).to_pylist() == [{"person": "bert", "n": 5}]


def test_where_it_is_part_of_another_keys_row_it_is_said_and_stays(tmp_path):
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("t", schema="person string, shop string, n bigint")
    rows = [{"person": p, "shop": "s", "n": n} for n, p in enumerate(["anna-1", GONE, "bert-22"])]
    log.append("t", rows)

    def job() -> hr.Job:
        job = hr.Job("shops")
        read = job.read("log:t", log=str(tmp_path / "log"), name="t")
        who = read.key_by("shop").agg(who=hr.collect("person"), name="who", unbounded=True)
        who.select("shop", "who").write("collect:", name="who out")
        return job

    run(tmp_path, lambda _: job())
    report = hr.forget(tmp_path / "job", {"person": GONE})

    assert not report.gone and [e.what for e in report.erased] == ["topic t"]
    where = "\n".join(one.where for one in report.remaining)
    assert "state of step 'who', partials, column who__v" in where and "column who" in where
    assert "still occurs 1 times in" in str(report)
    assert hr.collected(str(tmp_path / "job"), "who out").num_rows == 3


@pytest.mark.parametrize(
    ("type", "values", "key"),
    [
        ("bigint", [1_000_001, 7], 7),
        ("bigint", [7, 1_000_001], "1000001"),
        ("date", ["2024-03-01", "2024-03-02"], "2024-03-02"),
        ("decimal(10,2)", ["1.50", "2.25"], "2.25"),
        ("boolean", [True, False], False),
        ("binary", [b"ab", b"\xff\x00z"], b"\xff\x00z"),
        ("string", ["north", "northern"], "north"),
        ("string", ["a", 'quo"ted ü'], 'quo"ted ü'),
    ],
)
def test_keys_of_all_types(tmp_path, type, values, key):
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("t", schema=f"k {type}, n bigint")
    log.append("t", [{"k": value, "n": n % 2} for n, value in enumerate(values * 3)])

    def job() -> hr.Job:
        job = hr.Job("typed")
        read = job.read("log:t", log=str(tmp_path / "log"), name="t")
        counted = read.key_by("k").agg(n=hr.count(), name="counted", unbounded=True)
        counted.write("collect:", name="o")
        return job

    run(tmp_path, lambda _: job())
    before = hr.collected(str(tmp_path / "job"), "o").to_pylist()
    report = hr.forget(tmp_path / "job", {"k": key})
    assert report.gone and {e.what.split("/")[0] for e in report.erased} == {
        "state of step counted", "output ", "topic t"
    }  # fmt: skip
    left = hr.collected(str(tmp_path / "job"), "o").to_pylist()
    assert 0 < len(left) < len(before) and {str(r["k"]) for r in left} != {str(key)}
    assert sum(len(t) for _, t in log.read("t", 0, 0)) == 3
    assert len(hr.peek(job(), "counted", folder=str(tmp_path / "job"))) == 1


@pytest.mark.parametrize(
    ("type", "values", "key"),
    [
        ("decimal(10,2)", ["12.50", "7.25"], "12.5"),
        ("decimal(10,2)", [12.5, "7.25"], decimal.Decimal("12.50")),
        ("timestamp", ["2026-03-01T12:00:00+02:00", "2026-03-02T10:00:00Z"], "2026-03-01 10:00:00"),
        ("boolean", [True, False], "True"),
        ("bigint", ["7", 8], "07"),
    ],
)
def test_records_of_json_are_of_the_key_however_they_spell_it(tmp_path, type, values, key):
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("t")
    log.append("t", [json.dumps({"k": value, "n": 0}).encode() for value in values])
    log.append("t", [json.dumps({"k": value, "n": 1}).encode() for value in values])

    def job(keyed: bool) -> hr.Job:
        job = hr.Job("spelled")
        read = job.read("log:t", log=str(tmp_path / "log"), schema=f"k {type}, n bigint", name="t")
        read.select(x="1 / n").write("collect:", name="none has the type of the key")
        read.map(lambda row: {}["x"], schema="x int", name="fails").write("collect:", name="o")
        if keyed:
            read.key_by("k").agg(n=hr.count(), name="counted", unbounded=True).write("collect:")
        return job

    run(tmp_path, lambda _: job(True))
    assert hr.forget(tmp_path / "job", {"k": key}).gone
    left = [json.loads(v)["k"] for _, t in log.read("t", 0, 0) for v in t["value"].to_pylist()]
    assert left == [values[1]] * 2
    dead = hr.read_output(str(tmp_path / "job" / "dead")).to_pylist()
    assert {letter["offset"] % 2 for letter in dead} == {1}


def test_where_the_records_of_other_keys_hold_it_in_another_spelling_it_is_said(tmp_path):
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("t")
    inner = {"k": "2026-03-01T12:00:00+02:00"}
    log.append("t", [json.dumps({"k": "2026-03-02T10:00:00Z", "inner": inner}).encode()])

    def job() -> hr.Job:
        job = hr.Job("spelled")
        read = job.read("log:t", log=str(tmp_path / "log"), schema="k timestamp", name="t")
        read.key_by("k").agg(n=hr.count(), name="counted", unbounded=True).write("collect:")
        return job

    run(tmp_path, lambda _: job())
    report = hr.forget(tmp_path / "job", {"k": "2026-03-01 10:00:00"})
    assert ["topic 't'" in one.where for one in report.remaining] == [True]


def test_a_key_of_several_columns_is_searched_for_within_structs_and_records(tmp_path):
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("t")
    rows = [{"shop": n % 2, "ship": {"country": c}} for n in range(4) for c in ("FI", "DE")]
    log.append("t", [json.dumps(row).encode() for row in rows])

    def job() -> hr.Job:
        job = hr.Job("nested")
        read = job.read("log:t", log=str(tmp_path / "log"), name="t",
                        schema="shop int, ship struct<country: string>")  # fmt: skip
        read.write(f"files:{tmp_path}/out", name="out")
        by = read.with_columns(country="ship.country").key_by("shop", "country")
        by.agg(n=hr.count(), name="counted", unbounded=True).write("collect:", name="counts")
        return job

    run(tmp_path, lambda _: job())
    report = hr.forget(tmp_path / "job", {"shop": 1, "country": "FI"})
    assert [e.what.split("/")[0] for e in report.erased] == ["state of step counted", "output "]
    assert [(r.where, r.count) for r in report.remaining] == [
        (f"output '{tmp_path}/out', column shop and country", 2),
        ("topic 't', column shop and country", 2),
    ]


def test_null_is_nobody(tmp_path):
    send(tmp_path, 0, 40, money=False)
    run(tmp_path, build_small)
    with pytest.raises(StateError) as refused:
        hr.forget(tmp_path / "job", {"person": None})
    assert refused.value.code == "HR-FORGET-005"


def test_keys_of_several_columns_and_without_a_column(tmp_path):
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("t", schema="area string, day bigint")
    log.append("t", [{"area": a, "day": d} for a in ("north", "south") for d in (1, 2)])

    def job(*keys: str) -> hr.Job:
        job = hr.Job("days")
        read = job.read("log:t", log=str(tmp_path / "log"), name="t")
        for key in keys:
            read.key_by(*key.split()).agg(n=hr.count(), name=key, unbounded=True).write(
                "collect:", name=f"{key} out"
            )
        return job

    run(tmp_path, lambda _: job("area day", "area"))
    folder = tmp_path / "job"
    with pytest.raises(StateError, match="keyed by area, day") as refused:
        hr.forget(folder, "north")
    assert refused.value.code == "HR-FORGET-002"
    with pytest.raises(StateError, match="keyed by 'aera'") as refused:
        hr.forget(folder, {"aera": "north"})
    assert refused.value.code == "HR-FORGET-003" and "'area'" in str(refused.value)

    report = hr.forget(folder, {"area": "north", "day": 2})
    assert report.gone
    assert hr.collected(str(folder), "area day out").num_rows == 3
    left = [r for _, t in log.read("t", 0, 0) for r in t.to_pylist()]
    assert [(r["area"], r["day"]) for r in left] == [("north", 1), ("south", 1), ("south", 2)]
    assert len(hr.peek(job("area"), "area", folder=str(folder))) == 2  # not keyed by the day

    run(tmp_path / "second", lambda _: job("area"))
    assert hr.forget(tmp_path / "second" / "job", "north").gone


def test_places_of_others_are_named_with_what_to_do_there(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"person": "carl-333", "n": 1}\n')

    def job(_: Path) -> hr.Job:
        job = hr.Job("others")
        rows = job.read(f"files:{tmp_path}/in/*.json", schema="person string, n bigint", name="in")
        rows.write(f"sql:sqlite:{tmp_path}/d.db", table="people", name="db")
        rows.write("console:", name="shown")
        return job

    run(tmp_path, job)
    report = hr.forget(tmp_path / "job", {"person": GONE})
    said = {one.what: one.statement for one in report.others}
    assert said.keys() == {"input in", "output db", "output shown"}
    assert "DELETE FROM people WHERE person = 'carl-333'" in said["output db"]
    assert "which are yours" in said["input in"]
    assert all(statement in str(report) for statement in said.values())


def test_a_job_that_has_gone_back_and_not_told_its_outputs_is_started_first(tmp_path):
    send(tmp_path, 0, 80, money=False)
    run(tmp_path, build_small)

    def plan() -> Any:
        job = build_small(tmp_path)
        return hr.plan_rewind(job, to_epoch=2, keep=["copied"], folder=str(tmp_path / "job"))

    before = plan()
    with pytest.raises(Crash):
        _with_crash("commit.checked", 1, plan().apply)
    assert hr.forget(tmp_path / "job", {"person": GONE}).gone  # it has not gone back yet
    with pytest.raises(StateError):
        before.apply()  # of files that are not there any more
    with pytest.raises(Crash):
        _with_crash("manifest.durable", 1, plan().apply)
    with pytest.raises(HeadraceError) as refused:
        hr.forget(tmp_path / "job", {"person": "anna-1"})
    assert refused.value.code == "HR-FORGET-004"


def test_a_forget_between_the_look_and_the_fence_of_a_start(tmp_path, monkeypatch):
    """The start has read manifests that name files which are gone now: it looks again."""
    send(tmp_path, 0, 80, money=False)
    run(tmp_path, build_small)
    take, calls = EpochLog.take_fence, list[str]()

    def take_late(log: EpochLog) -> int:
        if not calls:
            calls.append("forget")
            assert hr.forget(tmp_path / "job", {"person": GONE}).gone
        return take(log)

    monkeypatch.setattr(EpochLog, "take_fence", take_late)
    send(tmp_path, 80, 120, without=GONE, money=False)
    run(tmp_path, build_small)
    assert calls == ["forget"] and occurrences(tmp_path, GONE) == []
    monkeypatch.undo()
    expected = undisturbed(tmp_path / "undisturbed", build_small, small_outputs)
    assert small_outputs(tmp_path) == expected


def test_nobody_takes_the_folder_meanwhile(tmp_path):
    send(tmp_path, 0, 40, money=False)
    run(tmp_path, build_small)
    free = dict[str, bool]()

    def hook(name: str) -> None:
        if name.startswith("forget."):
            lock = take_lock(tmp_path / "job" / "job.json", fcntl.LOCK_SH | fcntl.LOCK_NB)
            free[name] = lock is not None
            if lock is not None:
                close_lock(lock)

    with faults.hooked(hook):
        hr.forget(tmp_path / "job", {"person": GONE})
    assert len(free) > 4 and not any(free.values())


@pytest.mark.parametrize("format", ["parquet", "json", "csv", "avro", "text"])
@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
def test_the_scan_reads_outputs_of_every_format(tmp_path, format, compression):
    """What another person's row says of the key stays, and the scan says so."""
    if compression and format in ("parquet", "avro"):
        return
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("t", schema="person string, note string")
    log.append("t", [{"person": "anna-1", "note": f"a gift for {GONE}"}])
    job = hr.Job("noted")
    read = job.read("log:t", log=str(tmp_path / "log"), name="t")
    options = {"compression": compression} if compression else {}
    rows = read.select("note") if format == "text" else read
    rows.write(f"files:{tmp_path}/out", format=format, name="out", **options)
    run(tmp_path, lambda _: job)

    report = hr.forget(tmp_path / "job", {"person": GONE})
    assert not report.gone
    assert any(str(tmp_path / "out") in one.where for one in report.remaining)


def test_the_key_is_not_written_anywhere_by_the_command_that_forgets_it(tmp_path, monkeypatch):
    send(tmp_path, 0, 40, money=False)
    run(tmp_path, build_small)
    command = ["headrace", "forget", "job", "--key", f"person={GONE}"]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(sys, "orig_argv", ["python", *command])
    lock._me.cache_clear()
    assert hr.forget(tmp_path / "job", {"person": GONE}).gone
    lock._me.cache_clear()
    assert occurrences(tmp_path, GONE) == []


@pytest.mark.parametrize(
    ("gone", "others"),
    [
        ("ann@x.com", ["mary.ann@x.com", "ann@x.com.au"]),
        ("c-17", ["c-17-2", "b/c-17"]),
        ("1000", ["1000.0", "1000-2"]),
        ("x\ny", ["x\\ny"]),
        ("a b c", ["a b c d"]),
    ],
)
def test_another_key_of_which_it_is_a_part_is_somebody_else(tmp_path, gone, others):
    """A column, a field and a folder of the key's name are compared as a whole; a text is not."""
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("t", 2, schema="k string, n bigint")
    log.create("raw")
    people = [gone, *others, "nobody"]
    log.append("t", [{"k": who, "n": n} for n in (1, 2) for who in people])
    log.append("raw", [json.dumps({"k": who, "n": "?"}).encode() for who in people])

    def job(*, told: bool) -> hr.Job:
        job = hr.Job("parts")
        read = job.read("log:t", log=str(tmp_path / "log"), name="t")
        counted = read.key_by("k").agg(n=hr.count(), name="counted", unbounded=True)
        counted.write("collect:", name="o")
        read.write(f"files:{tmp_path}/by", partition_by="k", format="json", name="by")
        schema = "k string, n bigint"
        raw = job.read("log:raw", log=str(tmp_path / "log"), schema=schema, name="raw")
        raw.write("collect:", name="raws")
        if told:
            read.where("n > 2").select(said="'from ' || k").write("collect:", name="told")
        return job

    run(tmp_path, lambda _: job(told=False))
    report = hr.forget(tmp_path / "job", {"k": gone})
    assert report.gone, report
    assert {r["k"] for r in hr.read_output(str(tmp_path / "by")).to_pylist()} == {*people[1:]}
    assert hr.read_output(str(tmp_path / "job" / "dead")).num_rows == len(people) - 1

    if "\n" not in gone:  # and in another column it may be anybody's: that is said
        log.append("t", [{"k": f"not {gone}", "n": 3}])
        run(tmp_path, lambda _: job(told=True))
        report = hr.forget(tmp_path / "job", {"k": gone})
        assert {r.where.rpartition(", ")[2] for r in report.remaining} == {"column said"}
