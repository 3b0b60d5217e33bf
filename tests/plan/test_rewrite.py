"""Rewrites change how a program runs, not what it means: same names, same columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.expr import col
from headrace.kernel import compile_chain
from headrace.ops.agg.named import count, max_by, mean
from headrace.ops.stream.running_aggregates import RunningAggregates
from headrace.ops.window.aligned import tumbling
from headrace.ops.window.spec import PaneWindows
from headrace.plan.nodes import (
    Python,
    PythonChain,
    Select,
    SelectChain,
    Stateful,
)

WINDOW = tumbling("5s")


def test_expressions_that_follow_each_other_are_one_chain(job, stream):
    stream.where("celsius > 0").with_columns(f="celsius * 2").select("f").write("log:out")
    program = job.program()
    assert list(program.nodes) == ["temperature", "temperature.select", "out.write"]
    chain = program.nodes["temperature.select"]
    assert isinstance(chain, SelectChain)
    names = ["temperature.where", "temperature.with_columns", "temperature.select"]
    assert [s.name for s in chain.steps] == names
    assert chain.inputs[0].node is program.nodes["temperature"]


def test_a_chain_compiles_to_the_columns_it_promises(job, stream):
    stream.where("celsius > 0").with_columns(f="celsius * 2").select("f", "area").write("log:out")
    chain = job.program().nodes["temperature.select"]
    kernel = compile_chain(chain.steps, chain.inputs[0].schema)
    assert kernel.schema == chain.schema


def test_a_step_with_two_readers_is_not_fused_into_either(job, stream):
    base = stream.where("celsius > 0")
    base.select("area").write("log:a")
    base.select("sensor").write("log:b")
    program = job.program()
    assert len(program.nodes["temperature.where"].steps) == 1
    assert program.consumers_of("temperature.where") == (
        ("temperature.select", 0), ("temperature.select-2", 0),
    )  # fmt: skip


def test_python_functions_that_follow_each_other_are_one_pass(job, stream):
    made = stream.map(lambda e: {"a": str(e.area)}, schema="a string")
    made.filter(lambda e: e.a.startswith("r") and True).tap(print).write("log:out")
    chain = job.program().nodes["temperature.tap"]
    assert isinstance(chain, PythonChain)
    assert [s.kind for s in chain.steps] == ["map", "filter", "tap"]
    assert chain.schema.names == ["a"]


def test_a_batch_function_stays_alone(job, stream):
    stream.tap(print).map_batches(lambda t: t).tap(print).write("log:out")
    kinds = [type(n) for n in job.program().nodes.values()]
    assert kinds.count(PythonChain) == 2
    assert kinds.count(Python) == 1


def test_a_tap_at_the_end_of_a_stream_is_kept(job, stream):
    stream.where("celsius > 0").tap(print)
    assert list(job.program().nodes)[-1] == "temperature.tap"


def test_only_needed_columns_are_read(job, stream):
    stream.where("sensor > 1").key_by("area").window(WINDOW).agg(c=mean("celsius")).write("log:out")
    read = job.program().nodes["temperature"]
    assert read.schema.names == ["area", "celsius", "at", "sensor"]
    assert read.declared.names == ["area", "celsius", "at", "sensor", "note"]


def test_a_filter_passes_on_only_what_is_read(job, stream):
    filtered = stream.where("sensor > 1")
    filtered.key_by("area").window(WINDOW).agg(n=count()).write("log:out")
    assert job.program().nodes["temperature.where"].schema.names == ["area", "at", "sensor"]


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.tap(print),
        lambda s: s.map(lambda e: {"a": str(e)}, schema="a string"),
        lambda s: s.map_batches(lambda t: t),
        lambda s: s.union(s.where("celsius > 1")),
        lambda s: s.key_by("area").reduce(lambda a, b: a, unbounded=True),
        lambda s: s.key_by("area").agg(n=count(), unbounded=True),
        lambda s: s.window(WINDOW).agg(n=count()).late,
        lambda s: s.where("celsius > 1"),
    ],
)
def test_a_step_that_may_look_at_any_column_gets_all(job, stream, use):
    use(stream).write("log:out")
    read = job.program().nodes["temperature"]
    assert len(read.schema) == 5
    assert read.declared is None


def test_counting_alone_still_reads_a_column(job):
    raw = job.read("log:raw", schema="a string, b string, at timestamp", time="at", delay="1s")
    raw.window(WINDOW).agg(n=count()).write("log:out")
    assert job.program().nodes["raw"].schema.names == ["at"]


def test_arguments_that_are_expressions_become_columns(job, stream):
    windows = stream.key_by("area").window(WINDOW)
    windows.agg(c=mean(col("celsius") + 1), m=max_by("sensor", lambda e: -e.celsius)).write("log:o")
    program = job.program()
    before, window = (
        program.nodes["temperature.window:arguments"],
        program.nodes["temperature.window"],
    )
    assert isinstance(window, Stateful) and isinstance(window.what, PaneWindows)
    assert before.schema.names == ["area", "sensor", "$c", "$m.by"]
    assert [(a.column, a.by) for _, a in window.what.aggs] == [("$c", None), ("sensor", "$m.by")]
    assert window.schema.names == ["area", "window_start", "window_end", "c", "m"]
    assert program.nodes["temperature"].schema.names == ["area", "celsius", "at", "sensor"]


def test_late_rows_do_not_show_the_columns_made_for_aggregates(job, stream):
    result = stream.key_by("area").window(WINDOW).agg(c=mean("celsius + 1"))
    result.write("log:out")
    result.late.write("log:late")
    program = job.program()
    late = program.nodes["late.write"].inputs[0]
    assert late.schema == stream.schema
    assert program.consumers_of("temperature.window", "late") == (("temperature.window:late", 0),)
    assert "$c" in program.nodes["temperature.window:late"].inputs[0].schema.names


def test_running_aggregates_do_not_show_them_either(job, stream):
    stream.key_by("area").agg(c=mean("celsius + 1"), unbounded=True).write("log:out")
    rolling = job.program().nodes["temperature.agg"]
    assert isinstance(rolling, Stateful) and isinstance(rolling.what, RunningAggregates)
    assert rolling.schema.names == [*stream.schema.names, "c"]
    assert rolling.inputs[0].schema.names == [*stream.schema.names, "$c"]


def test_nothing_of_the_program_as_written_is_left_in_the_one_that_runs(job, stream):
    stream.where("celsius > 0").select("area").tap(print).write("log:out")
    program = job.program()
    for node in program.nodes.values():
        assert not isinstance(node, Select)
        assert all(e.node is program.nodes[e.node.name] for e in node.inputs)


def test_a_key_that_is_computed_is_a_column(job, stream):
    stream.key_by(zone="upper(area)").window(WINDOW).agg(n=count()).write("log:out")
    program = job.program()
    assert program.nodes["temperature.window"].schema.field("zone").type == pa.string()
    assert "zone" in program.nodes["temperature.key_by"].schema.names
