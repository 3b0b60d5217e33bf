"""Models as text: read again, they predict and learn as before, bit for bit."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from river import drift, forest, linear_model, optim, preprocessing, tree

import headrace as hr
from headrace.errors import PlanError, StateError
from headrace.ops.learn import library
from headrace.ops.learn.model_text import NotStorableError, model_text, read_model
from headrace.ops.learn.models import new_detector, new_model
from headrace.testing import Harness

SCALED = preprocessing.StandardScaler
QUICK: dict[str, Any] = {"grace_period": 20, "delta": 0.1, "tau": 0.5}
CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "tree": lambda: tree.HoeffdingTreeClassifier(**QUICK),
    "majority": lambda: tree.HoeffdingTreeClassifier(
        leaf_prediction="mc", split_criterion="gini", remove_poor_attrs=True, max_depth=3, **QUICK),
    "bayes": lambda: SCALED() | tree.HoeffdingTreeClassifier(
        leaf_prediction="nb", split_criterion="hellinger", nb_threshold=5, **QUICK),
    "logistic": lambda: SCALED() | linear_model.LogisticRegression(),
    "momentum": lambda: SCALED(with_std=False) | linear_model.LogisticRegression(
        optim.Momentum(optim.schedulers.InverseScaling(0.1)), l2=0.1),
    "forest": lambda: forest.ARFClassifier(n_models=3, seed=1, **QUICK),
    "forest of majorities": lambda: forest.ARFClassifier(
        n_models=2, seed=1, leaf_prediction="mc", drift_detector=drift.NoDrift(), **QUICK),
    "forest of bayes": lambda: forest.ARFClassifier(
        n_models=2, seed=1, leaf_prediction="nb", max_features=None, **QUICK,
        warning_detector=drift.KSWIN(alpha=0.1, seed=2, window_size=30, stat_size=10)),
}  # fmt: skip
REGRESSORS: dict[str, Callable[[], Any]] = {
    "regression tree": lambda: tree.HoeffdingTreeRegressor(**QUICK),
    "means": lambda: tree.HoeffdingTreeRegressor(
        leaf_prediction="mean", splitter=tree.splitter.EBSTSplitter(), remove_poor_attrs=True,
        **QUICK),
    "models": lambda: tree.HoeffdingTreeRegressor(leaf_prediction="model", **QUICK),
    "lasso": lambda: SCALED() | linear_model.LinearRegression(l1=0.1),
    "adam": lambda: linear_model.LinearRegression(optim.Adam(0.05), l2=0.1),
    "ada_grad": lambda: linear_model.LinearRegression(
        optim.AdaGrad(), loss=optim.losses.Absolute()),
    "regression forest": lambda: SCALED() | forest.ARFRegressor(n_models=3, seed=1, **QUICK),
    "forest of means": lambda: forest.ARFRegressor(
        n_models=2, seed=1, leaf_prediction="mean", aggregation_method="median",
        warning_detector=drift.NoDrift(), drift_detector=drift.PageHinkley(threshold=5), **QUICK),
    "forest of models": lambda: forest.ARFRegressor(
        n_models=2, seed=1, leaf_prediction="model", **QUICK),
}  # fmt: skip
MODELS = {**CLASSIFIERS, **REGRESSORS}


def rows(count: int, classify: bool, seed: int = 7) -> list[tuple[dict[str, Any], Any]]:
    """What is to be learned changes halfway; some features are missing now and then."""
    draw, found = random.Random(seed), []
    for i in range(count):
        x: dict[str, Any] = {
            "a": draw.gauss(0, 1), "b": draw.randrange(5), "c": draw.random() < 0.5,
            "d": draw.uniform(-3, 3),
        }  # fmt: skip
        y = (x["a"] * 2 + x["b"]) * (-1 if i > count // 2 else 1) + x["d"] * x["c"]
        if i % 11 == 3:
            del x["b"]
        found.append((x, y > 1 if classify else y))
    return found


def grown(name: str, count: int = 300) -> Any:
    model = MODELS[name]()
    for x, y in rows(count, name in CLASSIFIERS):
        model.predict_one(x)
        model.learn_one(x, y)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_read_goes_on_as_if_nothing_had_been(name: str) -> None:
    straight, cut = MODELS[name](), read_model(model_text(MODELS[name]()))
    every = random.Random(name)
    for x, y in rows(300, name in CLASSIFIERS):
        assert repr(cut.predict_one(x)) == repr(straight.predict_one(x))
        straight.learn_one(x, y)
        cut.learn_one(x, y)
        if every.random() < 0.04:
            text = model_text(cut)
            cut = read_model(text)
            assert model_text(cut) == text
    assert model_text(cut) == model_text(straight)


def test_every_listed_kind_is_part_of_some_model() -> None:
    texts = [model_text(grown(name)) for name in MODELS]
    texts += [new_detector(kind, {})[0] for kind in library.DETECTORS]
    used = {entry[0] for text in texts for entry in json.loads(text)[1]}
    assert set(library.kinds()) - used == set()


def test_what_is_shared_stays_shared() -> None:
    read = read_model(model_text(grown("forest")))
    assert {id(one.rng) for one in read.data} == {id(read._rng)}


def test_a_tree_that_has_become_a_list_can_be_stored() -> None:
    splitter = tree.splitter.EBSTSplitter()
    for i in range(5_000):
        splitter.update(float(i), 1.0, 1.0)
    read, depth = read_model(model_text(splitter)), 0
    node = read._root
    while node is not None:
        node, depth = node._right, depth + 1
    assert depth == 5_000


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 1e308, 0.1 + 0.2])
def test_floats_are_the_same_bits(value: float) -> None:
    model = linear_model.LinearRegression()
    model.intercept = value
    assert repr(read_model(model_text(model)).intercept) == repr(value)
    model.intercept = math.nan
    assert math.isnan(read_model(model_text(model)).intercept)


def test_only_listed_kinds_are_written_and_read() -> None:
    with pytest.raises(NotStorableError, match="GaussianNB"):
        from river import naive_bayes

        model_text(naive_bayes.GaussianNB())
    odd = linear_model.LinearRegression()
    odd.extra = 1
    with pytest.raises(NotStorableError, match=r"LinearRegression\.extra"):
        model_text(odd)
    with pytest.raises(StateError, match=r"HR-LEARN-004 .*'os.system'"):
        read_model(json.dumps([1, [["os.system", "true"]]]))
    with pytest.raises(StateError, match="HR-LEARN-003"):
        read_model(json.dumps([2, []]))


def test_a_missing_library_and_another_version_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> Any:
        raise ImportError("river")

    monkeypatch.setattr(library, "release", missing)
    with pytest.raises(PlanError, match=r"(?s)HR-LEARN-001 .*headrace\[learn\]"):
        new_detector("adwin", {})
    monkeypatch.setattr(library, "release", lambda: "0.30.0")
    with pytest.raises(StateError, match=r"(?s)HR-LEARN-002 river 0.30.0 .*river==0.26"):
        new_model(linear_model.LinearRegression())


def test_a_model_can_be_looked_at() -> None:
    job = hr.Job("look")
    read = job.read("log:x", schema="k string, x double, y double", name="x")
    model = linear_model.LinearRegression()
    read.key_by("k").learn(model, target="y", features=["x"], unbounded=True, name="m").write(
        "collect:", name="out"
    )
    with Harness(job) as test:
        test.send("x", [{"k": "a", "x": 1.0, "y": 2.0}, {"k": "b", "x": 1.0, "y": None}])
        (found,) = test.state("m").values()
        assert found.column("$rows").to_pylist() == [1, 1]
        model.learn_one({"x": 1.0}, 2.0)
        model.predict_one({"x": 1.0})
        assert model_text(model) in found.column("$model").to_pylist()
