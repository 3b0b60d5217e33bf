"""Keyed process functions: what a class declares, and how inputs find their methods."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

import headrace as hr
from headrace.api.keyed import connect
from headrace.errors import PlanError
from headrace.ops.process.function import KeyedProcess
from headrace.ops.process.operator import ProcessSpec
from headrace.ops.process.state_kinds import value

SMOKE = "area string, level double, at timestamp"


@dataclass
class Alarm:
    area: str
    celsius: float


class FireAlarm(KeyedProcess):
    output = Alarm
    hot = value(bool, default=False)
    seen = value(list[str], default=[])

    def on_temperature(self, row, ctx):
        self.hot = row.celsius > 40

    def on_smoke(self, row, ctx):
        if self.hot:
            yield Alarm(row.area, 40.0)


class CarefulAlarm(FireAlarm):
    since = value("timestamp")


def test_values_are_collected_from_the_class_and_its_bases():
    assert list(FireAlarm.values) == ["hot", "seen"]
    assert list(CarefulAlarm.values) == ["hot", "seen", "since"]
    assert FireAlarm.state() == pa.schema([("hot", pa.bool_()), ("seen", pa.list_(pa.string()))])


def test_a_value_reads_as_its_default_until_it_is_set():
    one, two = FireAlarm(), FireAlarm()
    assert one.hot is False
    one.hot = True
    one.seen.append("x")
    assert (one.hot, two.hot) == (True, False)
    assert (one.seen, two.seen) == (["x"], [])
    assert CarefulAlarm().since is None


def test_what_is_not_declared_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'cold'"):
        _ = FireAlarm().cold


def test_a_process_function_can_be_tried_without_an_engine():
    @dataclass
    class Row:
        area: str
        celsius: float = 0.0

    alarm = FireAlarm()
    alarm.on_temperature(Row("roof", 50.0), None)
    assert list(alarm.on_smoke(Row("roof"), None)) == [Alarm("roof", 40.0)]


def test_methods_are_named_after_inputs():
    assert FireAlarm.handlers() == ("smoke", "temperature")


@pytest.fixture
def smoke(job):
    return job.read("log:smoke", schema=SMOKE, time="at", delay="2s")


def test_inputs_are_called_by_their_source_unless_named(temperature, smoke):
    made = temperature.where("celsius > 0").connect(smoke, by="area")
    node = made.process(FireAlarm(), unbounded=True)._edge.node
    assert isinstance(node.what, ProcessSpec)
    assert node.what.names == ("temperature", "smoke")
    assert node.keys == (("area",), ("area",))
    assert node.schema == pa.schema([("area", pa.string()), ("celsius", pa.float64())])
    assert node.timed


def test_an_input_is_called_by_the_name_its_step_was_given(temperature, smoke):
    hot = temperature.where("celsius > 40", name="hot-ones")
    node = hot.connect(smoke, by="area").process(FireAlarm(), unbounded=True)._edge.node
    assert node.what.names == ("hot_ones", "smoke")


@pytest.mark.parametrize("by", ["area", ["area"], {"temperature": "area", "smoke": ("area",)}])
def test_the_key_can_be_said_in_three_ways(temperature, smoke, by):
    made = connect(by=by, temperature=temperature, smoke=smoke)
    assert made.process(FireAlarm(), unbounded=True)._edge.node.keys == (("area",), ("area",))


def test_streams_that_are_keyed_already_need_no_key(temperature, smoke):
    made = temperature.key_by("area").connect(smoke.key_by("area"), names=("temperature", "smoke"))
    node = made.process(FireAlarm(), unbounded=True)._edge.node
    assert node.keys == (("area",), ("area",))


def test_output_may_be_said_when_the_function_is_used(temperature, codes):
    class Plain(KeyedProcess):
        def on_row(self, row, ctx): ...

    made = temperature.key_by("area").process(Plain(), output="area string, n bigint")
    assert made.schema.names == ["area", "n"]
    made.write("log:out")
    assert codes() == []


def test_a_process_over_an_input_without_time_has_no_time(job, temperature):
    bare = job.read("log:bare", schema=SMOKE)
    made = connect(by="area", temperature=temperature, smoke=bare)
    assert not made.process(FireAlarm(), unbounded=True)._edge.node.timed


@pytest.mark.parametrize(
    "other",
    [
        lambda s: s.table("area", unbounded=True),
        lambda s: s.table("area", delete="area = 'x'", unbounded=True),
        lambda s: s.key_by("area").window(hr.tumbling("1m")),
    ],
)
def test_a_table_or_windows_cannot_be_connected(job, temperature, smoke, other):
    joined = temperature.key_by("area").connect(other(smoke), names=("temperature", "smoke"))
    joined.process(FireAlarm(), unbounded=True).write("log:out")
    with pytest.raises(PlanError) as caught:
        job.check()
    assert "HR-PLAN-018" in [p.code for p in caught.value.problems]
