"""Requests that a server refuses, and the HTTP status of each; codes below 050 are the core's."""

from __future__ import annotations

from headrace.errors import HeadraceError, ServerError
from headrace.server.lifecycle import State, Verb, legal

# By code; what is not here is 400: a request that is wrong in itself, or a program.
STATUS = {
    "HR-SERVER-001": 404,  # no such job
    "HR-SERVER-002": 409,  # not legal in this state
    "HR-SERVER-003": 409,  # there is such a job already
    "HR-SERVER-004": 403,  # a program outside the allowed folders
    "HR-SERVER-010": 409,  # another verb for this job is under way
}


def status_of(error: HeadraceError) -> int:
    """The HTTP status that tells of an error."""
    return STATUS.get(error.code, 400)


def unknown_job(name: str) -> ServerError:
    return ServerError(
        "HR-SERVER-001",
        f"the server has no job {name!r}",
        "`headrace list` names those that it has.",
    )


def illegal(name: str, state: State, verb: Verb) -> ServerError:
    return ServerError(
        "HR-SERVER-002",
        f"{verb} is not legal for job {name!r}, which is {state}",
        f"Legal now: {', '.join(legal(state))}.",
    )


def busy(name: str, what: str) -> ServerError:
    return ServerError(
        "HR-SERVER-010",
        f"something is under way for job {name!r}: {what}",
        "Wait until it is done: `headrace events` shows it.",
    )
