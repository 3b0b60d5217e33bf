"""Shared maps as methods see them that may not change them.

An assignment is refused at once. A list or a record within an entry cannot refuse: such an
entry is told when it is first read, and again after the calls. What nobody reads costs nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn

from headrace.errors import PlanError
from headrace.rows import plainly

Maps = dict[str, dict[Any, Any]]


class ReadOnly(dict[Any, Any]):
    """A shared map whose entries stay what they are."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise _refused()

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[Any, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return copy.deepcopy(dict(self), memo)


class Watched(ReadOnly):
    """One that knows which entries were read, and what they were."""

    def __init__(self, entries: dict[Any, Any]) -> None:
        super().__init__(entries)
        self._told: dict[Any, str] = {}

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if key not in self._told:
            self._told[key] = _telling(found)
        return found

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __iter__(self) -> Iterator[Any]:  # so that dict(rules) reads entry by entry, too
        return super().__iter__()

    def values(self) -> Any:
        return {key: self[key] for key in self}.values()

    def items(self) -> Any:
        return {key: self[key] for key in self}.items()

    def copy(self) -> dict[Any, Any]:
        return dict(self)

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    @property
    def changed(self) -> bool:
        """Whether an entry that was read is another now."""
        entry = super().__getitem__
        return any(_telling(entry(key)) != was for key, was in self._told.items())

    def forget(self) -> None:
        self._told.clear()


def _telling(entry: Any) -> str:
    return repr(plainly(entry))


class Guard:
    """The maps, and whether anything within their entries was changed."""

    def __init__(self, maps: Maps, nested: Collection[str], again: Callable[[], Maps]) -> None:
        kinds = {name: Watched if name in nested else ReadOnly for name in maps}
        self.maps = {name: kinds[name](entries) for name, entries in maps.items()}
        self._watched = [m for m in self.maps.values() if isinstance(m, Watched)]
        self._again = again  # the maps as they are kept

    def check(self) -> None:
        """Refuse what was changed since the last time."""
        if any(watched.changed for watched in self._watched):
            raise _refused()
        self._forget()

    def restore(self) -> None:
        """Undo what was changed; the methods' own object goes on with the same maps."""
        if any(watched.changed for watched in self._watched):
            for name, entries in self._again().items():
                dict.update(self.maps[name], entries)
        self._forget()

    def _forget(self) -> None:
        for watched in self._watched:
            watched.forget()


def _refused() -> PlanError:
    return PlanError(
        "HR-PROCESS-014",
        "shared state can be changed in the method of a broadcast input only",
        "Keep what belongs to a key in a hr.value or hr.map_of; copy an entry to change it.",
    )
