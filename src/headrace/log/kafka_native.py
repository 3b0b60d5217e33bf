"""Records of Kafka by the C functions of the library that confluent-kafka brings, in batches.

The functions and the struct of a message are librdkafka's public interface, which is stable. Of a
batch of messages NumPy reads the fields, and Arrow copies keys and values from where the library
holds them; then the messages are given back, the one call per record that is left. Nothing here
looks into confluent-kafka's own objects. Where the functions cannot be found, or a property is not
a plain value, there is no native consumer, and whoever asks takes the other one.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.connect.extras import needed
from headrace.log.kafka_fetch import ClientReport, Fetched, KafkaRecords, Wanted

Int64s = npt.NDArray[np.int64]

_CONSUMER = 1  # RD_KAFKA_CONSUMER
_WORD = 8  # bytes: of a pointer, and of every field's place
_GAP = 4_096  # bytes between two values, more than which they are not copied together
_RUNS = 8  # values that lie together, less than which each is copied for itself
_TEXT = 512  # bytes for what the library says


class _Message(ctypes.Structure):
    """rd_kafka_message_t, as rdkafka.h declares it."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


def _place(field: str) -> int:
    """Of a field in a message, in words."""
    return int(getattr(_Message, field).offset) // _WORD


_PLACES = {f: _place(f) for f in ("err", "payload", "len", "key", "key_len", "offset")}

_POINTER, _TEXT_IN, _NUMBER = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_FUNCTIONS: dict[str, tuple[Any, ...]] = {  # what each returns, and takes
    "conf_new": (_POINTER,),
    "conf_set": (_NUMBER, _POINTER, _TEXT_IN, _TEXT_IN, _TEXT_IN, ctypes.c_size_t),
    "conf_destroy": (None, _POINTER),
    "new": (_POINTER, _NUMBER, _POINTER, _TEXT_IN, ctypes.c_size_t),
    "poll_set_consumer": (_NUMBER, _POINTER),
    "queue_get_consumer": (_POINTER, _POINTER),
    "queue_destroy": (None, _POINTER),
    "topic_partition_list_new": (_POINTER, _NUMBER),
    "topic_partition_list_add": (_POINTER, _POINTER, _TEXT_IN, ctypes.c_int32),
    "topic_partition_list_set_offset": (
        _NUMBER, _POINTER, _TEXT_IN, ctypes.c_int32, ctypes.c_int64,
    ),
    "topic_partition_list_destroy": (None, _POINTER),
    "assign": (_NUMBER, _POINTER, _POINTER),
    "consume_batch_queue": (ctypes.c_ssize_t, _POINTER, _NUMBER, _POINTER, ctypes.c_size_t),
    "consumer_close": (_NUMBER, _POINTER),
    "destroy": (None, _POINTER),
    "err2name": (_TEXT_IN, _NUMBER),
}  # fmt: skip
_BRIEF: dict[
    str, tuple[Any, ...]
] = {  # called for each record: not worth letting other threads run meanwhile
    "message_destroy": (None, _POINTER),
    "message_timestamp": (ctypes.c_int64, _POINTER, _POINTER),
}


@cache
def _library() -> SimpleNamespace | None:
    """The functions, by their names without "rd_kafka_", of the library that confluent-kafka
    itself uses: found through its module. None if they are not found."""
    if sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != _WORD:
        return None
    try:
        path = needed("confluent_kafka.cimpl", "kafka", "Kafka").__file__
        found = _declared(ctypes.CDLL(path), _FUNCTIONS) | _declared(ctypes.PyDLL(path), _BRIEF)
    except (OSError, AttributeError, TypeError):
        return None
    return SimpleNamespace(**found)


def _declared(loaded: Any, functions: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    found = {}
    for name, (result, *arguments) in functions.items():
        found[name] = function = getattr(loaded, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return found


def native_fetcher(config: dict[str, Any]) -> NativeFetcher | None:
    """A consumer with these properties; None if there is no native one for them."""
    library = _library()
    plain = all(isinstance(v, str | int | float) for v in config.values())
    if library is None or not plain:
        return None
    said = ctypes.create_string_buffer(_TEXT)
    conf = library.conf_new()
    for name, value in config.items():
        if library.conf_set(conf, name.encode(), str(value).encode(), said, _TEXT):
            library.conf_destroy(conf)  # the other consumer says why
            return None
    client = library.new(_CONSUMER, conf, said, _TEXT)
    if not client:
        library.conf_destroy(conf)
        return None
    return NativeFetcher(library, client)


class NativeFetcher:
    """A consumer of one partition. Not for threads: one call at a time."""

    def __init__(self, library: Any, client: int) -> None:
        self._do, self._client = library, client
        self._do.poll_set_consumer(client)
        self._queue = self._do.queue_get_consumer(client)
        self._room = np.zeros(0, np.int64)  # for pointers to messages
        self._holds = False  # messages that the library waits for

    def assign(self, topic: str, partition: int, offset: int) -> None:
        places = self._do.topic_partition_list_new(1)
        name = topic.encode()
        self._do.topic_partition_list_add(places, name, partition)
        self._do.topic_partition_list_set_offset(places, name, partition, offset)
        self._do.assign(self._client, places)
        self._do.topic_partition_list_destroy(places)

    def close(self) -> None:
        client, self._client = self._client, 0
        if client and not self._holds:  # after Ctrl-C: it would wait for what it has handed out
            self._do.consumer_close(client)
            self._do.queue_destroy(self._queue)
            self._do.destroy(client)

    def fetch(self, count: int, seconds: float, wanted: Wanted) -> Fetched:
        if len(self._room) < count:
            self._room = np.zeros(count, np.int64)
        millis = int(seconds * 1_000)
        self._holds = True
        got = self._do.consume_batch_queue(self._queue, millis, self._room.ctypes.data, count)
        messages = self._room[: max(got, 0)]
        try:
            return self._sorted_out(messages, wanted) if len(messages) else []
        finally:
            deque(map(self._do.message_destroy, messages.tolist()), 0)
            self._holds = False

    def _sorted_out(self, messages: Int64s, wanted: Wanted) -> Fetched:
        fields = _fields(messages)
        errors = fields["err"].astype(np.int32)  # the lower half of its word
        if not errors.any():
            return [self._records(messages, fields, wanted)]
        found: Fetched = []
        first = 0
        for at in [*np.flatnonzero(errors).tolist(), len(messages)]:
            if at > first:
                part = {name: values[first:at] for name, values in fields.items()}
                found.append(self._records(messages[first:at], part, wanted))
            if at < len(messages):
                name = self._do.err2name(int(errors[at])).decode()
                found.append(ClientReport(name, int(fields["offset"][at])))
            first = at + 1
        return found

    def _records(self, messages: Int64s, fields: dict[str, Int64s], wanted: Wanted) -> KafkaRecords:
        values = _copied(fields["payload"], fields["len"])
        keys = _copied(fields["key"], fields["key_len"]) if wanted.key else None
        times = self._times(messages) if wanted.timestamp else None
        return KafkaRecords(fields["offset"], values, keys, None, times)

    def _times(self, messages: Int64s) -> pa.Array:
        """Milliseconds; null where the library says that there are none."""
        kinds = np.zeros(len(messages), np.int32)
        first, size = kinds.ctypes.data, kinds.itemsize
        places = range(first, first + size * len(kinds), size)
        found = map(self._do.message_timestamp, messages.tolist(), places)
        times = np.fromiter(found, np.int64, len(messages))
        return pa.array(times, mask=kinds == 0)


def _fields(messages: Int64s) -> dict[str, Int64s]:
    """The fields of the messages at these addresses."""
    lowest = int(messages.min())
    span = int(messages.max()) - lowest + ctypes.sizeof(_Message)
    words = np.frombuffer(pa.foreign_buffer(lowest, span), np.int64)
    at = (messages - lowest) // _WORD
    return {name: words[at + place] for name, place in _PLACES.items()}


def _copied(starts: Int64s, sizes: Int64s) -> pa.Array:
    """The bytes at these addresses; null where the address is 0."""
    there = starts != 0
    if there.all():
        return _all_copied(starts, sizes)
    found = _all_copied(starts[there], sizes[there])
    return found.take(pa.array(np.cumsum(there) - 1, mask=~there))


def _all_copied(starts: Int64s, sizes: Int64s) -> pa.Array:
    if not len(starts):
        return pa.array([], pa.binary())
    gaps = starts[1:] - starts[:-1] - sizes[:-1]
    cuts = np.flatnonzero((gaps < 0) | (gaps > _GAP)) + 1
    if len(cuts) * _RUNS > len(starts):
        pairs = zip(starts.tolist(), sizes.tolist(), strict=True)
        return pa.array([ctypes.string_at(at, size) for at, size in pairs], pa.binary())
    bounds = [0, *cuts.tolist(), len(starts)]
    runs = [_run(starts[a:b], sizes[a:b]) for a, b in pairwise(bounds)]
    return pa.concat_arrays(runs).cast(pa.binary())


def _run(starts: Int64s, sizes: Int64s) -> pa.Array:
    """Values that lie one after the other: every second one of an array over all of them."""
    bounds = np.empty(2 * len(starts), np.int64)
    bounds[::2] = starts - starts[0]
    bounds[1::2] = bounds[::2] + sizes
    memory = pa.foreign_buffer(int(starts[0]), int(bounds[-1]))
    whole = pa.Array.from_buffers(
        pa.large_binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), memory]
    )
    return whole.take(pa.array(np.arange(0, len(bounds), 2)))
