"""Outputs elsewhere: rows are staged in the job's folder, and delivered with their epoch.

A task stages rows as the place will hold them: what it cannot hold fails the batch, and never one
that is committed. The driver delivers an epoch at once, together with a record of who delivers
(the producer: the job's identity, its timeline, the output's id) and up to which epoch. A producer
and epoch that are recorded are not delivered again, in any process, even after the output was
renamed. A place that stores no such record cannot say what it holds: it is an `UnrecordedSink`, at
least once.

A kind of output that delivers its own rows is a `DeliveredSink`: it adds `what`, `producers` and
`deliver`; `records`, `reached` and `beyond` if it can do better than the defaults. One that
delivers several outputs at once is a `StagedSink`, which publishes as it likes.
"""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import OutputError
from headrace.sinks.contract import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    EpochWriter,
    HeldEpochs,
    OutputRequest,
    Reached,
    Reference,
    Sink,
    Timelines,
    appends,
)
from headrace.sinks.durable import Staging, noted
from headrace.sinks.ownership import Identity
from headrace.state.faults import point
from headrace.state.manifest import FIRST

# a producer that is a job's output: its folder's identity, its timeline, its id; at rest
_PRODUCER = re.compile(r"([0-9a-f]{32})(?:@([0-9a-f]+))?/(.*)", re.DOTALL)


class StagedSink(Sink):
    """Rows wait in the job's folder; the place records who has delivered what."""

    guarantee = EXACTLY_ONCE

    def __init__(self, o: OutputRequest) -> None:
        self.schema, self._name, self._id = o.schema, o.name, o.key
        self._identity, self._staging = Identity(o.folder), Staging(o.staged)
        self._appends = appends(o)

    # what a kind of output adds

    @property
    @abstractmethod
    def what(self) -> str:
        """The place in words, for messages: "topic 'orders'"."""

    @abstractmethod
    def producers(self) -> Mapping[str, int]:
        """Who has delivered to the place, and the last epoch of each. Changes nothing.

        Empty if the place is not there yet."""

    def everybody(self) -> Mapping[str, int]:
        """The same with other jobs, if `producers` leaves those out."""
        return self.producers()

    def records(self, rows: pa.Table) -> pa.Table:
        """The rows as the place will hold them; OutputError if it cannot hold one. In a task."""
        return rows

    def write(self, records: pa.Table, epoch: int, unique: str) -> list[Reference]:
        """Write records into the job's folder, durably. In a task."""
        return self._staging.add(records, epoch, unique)

    # what they have in common

    def check_owner(self) -> None:
        """Rows of another job's folder, or of an earlier life of this one, would be doubled."""
        everybody = () if self._appends else sorted(self.everybody())
        for match in (m for p in everybody if (m := _PRODUCER.fullmatch(p))):
            if match[1] != self._identity.known():
                raise OutputError(
                    "HR-OUTPUT-004",
                    f"{self.what} holds records that another job folder's output "
                    f"{match[3]!r} wrote",
                    "If it is this job that wrote them, start it with the job folder it had "
                    "then (folder=, --folder on the command line). If not, write to another "
                    'place, or pass mode="append" to add to what is there.',
                )

    def held(self) -> HeldEpochs | None:
        return self.held_of(self.producers() if self._identity.known() is not None else {})

    def held_of(self, producers: Mapping[str, int]) -> HeldEpochs:
        """What of these producers is the job's."""
        job = self._identity.known()
        own, all = Reached(), Reached()
        for producer, epoch in producers.items() if job is not None else ():
            match = _PRODUCER.fullmatch(producer)
            if match is None or match[1] != job:
                continue
            timeline = match[2] or FIRST
            all[timeline] = max(epoch, all.get(timeline, epoch))
            if match[3] == self._id:
                own[timeline] = epoch
        return HeldEpochs(max(all.values(), default=0), own, all, final=True)

    def stage(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        if not table.num_rows:
            return []
        rows = self.records(table.select(self.schema.names))
        return self.signed(self.write(rows, epoch, unique))

    def signed(self, references: list[Reference]) -> list[Reference]:
        """With who has staged them."""
        producer = f"{self._identity.get()}/{self._id}"
        return [{**r, "producer": producer} for r in references]

    def staged_at(self, reference: Reference) -> Path | None:
        return self._staging.at(reference)

    def discard(self, live: Set[str], upto: int | None = None) -> None:
        self._staging.sweep(live, upto)

    def go_back(self, timelines: Timelines, writer: EpochWriter) -> str:
        held = self.held()
        if held is None:
            return (
                f"output {self._name!r}: what was delivered to {self.what} stays there, so rows "
                "of epochs that were given up may be there twice"
            )
        beyond = timelines.beyond(held.all)
        if not beyond:
            return f"output {self._name!r}: {self.what} holds nothing that was given up"
        first = min(timelines.upto(timeline) for timeline in beyond) + 1
        return (
            f"output {self._name!r}: what was delivered cannot be taken back, so the rows of "
            f"epochs {max(first, 1)} to {max(beyond.values())} will be in {self.what} twice"
        )

    def conflict(self, epoch: int) -> OutputError:
        return OutputError(
            "HR-OUTPUT-013",
            f"epoch {epoch} was published to {self.what} with other records than the job's "
            f"manifest names (output {self._name!r})",
            "Another driver runs on a copy of the job's folder. Go on with one of the two: the "
            "one whose rows are there.",
        )


class DeliveredSink(StagedSink):
    """Delivers the rows of an epoch at once, each output for itself."""

    _digest = ""  # of what is being delivered

    def read(self, staged: Sequence[Reference]) -> Any:
        """The rows of an epoch as `deliver` takes them."""
        return pa.concat_tables(self._staging.read_all(staged))

    @abstractmethod
    def deliver(self, rows: Any, producer: str, epoch: int) -> None:
        """Make the rows visible, all or none of them, and record the epoch of the producer.

        Nothing happens if that epoch, or a later one, is recorded already; if it was recorded
        with other rows and the place can tell, `conflict` is raised.
        """

    def publish(self, epoch: int, staged: list[Reference], writer: EpochWriter) -> None:
        if not staged:
            return
        producer = within(noted(staged[0], "producer"), writer.timeline)
        rows = self.read(staged)
        point("sink.publish.read")
        writer.check()
        self._digest = digest(staged)
        self.deliver(rows, producer, epoch)
        point("sink.publish.appended")


class UnrecordedSink(DeliveredSink):
    """Delivers to a place that stores no record of epochs: what it holds cannot be known."""

    guarantee = AT_LEAST_ONCE

    def held(self) -> HeldEpochs | None:
        return None

    def producers(self) -> Mapping[str, int]:
        return {}


def digest(staged: Sequence[Reference]) -> str:
    """What tells the rows of an epoch from others."""
    parts = [f"{r['rows']}/{r['bytes']}/{r['crc']}" for r in staged]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


def within(producer: str, timeline: str) -> str:
    """The name of the producer in a timeline: each timeline has its own epochs."""
    job, _, id = producer.partition("/")
    return producer if timeline == FIRST else f"{job}@{timeline}/{id}"
