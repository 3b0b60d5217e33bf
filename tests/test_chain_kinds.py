"""That chains of changed programs draw every kind of step, input and output there is."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random

import pytest
from evolution.build import build
from evolution.draw import OUTPUTS
from evolution.judge import judge
from evolution.kinds import AGGREGATES, KINDS, OPEN, hows
from evolution.places import ALL, Places
from evolution.spec import Branch, Input, Output, Step, Version

from headrace import ops
from headrace.ops.agg.kinds import KINDS as ALL_AGGREGATES
from headrace.plan import nodes
from headrace.sinks.open import KINDS as SINKS
from headrace.sources.open import KINDS as SOURCES

# what is not drawn, and why
EXEMPT = {
    "Dead": "no row of a chain fails, so there are no dead letters",
    "Select": "is part of a SelectChain in a program",
    "Python": "is part of a PythonChain in a program",
    "Numbered": "is a part of windowed bolts; tests/topology/test_windows.py",
    "Repartition": "has no state; tests/streams/test_streamlets.py",
    "DegreeDistribution": "has the state of Degrees, and counts; tests/graph/test_running.py",
    "SampledTriangles": "depends on what is drawn; tests/graph/test_sampled.py",
    "Spanner": "depends on the order of rows of a batch; tests/graph/test_spanner.py",
    "Sparsifier": "depends on what is drawn; tests/graph/test_windows.py",
    "Seeded": "collects the edges of triangles and sparsifiers; tests/graph/test_seeds.py",
    "WindowTriangles": "comes after windows that are drawn; tests/graph/test_windows.py",
    "BoltSpec": "is a process function by task; tests/topology/test_changes.py",
    "ShellBoltSpec": "is a bolt without state; tests/topology/test_multilang.py",
}
ELSEWHERE = {
    "sql": "needs a database; tests/sinks/test_sql.py, tests/sources/test_sql.py",
    "http": "stores what it receives as a socket does; tests/sources/test_http.py",
    "listen": "stores what it receives as a socket does; tests/sources/test_listening.py",
    "mqtt": "needs a broker; tests/mqtt",
    "sse": "stores what it receives as a socket does; tests/sources/test_sse.py",
    "table": "needs Spark; tests/engine/test_spark_io.py",
    "webhook": "needs a server; tests/sinks/test_webhook.py",
    "kafka": "needs a broker; tests/kafka",
    "delta": "delivered as to topics; tests/sinks/test_delta.py, tests/sources/test_delta.py",
    "iceberg": "as delta; tests/sinks/test_iceberg.py, tests/sources/test_iceberg.py",
}
EXEMPT_AGGREGATES = {
    "stddev": "is no whole number; its parts are like those of mean",
    **dict.fromkeys(
        ("approx_quantiles", "approx_top_k", "count_min", "histogram", "sample", "theta"),
        "of a sketch: what it gives depends on how rows are cut; tests/ops/test_approx_*.py",
    ),
    "variance": "is no whole number; its parts are like those of mean",
}


def every(kind: str) -> list[Step]:
    inputs = ("i1", "i2", "i3")[: KINDS[kind].most]
    return [
        Step(kind, f"{kind} {how}", inputs, aggs=("sum", "mean"), how=how) for how in hows(kind)
    ]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The classes of all steps, and of what they do, in programs with each kind."""
    root, found = tmp_path_factory.mktemp("kinds"), set[str]()
    places = Places(root, random.Random(1))
    inputs = tuple(Input(f"i{n}", "log", f"t{n}") for n in (1, 2, 3))
    for step in (step for kind in KINDS for step in every(kind)):
        branch = Branch("L1", step, Output("o", "collect", "o"))
        program = build(Version(inputs, (branch,)), 1, root, places).program()
        for node in program.nodes.values():
            found |= {type(node).__name__, type(getattr(node, "what", node)).__name__}
    return found


def test_every_kind_of_step_is_drawn(drawn: set[str]) -> None:
    plan = {
        cls.__name__
        for _, cls in inspect.getmembers(nodes, inspect.isclass)
        if issubclass(cls, nodes.Node) and not cls.__subclasses__() and cls is not nodes.Node
    }
    assert (plan | own_meanings()) - drawn == set(EXEMPT)


def own_meanings() -> set[str]:
    """What steps do that bring their own meaning: all that has a kind and makes an operator."""
    found = set[str]()
    for module in pkgutil.walk_packages(ops.__path__, "headrace.ops."):
        for name, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            makes = hasattr(cls, "operator") or hasattr(cls, "run")
            if hasattr(cls, "kind") and makes and not inspect.isabstract(cls):
                found.add(name)
    return found


def test_every_aggregate_is_drawn() -> None:
    assert {*AGGREGATES} | {*EXEMPT_AGGREGATES} == {*ALL_AGGREGATES}


def test_every_kind_of_input_and_output_is_drawn() -> None:
    assert {kind for kind, _ in ALL} == {*SOURCES, "rows", "generate"} - {*ELSEWHERE}
    assert {*OUTPUTS} == {*SINKS} - {*ELSEWHERE}


def test_a_rename_of_a_step_that_may_have_no_state_is_left_open() -> None:
    """It is refused, loudly, if the step has never taken part in an epoch."""
    inputs, output = (Input("i1", "log", "t1"),), Output("o", "log", "po")
    before = Version(inputs, (Branch("L1", Step("fold", "s1", ("i1",)), output),))
    after = Version(inputs, (Branch("L1", Step("fold", "s2", ("i1",), was="s1"), output),))
    assert judge(before, after, set(), stored=set())[0] == OPEN
    assert judge(before, after, set(), stored={"L1"})[0] == "starts"
