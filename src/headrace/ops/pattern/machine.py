"""The matcher: one key's rows, one after the other, through an automaton.

A partial match (a `Run`) is the numbers of its rows, the states they led to, and which
transitions of its last state are still possible. Time is part of the sequence: what ends before
a row's time has ended when the row is looked at, so the result is the same however rows are cut
into batches. A row on which a user's function raises leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.clock import MAX_TIME
from headrace.ops.pattern.automaton import Automaton, AutomatonState, RowTest
from headrace.ops.pattern.matches import Match
from headrace.ops.pattern.parts import NEXT, THEN, Skip

# possible edges as bits (HELD: a match that is held back), rows, states, first time, last time
Run = tuple[int, tuple[int, ...], tuple[int, ...], int, int]
HELD = -1
Outcome = tuple[tuple[int, ...], int, bool]


@dataclass(slots=True)
class Track:
    """The partial matches of one key and pattern."""

    runs: list[Run] = field(default_factory=list)
    held: list[Run] = field(
        default_factory=list
    )  # matches that are held back, in the order in which they were complete
    due: int = MAX_TIME  # time alone changes nothing before this


@dataclass(slots=True)
class RunResults:
    """Matches, or partial matches that timed out: (key, run, time)."""

    rows: list[tuple[int, Run, int]] = field(default_factory=list)


class Machine:
    """One automaton; it serves one key after the other."""

    def __init__(self, name: str, automaton: Automaton, row_of: Callable[[int, int], Any]) -> None:
        """`row_of(key, number)` returns a row that a function may look at."""
        self.name, self.automaton = name, automaton
        self._states, self._start = automaton.states, automaton.start
        self._span, self._ending = automaton.span, automaton.ending
        self._in_turn = automaton.ending is None and not automaton.limited
        self._row_of = row_of
        names = [state.name for state in automaton.states]
        self._sorts = automaton.skip.to != "none" or len(set(names)) < len(names)
        self.key: int = 0
        self.key_value: Any = None
        self._outcomes: dict[tuple[AutomatonState, int, int], Outcome] = {}
        self.matches, self.timeouts = RunResults(), RunResults()

    # rows

    def row(self, track: Track, number: int, time: int, bits: int, row: Any) -> None:
        """Take one row; nothing has changed if a user's function raises."""
        if time >= track.due:
            self.pass_time(track, time)
        runs: list[Run] = []
        done: list[Run] = []
        looked = False
        for run in track.runs:
            state = self._states[run[2][-1]]
            if state.always or bits & state.watch or run[0] & state.strict:
                looked = True
                targets, left, sure = self._outcome(state, run, bits, row)
                for target in targets:
                    self._take(run, target, number, time, runs, done)
                if sure:
                    done.append(run)
                if left:
                    runs.append(run if left == run[0] else (left, *run[1:]))
            else:
                runs.append(run)
        if self._start.always or bits & self._start.watch:
            fresh_run: Run = (self._start.steps, (), (), time, time)
            for target in self._outcome(self._start, fresh_run, bits, row)[0]:
                self._take(fresh_run, target, number, time, runs, done)
        elif not looked:
            return
        self._set_runs(track, runs)
        if done or track.held:
            self._settle(track, done, time)

    def _outcome(self, state: AutomatonState, run: Run, bits: int, row: Any) -> Outcome:
        """What one row does to one partial match; computed once where no function is called."""
        if state.has_functions:
            return self._compute_outcome(
                state, run[0], lambda test: self._holds(test, run, bits, row)
            )
        key = (state, run[0], bits & state.watch)
        outcome = self._outcomes.get(key)
        if outcome is None:
            outcome = self._compute_outcome(
                state, run[0], lambda t: not t.mask or bool(bits & t.mask)
            )
            self._outcomes[key] = outcome
        return outcome

    def _compute_outcome(
        self, state: AutomatonState, alive: int, holds: Callable[[RowTest], bool]
    ) -> Outcome:
        """The states that the row leads to, the edges that are left, and whether it is sure."""
        alive &= ~_guarded(state, alive, holds)
        hits, stopped, barred = _hits(state, alive, holds)
        goes, left, targets = hits & ~stopped & ~barred, 0, list[int]()
        for i, edge in enumerate(state.edges):
            bit = 1 << i
            if not alive & bit or (edge.blockers and any(goes >> j & 1 for j in edge.blockers)):
                continue
            if goes & bit and edge.target not in targets:
                targets.append(edge.target)
            over = edge.link == NEXT or stopped & bit or (hits & bit and edge.link == THEN)
            if not over and not any(map(holds, edge.negs)):
                left |= bit
        sure = bool(left & state.waiting) and self._ending is None and _accepts_now(state, left)
        return tuple(targets), left & ~state.waiting if sure else left, sure

    def _take(
        self, run: Run, target: int, number: int, time: int, runs: list[Run], done: list[Run]
    ) -> None:
        state = self._states[target]
        began = run[3] if run[1] else time
        longer: Run = (state.all, (*run[1], number), (*run[2], target), began, time)
        if state.accepts:
            done.append(longer)
        if longer[0]:
            runs.append(longer)

    def _holds(self, test: RowTest, run: Run, bits: int, row: Any) -> bool:
        if test.mask and not bits & test.mask:
            return False
        if not test.functions:
            return True
        match = self.match(run)
        return all(function(row, match) for function in test.functions)

    def match(self, run: Run) -> Match:
        """A run as users see it."""
        states = self._states
        rows = [
            (states[p].name, self._row_of(self.key, n)) for n, p in zip(run[1], run[2], strict=True)
        ]
        return Match(self.name, self.key_value, self.automaton.names, rows)

    # time

    def deadline(self, run: Run) -> int:
        """When time alone changes a run."""
        state, at = self._states[run[2][-1]], MAX_TIME
        if self._span is not None and (run[0] & state.steps or self._ending is None):
            at = run[3] + self._span
        if self._ending is not None and run[0] & state.waiting:
            at = min(at, self._ends(run))
        for edges, length in state.limits:
            if run[0] & edges:
                at = min(at, run[4] + length)
        return at

    def _ends(self, run: Run) -> int:
        """When the time without the ending's row is over."""
        assert self._ending is not None
        return (run[3] if self.automaton.by_span else run[4]) + self._ending

    def _set_runs(self, track: Track, runs: list[Run]) -> None:
        """Runs are in the order in which they began, so mostly the first is over first."""
        track.runs = runs
        if self._in_turn:
            track.due = runs[0][3] + self._span if runs and self._span is not None else MAX_TIME
        else:
            track.due = min(map(self.deadline, runs), default=MAX_TIME)

    def pass_time(self, track: Track, until: int) -> None:
        """End what is over at `until`, in the order of its times."""
        self._set_runs(track, track.runs)
        while track.due <= until and track.due < MAX_TIME:
            now = track.due
            done: list[Run] = []
            left = [run for run in (self._at(run, now, done) for run in track.runs) if run[0]]
            self._set_runs(track, left)
            self._settle(track, done, now - 1)

    def _at(self, run: Run, now: int, done: list[Run]) -> Run:
        """What is left of a run after `now`."""
        state = self._states[run[2][-1]]
        over = self._span is not None and run[3] + self._span <= now
        alive = run[0] & ~(state.steps if over else _late(state, run, now))
        waits = alive & state.waiting
        if waits and self._sure(state, run, alive, now, over):
            done.append(run)
            alive &= ~waits
        ended = run[0] & state.steps and not alive & state.steps
        if ended and not state.accepts and not state.waiting:
            self.timeouts.rows.append((self.key, run, now - 1))
        return (alive if alive != state.fresh else 0, *run[1:])

    def _sure(self, state: AutomatonState, run: Run, alive: int, now: int, over: bool) -> bool:
        """Whether a partial match that waited for its time to end is a match now."""
        if self._ending is not None:
            return self._ends(run) <= now
        return over or _accepts_now(state, alive)

    def finish(self, track: Track, floor: int) -> None:
        """No row will ever come: what only waited for one is a match, the rest is over."""
        self.pass_time(track, MAX_TIME)
        done = [r for r in track.runs if r[0] & self._states[r[2][-1]].waiting]
        self._set_runs(track, [])
        self._settle(track, done, None, floor)

    def drop(self, track: Track) -> None:
        """The pattern was removed."""
        track.held = []
        self._set_runs(track, [])

    # matches

    def _settle(
        self, track: Track, done: list[Run], time: int | None, floor: int = -MAX_TIME
    ) -> None:
        """Emit the matches; with a skip policy in the order of their first rows."""
        if len(done) > 1 and self._sorts:
            done = self._in_order(done)
        if self.automaton.skip.to == "none":
            for run in done:
                self._emit(run, time, floor)
            return
        track.held += done
        while track.held:
            first = min(track.held, key=lambda run: run[1][0])
            if any(run[1][0] < first[1][0] for run in track.runs):
                break
            track.held.remove(first)
            self._emit(first, time, floor)
            self._skip(track, self._target(self.automaton.skip, first))

    def _in_order(self, done: list[Run]) -> list[Run]:
        """Each match once; those whose rows come first are first."""
        states = self._states
        order = {state.name: i for i, state in reversed([*enumerate(states)])}
        by_rows = {(run[1], tuple(order[states[p].name] for p in run[2])): run for run in done}
        return [by_rows[at] for at in sorted(by_rows)]

    def _emit(self, run: Run, time: int | None, floor: int) -> None:
        at = max(run[4], floor) if time is None else time
        self.matches.rows.append((self.key, run, at))

    def _target(self, skip: Skip, run: Run) -> int:
        """The row before which no further match may begin."""
        named = [
            n for n, p in zip(run[1], run[2], strict=True) if self._states[p].name == skip.name
        ]
        match skip.to:
            case "next":
                return run[1][0] + 1
            case "past_last":
                return run[1][-1] + 1
            case "first" if named:
                return named[0]
            case "last" if named:
                return named[-1]
        return run[1][0]

    def _skip(self, track: Track, target: int) -> None:
        track.held = [run for run in track.held if run[1][0] >= target]
        self._set_runs(track, [run for run in track.runs if run[1][0] >= target])


def _hits(
    state: AutomatonState, alive: int, holds: Callable[[RowTest], bool]
) -> tuple[int, int, int]:
    """The edges whose row this is, those that it stops, and those that may not take it."""
    hits = stopped = barred = 0
    for i, edge in enumerate(state.edges):
        if edge.take is None or not alive >> i & 1:
            continue
        hit = holds(edge.take)
        if hit:
            hits |= 1 << i
        if edge.stops and any(map(holds, edge.stops)):
            stopped |= 1 << i
        if hit and edge.bars and any(map(holds, edge.bars)):
            barred |= 1 << i
    return hits, stopped, barred


def _guarded(state: AutomatonState, alive: int, holds: Callable[[RowTest], bool]) -> int:
    """The edges that end because the first row since is one that it must not be."""
    if not alive & state.fresh:
        return 0
    return sum(
        1 << i
        for i, edge in enumerate(state.edges)
        if alive >> i & 1 and any(holds(guard.test) for guard in edge.guards)
    )


def _late(state: AutomatonState, run: Run, now: int) -> int:
    """The edges whose time since the last row is over."""
    return sum(edges for edges, length in state.limits if run[4] + length <= now)


def _accepts_now(state: AutomatonState, left: int) -> bool:
    """Whether some way to accept waits neither for a row or a loop nor for the time."""
    fresh = bool(left & state.fresh)
    return any(
        left >> i & 1
        and not edge.negs
        and not (fresh and edge.guards)
        and not any(left >> j & 1 for j in edge.blockers)
        for i, edge in enumerate(state.edges)
        if edge.accepts
    )
