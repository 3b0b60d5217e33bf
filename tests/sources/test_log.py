"""A topic as an input: typed or bytes, whole or from now on, never with a silent gap."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.sources.reading import again, read_all, read_split, refusal

from headrace.clock import ManualClock
from headrace.log import EmbeddedLog
from headrace.schema import schema_of
from headrace.sources import open_source

SCHEMA = schema_of("area string, celsius double")


@pytest.fixture
def log(tmp_path) -> EmbeddedLog:
    return EmbeddedLog(tmp_path / "log", ManualClock(0))


def source(log, topic="t", schema=None, format=None, until=None, **options):
    options |= {"log": str(log.root)}
    return open_source(f"log:{topic}", schema, format, options, until=until)


def test_a_typed_topic_brings_its_schema(log):
    log.create("t", 2, SCHEMA)
    log.append("t", [{"area": "a", "celsius": 1.0}], partition=1)

    found = source(log)

    found.check()
    assert (found.schema, found.raw, found.splits()) == (SCHEMA, False, ["0", "1"])
    assert read_all(found) == [{"area": "a", "celsius": 1.0}]
    assert not found.bounded


def test_a_declared_schema_selects_and_casts(log):
    log.create("t", schema="n int, area string")
    log.append("t", [{"n": 1, "area": "a"}])

    found = source(log, schema=schema_of("n bigint"))

    found.check()
    assert read_all(found) == [{"n": 1}]


@pytest.mark.parametrize(
    ("schema", "code"), [("nope string", "HR-INPUT-005"), ("celsius string", "HR-INPUT-006")]
)
def test_a_schema_that_the_topic_has_not_is_refused(log, schema, code):
    log.create("t", schema=SCHEMA)

    error = refusal(source(log, schema=schema_of(schema)).check)

    assert error.code == code and "'t'" in error.message


def test_records_of_a_byte_topic_are_json_unless_said_otherwise(log):
    log.create("t")
    log.append("t", [b'{"area": "a", "celsius": 1}', b"b,2"])

    table, bad, _ = _decoded(source(log, schema=SCHEMA))
    lines, wrong, _ = _decoded(source(log, schema=SCHEMA, format="csv"))
    raw = source(log)

    assert (table["area"].to_pylist(), bad.tolist()) == (["a"], [False, True])
    assert lines["area"].to_pylist() == ["b"] and wrong.tolist() == [True, False]
    assert raw.schema == schema_of("value binary") and read_all(raw)[1] == {"value": b"b,2"}


def _decoded(found):
    (piece,) = found.cut("0", 0, found.latest("0"), 1)
    chunks = [chunk for chunk, _ in again(found).read(piece)]
    return found.decode(pa.concat_tables(chunks).combine_chunks())


def test_a_run_may_begin_with_what_comes_next(log):
    log.create("t")
    log.append("t", [b"old"])
    found = source(log, start="latest")
    start = found.start("0")
    log.append("t", [b"new"])

    assert [r["value"] for r in read_split(found, "0", start)[0]] == [b"new"]
    assert refusal(source, log, start="middle").code == "HR-INPUT-013"


def test_a_bounded_run_stops_at_what_was_there(log):
    log.create("t")
    log.append("t", [b"old"])
    found = source(log, until="end")
    assert found.latest("0") == 1
    log.append("t", [b"new"])

    assert found.latest("0") == 1 and found.ended("0", 1)


def test_a_missing_topic_is_refused_and_the_known_ones_named(log):
    log.create("temperature")

    error = refusal(source, log, "temperatur")

    assert error.code == "HR-INPUT-010" and "'temperature'" in str(error.hint)


@pytest.mark.parametrize("name", ["../x", "a b", "it's", "a;b", "", "/etc"])
def test_a_name_that_is_no_topic_is_refused(log, tmp_path, name):
    assert refusal(source, log, name).code == "HR-INPUT-010"
    assert list(tmp_path.iterdir()) == []


def test_a_topic_that_is_deleted_while_it_is_read_is_refused(log):
    log.create("t")
    log.append("t", [b"a"])
    found = source(log)
    found.latest("0")
    log.delete("t")

    assert refusal(found.latest, "0").code == "HR-INPUT-010"


@pytest.mark.parametrize(("cut", "code"), [(False, "HR-LOG-008"), (True, "HR-LOG-009")])
def test_damage_is_told_by_the_codes_of_the_log(log, cut, code):
    log.create("t")
    log.append("t", [b"a" * 50])
    log.append("t", [b"b" * 50])
    file = min(log.root.glob("t/*.log"))
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content[:100] if cut else content)

    assert refusal(read_all, source(log)).code == code


def test_records_that_retention_took_are_an_error(log):
    log.create("t", retention="1s", segment_bytes=1)
    for i in range(5):
        log.append("t", [b"%d" % i])
    found = source(log)
    ranges = found.cut("0", 0, 5, 1)
    log._clock.advance(60_000)
    log.sweep()
    assert log.earliest("t")[0] > 0

    for call in (found.rows, found.clamp, found.cut):
        extra = () if call == found.rows else (1,)
        error = refusal(call, "0", 0, 5, *extra)
        assert error.code == "HR-INPUT-011" and "0 to" in error.message
    assert refusal(lambda: list(found.read(ranges[0]))).code == "HR-INPUT-011"


@pytest.mark.parametrize("records", [0, 1, 2, 5])
def test_a_topic_that_was_made_again_is_an_error_for_whoever_reads_the_old_one(log, records):
    log.create("t")
    log.append("t", [b"a", b"b"])
    found, task = source(log), again(source(log))
    (part,) = found.cut("0", 0, 2, 1)
    list(task.read(part))
    log.delete("t")
    log.create("t")
    log.append("t", [b"x"] * records)

    calls = (
        found.check, found.splits, lambda: found.start("0"), lambda: found.latest("0"),
        lambda: found.rows("0", 0, 2), lambda: found.clamp("0", 0, 2, 1),
        lambda: found.cut("0", 0, 2, 1), lambda: found.has_more("0", 2),
        lambda: list(task.read(part)), lambda: list(again(found).read(part)),
    )  # fmt: skip
    for call in calls:
        assert refusal(call).code in ("HR-INPUT-016", "HR-INPUT-011")  # 011: it is not as long
    assert refusal(found.check).code == "HR-INPUT-016"
    assert source(log).identity() != found.identity()


def test_a_topic_that_is_made_again_between_finding_and_reading_it_is_not_read(log):
    log.create("t")
    log.append("t", [b"a", b"b"])
    found = source(log)
    (part,) = found.cut("0", 0, 2, 1)
    chunks = found.read(part)  # the log is asked when the first chunk is
    log.delete("t")
    log.create("t")
    log.append("t", [b"x", b"y"])

    assert refusal(lambda: list(chunks)).code == "HR-INPUT-016"


def test_a_topic_that_is_shorter_than_what_was_read_is_refused_at_the_start(log):
    log.create("t", 2)
    log.append("t", [b"a", b"b"], partition=1)

    source(log).check({"0": 0, "1": 2})
    error = refusal(source(log).check, {"0": 0, "1": 3})

    assert error.code == "HR-INPUT-007"
    assert error.message.startswith("partition 1 of topic 't' ends at 2")


def test_what_retention_took_before_it_was_read_is_refused_at_the_start(log):
    log.create("t", retention="1s", segment_bytes=1)
    for i in range(5):
        log.append("t", [b"%d" % i])
    log._clock.advance(60_000)
    log.sweep()
    earliest = log.earliest("t")[0]

    source(log).check({"0": earliest})
    assert refusal(source(log).check, {"0": earliest - 1}).code == "HR-INPUT-011"


def test_a_job_from_the_latest_reads_all_that_is_appended_after_it_looked(tmp_path):
    import headrace as hr
    from headrace.testing import Driver

    log = EmbeddedLog(tmp_path / "log")
    log.create("t", schema=schema_of("n bigint"))
    log.append("t", [{"n": 0}])
    job = hr.Job("j")
    job.read("log:t", log=str(tmp_path / "log"), start="latest", name="in").write(
        "collect:", name="out"
    )
    for n in (1, 2, 3):
        driver = Driver(job, tmp_path / "job", until=None)
        driver.drain()
        log.append("t", [{"n": n}])
        driver.drain()
        driver.close()
    found = hr.collected(str(tmp_path / "job"), "out")["n"].to_pylist()
    assert sorted(found) == [1, 2, 3]


def test_where_the_latest_is_does_not_move_and_a_new_partition_is_read_from_its_first(tmp_path):
    log = EmbeddedLog(tmp_path)
    log.create("t", schema=schema_of("n bigint"))
    log.append("t", [{"n": 0}])
    options = {"log": str(tmp_path), "start": "latest"}
    found = open_source("log:t", options=options)
    assert found.start("0") == 1
    log.append("t", [{"n": 1}])
    assert found.start("0") == 1 and found.latest("0") == 2
    again_started = open_source("log:t", options=options)
    again_started.check({"0": 1})
    assert again_started.start("0") == 0  # as of a partition that the job does not know
