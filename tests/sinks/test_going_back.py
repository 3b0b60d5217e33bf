"""Going back: exactly what was published after an epoch is taken back, also out of merged files."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections import Counter

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sinks.test_two_drivers import nothing_is_left_over
from tests.sinks.writing import (
    ALONE,
    EXACT,
    Output,
    console,
    expected,
    files,
    log,
    made,
    stage,
    values,
)  # fmt: skip

from headrace.sinks import Timelines, merging
from headrace.state import faults
from headrace.state.manifest import FIRST

FILES = ["collect", "json lines", "parquet", "partitioned json lines", "rolling"]


def upto(epoch: int) -> Timelines:
    return Timelines(((FIRST, epoch),))


def rows_of(epochs) -> Counter:
    whole = expected(max(epochs, default=-1) + 1)
    return Counter(r for r in whole if r[0] in set(epochs))


def publish(output, epochs) -> None:
    sink = output.open()
    sink.open()
    for epoch in epochs:
        sink.publish(epoch, stage(sink, epoch, attempt=f"x{epoch}"), ALONE)


@pytest.mark.parametrize("kind", FILES)
def test_rows_of_later_epochs_are_taken_back_and_newer_numbers_follow(
    tmp_path_factory, eager, hasty, kind
):
    fresh = Fresh(tmp_path_factory, kind, 11)
    for to in range(-1, 12):
        output = fresh.output()
        said = output.open().go_back(upto(to), ALONE)
        assert Counter(output.rows()) == rows_of(range(to + 1)) & rows_of(range(11))
        assert ("nothing" in said) == (to >= 10)
        assert output.open().held().number == 10  # numbers are not used again

        publish(output, range(11, 18))
        assert Counter(output.rows()) == rows_of([*range(min(to, 10) + 1), *range(11, 18)])


class Fresh:
    """An output to which some epochs were published: once, and put back there for each use."""

    def __init__(self, folders: pytest.TempPathFactory, kind: str, epochs: int) -> None:
        self.place, self._stored = folders.mktemp("fresh"), folders.mktemp("stored")
        self._output = EXACT[kind](self.place)
        publish(self._output, range(epochs))
        shutil.copytree(self.place, self._stored, dirs_exist_ok=True)

    def output(self) -> Output:
        shutil.rmtree(self.place)
        shutil.copytree(self._stored, self.place)
        return self._output


@settings(max_examples=25, deadline=None)
@given(lives=st.lists(st.tuples(st.integers(1, 7), st.integers(0, 9)), min_size=1, max_size=5))
def test_any_lives_with_any_returns_agree_with_a_model(tmp_path_factory, lives):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "EVERY", 2)
        patch.setattr(merging, "FEW", 2)
        patch.setattr("os.fsync", lambda handle: None)
        place = tmp_path_factory.mktemp("lives")
        output, model, number = files(place), set[int](), 0
        for epochs, back in lives:
            fresh = range(number, number + epochs)
            publish(output, fresh)
            number += epochs
            to = number - 1 - back
            output.open().go_back(upto(to), ALONE)
            model = {e for e in model | set(fresh) if e <= to}
            assert Counter(output.rows()) == rows_of(model)
        publish(output, range(number, number + 4))
        assert Counter(output.rows()) == rows_of(model | set(range(number, number + 4)))
        made(output.open())


@pytest.mark.parametrize("kind", ["json lines", "parquet"])
@pytest.mark.parametrize("links", [True, False])
def test_what_is_taken_back_is_set_aside_and_not_deleted(
    tmp_path_factory, eager, hasty, monkeypatch, kind, links
):
    if not links:
        monkeypatch.setattr("os.link", refusing(os.link))
    fresh = Fresh(tmp_path_factory, kind, 11)
    for to in range(11):
        output = fresh.output()
        said = output.open().go_back(upto(to), ALONE)
        aside = sorted((fresh.place / "out" / "_taken_back").glob("*"))
        assert ("_taken_back" in said) == bool(aside) == (to < 10)
        found = Counter(row for path in aside for row in rows_in(path))
        assert rows_of(range(to + 1, 11)) <= found  # a merged file has earlier rows, too
        assert found <= rows_of(range(11))
        publish(output, range(11, 14))
        assert sorted((fresh.place / "out" / "_taken_back").glob("*")) == aside


def refusing(link):
    def refused(path, second):
        if "_taken_back" in str(second):
            raise PermissionError(1, "no links here")
        link(path, second)

    return refused


def rows_in(path):
    if path.suffix == ".parquet":
        return values(pq.read_table(path))
    return [tuple(json.loads(line).values()) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", FILES)
def test_a_crash_while_going_back_is_mended_by_going_back_again_or_by_going_on(
    tmp_path_factory, eager, hasty, kind
):
    """By turns, so that what one kind does at a point another does not."""
    fresh, turn = Fresh(tmp_path_factory, kind, 7), FILES.index(kind)
    for at in itertools.count(1):
        both = (True, False) if os.environ.get("HEADRACE_LONG") else ((at + turn) % 2 == 0,)
        if not all([mended(fresh, at, again) for again in both]):
            assert at > 8
            return


def mended(fresh: Fresh, at: int, again: bool) -> bool:
    """Whether there was a crash at this point; nothing is lost or doubled after it."""
    output = fresh.output()
    if not crashed(output, at):
        return False
    assert Counter(output.rows()) in (rows_of(range(7)), rows_of(range(3)))
    if again:
        output.open().go_back(upto(2), ALONE)
        assert Counter(output.rows()) == rows_of(range(3))
    before = {r[0] for r in output.rows()}
    made(output.open())
    publish(output, range(7, 12))
    assert Counter(output.rows()) == rows_of([*before, *range(7, 12)])
    if (fresh.place / "out").is_dir():
        nothing_is_left_over(fresh.place / "out")
    return True


def crashed(output, at: int) -> bool:
    passed = 0

    def pass_by(name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == at:
            raise KeyboardInterrupt(name)

    try:
        with faults.hooked(pass_by):
            output.open().go_back(upto(2), ALONE)
    except KeyboardInterrupt:
        return True
    return False


def test_what_a_driver_of_before_publishes_late_does_not_count(tmp_path, eager):
    output = files(tmp_path)
    publish(output, range(6))
    late = output.open()
    staged = stage(late, 5, attempt="x5")
    output.open().go_back(upto(2), ALONE)

    late.publish(5, staged, ALONE)

    assert Counter(output.rows()) == rows_of(range(3))
    publish(output, range(6, 10))
    assert Counter(output.rows()) == rows_of([0, 1, 2, 6, 7, 8, 9])


def test_topics_and_the_console_say_what_will_be_there_twice(tmp_path):
    output = log(tmp_path)
    publish(output, range(5))
    sink = output.open()

    assert sink.held().number == 4
    assert "epochs 3 to 4" in sink.go_back(upto(2), ALONE) and "'t' twice" in sink.go_back(
        upto(2), ALONE
    )
    assert "nothing" in sink.go_back(upto(4), ALONE)
    assert output.rows() == expected(5)
    assert "printed" in console(tmp_path).open().go_back(upto(2), ALONE)
    assert console(tmp_path).open().held() is None
