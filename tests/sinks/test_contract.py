"""What every sink promises: staged unseen, published once, published twice without harm."""

from __future__ import annotations

import json
from pathlib import Path

from tests.sinks.writing import ALONE, expected, files, log, made, refusal, stage, table

from headrace.sinks import AT_LEAST_ONCE, EXACTLY_ONCE, HeldEpochs, reopen_sink


def test_opening_leaves_no_trace(output, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    output.open()
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_staged_is_not_seen_until_it_is_published(output):
    sink = output.open()
    made(sink)
    staged = stage(sink, 0)
    assert output.rows() == []

    output.open().publish(0, staged, ALONE)

    assert output.rows() == expected(1)


def test_epochs_add_up(output):
    for epoch in range(5):
        sink = output.open()
        made(sink)
        sink.publish(epoch, stage(sink, epoch), ALONE)

    assert output.rows() == expected(5)


def test_an_epoch_without_rows_is_nothing(output):
    sink = output.open()
    made(sink)
    assert sink.stage(table(0), 0, "a") == []
    sink.publish(0, [], ALONE)
    sink.publish(1, stage(sink, 1), ALONE)
    sink.publish(2, [], ALONE)

    assert output.rows() == [r for r in expected(2) if r[0] == 1]


def test_publishing_again_changes_nothing(exact):
    assert exact.open().guarantee == EXACTLY_ONCE
    made(exact.open())
    for epoch in range(4):
        staged = stage(exact.open(), epoch)
        for sink in (exact.open(), exact.open()):
            sink.publish(epoch, staged, ALONE)
            sink.publish(epoch, staged, ALONE)

    assert exact.rows() == expected(4)


def test_the_console_may_say_a_thing_twice_but_not_in_one_run(tmp_path):
    from tests.sinks.writing import ALONE, console

    output = console(tmp_path)
    sink = output.open()
    staged = stage(sink, 0)
    sink.publish(0, staged, ALONE)
    sink.publish(0, staged, ALONE)
    assert (sink.guarantee, output.rows()) == (AT_LEAST_ONCE, expected(1))
    output.open().publish(0, staged, ALONE)
    assert len(output.rows()) == 2 * len(expected(1))


def test_two_attempts_at_an_epoch_do_not_meet_and_one_is_published(output):
    sink = output.open()
    made(sink)
    stage(sink, 0, attempt="lost")
    staged = stage(sink, 0, attempt="kept")
    sink.publish(0, staged, ALONE)

    assert output.rows() == expected(1)


def test_discard_removes_what_no_manifest_names_and_nothing_else(output, tmp_path):
    sink = output.open()
    made(sink)
    published = stage(sink, 0)
    sink.publish(0, published, ALONE)
    stage(sink, 1, attempt="lost")
    waiting = stage(sink, 1, attempt="kept")
    running = stage(sink, 2)
    live = {r["file"] for r in [*published, *waiting]}

    sink.discard(live, upto=1)
    assert staged_files(tmp_path) >= {r["file"] for r in [*waiting, *running]}
    assert not any("lost" in name for name in staged_files(tmp_path))

    sink.discard(live)
    assert not staged_files(tmp_path) & {r["file"] for r in running}
    sink.publish(1, waiting, ALONE)
    assert output.rows() == expected(2)


def staged_files(tmp_path: Path) -> set[str]:
    return {p.name for p in tmp_path.rglob("part-*")}


def test_hidden_columns_are_not_written(output):
    sink = output.open()
    made(sink)
    rows = table(0, 1).append_column("__t", [[5]])

    sink.publish(0, sink.stage(rows, 0, "a"), ALONE)

    assert output.rows() == [(0, 1, 'é "1"')]


def test_an_output_that_was_renamed_publishes_what_it_staged_before_once(exact):
    sink = exact.open()
    made(sink)
    staged = stage(sink, 0)
    sink.publish(0, staged, ALONE)
    waiting = stage(sink, 1)
    renamed = exact.open()
    renamed._name = "renamed"

    renamed.publish(0, staged, ALONE)
    renamed.publish(1, waiting, ALONE)
    renamed.publish(2, stage(renamed, 2), ALONE)

    assert exact.rows() == expected(3)


def test_checking_leaves_no_trace(output, tmp_path):
    def seen() -> dict[Path, bytes | None]:
        return {p: p.read_bytes() if p.is_file() else None for p in tmp_path.rglob("*")}

    before = seen()
    sink = output.open()
    sink.check()
    sink.describe()
    assert sink.held() in (HeldEpochs(), HeldEpochs(final=True), None)
    assert seen() == before


def test_what_was_staged_is_published_under_its_description(exact, tmp_path):
    sink = made(exact.open())
    sink.publish(0, stage(sink, 0), ALONE)
    staged = stage(sink, 1)
    described = json.loads(json.dumps(sink.describe()))

    reopened = reopen_sink(described, str(tmp_path / "job"), "another name", key="o")
    reopened.publish(1, staged, ALONE)
    reopened.publish(2, stage(reopened, 2), ALONE)

    assert exact.rows() == expected(3)
    assert (reopened.describe(), reopened.held().number) == (described, 2)


def test_a_description_says_what_and_where(output, tmp_path):
    described = output.open().describe()

    assert described["kind"] in ("files", "log", "collect", "console")
    assert {"kind", "place", "format", "options", "schema"} <= set(described)
    if described["kind"] in ("files", "log"):
        assert described["place"].startswith(str(tmp_path))


def test_what_an_output_of_another_kind_staged_is_refused_by_name(tmp_path):
    one, other = files(tmp_path / "a").open(), log(tmp_path / "b").open()
    for sink, staging in ((made(one), other), (made(other), one)):
        assert refusal(sink.publish, 0, stage(staging, 0), ALONE).code == "HR-OUTPUT-007"
