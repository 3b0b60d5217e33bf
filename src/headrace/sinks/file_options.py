"""The options of a files output, and of what a job collects: what they may be, and opening it."""

from __future__ import annotations

import datetime as dt
import math
import os
from pathlib import Path
from typing import Any

from headrace.clock import millis
from headrace.errors import OutputError
from headrace.files import file_name
from headrace.sinks.contract import (
    Description,
    OutputKind,
    OutputRequest,
    Sink,
    appends,
    bad_option,
    check_names,
    names_of,
    refuse_unknown,
)
from headrace.sinks.file_formats import FORMATS, PACKED, WRITTEN
from headrace.sinks.files import FilesSink
from headrace.sinks.line_files import CsvFormat, is_delimiter
from headrace.sinks.ownership import Identity
from headrace.sinks.partitions import MOST, partitioned

_SECOND = 1_000  # ms
_OPTIONS = (
    "format", "partition_by", "max_partitions", "target_file_mb", "roll_every", "merge", "mode",
    "compression", "delimiter", "header",
)  # fmt: skip


def _check(o: OutputRequest) -> None:
    refuse_unknown(o, _OPTIONS)
    if not o.rest:
        raise OutputError("HR-OUTPUT-001", f"{o.uri!r} names no folder", 'Write "files:folder".')
    appends(o)
    size, format = o.options.get("target_file_mb", 1), o.options.get("format")
    if format not in (None, *WRITTEN):
        hint = f'Pass format="parquet"; known: {", ".join(WRITTEN)}.'
        raise bad_option(o, "format", o.options["format"], hint)
    _check_csv(o, format)
    _check_compression(o, format)
    if not isinstance(size, int | float) or not 0 < size < math.inf:
        hint = "Give the size of a file in megabytes, above 0."
        raise bad_option(o, "target_file_mb", size, hint)
    merge, most = o.options.get("merge", True), o.options.get("max_partitions", MOST)
    if not isinstance(merge, bool):
        raise bad_option(o, "merge", merge, "Pass merge=True or merge=False.")
    check_names(o, "partition_by")
    if type(most) is not int or most < 1:
        raise bad_option(o, "max_partitions", most, "Give a whole number above 0.")
    if "max_partitions" in o.options and o.options.get("partition_by") is None:
        raise bad_option(o, "max_partitions", most, "It belongs to partition_by.")
    if o.options.get("roll_every") is not None:
        _check_period(o, merge)


def _check_period(o: OutputRequest, merge: bool) -> None:
    every = o.options["roll_every"]
    if not isinstance(every, str | int | float | dt.timedelta) or millis(every) < _SECOND:
        raise bad_option(o, "roll_every", every, 'Give a duration of a second or more: "1h".')
    if not merge:
        hint = "Leave one of them out: with merge=False every file is final as it is."
        raise bad_option(o, "merge", merge, hint)


def _check_csv(o: OutputRequest, format: str | None) -> None:
    delimiter, header = o.options.get("delimiter", ","), o.options.get("header", True)
    for option in ("delimiter", "header"):
        if option in o.options and format != "csv":
            raise bad_option(o, option, o.options[option], 'It belongs to format="csv".')
    if not is_delimiter(delimiter):
        hint = 'Give one character that is not part of numbers, such as ";", "|" or "\\t".'
        raise bad_option(o, "delimiter", delimiter, hint)
    if not isinstance(header, bool):
        raise bad_option(o, "header", header, "Pass header=True or header=False.")


def _check_compression(o: OutputRequest, format: str | None) -> None:
    compression = o.options.get("compression")
    if compression is not None and f"{format}{PACKED.get(str(compression))}" not in FORMATS:
        hint = (
            f"Pass {' or '.join(map(repr, PACKED))}, with format="
            '"json", "csv" or "text"; Parquet and Avro files are compressed as they are.'
        )
        raise bad_option(o, "compression", compression, hint)


def _open(o: OutputRequest) -> Sink:
    target = Path(os.path.abspath(os.path.expanduser(o.rest)))
    format = o.options.get("format") or "parquet"
    options = {n: v for n, v in o.options.items() if n != "format"}
    every, by = millis(options.get("roll_every") or 0), names_of(options.get("partition_by"))
    if by:
        options["partition_by"] = by
    if every:
        options["roll_every"] = f"{every}ms"  # as JSON has it
    csv = CsvFormat(**{n: v for n, v in options.items() if n in CsvFormat._fields})
    return FilesSink(
        target,
        partitioned(csv.on(o.schema), by),
        Identity(o.folder),
        o.name,
        key=o.key,
        format=format + PACKED.get(options.get("compression") or "", ""),
        append=appends(o),
        roll_every=every,
        described={"kind": "files", "place": str(target), "format": format, "options": options},
        **{n: v for n, v in options.items() if n in ("target_file_mb", "merge", "max_partitions")},
    )


def _check_collect(o: OutputRequest) -> None:
    refuse_unknown(o, ())


def _open_collect(o: OutputRequest) -> Sink:
    place = o.rest or o.key
    about = {"kind": "collect", "place": f"collect:{place}", "format": "arrow", "options": {}}
    target, job = collect_folder(o.folder, place), Identity(o.folder)
    return FilesSink(target, o.schema, job, o.name, key=o.key, format="arrow", described=about)


def collect_folder(folder: str, key: str) -> Path:
    """Where a job's folder holds what "collect:" has collected."""
    return Path(folder) / "collect" / file_name(key)


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    return about["place"], {**about["options"], "format": about["format"]}


def _reopen_collect(about: Description) -> tuple[str, dict[str, Any]]:
    return about["place"].removeprefix("collect:"), dict(about["options"])


FILES = OutputKind(_check, _open, _reopen)
COLLECT = OutputKind(_check_collect, _open_collect, _reopen_collect)
