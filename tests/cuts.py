"""Every constant at which work is cut, and how to make them all tiny.

A cut is a number beyond which rows, bytes or files are dealt with in several pieces, or in
another way. No result may depend on one, so the model suites run with all of them as small as
they go as well: a block of one row, a merge after two files, a text numbered from the first.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"

# module (without "headrace."): {name: the least that it may be}
CUTS: dict[str, dict[str, int]] = {
    "cli.topic_lines": {"_READ": 1},
    "connect.delta": {"_SYNCS": 1},
    "connect.sql_duckdb": {"_BATCH": 1, "_ROW_GROUPS": 1},
    "connect.sql_sqlite": {"_BATCH": 1},
    "driver.commit": {"_TIDY_EVERY": 1},
    "driver.planner": {"_ROWS_PER_TASK": 1},
    "driver.unread_records": {"_MANY": 1},
    "driver.recompute": {"_ROWS": 1},
    "driver.recomputed_tables": {"_AT_ONCE": 1},
    "engine.binding": {"_BATCH_BYTES": 1},
    "epoch.compact_columns": {"_FEW": 1, "_LONG": 1, "_REPEATS": 1, "_SHORT": 1},
    "epoch.envelope": {"_PIECE": 1},
    "files": {"_WRITE": 1},
    "hashing": {"_BLOCK": 1, "_WORDS_BY_COLUMN": 1},
    "kernel.arrow": {"_MOST": 1},
    "kernel.compiled": {"_EXPLAINED": 1},
    "kernel.duckdb": {"_PLANS": 1, "_ROWS": 1},
    "log.block": {"BLOCK_BYTES": 1, "BLOCK_ROWS": 1},
    "log.consumer": {"_MOST": 1},
    "log.disk": {"_BUFFERS": 1},
    "log.embedded_producer": {"_ROWS": 1},
    "log.kafka_consumer": {"_MOST": 1},
    "log.kafka_native": {"_GAP": 1, "_RUNS": 1},
    "log.kafka_produce": {"_BATCH": 1, "_QUEUED": 1},
    "log.kafka_reader": {"BATCH": 1, "CHUNK": 1, "CHUNK_BYTES": 1, "CONSUMERS": 1},
    "log.kafka_topics": {"_READ": 1},
    "log.reader": {"_SMALL": 1},
    "log.records": {"_FEW": 1},
    "log.recovery": {"_CHUNK": 64},
    "log.segment": {"SPACING": 1},
    "log.topic": {"SEGMENT_BYTES": 4096, "_LEAST_SEGMENT": 4096},
    "ops.agg.exact": {"_BLOCK": 1, "_ROOM": 4},
    "ops.agg.groups": {"_BLANK": 1, "_FEW": 1},
    "ops.agg.order": {"_LIMIT": 1, "_SHORT": 1},
    "ops.agg.span": {"_BAND": 1},
    "ops.agg.sums": {"_LIMIT": 1},
    "ops.graph.search": {"_FIRST": 1, "_LARGEST": 1, "_REACHED": 1},
    "ops.graph.triangles": {"_PAIRS": 1},
    "ops.join.interval": {"LEAST": 1},
    "ops.join.pairs": {"_ROOM": 1},
    "ops.panes.firing": {"_BAND": 1, "_FEW_KEYS": 1, "_SHORT": 1, "_SPARSE": 1},
    "ops.panes.operator": {"_ENOUGH": 2},
    "ops.pattern.rules": {"WORD": 1},
    "ops.process.calls_by_key": {"PIECE": 1},
    "ops.process.operator": {"BLOCK": 1},
    "ops.row_windows.store": {"FEW": 1},
    "ops.row_windows.work": {"_BAND": 1},
    "ops.stream.candidate_levels": {"_FIRST": 1, "_GROWTH": 1},
    "ops.sketch.base": {"_ELEMENTS": 1},
    "ops.sketch.coupons": {"_BLOCK": 1},
    "ops.sketch.histogram": {"_EXACT": 1},
    "ops.sketch.levels": {"_SHORT": 1},
    "ops.topology.multilang_process": {"_PIECE": 1},
    "ops.window.assigners": {"_LIMIT": 1},
    "ops.window.function": {"_AT_ONCE": 1},
    "connect.avro_files": {"GROUP": 1},
    "sinks.file_formats": {"LEAST_STEP": 1, "STEP_ROWS": 1, "STEPS": 1},
    "sinks.durable": {"_LARGE": 1, "_READERS": 1},
    "sinks.partitions": {"_SHORT": 1},
    "sinks.merging": {"EVERY": 1, "FEW": 2, "MANY": 2},
    "sources.files": {"LEAST_LINES": 1, "GATHER_ROWS": 1},
    "sources.generate": {"CHUNK_ROWS": 1},
    "sources.spouts": {"MOST_AT_ONCE": 500},  # each is an append to the log
    "connect.iceberg": {"_KEYS": 1},
    "sources.lakes": {"CHUNK_ROWS": 1, "LEAST": 1},
    "sources.lines": {"BLOCK": 16, "LEAST": 1, "PROBE": 16},
    "sources.listing": {"MANY_LINES": 1},
    "sources.listening": {"PIECE": 1},
    "sources.memory": {"CHUNK_ROWS": 1, "INLINE_BYTES": 1},
    "sources.avro": {"LEAST": 1},
    "sources.packed": {"BLOCK": 16},
    "sources.layout": {"LOOK": 1},
    "sources.parquet": {"CHUNK_ROWS": 1, "LEAST": 1},
    "sources.received": {"SEGMENT": 256},
    "sources.http_keys": {"_FORGET_EVERY": 1},
    "sources.partitions": {"LEAST": 1},
    "sources.receiving": {"LEAST": 1},
    "sources.sockets": {"PIECE": 1},
    "sources.sql_growing": {"LOOKED_BACK": 2, "MOST_AT_ONCE": 500},  # each is a query
    "sources.sql_changes": {"MOST_CHANGES": 1},
    "sources.spark_frames": {"LEAST": 1},
    "sources.spark_rows": {"FILE_ROWS": 700, "GROUP_ROWS": 100},  # each is a file
    "sources.stored_rows": {"SEGMENT": 4096},
    "sources.stored_source": {"LEAST": 1},
    "sources.sse": {"PIECE": 1},
    "state.identity": {"_FEW_TIMES": 1, "_LARGE": 1, "_WINDOW": 2},
    "state.runs": {"_CACHE_BYTES": 1, "_LOOK": 1},
    "state.store": {"AT_ONCE": 1, "FEW": 2, "RATIO": 1, "SMALL": 1, "TOO_MANY": 2},
    "state.table": {"_PENDING": 1},
    "task.flow": {"_FLUSH_ROWS": 1, "_STAGE_BYTES": 1},
    "task.python_steps": {"_AT_ONCE": 1},
}

# Numbers that cut nothing: what they are instead.
OTHERS: dict[str, dict[str, str]] = {
    "buckets": {"_BIAS": "the format of a float", "_SHIFT": "the width of a bucket"},
    "engine.live_notes": {"_SELDOM": "how often memory is looked at"},
    "inspect.figures": {"_EPOCH": "ms", "_LONGEST": "ms", "_RATE": "ms"},
    "inspect.figures_text": {"_TOP": "steps that are named"},
    "inspect.live": {"_OLD": "ms"},
    "connect.avro_codecs": {
        "_CHECKSUM": "the format of a block of snappy",
        "_MOST": "what a byte of snappy stands for at most: more is damage",
    },
    "connect.avro_columns": {"_DIGITS": "of a decimal: more cannot be held"},
    "connect.avro_files": {
        "SYNC": "the length of a marker of Avro",
        "FILES": "of a cache: what is not in it is read again",
    },
    "sources.packed": {
        "FILES": "of a cache: what is not in it is read again",
    },
    "connect.pgoutput": {"_EPOCH": "where the time of PostgreSQL begins"},
    "api.async_calls": {
        "AsyncMapping.map_async(concurrency)": "the user's; drawn in its tests",
    },
    "api.graph": {
        "_SMALLEST": "a limit that is refused",
    },
    "api.bolt_options": {
        "_MOST_REPLAYS": "a limit that is refused",
    },
    "sources.lakes": {
        "_BITS": "of an offset at rest",
    },
    "sinks.delta_files": {
        "_LONGEST": "of a text in the statistics of a file",
    },
    "sinks.lakes": {
        "_LONGEST_NAME": "a limit of file systems",
        "RETRIES": "how often a commit that met another is tried, as the guide says",
    },
    "api.topology": {
        "Topology.__init__(max_replays)": "how often a tuple is processed again, as the guide says",
    },
    "api.job": {
        "MOST_SLOTS": "a limit that is refused",
    },
    "api.looking": {
        "Looking.head(n)": "rows shown",
        "Looking.show(n)": "rows shown",
    },
    "api.loops": {
        "Loops.iterate(most)": "a limit that is refused",
        "_MOST_LEVELS": "a limit that is refused",
    },
    "arrays": {
        "_MOST": "what 64 bits hold",
    },
    "callables": {
        "_LONG": "what a digest covers",
    },
    "sources.sql": {
        "MOST_AHEAD": "how far it may be ahead",
        "POLL": "ms",
    },
    "sources.spouts": {
        "MOST_AHEAD": "how far a spout may be ahead; tests/topology/test_spouts.py",
        "MOST_TASKS": "a limit that is refused",
        "SEGMENT": "bytes of a file of the log, which has cuts of its own",
    },
    "ops.topology.attributes": {
        "_LARGE": "elements of an attribute that are watched at every depth",
    },
    "api.shell_spouts": {
        "ShellSpout.__init__(max_restarts)": "the user's",
    },
    "ops.topology.multilang": {
        "ShellBolt.__init__(max_restarts)": "the user's",
    },
    "ops.topology.multilang_json": {
        "_SHOWN": "characters printed",
    },
    "ops.topology.multilang_process": {
        "_LAST_LINES": "lines printed",
        "_LONGEST": "a limit that is refused",
        "_SHOWN": "characters printed",
    },
    "ops.topology.multilang_task": {
        "_MOST_FATAL": "tuples after which a program is broken; test_multilang_fatal.py",
    },
    "ops.topology.waiting": {
        "_MOST_DOUBLINGS": "how long the longest pause is",
    },
    "ops.topology.groupings": {
        "MOST_TASKS": "a limit that is refused",
        "_SECOND": "mixed into a hash",
        "_EVEN": "which keys tasks have, at rest",
    },
    "printed": {
        "WIDEST": "characters printed",
    },
    "cli.dead": {
        "_SHORT": "characters printed",
        "list_letters(limit)": "rows printed",
    },
    "cli.folders": {
        "history(last)": "rows printed",
    },
    "cli.state": {
        "get(limit)": "rows printed",
        "sql(limit)": "rows printed",
    },
    "clock": {
        "FURTHEST": "the bounds of time",
        "LAST_TIME": "the bounds of time",
        "LONGEST": "the bounds of time",
        "MAX_TIME": "the bounds of time",
    },
    "driver.commit": {
        "Committer.__init__(keep)": "epochs to go back to",
    },
    "driver.admission": {
        "_FIRST": "rows of a batch, which tests draw",
        "_LEAST": "rows of a batch, which tests draw",
    },
    "driver.dead_replay": {
        "AT_ONCE": "drawn in its tests",
        "_AS_LONG_AS": "patience",
    },
    "driver.planner": {
        "Pace.target_ms": "the user's",
        "_LEAP": "ms",
    },
    "ops.shedding": {"WHOLE": "a probability of one"},
    "task.shed_rows": {"_SAMPLE": "priorities looked at: what is shed, not which of these"},
    "driver.shedding": {
        "MOST": "records read for one that is used",
        "_BATCHES": "whose speed is remembered",
        "_FORGOTTEN": "records after which earlier priorities count for half",
        "_POINTS": "priorities that stand for all: what is shed, not which of these",
    },
    "driver.split_state": {
        "IDLE_AFTER": "ms",
    },
    "driver.start": {
        "LOOKS": "patience",
    },
    "engine.archive": {
        "_ABANDONED": "ms",
        "_PATIENCE": "seconds",
    },
    "engine.card": {
        "_LINES": "lines shown",
    },
    "engine.java": {
        "OLDEST": "a version",
    },
    "engine.jvm": {
        "_BUFFERED": "what is shown of Java's text",
    },
    "engine.session": {
        "_PATIENCE": "seconds",
    },
    "engine.stall_watch": {
        "_FRESH": "ms",
    },
    "engine.zygote": {
        "_MESSAGE": "the most that a message may have",
    },
    "expr.dialect": {
        "_SHIFTS": "a level of the grammar",
    },
    "expr.parse": {
        "_DEEPEST": "a limit that is refused",
    },
    "expr.text_functions": {
        "_LONGEST": "a limit that is refused",
    },
    "expr.time_text_functions": {
        "_LAST": "the bounds of time",
    },
    "hints": {
        "nearest(count)": "names that are shown",
    },
    "inspect.progress": {
        "FLOOR": "when to warn",
        "OFTEN": "when to warn",
        "_FAR": "ms",
        "_SOON": "when to warn",
        "_WINDOW": "ms",
    },
    "inspect.step_state": {
        "_PATIENCE": "patience",
    },
    "kernel.compiled": {
        "_EXACT": "what a double holds exactly",
    },
    "kernel.json_documents": {
        "_LONGEST": "a limit that is refused",
        "_LONGEST_NAME": "a limit that is refused",
        "_LONGEST_NUMBER": "a limit that is refused",
        "_Style.FLAT": "a name",
        "_Style.QUOTED": "a name",
        "DEEPEST": "a limit that is refused",
    },
    "kernel.text_cast": {
        "_LONGEST": "what an integer column holds",
        "_DIGITS": "what a decimal holds",
    },
    "log.arguments": {
        "_LONGEST_NAME": "a limit that is refused",
        "_MOST": "what 64 bits hold",
        "MAX_PARTITIONS": "a limit that is refused",
    },
    "log.block": {
        "ALIGN": "the format",
        "_VERSION": "the format",
    },
    "log.clients": {
        "TopicSubscription.max_poll_ms": "ms",
        "TopicSubscription.session_ms": "ms",
    },
    "log.consumer": {
        "_POLLS": "polls in max_poll",
    },
    "log.consumer_groups": {
        "_NAME_MAX": "bytes of a folder's name",
    },
    "log.embedded_consumer": {
        "_BEATS": "heartbeats in a session",
    },
    "log.embedded": {
        "_TRIES": "patience",
    },
    "log.open_topics": {
        "_AHEAD": "ms",
    },
    "log.head": {
        "_PAGE": "the format",
        "_TRIES": "patience",
    },
    "log.kafka": {
        "PORT": "the port that Kafka has by default",
        "SHOWN": "names printed",
    },
    "log.kafka_clients": {
        "_LIMIT": "a setting of the library",
    },
    "log.kafka_consumer": {
        "_LAST": "milliseconds: the latest time that a record can have",
    },
    "log.kafka_delivery": {
        "_RECENT": "epochs recorded, as the test of the records says",
        "_FENCED_TIMES": "attempts before it is an error",
    },
    "log.kafka_native": {
        "_WORD": "the format",
        "_TEXT": "bytes for a message",
    },
    "log.kafka_produce": {
        "OVERHEAD": "a limit that is refused",
        "_LARGEST": "a limit of the library",
        "_REQUEST": "a setting of the library",
    },
    "log.producers": {
        "PLACES": "answers to retries",
        "RANGES": "a limit that is refused",
    },
    "log.topic": {
        "EXTENDED": "a version",
        "FORMAT": "a version",
        "MOST_VERSIONS": "a limit that is refused",
    },
    "restarts": {
        "FAILURES": "a limit that is refused",
        "MAY_PASS": "an exit code",
    },
    "cli.server": {"PORT": "a port"},
    "cli.top_jobs": {"_POINTS": "of a figure over time"},
    "cli.top_screen": {
        "_FEW": "rows of a table that are shown however low the terminal is",
        "_GAP": "columns of a terminal",
        "_NARROWEST": "columns of a terminal",
        "_PLOT": "columns of a terminal",
    },
    "cli.views": {"events(last)": "the user's", "logs(last)": "the user's"},
    "inspect.recent": {"PAST": "ms", "_EVERY": "ms"},
    "inspect.samples": {"MINUTE": "ms"},
    "inspect.sparklines": {"as_svg(height)": "of a picture", "as_svg(width)": "of a picture"},
    "server.app": {
        "SLOW_AT_ONCE": "processes",
        "SLOW_WAITING": "a limit that is refused",
        "_READ_ON": "what of a body that is refused is read",
    },
    "server.bodies": {"_SHOWN": "what of a value is shown"},
    "server.cards": {"_POINTS": "of a picture"},
    "server.client": {
        "ServedJob.dead(limit)": "the user's",
        "ServedJob.events(limit)": "the user's",
        "ServedJob.follow_logs(limit)": "the user's",
        "ServedJob.logs(limit)": "the user's",
        "ServerConnection.events(limit)": "the user's",
    },
    "server.connection": {"_MOST": "a limit that is refused"},
    "server.http": {
        "PORT": "a port",
        "_GRACE_SECONDS": "seconds",
        "_HEADERS": "a limit that is refused",
        "_START_SECONDS": "seconds",
    },
    "server.limits": {
        "Limits.body": "a limit that is refused",
        "Limits.burst": "a limit that is refused",
        "Limits.clients": "addresses that are remembered",
        "Limits.guesses": "a limit that is refused",
    },
    "server.route": {"Route.status": "a status"},
    "server.routes": {"MOST": "a limit that is refused", "_PATH": "a limit that is refused"},
    "server.schemas": {
        "LONGEST_NAME": "a limit that is refused",
        "LONGEST_TEXT": "a limit that is refused",
        "MOST_NUMBER": "a limit that is refused",
        "listed(most)": "a limit that is refused",
    },
    "server.security": {"_MOST_HEADER": "a limit that is refused"},
    "server.tokens": {
        "LONGEST": "a limit that is refused",
        "SESSION_SECONDS": "seconds",
        "SHORTEST": "a limit that is refused",
    },
    "server.ended_sessions": {"_MOST": "sessions that are remembered"},
    "server.hanging": {"HangingJobs.__init__(silent)": "ms"},
    "server.home": {"_RUNS": "folders of runs"},
    "server.imported": {
        "MOST_BYTES": "a limit that is refused",
        "MOST_FILES": "a limit that is refused",
        "MOST_READ": "a limit that is refused",
        "_MOST_NAMES": "a limit that is refused",
    },
    "server.patience": {"CONNECTIONS": "a limit that is refused"},
    "server.programs": {"_TRIES": "a limit that is refused"},
    "server.launcher": {
        "_BLOCK": "bytes of a pipe, as they come",
        "_SHOWN": "files of a log",
    },
    "server.logs": {
        "_LINE": "what of a line is shown",
        "_READ": "bytes of an answer",
    },
    "server.processes": {
        "LOG_BYTES": "the size of a log",
        "last_words(most)": "lines of an error",
    },
    "server.questions": {
        "AT_ONCE": "processes",
        "MOST": "a limit that is refused",
    },
    "server.samples": {
        "HOUR": "ms",
        "MOST": "rows that are kept",
        "SECOND": "ms",
    },
    "server.sampling": {"_THIN": "ms"},
    "server.service": {
        "Service.dead(limit)": "the user's",
        "Service.events(limit)": "the user's",
        "Service.logs(limit)": "the user's",
        "Service.query_state(limit)": "the user's",
        "Service.series(points)": "the user's",
        "_POINTS": "the size of an answer",
        "_ROWS": "the size of an answer",
    },
    "server.store": {
        "EVENTS": "rows that are kept",
        "Store.events(limit)": "the user's",
    },
    "server.supervisor": {
        "Policy.launching": "ms",
        "Policy.restart_hanging": "ms",
        "Policy.silent": "ms",
        "Policy.stall_after": "ms",
        "Policy.starting": "ms",
        "_AT_ONCE": "threads",
    },
    "server.upgrades": {"TRIES": "a limit that is refused"},
    "look.in_process": {
        "Driver.__init__(tasks)": "the user's",
        "Driver.drain(most)": "a limit that is refused",
    },
    "ops.agg.exact": {
        "_DIGITS": "what a double holds",
        "_HUGE": "the layout of terms",
    },
    "ops.agg.sums": {
        "_DIGITS": "what a decimal holds",
        "_HALF": "half of 64 bits",
    },
    "ops.calls.caller": {
        "CallOptions.backoff": "ms",
        "CallOptions.cache_size": "the user's",
        "CallOptions.concurrency": "the user's",
    },
    "ops.sketch.coupons": {
        name: "the format"
        for name in (
            "_ADDRESS",
            "_COMPACT",
            "_DENSE",
            "_EMPTY",
            "_FAMILY",
            "_IN_LIST",
            "_OF_8_BITS",
            "_OUT_OF_ORDER",
        )
    },
    "ops.sketch.hll": {
        "_HEAD": "the format",
        "_LARGEST": "the format",
        "_SMALLEST": "the format",
    },
    "ops.sketch.bloom": {
        "BLOCK_BYTES": "the format",
        "_DEVIATIONS": "what a size means",
        "_MOST_PROBES": "the format",
    },
    "ops.stream.first_seen": {
        "_MOST_KEYS": "a limit that is refused",
    },
    "ops.sketch.count_min": {
        "_CELL_BYTES": "the format",
        "_TABLES": "the format",
        "MOST_BUCKETS": "a limit that is refused",
    },
    "ops.sketch.frequent": {
        "COUNTER_BYTES": "the format",
        "DEFAULT_COUNTERS": "the user's",
        "Frequent.k": "the user's",
    },
    "ops.sketch.functions": {
        "_MOST": "a limit that is refused",
        "_MOST_BINS": "a limit that is refused",
    },
    "ops.sketch.kll": {
        "_LARGEST": "the format",
        "_SMALLEST": "the format",
    },
    "ops.sketch.levels": dict.fromkeys(
        (
            "_DEEPEST",
            "_EDGES",
            "_FAMILY",
            "_FIXED",
            "_IS_SINGLE",
            "_IS_SORTED",
            "_LEAST",
            "_MANY",
            "_SERIAL_OF_ONE",
        ),
        "the format",
    ),
    "ops.learn.models": {
        "_NEVER": "more rows than there will be",
        "_DEPTH": "what river takes for no limit",
    },
    "ops.sketch.library": {
        "BOUND_DEVIATIONS": "what a bound means",
        "DEVIATIONS": "what an error means",
        "_LG_K": "a limit that is refused",
    },
    "ops.sketch.theta": dict.fromkeys(
        (
            "_ALL",
            "_EMPTY",
            "_FAMILY",
            "_FLAGS",
            "_HEAD",
            "_LARGEST",
            "_SEED_HASH",
            "_SERIAL",
            "_SMALLEST",
        ),
        "the format",
    ),
    "ops.general_windows.operator": {
        "_ROUNDS": "what 64 bits hold",
    },
    "ops.graph.sampled_triangles": {
        "_RANKS": "what 63 bits hold",
    },
    "ops.pattern.automaton": {
        "_EDGES": "a limit that is refused",
    },
    "ops.pattern.checks": {
        "MOST": "a limit that is refused",
    },
    "ops.pattern.json_text": {
        "_DEEPEST": "a limit that is refused",
    },
    "ops.pattern.operator": {
        "MatchOperator.version": "a version",
    },
    "ops.process.chunks": {
        "ChunkOperator.version": "a version",
    },
    "ops.process.operator": {
        "ProcessOperator.version": "a version",
    },
    "ops.stream.chunk_steps": {
        "_ALL": "what 64 bits hold",
    },
    "ops.window.assigners": {
        "LONGEST_GAP": "a limit that is refused",
    },
    "ops.window.calendar": {
        "_DAY": "ms",
    },
    "plan.lineage": {
        "_LONG": "what is stored as its digest",
    },
    "partition_paths": {
        "LONGEST": "a limit of file systems; tests/sinks/test_partitions.py",
    },
    "sinks.commits": {
        "TRIES": "patience",
        "PLAIN": "of a format",
        "VERSION": "of a format",
    },
    "sinks.console": {
        "SHOWN": "rows printed",
    },
    "sinks.durable": {
        "Staging.limit": "no limit",
    },
    "sinks.kafka_options": {
        "_LEAST_TIMEOUT": "a limit that is refused",
    },
    "sinks.files": {
        "TARGET_MB": "the user's; drawn in its tests",
    },
    "sinks.file_options": {
        "_SECOND": "ms",
    },
    "sinks.partitions": {
        "MOST": "a limit that is refused; tests/sinks/test_partitions.py",
    },
    "connect.schema_registry": {
        "ANSWER": "seconds",
        "TRIES": "patience",
        "DEEPEST": "a limit that is refused",
        "_MISSING": "a status of HTTP",
        "_INCOMPATIBLE": "a status of HTTP",
    },
    "connect.wire_formats": {
        "HEAD": "the format",
    },
    "connect.protobuf": {
        "COMPILING": "seconds",
    },
    "connect.json_schema": {
        "_SHOWN": "how much of a reason is shown",
    },
    "driver.savepoints": {
        "_TRIES": "patience",
    },
    "sources.file_splits": {
        "MOST_SPLITS": "a limit that is refused",
    },
    "sources.arrivals": {
        "SETTLE": "ms",
    },
    "sources.folder_looks": {
        "AGAIN": "seconds",
        "MANY": "how often files are looked for",
    },
    "sources.inotify": {
        "DROPPED": "a bit of the system's",
        "_ONLY": "bits of the system's",
        "_TOLD": "bits of the system's",
    },
    "sources.guess": {
        "SAMPLE": "what columns are guessed from",
    },
    "sources.layout": {
        "ENDS": "what a fingerprint covers",
    },
    "plan.picture": {
        "_DOTS": "what is drawn",
        "_LONGEST": "what is drawn",
    },
    "sources.lines": {
        "COUNTED": "how far lines are counted for a message",
    },
    "sources.looked": {
        "ENDLESS_ROWS": "rows shown",
    },
    "cli.forget": {
        "NOTHING": "an exit code",
    },
    "key_match": {
        "_SHORT": "characters of a number that is searched for within texts",
    },
    "driver.forget_state": {
        "_ALIGN": "of a format",
    },
    "doctor.examine": {
        "_LITTLE": "bytes free",
        "_LOOKS": "patience",
        "_NOTHING": "bytes free",
    },
    "doctor.job_state": {
        "_FEW": "names shown",
    },
    "doctor.output_files": {
        "_TRIES": "patience",
    },
    "cli.doctor": {
        "_UNUSABLE": "an exit code",
    },
    "state.deliveries": {
        "_MOST": "epochs shown",
    },
    "state.epochs": {
        "EpochLog.prune(most)": "drawn in its tests",
    },
    "state.loops": {
        "ROW_BITS": "of a place: the number of a row in the file of its epoch",
    },
    "state.runs": {
        "_ALIGN": "the format",
    },
    "state.sorted_run": {
        "ALL_HASHES": "what 64 bits hold",
    },
    "task.dead_letters": {
        "_QUOTED": "what is shown",
    },
    "task.flow": {
        "_TRIES": "rows looked for one by one",
    },
    "sources.listening": {
        "MAX_LINE_KB": "a limit of what is a line",
        "MOST_LINE_KB": "a limit that is refused",
        "MOST_CLIENTS": "more wait; tests/sources/test_listening.py",
        "MOST_AHEAD": "how far senders may be ahead; tests/sources/test_listening.py",
    },
    "sources.http": {
        "MAX_BODY_MB": "a limit that is refused",
        "MOST_BODY_MB": "a limit that is refused",
        "PORTS": "a limit that is refused",
    },
    "sources.http_bodies": {
        "_DIGITS": "of a length: more is refused as too long",
        "_LONGEST_LINE": "beyond it a chunk is refused",
        "_MOST_TRAILERS": "beyond them a body is refused",
    },
    "sources.http_endpoint": {
        "MOST_AHEAD": "how far senders may be ahead; tests/sources/test_http.py",
        "MOST_WAITING": "bytes that may wait to be stored; tests/sources/test_http.py",
        "MOST_CONNECTIONS": "a limit that is refused",
        "_LONGEST_KEY": "a limit that is refused",
        "_PIECE": "bytes that are thrown away",
        "_SHOWN": "records printed",
        "_Post.status": "a code of HTTP",
        "_Server.request_queue_size": "connections that wait",
    },
    "sources.sse": {
        "MOST_EVENT": "a limit that is refused",
    },
    "sources.http_keys": {
        "SEGMENT": "bytes of a file of the log, which has cuts of its own",
    },
    "connect.mqtt": {
        "_AT_ONCE": "messages under way at a broker",
        "_KEEPALIVE": "seconds",
    },
    "sinks.mqtt": {
        "PORT": "of the protocol",
        "PORTS": "a limit that is refused",
        "TLS_PORT": "of the protocol",
    },
    "sources.mqtt": {
        "MOST_AT_ONCE": "messages that are stored together; how many come at once is the broker's",
        "PORT": "of the protocol",
        "PORTS": "a limit that is refused",
        "TLS_PORT": "of the protocol",
    },
    "sinks.webhook": {
        "MAX_ROWS": "what a receiver is sent at once; tests/sinks/test_webhook.py",
        "_TEXT": "characters printed",
    },
    "testing.column_values": {
        "_YEARS": "what is drawn",
    },
    "testing.drive": {
        "PATIENCE": "a patience",
        "MANY": "no limit",
    },
    "testing.harness": {
        "Harness.__init__(tasks)": "the user's",
    },
    "testing.input_suite": {
        "chunks(pieces)": "how a test reads",
        "read_split(pieces)": "how a test reads",
        "read_split(rows)": "how a test reads",
    },
    "testing.output_drivers": {
        "EPOCHS": "how much a test writes",
        "expected(tasks)": "how much a test writes",
        "stage(tasks)": "how much a test writes",
    },
    "testing.output_suite": {
        "MANY": "rows that the suite writes at once",
        "OutputSuite.stops": "how many points the suite tries",
        "OutputSuite.stops_inside": "how many points the suite tries",
        "OutputSuite.crashes_inside": "how much a test tries",
        "OutputSuite.passings": "how much a test tries",
        "OutputSuite.rounds": "how much a test tries",
    },
    "testing.strategies": {
        "_SECOND": "ms",
        "scripts(splits)": "what is drawn",
        "streams(max_size)": "what is drawn",
    },
}


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number that a module of the product names."""

    module: str
    name: str
    value: int


def numbers() -> Iterator[Number]:
    """Every module's names for whole numbers above 1."""
    for file in sorted((SRC / "headrace").rglob("*.py")):
        module = ".".join(file.relative_to(SRC / "headrace").with_suffix("").parts)
        for name, value in _named(ast.parse(file.read_text()).body, ""):
            found = _value(value)
            if found is not None and found > 1:
                yield Number(module, name, found)


def _named(body: list[ast.stmt], within: str) -> Iterator[tuple[str, ast.expr]]:
    """What a module or class assigns, and the defaults of its functions."""
    for node in body:
        yield from ((within + name, value) for name, value in _assigned(node))
        if isinstance(node, ast.ClassDef):
            yield from _named(node.body, f"{within}{node.name}.")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for argument, default in _defaults(node.args):
                yield f"{within}{node.name}({argument})", default


def _defaults(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    plain = [*arguments.posonlyargs, *arguments.args]
    paired = zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True)
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    for argument, default in (*paired, *named):
        if default is not None:
            yield argument.arg, default


def _assigned(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield from _paired(node.target, node.value)
    if isinstance(node, ast.Assign):
        yield from _paired(node.targets[0], node.value)


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=True):
            yield from _paired(one, part)


def _value(node: ast.expr) -> int | None:
    """The whole number that an expression of literals gives."""
    parts = {type(n) for n in ast.walk(node)}
    if not all(issubclass(p, ast.BinOp | ast.UnaryOp | ast.Constant | ast.operator | ast.unaryop)
               for p in parts):  # fmt: skip
        return None
    found = eval(compile(ast.Expression(node), "<constant>", "eval"))
    return found if type(found) is int else None


def make_tiny(patch: pytest.MonkeyPatch, size: int) -> None:
    """Set every cut to `size`, or to the least that it may be, wherever its name was imported."""
    for module, names in CUTS.items():
        for name, least in names.items():
            for place in (module, *_importers(module, name)):
                patch.setattr(importlib.import_module(f"headrace.{place}"), name, max(size, least))
    forget_what_was_computed()


def forget_what_was_computed() -> None:
    """Empty every cache of the product: what is in them was cut otherwise."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "headrace":
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()


def _importers(module: str, name: str) -> list[str]:
    return [importer for importer, source, imported in _imports()
            if source == f"headrace.{module}" and imported == name]  # fmt: skip


_FOUND: list[tuple[str, str, str]] = []


def _imports() -> list[tuple[str, str, str]]:
    """(module, the module it imports from, the name), where a cut's name is; read once."""
    if not _FOUND:
        cut = re.compile(rf"\b({'|'.join({name for names in CUTS.values() for name in names})})\b")
        for file in (SRC / "headrace").rglob("*.py"):
            text = file.read_text()
            if not cut.search(text):
                continue  # to parse all files takes seconds, in every process of the tests
            module = ".".join(file.relative_to(SRC / "headrace").with_suffix("").parts)
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    _FOUND.extend((module, node.module, alias.name) for alias in node.names)
    return _FOUND
