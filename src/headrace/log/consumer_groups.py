"""Consumer groups of the embedded log: who reads which partition, and how far the group is.

    <log>/.groups/<group>/offsets        committed offsets, by topic and its id
    <log>/.groups/<group>/members        generation, members, who holds which partition
    <log>/.groups/<group>/<member>.beat  the last heartbeat, locked while the member's process lives
    <log>/.groups/<group>/lock           held by whoever changes the first two

`offsets` and `members` are replaced as a whole, with a checksum, and are durable. Each partition
has a holder, and a target: who should have it. When members come and go, the generation grows and
targets are computed anew; a holder that is no longer the target commits, then releases. Only the
holder, of the generation in which it became that, may commit: so a member that was taken for dead
cannot commit over its successor. A member is dead when its heartbeat is older than its session, by
a clock that only this boot of the machine has, or when its process is gone.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from headrace.errors import LogError
from headrace.files import file_name, make_folder, sync_folder
from headrace.log.clients import TopicPartition
from headrace.log.contract import unreadable
from headrace.log.group_membership import CommittedOffset, GroupMember, Membership, Offsets
from headrace.log.heartbeats import Heartbeat, has_stopped
from headrace.log.lock import locked
from headrace.log.sealed import load_sealed, store_sealed
from headrace.state.faults import point

FOLDER = ".groups"
FORMAT = 1
_NAME_MAX = 255  # bytes of a folder's name


class GroupFiles:
    """One group of a log. What it says is what its files said when it was called."""

    def __init__(self, root: Path, name: str, patience: float) -> None:
        self.name = name
        self.folder = root / FOLDER / _folder_name(name)
        self._patience = patience

    def exists(self) -> bool:
        return (self.folder / "members").exists() or (self.folder / "offsets").exists()

    def stamp(self) -> tuple[int, int]:
        """What changes whenever the membership does. Cheap."""
        try:
            found = os.stat(self.folder / "members")
        except FileNotFoundError:
            return 0, 0
        return found.st_ino, found.st_mtime_ns

    def membership(self) -> Membership:
        data = load_sealed(self.folder / "members", FORMAT, _damaged)
        return Membership() if data is None else Membership.load(data)

    def offsets(self) -> Offsets:
        data = load_sealed(self.folder / "offsets", FORMAT, _damaged)
        if data is None:
            return {}
        return {
            TopicPartition(t, p): CommittedOffset(id, offset)
            for t, p, id, offset in data["offsets"]
        }

    def active(self) -> dict[str, GroupMember]:
        """The members that are alive."""
        members = self.membership().members
        return {n: m for n, m in members.items() if not self._is_dead(n, m)}

    # Members

    def join(self, member: GroupMember, partitions: Mapping[str, tuple[str, int]]) -> Heartbeat:
        """A new member; its partitions come with `sync`."""
        make_folder(self.folder.parent)
        make_folder(self.folder)
        name = secrets.token_hex(8)
        with self._changing() as state:
            beat = Heartbeat(self._beat(name), name)
            state.members[name] = member
            state.partitions |= partitions
            state.rebalance()
        return beat

    def leave(self, member: str) -> None:
        if not self.exists():
            return
        with self._changing() as state:
            if state.members.pop(member, None) is not None:
                state.rebalance()

    def sync(
        self,
        member: str,
        partitions: Mapping[str, tuple[str, int]],
        released: Collection[TopicPartition],
    ) -> dict[TopicPartition, int]:
        """Release what another should have, take what is free; what the member holds now.

        HR-LOG-021 if it is not a member any more.
        """
        with self._changing() as state:
            if member not in state.members:
                raise fenced(self.name)
            for place in released:
                if state.holders.get(place, ("", 0))[0] == member:
                    del state.holders[place]
            if any(state.partitions.get(topic) != new for topic, new in partitions.items()):
                replaced = [t for t, new in partitions.items() if state.partitions.get(t) != new]
                state.partitions |= partitions
                state.holders = {p: h for p, h in state.holders.items() if p.topic not in replaced}
                state.rebalance()
            for place, target in state.targets.items():
                if target == member and place not in state.holders:
                    state.holders[place] = (member, state.generation)
            return state.of(member)

    def expire(self) -> None:
        """Remove dead members, if there are any."""
        members = self.membership().members
        if any(self._is_dead(name, member) for name, member in members.items()):
            with self._changing():
                pass

    # Offsets

    def commit(self, offsets: Offsets, member: str, held: Mapping[TopicPartition, int]) -> None:
        """Store offsets of partitions that the member holds since these generations."""
        with self._failing("commit"), locked(self.folder / "lock", self._patience):
            holders = self.membership().holders
            for place in offsets:
                if holders.get(place) != (member, held.get(place)):
                    raise fenced(self.name, place)
            self._store_offsets(self.offsets() | offsets)

    def begin(self, offsets: Offsets) -> Offsets:
        """Store where partitions begin of which nothing is committed yet; what is, of these."""
        with self._failing("commit"), locked(self.folder / "lock", self._patience):
            stored = self.offsets()
            new = {
                place: offset
                for place, offset in offsets.items()
                if place not in stored or stored[place].id != offset.id
            }
            if new:
                stored |= new
                self._store_offsets(stored)
            return {place: stored[place] for place in offsets}

    def reset(self, offsets: Offsets) -> None:
        """Store offsets for a group that nobody is in; HR-LOG-024 if anybody is."""
        make_folder(self.folder.parent)
        make_folder(self.folder)
        with self._changing() as state:
            self._refuse_active(state, "set the offsets of")
            self._store_offsets(self.offsets() | offsets)

    def delete(self) -> None:
        """Remove the group and what it has committed; HR-LOG-024 if anybody is in it."""
        self.expire()
        with self._failing("delete"), locked(self.folder / "lock", self._patience):
            self._refuse_active(self.membership(), "delete")
            shutil.rmtree(self.folder)
            sync_folder(self.folder.parent)

    def _store_offsets(self, offsets: Offsets) -> None:
        rows = [[*place, o.id, o.offset] for place, o in sorted(offsets.items())]
        point("log.group.offsets")
        store_sealed(self.folder / "offsets", FORMAT, {"offsets": rows})

    def _refuse_active(self, state: Membership, verb: str) -> None:
        if state.members:
            pids = ", ".join(str(m.pid) for m in state.members.values())
            raise LogError(
                "HR-LOG-024",
                f"cannot {verb} group '{self.name}': it has {len(state.members)} active members "
                f"(processes {pids})",
                "Stop its consumers first; one that was killed is gone after its session.",
            )

    @contextmanager
    def _changing(self) -> Iterator[Membership]:
        """The membership without dead members; stored at the end if it has changed."""
        with self._failing("change"), locked(self.folder / "lock", self._patience):
            state = self.membership()
            before = state.dump()
            dead = [name for name, m in state.members.items() if self._is_dead(name, m)]
            for name in dead:
                del state.members[name]
            if dead:
                state.rebalance()
            yield state
            if state.dump() != before:
                point("log.group.members")
                store_sealed(self.folder / "members", FORMAT, state.dump())
            for name in before["members"].keys() - state.members.keys():
                self._beat(name).unlink(missing_ok=True)

    @contextmanager
    def _failing(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LogError(
                "HR-LOG-010",
                f"cannot {verb} group '{self.name}': {error.strerror or error} ({self.folder})",
                "Nothing was stored. Free space or repair the permissions, and try again.",
            ) from error

    def _beat(self, member: str) -> Path:
        return self.folder / f"{member}.beat"

    def _is_dead(self, name: str, member: GroupMember) -> bool:
        return has_stopped(self._beat(name), member.session_ms)


def group_names(root: Path) -> list[str]:
    """The groups of a log, in order."""
    try:
        names = os.listdir(root / FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(root / FOLDER, error) from error
    return sorted(unquote(name) for name in names)


def committed(root: Path, topic: str, id: str, earliest: Sequence[int]) -> list[int] | None:
    """By partition: what all groups that read the topic have committed; None if none does."""
    every = [GroupFiles(root, name, 0).offsets() for name in group_names(root)]
    readers = [
        {
            place.partition: o.offset
            for place, o in offsets.items()
            if (place.topic, o.id) == (topic, id)
        }
        for offsets in every
    ]
    readers = [offsets for offsets in readers if offsets]
    if not readers:
        return None
    return [min(offsets.get(p, first) for offsets in readers) for p, first in enumerate(earliest)]


def _folder_name(group: str) -> str:
    try:
        name = file_name(group)
    except UnicodeEncodeError as error:  # half of a character
        raise unusable_name(group) from error
    if len(name) > _NAME_MAX:
        raise unusable_name(group)
    return name


def unusable_name(group: Any) -> LogError:
    return LogError(
        "HR-LOG-022",
        f"{group!r} cannot be the name of a group",
        "Give a text of at most 80 characters; fewer if they are not letters of English.",
    )


def fenced(group: str, place: TopicPartition | None = None) -> LogError:
    what = (
        "this consumer is not a member any more"
        if place is None
        else f"partition {place.partition} of topic '{place.topic}' belongs to another member now"
    )
    return LogError(
        "HR-LOG-021",
        f"group '{group}': {what}",
        "Nothing was committed; the other member goes on from what was. poll() joins again. If "
        "that happens often, poll more often, or give the consumer a longer session or max_poll.",
    )


def _damaged(path: Path) -> LogError:
    return LogError(
        "HR-LOG-011",
        f"the file '{path}' of a consumer group is damaged",
        "Restore it from a copy; or remove the group's folder, and set its offsets again.",
    )
