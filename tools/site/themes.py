"""What the API reference holds, by theme, and what of it is shown.

Methods are not listed: a public class shows those that it has. What users only get (a
`WindowedStream`, a `Progress`) is looked for by the name of its class, wherever it is defined.
`tests/test_site.py` compares the themes with the public names.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace import functions, testing, triggers
from headrace.testing import strategies


@dataclass(frozen=True)
class Theme:
    """A page: `names` can be imported, as they are written here; `got` are classes of objects
    that users get from Headrace, or that it passes to their functions."""

    page: str
    title: str
    text: str
    names: tuple[str, ...]
    got: tuple[str, ...] = ()
    more: str = ""


def public(names: str, module: str = "headrace") -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names.split())


FAMILIES = {  # the modules in which SQL functions are declared, and what is written above them
    "text_functions": "Text",
    "pattern_functions": "Patterns in text",
    "number_functions": "Numbers, nulls and conditions",
    "rounding_functions": "Rounding",
    "time_functions": "Dates and times",
    "time_text_functions": "Times as text",
    "array_functions": "Arrays, maps and structs",
    "lambda_functions": "Arrays and lambdas",
}

MODULES = {  # that users import names from, as they write them
    "headrace": "hr",
    "headrace.watermarks": "hr.watermarks",
    "headrace.shedding": "hr.shedding",
    "headrace.triggers": "hr.triggers",
    "headrace.functions": "headrace.functions",
    "headrace.testing": "headrace.testing",
    "headrace.testing.strategies": "headrace.testing.strategies",
}

# The aliases of types that signatures use; they are written here because aliases have no docstring.
TYPES = {
    "Duration": 'A length of time: `"5s"`, `"1h 30m"`, a `timedelta`, or a number of seconds.',
    "Time": 'A time in a test: a `datetime`, milliseconds since 1970, or text as in `"12s"`, so '
    "long after 1970 began.",
    "Log": "A log: an `EmbeddedLog`, or another that has its methods.",
    "Headers": 'Headers of a record: names and bytes, `[("trace", b"17")]`.',
    "Moment": 'A time: a `datetime`, milliseconds since 1970, or text as in `"21:05"`, today in '
    "UTC.",
    "SchemaLike": "Names and types of columns: a dataclass, DDL as in "
    '`"area string, celsius double"`, a mapping from name to type, or a `pyarrow.Schema`.',
    "TypeLike": 'A type: DDL as in `"array<double>"`, a Python type, a dataclass, or a type of '
    "Arrow's.",
    "Condition": 'What is true or false of a row: an expression, SQL text as in `"celsius > 40"`, '
    "or a lambda over the row.",
    "ColumnLike": "What a column is computed by: an expression, SQL text, a lambda over the row, "
    "or a constant.",
    "Column": "The argument of a function: an expression, the name of a column, or a constant that "
    "is not text.",
    "Names": "The name of a column, or several.",
    "On": "The columns that must be equal in a join: the name of one or several that both sides "
    "have, or a mapping from columns of the left side to those of the right.",
    "Evictor": "Which rows of a window are seen: `hr.keep_last`, `hr.keep_near` or `hr.keep`.",
    "Shedding": "Which records may be dropped when too many wait: one of `hr.shedding`.",
    "Strategy": "How the watermark follows from the rows: one of `hr.watermarks`.",
    "Ingestion": "What `hr.ingestion` returns.",
    "Body": "A function of the rows, an Arrow table, and a `Loop`, which returns the rows that go "
    "round again.",
    "By": "The key of connected streams: a column or several that all of them have, or a mapping "
    "from the name of each input to its columns.",
    "Input": "A `Stream`, a `KeyedStream`, or a control stream.",
    "AnyStream": "A `Stream` or a `KeyedStream`.",
    "Records": "Records for a topic: Arrow tables or batches, or rows (bytes, text, dicts, "
    "dataclasses).",
    "Partitioner": "A function of records, an Arrow table, and the number of partitions, which "
    "returns a partition for each record.",
    "Clock": "Something that tells the time, for tests.",
    "Row": "A row as a dict: values by column.",
    "Rows": "Hypothesis's strategy for lists of rows.",
}

DATA = {"__version__": "The version of Headrace."}

THEMES = (
    Theme(
        "program",
        "Programs and streams",
        "A job reads inputs; every method of a stream adds a step and returns the stream after it. "
        "See :doc:`/docs/guide/programs`, :doc:`/docs/guide/operators`, :doc:`/docs/guide/async`, "
        ":doc:`/docs/guide/iterate` and :doc:`/docs/guide/graphs`.",
        public("Job Stream KeyedStream resource"),
        ("Branches", "EdgeStream", "TimedResult", "BroadcastStream", "Loop", "Explanation"),
    ),
    Theme(
        "inputs-and-outputs",
        "Inputs and outputs",
        'Inputs and outputs are named by text, as in ``job.read("log:readings")``; what is made '
        "in Python, and what reads results, is here. See :doc:`/docs/guide/inputs-and-outputs`, "
        ":doc:`/docs/guide/log` and, for event time and watermarks, :doc:`/docs/guide/time`.",
        (
            *public(
                "rows generate from_spark to_spark ingestion read_output collected EmbeddedLog"
            ),
            *public("Producer Consumer Input Output watermarks shedding"),
            *public("bounded monotonous punctuated custom", "headrace.watermarks"),
            *public("random oldest lowest", "headrace.shedding"),
        ),
        (
            "TopicInfo",
            "Ack",
            "PolledBatch",
            "ConsumerRecord",
            "TopicPartition",
            "GroupInfo",
            "MemberInfo",
        ),
    ),
    Theme(
        "expressions",
        "Expressions",
        "Computations on the columns of a row; operators mean what they mean in Python. "
        "See :doc:`/docs/guide/expressions`.",
        public("col lit Expr"),
        ("When",),
    ),
    Theme(
        "functions",
        "Functions",
        "Scalar functions, also in ``headrace.functions`` and by the same names in SQL text. A "
        "text where a column is expected is the name of the column. See "
        ":doc:`/docs/guide/expressions`.",
        (*public(" ".join(functions.__all__)), "headrace.functions.log"),
    ),
    Theme(
        "aggregates",
        "Aggregates",
        "For ``agg``, over a window or over all rows of a key so far. See "
        ":doc:`/docs/guide/windows` and :doc:`/docs/guide/state-and-process`.",
        public(
            "count sum mean avg min max first last min_by max_by count_distinct collect median "
            "percentile stddev variance approx_count_distinct "
            "approx_quantile approx_quantiles approx_top_k count_min histogram "
            "sample theta theta_count theta_union theta_intersect theta_difference Aggregate"
        ),
    ),
    Theme(
        "windows",
        "Windows",
        "What ``window`` takes, and what it returns. See :doc:`/docs/guide/windows`.",
        public(
            "tumbling sliding session calendar cumulating until delta everything WindowAssigner "
            "keep_last keep_near keep WindowProcess window_value WindowResult"
        ),
        ("WindowedStream", "FiredWindow", "WindowCall"),
    ),
    Theme(
        "triggers",
        "Triggers",
        "When a window emits its result: the argument ``trigger`` of ``window``. See "
        ":doc:`/docs/guide/triggers`.",
        (*public("triggers"), *public(" ".join(triggers.__all__), "headrace.triggers")),
    ),
    Theme(
        "joins",
        "Joins",
        "``join``, ``cogroup``, ``table`` and ``lookup`` are methods of streams; what they take "
        "and return is here. See :doc:`/docs/guide/joins`.",
        public("join_all JoinResult Table table_file sql_table spark_table"),
    ),
    Theme(
        "state-and-process",
        "State and process functions",
        "A class per process function, with its state declared in the class. See "
        ":doc:`/docs/guide/state-and-process`.",
        public(
            "KeyedProcess Context value list_of map_of last_of reducing aggregating shared_map "
            "operator_value operator_list connect ProcessResult"
        ),
        ("ConnectedStreams",),
    ),
    Theme(
        "topologies",
        "Topologies",
        "A job written as spouts and bolts. See :doc:`/docs/guide/topologies`.",
        public("Topology Spout Bolt ShellBolt ShellSpout"),
        ("BoltInputs", "Collector", "TaskContext", "SpoutCollector", "SpoutContext"),
    ),
    Theme(
        "patterns",
        "Patterns",
        "Sequences of rows, for ``match``. See :doc:`/docs/guide/patterns`.",
        public("pattern either Pattern MatchResult"),
        ("Match",),
    ),
    Theme(
        "running",
        "Running and watching",
        "A job on Spark, its figures and its state. See :doc:`/docs/guide/running`, "
        ":doc:`/docs/guide/why` and :doc:`/docs/guide/live-state`.",
        public(
            "run Run peek StepState outputs create_savepoint savepoints restore_savepoint "
            "plan_rewind replay_dead forget __version__"
        ),
        (
            "Status",
            "Progress",
            "JobGuarantee",
            "Offer",
            "JobOutputs",
            "OutputEpochs",
            "SavepointFacts",
            "RewindPlan",
            "InputRewind",
            "OutputRewind",
            "DeadReplay",
            "CannotReplay",
            "Why",
            "Reason",
            "Comparison",
        ),
    ),
    Theme(
        "server",
        "Jobs as a service",
        "The jobs of a server, ``headrace server``, from Python. See :doc:`/docs/guide/server` and "
        ":doc:`/docs/guide/rest`.",
        public("connect_server"),
        (
            "ServerConnection",
            "ServedJob",
            "ServerInfo",
            "JobView",
            "JobDetails",
            "Version",
            "UpgradePlan",
            "Figures",
            "InputFigures",
            "StepFigures",
            "OutputFigures",
            "WindowFigures",
            "Backpressure",
            "Bottleneck",
            "Event",
            "Series",
            "LogPart",
            "State",
            "Verb",
        ),
    ),
    Theme(
        "testing",
        "Testing",
        "``headrace.testing``: a job under test, in this process or on Spark. See "
        ":doc:`/docs/guide/testing`.",
        (
            *public(
                "Harness play Step Send Watermark Advance Idle Crash Restart End read_cases "
                "run_case Case Mismatch drive Driver InputSuite InputCase OutputSuite OutputCase",
                "headrace.testing",
            ),
            *public(
                " ".join(n for n in strategies.__all__ if n not in testing.__all__),
                "headrace.testing.strategies",
            ),
        ),
        more="""\
Fixtures
--------

pytest finds them by itself where Headrace is installed.

.. py:function:: harness(job, **options)

   A fixture, called with a job: the :py:class:`~headrace.testing.Harness` that runs it in this
   process, closed when the test is over.

.. py:function:: spark_harness(job, **options)

   The same on Spark.
""",
    ),
    Theme(
        "errors",
        "Errors",
        "Every error has a stable ``code``, a ``message`` and a ``hint``: see :doc:`/docs/codes`, "
        "and :doc:`/docs/guide/errors` for rows that cannot be processed.",
        public(
            "HeadraceError PlanError InputError OutputError LogError StateError StepError "
            "RunError FencedError ServerError"
        ),
    ),
)

# Members that are called by Headrace itself, not by users.
INTERNAL = {
    "Comparison": "check moves of",
    "Input": "check clamp close cut decode discover encoding ended has_more identity idle in_words "
    "loses lost read read_dated rows to_the_end unsettled watermark where",
    "Job": "program",
    "OutputSuite": "left_over two_drivers",
    "Pattern": "at_rest check endless resolved timed",
    "PlanError": "of",
    "Step": "do",
    "Trigger": "counts due mark paced ready watches",
    "WindowProcess": "kept",
}

# Classes whose constructor users call; those of the others are not shown.
CONSTRUCTED = {
    *("Job", "EmbeddedLog", "Producer", "Consumer", "Aggregate", "Harness"),
    *("Advance", "Crash", "End", "Idle", "Restart", "Send", "Watermark"),
}

# Classes whose fields users read; they are shown with the comments that they have in the source.
READ = {
    "Ack",
    "PolledBatch",
    "ConsumerRecord",
    "TopicPartition",
    "GroupInfo",
    "MemberInfo",
    "Offer",
    "OutputEpochs",
    "Case",
    "FiredWindow",
    "Progress",
    "Reason",
    "Status",
    "TopicInfo",
    "WindowNow",
}
