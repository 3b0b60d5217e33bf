"""Columns that are added to a topic while programs read and write it."""

from __future__ import annotations

import multiprocessing

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.reading import read_all

import headrace as hr
from headrace.errors import LogError
from headrace.log import EmbeddedLog
from headrace.sources import open_source

OLD, NEW = "area string, n long", "area string, n long, unit string"
NEWEST = NEW + ", at timestamp"


def rows(log, topic="t"):
    tables = [table for p in log.latest(topic) for _, table in log.read(topic, p, 0)]
    return [row for table in tables for row in table.to_pylist()]


def refusal(call, *args, **kwargs):
    with pytest.raises(LogError) as caught:
        call(*args, **kwargs)
    assert caught.value.hint
    return caught.value


def test_old_records_have_nulls_and_appends_may_leave_new_columns_out(log):
    log.create("t", 1, OLD)
    log.append("t", [("a", 1)])
    info = log.alter("t", NEW)
    assert (info.schema.names, info.added) == (["area", "n", "unit"], ("unit",))
    log.append("t", [("b", 2, "C")])
    log.append("t", [("c", 3)])
    log.append("t", [{"area": "d", "n": 4}, {"area": "e", "n": 5, "unit": "F"}])
    log.append("t", pa.table({"n": [6], "area": ["f"]}))
    found = [(r["area"], r["n"], r["unit"]) for r in rows(log)]
    assert found == [
        ("a", 1, None), ("b", 2, "C"), ("c", 3, None),
        ("d", 4, None), ("e", 5, "F"), ("f", 6, None),
    ]  # fmt: skip
    assert log.describe("t").schema.names == ["area", "n", "unit"]


@pytest.mark.parametrize(
    "schema",
    ["area string", "area string, n int", "area string, n long, x int not null",
     "area string not null, n long, x int"],
)  # fmt: skip
def test_what_is_not_an_addition_is_refused_and_changes_nothing(log, schema):
    before = log.create("t", 1, OLD)
    assert refusal(log.alter, "t", schema).code == "HR-LOG-030"
    assert log.describe("t") == before
    log.create("bytes")
    assert refusal(log.alter, "bytes", OLD).code == "HR-LOG-030"
    assert refusal(log.alter, "nope", OLD).code == "HR-LOG-002"


def test_the_same_columns_again_change_nothing_and_any_version_exists_already(log):
    log.create("t", 1, OLD)
    assert log.alter("t", OLD).added == ()
    log.alter("t", NEW)
    assert log.alter("t", NEW).added == ("unit",)
    assert log.create("t", 1, OLD, exist_ok=True).added == ("unit",)
    assert log.create("t", 1, NEW, exist_ok=True).added == ("unit",)
    assert refusal(log.create, "t", 1, "area string", exist_ok=True).code == "HR-LOG-003"


def test_programs_that_opened_the_topic_before_go_on(reopen):
    one, two = reopen(), reopen()
    one.create("t", 1, OLD)
    one.append("t", [("a", 1)])
    assert len(rows(two)) == 1
    chunks = two.read("t", 0, 0)
    one.alter("t", NEW)
    one.append("t", [("b", 2, "C")])
    assert [t.column_names for _, t in chunks] == [["area", "n"]]
    two.append("t", [("c", 3)])
    two.append("t", [("d", 4, "F")])
    assert (
        [r["unit"] for r in rows(one)] == [r["unit"] for r in rows(two)] == [None, "C", None, "F"]
    )


def test_a_reader_that_is_in_the_middle_sees_the_columns_it_began_with(reopen):
    one, two = reopen(), reopen()
    one.create("t", 1, OLD)
    opened, _ = two._topics.published("t") if isinstance(two, EmbeddedLog) else (None, None)
    if opened is None:
        pytest.skip("of the embedded log")
    one.append("t", [("a", 1)])
    one.alter("t", NEW)
    one.append("t", [("b", 2, "C")])
    tables = [table for _, table in opened.reader.read(0, 0, 2, False)]
    assert pa.concat_tables(tables).to_pylist() == [{"area": "a", "n": 1}, {"area": "b", "n": 2}]


def test_a_repeated_append_is_recognised_after_a_change(reopen):
    one, two = reopen(), reopen()
    one.create("t", 1, OLD)
    one.append("t", [("a", 1)], producer="p", sequence=1)
    two.latest("t")
    one.alter("t", NEW)
    for log in (one, two):
        assert log.append("t", [("a", 1)], producer="p", sequence=1)[0] == (0, 1)
    assert len(rows(one)) == 1


@given(st.lists(st.sampled_from(["old", "new", "newest", "alter"]), max_size=12))
def test_drawn_changes_and_appends_agree_with_a_model(steps):
    import tempfile

    with tempfile.TemporaryDirectory() as path:
        log, model, schemas = EmbeddedLog(path), [], [NEW, NEWEST]
        log.create("t", 1, OLD)
        width = 2
        for i, step in enumerate(steps):
            if step == "alter" and schemas:
                log.alter("t", schemas.pop(0))
                width += 1
            wanted = {"old": 2, "new": 3, "newest": 4}.get(step)
            if wanted is None:
                continue
            row = (f"a{i}", i, "u", None)[:wanted]
            if wanted > width:
                assert refusal(log.append, "t", [row]).code == "HR-LOG-006"
            else:
                log.append("t", [row])
                model.append({"area": f"a{i}", "n": i, "unit": "u" if wanted > 2 else None})
        found = rows(EmbeddedLog(path))
        assert [{"unit": None} | {k: v for k, v in r.items() if k != "at"} for r in found] == model


def test_a_running_process_sees_a_change_that_another_makes(embedded):
    embedded.create("t", 1, OLD)
    process = multiprocessing.get_context("fork").Process(
        target=lambda: EmbeddedLog(embedded.root).alter("t", NEW)
    )
    process.start()
    process.join(20)
    assert embedded.describe("t").added == ("unit",)


def test_an_input_goes_on_with_the_columns_it_was_opened_with(embedded):
    embedded.create("t", 1, OLD)
    embedded.append("t", [("a", 1)])
    source = open_source("log:t", None, None, {"log": str(embedded.root)})
    embedded.alter("t", NEW)
    embedded.append("t", [("b", 2, "C")])
    source.check({"0": 1})
    assert read_all(source) == [{"area": "a", "n": 1}, {"area": "b", "n": 2}]
    later = open_source("log:t", None, None, {"log": str(embedded.root)})
    assert [r["unit"] for r in read_all(later)] == [None, "C"]


def test_retention_waits_for_groups_if_asked(embedded, clock):
    for name, waits in (("waits", True), ("goes", False)):
        embedded.create(name, 1, retention="1s", segment_bytes=1, retention_groups=waits)
        for i in range(5):
            embedded.append(name, [b"%d" % i])
        with hr.Consumer(name, "g", log=embedded) as consumer:
            consumer.poll(max_rows=2)
        clock.advance(10_000)
        embedded.append(name, [b"5"])
        embedded.sweep(name)
    assert embedded.earliest("waits") == {0: 2}
    assert embedded.earliest("goes")[0] > 2
    with hr.Consumer("waits", "g", log=embedded) as consumer:
        assert [r.offset for r in consumer.records("20ms")] == [2, 3, 4, 5]
    clock.advance(10_000)
    embedded.sweep("waits")
    assert embedded.earliest("waits")[0] > 2
    assert embedded.describe("waits").retention_groups
