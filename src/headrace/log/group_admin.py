"""Looking at consumer groups and setting their offsets: what `EmbeddedLog` has for that.

Reads take no lock. Setting offsets, and deleting a group, is refused while anybody is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import LogError
from headrace.log.arguments import check_moment, check_offset
from headrace.log.clients import TopicPartition
from headrace.log.consumer_groups import GroupFiles, group_names
from headrace.log.contract import TopicInfo
from headrace.log.group_membership import CommittedOffset


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A living member of a group."""

    id: str
    pid: int
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group: who is in it and how far it is."""

    name: str
    generation: int
    members: tuple[MemberInfo, ...]
    committed: Mapping[TopicPartition, int]
    lag: Mapping[TopicPartition, int]  # how many offsets follow what is committed

    @property
    def active(self) -> bool:
        """Whether it has members that read now."""
        return bool(self.members)


class GroupAdmin:
    """The methods of a log that are about its consumer groups."""

    root: Path

    @property
    def patience(self) -> float:
        raise NotImplementedError

    def topics(self) -> list[str]:
        raise NotImplementedError

    def describe(self, topic: str) -> TopicInfo:
        raise NotImplementedError

    def offset_for_time(self, topic: str, partition: int, ms: int) -> int:
        raise NotImplementedError

    def groups(self) -> list[str]:
        """The names of all consumer groups, in order."""
        return [name for name in group_names(self.root) if self._files(name).exists()]

    def group(self, name: str) -> GroupInfo:
        """Who is in a group, what it has committed, and how far it is behind."""
        files = self._existing(name)
        state, active = files.membership(), files.active()
        members = tuple(
            MemberInfo(m, who.pid, who.host, tuple(sorted(state.of(m))))
            for m, who in active.items()
        )
        committed, lag = {}, {}
        infos = {t: self.describe(t) for t in self.topics()}
        for place, stored in sorted(files.offsets().items()):
            info = infos.get(place.topic)
            if info is not None and info.id == stored.id:
                committed[place] = stored.offset
                lag[place] = info.latest[place.partition] - stored.offset
        return GroupInfo(name, state.generation, members, committed, lag)

    def reset_offsets(
        self,
        group: str,
        topic: str,
        to: str | int | Mapping[int, int] | None = None,
        *,
        time: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Set where a group that nobody is in goes on with a topic; what was set.

        `to` is "earliest", "latest", an offset for all partitions, or one by partition; `time` is a
        moment in milliseconds: the first record appended at or after it.
        """
        info = self.describe(topic)
        wanted = self._offsets(info, to, time)
        files = self._files(group)
        files.reset({place: CommittedOffset(info.id, offset) for place, offset in wanted.items()})
        return wanted

    def delete_group(self, name: str) -> None:
        """Remove a group that nobody is in, and what it has committed."""
        self._existing(name).delete()

    def _offsets(self, info: TopicInfo, to: Any, time: int | None) -> dict[TopicPartition, int]:
        partitions = range(info.partitions)
        if (to is None) == (time is None):
            raise LogError(
                "HR-LOG-019",
                "cannot use " + ("both `to` and `time`" if to is not None else "no offset"),
                'Give "earliest", "latest", an offset, offsets by partition, or time=...',
            )
        if time is not None:
            check_moment(time)
            by = {p: self.offset_for_time(info.name, p, time) for p in partitions}
        elif to in ("earliest", "latest"):
            by = dict(enumerate(info.earliest if to == "earliest" else info.latest))
        else:
            by = dict(to) if isinstance(to, Mapping) else dict.fromkeys(partitions, to)
        for p, offset in by.items():
            check_offset(offset)
            if p not in partitions:
                raise LogError(
                    "HR-LOG-005",
                    f"topic '{info.name}' has no partition {p!r}",
                    f"It has partitions 0 to {info.partitions - 1}.",
                )
            if not info.earliest[p] <= offset <= info.latest[p]:
                raise LogError(
                    "HR-LOG-007",
                    f"offset {offset} is outside partition {p} of topic '{info.name}', which "
                    f"holds [{info.earliest[p]}, {info.latest[p]})",
                    "Nothing was set. Choose an offset that it holds, or the one after its last.",
                )
        return {TopicPartition(info.name, p): offset for p, offset in sorted(by.items())}

    def _files(self, name: str) -> GroupFiles:
        return GroupFiles(self.root, name, self.patience)

    def _existing(self, name: str) -> GroupFiles:
        files = self._files(name)
        if not files.exists():
            known = ", ".join(self.groups()) or "none"
            raise LogError(
                "HR-LOG-025",
                f"the log '{self.root}' has no consumer group '{name}'",
                f"Its groups: {known}. A group is made by its first consumer.",
            )
        return files
