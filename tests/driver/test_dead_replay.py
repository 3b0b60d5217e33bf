"""Dead letters sent again: every kind of failure, and everything that may come in between.

A letter's row enters the step that failed on it, so what the record became elsewhere is not made
twice; what cannot be sent again is named, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.driver import dead_replay
from headrace.driver.dead_replay import letters_of
from headrace.epoch import bundle
from headrace.plan.nodes import DEAD_SCHEMA
from headrace.state.epochs import EpochLog
from headrace.testing import Driver

FATES = ("used", "filtered", "late", "dead")


def topic(place: Path, records: list[Any]) -> hr.EmbeddedLog:
    log = hr.EmbeddedLog(str(place / "log"))
    if "in" not in log.topics():
        log.create("in")
    texts = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    if texts:
        log.append("in", texts)
    return log


def read(place: Path, job: hr.Job, schema: str = "k string, v bigint", **more: Any) -> hr.Stream:
    return job.read("log:in", schema=schema, log=str(place / "log"), name="rows", **more)


def run(job: hr.Job, place: Path, clock: ManualClock | None = None, **more: Any) -> Driver:
    driver = Driver(job, place / "job", until=None, **({"clock": clock} if clock else {}), **more)
    driver.drain()
    assert driver.manifest is not None
    for counts in driver.manifest.counts.values():
        assert counts["read"] == sum(counts[fate] for fate in FATES)
    return driver


def dead(place: Path) -> list[tuple[str, Any]]:
    """Step and offset of the letters that are dead by now."""
    letters = letters_of(EpochLog(place / "job")).open()
    return sorted(
        zip(letters["step"].to_pylist(), letters["offset"].to_pylist(), strict=True), key=repr
    )


def out(driver: Driver, name: str = "out") -> list[Any]:
    return sorted((tuple(row.values()) for row in driver.output(name).to_pylist()), key=repr)


@dataclass(frozen=True)
class Kind:
    """A job that fails on some records of `ROWS`, and the same when it is mended."""

    build: Callable[[Path, bool], hr.Job]
    dead: list[tuple[str, Any]]
    before: list[Any]  # what it has emitted until it is mended
    after: list[Any]  # what is there when the letters have been sent again


ROWS = [{"k": "a", "v": 1}, {"k": "b", "v": 0}, {"k": "a", "v": 3}]


def inverse(fixed: bool) -> Callable[[Any], float]:
    def each(row: Any) -> float:
        return 12 / row.v if row.v or not fixed else 0.0

    return each


def _map(place: Path, fixed: bool) -> hr.Job:
    job = hr.Job("kind")
    read(place, job).map(inverse(fixed), name="fails").write("collect:", name="out")
    return job


def _second_of_a_chain(place: Path, fixed: bool) -> hr.Job:
    fails, job = inverse(fixed), hr.Job("kind")
    rows = read(place, job).map(lambda r: {"v": r.v * 1}, schema="v bigint", name="first")
    rows.map(fails, schema="value double", name="fails").write("collect:", name="out")
    return job


def _one_of_several_rows(place: Path, fixed: bool) -> hr.Job:
    """Of the rows that a record becomes, only those that failed are sent again."""

    def each(row: Any) -> list[dict[str, int]]:
        return [{"w": row.v + n} for n in (0, 1)]

    job, zero = hr.Job("kind"), "0" if fixed else "cast('x' as int)"
    rows = read(place, job).flat_map(each, schema="w bigint", name="both")
    rows.select(x=f"case when w = 1 then {zero} else w end").write("collect:", name="out")
    return job


def _branches(place: Path, fixed: bool) -> hr.Job:
    job = hr.Job("kind")
    rows = read(place, job)
    rows.select("v").write("collect:", name="out")
    rows.map(inverse(fixed), name="fails").write("collect:", name="other")
    return job


def _expression(place: Path, fixed: bool) -> hr.Job:
    job, least = hr.Job("kind"), "0" if fixed else "cast('x' as int)"
    rows = read(place, job).where("v >= 0", name="positive")
    rows.select(x=f"case when v = 0 then {least} else v end").write("collect:", name="out")
    return job


def _batches(place: Path, fixed: bool) -> hr.Job:
    def halves(table: Any) -> Any:
        if not fixed and 0 in table["v"].to_pylist():
            raise ValueError("zero")
        return table.select(["v"])

    job = hr.Job("kind")
    rows = read(place, job).map_batches(halves, schema="v bigint", name="fails")
    rows.write("collect:", name="out")
    return job


class Sums(hr.KeyedProcess):
    total = hr.value("bigint", 0)

    def on_row(self, row: Any, ctx: Any) -> dict[str, int]:
        if row.v == 0 and not self.fixed:
            raise ValueError("zero")
        self.total += row.v
        return {"total": self.total}


class Broken(Sums):
    fixed = False


class Mended(Sums):
    fixed = True


def _process(place: Path, fixed: bool) -> hr.Job:
    job = hr.Job("kind")
    rows = read(place, job).key_by("k")
    sums = rows.process(
        Mended() if fixed else Broken(), output="total bigint", name="sums", unbounded=True
    )
    sums.write("collect:", name="out")
    return job


def _fold(place: Path, fixed: bool) -> hr.Job:
    def add(total: int, row: Any) -> int:
        if row.v == 0 and not fixed:
            raise ValueError("zero")
        return total + row.v

    job = hr.Job("kind")
    rows = read(place, job).key_by("k")
    sums = rows.fold(int, add, schema="total bigint", name="sums", unbounded=True)
    sums.select("total").write("collect:", name="out")
    return job


def _second_level(place: Path, fixed: bool) -> hr.Job:
    """It fails behind the first shuffle, and goes through the second."""
    job, fails = hr.Job("kind"), inverse(fixed)
    unique = read(place, job).key_by("k", "v").deduplicate(unbounded=True, name="unique")
    mapped = unique.map(
        lambda r: {"k": r.k, "x": fails(r)}, schema="k string, x double", name="fails"
    )
    sums = mapped.key_by("k").agg(total=hr.sum("x"), unbounded=True)
    sums.select("k", "total").write("collect:", name="out")
    return job


def _lookup(place: Path, fixed: bool) -> hr.Job:
    def table() -> list[dict[str, Any]]:
        return [{"k": k, "name": k.upper()} for k in ("ab" if fixed else "a")]

    job = hr.Job("kind")
    rows = read(place, job)
    found = rows.lookup(table, on="k", schema="k string, name string", on_missing="dead", name="up")
    found.select("name", "v").write("collect:", name="out")
    return job


def _session(place: Path, late: bool) -> hr.Job:
    job = hr.Job("kind")
    rows = read(place, job, time="v", delay="1ms").key_by("k").window(hr.session(lambda r: r.v))
    counts = rows.agg(n=hr.count(), name="sessions")
    counts.select("k", "n").write("collect:", name="out")
    if late:
        counts.late.write("collect:", name="late")
    return job


def _transform(place: Path, fixed: bool) -> hr.Job:
    def whole(table: Any) -> Any:
        if not fixed and 0 in table["v"].to_pylist():
            raise ValueError("zero")
        return table.select(["v"])

    job = hr.Job("kind")
    read(place, job).transform(whole, output="v bigint", name="whole").write("collect:", name="out")
    return job


KINDS = {
    "map": Kind(_map, [("fails", 1)], [(4.0,), (12.0,)], [(0.0,), (12.0,), (4.0,)]),
    "chain": Kind(_second_of_a_chain, [("fails", 1)], [(12.0,), (4.0,)], [(0.0,), (12.0,), (4.0,)]),
    "one of several": Kind(
        _one_of_several_rows,
        [("both.select", 0), ("both.select", 1)],
        [(0,), (2,), (3,), (4,)],
        [(0,), (0,), (0,), (2,), (3,), (4,)],
    ),
    "branches": Kind(_branches, [("fails", 1)], [(0,), (1,), (3,)], [(0,), (1,), (3,)]),
    "expression": Kind(_expression, [("positive.select", 1)], [(1,), (3,)], [(0,), (1,), (3,)]),
    "batches": Kind(_batches, [("fails", 1)], [(1,), (3,)], [(0,), (1,), (3,)]),
    "process": Kind(_process, [("sums", 1)], [(1,), (4,)], [(0,), (1,), (4,)]),
    "fold": Kind(_fold, [("sums", 1)], [(1,), (4,)], [(0,), (1,), (4,)]),
    "lookup": Kind(_lookup, [("up", 1)], [("A", 1), ("A", 3)], [("A", 1), ("A", 3), ("B", 0)]),
    "transform": Kind(
        _transform, [("whole", 0), ("whole", 1), ("whole", 2)], [], [(0,), (1,), (3,)]
    ),
    "second level": Kind(
        _second_level,
        [("fails", 1)],
        [("a", 12.0), ("a", 16.0)],
        [("a", 12.0), ("a", 16.0), ("b", 0.0)],
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_failed_goes_on_from_the_step_that_failed(tmp_path: Path, name: str) -> None:
    kind = KINDS[name]
    topic(tmp_path, ROWS)
    driver = run(kind.build(tmp_path, False), tmp_path)
    assert out(driver) == sorted(kind.before, key=repr)
    assert dead(tmp_path) == kind.dead
    driver.close()

    asked = hr.replay_dead(tmp_path / "job")
    assert (asked.asked, asked.refused) == (len(kind.dead), ())
    driver = run(kind.build(tmp_path, True), tmp_path)
    assert out(driver) == sorted(kind.after, key=repr)
    assert dead(tmp_path) == []
    driver.close()

    assert hr.replay_dead(tmp_path / "job").asked == 0
    driver = run(kind.build(tmp_path, True), tmp_path)
    assert out(driver) == sorted(kind.after, key=repr)


def test_records_that_could_not_be_decoded_are_decoded_by_the_new_program(tmp_path: Path) -> None:
    def build(kind: str) -> hr.Job:
        job = hr.Job("decoded")
        rows = read(tmp_path, job, f"k string, v {kind}")
        rows.select("k", v="cast(v as string)").write("collect:", name="out")
        return job

    topic(tmp_path, [{"k": "a", "v": 1}, {"k": "b", "v": "two"}, b'{"k": "c", "v'])
    run(build("bigint"), tmp_path).close()
    assert dead(tmp_path) == [("rows", 1), ("rows", 2)]

    hr.replay_dead(tmp_path / "job")
    driver = run(build("string"), tmp_path)
    assert out(driver) == [("a", "1"), ("b", "two")]
    assert dead(tmp_path) == [("rows", 2)]  # still malformed: a new letter
    assert driver.manifest is not None
    counts = dict(driver.manifest.counts["rows"])
    assert counts == {"read": 5, "used": 2, "filtered": 0, "late": 0, "dead": 3}


def _timed(place: Path, **more: Any) -> hr.Job:
    job = hr.Job("timed")
    rows = read(place, job, "k string, at bigint", time="at", delay="1s", **more)
    late = rows.key_by("k").window(hr.tumbling("10s")).agg(n=hr.count(), name="counts")
    late.select("k", "n").write("collect:", name="out")
    late.late.select("k").write("collect:", name="late")
    return job


def test_rows_from_the_future_are_on_time_once_the_clock_has_come_so_far(tmp_path: Path) -> None:
    records = [{"k": "a", "at": 1_000}, {"k": "b", "at": 90_000}, {"k": "c", "at": None}]
    topic(tmp_path, records)
    clock = ManualClock(1_000)
    run(_timed(tmp_path, max_skew="5s"), tmp_path, clock).close()
    assert dead(tmp_path) == [("rows", 1), ("rows", 2)]

    hr.replay_dead(tmp_path / "job")
    clock.advance(90_000)
    driver = run(_timed(tmp_path, max_skew="5s"), tmp_path, clock)
    assert dead(tmp_path) == [("rows", 2)]
    assert out(driver) == []  # a replayed row moves no watermark
    topic(tmp_path, [{"k": "d", "at": 91_000}])
    driver.drain()
    assert out(driver) == [("a", 1)]
    topic(tmp_path, [{"k": "d", "at": 101_500}])
    clock.advance(10_000)
    driver.drain()
    assert out(driver) == [("a", 1), ("b", 1), ("d", 1)]


def test_a_result_that_failed_behind_its_step_is_no_record_and_goes_on_too(tmp_path: Path) -> None:
    def build(fixed: bool) -> hr.Job:
        def each(row: Any) -> float:
            return 12 / row.n if row.n > 1 or fixed else 1 // 0

        job = hr.Job("results")
        rows = read(tmp_path, job, "k string, at bigint", time="at", delay="1s")
        counts = rows.key_by("k").window(hr.tumbling("1s")).agg(n=hr.count(), name="counts")
        mapped = counts.map(each, schema="value double", name="fails")
        mapped.write("collect:", name="out")
        return job

    times = [("a", 1), ("a", 2), ("b", 3), ("a", 9_000)]
    topic(tmp_path, [{"k": k, "at": at} for k, at in times])
    run(build(False), tmp_path).close()
    assert dead(tmp_path) == [("fails", None)]
    hr.replay_dead(tmp_path / "job")
    driver = run(build(True), tmp_path)
    assert out(driver) == [(12.0,), (6.0,)] and dead(tmp_path) == []
    assert driver.manifest is not None and driver.manifest.counts["rows"]["read"] == 4


def test_a_replayed_row_may_be_late(tmp_path: Path) -> None:
    def build(fixed: bool) -> hr.Job:
        def checked(row: Any) -> dict[str, Any]:
            if row.k == "b" and not fixed:
                raise ValueError("b")
            return {"k": row.k}

        job = hr.Job("late")
        rows = read(tmp_path, job, "k string, at bigint", time="at", delay="1s")
        mapped = rows.map(checked, schema="k string", name="fails")
        counts = mapped.key_by("k").window(hr.tumbling("10s")).agg(n=hr.count(), name="counts")
        counts.select("k", "n").write("collect:", name="out")
        counts.late.select("k").write("collect:", name="late")
        return job

    topic(tmp_path, [{"k": "b", "at": 1_000}, {"k": "b", "at": 55_000}, {"k": "a", "at": 55_000}])
    run(build(False), tmp_path).close()
    hr.replay_dead(tmp_path / "job")
    driver = run(build(True), tmp_path)
    assert out(driver, "late") == [("b",)]  # the first; the time of the other is still to come
    assert driver.manifest is not None
    counts = dict(driver.manifest.counts["rows"])
    assert counts == {"read": 5, "used": 2, "filtered": 0, "late": 1, "dead": 2}
    topic(tmp_path, [{"k": "a", "at": 70_000}])
    driver.drain()
    assert out(driver) == [("a", 1), ("b", 1)]


def test_what_cannot_be_sent_again_is_named_with_the_reason(tmp_path: Path) -> None:
    def fails(key: Any, window: Any, rows: Any) -> Any:
        raise ValueError("no total")

    job = hr.Job("refused")
    rows = read(tmp_path, job, "k string, at bigint", time="at", delay="1s")
    totals = rows.key_by("k").window(hr.tumbling("10s")).process(fails, schema="n bigint", name="w")
    totals.write("collect:", name="out")
    topic(tmp_path, [{"k": "a", "at": 1_000}, {"k": "a", "at": 70_000}])
    run(job, tmp_path).close()
    found = hr.replay_dead(tmp_path / "job")
    assert found.asked == 0
    assert str(found).splitlines()[1:] == [
        "  1 (step w) cannot be replayed: it stands for a call over several rows or a timer: its "
        "row was used"
    ]
    assert dead(tmp_path) == [("w", 0)]


def test_rows_that_did_not_fit_their_columns_when_they_were_read_are_named(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"v": pa.array([1, 1 << 40], pa.int64())}), tmp_path / "in/a.parquet")
    job = hr.Job("misfit")
    rows = job.read(f"files:{tmp_path}/in", schema="v int", format="parquet", name="rows")
    rows.write("collect:", name="out")
    run(job, tmp_path).close()
    (refused,) = hr.replay_dead(tmp_path / "job").refused
    assert refused.why.startswith("its value did not fit the column when it was read")


def test_letters_of_a_step_that_is_gone_or_has_other_columns_are_letters_again(
    tmp_path: Path,
) -> None:
    topic(tmp_path, ROWS)
    run(_map(tmp_path, False), tmp_path).close()

    def build(name: str, schema: str = "k string, v bigint", **more: Any) -> hr.Job:
        job = hr.Job("kind")
        rows = read(tmp_path, job, schema)
        rows.map(inverse(True), name=name, **more).write("collect:", name="out")
        return job

    (refused,) = hr.replay_dead(build("other"), folder=str(tmp_path / "job")).refused
    assert refused.why == "step 'fails' is not in the program any more"
    assert hr.replay_dead(tmp_path / "job").asked == 1  # the folder alone does not know
    driver = run(build("other"), tmp_path)
    (letter,) = letters_of(EpochLog(tmp_path / "job")).open().to_pylist()
    assert letter["error"] == ("cannot be sent again: step 'fails' is not in the program any more")
    assert (letter["step"], letter["offset"], letter["record"]) == (
        "fails",
        1,
        b'{"k": "b", "v": 0}',
    )
    driver.close()

    hr.replay_dead(tmp_path / "job")
    run(build("fails", "k string, v bigint, w bigint"), tmp_path).close()
    (letter,) = letters_of(EpochLog(tmp_path / "job")).open().to_pylist()
    assert "the stored row of step 'fails' has no column 'w'" in letter["error"]

    hr.replay_dead(tmp_path / "job")
    driver = run(build("other", was="fails"), tmp_path)
    assert out(driver) == [(0.0,), (12.0,), (4.0,)] and dead(tmp_path) == []


def test_what_fails_again_stays_with_its_new_error(tmp_path: Path) -> None:
    topic(tmp_path, ROWS)
    run(_map(tmp_path, False), tmp_path).close()
    for epoch in (2, 3):
        assert hr.replay_dead(tmp_path / "job").asked == 1
        run(_map(tmp_path, False), tmp_path).close()
        (letter,) = letters_of(EpochLog(tmp_path / "job")).open().to_pylist()
        assert (letter["epoch"], letter["offset"]) == (epoch, 1)
        assert "ZeroDivisionError" in letter["error"]


def test_letters_are_chosen_by_step_error_time_epoch_and_number(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    topic(tmp_path, [{"k": "a", "v": 0}, b"{"])
    run(_map(tmp_path, False), tmp_path, clock).close()
    clock.advance(1_000)
    topic(tmp_path, [{"k": "c", "v": 0}])
    run(_map(tmp_path, False), tmp_path, clock).close()

    def chosen(**choice: Any) -> int:
        return hr.replay_dead(tmp_path / "job", dry_run=True, **choice).asked

    assert chosen() == 3
    assert chosen(step="fails") == 2 and chosen(step="rows") == 1 and chosen(step="no") == 0
    assert chosen(error="Zero") == 2 and chosen(error="malformed", step="fails") == 0
    assert chosen(since=2_000) == 1 and chosen(until=2_000) == 2 and chosen(since=2_001) == 0
    assert chosen(epochs=(1, 1)) == 2 and chosen(epochs=(2, 9)) == 1 and chosen(epochs=(1, 2)) == 3
    assert chosen(numbers=[3]) == 1 and chosen(numbers=[]) == 0
    assert not (tmp_path / "job" / "resends").exists()


def test_a_letter_is_asked_for_once_whoever_asks_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking and asking another asks: who comes second looks again."""
    topic(tmp_path, [{"k": "a", "v": 0}] * 5)
    run(_map(tmp_path, False), tmp_path).close()
    monkeypatch.setattr(dead_replay, "AT_ONCE", 2)
    make, inner = dead_replay.Resends.make, []

    def interrupted(self: Any, *arguments: Any) -> bool:
        if not inner:
            inner.append(0)
            inner[0] = hr.replay_dead(tmp_path / "job", numbers=[2, 3, 4]).asked
        return make(self, *arguments)

    monkeypatch.setattr(dead_replay.Resends, "make", interrupted)
    found = hr.replay_dead(tmp_path / "job")
    assert inner == [3] and found.asked == 2 and found.waiting == 3
    driver = run(_map(tmp_path, True), tmp_path)
    assert out(driver) == [(0.0,)] * 5 and dead(tmp_path) == []


def test_a_job_that_runs_takes_the_letters_in(tmp_path: Path) -> None:
    topic(tmp_path, ROWS)
    run(_map(tmp_path, False), tmp_path).close()
    driver = run(_map(tmp_path, True), tmp_path)
    assert dead(tmp_path) == [("fails", 1)]
    hr.replay_dead(tmp_path / "job")
    driver.drain()
    assert out(driver) == [(0.0,), (12.0,), (4.0,)]


@pytest.mark.parametrize("until", ["end", "now"])
def test_a_job_that_has_ended_takes_them_in_when_it_is_started(tmp_path: Path, until: str) -> None:
    topic(tmp_path, ROWS)
    Driver(_map(tmp_path, False), tmp_path / "job", until=until).drain()
    hr.replay_dead(tmp_path / "job")
    driver = Driver(_map(tmp_path, True), tmp_path / "job", until=until)
    driver.drain()
    assert out(driver) == [(0.0,), (12.0,), (4.0,)]


def test_going_back_takes_a_replay_back_and_it_is_asked_for_anew(tmp_path: Path) -> None:
    topic(tmp_path, ROWS)
    job = _map(tmp_path, True)
    run(_map(tmp_path, False), tmp_path).close()
    hr.replay_dead(tmp_path / "job")
    run(job, tmp_path).close()
    assert dead(tmp_path) == []

    hr.plan_rewind(job, to_epoch=1, folder=str(tmp_path / "job")).apply()
    assert dead(tmp_path) == [("fails", 1)]
    driver = run(job, tmp_path)
    assert out(driver) == [(12.0,), (4.0,)]  # nothing is replayed by itself
    driver.close()
    assert hr.replay_dead(tmp_path / "job").asked == 1
    assert out(run(job, tmp_path)) == [(0.0,), (12.0,), (4.0,)]


def test_a_request_that_was_not_carried_out_is_void_when_the_job_goes_back(tmp_path: Path) -> None:
    topic(tmp_path, ROWS)
    run(_map(tmp_path, True), tmp_path).close()
    topic(tmp_path, ROWS)
    run(_map(tmp_path, False), tmp_path).close()
    hr.replay_dead(tmp_path / "job")
    hr.plan_rewind(_map(tmp_path, True), to_epoch=1, folder=str(tmp_path / "job")).apply()
    driver = run(_map(tmp_path, True), tmp_path)  # reads the records again, and replays nothing
    assert out(driver) == [(0.0,), (0.0,), (12.0,), (12.0,), (4.0,), (4.0,)]
    assert hr.replay_dead(tmp_path / "job").asked == 0


def test_a_damaged_request_is_refused_by_name(tmp_path: Path) -> None:
    topic(tmp_path, ROWS)
    run(_map(tmp_path, False), tmp_path).close()
    hr.replay_dead(tmp_path / "job")
    (path,) = (tmp_path / "job" / "resends").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-9] + b"x" + content[-8:])
    with pytest.raises(hr.StateError, match="checksum") as caught:
        run(_map(tmp_path, True), tmp_path)
    assert caught.value.code == "HR-STATE-004"


def test_a_folder_that_is_no_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hr.RunError) as caught:
        hr.replay_dead(tmp_path)
    assert caught.value.code == "HR-DEAD-004"


@pytest.mark.parametrize("late", [True, False])
def test_a_row_whose_session_has_no_gap_fails_again(tmp_path: Path, late: bool) -> None:
    """Its gap is computed anew, if the row still has the columns that the gap needs."""
    topic(tmp_path, ROWS)
    run(_session(tmp_path, late), tmp_path).close()
    assert dead(tmp_path) == [("sessions", 1)]
    assert hr.replay_dead(tmp_path / "job").asked == 1
    run(_session(tmp_path, late), tmp_path).close()
    (letter,) = letters_of(EpochLog(tmp_path / "job")).open().to_pylist()
    assert letter["epoch"] == 2 and letter["offset"] == 1
    if late:
        assert letter["error"] == "the gap of a session is 0 ms"
    else:  # the step got the key and the gap only
        assert letter["error"].endswith("the stored row of step 'sessions' has no column 'v'")


def test_letters_of_an_earlier_version_are_named_and_new_ones_beside_them_are_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic(tmp_path, ROWS)
    with monkeypatch.context() as earlier:
        earlier.setattr(bundle, "LETTER_SCHEMA", DEAD_SCHEMA)
        run(_map(tmp_path, False), tmp_path).close()
    (refused,) = hr.replay_dead(tmp_path / "job").refused
    assert refused.why == "an earlier version wrote it, and its row is not stored"

    topic(tmp_path, ROWS)
    run(_map(tmp_path, False), tmp_path).close()
    found = hr.replay_dead(tmp_path / "job")
    assert found.asked == 1 and [one.number for one in found.refused] == [1]
    driver = run(_map(tmp_path, True), tmp_path)
    assert out(driver) == [(0.0,), (12.0,), (12.0,), (4.0,), (4.0,)]
    assert dead(tmp_path) == [("fails", 1)]


def test_a_letter_that_fails_again_stops_a_job_that_is_to_stop(tmp_path: Path) -> None:
    def build(on_error: str, schema: str) -> hr.Job:
        job = hr.Job("kind", on_error=on_error)
        rows = read(tmp_path, job, f"k string, v {schema}")
        rows.map(inverse(schema == "string"), name="fails").write("collect:", name="out")
        return job

    topic(tmp_path, [*ROWS, {"k": "d", "v": "x"}])
    run(build("dead", "bigint"), tmp_path).close()
    for number in (1, 2):
        folder = tmp_path / "job"
        assert hr.replay_dead(folder, numbers=[number]).asked == 1
    with pytest.raises(hr.StepError, match="step") as caught:
        run(build("fail", "bigint"), tmp_path)
    assert caught.value.code == "HR-STEP-001" and "cannot be sent" not in str(caught.value)
    assert dead(tmp_path) == [("fails", 1), ("rows", 3)]
    run(build("dead", "bigint"), tmp_path).close()
    assert dead(tmp_path) == [("fails", 1), ("rows", 3)]
