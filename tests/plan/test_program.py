"""A program as the engine gets it: levels, consumers, and a way to travel."""

from __future__ import annotations

import cloudpickle
import pytest

from headrace.errors import PlanError
from headrace.ops.agg.named import count, mean
from headrace.ops.process.function import KeyedProcess
from headrace.ops.window.aligned import tumbling
from headrace.plan.program import build

WINDOW = tumbling("5s")


class Nothing(KeyedProcess):
    output = "area string"

    def on_row(self, row, ctx): ...


def test_a_program_without_state_has_no_levels_below_the_source(job, stream):
    stream.where("celsius > 1").write("log:out")
    program = job.program()
    assert program.depth == 0
    assert program.level("out.write") == 0
    assert program.stateful() == ()


def test_state_is_one_level_below_the_deepest_of_its_inputs(job, stream):
    average = stream.key_by("area").window(WINDOW).agg(c=mean("celsius"))
    again = average.where("c > 1").window(WINDOW).agg(n=count())
    both = average.connect(again.with_columns(area="'all'"), by="area", names=("one", "two"))
    both.process(Nothing(), name="both").write("log:out")
    program = job.program()
    assert program.level("temperature.window") == 1
    assert program.level("temperature.window.where") == 1
    assert program.level("temperature.window.window") == 2
    assert program.level("both") == program.level("out.write") == program.depth == 3
    assert [n.name for n in program.stateful_at(2)] == ["temperature.window.window"]


def test_operators_at_the_same_depth_share_a_level(job, stream):
    stream.key_by("area").window(WINDOW).agg(n=count()).write("log:a")
    stream.key_by("sensor").window(WINDOW).agg(n=count()).write("log:b")
    assert len(job.program().stateful_at(1)) == 2


def test_a_step_after_a_union_runs_where_each_row_is(job, stream):
    slow = stream.key_by("area").window(WINDOW).agg(n=count()).select("area", at="window_end")
    both = stream.select("area", "at").union(slow).where("area = 'roof'")
    both.key_by("area").window(WINDOW).agg(n=count()).write("log:out")
    program = job.program()
    assert program.levels["temperature.union.where"] == {0, 1}
    assert program.level("temperature.union.window") == 2


def test_late_rows_are_where_the_input_is(job, stream):
    result = stream.key_by("area").window(WINDOW).agg(n=count())
    result.write("log:out")
    result.late.window(WINDOW).agg(n=count()).write("log:late")
    program = job.program()
    assert program.level("temperature.window.late.window") == 1


def test_consumers_are_known_by_port_and_input(job, stream):
    result = stream.key_by("area").window(WINDOW).agg(n=count())
    result.connect(stream, by="area", names=("a", "b")).process(Nothing(), name="p").tap(print)
    result.late.write("log:late")
    program = job.program()
    assert program.consumers == {
        ("temperature", "out"): (("temperature.window", 0), ("p", 1)),
        ("temperature.window", "out"): (("p", 0),),
        ("p", "out"): (("p.tap", 0),),
        ("temperature.window", "late"): (("late.write", 0),),
    }


def test_nodes_come_after_those_they_read_from(job, stream):
    first = stream.where("celsius > 1")
    first.key_by("area").window(WINDOW).agg(n=count()).union(
        stream.key_by("area").window(WINDOW).agg(n=count())
    ).write("log:out")
    seen = set()
    for node in job.program().nodes.values():
        assert {e.node.name for e in node.inputs} <= seen
        seen.add(node.name)


def test_a_program_travels_whole(job, stream):
    offset = 3
    stream.where("celsius > 1").map(
        lambda e: {"a": str(e.area) * offset}, schema="a string"
    ).filter(lambda e: bool(e.a)).write("log:out")
    stream.key_by("area").window(WINDOW).agg(c=mean("celsius * 2")).late.write("log:late")
    sent = job.program()
    got = cloudpickle.loads(cloudpickle.dumps(sent))
    assert list(got.nodes) == list(sent.nodes)
    assert got.consumers == sent.consumers
    assert got.levels == sent.levels
    assert [n.schema for n in got.nodes.values()] == [n.schema for n in sent.nodes.values()]
    assert got.nodes["temperature.filter"].steps[0].function.fn.__closure__[0].cell_contents == 3


def test_a_long_chain_travels_too(job, stream):
    for i in range(300):
        stream = stream.where(f"celsius > {i}")
    stream.write("log:out")
    program = cloudpickle.loads(cloudpickle.dumps(job.program()))
    assert len(program.nodes["temperature.where-300"].steps) == 300


def test_a_wrong_program_is_not_built(job, stream):
    stream.where("nothing > 1").write("log:out")
    with pytest.raises(PlanError, match="HR-EXPR-001"):
        job.program()


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [("jobs/x", "'jobs/x' is no job"), (lambda: 0, "a function is no job"), (None, "is no job")],
)
def test_what_is_no_job_is_refused_by_name(wrong, fact):
    with pytest.raises(PlanError, match=rf"HR-PLAN-066 .*{fact}"):
        build(wrong)


def test_a_stream_is_no_job(stream):
    with pytest.raises(PlanError, match="HR-PLAN-066 a Stream is no job"):
        build(stream)


def test_the_jobs_settings_are_part_of_the_program(stream, job):
    stream.write("log:out")
    program = job.program()
    assert (program.name, program.on_error, program.slots) == ("test", "dead", None)


def test_the_dead_letter_stream_is_there_when_it_is_used(job, stream):
    stream.write("log:out")
    assert job.program().dead() is None
    job.dead.write("log:dead-letters")
    assert job.program().consumers_of("dead") == (("dead-letters.write", 0),)
