"""Files of periods: merged while their period lasts, and final once rows of another appear."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sinks.test_two_drivers import nothing_is_left_over
from tests.sinks.writing import ALONE, SCHEMA, made, refusal, table

from headrace.sinks import merging, open_sink, output_files, read_output
from headrace.sinks.merging import period_end, period_mark
from headrace.state import faults

MINUTE = 60_000


def opened(place: Path, every: str | None = "10m", **options):
    options |= {} if every is None else {"roll_every": every}
    return open_sink(f"files:{place}/out", SCHEMA, options, str(place / "job"), "o")


def publish(sink, epoch: int, clock: int) -> None:
    sink.publish(epoch, sink.at(clock).stage(table(epoch, epoch), epoch, "a"), ALONE)


def names(place: Path) -> set[str]:
    return {p.name for p in output_files(place / "out")}


def test_the_name_of_a_file_says_when_its_period_ends(tmp_path):
    publish(made(opened(tmp_path)), 0, 25 * MINUTE)

    assert all("-until-19700101T003000Z-" in name for name in names(tmp_path))
    assert period_end(30 * MINUTE, 10 * MINUTE) == 40 * MINUTE  # a period begins with its begin
    assert period_mark(1_500) == "-until-19700101T000001.500Z" and period_mark(0) == ""


@pytest.mark.constants
def test_files_of_a_period_become_one_when_the_next_begins_and_stay_for_ever(tmp_path, hasty):
    sink = made(opened(tmp_path))
    for epoch in range(7):
        publish(sink, epoch, epoch * MINUTE)
    assert len(names(tmp_path)) == 7

    publish(sink, 7, 10 * MINUTE)

    (old,) = (n for n in names(tmp_path) if "T001000Z" in n)
    assert old.startswith("merged-")
    for epoch in range(8, 100):
        publish(sink, epoch, (epoch + 3) * MINUTE)
        assert old in names(tmp_path)
    assert sorted(read_output(tmp_path / "out")["n"].to_pylist()) == list(range(100))
    nothing_is_left_over(tmp_path / "out")


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_file_is_not_replaced_once_there_is_one_of_a_later_period(
    tmp_path, monkeypatch, hasty, eagerly
):
    """As a reader sees it who lists the folder at any moment."""
    if eagerly:
        monkeypatch.setattr(merging, "EVERY", 2)
        monkeypatch.setattr(merging, "FEW", 2)
    final, sink = set[str](), made(opened(tmp_path))

    def look(_: str) -> None:
        shown = {p.name for p in (tmp_path / "out").glob("*.parquet")}
        assert final <= shown
        last = max((n.split("-until-")[1][:16] for n in shown), default="")
        final.update(n for n in shown if n.split("-until-")[1][:16] < last)

    with faults.hooked(look):
        for epoch in range(60):
            publish(sink, epoch, epoch * 2 * MINUTE)
    assert len(final) == 11


def crashing(place: Path, crash_at: int, clocks: list[int]) -> bool:
    passed, epoch, staged = 0, 0, {}

    def pass_by(name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == crash_at:
            raise KeyboardInterrupt(name)

    while epoch < len(clocks):
        try:
            with faults.hooked(pass_by):
                sink = made(opened(place))
                while epoch < len(clocks):
                    if epoch not in staged:
                        staged[epoch] = sink.at(clocks[epoch]).stage(
                            table(epoch, epoch), epoch, f"{passed}"
                        )
                    sink.publish(epoch, staged[epoch], ALONE)
                    epoch += 1
        except KeyboardInterrupt:
            pass
    return passed >= crash_at


def test_wherever_a_driver_crashes_periods_are_closed_once(tmp_path_factory, hasty):
    clocks, at = [m * MINUTE for m in (1, 2, 3, 11, 12, 35)], 0
    while True:
        at += 1
        place = tmp_path_factory.mktemp("crash")
        crashed = crashing(place, at, clocks)
        assert sorted(read_output(place / "out")["n"].to_pylist()) == list(range(6))
        nothing_is_left_over(place / "out")
        files = sorted(n.split("-until-")[1][9:13] for n in names(place))
        assert files == ["0010", "0020", "0040"]
        if not crashed:
            break
    assert at > 20


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.integers(0, 15), min_size=1, max_size=30), few=st.integers(2, 4))
def test_every_file_is_of_one_period_whatever_the_clock_does(tmp_path_factory, steps, few):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "EVERY", 3)
        patch.setattr(merging, "FEW", few)
        patch.setattr("os.fsync", lambda handle: None)
        place, clock, ends = tmp_path_factory.mktemp("drawn"), 0, {}
        sink = made(opened(place))
        for epoch, step in enumerate(steps):
            clock += step * MINUTE
            ends[epoch] = period_end(clock, 10 * MINUTE)
            publish(sink, epoch, clock)

        assert sorted(read_output(place / "out")["n"].to_pylist()) == list(range(len(steps)))
        import pyarrow.parquet as pq

        shown = [(p.name, pq.read_table(p)["n"].to_pylist()) for p in output_files(place / "out")]
        for name, rows in shown:
            assert {period_mark(ends[n]) for n in rows} == {
                f"-until-{name.split('-until-')[1][:16]}"
            }
        over = [period_mark(e) for e in set(ends.values()) if e != ends[len(steps) - 1]]
        assert all(sum(mark in name for name, _ in shown) == 1 for mark in over)


def test_other_periods_may_be_chosen_and_files_of_the_old_ones_are_final(tmp_path, hasty):
    for epoch in range(3):
        publish(made(opened(tmp_path, "1d")), epoch, epoch * MINUTE)
    publish(made(opened(tmp_path, "5m")), 3, 3 * MINUTE)
    first = names(tmp_path)
    publish(made(opened(tmp_path, None)), 4, 4 * MINUTE)
    sink = made(opened(tmp_path, None))
    for epoch in range(5, 40):
        publish(sink, epoch, epoch * MINUTE)

    assert len(first) == 2 and first <= names(tmp_path)
    assert sorted(read_output(tmp_path / "out")["n"].to_pylist()) == list(range(40))


@pytest.mark.parametrize("every", ["soon", 0, "1ms", -1, ["1h"], True])
def test_what_is_no_period_is_refused(tmp_path, every):
    with pytest.raises(Exception, match=r"roll_every|duration") as caught:
        opened(tmp_path, every)
    assert caught.value.code in ("HR-OUTPUT-008", "HR-TIME-001")


def test_without_merging_there_is_nothing_to_roll(tmp_path):
    assert refusal(opened, tmp_path, merge=False).code == "HR-OUTPUT-008"
