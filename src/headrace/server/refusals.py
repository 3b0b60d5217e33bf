"""Requests that a server refuses, and the HTTP status of each; codes below 050 are the core's."""

from __future__ import annotations

from headrace.errors import HeadraceError, ServerError
from headrace.server.lifecycle import State, Verb, legal

# Of requests, by the number of the code: before a job is asked for anything.
REQUESTS = {
    "050": 401,  # no token
    "051": 401,  # a wrong one
    "052": 403,  # a role that may not
    "053": 404,  # no such path
    "054": 405,
    "055": 429,  # wrong tokens
    "056": 429,  # requests
    "057": 403,  # the host
    "058": 403,  # the origin
    "059": 500,
    "060": 400,  # no JSON
    "061": 422,  # an unknown field
    "062": 422,  # a missing one
    "063": 422,  # a wrong value
    "064": 400,  # a token in the address
    "065": 415,
    "066": 413,
    "067": 503,
    "068": 408,
    "069": 400,
}
# By code; what is not here is 400: a request that is wrong in itself, or a program.
STATUS = {
    "HR-SERVER-001": 404,  # no such job
    "HR-SERVER-002": 409,  # not legal in this state
    "HR-SERVER-003": 409,  # there is such a job already
    "HR-SERVER-004": 403,  # a program outside the allowed folders
    "HR-SERVER-010": 409,  # another verb for this job is under way
    **{f"HR-SERVER-{code}": status for code, status in REQUESTS.items()},
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
