"""Names are identity: derived ones depend on the place of a step and on nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.api.job import Job
from headrace.ops.agg.named import count
from headrace.ops.window.aligned import tumbling
from headrace.plan.draft import place_name
from headrace.sources import rows

SCHEMA = "area string, celsius double, at timestamp"


def read(job, name="temperature"):
    return job.read(f"log:{name}", schema=SCHEMA, time="at", delay="2s")


def windowed(stream, **names):
    return stream.key_by("area").window(tumbling("5s")).agg(n=count(), **names)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("log:temperature", "temperature"),
        ("files:data/day/readings.json", "readings"),
        ("files:data/day/*.json", "day"),
        ("files:/tmp/x y/", "x-y"),
        ("socket:localhost:9999", "localhost-9999"),
        ("console:", "console"),
        (rows([{"a": 1}]), "memory"),
    ],
)
def test_an_input_is_named_after_its_place(uri, name):
    assert place_name(uri) == name


def test_a_step_is_named_after_its_place_and_kind():
    stream = read(Job("j"))
    assert stream.where("celsius > 1").name == "temperature.where"
    assert stream.where("celsius > 2").name == "temperature.where-2"
    assert windowed(stream.where("celsius > 3")).name == "temperature.window"
    assert windowed(stream).where("n > 1").name == "temperature.window-2.where"
    assert windowed(stream).late.where("celsius > 1").name == "temperature.window-3.late.where"


def test_steps_added_before_or_beside_do_not_change_a_name():
    job = Job("j")
    stream = read(job)
    before = windowed(stream).name

    other = Job("j")
    stream = read(other)
    stream.where("celsius > 0").select("area").tap(print)
    mapped = stream.where("celsius > 1").with_columns(f="celsius * 2").where("f > 1")
    assert windowed(mapped).name == before


STEPS = {
    "where": lambda s: s.where("celsius > 1"),
    "columns": lambda s: s.with_columns(f="celsius * 2"),
    "tap": lambda s: s.tap(print),
    "python": lambda s: s.filter(lambda r: r.celsius > 1 and True),
    "beside": lambda s: (s.select("area").tap(print), s)[1],
    "key": lambda s: s.key_by(zone="area").unkeyed,
}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=6))
def test_no_unnamed_step_on_the_way_changes_the_name_of_a_window(steps):
    stream = read(Job("j"))
    for step in steps:
        stream = STEPS[step](stream)
    assert windowed(stream).name == "temperature.window"


def test_a_name_that_the_user_gave_opens_a_place():
    stream = read(Job("j"))
    hot = stream.where("celsius > 40", name="hot")
    assert hot.name == "hot"
    assert windowed(hot).name == "hot.window"
    assert windowed(stream.where("celsius < 0").named("cold")).name == "cold.window"


def test_branches_and_unions_are_places():
    job = Job("j")
    stream = read(job)
    hot, _ = stream.split(hot="celsius > 40", cold="celsius < 0")
    assert hot.name == "temperature.hot"
    assert windowed(hot).name == "temperature.hot.window"
    both = stream.union(read(job, "more"))
    assert windowed(both).name == "temperature.union.window"


def test_naming_a_step_afterwards_is_as_naming_it_at_once():
    stream = read(Job("j"))
    first = stream.where("celsius > 1").named("warm")
    second = stream.where("celsius > 2")
    assert (first.name, second.name) == ("warm", "temperature.where")


def test_a_step_renamed_after_it_was_used_is_renamed_for_its_users_too():
    job = Job("j")
    early = windowed(read(job))
    early.write("log:out")
    late = early.named("average", was="temperature.window")
    late.late.write("log:late")
    program = job.program()
    assert program.nodes["average"].was == "temperature.window"
    assert program.consumers_of("average") == (("out.write", 0),)
    assert program.consumers_of("average", "late") == (("late.write", 0),)
    assert early.name == late.name == "average"


def test_outputs_are_named_after_their_place():
    job = Job("j")
    stream = read(job)
    stream.write("files:out/raw", format="json")
    stream.write("log:raw-topic")
    stream.where("celsius > 1").write("console:")
    stream.write("collect:", name="seen")
    assert [o.name for o in job.program().outputs()] == [
        "raw.write", "raw-topic.write", "temperature.write", "seen",
    ]  # fmt: skip


def test_was_is_kept():
    job = Job("j")
    made = windowed(read(job), name="average", was="mean")
    assert made._edge.node.was == "mean"
