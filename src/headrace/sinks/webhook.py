"""Rows posted to a server, as an output: "webhook:https://host/path".

An epoch is one or several POSTs, one after the other, in order. Each has the header
`Idempotency-Key: producer/epoch/part`: the same rows always come under the same key, so a receiver
that honours it has every row once; others may get the last epoch again after a crash. What the
receiver does not take stays in the job's folder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import millis
from headrace.connect.http_client import (
    BROKEN,
    HttpClient,
    HttpTarget,
    no_variable,
    permanent,
    variables,
    why,
    wrong_url,
)
from headrace.errors import OutputError
from headrace.sinks.columns import packed
from headrace.sinks.contract import (
    Description,
    OutputKind,
    OutputRequest,
    Sink,
    bad_option,
    refuse_unknown,
)
from headrace.sinks.delivered import UnrecordedSink
from headrace.sinks.formats import json_values
from headrace.state.faults import point

MAX_ROWS, MAX_MB = 1_000, 1  # of a request, unless the program says otherwise
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 30.0  # seconds between two attempts
_KNOWN = (
    "password",
    "token_env",
    "headers_env",
    "timeout",
    "patience",
    "max_rows",
    "max_mb",
    "array",
)
_TEXT = 200  # characters of an answer that are shown


class WebhookSink(UnrecordedSink):
    because = (
        "after a crash an epoch may be posted again, under the same Idempotency-Key: exactly once "
        "for a receiver that honours it"
    )

    def __init__(self, o: OutputRequest) -> None:
        super().__init__(_without_mode(o))
        self._options = dict(o.options)
        timeout = millis(o.options.get("timeout", "10s")) / 1000
        headers = variables(o.options.get("headers_env")) or ()
        self._target = HttpTarget(o.rest, o.options.get("token_env"), headers, timeout)
        self._patience = millis(o.options.get("patience", "5m")) / 1000
        self._rows: int = o.options.get("max_rows", MAX_ROWS)
        self._bytes: int = o.options.get("max_mb", MAX_MB) << 20
        self._array: bool = o.options.get("array", False)
        self._client: HttpClient | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    @property
    def retries(self) -> str:
        if not self._patience:
            return ""
        return 'what is not answered is posted again, unless patience="0s"'

    @property
    def what(self) -> str:
        return f"webhook {self._target.url!r}"

    def describe(self) -> Description:
        return {
            "kind": "webhook",
            "place": self._target.url,
            "format": "json",
            "options": self._options,
            "schema": packed(self.schema),
        }

    def check(self) -> None:
        """Checks only that secrets are there: to try a request would be to send one."""
        missing = self._target.missing()
        if missing:
            raise no_variable(missing, self.what, OutputError)

    def records(self, rows: pa.Table) -> pa.Table:
        """Rows as JSON: what has no JSON fails here, in a task, and not when it is posted."""
        return pa.table({"value": json_values(rows)})

    def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        try:
            for part, body in enumerate(self._bodies(rows)):
                self._post(body, f"{producer}/{epoch}/{part}", epoch)
                point("sink.webhook.posted")
        finally:
            self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.done()
            self._client = None

    def _bodies(self, rows: pa.Table) -> Iterator[bytes]:
        """The rows, cut by number and by size; always in the same places."""
        values = rows.column("value").combine_chunks()
        ends = np.cumsum(pc.binary_length(values).to_numpy() + 1)
        start = 0
        while start < len(values):
            base = int(ends[start - 1]) if start else 0
            fits = int(np.searchsorted(ends, base + self._bytes, side="right"))
            end = min(max(fits, start + 1), start + self._rows)
            texts = values.slice(start, end - start).to_pylist()
            yield b"[" + b",".join(texts) + b"]" if self._array else b"\n".join(texts) + b"\n"
            start = end

    def _post(self, body: bytes, key: str, epoch: int) -> None:
        """Post until it is taken; OutputError if it never will be, or not in time."""
        kind = "application/json" if self._array else "application/x-ndjson"
        headers = {"Content-Type": kind, "Idempotency-Key": key}
        began, pause = time.monotonic(), SHORTEST_PAUSE
        while True:
            status, said, wait = self._attempt(body, headers)
            if status is not None and 200 <= status < 300:
                return
            if status is not None and permanent(status):
                raise OutputError(
                    "HR-HTTP-005",
                    f"{self.what} refuses rows of epoch {epoch} of output {self._name!r}: {said}",
                    "Nothing is lost: the rows are in the job's folder, and no later ones were "
                    "sent. Correct the receiver, the address or the secrets, and start the job "
                    "again: it sends them under the same Idempotency-Key.",
                )
            if time.monotonic() - began + max(pause, wait) > self._patience:
                raise OutputError(
                    "HR-HTTP-006",
                    f"{self.what} has not taken rows of epoch {epoch} of output {self._name!r} "
                    f"for {self._patience:g} s: {said}",
                    "Nothing is lost: the rows are in the job's folder. Start the job again when "
                    'the receiver is back; or wait longer: patience="1h".',
                )
            time.sleep(max(pause, wait))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _attempt(self, body: bytes, headers: Mapping[str, str]) -> tuple[int | None, str, float]:
        """The answer's status, what it says, and how long it asks to wait."""
        if self._client is None:
            self._client = HttpClient(self._target)
        try:
            answer = self._client.request("POST", body, headers)
            text = answer.read(1 << 16).decode("utf-8", "replace")
            if answer.will_close or not answer.isclosed():
                self._client.done()
        except BROKEN as cause:
            self._client.done()
            return None, why(cause), 0.0
        shown = " ".join(text.split())[:_TEXT]
        after = answer.headers.get("Retry-After", "")
        wait = min(float(after), LONGEST_PAUSE) if after.isdecimal() else 0.0
        said = f"{answer.status} {answer.reason}" + (f" ({shown})" if shown else "")
        return answer.status, said, wait


def _without_mode(o: OutputRequest) -> OutputRequest:
    """What all outputs elsewhere need of the request; a receiver has no record of who sends."""
    return OutputRequest(o.uri, o.rest, o.schema, {}, o.folder, o.name, o.key)


def _check(o: OutputRequest) -> None:
    refuse_unknown(o, _KNOWN)
    problem = wrong_url(o.rest)
    if problem:
        raise OutputError(
            "HR-OUTPUT-001",
            f"what follows 'webhook:' is not an address: {problem}",
            'Write "webhook:https://host/path"; a token comes from the environment: '
            'token_env="NAME".',
        )
    token = o.options.get("token_env")
    if variables(o.options.get("headers_env")) is None or not isinstance(token, str | None):
        raise OutputError(
            "HR-OUTPUT-008",
            "a webhook has headers_env= or token_env= that are not names",
            'Name variables of the environment: token_env="HOOK_TOKEN", '
            'headers_env={"X-Api-Key": "HOOK_KEY"}.',
        )
    for name in ("max_rows", "max_mb"):
        most = o.options.get(name, 1)
        if type(most) is not int or most < 1:
            raise bad_option(o, name, most, "Give a whole number, 1 or more.")
    if type(o.options.get("array", False)) is not bool:
        raise bad_option(o, "array", o.options["array"], "Pass True for one JSON array each.")
    if millis(o.options.get("timeout", "1s")) <= 0:
        raise bad_option(o, "timeout", o.options["timeout"], "Give a duration above zero.")
    millis(o.options.get("patience", "0s"))  # refuses what is no duration


def _open(o: OutputRequest) -> Sink:
    return WebhookSink(o)


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    return about["place"], dict(about["options"])


WEBHOOK = OutputKind(_check, _open, _reopen)
