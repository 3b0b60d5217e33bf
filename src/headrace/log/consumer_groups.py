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

import fcntl
import json
import os
import secrets
import shutil
import struct
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from headrace.errors import LogError
from headrace.files import (
    close_lock,
    file_name,
    lock_files,
    make_folder,
    replace_durably,
    sync_folder,
)
from headrace.log.assignment import assign
from headrace.log.clients import TopicPartition
from headrace.log.contract import unreadable
from headrace.log.head import boot_id
from headrace.log.lock import locked
from headrace.state.faults import point

FOLDER = ".groups"
FORMAT = 1
_NAME_MAX = 255  # bytes of a folder's name
_BEAT = struct.Struct("<16sqI")


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
        data = _load(self.folder / "members")
        return Membership() if data is None else Membership.load(data)

    def offsets(self) -> Offsets:
        data = _load(self.folder / "offsets")
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
        _store(self.folder / "offsets", {"offsets": rows})

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
                _store(self.folder / "members", state.dump())
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
        try:
            fd = os.open(self._beat(name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        lock_files.add(fd)
        try:
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return True  # its process is gone, and the lock with it
            boot, at, crc = _BEAT.unpack(os.pread(fd, _BEAT.size, 0))
        except struct.error:
            return False  # it is being written
        finally:
            close_lock(fd)
        if crc != zlib.crc32(_BEAT.pack(boot, at, 0)):
            return False
        return bool(boot != boot_id() or now_ms() - at > member.session_ms)


class Heartbeat:
    """A member's file; its lock shows that the process lives, its content when it last said so."""

    def __init__(self, path: Path, member: str) -> None:
        self.member = member
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        lock_files.add(self._fd)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self.beat()

    def beat(self) -> None:
        packed = _BEAT.pack(boot_id(), now_ms(), 0)
        boot, at, _ = _BEAT.unpack(packed)
        os.pwrite(self._fd, _BEAT.pack(boot, at, zlib.crc32(packed)), 0)

    def close(self) -> None:
        close_lock(self._fd)


def now_ms() -> int:
    """Milliseconds of a clock that nobody sets, the same in all processes since the boot."""
    return time.monotonic_ns() // 1_000_000


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


def _load(path: Path) -> dict[str, Any] | None:
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        data: dict[str, Any] = json.loads(raw)
        if data.pop("crc") != _crc(data):
            raise ValueError("checksum")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogError(
            "HR-LOG-011",
            f"the file '{path}' of a consumer group is damaged",
            "Restore it from a copy; or remove the group's folder, and set its offsets again.",
        ) from error
    if data["format"] != FORMAT:
        raise LogError(
            "HR-LOG-014",
            f"'{path}' has format {data['format']}, this version reads {FORMAT}",
            "Use the version of headrace that wrote it, or a later one.",
        )
    return data


def _store(path: Path, content: Mapping[str, Any]) -> None:
    data = {"format": FORMAT, **content}
    replace_durably(path, json.dumps({**data, "crc": _crc(data)}).encode())


def _crc(data: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True).encode())
