"""The OpenAPI document asked of a real server by schemathesis, with both roles.

It makes requests that the document allows and requests that it does not, and holds the answers
against it: no fault, no answer or type or header that is not described, nothing taken that is
wrong, and nothing without a token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from headrace.server import openapi
from headrace.server.http import HttpServer, serve
from headrace.server.lifecycle import State
from headrace.server.limits import Limits
from headrace.server.routes import TABLE
from tests.server.memory_service import MemoryService
from tests.server.rest_client import TOKENS

SCHEMA = schemathesis.openapi.from_dict(openapi.document(TABLE, "1"))
ALL = CHECKS.get_all()
SERVICE = MemoryService("shop")
REACHED: dict[tuple[str, str], set[int]] = defaultdict(set)
STOPPED = ("POST /api/v1/jobs/{job}/activate", "DELETE /api/v1/jobs/{job}")
EXAMPLES = 4  # of each route and role


@pytest.fixture(scope="module")
def asked() -> Iterator[HttpServer]:
    limits = Limits(rate=1e9, burst=1_000_000, guesses=1_000_000)
    with serve(SERVICE, port=0, tokens=TOKENS, limits=limits) as server:
        yield server


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("role", ["read", "operate"])
@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_answered_is_what_the_document_says(case, role, asked):
    needs_no_process = case.operation.label in STOPPED
    SERVICE.reset("shop", State.INACTIVE if needs_no_process else State.RUNNING)
    valid = case.meta is None or case.meta.generation.mode is GenerationMode.POSITIVE
    if valid and case.path_parameters:  # a drawn name is never that of a job
        known = {"job": "shop", "number": 1, "savepoint": "sale"}
        case.path_parameters |= {n: known[n] for n in case.path_parameters}
    headers = {"Authorization": f"Bearer {TOKENS[role]}"}
    answer = case.call_and_validate(base_url=asked.url, headers=headers, checks=ALL, timeout=30)
    if valid:
        REACHED[case.operation.label, role].add(answer.status_code)


def test_every_route_was_reached_and_did_what_it_is_for():
    """Of the requests that the document allows some were let through, by the role that may."""
    if not REACHED:
        pytest.skip("the requests above were not made")
    for route in TABLE:
        statuses = REACHED[f"{route.method} {route.path}", "operate"]
        # a token, a program in an allowed folder and a step that exists are not drawn
        drawn_wrong = {"/api/v1/session": 401, "/api/v1/jobs": 403}
        wanted = {route.status}
        if route.method == "POST":
            wanted.add(drawn_wrong.get(route.path, 404 if "query" in route.path else route.status))
        assert statuses & wanted, (route.method, route.path, statuses)
