"""What becomes of each step, input and output of a changed program: to print, or to check.

Values only. A start is refused here and nowhere else for what a program has become, so
`headrace plan` and a run cannot disagree.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from headrace.errors import StateError
from headrace.hints import nearest
from headrace.plan.nodes import Node

SAME, NEW, RENAMED, DROPPED, REFUSED = "same", "new", "renamed", "dropped", "refused"
OPERATOR, INPUT, OUTPUT, VALUE = "operator", "input", "output", "value"
_CANNOT = {
    OPERATOR: "cannot go on from its state",
    INPUT: "cannot go on from where it was read to",
    OUTPUT: "cannot go on from what it has written",
}

Drop = str | Collection[str] | bool


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one operator, input or output."""

    name: str
    role: str
    verdict: str
    because: str = ""
    hint: str = ""
    code: str = "HR-EVOLVE-001"  # of the error, if it is refused
    by_name: bool = False  # consent to losing it must name it

    def __str__(self) -> str:
        because = f", because {self.because}" if self.verdict == REFUSED else f" {self.because}"
        return f"{self.role:<8}  {self.name}: {self.verdict}{because}".rstrip()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A program compared with what its folder holds; print it, or `check` it before a start."""

    changes: tuple[Change, ...]

    def __str__(self) -> str:
        lines = ([str(c), *([f"    {c.hint}"] if c.hint else [])] for c in self.changes)
        return "\n".join(line for pair in lines for line in pair)

    def of(self, verdict: str, role: str = OPERATOR) -> tuple[Change, ...]:
        return tuple(c for c in self.changes if c.verdict == verdict and c.role == role)

    def moves(self) -> dict[str, str]:
        """For each renamed operator, input and output: its name now -> its name before."""
        return {
            c.name: c.because.removeprefix("from ")
            for c in self.changes
            if c.verdict == RENAMED and c.role != VALUE
        }

    def check(self, drop: Drop = (), short: Collection[str] = ()) -> None:
        """Refuse to start where state would be misread, or lost without consent.

        `drop` is a name, several, or True for all that may go without being named; `short` are
        outputs that have lost rows, which it may name, too.
        """
        for change in self.of(REFUSED) + self.of(REFUSED, INPUT) + self.of(REFUSED, OUTPUT):
            raise StateError(
                change.code,
                f"the {change.role} {change.name!r} {_CANNOT[change.role]}, because "
                f"{change.because}",
                change.hint,
            )
        dropped = self.of(DROPPED) + self.of(DROPPED, VALUE) + self.of(DROPPED, INPUT)
        names = named(drop)
        for name in names:
            if name not in short:
                self._refuse_unknown(name, dropped)
        lost = [c for c in dropped if c.name not in names and (drop is not True or c.by_name)]
        if lost:
            raise _lost(lost)

    def _refuse_unknown(self, name: str, dropped: Sequence[Change]) -> None:
        if any(c.name == name for c in dropped):
            return
        names = ", ".join(repr(c.name) for c in dropped)
        has = any(c.name == name for c in self.changes)
        raise StateError(
            "HR-EVOLVE-004",
            f"drop names {name!r}, which the program {'has' if has else 'never had'}",
            f"What it no longer has is {names}." if names else "Leave it out: nothing is lost.",
        )


def named(drop: Drop) -> tuple[str, ...]:
    """The names that may be dropped: a text is one of them."""
    return () if isinstance(drop, bool) else (drop,) if isinstance(drop, str) else tuple(drop)


def _lost(lost: Sequence[Change]) -> StateError:
    names = ", ".join(repr(c.name) for c in lost)
    inputs = all(c.role == INPUT for c in lost)
    what = "and how far it was read is" if inputs else "whose state is"
    return StateError(
        "HR-EVOLVE-002",
        f"the program no longer has {names}, {what} in the job's folder",
        " ".join(dict.fromkeys(c.hint for c in lost)),
    )


def consent(name: str) -> str:
    """As a program says it, and as one types it."""
    return f"drop={name!r} (--drop {shlex.quote(name)} on the command line)"


# Which step, input or output of a program is which of those that a manifest names.
#
# By its name, or by the one it says it had (`was=`), which may stay in the program once it has
# been followed. A name that no step had is refused; that two say they were the same one, or one
# that is still there, is refused where the program is checked.


@dataclass(frozen=True, slots=True)
class NameMatch:
    """The earlier name of one step, input or output, or why it is not certain."""

    before: str | None = None
    because: str = ""
    hint: str = ""

    @property
    def unknown(self) -> bool:
        return bool(self.because)


def matches(nodes: Iterable[Node], stored: Collection[str], what: str) -> dict[str, NameMatch]:
    """For each node by its name: which of the stored ones it was."""
    return {n.name: _match(n, stored, what) for n in nodes}


def _match(node: Node, stored: Collection[str], what: str) -> NameMatch:
    own, was = node.name in stored, node.was
    if was is None or was == node.name:
        return NameMatch(node.name if own else None)
    if own and was in stored:
        because = f"it says was={was!r}, but the job has {node.name!r} as well"
        hint = (
            f"Leave was= out if it is {node.name!r}; if it is {was!r}, give it a name of its own."
        )
        return NameMatch(None, because, hint)
    if own:
        return NameMatch(node.name)  # it has been renamed before
    return NameMatch(was) if was in stored else _unknown_name(node, stored, what)


def _unknown_name(node: Node, stored: Collection[str], what: str) -> NameMatch:
    names = ", ".join(map(repr, stored)) or f"no {what}"
    because = f"it says was={node.was!r}, but the job has {names}"
    near = nearest(str(node.was), stored, 1)
    better = f"Correct it (was={near[0]!r}?)" if near else "Correct it"
    return NameMatch(None, because, f"{better}, or leave was= out: the {what} is then new.")
