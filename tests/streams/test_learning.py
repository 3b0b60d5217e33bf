"""Models that predict and then learn, and change detection: river itself is what they must equal.

The oracle has the models as Python objects that live through everything; the job writes them as
text after each batch, and reads them again, crashes and restarts included.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import drift, forest, linear_model, optim, preprocessing, tree

import headrace as hr
from headrace.errors import PlanError, StateError
from headrace.ops.learn import learn
from headrace.testing import Harness
from tests.streams.playing import OPTIONS, Row, play, turns


def scaled(model: Any) -> Any:
    return preprocessing.StandardScaler() | model


QUICK: dict[str, Any] = {"grace_period": 3, "delta": 0.5, "tau": 0.9}
MODELS: dict[str, Callable[[], Any]] = {
    "tree": lambda: tree.HoeffdingTreeClassifier(**QUICK),
    "tree of majorities": lambda: tree.HoeffdingTreeClassifier(
        leaf_prediction="mc", split_criterion="gini", remove_poor_attrs=True, max_depth=2, **QUICK
    ),
    "scaled logistic regression": lambda: scaled(linear_model.LogisticRegression()),
    "forest": lambda: forest.ARFClassifier(n_models=2, seed=4, **QUICK),
    "regression tree": lambda: tree.HoeffdingTreeRegressor(**QUICK),
    "linear regression": lambda: linear_model.LinearRegression(optim.Adam(0.1), l2=0.1),
    "forest of regressors": lambda: scaled(forest.ARFRegressor(n_models=2, seed=4, **QUICK)),
}
CLASSIFIERS = ("tree", "tree of majorities", "scaled logistic regression", "forest")
FEATURES = ["f", "g", "h"]


class InOrder:
    """The rows that the watermark has passed, in the order of event time, split and offset."""

    def __init__(self, keyed: bool) -> None:
        self.keyed, self.waiting = keyed, list[Row]()
        self.models: dict[Any, Any] = {}

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[Any]:
        self.waiting += [r for r in rows if r.t >= before]
        due = sorted((r for r in self.waiting if r.t < after), key=lambda r: r.order)
        self.waiting = [r for r in self.waiting if r.t >= after]
        return [out for r in due for out in self.learn(r.k if self.keyed else None, r)]

    def learn(self, key: Any, row: Row) -> list[Any]:
        raise NotImplementedError


class Learned(InOrder):
    def __init__(self, make: Callable[[], Any], keyed: bool, classifies: bool) -> None:
        super().__init__(keyed)
        self.make, self.classifies = make, classifies

    def learn(self, key: Any, row: Row) -> list[Any]:
        model = self.models.setdefault(key, self.make())
        x = {"f": row.n % 7, "g": row.t / 4, "h": None if row.n % 3 == 0 else row.n % 2 == 0}
        x = {name: value for name, value in x.items() if value is not None}
        y = None if row.v is None else row.v > 2 if self.classifies else row.v
        predicted = model.predict_one(x)
        if y is not None:
            model.learn_one(x, y)
        return [(row.n, predicted if predicted is None or self.classifies else float(predicted))]


def features(rows: Any, classifies: bool) -> Any:
    odd = "case when n % 3 = 0 then null else n % 2 = 0 end"
    y = "v > 2" if classifies else "v"
    return rows.with_columns(f="n % 7", g="cast(at as double) / 4", h=odd, y=y)


def predicted(row: Any) -> Any:
    return (row["n"], row["prediction"])


@pytest.mark.parametrize("name", MODELS)
@settings(**OPTIONS)
@given(script=turns(), keyed=st.booleans(), tasks=st.integers(1, 3))
def test_predictions_are_those_of_river_whatever_happens_in_between(name, script, keyed, tasks):
    classifies, make = name in CLASSIFIERS, MODELS[name]

    def made(rows: Any) -> Any:
        with_features = features(rows, classifies)
        stream = with_features.key_by("k") if keyed else with_features
        return stream.learn(make(), target="y", features=FEATURES, unbounded=True, name="m")

    play(made, Learned(make, keyed, classifies), script, predicted, "m", tasks)


DETECTORS: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
    "adwin": (
        {"delta": 0.9, "clock": 1, "grace_period": 1, "min_window_length": 1},
        lambda: drift.ADWIN(delta=0.9, clock=1, grace_period=1, min_window_length=1),
    ),
    "page_hinkley": (
        {"min_instances": 2, "threshold": 1.5},
        lambda: drift.PageHinkley(min_instances=2, threshold=1.5),
    ),
    "kswin": (
        {"window_size": 6, "stat_size": 3, "alpha": 0.2, "seed": 3},
        lambda: drift.KSWIN(window_size=6, stat_size=3, alpha=0.2, seed=3),
    ),
}


class Detected(InOrder):
    def __init__(self, make: Callable[[], Any], keyed: bool) -> None:
        super().__init__(keyed)
        self.make, self.seen = make, dict[Any, int]()

    def learn(self, key: Any, row: Row) -> list[Any]:
        self.seen[key] = self.seen.get(key, 0) + 1
        detector = self.models.setdefault(key, self.make())
        if row.v is None:
            return []
        detector.update(row.v)
        changed = detector.drift_detected
        return [(key, row.t, float(row.v), self.seen[key])] if changed else []


@pytest.mark.parametrize("name", DETECTORS)
@settings(**OPTIONS)
@given(script=turns(), keyed=st.booleans(), tasks=st.integers(1, 3))
def test_changes_are_those_of_river_whatever_happens_in_between(name, script, keyed, tasks):
    options, make = DETECTORS[name]

    def made(rows: Any) -> Any:
        stream = rows.key_by("k") if keyed else rows
        return stream.drift("v", detector=name, unbounded=True, name="d", **options)

    def shown(row: Any) -> Any:
        at = round(row["at"].timestamp() * 1_000)
        return (row["k"] if keyed else None, at, row["value"], row["rows"])

    play(made, Detected(make, keyed), script, shown, "d", tasks)


# Longer streams, cut into batches anywhere: the same results, and the detector's own figures.


def levels(count: int, seed: int) -> list[dict[str, Any]]:
    """Two keys whose mean changes now and then."""
    draw = random.Random(seed)
    return [
        {"k": draw.choice("ab"), "v": draw.gauss(i // 400 % 2 * 2, 0.5), "at": i}
        for i in range(count)
    ]


def batches(rows: list[Any], sizes: list[int]) -> list[list[Any]]:
    found, start = [], 0
    while start < len(rows):
        size = sizes[len(found) % len(sizes)]
        found.append(rows[start : start + size])
        start += size
    return found


def outputs(made: Callable[[Any], Any], rows: list[Any], sizes: list[int]) -> list[Any]:
    job = hr.Job("cut")
    read = job.read("log:x", schema="k string, v double, at bigint", time="at", delay="20ms")
    made(read).write("collect:", name="out")
    found = []
    with Harness(job, clock=1_000) as test:
        for number, batch in enumerate(batches(rows, sizes)):
            test.send("x", batch)
            found += test.output("out")
            if number % 3 == 1:
                test.crash()
        test.end()
        found += test.output("out")
    return sorted(found, key=repr)


@pytest.mark.parametrize("name", ["adwin", "page_hinkley", "kswin"])
def test_batches_do_not_matter(name):
    options: dict[str, Any] = {"page_hinkley": {"threshold": 20.0}}.get(name, {})
    rows, count = levels(1_500, 5), 250 if name == "kswin" else 1_500

    def made(read: Any) -> Any:
        return read.key_by("k").drift("v", detector=name, unbounded=True, **options)

    shuffled = random.Random(1).sample(range(count), count)
    late = sorted(range(count), key=lambda i: i + shuffled[i] % 15)  # a little out of order
    few = rows[:count]
    whole = outputs(made, few, [count])
    assert outputs(made, [few[i] for i in late], [37, 1, 200]) == whole
    if name != "kswin":
        assert whole, "nothing was found"
    for row in whole:
        if name == "adwin":
            assert abs(row["mean_before"] - row["mean_after"]) > 0.2


def test_a_change_has_the_figures_of_its_detector():
    rows = [{"k": "a", "v": float(i > 200) * 4 + i % 3, "at": i} for i in range(320)]
    (adwin,) = outputs(lambda s: s.drift("v", clock=1), rows, [50])
    assert adwin["mean_before"] < adwin["mean_after"] < 2
    (kswin,) = outputs(lambda s: s.drift("v", detector="kswin"), rows, [50])
    assert kswin["p_value"] <= 0.005 and kswin["mean_after"] > kswin["mean_before"] + 1
    (page,) = outputs(lambda s: s.drift("v", detector="page_hinkley"), rows, [50])
    assert 0.5 < page["mean_before"] < 2 and page["rows"] == page["at"].microsecond // 1000 + 1


def test_probabilities_come_with_the_prediction_they_lead_to():
    rows = [{"k": "a", "v": math.sin(i), "at": i} for i in range(120)]

    def made(read: Any, **options: Any) -> Any:
        labels = "case when v > 0.3 then 'high' when v < -0.3 then 'low' else 'mid' end"
        return read.with_columns(y=labels, f="sin(cast(at as double) - 1)").learn(
            tree.HoeffdingTreeClassifier(grace_period=20), target="y", features="f", **options
        )

    plain = outputs(made, rows, [17])
    with_all = outputs(lambda s: made(s, probabilities=True), rows, [40])
    assert [r["prediction"] for r in plain] == [r["prediction"] for r in with_all]
    last = dict(with_all[-1]["probabilities"])
    assert set(last) == {"high", "low", "mid"} and sum(last.values()) == pytest.approx(1)


def small(made: Callable[[Any], Any], **time: Any) -> hr.Job:
    job = hr.Job("small")
    schema = "k string, y boolean, n bigint, v double, at bigint"
    made(job.read("log:x", schema=schema, name="x", **time)).write("collect:", name="out")
    return job


def logistic(s: Any, **more: Any) -> Any:
    model = linear_model.LogisticRegression(**more)
    return s.learn(model, target="y", features=["v"], name="m")


TIMED = {"time": "at", "delay": "10ms"}


def sent(*values: Any) -> list[dict[str, Any]]:
    return [{"k": "a", "y": True, "n": 1, "v": v, "at": i} for i, v in enumerate(values)]


@pytest.mark.parametrize("made", [logistic, lambda s: s.drift("v", name="m")])
def test_what_is_no_finite_number_is_a_dead_letter(made):
    with Harness(small(made)) as test:
        test.send("x", sent(1.0, math.nan, 2.0, math.inf, None))
        dead = test.dead()
        assert ["nan" in d["error"] or "inf" in d["error"] for d in dead] == [True, True]
        (models,) = test.state("m").values()
        assert models.column("$rows").to_pylist() == [3]


def test_a_row_on_which_the_model_fails_leaves_it_as_it_was(monkeypatch):
    """It fails after it has learned the row."""
    model, bad = scaled(linear_model.LinearRegression()), 77
    plain = learn._LearnOperator.run

    class Picky:
        def __init__(self, model: Any) -> None:
            self.model, self.predict_one = model, model.predict_one

        def learn_one(self, x: Any, y: Any) -> None:
            self.model.learn_one(x, y)
            if x["n"] == bad:
                raise ValueError("found too late")

    monkeypatch.setattr(
        learn._LearnOperator, "run",
        lambda self, model, items, results: plain(self, Picky(model), items, results),
    )  # fmt: skip
    expected, oracle, rows = [], model.clone(), list[Any]()
    for i, n in enumerate([1, 2, bad, 3, bad, bad, 4, 5]):
        rows.append({"k": "a", "y": True, "n": n, "v": float(n % 10), "at": i})
        if n != bad:
            expected.append(oracle.predict_one({"n": n}))
            oracle.learn_one({"n": n}, float(n % 10))
    job = small(lambda s: s.learn(model, target="v", features=["n"], name="m"))
    with Harness(job) as test:
        test.send("x", rows)
        assert [r["prediction"] for r in test.output("out")] == expected
        assert ["found too late" in d["error"] for d in test.dead()] == [True] * 3


def test_rows_before_the_watermark_are_late():
    job = hr.Job("late")
    rows = job.read("log:x", schema="v double, at bigint", time="at", delay="10ms", name="x")
    found = rows.drift("v", name="m")
    found.write("collect:", name="out")
    found.late.write("collect:", name="late")
    with Harness(job) as test:
        test.send("x", [{"v": 1.0, "at": 100}])
        test.send("x", [{"v": 1.0, "at": 20}])
        assert [r["at"] for r in test.output("late")] == [20]


CHANGED: list[tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = [
    (logistic, lambda s: logistic(s, l2=0.5), "'l2' of this learn was 0.0 and is 0.5"),
    (logistic, lambda s: logistic(s, optimizer=optim.SGD(0.5)), "'optimizer.lr"),
    (
        logistic,
        lambda s: s.learn(
            linear_model.LogisticRegression(), target="y", features=["v", "n"], name="m"
        ),
        "'features' of this learn changed",
    ),
    (
        logistic,
        lambda s: s.learn(tree.HoeffdingTreeClassifier(), target="y", features=["v"], name="m"),
        "'model' of this learn was logistic_regression and is hoeffding_tree_classifier",
    ),
    (
        lambda s: s.drift("v", name="m"),
        lambda s: s.drift("v", detector="kswin", name="m"),
        "'detector' of this drift was adwin and is kswin",
    ),
]


@pytest.mark.parametrize(("before", "after", "because"), CHANGED)
def test_a_changed_model_is_refused_by_name(before, after, because):
    with Harness(small(before)) as test:
        test.send("x", sent(1.0, 2.0))
        with pytest.raises(StateError, match="HR-EVOLVE") as refused:
            test.restart(small(after))
        assert because in str(refused.value)


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda s: s.learn(tree.HoeffdingAdaptiveTreeClassifier(seed=1), target="y", features=["v"]),
     "HR-LEARN-006"),
    (lambda s: s.learn("tree", target="y", features=["v"]), "HR-LEARN-006"),
    (lambda s: s.learn(tree.HoeffdingTreeClassifier, target="y", features=["v"]), "HR-LEARN-006"),
    (lambda s: s.learn(tree.HoeffdingTreeClassifier(splitter=tree.splitter.HistogramSplitter()),
                       target="y", features=["v"]), "HR-LEARN-006"),
    (lambda s: s.learn(preprocessing.MinMaxScaler() | linear_model.LogisticRegression(),
                       target="y", features=["v"]), "HR-LEARN-006"),
    (lambda s: s.learn(preprocessing.StandardScaler(window_size=5)
                       | linear_model.LogisticRegression(), target="y", features=["v"]),
     "HR-LEARN-006"),
    (lambda s: s.learn(forest.ARFClassifier(), target="y", features=["v"]), "HR-LEARN-007"),
    (lambda s: s.learn(tree.HoeffdingTreeClassifier(max_size=1), target="y", features=["v"]),
     "HR-LEARN-008"),
    (lambda s: s.learn(tree.HoeffdingTreeClassifier(nominal_attributes=["v"]), target="y",
                       features=["v"]), "HR-LEARN-008"),
    (lambda s: s.learn(trained(), target="y", features=["v"]), "HR-LEARN-009"),
    (lambda s: s.learn(linear_model.LogisticRegression(), target="y", features=["k"]),
     "HR-LEARN-010"),
    (lambda s: s.drift("k"), "HR-LEARN-010"),
    (lambda s: s.learn(linear_model.LogisticRegression(), target="n", features=["v"]),
     "HR-LEARN-011"),
    (lambda s: s.learn(linear_model.LinearRegression(), target="k", features=["v"]),
     "HR-LEARN-011"),
    (lambda s: s.learn(tree.HoeffdingTreeClassifier(), target="v", features=["n"]),
     "HR-LEARN-011"),
    (lambda s: s.learn(linear_model.LogisticRegression(), target="y", features=[]),
     "HR-LEARN-012"),
    (lambda s: s.drift("v", detector="ddm"), "HR-LEARN-013"),
    (lambda s: s.drift("v", threshold=3), "HR-LEARN-014"),
    (lambda s: s.drift("v", detector="kswin", window=[1.0]), "HR-LEARN-014"),
    (lambda s: s.drift("v", delta=2), "HR-LEARN-015"),
    (lambda s: s.drift("v", clock=0), "HR-LEARN-015"),
    (lambda s: s.drift("v", detector="kswin", seed=None), "HR-LEARN-015"),
    (lambda s: s.drift("v", detector="kswin", stat_size=60), "HR-LEARN-015"),
    (lambda s: s.drift("v", detector="page_hinkley", mode="left"), "HR-LEARN-015"),
    (lambda s: s.learn(linear_model.LinearRegression(), target="v", features=["n"],
                       probabilities=True), "HR-LEARN-016"),
    (lambda s: s.key_by("k").drift("v"), "HR-PLAN-003"),
    (lambda s: s.drift("w"), "HR-EXPR-001"),
    (lambda s: s.learn(linear_model.LinearRegression(), target="v", features=["v"]),
     "HR-LEARN-012"),
    (lambda s: s.rename(prediction="n").learn(
        linear_model.LogisticRegression(), target="y", features=["v"]), "HR-PLAN-015"),
]  # fmt: skip


def trained() -> Any:
    model = linear_model.LogisticRegression()
    model.learn_one({"v": 1.0}, True)
    return model


@pytest.mark.parametrize(("made", "code"), WRONG)
def test_what_cannot_be_is_refused_where_it_is_built(made, code):
    with pytest.raises(PlanError) as refused:
        small(made, **TIMED).check()
    assert code in str(refused.value)
