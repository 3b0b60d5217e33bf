"""What every sink promises: staged unseen, published once, published twice without harm."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sinks.file_cases import A_FOLDER_A_ROW, DERIVED
from tests.sinks.test_two_drivers import nothing_is_left_over
from tests.sinks.writing import ALONE, EVERY, expected, files, log, made, refusal, stage

from headrace.sinks import AT_LEAST_ONCE, EXACTLY_ONCE
from headrace.sinks.open import KINDS
from headrace.testing import OutputSuite

# Published as "parquet" and "partitioned parquet" are, line by line: fewer crashes will do.
OTHER_FORMATS = {
    *("csv", "json lines", "text", "avro"),
    *("partitioned csv", "partitioned json lines", "partitioned text", "partitioned avro"),
}


@pytest.mark.usefixtures("eager", "hasty")
class TestEveryOutput(OutputSuite):
    # Each is an epoch of some milliseconds, or a job of a second. Outputs of a family pass the same
    # points, and each begins with another turn; HEADRACE_LONG: all.
    passings, rounds, crashes_inside = 2, 1, 4

    @pytest.fixture(params=sorted(EVERY))
    def make(self, request, cuts):
        self.turn = sorted(EVERY).index(request.param) + bool(cuts)
        if request.param in OTHER_FORMATS:
            self.passings, self.stops = 1, 8
        return EVERY[request.param]

    def test_what_was_staged_is_published_under_its_description(self, make, tmp_path, request):
        if request.node.callspec.params["make"] in ("console", *DERIVED):
            pytest.skip("its paper, or what derives its rows, is not in its description")
        super().test_what_was_staged_is_published_under_its_description(make, tmp_path)

    def test_equal_rows_and_any_number_of_rows_arrive(self, make, tmp_path, request):
        if request.node.callspec.params["make"] in A_FOLDER_A_ROW:
            pytest.skip("each row has a folder of its own")
        super().test_equal_rows_and_any_number_of_rows_arrive(make, tmp_path)

    def left_over(self, place: Path) -> None:
        if (place / "out").is_dir():
            nothing_is_left_over(place / "out")


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_staged_file_is_where_the_output_says(name, tmp_path):
    sink = EVERY[name](tmp_path).open()
    sink.open()
    for reference in stage(sink, 1):
        place = sink.staged_at(reference)
        assert place is not None and place.stat().st_size == reference["bytes"]


def test_exactly_once_is_what_the_kinds_say_that_are_tested_for_it(exact):
    assert exact.open().guarantee == EXACTLY_ONCE


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


def test_a_description_says_what_and_where(output, tmp_path):
    described = output.open().describe()

    assert described["kind"] in KINDS
    assert {"kind", "place", "format", "options", "schema"} <= set(described)
    if described["kind"] in ("files", "log"):
        assert described["place"].startswith(str(tmp_path))


def test_what_an_output_of_another_kind_staged_is_refused_by_name(tmp_path):
    one, other = files(tmp_path / "a").open(), log(tmp_path / "b").open()
    for sink, staging in ((made(one), other), (made(other), one)):
        assert refusal(sink.publish, 0, stage(staging, 0), ALONE).code == "HR-OUTPUT-007"


def test_every_kind_of_output_passes_this_suite() -> None:
    elsewhere = {
        "kafka": "tests/kafka/test_output.py", "mqtt": "tests/mqtt/test_mqtt.py",
        "table": "tests/engine/test_spark_io.py",
    }  # fmt: skip
    here = {
        "files": {"parquet", "json lines", "csv", "text", "avro"}, "collect": {"collect"},
        "log": {"typed topic", "keyed topic", "byte topic"}, "console": {"console"},
        "sql": {"sqlite table", "duckdb upsert", "postgresql table", "postgresql upsert"},
        "delta": {"delta", "delta upsert"}, "iceberg": {"iceberg"}, "webhook": {"webhook"},
    }  # fmt: skip
    assert set(KINDS) == {*here, *elsewhere}
    assert set(EVERY) > OTHER_FORMATS
    assert all(cases <= set(EVERY) for cases in here.values())
    root = Path(__file__).parents[2]
    assert all("(OutputSuite)" in (root / file).read_text() for file in elsewhere.values())
