"""Who is in a consumer group, and who holds what: a value, and how it is shared out anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.log.assignment import assign
from headrace.log.clients import TopicPartition


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset, and the topic that it is of: one made again has another id."""

    id: str
    offset: int


Offsets: TypeAlias = dict[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer that is in the group."""

    topics: tuple[str, ...]
    session_ms: int
    pid: int
    host: str


@dataclass(slots=True)
class Membership:
    """Who is in a group, and who holds what."""

    generation: int = 0
    members: dict[str, GroupMember] = field(default_factory=dict)
    partitions: dict[str, tuple[str, int]] = field(default_factory=dict)  # topic: id, how many
    holders: dict[TopicPartition, tuple[str, int]] = field(
        default_factory=dict
    )  # member, generation
    targets: dict[TopicPartition, str] = field(default_factory=dict)

    def rebalance(self) -> None:
        """A new generation, with targets for the members that there are now."""
        self.generation += 1
        read = {topic for member in self.members.values() for topic in member.topics}
        self.partitions = {t: p for t, p in self.partitions.items() if t in read}
        self.holders = {
            place: held
            for place, held in self.holders.items()
            if held[0] in self.members
            and place.partition < self.partitions.get(place.topic, ("", 0))[1]
        }
        current = self.targets | {place: held[0] for place, held in self.holders.items()}
        self.targets = assign(
            {name: member.topics for name, member in self.members.items()},
            {topic: count for topic, (_, count) in self.partitions.items()},
            current,
        )

    def of(self, member: str) -> dict[TopicPartition, int]:
        """What a member holds, and since which generation."""
        return {p: since for p, (name, since) in self.holders.items() if name == member}

    def dump(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "members": {
                name: [list(m.topics), m.session_ms, m.pid, m.host]
                for name, m in self.members.items()
            },
            "partitions": self.partitions,
            "holders": [[*place, *held] for place, held in self.holders.items()],
            "targets": [[*place, name] for place, name in self.targets.items()],
        }

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Membership:
        return cls(
            data["generation"],
            {n: GroupMember(tuple(t), s, p, h) for n, (t, s, p, h) in data["members"].items()},
            {topic: (id, count) for topic, (id, count) in data["partitions"].items()},
            {TopicPartition(t, p): (name, since) for t, p, name, since in data["holders"]},
            {TopicPartition(t, p): name for t, p, name in data["targets"]},
        )
