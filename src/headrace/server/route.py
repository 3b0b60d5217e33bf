"""A route of the REST interface: who may ask it, what it is asked, what it answers, who does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.server.schemas import Schema, name, whole

if TYPE_CHECKING:
    from headrace.server.service import Service

_NUMBER = whole(about="Of a dead letter, as the list has it.")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was let in and is as its route wants it."""

    path: Mapping[str, Any]
    query: Mapping[str, Any]
    body: Mapping[str, Any]
    role: str
    by: str  # who asks, for the events


@dataclass(frozen=True, slots=True)
class RestText:
    """An answer that is not JSON."""

    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    role: str | None  # that it wants; None: anybody
    about: str
    call: Callable[[Service, Asked], Any] | None  # None: the door itself does it
    answer: Schema | str | None  # JSON of this schema, or a type of text; None: nothing
    status: int = 200
    body: Schema | None = None
    query: Mapping[str, Schema] = field(default_factory=dict)
    slow: bool = False  # it runs a process, seconds
    errors: tuple[int, ...] = ()  # besides those of every route

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.split("/")[1:])

    @property
    def parameters(self) -> dict[str, Schema]:
        """The parts of its path that may be anything."""
        named = [part[1:-1] for part in self.parts if part.startswith("{")]
        return {n: _NUMBER if n == "number" else name() for n in named}


class OtherMethods(Exception):
    """There is such a path, but not with this method: those it has."""

    def __init__(self, methods: tuple[str, ...]) -> None:
        super().__init__(methods)
        self.methods = methods


def find(
    table: Sequence[Route], method: str, parts: tuple[str, ...]
) -> tuple[Route, dict[str, str]] | None:
    """The route of a request and the parameters in its path, whose parts are decoded; None if
    there is no such path, `OtherMethods` if it has other methods."""
    fitting = [(route, given) for route in table if (given := _given(route, parts)) is not None]
    # ".../dead/replay" could also be a letter of that number: what is written out is meant
    fewest = min((len(given) for _, given in fitting), default=0)
    fitting = [found for found in fitting if len(found[1]) == fewest]
    for route, given in fitting:
        if route.method == method:
            return route, given
    if fitting:
        raise OtherMethods(tuple(sorted({route.method for route, _ in fitting})))
    return None


def _given(route: Route, parts: tuple[str, ...]) -> dict[str, str] | None:
    wanted = route.parts
    if len(wanted) != len(parts):
        return None
    given = dict[str, str]()
    for pattern, part in zip(wanted, parts, strict=True):
        if pattern.startswith("{") and part:
            given[pattern[1:-1]] = part
        elif pattern != part:
            return None
    return given
