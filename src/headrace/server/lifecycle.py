"""The life of a job on a server: states, verbs, and which verb is legal in which state.

One table, `MOVES`; the CLI, the REST interface and the page offer what it allows. What a job does
by itself, without a verb, is the other one, `BY_ITSELF`. Values only: no clock, no process.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What a job is doing."""

    INACTIVE = "inactive"  # no process; its state stays in its folder
    STARTING = "starting"  # a process that does not drive the job yet
    RUNNING = "running"
    STOPPING = "stopping"  # asked to stop after the batch in hand
    DRAINING = "draining"  # asked to read what is there, close every window and end
    WAITING = "waiting"  # until it is started again, after a failure
    ENDED = "ended"  # everything was read, or it was drained
    FAILED = "failed"  # given up; the reason says why
    KILLED = "killed"  # by a user


class Verb(StrEnum):
    """What a user may do with a job."""

    SUBMIT = "submit"
    ACTIVATE = "activate"
    DEACTIVATE = "deactivate"
    RESTART = "restart"
    REBALANCE = "rebalance"
    UPGRADE = "upgrade"
    DRAIN = "drain"
    KILL = "kill"
    REMOVE = "remove"


ABSENT = None  # the state of a job that there is not
_S = State

# By verb: the states in which it is legal, and the state that it leads to. What goes on from there
# is the job's own doing: a job that is restarted stops, and then starts.
MOVES: dict[Verb, dict[State | None, State | None]] = {
    Verb.SUBMIT: {ABSENT: _S.INACTIVE},
    Verb.ACTIVATE: {
        _S.INACTIVE: _S.STARTING,
        _S.WAITING: _S.STARTING,  # now, not later
        _S.ENDED: _S.STARTING,
        _S.FAILED: _S.STARTING,
        _S.KILLED: _S.STARTING,
    },
    Verb.DEACTIVATE: {
        _S.STARTING: _S.STOPPING,
        _S.RUNNING: _S.STOPPING,
        _S.DRAINING: _S.STOPPING,
        _S.WAITING: _S.INACTIVE,
    },
    Verb.RESTART: {
        _S.STARTING: _S.STOPPING,
        _S.RUNNING: _S.STOPPING,
        _S.WAITING: _S.STARTING,
    },
    Verb.REBALANCE: {
        _S.STARTING: _S.STOPPING,
        _S.RUNNING: _S.STOPPING,
        _S.WAITING: _S.STARTING,
        _S.INACTIVE: _S.INACTIVE,
        _S.ENDED: _S.ENDED,
        _S.FAILED: _S.FAILED,
        _S.KILLED: _S.KILLED,
    },
    Verb.UPGRADE: {
        _S.STARTING: _S.STOPPING,
        _S.RUNNING: _S.STOPPING,
        _S.WAITING: _S.STARTING,
        _S.FAILED: _S.STARTING,  # it was to run, and the new version is to mend it
        _S.INACTIVE: _S.INACTIVE,
        _S.ENDED: _S.ENDED,
        _S.KILLED: _S.KILLED,
    },
    Verb.DRAIN: {_S.STARTING: _S.DRAINING, _S.RUNNING: _S.DRAINING},
    Verb.KILL: {
        _S.STARTING: _S.KILLED,
        _S.RUNNING: _S.KILLED,
        _S.STOPPING: _S.KILLED,
        _S.DRAINING: _S.KILLED,
    },
    Verb.REMOVE: {
        _S.INACTIVE: ABSENT,
        _S.ENDED: ABSENT,
        _S.FAILED: ABSENT,
        _S.KILLED: ABSENT,
    },
}

# By state: those that a job may come to from there without a verb.
BY_ITSELF: dict[State, frozenset[State]] = {
    _S.INACTIVE: frozenset(),
    _S.STARTING: frozenset((_S.RUNNING, _S.DRAINING, _S.INACTIVE, _S.ENDED, _S.WAITING, _S.FAILED)),
    _S.RUNNING: frozenset((_S.STARTING, _S.INACTIVE, _S.ENDED, _S.WAITING, _S.FAILED)),
    _S.STOPPING: frozenset((_S.INACTIVE, _S.STARTING, _S.ENDED, _S.FAILED)),
    _S.DRAINING: frozenset((_S.STARTING, _S.INACTIVE, _S.ENDED, _S.WAITING, _S.FAILED)),
    _S.WAITING: frozenset((_S.STARTING,)),
    _S.ENDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.KILLED: frozenset(),
}

WITH_PROCESS = frozenset((_S.STARTING, _S.RUNNING, _S.STOPPING, _S.DRAINING))


def legal(state: State | None) -> tuple[Verb, ...]:
    """The verbs that are legal in a state, in the order in which they are listed."""
    return tuple(verb for verb, moves in MOVES.items() if state in moves)


def is_legal(state: State | None, verb: Verb) -> bool:
    return state in MOVES[verb]


def may_become(state: State, other: State) -> bool:
    """Whether a job may come from one state to the other without a verb."""
    return state == other or other in BY_ITSELF[state]


def after(state: State | None, verb: Verb) -> State | None:
    """The state that a legal verb leads to; KeyError if it is not legal."""
    return MOVES[verb][state]
