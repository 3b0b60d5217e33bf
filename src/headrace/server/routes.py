"""The routes of the REST interface: one table, by which requests are served, checked and described.

A route says who may ask it, what it is asked, what it answers, and which method of the service
does it. Nothing here knows of HTTP but names of methods and numbers of answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.server import openapi, prometheus
from headrace.server.route import Asked, RestText, Route
from headrace.server.schemas import (
    MOST_NUMBER,
    OBJECT,
    STRING,
    Schema,
    body,
    flag,
    listed,
    name,
    ref,
    text,
    value,
    whole,
)
from headrace.server.tokens import OPERATE, READ

if TYPE_CHECKING:
    from headrace.server.service import Service

API = "/api/v1"
MOST = 1_000  # things in one answer
_PATH = 4_096  # characters of a path


_JOB = f"{API}/jobs/{{job}}"
_LIMIT = partial(whole, 1, MOST)


def _server(service: Service, asked: Asked) -> Any:
    return {**service.info().json, "role": asked.role}


def _jobs(service: Service, asked: Asked) -> Any:
    return {"jobs": [job.json for job in service.jobs()]}


def _submit(service: Service, asked: Asked) -> Any:
    fields = dict(asked.body)
    return service.submit(fields.pop("program"), **fields, by=asked.by).json


def _job(service: Service, asked: Asked) -> Any:
    return service.job(asked.path["job"]).json


def _verb(verb: str) -> Callable[[Service, Asked], Any]:
    def call(service: Service, asked: Asked) -> Any:
        return getattr(service, verb)(asked.path["job"], by=asked.by).json

    return call


def _rebalance(service: Service, asked: Asked) -> Any:
    tasks = asked.body.get("parallelism")
    return service.rebalance(asked.path["job"], tasks, by=asked.by).json


def _upgrade(service: Service, asked: Asked) -> Any:
    fields = dict(asked.body)
    if fields.pop("dry_run", False):
        fields.pop("note", None)
        return service.plan_upgrade(asked.path["job"], **fields).json
    return service.upgrade(asked.path["job"], **fields, by=asked.by).json


def _remove(service: Service, asked: Asked) -> None:
    service.remove(asked.path["job"], by=asked.by)


def _plan_svg(service: Service, asked: Asked) -> Any:
    return RestText(service.plan_svg(asked.path["job"]), "image/svg+xml")


def _series(service: Service, asked: Asked) -> Any:
    fields = dict(asked.query)
    names = [n for n in fields.pop("names", "").split(",") if n]
    return service.series(asked.path["job"], names=names, **fields).json


def _events(service: Service, asked: Asked) -> Any:
    found = service.events(asked.path.get("job"), **asked.query)
    return {"events": [event.json for event in found]}


def _logs(service: Service, asked: Asked) -> Any:
    return service.logs(asked.path["job"], **asked.query).json


def _looked(method: str) -> Callable[[Service, Asked], Any]:
    def call(service: Service, asked: Asked) -> Any:
        return getattr(service, method)(asked.path["job"], **asked.query)

    return call


def _letter(service: Service, asked: Asked) -> Any:
    return service.dead_letter(asked.path["job"], asked.path["number"])


def _replay(service: Service, asked: Asked) -> Any:
    return service.replay_dead(asked.path["job"], **asked.body, by=asked.by)


def _query(service: Service, asked: Asked) -> Any:
    fields = {"sql": None, **asked.body}
    return service.query_state(asked.path["job"], fields.pop("step"), **fields)


def _savepoints(service: Service, asked: Asked) -> Any:
    return {"savepoints": service.savepoints(asked.path["job"])}


def _save(service: Service, asked: Asked) -> Any:
    return service.create_savepoint(asked.path["job"], asked.body["name"], by=asked.by)


def _delete_savepoint(service: Service, asked: Asked) -> None:
    service.delete_savepoint(asked.path["job"], asked.path["savepoint"], by=asked.by)


def _metrics(service: Service, asked: Asked) -> RestText:
    text = prometheus.metrics_of(service.jobs(), service.figures())
    return RestText(text, prometheus.CONTENT_TYPE)


def _document(service: Service, asked: Asked) -> Any:
    return openapi.document(TABLE, service.info().version)


_PROGRAM = text(_PATH, 1, "A Python file, in a folder that the server's owner has allowed.")
_STEP = name("Only of this step.")
_REASON = text(_PATH, 1, "Only those whose error contains this.")
_DRY = flag("Only say what would happen.")
_OPTIONS = {
    **body(
        master=text(1_000, 1, "Spark master: local[2], spark://host:7077."),
        parallelism=whole(1, 10_000, "Tasks per level."),
        target_batch=text(100, 1, "Time that a batch should take: 500ms, 2s."),
        max_batch=whole(1, MOST_NUMBER, "Rows in a batch, instead of a time."),
    ),
    "description": "Options of headrace run.",
}
_EVENTS: Mapping[str, Schema] = {
    "after": whole(about="The id of the last event that is known. Without: the newest."),
    "limit": _LIMIT(about="Events at most."),
}
_WITH_JOB = (404,)
_CHANGES = (404, 409)


def _moves(verb: str, about: str, **more: Any) -> Route:
    fields: dict[str, Any] = {"call": _verb(verb), "answer": ref("Job"), "body": body(), **more}
    return Route("POST", f"{_JOB}/{verb}", OPERATE, about, errors=_CHANGES, **fields)


TABLE: tuple[Route, ...] = (
    Route("POST", f"{API}/session", None, "Exchange a token for a cookie, as the page does.",
          None, value(role=STRING), body=body(("token",), token=text(1_000, 1)), errors=(401,)),
    Route("DELETE", f"{API}/session", None, "End the session of the cookie.", None, None, 204),
    Route("GET", f"{API}/server", READ, "The server, and your role.", _server, ref("Server")),
    Route("GET", f"{API}/jobs", READ, "Every job, by name.", _jobs, ref("Jobs")),
    Route("POST", f"{API}/jobs", OPERATE, "Submit a program that is on the server.", _submit,
          ref("Job"), 201, slow=True, errors=(404, 409),
          body=body(("program",), program=_PROGRAM, options=_OPTIONS,
                    job=name("Which job, if the program makes several."),
                    activate=flag("Start it. Default: true."))),
    Route("GET", _JOB, READ, "One job: figures, options, versions, and the verbs legal now.",
          _job, ref("JobWhole"), errors=_WITH_JOB),
    Route("DELETE", _JOB, OPERATE, "Remove a job that has no process from the list; its folder "
          "stays.", _remove, None, 204, errors=_CHANGES),
    _moves("activate", "Start it; it goes on after its last batch."),
    _moves("deactivate", "Stop it once its batch is done; its state stays."),
    _moves("restart", "Stop it once its batch is done, and start it again."),
    _moves("rebalance", "Another number of tasks; restarts it if it runs.", call=_rebalance,
           body=body(("parallelism",),
                     parallelism=whole(1, 10_000, "Tasks per level."))),
    _moves("upgrade", "Another version of its program, after a savepoint; the old one comes back "
           "if the new one fails before its first batch. With dry_run, the plan only.",
           call=_upgrade, answer={"anyOf": [ref("Job"), ref("UpgradePlan")]}, slow=True,
           body=body(program=_PROGRAM, dry_run=_DRY,
                     drop=listed(name(), about="Steps, inputs, outputs to be given up."),
                     note=text(1_000, about="What it is for."))),
    _moves("drain", "Read what is there, close every window, and end."),
    _moves("kill", "End its process at once. Nothing committed is lost."),
    Route("GET", f"{_JOB}/plan", READ, "How the version that runs is executed: headrace explain.",
          _looked("plan"), OBJECT, slow=True, errors=_WITH_JOB),
    Route("GET", f"{_JOB}/plan.svg", READ, "The same, drawn.", _plan_svg, "image/svg+xml",
          slow=True, errors=_WITH_JOB),
    Route("GET", f"{_JOB}/series", READ, "Figures over time, for a week at most.", _series,
          ref("Series"), errors=_WITH_JOB,
          query={"since": whole(about="From this time on."), "until": whole(about="To this time."),
                 "names": text(_PATH, about="rate_in,lag_rows,... Default: all of them."),
                 "points": whole(1, 5_000, "Points at most. Default: 600.")}),
    Route("GET", f"{API}/events", READ, "What happened to any job, and to the server.", _events,
          ref("Events"), query=_EVENTS),
    Route("GET", f"{_JOB}/events", READ, "What happened to a job.", _events, ref("Events"),
          query=_EVENTS, errors=_WITH_JOB),
    Route("GET", f"{_JOB}/logs", READ, "What a run of a job has printed.", _logs, ref("Logs"),
          errors=_WITH_JOB,
          query={"run": whole(1, about="Which run. Default: the last."),
                 "after": whole(about="From this byte on: `next` of the answer before."),
                 "limit": _LIMIT(about="Lines at most.")}),
    Route("GET", f"{_JOB}/dead", READ, "Dead letters, by step and error; the newest, in short.",
          _looked("dead"), ref("DeadLetters"), slow=True, errors=_WITH_JOB,
          query={"step": _STEP, "reason": _REASON, "limit": _LIMIT(about="Letters at most.")}),
    Route("GET", f"{_JOB}/dead/{{number}}", READ, "One dead letter, with record and traceback.",
          _letter, ref("DeadLetter"), slow=True, errors=_WITH_JOB),
    Route("POST", f"{_JOB}/dead/replay", OPERATE, "Send dead letters again, into the step that "
          "failed on them.", _replay, OBJECT, slow=True, errors=_CHANGES,
          body=body(step=_STEP, reason=_REASON, dry_run=_DRY,
                    numbers=listed(whole(), about="Only these letters."))),
    Route("GET", f"{_JOB}/state", READ, "The steps that have state.", _looked("state"),
          ref("State"), slow=True, errors=_WITH_JOB),
    Route("POST", f"{_JOB}/state/query", READ, "Rows of a step's state, by one SELECT that reads "
          "no files.", _query, ref("Rows"), slow=True, errors=_WITH_JOB,
          body=body(("step",), step=name("A step that has state."),
                    sql=text(20_000, 1, "A SELECT from steps. Without: the step's rows."),
                    limit=_LIMIT(about="Rows at most."))),
    Route("GET", f"{_JOB}/why", READ, "Why it gives no output: headrace why.", _looked("why"),
          OBJECT, slow=True, errors=_WITH_JOB),
    Route("GET", f"{_JOB}/savepoints", READ, "Its savepoints.", _savepoints, ref("Savepoints"),
          slow=True, errors=_WITH_JOB),
    Route("POST", f"{_JOB}/savepoints", OPERATE, "Name its newest epoch, and keep it.", _save,
          OBJECT, 201, slow=True, errors=_CHANGES,
          body=body(("name",), name=name("Of the savepoint."))),
    Route("DELETE", f"{_JOB}/savepoints/{{savepoint}}", OPERATE, "Delete a savepoint.",
          _delete_savepoint, None, 204, slow=True, errors=_CHANGES),
    Route("GET", "/metrics", READ, "Figures of every job, for Prometheus.", _metrics,
          "text/plain"),
    Route("GET", "/openapi.json", READ, "This interface, as OpenAPI 3.1.", _document, OBJECT),
)  # fmt: skip
