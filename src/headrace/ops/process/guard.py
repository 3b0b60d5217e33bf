"""Shared maps as methods see them that may not change them.

An assignment is refused at once. A list or a record within an entry cannot refuse, so what is
in the maps is told before the calls and after; only maps of such entries take that time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
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


class Guard:
    """The maps, and whether anything within their entries was changed."""

    def __init__(self, maps: Maps, nested: Collection[str], again: Callable[[], Maps]) -> None:
        self.maps = {name: ReadOnly(entries) for name, entries in maps.items()}
        self._nested = [name for name in nested if self.maps.get(name)]
        self._again = again  # the maps as they are kept
        self._told = self._tell()

    def _tell(self) -> list[str]:
        return [repr(plainly(self.maps[name])) for name in self._nested]

    @property
    def changed(self) -> bool:
        return bool(self._nested) and self._tell() != self._told

    def check(self) -> None:
        if self.changed:
            raise _refused()

    def restore(self) -> None:
        """Undo what was changed; the methods' own object goes on with the same maps."""
        if self.changed:
            for name, entries in self._again().items():
                dict.update(self.maps[name], entries)


def _refused() -> PlanError:
    return PlanError(
        "shared state can be changed in the method of a broadcast input only",
        code="HR-PROCESS-014",
        hint="Keep what belongs to a key in a hr.value or hr.map_of; copy an entry to change it.",
    )
