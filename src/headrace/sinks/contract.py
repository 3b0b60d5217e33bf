"""The contract of a sink: staged in tasks, published by epoch, published twice without harm.

    check    before a start: can it be written, and is it ours? Changes nothing
    open     after every check of the start has passed: makes the topic or the folder
    stage    in a task: durable, invisible to readers, under names that nobody else uses
    publish  on the driver, after the manifest: makes an epoch visible; in epoch order, and
             again after a crash, with the same references; outputs of one group at once
    discard  removes what was staged and is in no manifest
    held     how far this job has come there, by timeline
    go_back  takes back what was published in timelines that were given up, where it can

A reference is a JSON-able dict with at least `file` (unique within the output), `rows`,
`bytes` and `crc`. An epoch's number stands for one set of references for ever, so whatever a
driver does that was stopped and let go later, it can only repeat. A sink is small and
picklable. Nothing here knows about Spark.

Going back to an earlier epoch begins a new timeline, and what the one before did after that epoch
is abandoned. Outputs record the timeline of what they hold. So what counts is told from what was
abandoned, even where epochs have the same numbers: whatever becomes of the job's folder or of an
output (restored from a copy, left out of the program for a while and put back).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from headrace.clock import MAX_TIME
from headrace.errors import OutputError, did_you_mean
from headrace.files import file_name
from headrace.guarantees import AT_LEAST_ONCE as AT_LEAST_ONCE
from headrace.guarantees import EXACTLY_ONCE as EXACTLY_ONCE
from headrace.state.manifest import FIRST, Manifest

NEVER = -1  # before every epoch

Reached = dict[str, int]  # by timeline: the last epoch of it


@dataclass(frozen=True, slots=True)
class Timelines:
    """The timelines of a folder and the last epoch of each, the oldest first."""

    spans: tuple[tuple[str, int], ...]

    @staticmethod
    def of(manifest: Manifest, epoch: int | None = None) -> Timelines:
        """Those of a manifest; the newest one up to `epoch`, or to the manifest's."""
        last = manifest.epoch if epoch is None else epoch
        return Timelines((*manifest.forks, (manifest.timeline, last)))

    @property
    def newest(self) -> str:
        return self.spans[-1][0]

    def upto(self, timeline: str) -> int:
        """The last epoch of a timeline that counts."""
        return max((last for name, last in self.spans if name == timeline), default=NEVER)

    def counts(self, manifest: Manifest) -> bool:
        """Whether a manifest is of these timelines, and was not given up."""
        return manifest.epoch <= self.upto(manifest.timeline)

    def at(self, epoch: int) -> str:
        """The timeline of an epoch that counts."""
        return next((name for name, last in self.spans if epoch <= last), self.newest)

    def plus(self, more: Mapping[str, int]) -> Timelines:
        """These, and `more` that an output holds and cannot take back."""
        return Timelines((*more.items(), *self.spans))

    def beyond(self, reached: Mapping[str, int]) -> Reached:
        """What of `reached`, the epochs that an output holds, does not count."""
        return {name: last for name, last in reached.items() if last > self.upto(name)}


ONLY = Timelines(((FIRST, MAX_TIME),))  # of a folder that has never gone back


@dataclass(frozen=True, slots=True)
class HeldEpochs:
    """The epochs of a job that an output holds."""

    number: int = 0  # the largest epoch that was ever used there
    own: Mapping[str, int] = field(default_factory=dict)  # by timeline: the last epoch with rows
    all: Mapping[str, int] = field(default_factory=dict)  # of all outputs the job has had there
    final: bool = False  # it cannot take anything back


Reference = dict[str, Any]
Description = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EpochWriter:
    """The driver that publishes."""

    token: int  # its number at the job's fence
    check: Callable[[], None]  # raises FencedError unless it still holds the fence
    timelines: Timelines = ONLY  # of its folder, up to the epoch that it publishes
    recovers: bool = False  # what an earlier driver has staged: it may have been harmed since

    @property
    def timeline(self) -> str:
        return self.timelines.newest


class Sink(Protocol):
    schema: pa.Schema
    loops: bool = False  # the job itself reads it
    secret: bool = False  # what opens it is not all in its description

    @property
    def guarantee(self) -> str:
        """What a reader of the output sees when the job is killed: see `guarantees.py`."""
        ...

    @property
    def because(self) -> str:
        """Why it is so, in a few words, for the start of the job."""
        if self.guarantee == EXACTLY_ONCE:
            return "an epoch that is there is not written again"
        return "an epoch that was written just before a crash is written again"

    @property
    def retries(self) -> str:
        """How rows may come twice though nobody crashes, in words; "" if they do not."""
        return ""

    def check(self) -> None:
        """Raise OutputError, with a hint, if the output cannot be written. Changes nothing."""
        return None

    def open(self) -> None:
        """Make what the output needs: its topic, its folder."""
        return None

    def describe(self) -> Description:
        """What the output is, as JSON: enough for `reopen_sink` to publish what it staged."""
        ...

    def held(self) -> HeldEpochs | None:
        """What this job has published there; None if that cannot be known."""
        return None

    def knows(self, about: Mapping[str, Any]) -> bool:
        """Whether `held` tells of what was published as `about` says, a description of before."""
        return True

    def check_same(self, epoch: int, staged: list[Reference]) -> None:
        """Raise OutputError if the output holds `epoch`, but not what was `staged` for it."""
        return None

    def reached(self, epoch: int) -> bool:
        """Whether `epoch`, which was published there, or a later one is still there; called in
        every epoch, so it must be cheap."""
        return True

    def beyond(self, timelines: Timelines) -> Reached:
        """What a driver of another copy of the job's folder has published there meanwhile, and
        does not count by `timelines`; called in every epoch, so it must be cheap."""
        return {}

    def at(self, clock: int) -> Sink:
        """The sink for an epoch whose clock says this; a task asks for it before it stages."""
        return self

    def stage(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        """Write the rows where no reader sees them; durable when this returns."""
        ...

    def publish(self, epoch: int, staged: list[Reference], writer: EpochWriter) -> None:
        """Make what was staged visible; a second call changes nothing."""
        ...

    def group(self) -> str | None:
        """Outputs of one group are published together: all of them have an epoch, or none."""
        return None

    def check_group(self, outputs: Sequence[Sink]) -> None:
        """Raise OutputError if the outputs of this one's group, it included, do not go together."""
        return None

    def publish_group(
        self, epoch: int, outputs: Sequence[tuple[Sink, list[Reference]]], writer: EpochWriter
    ) -> None:
        """Publish what was staged for the outputs of this one's group, it included, at once."""
        for sink, staged in outputs:
            sink.publish(epoch, staged, writer)

    def staged_at(self, reference: Reference) -> Path | None:
        """Where a staged file lies on this machine, for whoever checks it; None: not known."""
        return None

    def discard(self, live: Set[str], upto: int | None = None) -> None:
        """Remove staged files that are not in `live`, the `file`s that manifests name.

        While tasks may be staging, pass `upto`: only leftovers up to that epoch are removed.
        """
        return None

    def go_back(self, timelines: Timelines, writer: EpochWriter) -> str:
        """Take back what does not count by `timelines`; a sentence that says what was done.

        Where nothing can be taken back, it says so, and changes nothing.
        """
        ...

    def close(self) -> None:
        return None


def in_groups(sinks: Mapping[str, Sink]) -> Iterator[list[str]]:
    """The names of outputs that are published together, in their order."""
    groups: dict[str, list[str]] = {}
    for name, sink in sinks.items():
        group = sink.group()
        groups.setdefault(f"alone {name}" if group is None else f"group {group}", []).append(name)
    yield from groups.values()


@dataclass(frozen=True, slots=True)
class OutputRequest:
    """All that is known when an output is opened."""

    uri: str
    rest: str  # of the URI, after the colon
    schema: pa.Schema
    options: Mapping[str, Any]
    folder: str
    name: str
    key: str

    @property
    def staged(self) -> Path:
        """The folder for outputs that stage in the job's folder."""
        return Path(self.folder) / "staged" / file_name(self.key)


class OutputKind(NamedTuple):
    """A scheme of output URIs."""

    check: Callable[[OutputRequest], None]  # refuses wrong options; looks at nothing outside
    open: Callable[[OutputRequest], Sink]
    # of a description: the text after the colon, and the options, that open the same sink again
    reopen: Callable[[Description], tuple[str, dict[str, Any]]]
    chooses: bool = False  # at least once costs less: it has an option guarantee=


def refuse_unknown(o: OutputRequest, known: tuple[str, ...]) -> None:
    for option in o.options:
        if option not in known:
            raise OutputError(
                "HR-OUTPUT-008",
                f"{o.uri!r} has no option {option!r}",
                f"{did_you_mean(option, known)}Known: {', '.join(known) or 'none'}.",
            )


def bad_option(o: OutputRequest, option: str, value: object, hint: str) -> OutputError:
    return OutputError("HR-OUTPUT-008", f"{o.uri!r} has {option}={value!r}", hint)


def names_of(names: str | Sequence[str] | None) -> list[str]:
    """The columns that an option names."""
    return [] if names is None else [names] if isinstance(names, str) else list(names)


def check_names(o: OutputRequest, option: str) -> None:
    """Refuse an option that does not name columns, each once."""
    names = o.options.get(option)
    listed = [names] if isinstance(names, str) else names
    if names is not None and not (
        isinstance(listed, list | tuple)
        and listed
        and all(isinstance(n, str) and n for n in listed)
        and len(set(listed)) == len(listed)
    ):
        raise bad_option(o, option, names, f'Name columns: {option}=["a", "b"].')


def appends(o: OutputRequest) -> bool:
    """Whether the output may be added to what others have written there."""
    mode = o.options.get("mode")
    if mode not in (None, "append"):
        raise bad_option(o, "mode", mode, 'Pass mode="append", or leave it out.')
    return mode is not None
