"""What people write before the colon for an input or output that has another name here.

Texts only: nothing is opened, and an address is never repeated, since it may hold a secret.
"""

from __future__ import annotations

_DATABASES = dict.fromkeys(
    ("postgresql", "postgres", "sqlite", "duckdb"),
    'Write "sql:" before the address of a database, and the table: table="orders"',
)
_BOTH = _DATABASES | {
    "topic": 'Topics of the embedded log are "log:topic", those of Kafka "kafka://host:9092/topic"',
    "mqtts": 'Write "mqtt:host:port/topic", and tls=True',
}
_INPUTS = _BOTH | {
    "https": 'Events of a server are "sse:https://..."; "http:port/path" takes POSTs',
    "webhook": 'A webhook is an output; "http:port/path" is an input that takes POSTs',
    "table": 'Read it as a DataFrame: hr.from_spark(spark.table("name"))',
    "collect": "Rows are collected by an output; rows of a program are hr.rows([...])",
    "console": "The console is an output; lines over TCP are read with \"listen:port\"",
    "generate": "Write hr.generate(rate, function)",
    "rows": "Write hr.rows([...])",
}  # fmt: skip
_OUTPUTS = _BOTH | {
    "http": 'POSTs to a server are "webhook:http://..."',
    "https": 'POSTs to a server are "webhook:https://..."',
    "sse": 'Events are an input; POSTs to a server are "webhook:https://..."',
    "socket": 'Nobody acknowledges rows at a socket: write to "webhook:", "mqtt:" or a topic',
    "listen": 'Nobody acknowledges rows at a socket: write to "webhook:", "mqtt:" or a topic',
    "s3": 'Lakes may be in storage elsewhere: "delta:s3://bucket/table"',
    "s3a": 'Lakes may be in storage elsewhere: "delta:s3://bucket/table"',
    "gs": 'Lakes may be in storage elsewhere: "delta:gs://bucket/table"',
    "abfss": 'Lakes may be in storage elsewhere: "delta:abfss://..."',
}


def meant_as_input(scheme: str) -> str | None:
    """What to write for an input of this name; None if nobody knows."""
    return _INPUTS.get(scheme.lower())


def meant_as_output(scheme: str) -> str | None:
    """The same for an output."""
    return _OUTPUTS.get(scheme.lower())
