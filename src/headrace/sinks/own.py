"""An output of a user's own: a small class that delivers rows, made into an output of a job.

The class says how rows get to their place. Everything else is done here as for every output
elsewhere: rows are staged in the job's folder, an epoch is delivered after it is committed, again
after a crash, and in order. At rest is the class's `kind`, never its name, with the fields that
make the same output again; a field with `repr=False` is neither stored nor shown.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa

from headrace.errors import HeadraceError, OutputError
from headrace.sinks.columns import packed
from headrace.sinks.contract import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    Description,
    HeldEpochs,
    OutputKind,
    OutputRequest,
    Sink,
    appends,
    refuse_unknown,
)
from headrace.sinks.delivered import DeliveredSink

SCHEME = "own"
FIELDS = "fields"  # at rest, of a description: by this it is known to be of a user's class
MADE = "made"  # the option that has the object; never at rest
_KINDS: dict[str, type[Output]] = {}  # the classes that are defined, by kind


class Output:
    """Subclass me as a dataclass: an output of your own, for `stream.write(...)`.

    Declare `kind`, a short text that is stored in job folders and must not change, and write
    `deliver`. With `delivered` as well it is exactly once, without it at least once. The fields
    of the dataclass are stored with the job, as JSON, except those with `field(repr=False)`:
    passwords and tokens.
    """

    kind: ClassVar[str] = ""
    because: ClassVar[str] = ""  # why it guarantees what it does, if there is more to say

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.kind:
            _KINDS[cls.kind] = cls

    @property
    def place(self) -> str:
        """Where the rows go, as a user would recognise it; without secrets."""
        return ""

    def check(self, schema: pa.Schema) -> None:
        """Raise an error if rows of this schema cannot be delivered. Changes nothing."""

    def open(self, schema: pa.Schema) -> None:
        """Make what is needed, a table or a folder, unless it is there; at each start."""

    def prepare(self, rows: pa.Table) -> pa.Table:
        """In a task: the rows as they will be delivered; raise an error if one cannot be."""
        return rows

    def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        """Make the rows visible. With `delivered`: all or none, and in the same transaction
        record `epoch` as the last one of `producer`, unless that or a later one is recorded."""
        raise NotImplementedError

    def delivered(self) -> Mapping[str, int] | None:
        """The last epoch of each producer; None if the place stores no such record."""
        return None

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"


class OwnSink(DeliveredSink):
    """The output of a job that delivers by a user's object."""

    def __init__(self, o: OutputRequest, output: Output) -> None:
        super().__init__(o)
        self.output = output

    def delivering_by(self, output: Output) -> OwnSink:
        """The same output of the job, which delivers by another object."""
        other = copy.copy(self)
        other.output = output
        return other

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        _KINDS.setdefault(self.output.kind, type(self.output))  # a process has what it is sent

    @property
    def secret(self) -> bool:  # type: ignore[override]
        return any(not f.repr for f in dataclasses.fields(self.output))  # type: ignore[arg-type]

    @property
    def guarantee(self) -> str:  # type: ignore[override]
        return EXACTLY_ONCE if self._records else AT_LEAST_ONCE

    @property
    def because(self) -> str:
        if self.output.because:
            return self.output.because
        if self._records:
            return f"{type(self.output).__name__} says which epochs it holds"
        return (
            f"{type(self.output).__name__} does not say which epochs it holds (delivered): after "
            "a crash one may be delivered again"
        )

    @property
    def what(self) -> str:
        return f"the output {str(self.output)!r}"

    @property
    def _records(self) -> bool:
        return type(self.output).delivered is not Output.delivered

    def describe(self) -> Description:
        mode = {"mode": "append"} if self._appends else {}
        return {
            "kind": self.output.kind,
            "place": self.output.place,
            "format": None,
            FIELDS: fields_of(self.output),
            "options": mode,
            "schema": packed(self.schema),
        }

    def check(self) -> None:
        with self._named("check"):
            self.output.check(self.schema)
        self.check_owner()

    def open(self) -> None:
        with self._named("open"):
            self.output.open(self.schema)

    def held(self) -> HeldEpochs | None:
        return super().held() if self._records else None

    def producers(self) -> Mapping[str, int]:
        with self._named("delivered"):
            return dict(self.output.delivered() or {})

    def records(self, rows: pa.Table) -> pa.Table:
        with self._named("prepare"):
            return self.output.prepare(rows)

    def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        with self._named("deliver"):
            self.output.deliver(rows, producer, epoch)

    @contextmanager
    def _named(self, method: str) -> Iterator[None]:
        """What the user's class raises, as an error of the output."""
        try:
            yield
        except HeadraceError:
            raise
        except Exception as cause:
            raise OutputError(
                "HR-OUTPUT-062",
                f"{method} of {self.what} (output {self._name!r}) failed: "
                f"{type(cause).__name__}: {cause}",
                "Nothing is lost: rows that are committed stay in the job's folder until they "
                "are delivered. Correct the cause and start the job again.",
            ) from cause


def fields_of(output: Output) -> dict[str, Any]:
    """The fields that make the same output again, as JSON has them; without secrets."""
    shown = [f.name for f in dataclasses.fields(output) if f.repr and f.init]  # type: ignore[arg-type]
    fields: dict[str, Any] = json.loads(json.dumps({n: getattr(output, n) for n in shown}))
    return fields


def check_own(output: Output, options: Mapping[str, Any], taken: Collection[str] = ()) -> None:
    """Refuse an output whose class could not be written to, or not be found again.

    `taken` are the kinds that are not classes of users'.
    """
    kind = type(output)
    refuse_unknown(_request(output, options), ("mode",))
    appends(_request(output, options))
    wrong = (
        "declares no kind"
        if not kind.kind
        else "has no deliver"
        if kind.deliver is Output.deliver
        else f"has the kind {kind.kind!r}, which is Headrace's own"
        if kind.kind in taken
        else "is not a dataclass"
        if not dataclasses.is_dataclass(output)
        else _unstored(output)
    )
    if wrong:
        raise OutputError(
            "HR-OUTPUT-060",
            f"the output {kind.__name__} {wrong}",
            'Write it as a dataclass with kind = "..." and deliver(self, rows, producer, epoch); '
            "its fields are what JSON can hold, or secrets: field(repr=False, default=...).",
        )
    _KINDS[kind.kind] = kind  # also where a module is loaded twice, as in a notebook


def _unstored(output: Output) -> str:
    """What keeps it from being made again of what is stored; empty if nothing does."""
    for field in dataclasses.fields(output):  # type: ignore[arg-type]
        required = field.default is field.default_factory is dataclasses.MISSING
        if field.init and not field.repr and required:
            return f"has a secret field {field.name!r} without a default"
    try:
        stored = fields_of(output)
    except (TypeError, ValueError) as cause:
        return f"has fields that JSON cannot hold ({cause})"
    for name, value in stored.items():
        if value != getattr(output, name):
            return f"has a field {name!r} that JSON does not give back as it was"
    return ""


def _request(output: Output, options: Mapping[str, Any]) -> OutputRequest:
    return OutputRequest(str(output), output.kind, pa.schema([]), options, "", "", "")


def _check(o: OutputRequest) -> None:
    if MADE in o.options:
        check_own(o.options[MADE], {n: v for n, v in o.options.items() if n != MADE})


def _open(o: OutputRequest) -> Sink:
    output = o.options[MADE] if MADE in o.options else _made_again(o.rest, o.options[FIELDS])
    chosen = {n: v for n, v in o.options.items() if n == "mode"}
    return OwnSink(dataclasses.replace(o, options=chosen), output)


def _made_again(kind: str, fields: Mapping[str, Any]) -> Output:
    """The output as it was stored, of the class of that kind."""
    known = _KINDS.get(kind)
    if known is None:
        raise OutputError(
            "HR-OUTPUT-061",
            f"the job has rows to deliver to an output of kind {kind!r}, and no class has it now",
            "Import the module with that class in the program, and start the job again.",
        )
    try:
        return known(**fields)
    except TypeError as cause:
        raise OutputError(
            "HR-OUTPUT-061",
            f"the job has rows to deliver to an output of kind {kind!r}, which cannot be made "
            f"again: {cause}",
            "Start the job once with the fields that the class had then; then change it.",
        ) from cause


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    return about["kind"], {FIELDS: about[FIELDS], **about["options"]}


OWN = OutputKind(_check, _open, _reopen)
