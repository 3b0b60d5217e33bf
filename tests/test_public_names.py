"""The public names: this list is the promise; adding or removing one changes it here."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types

import pytest

import headrace as hr

PROGRAM = [
    "Context", "Job", "KeyedProcess", "KeyedStream", "Stream", "WindowResult", "connect",
    "connect_server",
    "create_savepoint", "forget", "plan_rewind", "replay_dead", "restore_savepoint", "savepoints",
    "StepState", "generate", "ingestion", "resource", "peek", "rows", "run", "Run", "sliding",
    "tumbling", "value",
]  # fmt: skip
KEPT = ["ProcessResult", "aggregating", "last_of", "list_of", "map_of", "operator_list",
        "operator_value", "reducing", "shared_map"]  # fmt: skip
WINDOWS = [
    "WindowAssigner", "WindowProcess", "calendar", "cumulating", "delta", "everything", "keep",
    "keep_last", "keep_near", "session", "until", "window_value",
]  # fmt: skip
TOPOLOGIES = ["Bolt", "ShellBolt", "ShellSpout", "Spout", "Topology"]
JOINS = ["JoinResult", "Table", "join_all", "spark_table", "sql_table", "table_file"]
PATTERNS = ["MatchResult", "Pattern", "either", "pattern"]
AGGREGATES = [
    "Aggregate", "approx_count_distinct", "approx_quantile", "approx_quantiles", "approx_top_k",
    "avg", "collect", "count", "count_distinct", "count_min", "first", "histogram", "last", "max",
    "max_by", "mean", "median", "min", "min_by", "percentile", "sample", "stddev", "sum", "theta",
    "theta_count", "theta_difference", "theta_intersect", "theta_union", "variance",
]  # fmt: skip
MODULES = [
    "shedding",
    "triggers",
    "watermarks",
]  # of values whose names say something only beside the module's
EXPRESSIONS = ["Expr", "col", "lit"]
EDGES = [
    "Consumer", "EmbeddedLog", "Input", "Output", "Producer", "collected", "from_spark", "outputs",
    "read_output", "to_spark",
]  # fmt: skip
ERRORS = [
    "FencedError", "HeadraceError", "InputError", "LogError", "OutputError", "PlanError",
    "RunError", "ServerError", "StateError", "StepError",
]  # fmt: skip


FUNCTIONS = [
    "abs", "acos", "add_months", "aggregate", "array", "array_append", "array_concat",
    "array_contains", "array_distinct", "array_join", "array_max", "array_min",
    "array_position", "array_remove", "array_reverse", "array_sort", "array_union", "ascii",
    "asin", "atan", "atan2", "base64", "bin", "bit_count", "ceil", "coalesce", "concat",
    "concat_ws", "contains", "cos", "current_date", "date_add", "date_diff", "date_format",
    "date_from_unix_date", "date_part", "date_sub", "date_trunc", "dayofmonth", "dayofweek",
    "dayofyear", "degrees", "element_at", "ends_with", "exists", "exp", "filter", "floor",
    "floor_div", "floor_mod", "forall", "from_unixtime", "from_utc_timestamp", "get",
    "get_json_object", "greatest", "hex", "hour", "ilike", "initcap", "instr", "is_nan",
    "json_array_length", "json_bool", "json_double", "json_long", "json_object_keys",
    "json_text", "last_day",
    "least", "left", "length", "like", "ln", "locate", "log10", "log2", "lower", "lpad",
    "ltrim", "make_date", "make_timestamp", "map_keys", "map_size", "map_values", "md5",
    "minute", "mod", "month",
    "nanvl", "nullif", "nvl2", "octet_length", "pmod", "pow", "quarter", "radians",
    "regexp_count", "regexp_extract", "regexp_replace", "repeat", "replace", "reverse", "right",
    "rlike", "round", "rpad", "rtrim", "second", "sha1", "sha2", "sha256", "shiftleft",
    "shiftright", "shiftrightunsigned", "sign", "sin", "size", "slice", "split", "split_part",
    "sqrt", "starts_with", "struct", "substring", "tan", "timestamp_diff", "timestamp_micros",
    "timestamp_millis", "timestamp_seconds", "to_date", "to_timestamp", "to_utc_timestamp",
    "transform", "translate", "trim", "trunc", "unix_date", "unix_micros", "unix_millis",
    "unix_seconds", "unix_timestamp", "upper", "weekday", "weekofyear", "when", "year",
    "zip_with",
]  # fmt: skip


def test_the_public_names_are_these():
    expected = {
        *PROGRAM,
        *KEPT,
        *TOPOLOGIES,
        *WINDOWS,
        *JOINS,
        *PATTERNS,
        *MODULES,
        *AGGREGATES,
        *EXPRESSIONS,
        *EDGES,
        *ERRORS,
        *FUNCTIONS,
    }
    assert set(hr.__all__) - {"__version__"} == expected


def test_no_name_is_there_twice():
    assert len(hr.__all__) == len(set(hr.__all__))
    assert not set(FUNCTIONS) & {*PROGRAM, *MODULES, *AGGREGATES, *EXPRESSIONS, *EDGES, *ERRORS}


def test_every_public_name_is_there_and_only_these_are_modules():
    found = {n for n in hr.__all__ if isinstance(getattr(hr, n), types.ModuleType)}
    assert found == set(MODULES)


def test_every_public_thing_says_what_it_is():
    for name in hr.__all__:
        thing = getattr(hr, name)
        if callable(thing) and not (inspect.isclass(thing) and issubclass(thing, Exception)):
            assert inspect.getdoc(thing), name


def test_there_are_at_least_sixty_functions():
    assert len(FUNCTIONS) >= 60


def test_importing_headrace_does_not_import_spark():
    code = "import sys, headrace; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "first", ["import headrace", "import headrace.log.segment", "import headrace.functions"]
)
def test_the_package_of_the_log_is_not_hidden_by_the_logarithm(first):
    code = (
        f"{first}; import headrace as hr, headrace.log as log, headrace.log.segment as segment; "
        "import pytest, types; assert isinstance(log, types.ModuleType) and hr.log is log; "
        "assert log.segment is segment and hr.EmbeddedLog is log.EmbeddedLog; "
        "pytest.MonkeyPatch().setattr('headrace.log.segment.__doc__', ''); "
        "assert hr.functions.log('x').sql() == 'log(`x`)'"
    )
    made = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert made.returncode == 0, made.stderr.decode()


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(hr, "no_such_name")
