"""A look at the files of an input: which may have changed since the look before.

`Listed` lists the folder at every look. `Notified` lists it once, and learns from the operating
system at which names something happens after that: they are looked at as they are now, so it does
not matter what happened, in which order, or to which of two folders that had the name. A folder is
watched before its entries are read. It lists again whenever it cannot be certain that it knows of
everything: after an error, when notes were lost, when the path leads to another folder, if there is
a symbolic link, and from time to time, because what other machines do is not noted.
"""

from __future__ import annotations

import logging
import os
import time
from typing import NamedTuple, Protocol

from headrace.sources.inotify import DROPPED, Inotify
from headrace.sources.scan import PathPattern, ScannedFile
from headrace.sources.walk import FolderWalk, WalkedFolder

MANY = 500  # files: listing more takes time, and is done for a tenth of the time at most
AGAIN = 60  # seconds after which a folder is listed whatever was noted

Changes = set[tuple[WalkedFolder, str]]

LOG = logging.getLogger("headrace.files")


class Look(NamedTuple):
    files: list[ScannedFile]  # in no order
    names: set[str] | None  # only files of these names were looked at; None: all there are


class Looks(Protocol):
    def look(self) -> Look | None:
        """What may have changed since the last look that was done; None if it is too early."""
        ...

    def done(self) -> None:
        """All that the last look has shown is stored: the next one need not show it again."""
        ...

    def at_once(self) -> None:
        """The next look is never too early."""
        ...


class Listed:
    def __init__(self, pattern: PathPattern) -> None:
        self._pattern = pattern
        self._rest_until = 0.0

    def look(self) -> Look | None:
        return self.list(self._pattern.walk()) if self.rested() else None

    def done(self) -> None:
        return None

    def at_once(self) -> None:
        self._rest_until = 0.0

    def rested(self) -> bool:
        return time.monotonic() >= self._rest_until

    def list(self, walk: FolderWalk) -> Look:
        began = time.monotonic()
        files = self._pattern.all_files(walk)
        if len(files) > MANY:
            self._rest_until = time.monotonic() + 9 * (time.monotonic() - began)
        return Look(files, None)


class Notified:
    def __init__(self, pattern: PathPattern) -> None:
        self._pattern, self._listed = pattern, Listed(pattern)
        self._inotify: Inotify | None = None
        self._given_up = False
        self._places: dict[int, set[WalkedFolder]] = {}  # what each watch is on
        self._root: int | None = None  # the watch on the folder itself
        self._inode: tuple[int, int] | None = None  # of that folder
        self._sure = False  # a change after the look that is under way is noted
        self._certain = False  # any change since the last look is noted, or is in the queue
        self._list_at = 0.0

    def look(self) -> Look | None:
        certain, self._certain = self._certain, False  # until it is done
        if not self._given_up:
            try:
                return self._look(certain)
            except OSError as cause:
                self._give_up(cause)
        return self._listed.look()

    def done(self) -> None:
        self._certain = self._sure

    def at_once(self) -> None:
        self._listed.at_once()

    def _look(self, certain: bool) -> Look | None:
        if self._inotify is None:
            self._inotify = Inotify()
        changes = self._noted_changes(self._inotify)
        if certain and changes is not None and time.monotonic() < self._list_at:
            return self._again(self._inotify, changes)
        if not self._listed.rested():
            return None
        return self._list(self._inotify)

    def _noted_changes(self, inotify: Inotify) -> Changes | None:
        """The names at which something changed; None if these may not be all."""
        changes: Changes | None = set()
        for watch, what, name in inotify.notes():
            if watch < 0:
                changes = None  # the queue was full
            elif watch in self._places and what & DROPPED:
                del self._places[watch]
            elif watch in self._places and not name:
                changes = None  # what is mounted there goes
            elif watch in self._places and changes is not None:
                changes.update((folder, name) for folder in self._places[watch])
        return changes if self._same_root() else None

    def _again(self, inotify: Inotify, changes: Changes) -> Look | None:
        """Those files alone of which something was noted."""
        walk = self._pattern.walk(lambda place: self._enter(inotify, place))
        found = [f for folder, name in changes for f in walk.again(folder, name)]
        if walk.linked:
            return self._list(inotify) if self._listed.rested() else None
        names = {os.path.join(folder.name, name) for folder, name in changes}
        return Look(self._pattern.scanned(found), names)

    def _list(self, inotify: Inotify) -> Look:
        inotify.notes()  # the walk sees what they are about
        before, self._places = set(self._places), {}
        self._root, self._inode = None, self._inode_now()
        walk = self._pattern.walk(lambda place: self._enter(inotify, place))
        began = time.monotonic()
        look = self._listed.list(walk)
        now = time.monotonic()
        for watch in before - self._places.keys():
            inotify.drop(watch)
        self._sure = self._same_root() and not walk.linked
        self._list_at = now + max(AGAIN, 9 * (now - began))
        return look

    def _enter(self, inotify: Inotify, place: WalkedFolder) -> None:
        watch = inotify.watch(place.real)
        if watch is not None:
            self._places.setdefault(watch, set()).add(place)
            if not place.name:
                self._root = watch

    def _same_root(self) -> bool:
        """Whether the path still leads to the folder that is watched."""
        watched = self._root in self._places and self._inode is not None
        return watched and self._inode == self._inode_now()

    def _inode_now(self) -> tuple[int, int] | None:
        try:
            s = os.stat(self._pattern.root)
        except OSError:
            return None
        return s.st_dev, s.st_ino

    def _give_up(self, cause: OSError) -> None:
        if self._inotify is not None:
            self._inotify.close()
        self._given_up, self._inotify, self._places = True, None, {}
        LOG.warning(
            "%s: watch='notify' is not possible (%s); the folder is listed at every look",
            self._pattern.uri, cause.strerror,
        )  # fmt: skip
