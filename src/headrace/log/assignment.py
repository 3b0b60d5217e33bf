"""Which member of a consumer group reads which partition.

Partitions stay where they are as far as that is fair: no member has two more than another that
could read them. Pure, and the same for whoever computes it: no files and no clock here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from headrace.log.clients import TopicPartition

Subscriptions = Mapping[str, Collection[str]]  # member: its topics


def assign(
    members: Subscriptions, partitions: Mapping[str, int], current: Mapping[TopicPartition, str]
) -> dict[TopicPartition, str]:
    """A member for every partition that any of them reads; `current` is who has it now."""
    places = [
        TopicPartition(topic, p) for topic in sorted(partitions) for p in range(partitions[topic])
    ]
    readers = {
        topic: sorted(m for m, topics in members.items() if topic in topics) for topic in partitions
    }
    chosen = {
        place: current[place]
        for place in places
        if place in current and current[place] in readers[place.topic]
    }
    load = Counter({member: 0 for member in members})
    load.update(chosen.values())
    for place in places:
        if place not in chosen and readers[place.topic]:
            _give(place, readers[place.topic], chosen, load)
    while _move(places, readers, chosen, load):
        pass
    return {place: chosen[place] for place in places if place in chosen}


def _give(
    place: TopicPartition, readers: list[str], chosen: dict[TopicPartition, str], load: Counter[str]
) -> None:
    member = min(readers, key=lambda m: (load[m], m))
    chosen[place] = member
    load[member] += 1


def _move(
    places: list[TopicPartition],
    readers: Mapping[str, list[str]],
    chosen: dict[TopicPartition, str],
    load: Counter[str],
) -> bool:
    """Move one partition, of a member with the most, to one that has at least two fewer; whether
    there was one. Each move makes the loads more equal, so there is an end."""
    least = {t: min(who, key=lambda m: (load[m], m)) for t, who in readers.items() if who}
    movable = [p for p in places if p in chosen and load[chosen[p]] - load[least[p.topic]] >= 2]
    if not movable:
        return False
    place = max(movable, key=lambda p: (load[chosen[p]], p))
    load[chosen[place]] -= 1
    _give(place, [least[place.topic]], chosen, load)
    return True
