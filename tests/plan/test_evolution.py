"""A changed program beside the state of the one before."""

from __future__ import annotations

import json
import shlex

import pytest

from headrace.api.job import Job
from headrace.api.patterns import pattern
from headrace.errors import StateError
from headrace.ops.agg.named import count, mean, sum
from headrace.ops.process.function import KeyedProcess
from headrace.ops.process.state_kinds import value
from headrace.ops.window.aligned import sliding, tumbling
from headrace.plan.evolution import Comparison, compare, describe, fingerprint

SCHEMA = "area string, zone string, celsius double, sensor bigint, at timestamp"


def read(job, uri="log:temperature", **said):
    return job.read(uri, schema=SCHEMA, time="at", delay="2s", **said)


def program(build, **said):
    """The program in which `build` makes the one step after a read."""
    job = Job("j")
    build(read(job, **said)).write("log:out")
    return job.program()


FIVE = tumbling("5s")


def base(stream, window=FIVE, key="area", **names):
    return stream.key_by(key).window(window).agg(c=mean("celsius"), n=count(), **names)


def verdicts(comparison: Comparison, role="operator"):
    return {c.name: c.verdict for c in comparison.changes if c.role == role}


def versus(build, before=base, shapes=True):
    old = describe(program(before))
    if not shapes:
        old = {n: {k: v for k, v in d.items() if k != "shape"} for n, d in old.items()}
    return compare(program(build), old)


def test_the_same_program_is_the_same():
    assert verdicts(versus(base)) == {"temperature.window": "same"}


AROUND = [
    lambda s, **named: base(s.where("celsius > 0").with_columns(f="celsius"), **named),
    lambda s, **named: base(s.filter(str), **named),
    lambda s, **named: base(s, **named).where("c > 1"),
]


@pytest.mark.parametrize("build", AROUND)
def test_the_state_of_a_step_with_a_name_does_not_mind_the_steps_around_it(build):
    named = {"name": "temperature.window"}
    before = lambda s: base(s, **named)  # noqa: E731
    assert verdicts(versus(lambda s: build(s, **named), before)) == {"temperature.window": "same"}
    assert verdicts(versus(lambda s: build(s, **named))) == {"temperature.window": "same"}


@pytest.mark.parametrize("build", AROUND[:2])
def test_a_step_without_a_name_is_also_what_it_reads_from(build):
    (refused,) = versus(build).of("refused")
    assert refused.code == "HR-EVOLVE-005" and "name='temperature.window'" in refused.hint


REFUSED = {
    "size": (lambda s: base(s, tumbling("10s")), "its window was tumbling 5s and is tumbling 10s"),
    "slide": (lambda s: base(s, sliding("5s", every="1s")), "and is sliding 5s every 1s"),
    "offset": (lambda s: base(s, tumbling("5s", offset="1s")), "and is tumbling 5s offset 1s"),
    "key": (lambda s: base(s, key="zone"), "its key was area string and is zone string"),
    "key type": (lambda s: base(s, key="sensor"), "is sensor bigint"),
    "new aggregate": (
        lambda s: s.key_by("area").window(tumbling("5s")).agg(
            c=mean("celsius"), n=count(), s=sum("sensor")
        ),
        "the aggregate 's' is new",
    ),
    "another aggregate": (
        lambda s: s.key_by("area").window(tumbling("5s")).agg(c=sum("celsius"), n=count()),
        "the aggregate 'c' was mean",
    ),
    "another argument": (
        lambda s: s.key_by("area").window(tumbling("5s")).agg(c=mean("celsius * 2"), n=count()),
        "the aggregate 'c' was celsius and is celsius * 2",
    ),
    "another kind": (
        lambda s: s.key_by("area").window(tumbling("5s")).fold(0, lambda a, b: a),
        "it stored aggregates of each window and stores the value of its fold",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", REFUSED)
def test_state_of_another_shape_is_refused_because(change):
    build, because = REFUSED[change]
    comparison = versus(build)
    (refused,) = comparison.of("refused")
    assert because in refused.because
    with pytest.raises(StateError, match="HR-EVOLVE-001"):
        comparison.check()


DAY = "86400s"
OWN = {
    "within": (
        lambda s: s.deduplicate("area", within="5s"),
        lambda s: s.deduplicate("area", within=DAY),
        "its within was 5s and is 1d: what was over by that is gone",
    ),
    "top": (
        lambda s: s.key_by("area").top(3, by="celsius", unbounded=True, name="s"),
        lambda s: s.key_by("area").top(5, by="sensor", unbounded=True, name="s"),
        "'rows' of this top was 3 and is 5: of each key only the 3 best are stored; 'by' of this "
        "top was celsius and is sensor: what is stored are the best rows by that",
    ),
    "fewer of the best": (
        lambda s: s.key_by("area").top(3, by="celsius", unbounded=True, name="s"),
        lambda s: s.key_by("area").top(2, by="celsius", unbounded=True, name="s"),
        "'rows' of this top was 3 and is 2: rows that are not among the best any more would have "
        "to be taken back",
    ),
    "throttle": (
        lambda s: s.key_by("area").throttle(2, per="2s", name="s"),
        lambda s: s.key_by("area").throttle(2, per="3s", name="s"),
        "'per' of this throttle was 2s and is 3s: what is stored is counted by 2s, and cannot be "
        "parted or put together by 3s",
    ),
    "suppress": (
        lambda s: s.key_by("area").suppress("2s", name="s"),
        lambda s: s.key_by("area").suppress("1s", name="s"),
        "'period' of this suppress was 2s and is 1s: what is stored is counted by 2s, and cannot "
        "be parted or put together by 1s",
    ),
    "semi join": (
        lambda s: s.join(s.where("sensor > 1"), on="area", how="semi", within="5s"),
        lambda s: s.join(s.where("sensor > 1"), on="area", how="semi", within="3s"),
        "'within' of this join changed: which partner of a row is the first was decided by the "
        "bounds that there were",
    ),
    "interval": (
        lambda s: s.join(s.where("sensor > 1"), on="area", within="5s"),
        lambda s: s.join(s.where("sensor > 1"), on="area", within="9s"),
        "its within was -5s to 5s and is -9s to 9s: what was over by that is gone",
    ),
    "pattern": (
        lambda s: s.key_by("area").match(pattern("a", "celsius > 1").within("5s"), name="s"),
        lambda s: s.key_by("area").match(pattern("a", "celsius > 2").within("5s"), name="s"),
        "'patterns' of this match changed: partial matches are stored by their place in the "
        "pattern that there was",
    ),
    "kind": (
        lambda s: s.key_by("area").top(3, by="celsius", unbounded=True, name="s"),
        lambda s: s.key_by("area").changes_only("celsius", unbounded=True, name="s"),
        "it was a top and is a changes_only",
    ),
}


@pytest.mark.parametrize("change", OWN)
def test_what_changed_in_a_step_of_its_own_kind_is_named(change):
    before, after, because = OWN[change]
    (refused,) = versus(after, before).of("refused")
    assert refused.because == because
    (refused,) = versus(after, before, shapes=False).of("refused")
    assert "Apply" not in refused.because


def test_a_manifest_without_shapes_is_compared_by_fingerprint():
    (refused,) = versus(REFUSED["size"][0], shapes=False).of("refused")
    assert refused.because == "its key, window or columns changed"
    assert verdicts(versus(base, shapes=False)) == {"temperature.window": "same"}


def test_another_format_of_state_is_refused():
    old = {n: {**d, "version": 1} for n, d in describe(program(base)).items()}
    assert compare(program(base), old, versions={"temperature.window": 1}).of("refused") == ()
    (refused,) = compare(program(base), old, versions={"temperature.window": 2}).of("refused")
    assert "format 1" in refused.because


def test_a_renamed_step_keeps_its_state():
    comparison = versus(lambda s: base(s, name="average", was="temperature.window"))
    assert verdicts(comparison) == {"average": "renamed"}
    assert comparison.moves() == {"average": "temperature.window"}
    comparison.check()


def test_a_step_that_was_renamed_long_ago_goes_by_its_name_now():
    old = describe(program(lambda s: base(s, name="average")))
    renamed = program(lambda s: base(s, name="average", was="temperature.window"))
    assert verdicts(compare(renamed, old)) == {"average": "same"}


def test_a_rename_of_another_shape_is_refused():
    build = lambda s: base(s, tumbling("1s"), name="a", was="temperature.window")  # noqa: E731
    assert verdicts(versus(build)) == {"a": "refused"}


def test_a_new_step_starts_empty_and_a_dropped_one_needs_consent():
    comparison = versus(lambda s: base(s, tumbling("9s"), name="average"))
    assert verdicts(comparison) == {"average": "new", "temperature.window": "dropped"}
    with pytest.raises(StateError, match="HR-EVOLVE-002"):
        comparison.check()
    with pytest.raises(StateError, match="HR-EVOLVE-004"):
        comparison.check(drop={"average"})
    comparison.check(drop={"temperature.window"})
    comparison.check(drop=True)


def test_consent_is_shown_as_a_program_says_it_and_as_one_types_it():
    old = describe(program(lambda s: base(s, name="by hour")))
    (dropped,) = compare(program(lambda s: base(s, tumbling("9s"), name="average")), old).of(
        "dropped"
    )
    assert "drop='by hour' (" in dropped.hint
    typed = shlex.split(dropped.hint.partition("(")[2].partition(" on the command line)")[0])
    assert typed == ["--drop", "by hour"]


def test_a_rename_that_was_not_said_is_suspected():
    comparison = versus(lambda s: base(s, name="average"))
    (dropped,) = comparison.of("dropped")
    assert "was='temperature.window'" in dropped.hint


def test_python_code_may_change_under_its_state():
    one = program(lambda s: s.key_by("area").fold(0, lambda a, r: a + 1, unbounded=True))
    two = program(lambda s: s.key_by("area").fold(9, lambda a, r: a - 1, unbounded=True))
    assert verdicts(compare(two, describe(one))) == {"temperature.fold": "same"}


def test_reduce_and_fold_keep_different_state():
    one = program(lambda s: s.key_by("area").reduce(lambda a, b: a, unbounded=True, name="x"))
    two = program(lambda s: s.key_by("area").fold(0, lambda a, b: a, unbounded=True, name="x"))
    (refused,) = compare(two, describe(one)).of("refused")
    assert "it was a reduce and is a fold" in refused.because


def process(**declared):
    kind = type("P", (KeyedProcess,), {"output": "area string", "on_row": print, **declared})
    return lambda s: s.key_by("area").process(kind(), unbounded=True)


def test_declared_values_shape_the_state_of_a_process():
    one = describe(program(process(hot=value(bool), n=value(int))))
    assert verdicts(compare(program(process(hot=value(bool), n=value(int, default=5))), one)) == {
        "temperature.process": "same"
    }
    (refused,) = compare(program(process(hot=value(float), m=value(int))), one).of("refused")
    assert refused.because == "the value 'hot' was boolean and is double"


def test_inputs_and_outputs_are_compared_by_name_and_place():
    now = program(base)
    comparison = compare(
        now, describe(now), {"temperature": "log:temperature", "gone": "log:gone"}, ["old.write"]
    )
    assert verdicts(comparison, "input") == {"temperature": "same", "gone": "dropped"}
    assert verdicts(comparison, "output") == {"out.write": "new", "old.write": "dropped"}
    with pytest.raises(StateError, match=r"HR-EVOLVE-002.*'gone', and how far it was read"):
        comparison.check()
    comparison.check(drop="gone")


def test_an_input_renamed_keeps_its_offsets():
    now = program(base, name="t", was="temperature")
    comparison = compare(now, {}, {"temperature": "log:temperature"})
    assert verdicts(comparison, "input") == {"t": "renamed"}
    assert comparison.moves()["t"] == "temperature"


def test_offsets_of_another_topic_are_refused():
    now = program(base, name="t")
    comparison = compare(now, {}, {"t": "log:other"})
    (refused,) = comparison.of("refused", "input")
    assert refused.because == "it has read log:other and now reads log:temperature"
    with pytest.raises(StateError, match="HR-EVOLVE-001"):
        comparison.check()


def test_a_comparison_can_be_read():
    comparison = versus(lambda s: base(s, tumbling("10s")))
    assert str(comparison) == (
        "operator  temperature.window: refused, because its window was tumbling 5s and is "
        "tumbling 10s: they do not lie within those, so rows that some need would be gone\n"
        "    Undo the change, or give the step another name to start it afresh: "
        "'temperature.window' is then dropped, which needs your consent.\n"
        "input     temperature: new\n"
        "output    out.write: new"
    )


def test_a_fingerprint_never_changes():
    """It is in the manifests of jobs that run: a changed value here loses their state.

    It changed when sums of doubles became exact (decision 0015): their state is a list of
    doubles, and was a list of integers before anything was released. And when it came to hold
    what columns are made of, and of an unnamed step what it reads from; and that a count is of
    every row.
    """
    assert fingerprint(program(base).nodes["temperature.window"])[:16] == "ffd9fc1f9d6d7545"


def test_state_of_sums_that_were_rounded_is_refused():
    """Before decision 0015 a sum of doubles was kept as a double; never read as a list."""
    now = program(base)
    old = describe(now)["temperature.window"]
    text = json.dumps(old["shape"]).replace("array<double>", "double")
    stored = {"temperature.window": {**old, "shape": json.loads(text), "fingerprint": "old"}}
    (refused,) = compare(now, stored, {}).of("refused", "operator")
    assert "aggregates" in refused.because or "mean" in refused.because


def table_of(stream, name="tab"):
    return stream.table("area", unbounded=True, name=name)


OF_PARTS = {  # operators that consist of several steps with state, or of one of another name
    "a top of a table": lambda s, **names: table_of(s).top(2, by="celsius", per="zone", **names),
    "a suppressed table": lambda s, **names: (
        table_of(s).suppress("1s", time="processing", **names).changes(name="changes")
    ),
    "a join of tables": lambda s, **names: table_of(s).join(
        s.select("zone", "at").table("zone", unbounded=True, name="other"), on="zone", **names
    ),
    "triangles": lambda s, **names: s.edges("area", "zone").triangles(FIVE, **names),
    "a sparsifier": lambda s, **names: s.edges("area", "zone").sparsify(FIVE, **names),
}


@pytest.mark.parametrize("build", OF_PARTS.values(), ids=OF_PARTS)
def test_an_operator_of_several_steps_is_renamed_as_one(build):
    renamed = versus(lambda s: build(s, name="t", was="s"), lambda s: build(s, name="s"))
    assert set(verdicts(renamed).values()) <= {"same", "renamed"}
    assert "renamed" in verdicts(renamed).values()
    forgotten = versus(lambda s: build(s, name="t"), lambda s: build(s, name="s"))
    with pytest.raises(StateError, match="HR-EVOLVE-002") as refused:
        forgotten.check()
    hint = "If 't' is the same step under a new name, pass was='s' there."
    assert str(refused.value).endswith(hint)
