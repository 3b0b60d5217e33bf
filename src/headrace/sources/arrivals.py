"""What the files of an input have more than is listed: new files, and what files have grown by."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from headrace.clock import Clock
from headrace.sources.file_splits import Span, SplitChoice, time_span
from headrace.sources.folder_looks import Listed, Look, Looks, Notified
from headrace.sources.layout import Extent, FileLayout, unreadable
from headrace.sources.listing import Listing
from headrace.sources.scan import PathPattern, ScannedFile, by_name, by_time

T = TypeVar("T")
Stamp = tuple[int, ...]

SETTLE = 10_000  # ms: a Parquet file without a footer is being written, for this long


class Arrivals:
    """Finds them; a copy, pickled or not, begins anew."""

    def __init__(
        self,
        pattern: PathPattern,
        layout: FileLayout,
        clock: Clock,
        choice: SplitChoice,
        *,
        time: str | None,
        order: str | None,
        notified: bool,
    ) -> None:
        self._pattern, self._layout, self._clock = pattern, layout, clock
        self._choice, self._bounded = choice, pattern.bounded
        self._time = time  # the column of event time
        self._order = by_name if order == "name" else by_time
        self._notified = notified and not pattern.bounded and pattern.watchable
        self._begin()

    def _begin(self) -> None:
        self._looks: Looks = (Notified if self._notified else Listed)(self._pattern)
        self._stamps: dict[str, Stamp] = {}  # of the files there are, when they were last listed
        self._waiting: dict[str, tuple[Stamp, int]] = {}  # not ready, and since when

    def __getstate__(self) -> dict[str, Any]:
        gone = {"_looks", "_stamps", "_waiting"}
        return {name: value for name, value in self.__dict__.items() if name not in gone}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def take(self, listing: Listing) -> bool:
        """Append to `listing` what there is more; False if it is too early to look."""
        look = self._looks.look()
        if look is None:
            return False
        files = self._changed(look)
        listing.append(self._more(files, listing))
        self._stamps.update((f.name, f.stamp) for f in files if f.name not in self._waiting)
        self._looks.done()
        return True

    def any(self, listing: Listing) -> bool:
        """Whether there is more than is listed now; records nothing."""
        probe = copy.copy(self)
        probe._looks, probe._waiting = Listed(self._pattern), dict(self._waiting)
        look = probe._looks.look()
        return look is not None and bool(probe._more(probe._changed(look), listing))

    def at_once(self) -> None:
        """The next look is at the folder as it is then, however long looking takes."""
        self._looks.at_once()

    def unsettled(self) -> bool:
        return bool(self._waiting)

    def _changed(self, look: Look) -> list[ScannedFile]:
        """The files to be looked into, in the order in which new ones are read."""
        there = {f.name: f for f in look.files}
        for name in self._waiting.keys() - there.keys():
            file = None if look.names is None else self._pattern.file(name)
            if file is None:
                del self._waiting[name]
            else:
                there[name] = file
        seen = self._stamps.keys() if look.names is None else look.names
        for name in seen - there.keys():
            self._stamps.pop(name, None)
        changed = [f for f in there.values() if self._stamps.get(f.name) != f.stamp]
        return sorted(changed, key=self._order)

    def _more(self, files: list[ScannedFile], listing: Listing) -> list[Extent]:
        """What these have more than is listed, each extent in the split that reads it."""
        extents = [attempt(file, lambda f: self._extent(f, listing)) for file in files]
        fresh = [e for e in extents if e is not None]
        grown = [e for e in fresh if listing.last(e.path) is not None]
        new = [e for e in fresh if listing.last(e.path) is None]
        return grown + self._choice.assign(new, grown, listing, self._time_span)

    def _time_span(self, extent: Extent) -> Span | None:
        path = str(self._pattern.root / extent.path)
        try:
            return time_span(self._layout, path, extent, self._time) if self._time else None
        except FileNotFoundError:
            return None  # removed since it was listed
        except OSError as cause:
            raise unreadable(path, cause) from cause

    def _extent(self, file: ScannedFile, listing: Listing) -> Extent | None:
        """What is new in the file, if anything."""
        before = listing.last(file.name)
        if before is not None:
            self._layout.verify(file.path, before)
            start: int | None = before.end
        else:
            start = self._ready(file)
        if start is None:
            return None
        end = self._layout.reach(file.path, start, file.size, self._bounded)
        mark = self._layout.mark(file.path, end) if end > start else (0, 0)
        return Extent(file.name, start, end, mark) if end > start else None

    def _ready(self, file: ScannedFile) -> int | None:
        """Where to begin; None while the file is still being written."""
        now = self._clock.now()
        seen, since = self._waiting.get(file.name, (file.stamp, now))
        if seen != file.stamp:
            since = now
        late = now - since > SETTLE and self._layout.settles(file.path)
        start = self._layout.begin(file.path, file.size, self._bounded or late)
        if start is None:
            self._waiting[file.name] = (file.stamp, since)
        else:
            self._waiting.pop(file.name, None)
        return start


def attempt(file: ScannedFile, act: Callable[[ScannedFile], T]) -> T | None:
    try:
        return act(file)
    except FileNotFoundError:
        return None  # removed since the scan
    except OSError as cause:
        raise unreadable(file.path, cause) from cause
