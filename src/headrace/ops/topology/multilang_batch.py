"""The tuples of one batch of a task, sent to a child, and what it answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from headrace.ops.topology.bolt import DEFAULT
from headrace.ops.topology.multilang_process import SAID, Child, ChildError, Exchange, encode, shown

HEARTBEAT = "__heartbeat"
_NO_TASK_IDS = encode([])  # which tasks read a tuple is decided after it was emitted
_WAITING, _ACKED, _FAILED = range(3)
_REASON = "failed by its bolt"


class TupleBatch:
    """`texts` are the messages of the tuples, without their ids."""

    def __init__(
        self, child: Child, texts: Sequence[str], streams: Collection[str], direct: Collection[str]
    ) -> None:
        self._child, self._streams, self._direct = child, streams, direct
        first, child.ids = child.ids, child.ids + len(texts)  # no id comes twice in its life
        self._places = {str(first + place): place for place in range(len(texts))}
        messages = zip(self._places, texts, strict=True)
        self._talk = Exchange(child, [f'{{"id":"{id}",{t}\nend\n'.encode() for id, t in messages])
        self._status, self._waiting = bytearray(len(texts)), len(texts)
        self._oldest = 0  # no tuple before this one waits
        self._rows: dict[str, tuple[list[Any], list[list[int]], list[int]]] = {
            stream: ([], [], []) for stream in streams
        }
        self._last_error: str | None = None
        self.failed: dict[int, str] = {}

    def run(self) -> None:
        """Until every tuple is acked or failed, and a heartbeat after that is answered."""
        beating = False
        for message in self._talk.messages(self._waits_for):
            command = message.get("command")
            if command == "emit":
                self._emit(message)
            elif command == "ack" or command == "fail":
                self._settle(message, command)
            elif command in SAID:
                self._child.log(message)
                if command == "error":
                    self._last_error = str(message.get("msg"))
                continue  # it does not get on by that
            elif command != "sync":
                raise self._wrong(f"sent an unknown command: {shown(message)}")
            elif beating:
                return
            else:
                continue
            self._talk.alive()
            if not self._waiting and not beating:
                self._talk.send(self._heartbeat())
                beating = True

    def emitted(self, stream: str) -> tuple[list[Any], list[int], list[bool]]:
        """The tuples of a stream in order, for which tuple each was emitted, and whether it counts:
        not if one that it is anchored to failed."""
        tuples, anchors, places = self._rows[stream]
        if not self.failed:
            return tuples, places, [True] * len(tuples)
        status = self._status
        return tuples, places, [all(status[a] == _ACKED for a in of) for of in anchors]

    def _waits_for(self) -> str:
        if not self._waiting:
            return "the answer to a heartbeat, a sync"
        return f"an ack, a fail or an emit, and {self._waiting:,} of its tuples wait"

    def _heartbeat(self) -> bytes:
        self._child.ids += 1
        about = {"comp": "__system", "stream": HEARTBEAT, "task": -1, "tuple": []}
        return encode({"id": str(self._child.ids - 1), **about})

    def _place(self, id: Any, what: str) -> int:
        """The tuple of an id, which must wait."""
        place = self._places.get(id) if type(id) is str else None
        if place is None:
            raise self._wrong(f"{what} the id {shown(id)}, which no tuple of its batch has")
        if self._status[place] != _WAITING:
            done = "acked" if self._status[place] == _ACKED else "failed"
            raise self._wrong(f"{what} the tuple {id}, which it had {done} before")
        return place

    def _settle(self, message: dict[str, Any], command: str) -> None:
        place = self._place(message.get("id"), f"{command}ed")
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
        tuples, of, places = self._rows[stream]
        tuples.append(values)
        of.append(anchors)
        places.append(max(anchors) if anchors else self._current())

    def _current(self) -> int:
        """The oldest tuple that waits: it is the one that a program is at which takes them in turn;
        the last one if all are done."""
        at = self._status.find(_WAITING, self._oldest)
        self._oldest = at if at >= 0 else len(self._status)
        return min(self._oldest, len(self._status) - 1)

    def _wrong(self, text: str) -> ChildError:
        return self._child.error(text)
