"""Tuples of a task, sent to a child, and what it answers.

A batch ends with a heartbeat, which follows the tuples. A child that takes them in turn answers it
after all of them; what is not acked then waits, or is waited for: another heartbeat follows. Some
programs send a sync unasked, with each error that they report: after an error it is no answer yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.clock import pretty
from headrace.ops.topology.bolt import DEFAULT
from headrace.ops.topology.multilang_process import (
    SAID,
    Child,
    ChildError,
    Exchange,
    SilentError,
    encode,
    shown,
)

HEARTBEAT, TICK = "__heartbeat", "__tick"
_NO_TASK_IDS = encode([])  # which tasks read a tuple is decided after it was emitted
_WAITING, _ACKED, _FAILED = range(3)
_DID = {"ack": "acked", "fail": "failed"}
_TICK = -1  # the place of a tick
_REASON = "failed by its bolt"


@dataclass
class Unsettled:
    """Tuples that a child has had, and what it has emitted for them: some it has not acked, the
    others are anchored to with one of these."""

    ids: list[str]  # by which the child knows them
    status: bytearray
    rows: list[tuple[str, Any, list[int]]]  # stream, values, and the anchors by their place here
    identities: list[Hashable]  # of the tuples, also in another process


class TupleBatch:
    """`texts` are the messages of the tuples, without their ids. Their places are after those of
    the tuples that a batch before has left."""

    def __init__(
        self,
        child: Child,
        texts: Sequence[str],
        streams: Collection[str],
        direct: Collection[str],
        before: Unsettled | None = None,
        tick: int = 0,
    ) -> None:
        self._child, self._streams, self._direct = child, streams, direct
        self._rows: dict[str, tuple[list[Any], list[list[int]], list[int]]] = {
            stream: ([], [], []) for stream in streams
        }
        self._places: dict[str, int] = {}
        self._status, begins = bytearray(), 0
        if before is not None:
            begins, self._status = len(before.ids), before.status
            self._places = {id: place for place, id in enumerate(before.ids)}
            for stream, values, anchors in before.rows:
                tuples, of, places = self._rows[stream]
                tuples.append(values)
                of.append(anchors)
                places.append(max(anchors))
        first, child.ids = child.ids, child.ids + len(texts)  # no id comes twice in its life
        ids = [str(first + place) for place in range(len(texts))]
        self._places.update(zip(ids, range(begins, begins + len(ids)), strict=True))
        messages = zip(ids, texts, strict=True)
        self._talk = Exchange(child, [f'{{"id":"{id}",{t}\nend\n'.encode() for id, t in messages])
        self._status += bytearray(len(texts))
        self._waiting = self._status.count(_WAITING)
        self._oldest = 0  # no tuple before this one waits
        self._tick = self._send(TICK, [tick // 1_000 or 1]) if tick else None
        self._send(HEARTBEAT, [])
        self._beating = True  # it has a heartbeat to answer
        self._last_error: str | None = None
        self._doubtful = False  # its next sync may belong to an error, and not to a heartbeat
        self.failed: dict[int, str] = {}
        self.unsettled: set[int] = set()
        self.expired = False  # some were not acked in time, and the child may still have them

    def run(self, *, ends_unacked: bool) -> None:
        """Until every tuple is acked or failed, and a heartbeat after that is answered; or, if it
        `ends_unacked`, until one after all tuples is answered."""
        try:
            self._run(ends_unacked)
        except SilentError as error:
            if self._beating or not self._waiting:
                raise
            reason = f"neither acked nor failed within {pretty(self._child.command.timeout)}"
            said = error.said()
            self._fail_unsettled(
                f"{reason}; its standard error ends with: {said}" if said else reason
            )
            return
        if self._waiting:
            self.unsettled = self._linked()

    def _run(self, ends_unacked: bool) -> None:
        for message in self._talk.messages(self._waits_for):
            command = message.get("command")
            if command == "emit":
                self._emit(message)
            elif command == "ack" or command == "fail":
                self._settle(message, command)
            elif command in SAID:
                self._child.log(message)
                if command == "error":
                    self._last_error, self._doubtful = str(message.get("msg")), True
                continue  # it does not get on by that
            elif command != "sync":
                raise self._wrong(f"sent an unknown command: {shown(message)}")
            elif self._beating and self._answers_heartbeat():
                self._beating = False
                if ends_unacked or not self._waiting:
                    return
            else:
                continue
            self._talk.alive()
            if not self._waiting and not self._beating:
                self._send(HEARTBEAT, [])
                self._beating = True

    def _answers_heartbeat(self) -> bool:
        """Whether a sync does: not one that came too early, nor the first after an error. pystorm
        reports an exception by both, before it fails the tuple or ends."""
        if not self._talk.delivered:
            return False
        if self._doubtful:
            self._doubtful = False
            self._send(HEARTBEAT, [])
            return False
        return True

    def emitted(self, stream: str) -> tuple[list[Any], list[int], list[bool]]:
        """The tuples of a stream in order, for which tuple each was emitted, and whether it counts:
        not if one that it is anchored to failed, or is not settled yet."""
        tuples, anchors, places = self._rows[stream]
        if not self.failed and not self.unsettled:
            return tuples, places, [True] * len(tuples)
        return tuples, places, [self._counts(of) for of in anchors]

    def _counts(self, anchors: list[int]) -> bool:
        status, unsettled = self._status, self.unsettled
        return all(status[a] == _ACKED and a not in unsettled for a in anchors)

    def left(self, identity: Callable[[int], Hashable]) -> Unsettled | None:
        """What the child has had and not settled, for its next batch; by place its `identity`."""
        old = sorted(self.unsettled)
        if not old:
            return None
        new = {place: at for at, place in enumerate(old)}
        ids = {place: id for id, place in self._places.items()}
        rows = [
            (stream, values, [new[a] for a in anchors])
            for stream, (tuples, of, _) in self._rows.items()
            for values, anchors in zip(tuples, of, strict=True)
            if anchors and all(a in new for a in anchors)
        ]
        status = bytearray(self._status[place] for place in old)
        return Unsettled([ids[p] for p in old], status, rows, [identity(p) for p in old])

    def _linked(self) -> set[int]:
        """The tuples that wait, and those that share with them, or with others of these, what was
        emitted: it can be emitted only once all are acked."""
        shared = defaultdict[int, list[list[int]]](list)
        for _, of, _ in self._rows.values():
            for anchors in of:
                if len(anchors) > 1 and not any(self._status[a] == _FAILED for a in anchors):
                    for anchor in anchors:
                        shared[anchor].append(anchors)
        found = {place for place, status in enumerate(self._status) if status == _WAITING}
        new = list(found)
        while new:
            for anchors in shared.pop(new.pop(), ()):
                new += [a for a in anchors if a not in found]
                found.update(anchors)
        return found

    def _fail_unsettled(self, reason: str) -> None:
        self.expired = True
        for place in self._linked():
            self._status[place] = _FAILED
            self.failed[place] = reason

    def _waits_for(self) -> str:
        if not self._waiting or self._beating:
            return "an answer to a heartbeat, a sync" + self._open()
        return "an ack, a fail or an emit" + self._open()

    def _open(self) -> str:
        return f", and {self._waiting:,} of its tuples wait" if self._waiting else ""

    def _send(self, stream: str, values: list[int]) -> str:
        """Send a message of the system; its id."""
        self._child.ids += 1
        id = str(self._child.ids - 1)
        about = {"comp": "__system", "stream": stream, "task": -1, "tuple": values}
        self._talk.send(encode({"id": id, **about}))
        return id

    def _place(self, id: Any, what: str) -> int:
        """The tuple of an id, which must wait."""
        place = self._places.get(id) if type(id) is str else None
        if place is None and self._tick is not None and id == self._tick:
            return _TICK
        if place is None:
            raise self._wrong(f"{what} the id {shown(id)}, which no tuple of its batch has")
        if self._status[place] != _WAITING:
            done = "acked" if self._status[place] == _ACKED else "failed"
            raise self._wrong(f"{what} the tuple {id}, which it had {done} before")
        return place

    def _settle(self, message: dict[str, Any], command: str) -> None:
        place = self._place(message.get("id"), _DID[command])
        if place == _TICK:
            return  # nobody waits for it
        self._status[place] = _ACKED if command == "ack" else _FAILED
        self._waiting -= 1
        if command == "fail":
            self.failed[place] = str(message.get("msg") or self._last_error or _REASON)
        self._last_error = None

    def _emit(self, message: dict[str, Any]) -> None:
        stream, values, task = message.get("stream"), message.get("tuple"), message.get("task")
        stream = DEFAULT if stream is None else stream
        if type(stream) is not str or stream not in self._streams:
            raise self._wrong(f"emitted to {shown(stream)}, which is no stream of it")
        if stream in self._direct:
            if type(task) is not int:
                raise self._wrong(f"emitted to {stream!r}, a direct stream, and named no task")
            values = [*values, task] if type(values) is list else values
        elif task:
            raise self._wrong(f"emitted to the task {shown(task)}, and {stream!r} is not direct")
        elif message.get("need_task_ids") in (True, None):
            self._talk.answer(_NO_TASK_IDS)
        ids = message.get("anchors")
        ids = [ids] if type(ids) is str else ids  # as in Storm
        if type(ids) is not list and ids is not None:
            raise self._wrong(f"emitted with the anchors {shown(ids)}, which are no list")
        anchors = [self._place(id, "emitted, anchored to") for id in ids or ()]
        if self._tick is not None:
            anchors = [place for place in anchors if place != _TICK]
        tuples, of, places = self._rows[stream]
        tuples.append(values)
        of.append(anchors)
        places.append(max(anchors) if anchors else self._current())

    def _current(self) -> int:
        """The oldest tuple that waits: it is the one that a program is at which takes them in turn;
        the last one if all are done, or -1 if a tick comes after them."""
        at = self._status.find(_WAITING, self._oldest)
        self._oldest = at if at >= 0 else len(self._status)
        last = -1 if self._tick is not None else len(self._status) - 1
        return at if at >= 0 else last

    def _wrong(self, text: str) -> ChildError:
        return self._child.error(text)
