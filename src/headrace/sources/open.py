"""From a URI to a source: "log:topic", "files:path", "kafka://host/topic", or a made one.

The one list of what can be read. Nothing is opened or checked beyond what is needed to know
the schema; `check` does that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.errors import InputError
from headrace.files import file_name, remote_scheme
from headrace.schemes import meant_as_input
from headrace.secrets import exposed, without_secrets
from headrace.sources import formats
from headrace.sources.contract import InputRequest, Source
from headrace.sources.delta import check_delta, open_delta
from headrace.sources.files import check_files, open_files
from headrace.sources.generate import GenerateSource
from headrace.sources.http import open_http
from headrace.sources.iceberg import check_iceberg, open_iceberg
from headrace.sources.kafka_options import open_kafka
from headrace.sources.listening import open_listen
from headrace.sources.log import check_log, open_log
from headrace.sources.loop import LoopSource
from headrace.sources.memory import MemorySource
from headrace.sources.mqtt import open_mqtt
from headrace.sources.own import Input
from headrace.sources.sockets import open_socket
from headrace.sources.spark_frames import SparkSource
from headrace.sources.spouts import SpoutSource
from headrace.sources.sql_open import open_sql
from headrace.sources.sse import open_sse

KINDS = {
    "delta": open_delta,
    "files": open_files,
    "http": open_http,
    "iceberg": open_iceberg,
    "kafka": open_kafka,
    "listen": open_listen,
    "log": open_log,
    "mqtt": open_mqtt,
    "socket": open_socket,
    "sql": open_sql,
    "sse": open_sse,
}
# Of kinds that look at what is there when they are opened: what they refuse before.
CHECKS = {"delta": check_delta, "files": check_files, "iceberg": check_iceberg, "log": check_log}
_ELSEWHERE = "HR-KAFKA-004"  # a property is in the environment of the place where the job runs


def open_source(
    uri: str | Source,
    schema: pa.Schema | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    folder: str | None = None,
    name: str = "input",
    key: str | None = None,
    until: str | None = None,
    clock: Clock | None = None,
    time: str | None = None,
    guessed: bool = False,
    used: Sequence[str] | None = None,
) -> Source:
    """The source that `uri` names.

    `folder` is the job's, where the input stores what it must remember under its `key`, which
    stays when the input is renamed (if there is none: under its `name`). `until="end"` reads
    what is there at the start and ends. `time` names the column of event time, or is "" if an
    expression computes it. `guessed`: nobody declared `schema`, of which
    the program reads the columns `used`. Nothing is made by opening.
    """
    clock = clock or SystemClock()
    home = home_of(folder, name if key is None else key) if folder else None
    if not isinstance(uri, str):
        return _for_job(uri, schema, home, name, clock, until)
    request = _requested(uri, schema, format, options)
    return KINDS[_scheme(uri)](
        replace(
            request,
            home=home,
            bounded=until == "end",
            clock=clock,
            time=time,
            used=None if used is None else tuple(used),
            guessed=guessed,
        )
    )


def check_options(
    uri: str, schema: pa.Schema, format: str | None, options: Mapping[str, Any]
) -> None:
    """Refuse what a start would refuse, whatever is there by then; looks at the texts only."""
    request = _requested(uri, schema, format, options)
    check = CHECKS.get(_scheme(uri), KINDS[_scheme(uri)])
    try:
        check(request)
    except InputError as problem:
        if problem.code != _ELSEWHERE:  # the program may be built where it does not run
            raise


def _requested(
    uri: str, schema: pa.Schema | None, format: str | None, options: Mapping[str, Any] | None
) -> InputRequest:
    place, options = without_secrets(uri, options or {})
    check_input(place)
    scheme, rest = _scheme(place), place.partition(":")[2]
    registered = formats.REGISTERED if "registry" in options else ()
    known = (*(formats.IN_FILES if scheme == "files" else formats.FORMATS), *registered)
    if format is not None and format not in known:
        raise formats.unknown_format(format, tuple(dict.fromkeys(known)))
    return InputRequest(place, rest, schema, format, options, None, False, SystemClock())


def _scheme(uri: str) -> str:
    return uri.partition(":")[0]


def home_of(folder: str, key: str) -> Path:
    """The folder of the input with this key; it need not be there yet.

    Any text may be a key: what could leave the folder or surprise a shell is percent-encoded.
    """
    return Path(folder) / "inputs" / file_name(key, plain=" +=@,")


def check_input(uri: str) -> None:
    """Refuse a URI that names no kind of input; looks at the text only."""
    if secret := exposed(uri):
        raise InputError(
            "HR-INPUT-001",
            f"the address of an input holds {secret}, which would be stored and shown",
            "Leave it out: pass the option that the kind of input has for it (password=, "
            "token_env=, headers_env=, sasl_password=, storage_options=), or let the library find "
            "it in its environment. Within a password, write / as %2F, ? as %3F, @ as %40.",
        )
    scheme, colon, rest = uri.partition(":")
    if scheme == "files" and (elsewhere := remote_scheme(rest)):
        raise InputError(
            "HR-INPUT-001",
            f"{uri!r}: files cannot be read from {elsewhere!r}",
            f"{elsewhere} is not a folder of this machine. Give a path, as in "
            '"files:readings"; storage elsewhere must be mounted as a folder.',
        )
    if not colon or scheme not in KINDS:
        start = f'There is no input "{scheme}:"' if colon else f'Write "files:{uri}" for files'
        start = (meant_as_input(scheme) if colon else None) or start
        raise InputError(
            "HR-INPUT-001",
            f"{uri!r} is not an input",
            f"{start}; known are: {', '.join(KINDS)}.",
        )


def _for_job(
    source: Source,
    schema: pa.Schema | None,
    home: Path | None,
    name: str,
    clock: Clock,
    until: str | None,
) -> Source:
    """A source that the program made, as an input of this job."""
    if isinstance(source, SparkSource):
        return source.for_job(home, name, until)
    if until == "end" and not source.bounded and isinstance(source, Input):
        return source.to_the_end()
    if until == "end" and not source.bounded:
        raise InputError(
            "HR-INPUT-013",
            f"input {name!r} has no end to run to",
            'Give it a total, or run without until="end".',
        )
    if isinstance(source, MemorySource | LoopSource):
        return source.for_job(home)
    if isinstance(source, GenerateSource):
        return source.for_job(home, name, clock, schema)
    if isinstance(source, SpoutSource):
        return source.for_job(home, name)
    return source
