"""The REST interface as an OpenAPI 3.1 document, made of the table of routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.server.route import Route
from headrace.server.schemas import COMPONENTS, ref

OF_EVERY_ROUTE = (400, 401, 403, 413, 415, 422, 429, 500, 503)
MEANING = {
    400: "It cannot be done: the program or the request is wrong.",
    401: "No token, or another.",
    403: "The token's role, the origin or the host of the request is not allowed.",
    404: "There is no such thing.",
    409: "Not now: it is not legal in the state of the job, or something is under way.",
    413: "The body is too long.",
    415: "The body is not application/json.",
    422: "A field or parameter is unknown, missing, or not as it should be.",
    429: "Too many requests, or too many wrong tokens: wait for Retry-After seconds.",
    500: "A fault of the server; its log says more.",
    503: "Too much is under way: try again.",
}


def document(table: Sequence[Route], version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace",
            "version": version,
            "description": "Jobs as a service. Times are milliseconds since 1970.",
        },
        "paths": paths,
        "components": {
            "schemas": COMPONENTS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def operation_id(route: Route) -> str:
    """A name for code that is generated: get_jobs_job_plan_svg."""
    parts = [p.strip("{}").replace(".", "_") for p in route.parts if p not in ("api", "v1")]
    return "_".join([route.method.lower(), *parts])


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation_id(route),
        "summary": route.about,
        "security": [] if route.role is None else [{"token": []}],
        "responses": _responses(route),
    }
    if route.role is not None:
        found["description"] = f"Wants the role `{route.role}`."
    parameters = [
        {"name": n, "in": "path", "required": True, "schema": schema}
        for n, schema in route.parameters.items()
    ] + [{"name": n, "in": "query", "schema": schema} for n, schema in route.query.items()]
    if parameters:
        found["parameters"] = parameters
    if route.body is not None:
        found["requestBody"] = {
            "required": "required" in route.body,
            "content": {"application/json": {"schema": route.body}},
        }
    return found


def _responses(route: Route) -> dict[str, Any]:
    done: dict[str, Any] = {"description": "Done."}
    if isinstance(route.answer, str):
        done["content"] = {route.answer: {"schema": {"type": "string"}}}
    elif route.answer is not None:
        done["content"] = {"application/json": {"schema": route.answer}}
    error = {"application/json": {"schema": ref("Error")}}
    codes = sorted({*OF_EVERY_ROUTE, *route.errors})
    return {
        str(route.status): done,
        **{str(code): {"description": MEANING[code], "content": error} for code in codes},
    }
