"""How often a bolt's tuples are processed again: what a topology and a bolt say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.clock import millis
from headrace.errors import PlanError
from headrace.ops.topology.bolt import EVENT, Bolt
from headrace.ops.topology.waiting import Reliability

REPLAYS = ("max_replays", "backoff", "timeout")
_MOST_REPLAYS = 1_000


def reliability(
    id: str, bolt: Bolt, options: dict[str, Any], defaults: Mapping[str, Any]
) -> Reliability:
    """What its options, which are taken out, and the topology say; refuses what cannot be."""
    own = {name: options.pop(name) for name in REPLAYS if name in options}
    said = {**defaults, **own}
    count = said["max_replays"]
    if type(count) is not int or not 0 <= count <= _MOST_REPLAYS:
        raise PlanError(
            "HR-TOPOLOGY-031",
            f"the bolt {id!r} has max_replays {count!r}",
            f"Give a whole number from 0 to {_MOST_REPLAYS}; 0: a tuple that fails is a dead "
            "letter at once.",
        )
    backoff, timeout = millis(said["backoff"]), millis(said["timeout"])
    if backoff < 0 or timeout < 1:
        raise PlanError(
            "HR-TOPOLOGY-031",
            f"the bolt {id!r} has backoff {said['backoff']!r} and timeout {said['timeout']!r}",
            'Give lengths of time: backoff="1s", timeout="30s".',
        )
    if not _by_event_time(type(bolt)):
        return Reliability(count, backoff, timeout)
    if own.get("max_replays") or type(bolt).acks:
        raise PlanError(
            "HR-TOPOLOGY-032",
            f"the bolt {id!r} goes by event time, in its ticks or the life of its state, which "
            "would not wait for tuples that are processed again or acked later",
            'Tick by the clock (tick_by = "clock"), or say max_replays=0 and leave acks out: a '
            "tuple that fails is then a dead letter at once.",
        )
    return Reliability(0, backoff, timeout)


def _by_event_time(kind: type[Bolt]) -> bool:
    ticks = kind.tick_every is not None and kind.tick_by == EVENT
    return ticks or any(v.ttl is not None and not v.by_clock for v in kind._kept.values())
