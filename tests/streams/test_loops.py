"""Loops: to a fixpoint, so many times, until nothing is left, over batches; and what is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness, drive
from tests.streams.pagerank import EDGES, RANKS, by_hand, pagerank, settled

SCHEMA = "k string, v bigint, at bigint"


def looping(step, **more):
    job = hr.Job("loop")
    options = {"schema": SCHEMA, "time": "at", "delay": "5ms", **more}
    step(job.read("log:x", name="x", **options)).write("collect:", name="out")
    return job


def halve(rows, loop):
    """Collatz: even numbers are halved, odd ones tripled; who comes to 1 is told with his turns."""
    odd = pc.equal(pc.bit_wise_and(rows["v"], 1), 1)
    next_ = pc.if_else(odd, pc.add(pc.multiply(rows["v"], 3), 1), pc.divide(rows["v"], 2))
    rows = rows.set_column(1, "v", next_)
    done = rows.filter(pc.equal(rows["v"], 1))
    loop.emit(pa.table({"k": done["k"], "turns": [loop.turn + 1] * done.num_rows}))
    return rows.filter(pc.not_equal(rows["v"], 1))


def collatz(n: int) -> int:
    turns = 0
    while n != 1:
        n, turns = (3 * n + 1 if n % 2 else n // 2), turns + 1
    return turns


def test_rows_go_round_until_nothing_is_left():
    made = looping(lambda s: s.iterate(halve, until="empty", output="k string, turns bigint"))
    with Harness(made) as test:
        test.send("x", [(str(n), n, n) for n in (2, 3, 7, 27)])
        out = {r["k"]: r["turns"] for r in test.output()}
    assert out == {str(n): collatz(n) for n in (2, 3, 7, 27)}


def test_so_many_times_and_no_more():
    turns = []

    def double(rows, loop):
        turns.append(loop.turn)
        return rows.set_column(1, "v", pc.multiply(rows["v"], 2))

    with Harness(looping(lambda s: s.iterate(double, times=5))) as test:
        test.send("x", [("a", 1, 1), ("b", 3, 2)])
        assert sorted(r["v"] for r in test.output()) == [32, 96]
    assert turns == [0, 1, 2, 3, 4]


def components(labels, loop):
    """The smallest name that is reachable: each node takes that of its neighbours."""
    edges = loop.rows
    if loop.turn == 0:
        nodes = pa.concat_arrays([edges[c].combine_chunks() for c in ("src", "dst")]).unique()
        return pa.table({"node": nodes, "label": nodes})
    known = dict(zip(*(c.to_pylist() for c in labels.columns), strict=True))
    for a, b in zip(*(edges[c].to_pylist() for c in ("src", "dst")), strict=True):
        known[a] = known[b] = min(known[a], known[b])
    return pa.table({"node": list(known), "label": list(known.values())})


@settings(max_examples=8, deadline=None)
@given(edges=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_a_fixpoint_ends_by_itself(edges, tmp_path_factory):
    rows = [{"src": f"{a}", "dst": f"{b}"} for a, b in edges]
    job = hr.Job("components")
    stream = job.read(hr.rows(rows, schema="src string, dst string"))
    stream.iterate(components, until="same", feed="node string, label string").write(
        "collect:", name="out"
    )
    out = drive(job, tmp_path_factory.mktemp("c")).output("out").to_pylist()
    groups = {n: {n} for pair in edges for n in pair}
    for a, b in edges:
        both = groups[a] | groups[b]
        groups.update(dict.fromkeys(both, both))
    assert {r["node"]: r["label"] for r in out} == {str(n): str(min(g)) for n, g in groups.items()}


def ranking(edges, until=settled):
    job = hr.Job("rank")
    stream = job.read("log:edges", schema=EDGES, name="edges")
    loop = stream.iterate(
        pagerank, until=until, feed=RANKS, keep={"edges": EDGES, "ranks": RANKS}, name="rank"
    )
    loop.write("collect:", name="out")
    return job


EDGE = st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh"))


@settings(max_examples=5, deadline=None)
@given(batches=st.lists(st.lists(EDGE, min_size=1, max_size=9), min_size=1, max_size=4))
def test_pagerank_of_the_graph_so_far_after_every_batch(batches):
    seen: list[Any] = []
    with Harness(ranking(EDGES)) as test:
        for number, batch in enumerate(batches):
            (test.crash if number % 2 else test.restart)()
            test.send("edges", batch)
            seen += batch
            ranks = {r["node"]: r["rank"] for r in test.output()}
            wanted = by_hand(seen)
            assert ranks.keys() == wanted.keys()
            assert all(abs(ranks[n] - wanted[n]) < 1e-9 for n in wanted)
            assert abs(sum(ranks.values()) - 1) < 1e-9


def test_pagerank_starts_from_the_ranks_it_knows():
    rng = np.random.default_rng(5)
    edges = [(f"n{a}", f"n{b}") for a, b in rng.integers(0, 300, (1_500, 2))]
    rounds = []

    def counting(before, after):
        rounds.append(1)
        return settled(before, after)

    with Harness(ranking(EDGES, counting)) as test:
        test.send("edges", edges)
        first = len(rounds)
        test.output()
        test.send("edges", [("n1", "n2"), ("n2", "n3")])
        second = len(rounds) - first
        ranks = test.output()
    wanted = by_hand([*edges, ("n1", "n2"), ("n2", "n3")])
    assert max(abs(r["rank"] - wanted[r["node"]]) for r in ranks) < 1e-9
    assert second < first


def test_only_what_changed_is_written_to_state():
    def grow(rows, loop):
        loop.kept["all"] = pa.concat_tables([loop.kept["all"], rows.select(["k", "v"])])
        return rows

    made = looping(lambda s: s.iterate(grow, times=1, keep={"all": "k string, v bigint"}, name="g"))
    with Harness(made) as test:
        test.send("x", [("a", n, n) for n in range(500)])
        test.send("x", [("b", 1, 600)])
        assert test.state("g")["all"].num_rows == 501
        assert test.progress.held["g"] == 501  # rows that were there were not written again


def fade(rows, loop):
    """A running mean per key: the model goes from batch to batch."""
    model = dict(zip(*(c.to_pylist() for c in loop.kept["model"].columns), strict=True))
    for k, v in zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True):
        model[k] = model.get(k, 0.0) * 0.5 + v * 0.5
    pairs = [{"k": k, "mean": mean} for k, mean in model.items()]
    loop.kept["model"] = pa.Table.from_pylist(pairs, loop.kept["model"].schema)
    loop.emit(loop.kept["model"])
    return rows.slice(0, 0)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_model_is_carried_over_batches_crashes_and_restarts(keyed):
    def made(s):
        stream = s.key_by("k") if keyed else s
        keep = {"model": "k string, mean double"}
        return stream.iterate(
            fade, until="empty", output=keep["model"], keep=keep, unbounded=keyed, name="m"
        )

    model: dict[str, float] = {}
    with Harness(looping(made), tasks=3) as test:
        for number in range(12):
            rows = [(f"k{(number + i) % 5}", number + i, 10 * number) for i in range(3)]
            (test.crash if number % 3 else test.restart)()
            test.send("x", rows)
            for k, v, _ in rows:
                model[k] = model.get(k, 0.0) * 0.5 + v * 0.5
            told = {r["k"]: r["mean"] for r in test.output()}
            touched = {k for k, _, _ in rows}
            assert told == (model if not keyed else {k: model[k] for k in touched})
        assert test.state("m")["model"].num_rows == 5


def hop(rows, loop):
    """A message goes from node to node, once a batch, until it has no strength left."""
    loop.emit(rows)
    on = rows.filter(pc.greater(rows["v"], 1))
    return on.set_column(1, "v", pc.subtract(on["v"], 1))


def test_rows_go_back_into_the_next_batch():
    made = looping(lambda s: s.iterate(hop, over="batches", output=SCHEMA, name="hop"))
    with Harness(made) as test:
        test.send("x", [("a", 3, 1)])
        assert [(r["k"], r["v"]) for r in test.output()] == [("a", 3)]
        test.crash()
        test.send("x", [("b", 1, 2)])
        assert sorted((r["k"], r["v"]) for r in test.output()) == [("a", 2), ("b", 1)]
        test.restart()
        test.send("x", [("c", 1, 3)])
        assert sorted((r["k"], r["v"]) for r in test.output()) == [("a", 1), ("c", 1)]
        test.send("x", [("d", 1, 4)])
        assert [(r["k"], r["v"]) for r in test.output()] == [("d", 1)]


def test_after_a_pause_they_go_round_without_new_rows_and_to_the_end():
    made = looping(lambda s: s.iterate(hop, over="batches", pause="1s", output=SCHEMA))
    with Harness(made) as test:
        test.send("x", [("a", 6, 1)])
        test.advance("1s")
        assert [r["v"] for r in test.output()] == [6, 5]
        test.advance("1s")
        assert [r["v"] for r in test.output()] == [4]
        test.end()
        assert [r["v"] for r in test.output()] == [3, 2, 1]


@pytest.mark.parametrize("keyed", [False, True])
def test_without_a_pause_too_rows_go_round_until_the_end(keyed, tmp_path):
    job = hr.Job("loop")
    stream = job.read(hr.rows([{"k": "a", "v": 4}, {"k": "b", "v": 2}]), name="x")
    stream = stream.key_by("k") if keyed else stream
    stream.iterate(hop, over="batches", output="k string, v bigint").write("collect:", name="out")
    rows = drive(job, tmp_path, max_batch=1).output("out").to_pylist()
    told = sorted((r["k"], r["v"]) for r in rows)
    assert told == [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 1), ("b", 2)]


def test_rows_that_wait_when_the_input_ends_without_more_go_round():
    made = looping(lambda s: s.iterate(hop, over="batches", output=SCHEMA))
    with Harness(made, tasks=3) as test:
        test.send("x", [("a", 4, 1)])
        test.send("x", [("b", 1, 2)])
        assert [r["v"] for r in test.output()] == [4, 3, 1]
        test.end()
        assert [r["v"] for r in test.output()] == [2, 1]
        assert test.dead() == []


def test_at_the_end_every_turn_gives_its_result():
    made = looping(lambda s: s.iterate(hop, over="batches"))
    with Harness(made) as test:
        test.send("x", [("a", 5, 1)])
        assert [r["v"] for r in test.output()] == [4]
        test.end()
        assert [r["v"] for r in test.output()] == [3, 2, 1]


@pytest.mark.parametrize("pause", [None, "1s"])
def test_rows_that_would_go_round_for_ever_are_dead_letters_at_the_end(pause):
    made = looping(
        lambda s: s.iterate(lambda r, _: r, over="batches", pause=pause, most=7, name="l")
    )
    with Harness(made) as test:
        test.send("x", [("a", 1, 1)])
        assert test.dead() == []
        test.end()
        errors = [(x["step"], x["error"]) for x in test.dead()]
        told = "Endless: the input has ended, and rows still went round after 7 turns"
        assert errors == [("l", told)]
        assert test.state("l")["$back"].num_rows == 0


def test_rows_that_wait_are_dead_letters_if_the_body_fails_at_the_end():
    def brittle(rows, loop):
        if 2 in rows["v"].to_pylist():
            raise ValueError("bad luck")
        return hop(rows, loop)

    with Harness(looping(lambda s: s.iterate(brittle, over="batches", output=SCHEMA))) as test:
        test.send("x", [("a", 4, 1)])
        test.end()
        assert [x["error"] for x in test.dead()] == ["ValueError: bad luck"]
        assert [r["v"] for r in test.output()] == [4]


def test_a_body_that_fails_leaves_everything_as_it_was():
    def careful(rows, loop):
        loop.kept["seen"] = pa.concat_tables([loop.kept["seen"], rows.select(["v"])])
        if 13 in rows["v"].to_pylist():
            raise ValueError("bad luck")
        return loop.kept["seen"]

    made = looping(
        lambda s: s.select("v").iterate(careful, times=1, keep={"seen": "v bigint"}, name="c")
    )
    with Harness(made) as test:
        test.send("x", [("a", 1, 1)])
        test.send("x", [("a", 13, 2), ("b", 2, 2)])
        assert [x["error"] for x in test.dead()] == ["ValueError: bad luck"] * 2
        test.send("x", [("a", 3, 3)])
        assert test.state("c")["seen"]["v"].sort().to_pylist() == [1, 3]


def test_a_loop_that_does_not_end_is_broken_off():
    with Harness(looping(lambda s: s.iterate(lambda r, loop: r, until="empty", most=7))) as test:
        test.send("x", [("a", 1, 1)])
        (letter,) = test.dead()
    assert letter["error"] == "Endless: the loop was not over after 7 turns"


def test_a_keyed_loop_keeps_to_its_keys():
    def stray(rows, loop):
        loop.kept["t"] = pa.table({"k": ["another"], "v": [1]})
        return rows

    made = looping(
        lambda s: s.key_by("k").iterate(
            stray, times=1, keep={"t": "k string, v bigint"}, unbounded=True
        )
    )
    with Harness(made) as test:
        test.send("x", [("a", 1, 1)])
        (letter,) = test.dead()
    assert "has a key that no row of this batch has" in letter["error"]


def test_what_a_loop_gives_has_the_time_of_a_column_or_of_the_batch():
    def back(rows, loop):
        return rows

    for time, ends in (("at", [10, 20]), (None, [20])):
        made = looping(
            lambda s, time=time: (
                s.iterate(back, times=1, time=time).window(hr.tumbling("10ms")).agg(n=hr.count())
            )
        )
        with Harness(made) as test:
            test.send("x", [("a", 1, 2), ("b", 2, 13)])
            test.end()
            found = [round(r["window_end"].timestamp() * 1_000) for r in test.output()]
        assert sorted(found) == ends


def test_steps_can_be_written_several_times_over():
    def step(stream):
        return stream.with_columns(v="v * 2").where("v < 100")

    with Harness(looping(lambda s: s.repeat(step, 4))) as test:
        test.send("x", [("a", 1, 1), ("b", 6, 1), ("c", 7, 1)])
        assert sorted(r["v"] for r in test.output()) == [16, 96]


def test_names_in_steps_that_are_repeated_get_a_number():
    def inner(stream):
        return stream.with_columns(v="v + 1").named("more", was="added")

    def outer(stream):
        return stream.where("v > 0", name="kept").repeat(inner, 2)

    job = looping(lambda s: s.repeat(outer, 3))
    names = [n.name for n in job.draft.graph()]
    assert names[1:-1] == [
        "kept", "more", "more-1-2", "kept-2", "more-2-1", "more-2-2",
        "kept-3", "more-3-1", "more-3-2",
    ]  # fmt: skip
    assert [n.was for n in job.draft.graph() if n.name == "more-2-1"] == ["added-2-1"]
    with Harness(job) as test:
        test.send("x", [("a", 1, 1)])
        assert [r["v"] for r in test.output()] == [7]


@pytest.mark.parametrize("body", [lambda s: None, lambda s: s.key_by("k"), lambda s: 5])
def test_a_body_of_repeat_must_give_a_stream(body):
    with pytest.raises(hr.PlanError, match="HR-LOOP-007 the body of repeat gave") as caught:
        looping(lambda s: s.repeat(body, 2))
    assert caught.value.site.file == __file__


def grows(rows, loop):
    return rows


REFUSED = [
    (lambda s: s.iterate(grows), "HR-LOOP-001"),
    (lambda s: s.iterate(grows, until="fixpoint"), "HR-LOOP-002"),
    (lambda s: s.iterate(grows, times=1, over="epochs"), "HR-LOOP-002"),
    (lambda s: s.iterate(grows, times=0), "HR-STREAM-002"),
    (lambda s: s.iterate(grows, over="batches", times=3), "HR-LOOP-003"),
    (lambda s: s.iterate(grows, times=3, pause="1s"), "HR-LOOP-003"),
    (lambda s: s.key_by("k").iterate(grows, times=1, keep={"m": "v bigint"}, unbounded=True),
     "HR-LOOP-004"),
    (lambda s: s.key_by("k").iterate(grows, times=1, keep={"m": "k string"}), "HR-PLAN-003"),
    (lambda s: s.iterate(grows, times=1, time="k"), "HR-LOOP-005"),
    (lambda s: s.iterate(lambda rows: rows, times=1), "HR-PLAN-028"),
    (lambda s: s.iterate(grows, until=lambda rows: True), "HR-PLAN-028"),
    (lambda s: s.repeat(lambda t: t, 101), "HR-LOOP-006"),
    (lambda s: s.transform(lambda: None), "HR-PLAN-028"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "code"), REFUSED)
def test_what_cannot_be_is_refused(step, code):
    with pytest.raises(hr.PlanError) as caught:
        looping(step).check()
    assert [p.code for p in caught.value.problems] == [code]
    assert all(p.hint and p.site for p in caught.value.problems)


def test_a_loop_of_no_rounds_is_told_in_rounds():
    with pytest.raises(hr.PlanError, match="iterate takes 0 rounds"):
        looping(lambda s: s.iterate(grows, times=0)).check()


# transform


def test_a_whole_batch_is_one_table_in_order():
    seen = []

    def look(rows):
        seen.append(rows["v"].to_pylist())
        return rows.take([rows.num_rows - 1])

    with Harness(looping(lambda s: s.transform(look)), tasks=3) as test:
        test.send("x", [("a", 3, 3), ("b", 1, 1), ("c", 2, 2)])
        test.send("x", [("a", 4, 4)])
        assert [r["v"] for r in test.output()] == [3, 4]
    assert seen == [[1, 2, 3], [4]]


def test_rows_of_a_batch_that_fails_are_dead_letters_whatever_was_raised():
    def fails(rows):
        raise hr.RunError("HR-X-001", "mine", "none")

    with Harness(looping(lambda s: s.transform(fails))) as test:
        test.send("x", [("a", 1, 1)])
        assert [letter["error"][:8] for letter in test.dead()] == ["RunError"]


def test_duckdb_can_be_asked():
    duckdb = pytest.importorskip("duckdb")

    def ask(rows):
        return duckdb.sql('select k, sum(v)::bigint as v, max("at") as "at" from rows group by k')

    with Harness(looping(lambda s: s.transform(ask, time="at"))) as test:
        test.send("x", [("a", 3, 3), ("b", 1, 1), ("a", 2, 2)])
        assert sorted((r["k"], r["v"]) for r in test.output()) == [("a", 5), ("b", 1)]


def test_with_a_key_each_task_has_all_rows_of_its_keys():
    def count(rows):
        return (
            rows.group_by("k", use_threads=False)
            .aggregate([([], "count_all")])
            .rename_columns(["k", "n"])
        )

    made = looping(lambda s: s.key_by("k").transform(count, output="k string, n bigint"))
    with Harness(made, tasks=3) as test:
        test.send("x", [(f"k{i % 7}", i, i) for i in range(70)])
        assert sorted((r["k"], r["n"]) for r in test.output()) == [(f"k{i}", 10) for i in range(7)]


@pytest.mark.parametrize(
    ("fn", "error"),
    [
        (lambda rows: 1 / 0, "ZeroDivisionError"),
        (lambda rows: rows.to_pylist(), "expected an Arrow table, got list"),
        (lambda rows: rows.drop_columns(["v"]), "the table has no column 'v'"),
    ],
)
def test_a_batch_that_fails_is_dead_letters_and_the_next_goes_on(fn, error):
    calls = []

    def sometimes(rows):
        calls.append(1)
        return fn(rows) if len(calls) == 1 else rows

    with Harness(looping(lambda s: s.transform(sometimes, name="t"))) as test:
        test.send("x", [("a", 1, 1), ("b", 2, 2)])
        letters = test.dead()
        test.send("x", [("c", 3, 3)])
        assert [r["k"] for r in test.output()] == ["c"]
    assert len(letters) == 2
    assert all(error in x["error"] for x in letters)


def test_rows_that_wait_go_on_when_a_column_may_be_null_from_now_on():
    def counted_down(null: str) -> hr.Job:
        def body(rows, loop):
            loop.emit(rows)
            on = rows.filter(pc.greater(rows["n"], 1))
            return on.set_column(0, on.schema.field("n"), pc.subtract(on["n"], 1))

        job = hr.Job("loops")
        rows = job.read("log:in", schema=f"n bigint{null}", name="in")
        rows.iterate(body, over="batches", output="n bigint", name="down").write(
            "collect:", name="out"
        )
        return job

    with Harness(counted_down(" not null")) as test:
        test.send("in", [(3,)])
        test.restart(counted_down(""))
        test.send("in", [(None,)])
        assert not test.dead()
        assert [row["n"] for row in test.output()] == [3, 2, None]
