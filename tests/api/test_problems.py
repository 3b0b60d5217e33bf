"""Every refusal: its code, the user's line, a hint; all at once, and each only once."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.api.job import Job
from headrace.api.keyed import connect
from headrace.errors import PlanError
from headrace.ops.agg.named import count, max_by, mean
from headrace.ops.process.function import KeyedProcess
from headrace.ops.process.state_kinds import value
from headrace.ops.window.aligned import sliding, tumbling
from headrace.sinks.open import KINDS as SINKS
from headrace.sources.open import KINDS as SOURCES

SCHEMA = "area string, celsius double, at timestamp, sensor bigint, tags array<string>"


class Counting(KeyedProcess):
    output = "area string, n bigint"
    n = value(int, default=0)

    def on_row(self, row, ctx): ...


class Stateless(KeyedProcess):
    output = "area string"

    def on_row(self, row, ctx): ...


def _counted(row) -> dict[str, int]: ...


def _counts(row) -> list[dict[str, int]]: ...


def read(job, topic="temperature", **changes):
    said = {"schema": SCHEMA, "time": "at", "delay": "2s", **changes}
    return job.read(f"log:{topic}", **said)


def out(stream):
    stream.write(f"log:{stream.name}.out")


def win(stream, **aggs):
    return stream.key_by("area").window(tumbling("5s")).agg(**aggs or {"n": count()})


# One mistake each: what it is called, how it is made, the codes of all that is reported.
MISTAKES = {
    "unknown column in text": (lambda s: s.where("celcius > 1"), ["HR-EXPR-001"]),
    "unknown column in a lambda": (lambda s: s.where(lambda e: e.celcius > 1), ["HR-EXPR-001"]),
    "two unknown columns": (lambda s: s.where("x > y"), ["HR-EXPR-001"] * 2),
    "unknown column in select": (lambda s: s.select("aera"), ["HR-EXPR-001"]),
    "unknown column in drop": (lambda s: s.drop("aera"), ["HR-EXPR-001"]),
    "unknown column in rename": (lambda s: s.rename(zone="aera"), ["HR-EXPR-001"]),
    "unknown key": (lambda s: win(s.rename(zone="area")), ["HR-EXPR-001"]),
    "unknown aggregate argument": (lambda s: win(s, c=mean("celcius")), ["HR-EXPR-001"]),
    "unknown function": (lambda s: s.select(a="uper(area)"), ["HR-EXPR-002"]),
    "types that do not meet": (lambda s: s.select(a="celsius + area"), ["HR-EXPR-003"]),
    "text that is no expression": (lambda s: s.where("celsius >"), ["HR-EXPR-004"]),
    "python in an expression": (lambda s: s.select(a=lambda e: int(e.celsius)), ["HR-EXPR-005"]),
    "key by a python function": (
        lambda s: s.key_by(k=lambda e: str(e.area)).window(tumbling("1s")).agg(n=count()),
        ["HR-EXPR-005"],
    ),
    "a filter that is no condition": (lambda s: s.where("celsius + 1"), ["HR-PLAN-012"]),
    "an unnamed column": (lambda s: s.select("celsius + 1"), ["HR-PLAN-015"]),
    "a column twice": (lambda s: s.select("area", area="sensor"), ["HR-PLAN-015"]),
    "a rename onto another": (lambda s: s.rename(area="sensor"), ["HR-PLAN-015"]),
    "no columns left": (lambda s: s.drop(*s.schema.names), ["HR-PLAN-021"]),
    "a reserved column": (lambda s: s.with_columns(__h="sensor"), ["HR-PLAN-010"]),
    "a key that is a list": (
        lambda s: s.key_by("tags").window(tumbling("1s")).agg(n=count()), ["HR-PLAN-013"],
    ),
    "no key": (lambda s: s.key_by().window(tumbling("1s")).agg(n=count()), ["HR-PLAN-013"]),
    "an aggregate of the wrong type": (lambda s: win(s, c=mean("area")), ["HR-AGG-001"]),
    "not an aggregate": (lambda s: win(s, c=3.5), ["HR-PLAN-021"]),
    "an aggregate named as the key": (lambda s: win(s, area=count()), ["HR-PLAN-015"]),
    "an aggregate named as a bound": (lambda s: win(s, window_end=count()), ["HR-PLAN-015"]),
    "a running aggregate named as the key": (
        lambda s: s.key_by("area").agg(area=count(), unbounded=True), ["HR-PLAN-015"],
    ),
    "nothing to aggregate": (
        lambda s: s.key_by("area").window(tumbling("1s")).agg(), ["HR-PLAN-021"],
    ),
    "not a window": (lambda s: s.key_by("area").window("5s").agg(n=count()), ["HR-PLAN-022"]),
    "unbounded agg": (lambda s: s.key_by("area").agg(n=count()), ["HR-PLAN-003"]),
    "unbounded reduce": (lambda s: s.key_by("area").reduce(lambda a, b: a), ["HR-PLAN-003"]),
    "unbounded fold": (lambda s: s.key_by("area").fold(0, lambda a, b: a), ["HR-PLAN-003"]),
    "unbounded process": (lambda s: s.key_by("area").process(Counting()), ["HR-PLAN-003"]),
    "map without columns": (lambda s: s.map(lambda e: [str(e)]), ["HR-PLAN-011"]),
    "flat_map without columns": (lambda s: s.flat_map(lambda e: [e]), ["HR-PLAN-011"]),
    "map to a dict that names no columns": (lambda s: s.map(_counted), ["HR-PLAN-011"]),
    "flat_map to dicts that name no columns": (lambda s: s.flat_map(_counts), ["HR-PLAN-011"]),
    "map to a tuple of any length": (
        lambda s: s.map(_counted, schema=tuple[int, ...]), ["HR-PLAN-011"],
    ),
    "a process function that gives dicts that name no columns": (
        lambda s: s.key_by("area").process(Counting(), output=dict[str, int], unbounded=True),
        ["HR-PLAN-011"],
    ),
    "fold without columns": (
        lambda s: s.key_by("area").fold(list, lambda a, b: a, unbounded=True), ["HR-PLAN-011"],
    ),
    "map and schema disagree": (
        lambda s: s.map(lambda e: {"a": e.area}, schema="b string"), ["HR-PLAN-026"],
    ),
    "a function of two rows in map": (
        lambda s: s.map(lambda a, b: a, schema="a string"), ["HR-PLAN-028"],
    ),
    "no function": (lambda s: s.tap("print"), ["HR-PLAN-028"]),
    "reduce with one argument": (
        lambda s: s.key_by("area").reduce(lambda a: a, unbounded=True), ["HR-PLAN-028"],
    ),
    "reduce with nothing but keys": (
        lambda s: s.select("area").key_by("area").reduce(lambda a, b: a, unbounded=True),
        ["HR-PLAN-021"],
    ),
    "a key called like a part of a window's aggregate": (
        lambda s: (
            s.rename(c__sum="area").key_by("c__sum").window(tumbling("5s")).agg(c=mean("celsius"))
        ),
        ["HR-PLAN-040"],
    ),
    "a key called like a part of a running aggregate": (
        lambda s: s.rename(c__sum="area").key_by("c__sum").agg(c=mean("celsius"), unbounded=True),
        ["HR-PLAN-040"],
    ),
    "a key called like a column of windows": (
        lambda s: (
            s.rename(**{"$start": "area"}).key_by("$start").window(tumbling("5s")).agg(n=count())
        ),
        ["HR-PLAN-068"],
    ),
    "a result called like a column of windows": (
        lambda s: s.key_by("area").window(tumbling("5s")).agg(**{"$new": count()}),
        ["HR-PLAN-068"],
    ),
    "a row with a column that windows have": (
        lambda s: (
            s.rename(**{"$rows": "sensor"})
            .key_by("area")
            .window(tumbling("5s"))
            .process(lambda key, window, rows: (1,), schema="n int")
        ),
        ["HR-PLAN-068"],
    ),
    "a row with a column that windows of one's own have": (
        lambda s: (
            s.rename(**{"$to": "sensor"})
            .key_by("area")
            .window(tumbling("5s"))
            .process(lambda key, window, rows: (1,), schema="n int")
        ),
        ["HR-PLAN-068"],
    ),
    "a bad step name": (lambda s: s.where("sensor > 1", name="__x"), ["HR-PLAN-010"]),
    "a reserved step name": (lambda s: s.where("sensor > 1").named("dead"), ["HR-PLAN-010"]),
    "a name for late rows": (lambda s: win(s).late.named("late"), ["HR-PLAN-010"]),
    "no branches": (lambda s: s.split().other, ["HR-PLAN-023"]),
    "a branch called other": (lambda s: s.split(other="sensor > 1").other, ["HR-PLAN-010"]),
    "a branch that is no condition": (lambda s: s.split(a="sensor + 1").a, ["HR-PLAN-012"]),
    "process with a class": (
        lambda s: s.key_by("area").process(Stateless), ["HR-PLAN-017"],
    ),
    "process without output": (
        lambda s: s.key_by("area").process(type("P", (KeyedProcess,), {"on_row": print})()),
        ["HR-PLAN-017"],
    ),
    "process without methods": (
        lambda s: s.key_by("area").process(type("P", (KeyedProcess,), {"output": "a string"})()),
        ["HR-PLAN-016"],
    ),
    "a step that says it was one still there": (
        lambda s: win(s.where("sensor > 1").named("a")).named("b", was="a"), ["HR-PLAN-027"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_it_is_refused(job, codes, mistake):
    make, expected = MISTAKES[mistake]
    out(make(read(job)))
    assert codes() == expected


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_problem_has_the_users_line_and_a_hint(job, problems, mistake):
    out(MISTAKES[mistake][0](read(job)))
    for problem in problems():
        assert problem.site.file == __file__
        assert problem.hint
        assert not problem.message.endswith(".")
        assert not problem.message[0].isupper() or problem.message.startswith(("P ", "Stateless "))


UNBOUNDED = {
    "agg": (lambda s: s.key_by("area").agg(n=count()), "otherwise use .window(...)"),
    "process": (lambda s: s.key_by("area").process(Counting()), 'otherwise pass ttl="1h"'),
    "map_with_state": (
        lambda s: s.key_by("area").map_with_state(lambda e, n: (e, n), state=int, output="n int"),
        'otherwise pass ttl="1h"',
    ),
    "deduplicate": (lambda s: s.deduplicate("area", within=None), 'otherwise pass within="1h"'),
    "batch": (lambda s: s.key_by("area").batch(2), 'otherwise pass within="1m"'),
    "a join with a table": (
        lambda s: s.join(s.table("area"), on="area"),
        'pass table(..., unbounded=True); otherwise say join(..., within="1h")',
    ),
    "a join with a table as it is now": (
        lambda s: s.join(s.table("area"), on="area", time="processing"),
        "pass table(..., unbounded=True).",
    ),
    "changes": (lambda s: s.table("area").changes(), "pass table(..., unbounded=True)."),
    "top": (lambda s: s.key_by("area").top(2, by="celsius"), ".window(...).agg(...).top(...)"),
    "changes_only": (
        lambda s: s.key_by("area").changes_only("celsius"), 'hr.value(str, ttl="1h")',
    ),
    "iterate": (
        lambda s: s.key_by("area").iterate(lambda r, _: r, times=1, keep={"m": "area string"}),
        "otherwise leave keep= out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("step", UNBOUNDED)
def test_the_advice_against_growing_state_fits_the_step(job, problems, step):
    make, advice = UNBOUNDED[step]
    out(make(read(job)))
    (problem,) = problems()
    assert problem.code == "HR-PLAN-003"
    assert advice in problem.hint
    assert (".window(...)" in problem.hint) == (step in ("agg", "top"))


def test_a_table_says_that_its_changes_are_a_stream(job):
    table = read(job).table("area")
    with pytest.raises(AttributeError, match=r"its changes are a stream, .changes\(\).write"):
        table.write("log:out")
    with pytest.raises(AttributeError, match=r"a table has no 'wirte'"):
        _ = table.wirte


TIMES = {
    "time without delay": ({"delay": None}, ["HR-TIME-002"]),
    "a delay of zero": ({"delay": "0s"}, ["HR-TIME-003"]),
    "delay without time": ({"time": None}, ["HR-TIME-004"]),
    "idle without time": ({"time": None, "delay": None, "idle": "5s"}, ["HR-TIME-004"]),
    "not a duration": ({"delay": "soon"}, ["HR-TIME-001"]),
    "a negative delay": ({"delay": -1}, ["HR-TIME-005"]),
    "no idle time at all": ({"idle": "0s"}, ["HR-TIME-005"]),
    "a time column of text": ({"time": "area"}, ["HR-TIME-006"]),
    "an unknown time column": ({"time": "ta"}, ["HR-EXPR-001"]),
    "not a schema": ({"schema": 5}, ["HR-SCHEMA-001"]),
    "a bad name": ({"name": "a/b"}, ["HR-PLAN-010"]),
}


@pytest.mark.parametrize("mistake", TIMES)
def test_an_input_is_refused(job, codes, mistake):
    changes, expected = TIMES[mistake]
    out(read(job, **changes))
    assert codes() == expected


def test_rows_that_come_in_order_need_no_delay(job, codes):
    out(read(job, delay=None, in_order=True))
    out(read(job, "more", delay="0s", in_order=True))
    assert codes() == []


def test_an_input_without_schema_is_refused_with_the_sources_own_words(job, codes):
    out(job.read("files:nowhere.json"))
    out(job.read("fils:nowhere.json"))
    assert codes() == ["HR-INPUT-012", "HR-INPUT-001"]


def test_a_kind_of_place_that_there_is_not_is_refused_with_those_there_are(job, problems):
    stream = job.read("foo:bar", schema=SCHEMA, time="at", delay="2s")
    stream.where("celcius > 1").write("foo:out", name="out")
    stream.write("data.json", name="more")
    found = problems()
    assert [p.code for p in found] == [
        "HR-INPUT-001", "HR-EXPR-001", "HR-OUTPUT-001", "HR-OUTPUT-001",
    ]  # fmt: skip
    assert f"known are: {', '.join(SOURCES)}." in found[0].hint and "kafka" in SOURCES
    assert f"known are: {', '.join(SINKS)}." in found[2].hint and "kafka" in SINKS
    assert 'There is no input "foo:"' in found[0].hint
    assert 'There is no output "foo:"' in found[2].hint
    assert "files:foo" not in found[0].hint + found[2].hint
    assert 'Write "files:data.json"' in found[3].hint
    assert all(p.site.file == __file__ for p in found)


def test_a_key_with_two_underscores_is_fine_where_no_part_has_its_name(job, codes):
    keyed = read(job).rename(c__sum="area").key_by("c__sum")
    out(keyed.window(tumbling("5s")).agg(d=mean("celsius")))
    assert codes() == []


def test_what_is_not_a_place_is_refused(job, problems, tmp_path):
    stream = read(job)
    stream.write(tmp_path)
    stream.write(None)
    out(job.read(5, schema=SCHEMA))
    found = problems()
    assert [p.code for p in found] == ["HR-PLAN-025"] * 3
    assert f"files:{tmp_path}" in found[0].hint


def test_two_steps_of_one_name_are_refused_and_both_places_are_named(job, problems):
    stream = read(job)
    out(stream.where("sensor > 1", name="hot"))
    out(stream.where("sensor > 2", name="hot"))
    (problem,) = problems()
    assert problem.code == "HR-PLAN-001"
    assert "test_problems.py:" in problem.message


def test_a_window_without_time_names_the_input(job, problems):
    out(win(job.read("log:raw", schema=SCHEMA)))
    (problem,) = problems()
    assert problem.code == "HR-PLAN-002"
    assert "'raw'" in problem.message


def test_a_fold_over_windows_needs_time_too(job, codes):
    out(job.read("log:raw", schema=SCHEMA).window(tumbling("1s")).fold(0, lambda a, b: a))
    assert codes() == ["HR-PLAN-002"]


def test_state_may_grow_when_the_user_says_so(job, codes):
    keyed = read(job).key_by("area")
    out(keyed.agg(n=count(), unbounded=True))
    out(keyed.process(Counting(), unbounded=True))
    out(keyed.process(Stateless()))
    assert codes() == []


def test_the_hint_about_state_names_the_key(job, problems):
    out(read(job).key_by("area", "sensor").agg(n=count()))
    (problem,) = problems()
    assert "every area, sensor ever seen" in problem.message
    assert "unbounded=True" in problem.hint
    assert "window" in problem.hint


def test_a_job_without_output_is_refused(job, codes):
    read(job).where("sensor > 1")
    assert codes() == ["HR-PLAN-005"]
    with pytest.raises(PlanError, match="HR-PLAN-005"):
        Job("empty").check()


def test_a_step_that_leads_nowhere_is_refused_unless_it_is_tapped(job, problems):
    stream = read(job)
    out(stream)
    stream.where("sensor > 1").select("area")
    stream.where("sensor > 2").tap(print)
    job.read("log:smoke", schema=SCHEMA)
    assert [(p.code, p.message) for p in problems()] == [
        ("HR-PLAN-004", "the step 'temperature.select' leads to no output"),
        ("HR-PLAN-004", "the input 'smoke' leads to no output"),
    ]


def test_the_rest_of_a_split_may_be_left(job, codes):
    hot, cold = read(job).split(hot="celsius > 40", cold="celsius < 0")
    out(hot)
    out(cold)
    assert codes() == []


def test_streams_of_different_columns_cannot_be_joined(job, codes):
    stream = read(job)
    out(stream.union(stream.select("area")))
    assert codes() == ["HR-PLAN-006"]


def test_timed_and_untimed_streams_cannot_be_joined(job, codes):
    out(read(job).union(job.read("log:raw", schema=SCHEMA)))
    assert codes() == ["HR-PLAN-006"]


def test_keys_of_different_types_cannot_meet(job, codes):
    one, two = read(job), read(job, "smoke").with_columns(area="sensor")
    out(connect(by="area", one=one, two=two).process(Stateless()))
    assert codes() == ["HR-PLAN-007"]


def test_keys_of_different_names_meet(job, codes):
    one, two = read(job), read(job, "smoke").rename(zone="area")
    out(connect(by={"one": "area", "two": "zone"}, one=one, two=two).process(Stateless()))
    out(one.key_by("area").connect(two.key_by("zone")).process(Stateless()))
    assert codes() == []


CONNECTIONS = {
    "no key": (lambda a, b: a.connect(b), ["HR-PLAN-018"]),
    "keys of different number": (
        lambda a, b: connect(by={"a": "area", "b": ["area", "sensor"]}, a=a, b=b),
        ["HR-PLAN-018"],
    ),
    "an unknown key": (lambda a, b: a.connect(b, by="aera"), ["HR-EXPR-001"]),
    "one name for two": (lambda a, b: a.connect(a, by="area"), ["HR-PLAN-018"]),
    "a name that cannot be a method": (
        lambda a, b: a.connect(b, by="area", names=("x y", "z")), ["HR-PLAN-018"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", CONNECTIONS)
def test_a_connection_is_refused(job, problems, mistake):
    make, expected = CONNECTIONS[mistake]
    one, two = read(job), read(job, "smoke")
    two.tap(print)
    out(make(one, two).process(Stateless()))
    assert [p.code for p in problems()] == sorted(expected)


def test_connecting_nothing_is_refused_at_once():
    with pytest.raises(PlanError, match="HR-PLAN-018"):
        connect(by="area")


def test_connecting_what_is_no_stream_is_refused_at_once(job):
    one = read(job)
    for wrong in (lambda: connect(b="x"), lambda: connect(a=one, b="x"), lambda: one.connect("x")):
        with pytest.raises(PlanError, match="HR-PLAN-018 connect needs streams, not 'x'") as caught:
            wrong()
        assert caught.value.hint and caught.value.site.file == __file__


def test_inputs_need_methods_and_methods_need_inputs(job, problems):
    class Alarm(KeyedProcess):
        output = "area string"

        def on_temperature(self, row, ctx): ...
        def on_smok(self, row, ctx): ...

    out(read(job).connect(read(job, "smoke"), by="area").process(Alarm()))
    (problem,) = problems()
    assert problem.code == "HR-PLAN-016"
    assert "on_smoke" in problem.message


def test_two_outputs_cannot_write_to_one_place(job, codes):
    stream = read(job)
    stream.write("log:out")
    stream.write("log:out")
    stream.write("console:")
    stream.write("console:")
    assert codes() == ["HR-PLAN-008"]


@pytest.mark.parametrize("again", ["./out", "out/", "sub/../out", "{here}/out", "link"])
def test_one_folder_is_one_place_however_it_is_written(job, codes, tmp_path, monkeypatch, again):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    stream = read(job)
    stream.write("files:out")
    stream.write(f"files:{again.format(here=tmp_path)}", name="again")
    assert codes() == ["HR-PLAN-008"]


def test_a_job_cannot_feed_on_its_own_output(job, codes):
    read(job).write("log:temperature")
    assert codes() == ["HR-PLAN-009"]


def test_dead_letters_can_be_chosen_from_and_written(job, codes):
    out(read(job))
    job.dead.where("step = 'x'").select("error").write("files:dead")
    assert codes() == []


@pytest.mark.parametrize(
    "use",
    [
        lambda dead: dead.key_by("step").agg(n=count(), unbounded=True),
        lambda dead: dead.where("step = 'x'").map(lambda r: {"a": str(r)}, schema="a string"),
        lambda dead: dead.union(dead),
    ],
)
def test_dead_letters_can_do_no_more(job, codes, use):
    out(read(job))
    out(use(job.dead))
    assert codes() == ["HR-PLAN-019"]


def test_streams_of_two_jobs_cannot_meet(job, problems):
    one, two = read(job), read(Job("other"), "smoke")
    out(one.union(two))
    out(one.connect(two, by="area").process(Stateless()))
    assert [p.code for p in problems()] == ["HR-PLAN-020", "HR-PLAN-020"]


@pytest.mark.parametrize(
    "settings",
    [
        {"on_error": "ignore"}, {"dead_limit": 0}, {"dead_limit": 1.5}, {"dead_limit": True},
        {"slots": 0}, {"slots": 5000}, {"slots": 2.5},
    ],
)  # fmt: skip
def test_wrong_settings_of_a_job_are_refused(settings):
    job = Job("j", **settings)
    out(read(job))
    with pytest.raises(PlanError, match="HR-PLAN-024"):
        job.check()


@pytest.mark.parametrize("name", ["", "a/b", "..", "_x", 5])
def test_a_job_needs_a_good_name(name):
    job = Job(name)
    out(read(job))
    with pytest.raises(PlanError, match="HR-PLAN-010"):
        job.check()


def test_a_bad_window_is_refused_where_it_is_written():
    with pytest.raises(PlanError, match=r"HR-WINDOW-003.*test_problems.py"):
        sliding("60s", every="90s")


def test_a_default_must_be_of_its_type():
    with pytest.raises(PlanError, match=r"HR-PLAN-030 .* type bigint"):
        value(int, default="zero")


def test_all_problems_of_a_chain_are_reported_at_once_in_the_order_of_the_file(job, problems):
    stream = job.read("log:raw", schema=SCHEMA)
    (
        stream.where("celcius > 1")
        .with_columns(f="celsius + area")
        .key_by("area")
        .window(tumbling("5s"))
        .agg(c=mean("celsiu"), m=max_by("sensor", "celsius"), n=count())
        .write("log:raw")
    )
    assert [p.code for p in problems()] == [
        "HR-EXPR-001",  # celcius
        "HR-EXPR-003",  # celsius + area
        "HR-EXPR-001",  # celsiu
        "HR-PLAN-002",  # no time
        "HR-PLAN-009",  # reads and writes log:raw
    ]
    lines = [p.site.line for p in problems()]
    assert lines == sorted(lines)


def test_what_follows_a_mistake_is_not_blamed_for_it(job, codes):
    stream = read(job).with_columns(f="celcius * 2", g="celsius * 2")
    out(stream.where("f > 1 and g > 1").select("f", h="f + g", i=lambda e: e.f + 1))
    out(stream.map(lambda e: {"a": e.f * 2}).where("a > 1"))
    out(win(stream, m=mean("f"), n=mean(lambda e: e.f)).where("m > 1"))
    out(stream.key_by("f").window(tumbling("1s")).agg(n=count()))
    out(stream.map(lambda e: {"a": int(e.f)}).where("anything > 1").key_by("a").agg(
        n=count(), unbounded=True
    ))  # fmt: skip
    assert codes() == ["HR-EXPR-001"]


def test_an_unknown_result_hides_nothing_else(job, codes):
    unknown = read(job).map(lambda e: [str(e)])
    out(unknown.where("x > 1").select("y").key_by("z").agg(n=count()))
    assert codes() == ["HR-PLAN-011", "HR-PLAN-003"]


def test_the_message_reads_well(job):
    with pytest.raises(PlanError) as caught:
        read(job).where("celcius > 1").write("log:out")
        job.check()
    line = caught.value.site.line
    assert str(caught.value) == (
        f"HR-EXPR-001 there is no column 'celcius'  (test_problems.py:{line})\n"
        "  Did you mean 'celsius'? The columns here are area, celsius, at, sensor, tags."
    )


def test_an_aggregate_of_an_expression_is_named_as_it_was_written() -> None:
    job = Job("j")
    rows = job.read("log:rows", schema="k string, at bigint", time="at", delay="1s")
    step = rows.key_by("k").window(tumbling("5s")).agg(total=hr.sum(hr.col("k").upper()))
    step.write("collect:")
    with pytest.raises(PlanError) as raised:
        job.check()
    assert (raised.value.code, "$" in str(raised.value)) == ("HR-AGG-001", False)
    assert "sum(upper(k))" in str(raised.value)
