"""The values of the REST API as JSON Schemas: what is asked is checked by them, what is answered
is described by them.

One table of routes names them (`routes.py`); the OpenAPI document (`openapi.py`) shows them.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

MOST_NUMBER = 2**53 - 1  # what every reader of JSON can hold
LONGEST_NAME = 255
LONGEST_TEXT = 100_000
# No NUL: it can be neither stored nor part of a name. Nor can half characters, which a pattern that
# all dialects read alike cannot name; they are no JSON that can be exchanged either (RFC 8259).
_TEXT = r"^[^\u0000]*$"
STATES = (
    "inactive", "starting", "running", "stopping", "draining", "waiting", "ended", "failed",
    "killed",
)  # fmt: skip


def text(longest: int = LONGEST_TEXT, shortest: int = 0, about: str = "") -> Schema:
    found: Schema = {"type": "string", "maxLength": longest, "pattern": _TEXT}
    if shortest:
        found["minLength"] = shortest
    return _about(found, about)


def name(about: str = "") -> Schema:
    return text(LONGEST_NAME, 1, about)


def whole(low: int = 0, high: int = MOST_NUMBER, about: str = "") -> Schema:
    return _about({"type": "integer", "minimum": low, "maximum": high}, about)


def flag(about: str = "") -> Schema:
    return _about({"type": "boolean"}, about)


def listed(items: Schema, most: int = 1_000, about: str = "") -> Schema:
    return _about({"type": "array", "items": items, "maxItems": most}, about)


def body(required: tuple[str, ...] = (), **fields: Schema) -> Schema:
    """An object that is asked: a field that it does not know is refused."""
    found: Schema = {"type": "object", "properties": fields, "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


def _about(schema: Schema, about: str) -> Schema:
    return {**schema, "description": about} if about else schema


# What is answered. Fields may be added to them later, so they are open.


def value(**fields: Schema) -> Schema:
    """An object that is answered, with all of these fields."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def rows(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def ref(component: str) -> Schema:
    return {"$ref": f"#/components/schemas/{component}"}


STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
OBJECT: Schema = {"type": "object"}
TIME = {"type": "integer", "description": "Milliseconds since 1970, UTC."}
STATE = {"type": "string", "enum": list(STATES)}

JOB = value(
    name=STRING, state=STATE, reason=or_null(STRING), version=INTEGER, program=STRING,
    folder=STRING, master=or_null(STRING), parallelism=or_null(INTEGER), pid=or_null(INTEGER),
    since=TIME, restarts=INTEGER, epoch=or_null(INTEGER), committed=or_null(TIME),
    rate_in=or_null(NUMBER), lag_rows=or_null(INTEGER), lag_seconds=or_null(NUMBER),
    watermark=or_null(TIME), watermark_delay=or_null(NUMBER), latency_p95=or_null(NUMBER),
    late=or_null(INTEGER), dead=or_null(INTEGER), capacity=or_null(NUMBER), warnings=rows(STRING),
)  # fmt: skip
VERSION = value(
    version=INTEGER, program=STRING, submitted=TIME, by=STRING, digest=STRING,
    note=or_null(STRING), current={"type": "boolean"}, outcome=or_null(STRING),
)  # fmt: skip
JOB_WHOLE: Schema = {
    "allOf": [
        ref("Job"),
        value(
            figures=or_null(OBJECT), options=OBJECT, versions=rows(ref("Version")),
            verbs=rows(STRING),
        ),
    ]
}  # fmt: skip
EVENT = value(
    id=INTEGER, time=TIME, job=or_null(STRING), kind=STRING, text=STRING, by=or_null(STRING)
)
ERROR = value(
    error=value(code=STRING, fact=STRING, hint=or_null(STRING), kind=STRING),
)
LETTER = value(number=INTEGER, step=STRING, time=or_null(TIME), error=STRING)

COMPONENTS: dict[str, Schema] = {
    "Job": JOB,
    "JobWhole": JOB_WHOLE,
    "Version": VERSION,
    "Event": EVENT,
    "Error": ERROR,
    "Server": value(
        version=STRING, started=TIME, home=STRING, programs=rows(STRING), role=STRING,
        jobs={"type": "object", "additionalProperties": {"type": "integer"}},
    ),
    "Jobs": value(jobs=rows(ref("Job"))),
    "Events": value(events=rows(ref("Event"))),
    "Series": value(
        times=rows(TIME),
        series={"type": "object", "additionalProperties": rows(or_null(NUMBER))},
    ),
    "Logs": value(run=or_null(INTEGER), runs=rows(INTEGER), lines=rows(STRING), next=INTEGER),
    "DeadLetters": value(
        total=INTEGER,
        groups=rows(
            value(step=STRING, error=STRING, count=INTEGER, first=or_null(TIME),
                  last=or_null(TIME))
        ),
        letters=rows(LETTER),
    ),
    "DeadLetter": LETTER,
    "State": value(steps=rows(value(name=STRING))),
    "Rows": value(columns=rows(STRING), rows=rows({}), epoch=or_null(INTEGER)),
    "Why": value(reasons=rows(value(text=STRING, hint=or_null(STRING)))),
    "Savepoints": value(savepoints=rows(OBJECT)),
}  # fmt: skip
