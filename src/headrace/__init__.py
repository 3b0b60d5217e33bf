"""Stream processing for Python on Apache Spark: the public names, nothing else.

`run` and `Run` are looked up when they are first used, so that writing, checking and
explaining a program needs no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import functions, hints
from headrace.api import looking, triggers
from headrace.api.job import Job
from headrace.api.keyed import KeyedStream, Table, connect, join_all
from headrace.api.lookups import spark_table, sql_table, table_file
from headrace.api.patterns import Pattern, either, pattern
from headrace.api.shell_spouts import ShellSpout
from headrace.api.stream import JoinResult, MatchResult, ProcessResult, Stream, WindowResult
from headrace.api.topology import Topology
from headrace.errors import (
    FencedError,
    HeadraceError,
    InputError,
    LogError,
    OutputError,
    PlanError,
    RunError,
    ServerError,
    StateError,
    StepError,
)
from headrace.expr import Expr, col, lit
from headrace.functions import *  # noqa: F403
from headrace.log import Consumer, EmbeddedLog, Producer
from headrace.ops import shedding, watermarks
from headrace.ops.agg.named import (
    avg,
    collect,
    count,
    count_distinct,
    first,
    last,
    max,
    max_by,
    mean,
    median,
    min,
    min_by,
    percentile,
    stddev,
    sum,
    variance,
)
from headrace.ops.agg.own import OwnAggregate as Aggregate
from headrace.ops.calls.resource import resource
from headrace.ops.process.function import Context, KeyedProcess
from headrace.ops.process.operator_kinds import operator_list, operator_value
from headrace.ops.process.state_kinds import (
    aggregating,
    last_of,
    list_of,
    map_of,
    reducing,
    shared_map,
    value,
)
from headrace.ops.sketch.functions import (
    approx_count_distinct,
    approx_quantile,
    approx_quantiles,
    approx_top_k,
    count_min,
    histogram,
    sample,
    theta,
)
from headrace.ops.sketch.set_functions import (
    theta_count,
    theta_difference,
    theta_intersect,
    theta_union,
)
from headrace.ops.topology.bolt import Bolt
from headrace.ops.topology.multilang import ShellBolt
from headrace.ops.watermarks import ingestion
from headrace.ops.window.aligned import delta, sliding, tumbling, until
from headrace.ops.window.assigners import WindowAssigner, cumulating, everything, session
from headrace.ops.window.calendar import calendar
from headrace.ops.window.evictors import keep, keep_last, keep_near
from headrace.ops.window.process import WindowProcess, window_value
from headrace.server.client import connect_server
from headrace.sinks import Output, collected, on_driver, read_output
from headrace.sources import Input, generate, rows
from headrace.sources.spark_frames import from_spark
from headrace.sources.spouts import Spout

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.driver.dead_replay import replay_dead
    from headrace.driver.forget import forget
    from headrace.driver.rewind import plan_rewind
    from headrace.driver.savepoints import create_savepoint, restore_savepoint, savepoints
    from headrace.engine.output_frames import to_spark
    from headrace.engine.run import Run
    from headrace.engine.start_run import run
    from headrace.inspect.output_epochs import outputs
    from headrace.inspect.step_state import StepState, peek
    from headrace.plan.part import Part

__version__ = "0.1.0"

__all__ = [
    "Aggregate",
    "Bolt",
    "Consumer",
    "Context",
    "EmbeddedLog",
    "Expr",
    "FencedError",
    "HeadraceError",
    "Input",
    "InputError",
    "Job",
    "JoinResult",
    "KeyedProcess",
    "KeyedStream",
    "LogError",
    "MatchResult",
    "Output",
    "OutputError",
    "Pattern",
    "PlanError",
    "ProcessResult",
    "Producer",
    "Run",
    "RunError",
    "ServerError",
    "ShellBolt",
    "ShellSpout",
    "Spout",
    "StateError",
    "StepError",
    "StepState",
    "Stream",
    "Table",
    "Topology",
    "WindowAssigner",
    "WindowProcess",
    "WindowResult",
    "__version__",
    "aggregating",
    "approx_count_distinct",
    "approx_quantile",
    "approx_quantiles",
    "approx_top_k",
    "avg",
    "calendar",
    "col",
    "collect",
    "collected",
    "connect",
    "connect_server",
    "count",
    "count_distinct",
    "count_min",
    "create_savepoint",
    "cumulating",
    "delta",
    "either",
    "everything",
    "first",
    "forget",
    "from_spark",
    "generate",
    "histogram",
    "ingestion",
    "join_all",
    "keep",
    "keep_last",
    "keep_near",
    "last",
    "last_of",
    "list_of",
    "lit",
    "map_of",
    "max",
    "max_by",
    "mean",
    "median",
    "min",
    "min_by",
    "operator_list",
    "operator_value",
    "outputs",
    "pattern",
    "peek",
    "percentile",
    "plan_rewind",
    "read_output",
    "reducing",
    "replay_dead",
    "resource",
    "restore_savepoint",
    "rows",
    "run",
    "sample",
    "savepoints",
    "session",
    "shared_map",
    "shedding",
    "sliding",
    "spark_table",
    "sql_table",
    "stddev",
    "sum",
    "table_file",
    "theta",
    "theta_count",
    "theta_difference",
    "theta_intersect",
    "theta_union",
    "to_spark",
    "triggers",
    "tumbling",
    "until",
    "value",
    "variance",
    "watermarks",
    "window_value",
]  # fmt: skip
__all__ += functions.__all__


def __getattr__(name: str) -> Any:
    if name in ("Run", "run"):
        from headrace.engine import start_run as engine

        return getattr(engine, name)
    if name == "to_spark":
        from headrace.engine import output_frames

        return output_frames.to_spark
    if name in ("StepState", "peek"):
        from headrace.inspect import step_state

        return getattr(step_state, name)
    if name in ("create_savepoint", "restore_savepoint", "savepoints"):
        from headrace.driver import savepoints

        return getattr(savepoints, name)
    if name == "plan_rewind":
        from headrace.driver.rewind import plan_rewind

        return plan_rewind
    if name == "replay_dead":
        from headrace.driver.dead_replay import replay_dead

        return replay_dead
    if name == "forget":
        from headrace.driver.forget import forget

        return forget
    if name == "outputs":
        from headrace.inspect.output_epochs import outputs

        return outputs
    raise hints.no_such_name("headrace", name, __all__)


def _look(part: Part, rows: int) -> tuple[pa.Table, str]:
    from headrace.look import look  # what runs a job is imported when one runs

    return look(part, rows)


def _session() -> Any:
    from headrace.engine.session import session
    from headrace.settings import Settings

    return session(Settings.load().master)


looking.connect(_look)
on_driver.connect(_session)
del looking, on_driver
