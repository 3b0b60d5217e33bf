"""The topics of an embedded log that are open in this process.

A topic is opened when it is first asked for, and again when it was deleted and made anew, when
columns were added, and after a fork. Nothing is held that is not on disk.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Callable
from pathlib import Path

from headrace.clock import Clock, SystemClock
from headrace.errors import LogError
from headrace.log import topic as topics
from headrace.log.appends import Append, Mixed
from headrace.log.arguments import moment_of
from headrace.log.contract import Ack, check_name, is_name, unreadable
from headrace.log.group_commit import GroupCommit
from headrace.log.head import Head
from headrace.log.reader import TopicReader
from headrace.log.topic import Topic
from headrace.log.writer import TopicWriter

_AHEAD = 1_000  # ms: a clock further ahead of the machine's is not believed


class OpenTopic:
    """One topic, open in this process; `settings` tells whether they are still the same file."""

    def __init__(self, topic: Topic, clock: Clock, patience: float, settings: object) -> None:
        self.topic, self.settings = topic, settings
        self.writer = TopicWriter(topic, patience)
        self.reader = TopicReader(topic, patience, self.writer.catch_up)
        self.group: GroupCommit[Append, dict[int, Ack]] = GroupCommit(
            lambda appends: self.writer.commit(appends, now_of(clock)), _harmless, patience
        )
        self.turn = itertools.count()  # for appends in turn


class OpenTopics:
    """Those of the log in `root`; `settle` completes a transaction that a topic is part of."""

    def __init__(
        self, root: Path, clock: Clock, patience: float, settle: Callable[[str], None]
    ) -> None:
        self.root, self._root = root, os.fspath(root)
        self._clock, self._patience, self._settle = clock, patience, settle
        self._open: dict[str, OpenTopic] = {}
        self._pid = os.getpid()

    def names(self) -> list[str]:
        """The names of all topics, in order; what else lies in the folder is left alone."""
        try:
            names = sorted(os.listdir(self.root))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise unreadable(self.root, error) from error
        return [n for n in names if is_name(n) and (self.root / n / "topic.json").exists()]

    def find(self, topic: str) -> OpenTopic:
        """The topic as it is open here, or opened now."""
        if self._pid != os.getpid():  # forked: the parent's threads and locks are not ours
            self._open, self._pid = {}, os.getpid()
        opened = self._open.get(check_name(topic))
        settings = _settings(f"{self._root}/{topic}/topic.json")
        if opened is not None and settings is not None and settings != opened.settings:
            self._open.pop(topic, None)  # columns were added
            opened = None
        if opened is None:
            stored = topics.load(self.root / topic)
            if stored is None:
                raise self.unknown(topic)
            fresh = OpenTopic(stored, self._clock, self._patience, settings)
            opened = self._open.setdefault(topic, fresh)
        return opened

    def published(self, topic: str) -> tuple[OpenTopic, Head]:
        """The topic and what it holds at this moment."""
        self._settle(check_name(topic))
        opened = self.find(topic)
        head = opened.reader.head()
        if head is None:  # deleted, and perhaps made again
            self._open.pop(topic, None)
            opened = self.find(topic)
            head = opened.reader.head()
        if head is None:
            raise self.unknown(topic)
        return opened, head

    def close(self, topic: str) -> None:
        """Forget what is open: the topic is opened anew when it is asked for."""
        self._open.pop(topic, None)

    def unknown(self, topic: str) -> LogError:
        names = self.names()
        near = difflib.get_close_matches(topic, names, 1)
        listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        hint = (
            f"Did you mean '{near[0]}'?"
            if near
            else f"It has: {listed}."
            if names
            else (f"It is empty. Create the topic first: headrace topic create {topic}")
        )
        return LogError("HR-LOG-002", f"the log '{self.root}' has no topic '{topic}'", hint)

    def unwritable(self, verb: str, topic: str, error: OSError) -> LogError:
        return LogError(
            "HR-LOG-010",
            f"cannot {verb} topic '{topic}' in '{self.root}': {error.strerror or error}",
            "Choose a folder that can be written, with --log or HEADRACE_LOG, or free space there.",
        )


def now_of(clock: Clock) -> int:
    """The time, but not a time that the machine's own clock has not reached."""
    now, machine = moment_of(clock), SystemClock().now()
    return now if now <= machine + _AHEAD else machine


def _harmless(error: Exception) -> bool:
    """Whether nothing was appended, and the reason may be one append of the group alone."""
    if isinstance(error, Mixed):
        return True
    return isinstance(error, LogError) and error.code not in ("HR-LOG-016", "HR-LOG-018")


def _settings(path: str) -> tuple[int, int] | None:
    """What changes when the file does; None if it cannot be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
