"""The embedded log against plain lists, with crashes at every step and restarts between.

The model is a list per partition. An append that crashed, was torn, or met a damaged head or a
restart of the machine is there as a whole, in all its partitions, or not at all; the model
takes over what it finds. What was acknowledged is there in any case.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.clock import ManualClock
from headrace.errors import LogError
from headrace.log import EmbeddedLog, head
from headrace.log.topic import load
from headrace.state import faults

HOUR = 3_600_000
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a sync costs nothing there
POINTS = ["log.block", "log.rolled", "log.cut", "log.written", "log.synced", "log.published",
          "log.write", "log.sync", "log.sync_folder", "log.remove"]  # fmt: skip

Batch = dict[int, list[bytes]]  # the records of one append by partition
batches = st.dictionaries(
    st.sampled_from([0, 1]), st.lists(st.binary(max_size=40), min_size=1, max_size=6), min_size=1
)


def _records(batch: Batch) -> Counter[bytes]:
    return Counter(record for records in batch.values() for record in records)


class Crash(BaseException):
    pass


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.clock = ManualClock(1_000_000)
        self.boot, self.crashes = 1, 0
        head.boot_id = lambda: self.boot.to_bytes(16, "little")
        self.log = EmbeddedLog(self.folder, self.clock)
        self.log.create("t", 2, retention="1h", segment_bytes=1_500)
        self.model: list[list[tuple[bytes, int]]] = [[], []]
        self.earliest = [0, 0]
        self.made: dict[tuple[str, int], Counter[bytes]] = {}  # by producer and sequence

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    # What a user does

    @rule(batch=batches)
    def append(self, batch: Batch) -> None:
        self._append(batch)
        self._note(batch)

    @rule(batch=batches, producer=st.sampled_from(["p", "q"]), sequence=st.integers(0, 6))
    def append_with_sequence(self, batch: Batch, producer: str, sequence: int) -> None:
        try:
            self._append(batch, producer, sequence)
        except LogError as error:
            assert error.code == "HR-LOG-020"
            assert self._is_another(batch, producer, sequence)
        else:
            removed = any(self.log.earliest("t").values())  # by this very append, perhaps
            assert not self._is_another(batch, producer, sequence) or removed
            self._note(batch, producer, sequence)

    @rule(ms=st.sampled_from([0, 1, HOUR // 20, HOUR // 2, HOUR + 1]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def sweep(self) -> None:
        self.log.sweep("t")
        if max([t for records in self.model for _, t in records], default=0) < (
            self.clock.now() - HOUR
        ):
            assert self.log.earliest("t") == dict(enumerate(map(len, self.model)))

    @rule()
    def reopen(self) -> None:
        self.log = EmbeddedLog(self.folder, self.clock)

    @rule(p=st.sampled_from([0, 1]), ms=st.integers(1_000_000 - 1, 1_000_000 + 3 * HOUR))
    def seek_by_time(self, p: int, ms: int) -> None:
        kept = range(self.earliest[p], len(self.model[p]))
        expected = next((o for o in kept if self.model[p][o][1] >= ms), len(self.model[p]))
        assert self.log.offset_for_time("t", p, ms) == expected

    @rule(p=st.sampled_from([0, 1]), data=st.data())
    def read_a_range(self, p: int, data: Any) -> None:
        start = data.draw(st.integers(self.earliest[p], len(self.model[p])))
        end = data.draw(st.integers(start, len(self.model[p])))
        assert self._read(p, start, end) == self.model[p][start:end]
        if self.earliest[p] > 0:
            with pytest.raises(LogError) as caught:
                self.log.read("t", p, self.earliest[p] - 1)
            assert caught.value.code == "HR-LOG-007"

    # What fate does

    @rule(batch=batches, producer=st.sampled_from(["", "p", "q"]), sequence=st.integers(0, 6),
          at=st.sampled_from(POINTS), nth=st.integers(1, 3), data=st.data())  # fmt: skip
    def crash_in_an_append(
        self, batch: Batch, producer: str, sequence: int, at: str, nth: int, data: Any
    ) -> None:
        passed: list[str] = []
        self.crashes += 1  # each leaves records of its own, to be told apart later
        batch = {p: [b"%d:%s" % (self.crashes, r) for r in rs] for p, rs in batch.items()}

        def hook(name: str) -> None:
            passed.append(name)
            if passed.count(at) == nth and passed[-1] == at:
                raise Crash

        crashed = True
        with faults.hooked(hook), suppress(Crash):
            try:
                self._append(batch, producer, sequence)
            except LogError as error:
                assert error.code == "HR-LOG-020"
                assert self._is_another(batch, producer, sequence)
                batch = {}
            crashed = False
        self.log = EmbeddedLog(self.folder, self.clock)
        if not crashed:
            self._note(batch, producer, sequence)
            return
        if data.draw(st.booleans(), "torn"):
            self._tear(data.draw(st.floats(0, 1), "share"))
        if data.draw(st.booleans(), "restarted"):
            self.boot += 1
        if data.draw(st.booleans(), "head damaged"):
            self._harm_the_head(data.draw(st.integers(0, 175)), data.draw(st.booleans()))
        self._take_over(batch, producer, sequence)

    def _tear(self, share: float) -> None:
        """The end of what was not acknowledged never reached the disk."""
        known = load(self.folder / "t")
        assert known is not None
        head, _ = known.head.read()
        assert head is not None
        path = self.folder / "t" / f"{head.segment:020d}.log"
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.truncate(head.position + round((size - head.position) * share))

    @rule()
    def the_machine_restarts(self) -> None:
        self.boot += 1
        self.log = EmbeddedLog(self.folder, self.clock)

    @rule(byte=st.integers(0, 175), second=st.booleans())
    def the_head_is_damaged(self, byte: int, second: bool) -> None:
        self._harm_the_head(byte, second)

    def _harm_the_head(self, byte: int, second: bool) -> None:
        path = self.folder / "t" / "head"
        data = bytearray(path.read_bytes())
        data[4096 * second + byte] ^= 1 << byte % 8
        path.write_bytes(data)

    # What must hold

    @invariant()
    def the_log_is_the_model(self) -> None:
        assert self.log.latest("t") == dict(enumerate(map(len, self.model)))
        for p, earliest in self.log.earliest("t").items():
            gone = self.model[p][self.earliest[p] : earliest]
            assert self.earliest[p] <= earliest
            assert all(time < self.clock.now() - HOUR for _, time in gone)
            self.earliest[p] = earliest
            assert self._read(p, earliest, len(self.model[p])) == self.model[p][earliest:]

    # Bookkeeping

    def _append(self, batch: Batch, producer: str = "", sequence: int = 0) -> None:
        retry = {"producer": producer, "sequence": sequence} if producer else {}
        homes = [p for p, records in batch.items() for _ in records]
        records = [r for records in batch.values() for r in records]
        self.log.append("t", records, partitioner=lambda *_: homes, **retry)

    def _note(self, batch: Batch, producer: str = "", sequence: int = 0) -> None:
        for p, records in self._new(batch, producer, sequence).items():
            self.model[p] += records
        if producer and batch:
            self.made.setdefault((producer, sequence), _records(batch))

    def _is_another(self, batch: Batch, producer: str, sequence: int) -> bool:
        """Whether the number was used for other records."""
        return self.made.get((producer, sequence), _records(batch)) != _records(batch)

    def _new(self, batch: Batch, producer: str, sequence: int) -> dict[int, list[Any]]:
        """What an append adds: its producer may have made it before."""
        if producer and (producer, sequence) in self.made:
            return {}
        last = max([t for records in self.model for _, t in records], default=0)
        now = max(self.clock.now(), last)
        return {p: [(r, now) for r in records] for p, records in batch.items()}

    def _take_over(self, batch: Batch, producer: str, sequence: int) -> None:
        """All of an append that nobody acknowledged, or nothing."""
        self.log.latest("t")  # repairs what it finds
        writer = self.log._topics.find("t").writer
        writer._trusting(lambda: writer._expire(0))  # publishes what is whole
        new = self._new(batch, producer, sequence)
        more = {p: end - len(self.model[p]) for p, end in self.log.latest("t").items()}
        if any(more.values()):
            assert more == {p: len(new.get(p, [])) for p in more}
            self._note(batch, producer, sequence)

    def _read(self, p: int, start: int, end: int) -> list[tuple[bytes, int]]:
        tables = [t for _, t in self.log.read("t", p, start, end, times=True)]
        return [(r["value"], r["__append_time"]) for table in tables for r in table.to_pylist()]


@pytest.fixture(autouse=True)
def the_real_boot_afterwards(monkeypatch):
    monkeypatch.setattr(head, "boot_id", head.boot_id)


TestLog = pytest.mark.usefixtures("the_real_boot_afterwards")(LogMachine.TestCase)
TestLog.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
