"""Imports point one way, each third party has one door, and no drawer is called utils.

Reads every module with `ast`, so imports inside functions and under TYPE_CHECKING count too.
To add a room or a door, change the tables; nothing here imports the package.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "headrace"

BASE = (
    "errors", "clock", "ddl", "schema", "chunk", "records", "column_types", "values", "rows",
    "reads", "hashing", "hints", "schemes", "secrets", "settings", "arrays", "isolate",
    "import_path", "files", "callables", "guarantees", "at_rest", "notebook", "printed",
    "state_copies", "partition_paths", "key_match", "spare_bytes", "restarts", "buckets",
    "expr", "expr/*", "functions", "kernel", "kernel/*",
)  # fmt: skip

# What a running job is made of.
JOB = ("base", "ops", "plan", "state", "log", "sources", "sinks")

# A room, and what it may import besides itself: whole rooms, or single modules of one.
ROOMS = {
    "base": (),
    "state": ("base",),
    "log": ("base", "connect.extras"),
    "ops": ("base", "state.table"),  # an operator holds keyed tables, never files
    "plan": ("base", "ops"),
    "connect": ("base",),  # the doors to databases, lakes, brokers and servers
    "sources": ("base", "state", "log", "connect"),
    "sinks": ("base", "state", "log", "connect"),
    "api": ("base", "ops", "plan", "log", "sources", "sinks"),
    "epoch": JOB,
    "task": (*JOB, "epoch"),
    "driver": (*JOB, "epoch", "task"),
    "inspect": (*JOB, "epoch", "task", "driver"),
    "doctor": (*JOB, "epoch", "driver", "inspect"),
    "engine": (*JOB, "epoch", "task", "driver", "inspect"),
    "look": (*JOB, "epoch", "task", "driver", "inspect"),
    "testing": (*JOB, "epoch", "task", "driver", "inspect", "look", "api"),
    # never api, task or engine: no program runs there
    "server": ("base", "state", "driver", "inspect", "plan.picture"),
}
# Single modules that may import more than their room does.
MORE = {
    "look/on_spark": ("engine",),  # imported only when a step needs Spark
    "testing/on_spark": ("engine",),  # imported only when a test asks for Spark
    "testing/transcript": ("top",),  # a transcript's program is written as users write theirs
}
TOP = ("__init__", "__main__", "cli*", "demo*")  # these may import every room
ANYWHERE = ("state.faults",)  # crash points: a leaf that everybody may pass

DOORS = {
    "pyspark": ("engine/*",),
    "py4j": ("engine/*",),
    "duckdb": ("kernel/duckdb",),
    "sqlglot": ("expr/*", "kernel/*"),
    "cloudpickle": (
        "engine/*",
        "testing/another_process",
        "testing/input_suite",
        "testing/output_drivers",
    ),
    "confluent_kafka": ("log/kafka*",),
    "deltalake": ("connect/delta",),
    "pyiceberg": ("connect/iceberg",),
    "fastavro": ("connect/avro",),
    "google": ("connect/protobuf", "connect/protobuf_values"),
    "grpc_tools": ("connect/protobuf",),
    "jsonschema_rs": ("connect/json_schema",),
    "datasketches": ("ops/sketch/library",),
    "adbc_driver_manager": ("connect/sql_postgres",),
    "adbc_driver_postgresql": ("connect/sql_postgres",),
    "river": ("ops/learn/library",),
    "paho": ("connect/mqtt",),
    "starlette": ("server/*",),
    "uvicorn": ("server/*",),
    "prometheus_client": ("server/prometheus",),
    "typer": ("cli*",),
    "IPython": ("notebook",),
    "pickle": (),
    "marshal": (),
    "shelve": (),
}
IMPORTED_AS = {
    "pyyaml": "yaml",
    "ipython": "IPython",
}  # where the package and its module have different names
ONE_MODULE = ("matplotlib",)
DRAWERS = re.compile(r"^(utils?|commons?|helpers?|managers?|misc)$")


def modules() -> dict[str, str]:
    """The source of every module by its path in the package, without the suffix."""
    return {
        str(path.relative_to(PACKAGE).with_suffix("")): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def imports(path: str, source: str, known: set[str]) -> Iterator[str]:
    """Dotted names of what a module imports; `from a import b` is a.b when b is a module."""
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = absolute(path, node)
            for alias in node.names:
                name = f"{origin}.{alias.name}"
                yield name if name in known else origin


def absolute(path: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = ["headrace", *path.split("/")][: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def room_of(module: str) -> str:
    """The room of a module given as path: "log/segment" is in log, "clock" in base."""
    first = module.split("/")[0]
    if first in ROOMS:
        return first
    if any(fnmatch(module, pattern) for pattern in BASE):
        return "base"
    return "top" if any(fnmatch(first, pattern) for pattern in TOP) else "nowhere"


def known_names(paths: set[str]) -> set[str]:
    files = {"headrace." + p.replace("/", ".") for p in paths}
    return files | {name.rpartition(".")[0] for name in files}


def violations(path: str, source: str, paths: set[str]) -> list[str]:
    """What is wrong with one module, as sentences."""
    found = [f"{path}: is named as a drawer" for p in path.split("/") if DRAWERS.match(p)]
    room = room_of(path)
    if room == "nowhere":
        found.append(f"{path}: is in no room; say in ROOMS, BASE or TOP where it belongs")
    for name in sorted(set(imports(path, source, known_names(paths | {path})))):
        top, _, inside = name.partition(".")
        if top == "headrace":
            found += inner(path, room, inside)
        elif top in DOORS and not any(fnmatch(path, door) for door in DOORS[top]):
            doors = " and ".join(DOORS[top]) or "no module"
            found.append(f"{path}: imports {top}, which belongs to {doors}")
    return found


def inner(path: str, room: str, inside: str) -> list[str]:
    target = room_of(inside.replace(".", "/")) if inside else "top"
    if room in ("top", "nowhere") or target == room or inside in ANYWHERE:
        return []
    may = (*ROOMS[room], *MORE.get(path, ()))
    allowed = any(a == target or f"{inside}.".startswith(f"{a}.") for a in may)
    name = f"headrace.{inside}" if inside else "headrace"
    return [] if allowed else [f"{path}: {room} imports {name} ({target})"]


def third_parties(sources: dict[str, str]) -> dict[str, set[str]]:
    """Who imports what from outside the standard library."""
    users: dict[str, set[str]] = {}
    for path, source in sources.items():
        for name in imports(path, source, set()):
            users.setdefault(name.partition(".")[0], set()).add(path)
    return {n: u for n, u in users.items() if n not in sys.stdlib_module_names and n != "headrace"}


def test_every_module_imports_only_what_its_room_may():
    sources = modules()
    assert sources
    assert [v for p, s in sources.items() for v in violations(p, s, set(sources))] == []


# Circles of imports that are known, each as the modules in it: to take one off, break it.
CIRCLES: list[set[str]] = [
    {"api.keyed", "api.stream"},  # key_by, and unkeyed: each returns the other
]


def import_graph(sources: dict[str, str]) -> dict[str, set[str]]:
    """The modules of the package that each module imports, by dotted name; a package is its
    `__init__`."""
    dotted = {path: dotted_name(path) for path in sources}
    known = {f"headrace.{name}" for name in dotted.values()}
    return {
        dotted[path]: {
            name.removeprefix("headrace.") for name in imports(path, source, known) if name in known
        }
        - {dotted[path]}
        for path, source in sources.items()
    }


def dotted_name(path: str) -> str:
    return path.removesuffix("/__init__").replace("/", ".")


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The groups of several modules of which each imports, by others perhaps, every other."""
    reached = {name: reachable(name, graph) for name in graph}
    groups = {frozenset(b for b in reached[a] if a in reached[b]) for a in graph}
    return [set(group) for group in sorted(groups, key=sorted) if len(group) > 1]


def reachable(start: str, graph: dict[str, set[str]]) -> set[str]:
    seen, rest = set[str](), [start]
    while rest:
        new = graph[rest.pop()] - seen
        seen |= new
        rest += new
    return seen


def test_no_modules_import_one_another_in_a_circle():
    found = circles(import_graph(modules()))
    assert [group for group in found if not any(group <= known for known in CIRCLES)] == []
    gone = [known for known in CIRCLES if not any(group <= known for group in found)]
    assert gone == [], "take what is no circle any more off the list"


@pytest.mark.parametrize(
    "source",
    [
        "from headrace.log.b import f",
        "from headrace.log import b",
        "from . import b",
        "def f():\n    from headrace.log.b import g",
        "if TYPE_CHECKING:\n    from headrace.log.b import B",
    ],
)
def test_a_circle_is_noticed_however_it_is_imported(source):
    sources = {"log/__init__": "", "log/a": source, "log/b": "import headrace.log.c", "log/c": ""}
    assert circles(import_graph(sources)) == []
    sources["log/c"] = "from headrace.log.a import f"
    assert circles(import_graph(sources)) == [{"log.a", "log.b", "log.c"}]


def test_a_package_that_its_modules_import_from_is_a_circle():
    sources = {
        "log/__init__": "from headrace.log.a import f",
        "log/a": "from headrace.log import f",
    }
    assert circles(import_graph(sources)) == [{"log", "log.a"}]


def test_one_module_at_most_draws_pictures():
    users = third_parties(modules())
    assert all(len(users.get(name, ())) <= 1 for name in ONE_MODULE)


def test_every_third_party_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    used = ("kafka", "server", "delta", "iceberg", "plot", "notebook", "testing", "approx", "learn")
    optional = [w for extra in used for w in extras[extra]]
    wanted = [*project["dependencies"], *optional]
    named = [re.split(r"[^\w-]", w)[0].replace("-", "_") for w in wanted]
    declared = {IMPORTED_AS.get(name, name) for name in named}
    assert {n: u for n, u in third_parties(modules()).items() if n not in declared | {"py4j"}} == {}


def test_the_tables_name_only_what_exists():
    paths = [*modules(), *(p.rpartition("/")[0] for p in modules())]
    patterns = [*BASE, *ROOMS.keys() - {"base"}, *MORE]
    assert [p for p in patterns if not any(fnmatch(path, p) for path in paths)] == []


def test_the_rooms_have_an_order():
    rooms = {room: {a.partition(".")[0] for a in allowed} for room, allowed in ROOMS.items()}
    assert next(TopologicalSorter(rooms).static_order()) == "base"


PATHS = {
    "errors", "expr/__init__", "expr/tree", "kernel/__init__", "ops/panes", "state/table",
    "state/sealed", "log/segment",
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("ops/panes", "import pyspark.sql", "imports pyspark"),
        ("ops/panes", "def f():\n    import duckdb", "imports duckdb"),
        ("kernel/sql", "import duckdb", "imports duckdb, which belongs to kernel/duckdb"),
        ("functions", "from sqlglot import exp", "imports sqlglot"),
        ("plan/checks", "from sqlglot import exp", "imports sqlglot"),
        ("state/runs", "import pickle", "imports pickle, which belongs to no module"),
        ("state/runs", "from cloudpickle import dumps", "imports cloudpickle"),
        ("ops/panes", "from headrace.log.segment import cut", "ops imports headrace.log.segment"),
        ("ops/panes", "from headrace.state import sealed", "ops imports headrace.state.sealed"),
        ("ops/panes", "from headrace.state.table_x import f", "ops imports headrace.state.table_x"),
        ("ops/panes", "from ..log import segment", "ops imports headrace.log.segment"),
        ("log/segment", "import headrace.state.sealed", "log imports headrace.state.sealed"),
        ("engine/run", "from headrace.api.job import Job", "engine imports headrace.api.job"),
        ("testing/harness", "from headrace.engine import run", "testing imports headrace.engine"),
        ("clock", "from headrace import kernel, ops", "base imports headrace.ops (ops)"),
        ("clock", "import headrace", "base imports headrace (top)"),
        ("state/table", "import headrace.cli", "state imports headrace.cli (top)"),
        ("ops/panes", "if TYPE_CHECKING:\n    from headrace.plan.nodes import Node", "plan.nodes"),
        ("log/utils", "", "is named as a drawer"),
        ("helpers/text", "", "is named as a drawer"),
        ("flotsam", "", "is in no room"),
    ],
)
def test_the_checker_catches(path, source, fault):
    found = violations(path, source, PATHS)
    assert any(fault in sentence for sentence in found), found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("engine/run", "import pyspark\nimport cloudpickle\nfrom headrace.task import flow"),
        ("kernel/arrow", "from sqlglot import exp\nfrom headrace import expr, errors"),
        ("kernel/duckdb", "import duckdb\nfrom headrace.expr import tree"),
        ("ops/panes", "from headrace.state.table import KeyedTable\nfrom . import windows"),
        ("log/segment", "from headrace.state.faults import point"),
        ("cli", "import typer\nfrom headrace.engine import run\nimport headrace"),
        ("testing/on_spark", "from headrace.engine.run import Run"),
    ],
)
def test_the_checker_lets_pass(path, source):
    assert violations(path, source, PATHS) == []


def test_a_class_name_is_used_once() -> None:
    found: dict[str, list[str]] = {}
    for path, source in modules().items():
        for node in ast.walk(ast.parse(source, path)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name.lstrip("_"), []).append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
