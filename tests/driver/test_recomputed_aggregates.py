"""New aggregates computed of past rows: as if they had always been there.

Two or three versions of a program on one folder, with rows between them. What comes after a
change is compared with plain Python over all rows, also those that were read before it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.driver import recompute, recomputed_tables
from headrace.driver.start import prepare, review
from headrace.settings import Settings
from headrace.state import faults
from headrace.testing import Driver, Harness
from tests.driver.test_changed_aggregates import DELAY, KINDS, Crash, Row

REFUSED_KINDS = ("rows", "triggered rows")
BY_KIND = [kind for kind in KINDS if kind not in REFUSED_KINDS]
SCHEMA = "k string, v int, at bigint, part int"
VERSIONS: tuple[dict[str, Any], ...] = (
    {"total": hr.sum("v"), "n": hr.count()},
    {
        "n": hr.count(), "most": hr.max("v"), "total": hr.sum("v"), "early": hr.first("v"),
        "spread": hr.collect("v"), "since": "beginning",
    },
    {
        "rows": hr.count(), "most": hr.max("v"), "values": hr.count_distinct("v"),
        "middle": hr.median("v"), "since": "beginning", "was_fields": {"rows": "n"},
    },
)  # fmt: skip
SAID = (("total", "n"), ("n", "most", "total", "early", "spread"),
        ("rows", "most", "values", "middle"))  # fmt: skip
DROPS = ((), (), ("s.total", "s.early", "s.spread"))
MODEL: dict[str, Callable[[list[int]], Any]] = {
    "total": sum, "n": len, "rows": len, "most": max, "early": lambda v: v[0], "spread": list,
    "values": lambda v: len({*v}),
    "middle": lambda v: (sorted(v)[(len(v) - 1) // 2] + sorted(v)[len(v) // 2]) / 2,
}  # fmt: skip


def drawn(seed: int) -> list[list[Row]]:
    """Rows of three parts in order of time; no time, less the delay, is where a window ends."""
    draw = random.Random(seed)
    made = []
    for part in range(3):
        times = sorted(draw.sample(range(part * 1_700, part * 1_700 + 1_700), 60))
        rows = [
            {"k": draw.choice("ab"), "v": draw.randrange(-50, 50), "at": 10 * t + 1, "part": part}
            for t in times
        ]
        made.append(rows)
    return made


def job(place: Path, kind: str, version: int, where: str = "true", **more: Any) -> hr.Job:
    made, window = hr.Job("recomputing"), KINDS[kind][0]
    rows = made.read("log:in", log=str(place / "log"), time="at", delay="1s", name="rows")
    keyed, said = rows.where(where).key_by("k"), {**VERSIONS[version], "name": "s", **more}
    if window is None:
        found = keyed.agg(unbounded=True, **said)
    else:
        found = keyed.window(window[0], **window[1]).agg(**said)
    names = [n for n in said if n not in ("name", "since", "was_fields", "was")]
    found.select("k", version=str(version), **{n: n for n in names}).write(
        "collect:", name=f"out {version}"
    )
    return made


def dealt(rows: list[Row], partitions: int) -> list[list[Row]]:
    """The rows of each partition: what follows in time may be in another one."""
    found: list[list[Row]] = [[] for _ in range(partitions)]
    for n, row in enumerate(rows):
        found[n // 7 % partitions].append(row)
    return found


def append(place: Path, rows: list[Row], partitions: int = 1, **more: Any) -> None:
    log = hr.EmbeddedLog(str(place / "log"))
    if "in" not in log.topics():
        log.create("in", schema=SCHEMA, partitions=partitions, **more)
    for partition, own in enumerate(dealt(rows, partitions)):
        log.append("in", own, partition=partition)


def start(place: Path, made: hr.Job, until: str | None = None, **more: Any) -> Driver:
    more = {"max_batch": 29, "clock": ManualClock(), **more}  # a split is never silent
    return Driver(made, place / "job", until=until, **more)


def play(
    place: Path,
    kind: str,
    parts: list[list[Row]],
    partitions: int = 1,
    crash: Callable[[Callable[[], Driver]], Driver] | None = None,
    **more: Any,
) -> Counter[Any]:
    found = Counter[Any]()
    for version, part in enumerate(parts):
        append(place, part, partitions)
        until = "end" if version == len(parts) - 1 else None

        def begin(version: int = version, until: str | None = until) -> Driver:
            return start(place, job(place, kind, version), until, drop=DROPS[version], **more)

        driver = crash(begin) if crash is not None and version == 1 else begin()
        driver.drain()
        driver.close()
    for version in range(len(parts)):
        for row in hr.collected(str(place / "job"), f"out {version}").to_pylist():
            found[row["k"], version, repr([row[n] for n in SAID[version]])] += 1
    return found


def wanted(kind: str, parts: list[list[Row]], partitions: int = 1) -> Counter[Any]:
    """Each window by the version under which it is over, or its last row comes, of all its rows."""
    rows = [row for part in parts for row in part]
    marks = [
        min(max(r["at"] for r in own) for own in dealt(part, partitions)) - DELAY
        for part in parts[:2]
    ]
    found = Counter[Any]()
    for key, end, held in KINDS[kind][1](rows):
        if end is None:
            version = held[-1]["part"]
        else:
            version = next((n for n, mark in enumerate(marks) if end <= mark), 2)
        values = [r["v"] for r in held]
        found[key, version, repr([MODEL[name](values) for name in SAID[version]])] += 1
    return found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", BY_KIND)
def test_an_aggregate_is_as_if_it_had_always_been_there(
    kind: str, seed: int, tmp_path: Path
) -> None:
    parts = drawn(seed)
    expected = wanted(kind, parts)
    assert {version for _, version, _ in expected} == {0, 1, 2}
    assert play(tmp_path, kind, parts) == expected


@pytest.mark.parametrize("kind", ["running", "sliding", "patient"])
def test_rows_of_several_partitions_that_are_not_read_in_step(kind: str, tmp_path: Path) -> None:
    parts = drawn(5)
    found = play(tmp_path, kind, parts, partitions=3, max_batch=200)
    expected = wanted(kind, parts, 3)
    if kind == "running":  # in which order rows come depends on the partitions, the last not
        found, expected = (Counter(last_of_each(c)) for c in (found, expected))
    assert found == expected


def last_of_each(found: Counter[Any]) -> Iterator[Any]:
    """The results of the last version over all rows: those that count the most."""
    for key in "ab":
        results = [json.loads(text) for k, version, text in found if (k, version) == (key, 2)]
        rows, most, values, middle = max(results)
        yield key, rows, most, values, middle


@pytest.mark.parametrize("kind", ["running", "sliding", "sessions"])
def test_all_cut_as_small_as_can_be(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recompute, "_ROWS", 3)
    monkeypatch.setattr(recomputed_tables, "_AT_ONCE", 1)
    parts = [part[:8] for part in drawn(3)]
    assert play(tmp_path, kind, parts, max_batch=9) == wanted(kind, parts)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["running", "coarse panes"])
def test_a_crash_at_each_durable_step_leaves_the_state_before_or_after(
    kind: str, tmp_path: Path
) -> None:
    points = list[str]()

    def crash(begin: Callable[[], Driver]) -> Driver:
        nth = 1
        while True:
            left = nth

            def hook(point: str) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    points.append(point)
                    raise Crash(point)

            try:
                with faults.hooked(hook):
                    return begin()
            except Crash:
                nth += 1

    parts = drawn(1)
    assert play(tmp_path, kind, parts, crash=crash, max_batch=200) == wanted(kind, parts)
    assert {"past.epoch", "past.computed", "past.adopted", "commit.checked"} <= {*points}
    assert not list((tmp_path / "job").glob(".new-*"))


def test_what_a_killed_start_has_left_is_removed(tmp_path: Path) -> None:
    begun(tmp_path)
    left = tmp_path / "job" / f"{recompute.SCRATCH}of-another"
    left.mkdir()
    (left / "file").write_text("x")
    start(tmp_path, job(tmp_path, "tumbling", 1)).close()
    assert not left.exists()


# What cannot be computed of past rows is refused by name, and nothing has changed.


def begun(place: Path, kind: str = "tumbling", rows: list[Row] | None = None) -> None:
    append(place, drawn(1)[0] if rows is None else rows)
    driver = start(place, job(place, kind, 0), max_batch=200)
    driver.drain()
    driver.close()


def contents(place: Path) -> dict[str, bytes]:
    files = (f for f in (place / "job").rglob("*") if f.is_file())
    return {str(f.relative_to(place)): f.read_bytes() for f in files}


def refused(place: Path, made: hr.Job, code: str = "HR-EVOLVE-009", **more: Any) -> str:
    """The error of a start that has changed nothing, and after which the job before goes on."""
    before = contents(place)
    with pytest.raises(hr.StateError, match=code) as error:
        start(place, made, **more)
    assert contents(place) == before
    return str(error.value)


@pytest.mark.parametrize("kind", ["tumbling", "running", "sessions"])
def test_another_condition_before_it_is_found_by_the_proof(kind: str, tmp_path: Path) -> None:
    begun(tmp_path, kind)
    last = max(row["at"] for row in drawn(1)[0])  # in a window that is not over
    said = refused(tmp_path, job(tmp_path, kind, 1, where=f"at != {last}"))
    assert "'s'" in said and 'since="restart"' in said


def test_the_proof_names_what_differs(tmp_path: Path) -> None:
    rows = [{"k": "a", "v": 7, "at": 1, "part": 0}, {"k": "b", "v": 1, "at": 2, "part": 0}]
    begun(tmp_path, "running", [*rows, {**rows[0], "v": 1}])
    said = refused(tmp_path, job(tmp_path, "running", 1, where="v != 7"))
    assert "of k 'a' has 'n' 2, and of past rows it is 1" in said or "'total' 8" in said


def test_rows_that_are_as_many_but_others_are_found(tmp_path: Path) -> None:
    """The stored sums differ, though the counts do not."""
    rows = [{"k": "a", "v": v, "at": v, "part": 0} for v in (3, 5)]
    begun(tmp_path, "running", rows)
    said = refused(tmp_path, job(tmp_path, "running", 1, where="v != 3"), drop=())
    assert "of k 'a'" in said


def test_a_key_that_is_gone_and_one_that_was_not_there(tmp_path: Path) -> None:
    rows = [{"k": k, "v": 1, "at": 1, "part": 0} for k in "ab"]
    begun(tmp_path, "running", rows)
    gone = refused(tmp_path, job(tmp_path, "running", 1, where="k != 'b'"))
    assert "what is stored of k 'b' is stored, and no past row is of it" in gone
    less = tmp_path / "less"
    append(less, rows)
    start(less, job(less, "running", 0, where="k = 'a'")).drain()
    assert "1 keys or windows that are not stored" in refused(less, job(less, "running", 1))


def test_a_count_of_the_rows_that_came_stands_in_for_one_that_is_stored(tmp_path: Path) -> None:
    """Where only a greatest value goes on, a row less would not be seen in it."""
    rows = [{"k": "a", "v": v, "at": 1, "part": 0} for v in (1, 2, 3)]
    append(tmp_path, rows)
    place, most = tmp_path / "job", {"most": hr.max("v")}

    def only(where: str, **aggs: Any) -> hr.Job:
        made = hr.Job("recomputing")
        read = made.read("log:in", log=str(tmp_path / "log"), name="rows").where(where)
        read.key_by("k").agg(unbounded=True, name="s", **most, **aggs).write("collect:", name="o")
        return made

    Driver(only("true"), place, until="now").drain()
    new = {"n": hr.count(), "since": "beginning"}
    with pytest.raises(hr.StateError, match=r"HR-EVOLVE-009.*another number of rows"):
        Driver(only("v != 2", **new), place, until="now")
    driver = Driver(only("true", **new), place, until="now")
    append(tmp_path, rows[:1])
    driver.drain()
    assert driver.output("o").to_pylist()[-1]["n"] == 4


def test_what_retention_has_taken_is_known_by_the_plan(tmp_path: Path) -> None:
    rows = drawn(1)[0]
    append(tmp_path, rows[:30], segment_bytes=1)
    begun(tmp_path, rows=rows[30:])
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.forget("in", {0: 30})
    assert log.earliest("in") == {0: 30}
    made = job(tmp_path, "tumbling", 1)
    assert "60 records of 'rows' were read, and of these it has 30 at most" in planned(
        tmp_path, made
    )
    refused(tmp_path, made, "HR-EVOLVE-008")


def planned(place: Path, made: hr.Job) -> str:
    """Why a plan refuses the step."""
    comparison = review(made.program(), str(place / "job")).comparison
    assert comparison is not None
    (change,) = comparison.of("refused")
    assert change.name == "s" and 'since="restart"' in change.hint
    return change.because


def test_a_plan_says_what_will_be_read_again(tmp_path: Path) -> None:
    begun(tmp_path)
    before = contents(tmp_path)
    comparison = review(job(tmp_path, "tumbling", 1).program(), str(tmp_path / "job")).comparison
    assert contents(tmp_path) == before
    assert (
        "value     s.most: new and computed of all rows, 'rows' read again (60 records of 'rows')"
        in str(comparison).splitlines()
    )


def test_a_start_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "_EVERY", -1)
    monkeypatch.setattr(recompute, "_ROWS", 25)
    begun(tmp_path)
    said = list[str]()
    made, settings = job(tmp_path, "tumbling", 1).program(), Settings.load()
    prepare(made, settings, 2, folder=str(tmp_path / "job"), say=said.append).log.release()
    assert [line.partition("'s': ")[2] for line in said] == [
        f"{n} of 60 records" for n in (0, 25, 50, 60)
    ]


@pytest.mark.parametrize("end", ["gone", "shorter"])
def test_a_file_that_is_not_as_it_was(end: str, tmp_path: Path) -> None:
    def reading(version: int) -> hr.Job:
        made = hr.Job("recomputing")
        rows = made.read(f"files:{tmp_path}/in", schema=SCHEMA, format="json", name="rows")
        found = rows.key_by("k").agg(unbounded=True, name="s", **VERSIONS[version])
        found.write("collect:", name="out")
        return made

    (tmp_path / "in").mkdir()
    for n, part in enumerate(drawn(1)[:2]):
        text = "".join(json.dumps(row) + "\n" for row in part)
        (tmp_path / "in" / f"{n}.json").write_text(text)
    start(tmp_path, reading(0), "now").drain()
    first = tmp_path / "in" / "0.json"
    if end == "gone":
        first.unlink()
        assert "0.json' is not there any more" in planned(tmp_path, reading(1))
        refused(tmp_path, reading(1), "HR-EVOLVE-008", until="now")
    else:
        first.write_text("".join(first.read_text().splitlines(keepends=True)[1:]))
        with pytest.raises(hr.InputError):  # as by any start
            start(tmp_path, reading(1), "now")


def test_dead_letters_that_were_sent_again(tmp_path: Path) -> None:
    def half(row: Any) -> dict[str, Any]:
        if row.v == 2 and not mended:
            raise ValueError("not this one")
        return {"k": row.k, "v": row.v}

    def halved(**said: Any) -> hr.Job:
        made = hr.Job("recomputing")
        rows = made.read("log:in", log=str(tmp_path / "log"), name="rows")
        keyed = rows.map(half, schema="k string, v int").key_by("k")
        keyed.agg(unbounded=True, name="s", n=hr.count(), **said).write("collect:", name="out")
        return made

    mended = False
    append(tmp_path, [{"k": "a", "v": v, "at": 1, "part": 0} for v in (1, 2, 3)])
    start(tmp_path, halved(), "now").drain()
    mended = True
    more = {"most": hr.max("v"), "since": "beginning"}
    refused(tmp_path, halved(**more), until="now")  # a row more comes to it than did
    hr.replay_dead(halved(), folder=str(tmp_path / "job"))
    start(tmp_path, halved(), "now").drain()
    assert "dead letters were sent again" in planned(tmp_path, halved(**more))


def test_rows_that_were_late_are_left_out_again(tmp_path: Path) -> None:
    """Of windows that are over; and of a session that is open, where one would change it."""
    at = [1_001, 1_301, 6_001, 201, 6_401, 5_901]  # the fourth is late for all
    rows = [{"k": "a", "v": n, "at": t, "part": 0} for n, t in enumerate(at)]
    for kind, late in (("tumbling", 1), ("patient", 0), ("sessions", 1)):
        place = tmp_path / kind
        append(place, rows[:3])
        driver = start(place, job(place, kind, 0))
        driver.drain()
        append(place, rows[3:])
        last = driver.drain()
        driver.close()
        assert last is not None
        driver = start(place, job(place, kind, 1), "end")
        assert driver.drain() is not None
        assert driver.manifest is not None and driver.manifest.steps["s"]["late"] == late
        (row,) = [r for r in driver.output("out 1").to_pylist() if r["early"] in (2, 5)]
        assert sorted(row["spread"]) == [2, 4, 5]


def test_a_late_row_that_would_lengthen_an_open_session_is_found(tmp_path: Path) -> None:
    """Its own session was over; with it the open one has other bounds."""
    times = (6_801, 7_401, 6_201)  # the watermark is at 6,401, then at 6,951
    append(tmp_path, [{"k": "b", "v": 0, "at": 6_001, "part": 0}])
    driver = start(tmp_path, job(tmp_path, "sessions", 0))
    driver.drain()
    for n, at in enumerate((*times[:2], 7_951, times[2])):
        append(tmp_path, [{"k": "b" if at == 7_951 else "a", "v": n, "at": at, "part": 0}])
        driver.drain()
    assert driver.manifest is not None and driver.manifest.steps["s"]["late"] == 1
    driver.close()
    said = refused(tmp_path, job(tmp_path, "sessions", 1))
    assert "and no past row is of it" in said


def test_several_steps_at_once_under_other_names_and_other_inputs(tmp_path: Path) -> None:
    def two(version: int) -> hr.Job:
        made, old = hr.Job("recomputing"), version == 0
        more: dict[str, Any] = {"since": "beginning", "most": hr.max("v")}
        rows = made.read(
            "log:in", log=str(tmp_path / "log"), time="at", delay="1s",
            name="rows" if old else "seen", **({} if old else {"was": "rows"}),
        )  # fmt: skip
        two = (
            None
            if old
            else made.read("log:two", log=str(tmp_path / "log"), name="b", time="at", delay="1s")
        )
        both = rows if two is None else rows.union(two)
        both.key_by("k").agg(
            n=hr.count(), unbounded=True, name="a" if old else "z",
            **({} if old else {**more, "was": "a"}),
        ).write("collect:", name="out a")  # fmt: skip
        rows.key_by("k").window(hr.tumbling("5s")).agg(
            total=hr.sum("v"), name="w", **({} if old else more)
        ).write("collect:", name="out w")
        return made

    parts = drawn(2)
    append(tmp_path, parts[0])
    hr.EmbeddedLog(str(tmp_path / "log")).create("two", schema=SCHEMA)
    start(tmp_path, two(0), "now").drain()
    hr.EmbeddedLog(str(tmp_path / "log")).append("two", [{"k": "a", "v": 99, "at": 9, "part": 1}])
    driver = start(tmp_path, two(1), "end")
    driver.drain()
    a = [r["v"] for r in parts[0] if r["k"] == "a"]
    assert driver.output("out a").to_pylist()[-1]["n"] == len(a) + 1
    assert driver.output("out a").to_pylist()[-1]["most"] == 99
    last = max(r["at"] // 5_000 for r in parts[0])
    held = [r for r in parts[0] if r["at"] // 5_000 == last]
    found = {r["k"]: (r["total"], r["most"]) for r in driver.output("out w").to_pylist()[-2:]}
    for key in {r["k"] for r in held}:
        values = [r["v"] for r in held if r["k"] == key]
        assert found[key] == (sum(values), max(values))


def test_a_driver_that_lives_has_gone_on_meanwhile(tmp_path: Path) -> None:
    """Its folder is taken over: what was computed of an older epoch is computed again."""
    begun(tmp_path, "running")
    living = start(tmp_path, job(tmp_path, "running", 0))
    log, reached = living.start.log, False

    def go_on(point: str) -> None:
        nonlocal reached
        if point == "past.computed" and not reached:
            reached = True
            append(tmp_path, drawn(1)[1])
            assert living.drain() is not None

    with faults.hooked(go_on):
        driver = start(tmp_path, job(tmp_path, "running", 1), "now")
    assert reached and log.newest() > 1
    append(tmp_path, drawn(1)[2])
    driver.drain()
    rows = [r for part in drawn(1) for r in part if r["k"] == "a"]
    last = [r for r in driver.output("out 1").to_pylist() if r["k"] == "a"][-1]
    assert last["spread"] == [r["v"] for r in rows]


def test_in_a_harness_without_a_key_behind_other_steps() -> None:
    """As users test a change; with functions, shares, several rows of one, and other tasks."""

    def counting(**more: Any) -> hr.Job:
        made = hr.Job("recomputing")
        read = made.read("log:in", schema="v bigint, at bigint", time="at", delay="1s", name="rows")
        twice = read.flat_map(lambda row: [(row.v, row.at)] * 2, schema="v bigint, at bigint")
        dealt = twice.where("v > 0").map(lambda row: (row.v + 1, row.at), schema=twice.schema)
        dealt.window(hr.tumbling("10s")).agg(n=hr.count(), name="s", **more).write(
            "log:out", name="out" if not more else "more"
        )
        return made

    with Harness(counting()) as test:
        test.send("rows", [{"v": v, "at": 1_000 + v} for v in range(5)])
        test.send("rows", [{"v": 9, "at": 12_000}], split=1)
        test.restart(counting(most=hr.max("v"), since="beginning"))
        test.send("rows", [{"v": 3, "at": 13_000}])
        test.end()
        found = [(r["n"], r["most"]) for r in test.output("more")]
    assert sorted(found) == [(4, 10), (8, 5)]
