"""Names that users of other systems reach for, and the nearest of ours.

Invariant: what is raised for an attribute that does not exist is an AttributeError too, so
`hasattr`, `copy` and `pickle` work as always.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from headrace.errors import PlanError, call_site

T = TypeVar("T")

_ELSEWHERE = {
    "avg": "mean", "average": "mean", "std": "stddev", "stdev": "stddev", "var": "variance",
    "group_by": "key_by", "groupby": "key_by", "groupBy": "key_by", "keyBy": "key_by",
    "partition_by": "key_by", "partitionBy": "key_by", "flatMap": "flat_map", "where": "filter",
    "with_column": "with_columns", "withColumn": "with_columns", "assign": "with_columns",
    "mutate": "with_columns", "withColumnRenamed": "rename", "rename_columns": "rename",
    "sink": "write", "to": "write", "sink_to": "write", "add_sink": "write", "writeStream": "write",
    "print": "write", "foreach": "tap", "peek": "tap", "inspect": "tap", "aggregate": "agg",
    "unionAll": "union", "union_all": "union", "merge": "union", "concat": "union",
    "concatenate": "union", "windowed": "window", "window_by": "window", "windowBy": "window",
    "time_window": "window", "timeWindow": "window", "count_window": "window", "hop": "sliding",
    "hopping": "sliding", "tumble": "tumbling", "sessions": "session", "cumulate": "cumulating",
    "dropDuplicates": "deduplicate", "drop_duplicates": "deduplicate", "distinct": "deduplicate",
    "unique": "deduplicate", "approx_distinct": "approx_count_distinct",
    "nunique": "count_distinct", "isnull": "is_null",
    "isNull": "is_null", "isna": "is_null", "isNotNull": "is_not_null", "notnull": "is_not_null",
    "fillna": "fill_null", "astype": "cast", "is_in": "isin", "to_lower": "lower",
    "to_upper": "upper", "strip": "trim", "lstrip": "ltrim", "rstrip": "rtrim", "len": "length",
    "str_replace": "replace", "strpos": "instr", "index_of": "instr",
    "ifnull": "coalesce", "nvl": "coalesce", "power": "pow", "ceiling": "ceil",
    "collect_list": "collect", "array_agg": "collect", "first_value": "first",
    "last_value": "last", "udf": "map", "apply": "map", "take": "head",
    "display": "show", "preview": "show",
    "set_bolt": "bolt", "setBolt": "bolt", "add_bolt": "bolt", "set_spout": "spout",
    "setSpout": "spout", "add_spout": "spout", "shuffleGrouping": "shuffle",
    "shuffle_grouping": "shuffle", "fieldsGrouping": "fields", "fields_grouping": "fields",
    "globalGrouping": "global_", "global_grouping": "global_", "allGrouping": "all",
    "all_grouping": "all", "directGrouping": "direct", "direct_grouping": "direct",
    "customGrouping": "custom", "custom_grouping": "custom", "partialKeyGrouping": "partial_key",
    "partial_key_grouping": "partial_key", "localOrShuffleGrouping": "local",
    "local_or_shuffle_grouping": "local",
}  # fmt: skip


_SORTED = (
    "A stream has no end, so it is not sorted: top(n, by=...) holds the best rows, and "
    "window(...).process(fn) gets the rows of a window in order."
)
_SHOWN = "Use head(n), which returns an Arrow table: stream.head(20).to_pandas()."
_KAFKA = 'An input is job.read("log:topic"), "files:path", "socket:host:port", or hr.rows([...]).'
_METHODS = (
    "explode", "window", "key_by", "where", "filter", "select", "map", "flat_map", "union", "join",
)  # fmt: skip
_SAYINGS = {  # what has no counterpart of one name, or is done otherwise
    "sort sort_by sort_values orderBy order_by desc asc": _SORTED,
    "toPandas to_pandas to_dict toDF collect_rows": _SHOWN,
    "readStream read_stream source from_kafka read_csv read_json read_parquet addSource add_source "
    "from_collection readText": _KAFKA,
    "merge join_asof merge_asof": (
        'Use join(other, on="id", within="5m"), join(other.table("id"), on="id") for its latest '
        'row by then, or lookup(table, on="id") for a table that is not a stream.'
    ),
    "shift diff cumsum": 'Use key_by("k").map_with_state(...), or agg for running values.',
    "pivot melt": 'Use agg with conditions: agg("sum(v) filter (where k = 1) as one").',
    "to_csv to_parquet to_json saveAsTable": 'Use write("files:folder", format="parquet").',
    "dropna drop_nulls": 'Use where("x is not null") for each column that must be there.',
    "fillna fill_null": 'Use with_columns(x=hr.coalesce("x", 0)).',
    "take": "Use head(n) to look at rows, limit(n) for a stream of the first rows.",
    "columns dtypes printSchema describe": "Use .schema, or print the stream.",
    "selectExpr select_expr": 'Use select("a", "b + 1 as c").',
    "withColumn with_column assign mutate": 'Use with_columns(x="v + 1"), or several at once.',
    "withColumnRenamed rename_columns": 'Use rename(new="old"): the new name, then the old one.',
    "query having": 'Use where("x > 1"); after agg it sees the results.',
    "withWatermark assign_timestamps assignTimestampsAndWatermarks": (
        'Say it where the input is read: job.read(..., time="at", delay="2s").'
    ),
    "foreachBatch foreach_batch map_partitions mapPartitions": (
        "Use map_batches(fn), or transform(fn) for the whole batch."
    ),
    "reduceByKey reduce_by_key": 'Use key_by("k").reduce(fn).',
    "aggregateByKey foldByKey": 'Use key_by("k").fold(zero, fn).',
    "value_counts countByValue": 'Use key_by("k").agg(n=hr.count()).',
    "rolling resample tumbling_window sliding_window": (
        'Use window(hr.tumbling("1m")), hr.sliding(rows=3, every_rows=1) ..., and agg.'
    ),
    "over row_number rank lag lead": (
        'Running values of a key are key_by("k").agg(...), of windows window(...).agg(...).'
    ),
    "cache persist checkpoint": (
        "Leave it out: a job stores its state, and divides its rows, by itself."
    ),
    "flatten explode_outer posexplode": (
        'Use explode("xs"), a step: a row for each element; outer=True keeps rows without any.'
    ),
    "leftOuterJoin left_join outerJoin": 'Use join(other, on="id", within="5m", how="left").',
    "crossJoin cross_join": "Rows meet by a key: add a constant one, and join on it.",
    "quantile approx_percentile percentile_approx quantile_cont": (
        'Use hr.percentile("v", 0.95), which is exact, or hr.approx_quantile("v", 0.95), in agg.'
    ),
    "start execute awaitTermination run_job": "Use hr.run(job).",
    "TopologyBuilder": 'Begin with topology = hr.Topology("name"), then topology.spout(...).',
    "sql": 'SQL text is for expressions: where("x > 1"), select(...), agg("sum(v) as s").',
    "F": 'All functions are names of headrace itself: hr.upper("x").',
    "DataFrame SparkSession StreamExecutionEnvironment Dataflow Application": (
        'Begin with job = hr.Job("name"), then job.read(...).'
    ),
}
_INSTEAD = {name: hint for names, hint in _SAYINGS.items() for name in names.split()}


AGGREGATES: set[str] = set()  # the names of the aggregates, which `ops/agg/kinds.py` adds


class UnknownNameError(PlanError, AttributeError):
    """A name that Headrace does not have, with the nearest that it has."""


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The names of `known` that may be meant: what others call it, then what is spelt alike."""
    names = [n for n in known if not n.startswith("_")]
    same = _ELSEWHERE.get(name) or _ELSEWHERE.get(name.lower())
    if same in names:
        return [same]
    return difflib.get_close_matches(name.lower(), names, n=count, cutoff=0.6)


def aggregate(name: str) -> str | None:
    """The aggregate that is meant by the name of a function, if one is."""
    ours = _ELSEWHERE.get(name, name)
    return ours if ours in AGGREGATES else None


def no_such_name(
    what: str, name: str, known: Iterable[str], columns: Iterable[str] = ()
) -> AttributeError:
    """The error for `what` (a stream, a keyed stream, headrace) not having `name`."""
    if name.startswith("_"):
        return AttributeError(f"{what} has no {name!r}")
    near, method = nearest(name, known), _ELSEWHERE.get(name)
    if name in columns:
        hint = _column_hint(name)
    elif name in _INSTEAD:
        hint = _INSTEAD[name]
    elif (ours := aggregate(name)) and ours not in near:
        counts = "" if ours == "count" else '"x"'
        hint = f"Use agg(x=hr.{ours}({counts})) on a key or a window."
    elif method in ("bolt", "spout") and method not in near:
        hint = f'It is a method of topologies: hr.Topology("name").{method}(...).'
    elif what == "headrace" and (method or name in _METHODS) and method not in near:
        hint = f"It is a method of streams: stream.{method or name}(...)."
    else:
        hint = f"Did you mean {' or '.join(near)}?" if near else "The guide lists all names."
    return UnknownNameError("HR-PLAN-060", f"{what} has no {name!r}", hint, site=call_site())


def no_item(what: str, item: object, columns: Sequence[str]) -> PlanError:
    """The error for an item of a stream: a column by its name, or a row by its number."""
    rows = "Its rows are not in this process: show() prints the first ones, head(n) returns them."
    hint = _column_hint(str(item)) if item in columns else rows
    return PlanError("HR-PLAN-060", f"{what} has no [{item!r}]", hint, site=call_site())


def _column_hint(name: str) -> str:
    return (
        f'A column is written as text, hr.col("{name}"), or of the row: select("{name}"), '
        f'where("{name} is not null"), where(lambda r: r.{name} > 1).'
    )


class UnknownArgumentError(PlanError, TypeError):
    """A word that a method does not take, with the one that it does."""


def named_arguments(cls: type[T]) -> type[T]:
    """Refuse arguments that a method of the class, or of its parts, does not have, with a hint."""
    for part in cls.__mro__:
        if part.__module__.startswith("headrace."):
            for name, method in list(vars(part).items()):
                if inspect.isfunction(method) and not name.startswith("_"):
                    setattr(part, name, _checked(method))
    return cls


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    arguments = inspect.signature(method).parameters
    named = {name for name, a in arguments.items() if a.kind is not a.POSITIONAL_ONLY}
    anything = any(a.kind is a.VAR_KEYWORD for a in arguments.values())
    if anything or hasattr(method, "__wrapped__"):
        return method

    @functools.wraps(method)
    def call(*args: Any, **keywords: Any) -> Any:
        if not keywords.keys() <= named:
            raise _no_such_argument(method.__name__, keywords, named - {"self"})
        return method(*args, **keywords)

    return call


_OTHER_WORD = {"schema": "output", "output": "schema", "each": "per", "per": "each"}


def _no_such_argument(method: str, keywords: Iterable[str], named: set[str]) -> PlanError:
    wrong = next(name for name in keywords if name not in named)
    other = _OTHER_WORD.get(wrong)
    near = [other] if other in named else difflib.get_close_matches(wrong, sorted(named), n=3)
    hint = (
        f"Pass {' or '.join(f'{name}=' for name in near)}."
        if near
        else (
            f"It takes {', '.join(f'{name}=' for name in sorted(named))}."
            if named
            else "It takes no arguments by name."
        )
    )
    return UnknownArgumentError(
        "HR-PLAN-061", f"{method} has no argument {wrong!r}", hint, site=call_site()
    )
