"""What every output promises, as a suite for pytest: subclass `OutputSuite`, give it `make`.

What is staged is not seen; an epoch is published once, however often that is tried; a crash at any
point of the way, and at any line of the output itself, loses and doubles nothing; a driver that was
stopped and let go after another took over changes nothing. The project's own outputs run it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.sinks import HeldEpochs, reopen_sink
from headrace.sinks.delivered import DeliveredSink
from headrace.testing.crash_lines import crash_inside
from headrace.testing.output_drivers import (
    ALONE,
    EPOCHS,
    JOB,
    NAME,
    SCHEMA,
    CrashingDriver,
    Drive,
    SharedFolder,
    Stopped,
    agree,
    expected,
    is_exact,
    made,
    stage,
    table,
)
from headrace.testing.stops_inside import stop_inside

_LONG = "HEADRACE_LONG"  # in the environment: every time that a point is passed, not some
_MEANWHILE = (0, 1, EPOCHS)  # epochs of the newer driver while the old one is stopped
MANY = 5_000  # rows of an epoch
TEXTS = (
    None, "", " a ", "NULL", "\\N", "a\tb", "a\nb", "a\r", 'q"', "'", "\0", "日本 🙂", "x" * 70_000,
)  # fmt: skip
ANOTHER = f"{'0' * 32}/other"  # a producer: the output of a job that does not exist


class OutputSuite:
    """Subclass me in a test module, with a fixture `make`: a function of a new, empty folder that
    returns an `OutputCase` of rows with the columns `epoch bigint, n bigint, text string`."""

    passings: ClassVar[int] = 12  # of each point: at so many of them it crashes
    rounds: ClassVar[int] = 3  # of a driver that is stopped at each point
    stops: ClassVar[int] = 100  # at most so many in all
    turn: ClassVar[int] = 0  # with which of a point's passings it begins
    crashes_inside: ClassVar[int] = 250  # at most so many crashes within the output's own code
    stops_inside: ClassVar[int] = 12  # at most so many stops there

    def test_opening_and_checking_leave_no_trace(self, make: Any, tmp_path: Path) -> None:
        case = make(tmp_path)
        before = _seen(tmp_path)
        sink = case.open()
        sink.check()
        sink.describe()
        assert sink.held() in (HeldEpochs(), HeldEpochs(final=True), None)
        assert _seen(tmp_path) == before

    def test_what_is_staged_is_not_seen_until_it_is_published(
        self, make: Any, tmp_path: Path
    ) -> None:
        case = make(tmp_path)
        staged = stage(made(case.open()), 0)
        assert case.rows() == []

        case.open().publish(0, staged, ALONE)

        assert case.rows() == expected(1)

    def test_epochs_add_up(self, make: Any, tmp_path: Path) -> None:
        case = make(tmp_path)
        for epoch in range(EPOCHS):
            sink = made(case.open())
            sink.publish(epoch, stage(sink, epoch), ALONE)

        assert case.rows() == expected(EPOCHS)

    def test_an_epoch_without_rows_is_nothing(self, make: Any, tmp_path: Path) -> None:
        case = make(tmp_path)
        sink = made(case.open())
        assert sink.stage(table(0), 0, "a") == []
        sink.publish(0, [], ALONE)
        sink.publish(1, stage(sink, 1), ALONE)
        sink.publish(2, [], ALONE)

        assert case.rows() == [r for r in expected(2) if r[0] == 1]

    def test_publishing_again_changes_nothing(self, make: Any, tmp_path: Path) -> None:
        case = make(tmp_path)
        made(case.open())
        for epoch in range(4):
            staged = stage(case.open(), epoch)
            for sink in (case.open(), case.open()):
                sink.publish(epoch, staged, ALONE)
                sink.publish(epoch, staged, ALONE)

        agree(case, expected(4))

    def test_two_attempts_at_an_epoch_do_not_meet_and_one_is_published(
        self, make: Any, tmp_path: Path
    ) -> None:
        case = make(tmp_path)
        sink = made(case.open())
        stage(sink, 0, attempt="lost")
        sink.publish(0, stage(sink, 0, attempt="taken"), ALONE)

        assert case.rows() == expected(1)

    def test_discard_removes_what_no_manifest_names_and_nothing_else(
        self, make: Any, tmp_path: Path
    ) -> None:
        case = make(tmp_path)
        sink = made(case.open())
        published = stage(sink, 0)
        sink.publish(0, published, ALONE)
        stage(sink, 1, attempt="lost")
        waiting = stage(sink, 1, attempt="taken")
        running = stage(sink, 2)
        live = {r["file"] for r in [*published, *waiting]}

        sink.discard(live, upto=1)
        assert _staged(tmp_path) >= {r["file"] for r in [*waiting, *running]}
        assert not any("lost" in name for name in _staged(tmp_path))

        sink.discard(live)
        assert not _staged(tmp_path) & {r["file"] for r in running}
        sink.publish(1, waiting, ALONE)
        assert case.rows() == expected(2)

    def test_hidden_columns_are_not_written(self, make: Any, tmp_path: Path) -> None:
        case = make(tmp_path)
        sink = made(case.open())
        rows = table(0, 1).append_column("__t", [[5]])

        sink.publish(0, sink.stage(rows, 0, "a"), ALONE)

        assert case.rows() == [(0, 1, 'é "1"')]

    def test_an_output_that_was_renamed_publishes_what_it_staged_before_once(
        self, make: Any, tmp_path: Path
    ) -> None:
        case = make(tmp_path)
        sink = made(case.open())
        staged = stage(sink, 0)
        sink.publish(0, staged, ALONE)
        waiting = stage(sink, 1)
        renamed = case.open()
        renamed._name = "renamed"

        renamed.publish(0, staged, ALONE)
        renamed.publish(1, waiting, ALONE)
        renamed.publish(2, stage(renamed, 2), ALONE)

        agree(case, expected(3))

    def test_what_was_staged_is_published_under_its_description(
        self, make: Any, tmp_path: Path
    ) -> None:
        case = make(tmp_path)
        sink = made(case.open())
        sink.publish(0, stage(sink, 0), ALONE)
        staged = stage(sink, 1)
        described = json.loads(json.dumps(sink.describe()))
        assert {"kind", "place", "format", "options", "schema"} <= set(described)

        reopened = reopen_sink(described, str(tmp_path / JOB), "another name", key=NAME)
        reopened.publish(1, staged, ALONE)
        reopened.publish(2, stage(reopened, 2), ALONE)

        agree(case, expected(3))
        held = reopened.held()
        assert reopened.describe() == described
        assert (held is not None and held.number == 2) or not is_exact(case)

    def test_a_crash_at_any_point_loses_and_doubles_nothing(
        self, make: Any, tmp_path_factory: Any
    ) -> None:
        calm = CrashingDriver(make(tmp_path_factory.mktemp("calm")), None)
        calm.run()
        points = [t for name, t in _points(calm.passed).items() if name.startswith("sink.")]
        assert sum(map(len, points)) >= 2 * EPOCHS
        for times in points:
            most = len(times) if os.environ.get(_LONG) else min(len(times), self.passings)
            for i in range(most):
                case = make(tmp_path_factory.mktemp("crash"))
                at = times[(self.turn + i * len(times) // most) % len(times)]
                CrashingDriver(case, at).run()
                agree(case, expected(EPOCHS))

    def test_a_crash_at_any_line_of_the_output_loses_and_doubles_nothing(
        self, make: Any, tmp_path_factory: Any
    ) -> None:
        passed = len(crash_inside(make(tmp_path_factory.mktemp("calm")), None))
        most = passed if os.environ.get(_LONG) else min(passed, self.crashes_inside)
        for at in sorted({round((i + 1) * passed / most) for i in range(most)}):
            crash_inside(make(tmp_path_factory.mktemp("crash")), at)

    def test_a_driver_stopped_anywhere_and_let_go_later_changes_nothing(
        self, make: Any, tmp_path_factory: Any
    ) -> None:
        calm = Stopped(SharedFolder(make(tmp_path_factory.mktemp("calm"))), None, 0)
        calm.run()
        assert len(calm.passed) > 3 * EPOCHS
        for at, epochs in self._stopped_at(calm.passed):
            place = tmp_path_factory.mktemp("two")
            self.two_drivers(SharedFolder(make(place)), at, epochs)
            self.left_over(place)

    def _stopped_at(self, passed: list[str]) -> list[tuple[int, int]]:
        """Where the old driver is stopped, and how far the newer one gets: each point once in
        every round, at another passing and with other epochs than in the round before."""
        if os.environ.get(_LONG):
            return [*product(range(1, len(passed) + 1), _MEANWHILE)]
        pairs = [
            (times[turn % len(times)], _MEANWHILE[(number + turn) % len(_MEANWHILE)])
            for turn in range(self.turn, self.turn + self.rounds)
            for number, times in enumerate(_points(passed).values())
        ]
        return pairs[:: -(-len(pairs) // self.stops)]

    def two_drivers(self, folder: SharedFolder, at: int, epochs: int) -> None:
        """The old driver is stopped at point `at`, the newer one does `epochs` meanwhile."""
        pair = Stopped(folder, at, epochs)
        pair.run()
        assert pair.newer is not None
        folder.agree()
        pair.newer.run(EPOCHS - 1)  # it goes on as if nothing had been
        folder.agree()
        Drive(folder).run(1)
        folder.agree()

    def test_a_driver_stopped_in_the_output_while_another_delivers_changes_nothing(
        self, make: Any, tmp_path_factory: Any
    ) -> None:
        calm = make(tmp_path_factory.mktemp("calm"))
        if not is_exact(calm):
            return
        passed = len(stop_inside(calm, None))
        most = passed if os.environ.get(_LONG) else min(passed, self.stops_inside)
        for at in sorted({round((i + 1) * passed / most) for i in range(most)}):
            stop_inside(make(tmp_path_factory.mktemp("stopped")), at)

    def test_equal_rows_and_any_number_of_rows_arrive(self, make: Any, tmp_path: Path) -> None:
        case = make(tmp_path)
        sink = made(case.open())
        if sink.schema.names != SCHEMA.names:
            return
        numbers = [*range(MANY), *([] if case.keyed else [0, 1, 1])]
        rows = table(0, *numbers)
        sink.publish(0, sink.stage(rows, 0, "a"), ALONE)

        wanted = Counter(tuple(row.values()) for row in rows.to_pylist())
        found = Counter(case.rows())
        assert not wanted - found, "rows are missing"
        assert found == wanted or not is_exact(case)

    def test_any_text_arrives_as_it_is_or_its_batch_fails(self, make: Any, tmp_path: Path) -> None:
        case, epoch = make(tmp_path), 0
        sink, wanted = made(case.open()), list[tuple[Any, ...]]()
        if sink.schema.names != SCHEMA.names:
            return
        for text in TEXTS:
            row = {"epoch": epoch, "n": epoch, "text": text}
            try:
                staged = sink.stage(pa.Table.from_pylist([row], SCHEMA), epoch, "a")
            except HeadraceError:
                continue  # the place cannot hold it, and says so before the epoch is committed
            sink.publish(epoch, staged, ALONE)
            wanted.append(tuple(row.values()))
            epoch += 1

        agree(case, wanted)

    def test_rows_of_another_job_do_not_count_as_those_of_this_one(
        self, make: Any, tmp_path: Path
    ) -> None:
        case = make(tmp_path)
        sink = made(case.open())
        if not isinstance(sink, DeliveredSink) or not is_exact(case):
            return
        others = sink.read(sink.write(sink.records(table(7, 70_000)), 7, "others"))
        sink.publish(0, stage(sink, 0), ALONE)
        sink.deliver(others, ANOTHER, 7)
        assert dict(sink.producers()).get(ANOTHER) in (7, None)
        for epoch in (1, 2):
            sink = case.open()
            sink.publish(epoch, stage(sink, epoch), ALONE)

        held = case.open().held()
        assert held is not None and held.number == 2, "it counts epochs of another job"
        agree(case, sorted([*expected(3), (7, 70_000, 'é "70000"')]))

    def left_over(self, place: Path) -> None:
        """Override me to assert that nothing is left over in the test's folder."""


def _points(passed: list[str]) -> dict[str, list[int]]:
    """Of each point all passings, as numbers from 1."""
    found: dict[str, list[int]] = {}
    for at, name in enumerate(passed, 1):
        found.setdefault(name, []).append(at)
    return found


def _seen(folder: Path) -> dict[Path, bytes | None]:
    return {p: p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def _staged(folder: Path) -> set[str]:
    return {p.name for p in folder.rglob("part-*")}
