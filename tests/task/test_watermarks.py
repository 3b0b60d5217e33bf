"""Watermark strategies: each beside a plain-Python model, whatever the epochs and splits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import MIN_TIME, ManualClock
from headrace.testing import Driver

SCHEMA = pa.schema(
    [("k", pa.string()), ("at", pa.int64()), ("mark", pa.bool_()), ("upto", pa.timestamp("us"))]
)
Row = dict[str, Any]


class Second:
    """The second newest time of all there ever were: needs what earlier batches knew."""

    state: Any = ()

    def on_chunk(self, times: Any, rows: pa.Table) -> int | None:
        assert rows.schema.equals(SCHEMA)
        assert times.tolist() == rows.column("at").to_pylist()
        self.state = sorted([*self.state, *times.tolist()])[-2:]
        return self.state[0] if len(self.state) == 2 else None


class Jumpy:
    """Goes back and forth: what goes back is ignored."""

    def on_row(self, time: int, row: Any) -> int | None:
        return None if row.mark else time - 7


class Both:
    def on_chunk(self, times: Any, rows: pa.Table) -> Any:
        return times.min()  # NumPy's integer

    def on_row(self, time: int, row: Any) -> int | None:
        return row.at - 50 if row.k == "b" else None


def _bounded(rows: list[Row]) -> list[int]:
    return [r["at"] - 20 for r in rows]


def _second(rows: list[Row]) -> list[int]:
    return [sorted(r["at"] for r in rows)[-2]] if len(rows) > 1 else []


# What the user writes, and what it means: the times that a split has reached, in any order.
MODELS: dict[str, tuple[dict[str, Any], Callable[[list[Row]], list[int]]]] = {
    "delay": ({"delay": "20ms"}, _bounded),
    "bounded": ({"watermark": hr.watermarks.bounded("20ms")}, _bounded),
    "in order": ({"in_order": True}, lambda rows: [r["at"] for r in rows]),
    "monotonous": (
        {"watermark": hr.watermarks.monotonous()}, lambda rows: [r["at"] for r in rows],
    ),
    "punctuated": (
        {"watermark": hr.watermarks.punctuated("mark")},
        lambda rows: [r["at"] for r in rows if r["mark"]],
    ),
    "punctuated by an expression": (
        {"watermark": hr.watermarks.punctuated(lambda e: (e.k == "b") & (e.at > 50))},
        lambda rows: [r["at"] for r in rows if r["k"] == "b" and r["at"] > 50],
    ),
    "punctuated by a column": (
        {"watermark": hr.watermarks.punctuated(hr.col("mark"), by="upto")},
        lambda rows: [r["upto"] for r in rows if r["mark"] and r["upto"] is not None],
    ),
    "custom with state": ({"watermark": hr.watermarks.custom(Second)}, _second),
    "custom by row": (
        {"watermark": hr.watermarks.custom(Jumpy)},
        lambda rows: [r["at"] - 7 for r in rows if not r["mark"]],
    ),
}  # fmt: skip

a_row = st.fixed_dictionaries(
    {
        "k": st.sampled_from("ab"),
        "at": st.integers(0, 200),
        "mark": st.booleans() | st.none(),
        "upto": st.integers(0, 200) | st.none(),
    }
)
batches = st.lists(
    st.tuples(st.integers(0, 1), st.lists(a_row, min_size=1, max_size=6)), max_size=5
)


def _job(root: Path, **reading: Any) -> hr.Job:
    job = hr.Job("marks")
    rows = job.read("log:rows", log=str(root / "log"), name="rows", time="at", **reading)
    counts = rows.key_by("k").window(hr.tumbling("1s")).agg(n=hr.count())
    counts.write("collect:", name="counts")
    return job


def _log(root: Path) -> hr.EmbeddedLog:
    log = hr.EmbeddedLog(str(root / "log"))
    log.create("rows", partitions=2, schema=SCHEMA)
    return log


def _stored(row: Row) -> Row:
    upto = row["upto"]
    return {**row, "upto": None if upto is None else upto * 1_000}


def _send(log: hr.EmbeddedLog, partition: int, rows: list[Row]) -> None:
    columns = {f.name: [_stored(r)[f.name] for r in rows] for f in SCHEMA}
    log.append("rows", pa.table(columns, schema=SCHEMA), partition=partition)


@pytest.mark.parametrize("name", MODELS)
@given(sent=batches, max_batch=st.integers(1, 8), tasks=st.integers(1, 2))
@settings(max_examples=6)
def test_a_split_is_as_far_as_the_model_says_after_every_epoch(
    name: str, sent: list[tuple[int, list[Row]]], max_batch: int, tasks: int
) -> None:
    reading, model = MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        log, clock = _log(root), ManualClock(1_000)
        come: dict[str, list[Row]] = {"0": [], "1": []}
        reached = dict.fromkeys(come, MIN_TIME)
        for partition, rows in sent:
            _send(log, partition, rows)
            come[str(partition)] += rows
            driver = Driver(  # a fresh start each time: nothing is kept but the folder
                _job(root, **reading), root / "job", until=None, max_batch=max_batch, clock=clock,
                tasks=tasks,
            )  # fmt: skip
            while driver.epoch() is not None:
                assert driver.manifest is not None
                for split in driver.manifest.splits:
                    seen = come[split.name][: split.at]
                    assert split.watermark == max(model(seen), default=MIN_TIME)
                    assert split.watermark >= reached[split.name]
                    reached[split.name] = split.watermark


def test_both_methods_of_a_custom_watermark_are_asked(tmp_path: Path) -> None:
    log = _log(tmp_path)
    driver = _driver(tmp_path, watermark=hr.watermarks.custom(Both))
    _send(log, 0, [_row(100), _row(40)])
    assert _reached(driver) == {"0": 40, "1": MIN_TIME}
    _send(log, 0, [_row(200, k="b"), _row(40)])
    assert _reached(driver)["0"] == 150


class Counting:
    """How many rows have come, as if that were a time."""

    state = 0

    def on_chunk(self, times: Any, rows: pa.Table) -> int:
        self.state += len(times)
        return self.state


def test_one_object_sees_all_rows_of_a_split_however_many_tasks_there_are(tmp_path: Path) -> None:
    job = hr.Job("many")
    source = hr.rows(pa.table({"at": range(150_000)}), splits=2)
    rows = job.read(source, time="at", watermark=hr.watermarks.custom(Counting), name="rows")
    rows.window(hr.tumbling("1s")).agg(n=hr.count()).write("collect:", name="counts")
    driver = Driver(job, tmp_path, tasks=4, max_batch=100_000)
    assert _reached(driver) == {"0": 75_000, "1": 75_000}
    assert driver.manifest is not None and driver.manifest.epoch == 2


def _row(at: int, k: str = "a", mark: bool | None = None, upto: int | None = None) -> Row:
    return {"k": k, "at": at, "mark": mark, "upto": upto}


def _driver(root: Path, clock: ManualClock | None = None, **reading: Any) -> Driver:
    return Driver(_job(root, **reading), root / "job", until=None, clock=clock or ManualClock(1))


def _reached(driver: Driver) -> dict[str, int]:
    driver.drain()
    assert driver.manifest is not None
    return {s.name: s.watermark for s in driver.manifest.splits}


# what fails


class Picky:
    def on_row(self, time: int, row: Any) -> Any:
        return {"a": time, "b": 1 // 0 if row.mark else "soon", "c": 2**62, "d": True}[row.k]


def _letters(driver: Driver) -> list[str]:
    found = hr.read_output(f"{driver.start.log.folder}/dead").to_pylist()
    return [r["error"] for r in found]


def test_rows_on_which_a_custom_watermark_raises_or_talks_nonsense_are_dead(tmp_path: Path) -> None:
    log = _log(tmp_path)
    driver = _driver(tmp_path, watermark=hr.watermarks.custom(Picky))
    _send(log, 0, [_row(5), _row(9, "b", mark=False), _row(9, "c"), _row(9, "d"), _row(6, "a")])
    assert _reached(driver)["0"] == 6
    assert [e.partition(":")[0] for e in _letters(driver)] == [
        "TypeError", "ValueError", "TypeError",
    ]  # fmt: skip
    assert driver.manifest is not None
    assert driver.manifest.counts["rows"] == {
        "read": 5, "used": 2, "filtered": 0, "late": 0, "dead": 3,
    }  # fmt: skip


class Broken:
    def on_chunk(self, times: Any, rows: Any) -> int:
        raise KeyError("no such thing")


def test_a_chunk_on_which_a_custom_watermark_raises_is_dead(tmp_path: Path) -> None:
    log = _log(tmp_path)
    driver = _driver(tmp_path, watermark=hr.watermarks.custom(Broken))
    _send(log, 0, [_row(5), _row(6)])
    assert _reached(driver)["0"] == MIN_TIME
    assert _letters(driver) == ["KeyError: 'no such thing'"] * 2


class Unkeepable:
    state: Any = None

    def on_row(self, time: int, row: Any) -> int:
        self.state = {time}
        return time


class Unmakeable:
    def __init__(self) -> None:
        raise OSError("no licence")

    def on_row(self, time: int, row: Any) -> int:
        return time


@pytest.mark.parametrize(("kind", "fact"), [(Unkeepable, "not JSON"), (Unmakeable, "OSError")])
def test_a_custom_watermark_that_cannot_go_on_stops_the_job(
    tmp_path: Path, kind: type, fact: str
) -> None:
    log = _log(tmp_path)
    driver = _driver(tmp_path, watermark=hr.watermarks.custom(kind))
    _send(log, 0, [_row(5)])
    with pytest.raises(hr.StepError, match=fact) as caught:
        driver.drain()
    assert caught.value.code == "HR-TIME-013" and "'rows'" in str(caught.value)


def test_a_punctuation_ahead_of_the_clock_is_dead_and_moves_nothing(tmp_path: Path) -> None:
    log = _log(tmp_path)
    marks = hr.watermarks.punctuated("mark", by="upto")
    driver = _driver(tmp_path, ManualClock(1_000), watermark=marks, max_skew="1s")
    _send(log, 0, [_row(5, mark=True, upto=3), _row(6, mark=True, upto=9_000), _row(7, upto=9_000)])
    assert _reached(driver)["0"] == 3
    assert len(_letters(driver)) == 1 and "max_skew" in _letters(driver)[0]


def test_a_row_on_which_the_condition_fails_is_dead(tmp_path: Path) -> None:
    log = _log(tmp_path)
    driver = _driver(tmp_path, watermark=hr.watermarks.punctuated("cast(k as int) > 0"))
    _send(log, 0, [_row(5, "1"), _row(6, "b"), _row(7, "0")])
    assert _reached(driver)["0"] == 5
    assert len(_letters(driver)) == 1


# what is written


SAID = {
    "punctuated by an unknown column": (hr.watermarks.punctuated("celcius > 1"), ["HR-EXPR-001"]),
    "punctuated by no condition": (hr.watermarks.punctuated("at + 1"), ["HR-PLAN-012"]),
    "punctuated by python": (hr.watermarks.punctuated(lambda e: bool(str(e))), ["HR-EXPR-005"]),
    "an unknown column of times": (hr.watermarks.punctuated("mark", by="up"), ["HR-EXPR-001"]),
    "times that are text": (hr.watermarks.punctuated("mark", by="k"), ["HR-TIME-006"]),
    "not a strategy": ("2s", ["HR-TIME-008"]),
    "the function instead of its value": (hr.watermarks.monotonous, ["HR-TIME-008"]),
}


def _codes(**reading: Any) -> list[str]:
    job = hr.Job("wrong")
    job.read("log:rows", schema=SCHEMA, **reading).write("log:out")
    try:
        job.check()
    except hr.PlanError as error:
        assert all(p.site and p.site.file == __file__ and p.hint for p in error.problems)
        return [p.code for p in error.problems]
    return []


@pytest.mark.parametrize("mistake", SAID)
def test_a_wrong_strategy_is_refused(mistake: str) -> None:
    watermark, expected = SAID[mistake]
    assert _codes(time="at", watermark=watermark) == expected


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ({"delay": "2s"}, "HR-TIME-007"),
        ({"in_order": True}, "HR-TIME-007"),
        ({"time": None}, "HR-TIME-004"),
    ],
)
def test_a_strategy_stands_alone_and_needs_a_time(reading: dict[str, Any], expected: str) -> None:
    said = {"time": "at", "watermark": hr.watermarks.monotonous(), **reading}
    assert _codes(**said) == [expected]


class Nothing:
    pass


class Needy(Jumpy):
    def __init__(self, size: int) -> None: ...


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: hr.watermarks.custom(Nothing), "HR-TIME-009"),
        (lambda: hr.watermarks.custom(Jumpy()), "HR-TIME-009"),
        (lambda: hr.watermarks.custom(Needy), "HR-TIME-009"),
        (lambda: hr.watermarks.bounded("0s"), "HR-TIME-012"),
        (lambda: hr.watermarks.bounded("soon"), "HR-TIME-001"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused_where_it_is_written(make: Any, code: str) -> None:
    with pytest.raises(hr.PlanError) as caught:
        make()
    assert caught.value.code == code


def test_the_plan_shows_the_strategy_and_what_is_python() -> None:
    job = hr.Job("shown")
    for name, said in {
        "a": hr.watermarks.bounded("2s"),
        "b": hr.watermarks.monotonous(),
        "c": hr.watermarks.punctuated(hr.col("k") == "end", by="upto"),
        "d": hr.watermarks.custom(Jumpy),
    }.items():
        rows = job.read(f"log:{name}", schema=SCHEMA, time="at", watermark=said, align="30s")
        rows.write(f"collect:{name}")
    rows = job.read("log:e", schema=SCHEMA, time=hr.ingestion())
    rows.write("collect:e")
    shown = {s["name"]: s for s in job.explain().json["logical"]}
    assert [shown[n]["detail"].partition(", ")[2] for n in "abcde"] == [
        "time at, delay 2s, align 30s",
        "time at, in order, align 30s",
        "time at, watermark when k = 'end' by upto, align 30s",
        "time at, watermark by Jumpy, align 30s",
        "time at ingestion",
    ]
    assert shown["d"]["python"] == "Jumpy: a watermark of your own"


def test_columns_that_only_the_watermark_needs_are_read(tmp_path: Path) -> None:
    log = _log(tmp_path)
    job = _job(tmp_path, watermark=hr.watermarks.punctuated("k = 'b'", by="upto"))
    assert job.program().nodes["rows"].schema.names == ["k", "at", "upto"]
    driver = Driver(job, tmp_path / "job", until=None, clock=ManualClock(1))
    _send(log, 0, [_row(5, "b", upto=4)])
    assert _reached(driver)["0"] == 4


class Plain:
    def on_chunk(self, times: Any, rows: pa.Table) -> int:
        assert rows.schema.field("k").type == pa.string()
        return int(times.max())


@pytest.mark.parametrize("said", [hr.watermarks.custom(Plain), hr.watermarks.punctuated("k = 'b'")])
def test_text_that_is_stored_encoded_is_plain_for_the_watermark(tmp_path: Path, said: Any) -> None:
    pq.write_table(pa.table({"k": ["a", "b"] * 50, "at": range(100)}), tmp_path / "rows.parquet")
    job = hr.Job("encoded")
    rows = job.read(f"files:{tmp_path}/rows.parquet", time="at", watermark=said, name="rows")
    rows.key_by("k").window(hr.tumbling("1s")).agg(n=hr.count()).write("collect:", name="out")
    driver = Driver(job, tmp_path / "job")
    assert set(_reached(driver).values()) == {99}
    assert driver.output("out").column("n").to_pylist() == [50, 50]


# another strategy, another run


@pytest.mark.parametrize("name", MODELS)
def test_another_strategy_goes_on_with_the_same_state(tmp_path: Path, name: str) -> None:
    log = _log(tmp_path)
    driver = _driver(tmp_path, delay="5s", idle="1h")
    _send(log, 0, [_row(100), _row(200)])
    driver.drain()
    _send(log, 0, [_row(300, mark=True, upto=300), _row(400, "b", mark=True, upto=400)])
    _send(log, 1, [_row(500)])
    driver = Driver(
        _job(tmp_path, **{"idle": "1h", **MODELS[name][0]}), tmp_path / "job", clock=ManualClock(1)
    )
    driver.drain()
    counted = {r["k"]: r["n"] for r in driver.output("counts").to_pylist()}
    assert counted == {"a": 4, "b": 1}


class Other(Second):
    def on_chunk(self, times: Any, rows: pa.Table) -> int | None:
        assert self.state == ()
        return None


def test_a_class_of_another_name_does_not_get_the_state_of_the_first(tmp_path: Path) -> None:
    log = _log(tmp_path)
    driver = _driver(tmp_path, watermark=hr.watermarks.custom(Second))
    _send(log, 0, [_row(100), _row(200)])
    assert _reached(driver)["0"] == 100
    driver = _driver(tmp_path, watermark=hr.watermarks.custom(Other))
    _send(log, 0, [_row(300)])
    assert _reached(driver)["0"] == 100
    assert driver.manifest is not None
    assert driver.manifest.counts["rows"]["dead"] == 0


# the clock's time


def _ingesting(root: Path, clock: ManualClock, **options: Any) -> Driver:
    job = hr.Job("arrivals")
    rows = job.read("log:bare", log=str(root / "log"), name="rows", time=hr.ingestion())
    counts = rows.key_by("k").window(hr.tumbling("10s")).agg(n=hr.count())
    counts.write("collect:", name="counts")
    counts.late.write("collect:", name="late")
    return Driver(job, root / "job", clock=clock, **{"until": None, **options})


def _counted(driver: Driver) -> list[tuple[int, int]]:
    rows = driver.output("counts").to_pylist()
    return sorted((int(r["window_start"].timestamp()), r["n"]) for r in rows)


def test_rows_without_a_time_get_the_clock_and_windows_close_with_it(tmp_path: Path) -> None:
    log, clock = hr.EmbeddedLog(str(tmp_path / "log")), ManualClock(100_000)
    log.create("bare", partitions=2, schema="k string")
    driver = _ingesting(tmp_path, clock)
    log.append("bare", [{"k": "a"}, {"k": "a"}], partition=0)
    driver.drain()
    clock.advance(9_999)
    log.append("bare", [{"k": "a"}], partition=1)
    driver.drain()
    assert _counted(driver) == []
    assert driver.epoch() is None  # nothing has come, and nothing is due
    clock.advance(1)
    driver.drain()  # no row, no idle split: the clock alone
    assert _counted(driver) == [(100, 3)]
    log.append("bare", [{"k": "a"}], partition=0)
    driver = _ingesting(tmp_path, clock, until="end")
    driver.drain()
    assert _counted(driver) == [(100, 3), (110, 1)]
    assert driver.output("late").num_rows == 0


def test_silence_does_not_carry_the_clocks_time_ahead_of_the_clock(tmp_path: Path) -> None:
    log, clock = hr.EmbeddedLog(str(tmp_path / "log")), ManualClock(50_000)
    log.create("bare", schema="k string")
    driver = _ingesting(tmp_path, clock)
    log.append("bare", [{"k": "a"}])
    driver.drain()
    clock.advance(25_000)  # longer than other inputs may be silent
    progress = driver.drain()
    assert progress is not None and progress.watermark == 75_000
    log.append("bare", [{"k": "a"}])
    driver.drain()
    clock.advance(5_000)
    driver.drain()
    assert _counted(driver) == [(50, 1), (70, 1)]


@given(steps=st.lists(st.tuples(st.integers(0, 15_000), st.integers(0, 1)), max_size=8))
@settings(max_examples=10)
def test_no_row_is_late_by_the_clock_whatever_the_pauses(steps: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, clock = Path(folder), ManualClock(50_000)
        log = hr.EmbeddedLog(str(root / "log"))
        log.create("bare", partitions=2, schema="k string")
        driver = _ingesting(root, clock)
        expected: dict[int, int] = {}
        for pause, partition in steps:
            clock.advance(pause)
            driver.drain()  # windows close in silence, too
            log.append("bare", [{"k": "a"}], partition=partition)
            driver.drain()
            start = clock.now() // 10_000 * 10
            expected[start] = expected.get(start, 0) + 1
        driver = _ingesting(root, clock, until="end")
        driver.drain()
        assert _counted(driver) == sorted(expected.items())
        assert driver.output("late").num_rows == 0


@pytest.mark.parametrize(
    "reading",
    [
        {"delay": "2s"}, {"watermark": hr.watermarks.monotonous()}, {"idle": "2s"},
        {"max_skew": "2s"}, {"align": "2s"}, {"in_order": True},
    ],
)  # fmt: skip
def test_the_clocks_time_needs_nothing_else(reading: dict[str, Any]) -> None:
    assert _codes(time=hr.ingestion(), **reading) == ["HR-TIME-010"]


def test_a_time_is_a_column_or_the_clocks() -> None:
    assert _codes(time=hr.ingestion()) == []
    assert _codes(time=hr.ingestion, delay="2s") == ["HR-TIME-011"]
    assert _codes(time=5, delay="2s") == ["HR-TIME-011"]
