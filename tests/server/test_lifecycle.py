"""The table of legal moves: every state with every verb, and what must hold of all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.server.lifecycle import (
    ABSENT,
    BY_ITSELF,
    MOVES,
    WITH_PROCESS,
    State,
    Verb,
    after,
    is_legal,
    legal,
    may_become,
)

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "server.md"
S, V = State, Verb

# Written down a second time, by state: what a user may do, and what comes of it.
BY_STATE = {
    ABSENT: {V.SUBMIT: S.INACTIVE},
    S.INACTIVE: {V.ACTIVATE: S.STARTING, V.REBALANCE: S.INACTIVE, V.UPGRADE: S.INACTIVE,
                 V.REMOVE: ABSENT},
    S.STARTING: {V.DEACTIVATE: S.STOPPING, V.RESTART: S.STOPPING, V.REBALANCE: S.STOPPING,
                 V.UPGRADE: S.STOPPING, V.DRAIN: S.DRAINING, V.KILL: S.KILLED},
    S.RUNNING: {V.DEACTIVATE: S.STOPPING, V.RESTART: S.STOPPING, V.REBALANCE: S.STOPPING,
                V.UPGRADE: S.STOPPING, V.DRAIN: S.DRAINING, V.KILL: S.KILLED},
    S.STOPPING: {V.KILL: S.KILLED},
    S.DRAINING: {V.DEACTIVATE: S.STOPPING, V.KILL: S.KILLED},
    S.WAITING: {V.ACTIVATE: S.STARTING, V.DEACTIVATE: S.INACTIVE, V.RESTART: S.STARTING,
                V.REBALANCE: S.STARTING, V.UPGRADE: S.STARTING},
    S.ENDED: {V.ACTIVATE: S.STARTING, V.REBALANCE: S.ENDED, V.UPGRADE: S.ENDED, V.REMOVE: ABSENT},
    S.FAILED: {V.ACTIVATE: S.STARTING, V.REBALANCE: S.FAILED, V.UPGRADE: S.STARTING,
               V.REMOVE: ABSENT},
    S.KILLED: {V.ACTIVATE: S.STARTING, V.REBALANCE: S.KILLED, V.UPGRADE: S.KILLED,
               V.REMOVE: ABSENT},
}  # fmt: skip
STATES = [ABSENT, *State]


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("state", STATES)
def test_every_verb_in_every_state(state: State | None, verb: Verb) -> None:
    wanted = BY_STATE[state]
    assert is_legal(state, verb) is (verb in wanted)
    assert (verb in legal(state)) is (verb in wanted)
    if verb in wanted:
        assert after(state, verb) == wanted[verb]
    else:
        with pytest.raises(KeyError):
            after(state, verb)


def test_the_tables_have_every_state_and_every_verb() -> None:
    assert set(MOVES) == set(Verb) and set(BY_ITSELF) == set(State) == set(BY_STATE) - {ABSENT}


def test_a_job_that_has_no_process_does_nothing_by_itself_but_wait() -> None:
    for state in State:
        moves = bool(BY_ITSELF[state])
        assert moves is (state in WITH_PROCESS or state == State.WAITING), state


def test_a_job_with_a_process_can_be_killed_and_one_without_can_be_removed() -> None:
    for state in State:
        assert is_legal(state, Verb.KILL) is (state in WITH_PROCESS)
        at_rest = state not in WITH_PROCESS and state != State.WAITING
        assert is_legal(state, Verb.REMOVE) is at_rest


def test_there_is_a_way_from_every_state_to_running_and_to_removal() -> None:
    for state in State:
        seen, rest = {state}, [state]
        while rest:
            now = rest.pop()
            verbs = [after(now, verb) for verb in legal(now)]
            new = {s for s in [*verbs, *BY_ITSELF[now]] if s is not None} - seen
            seen |= new
            rest += new
        assert State.RUNNING in seen and any(is_legal(s, Verb.REMOVE) for s in seen), state


def test_what_may_come_by_itself() -> None:
    assert may_become(State.RUNNING, State.RUNNING) and may_become(State.RUNNING, State.WAITING)
    assert not may_become(State.INACTIVE, State.RUNNING)


def test_the_guide_has_the_table() -> None:
    """| state | verbs | what comes by itself |"""
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|([^|]*)\|$", GUIDE.read_text(), re.M)
    shown = {state: (words(verbs), sorted(words(others))) for state, verbs, others in rows}
    assert shown == {
        str(state): (
            [str(v) for v in legal(state)],
            sorted(str(s) for s in BY_ITSELF[state]),
        )
        for state in State
    }


def words(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)
