"""Messages to an MQTT broker, as an output: "mqtt:host:port/topic".

A row is a message, published with QoS 1; an epoch is delivered when the broker has acknowledged all
of them. A broker stores no record of epochs, so after a crash the last one may be published again:
at least once.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from headrace.clock import millis
from headrace.connect.mqtt import Broker, MqttPublisher, NoConnection, NotTaken, publisher
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

PORT, TLS_PORT, PORTS = 1883, 8883, 65_536
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 30.0  # seconds between two attempts to connect
_KNOWN = ("user", "password_env", "tls", "patience", "password")


class MqttSink(UnrecordedSink):
    because = "a broker stores no record of epochs: after a crash one may be published again"

    def __init__(self, o: OutputRequest) -> None:
        plain = OutputRequest(o.uri, o.rest, o.schema, {}, o.folder, o.name, o.key)
        super().__init__(plain)
        self._options = {n: v for n, v in o.options.items() if n != "password"}
        self._broker, self._topic = _target(o)
        self._patience = millis(o.options.get("patience", "5m")) / 1000

    @property
    def retries(self) -> str:
        return "QoS 1: a message that the broker does not acknowledge is published again"

    @property
    def what(self) -> str:
        return f"MQTT topic '{self._broker}/{self._topic}'"

    def describe(self) -> Description:
        return {
            "kind": "mqtt",
            "place": f"{self._broker}/{self._topic}",
            "format": "json",
            "options": self._options,
            "schema": packed(self.schema),
        }

    def check(self) -> None:
        self._connect().close()

    def records(self, rows: pa.Table) -> pa.Table:
        return pa.table({"value": json_values(rows)})

    def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        session = self._connected()
        try:
            payloads = rows.column("value").to_pylist()
            if not session.publish(self._topic, payloads, self._patience):
                raise OutputError(
                    "HR-MQTT-002",
                    f"{self.what} has not acknowledged rows of epoch {epoch} of output "
                    f"{self._name!r} for {self._patience:g} s",
                    "Nothing is lost: the rows are in the job's folder. Start the job again when "
                    'the broker is back; or wait longer: patience="1h".',
                )
        except NotTaken as cause:
            raise OutputError(
                "HR-MQTT-005",
                f"{self.what} refuses rows of epoch {epoch} of output {self._name!r}: {cause}",
                "Nothing is lost: the rows are in the job's folder. Let the broker's rules permit "
                "the user to publish there, and start the job again.",
            ) from cause
        finally:
            session.close()

    def _connected(self) -> MqttPublisher:
        """A session; the broker is waited for as long as the program says."""
        began, pause = time.monotonic(), SHORTEST_PAUSE
        while True:
            try:
                return self._connect()
            except OutputError:
                if time.monotonic() - began + pause > self._patience:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _connect(self) -> MqttPublisher:
        try:
            return publisher(self._broker)
        except NoConnection as cause:
            raise OutputError(
                "HR-MQTT-003",
                f"cannot connect to the MQTT broker {self._broker}: {cause}",
                "Nothing is lost: rows that are committed stay in the job's folder. Start the "
                "broker, check the address, user= and password_env=, and start the job again.",
            ) from cause


def _target(o: OutputRequest) -> tuple[Broker, str]:
    options, tls = o.options, o.options.get("tls", False)
    authority, _, topic = o.rest.removeprefix("//").partition("/")
    host, colon, port = authority.rpartition(":")
    host, port = (host, port) if colon else (authority, "")
    number = int(port) if port.isdecimal() else (0 if port else (TLS_PORT if tls else PORT))
    if not host or "@" in host or not topic or set(topic) & set("+#\0") or not 0 < number < PORTS:
        raise OutputError(
            "HR-OUTPUT-001",
            f"{o.uri!r} is not a topic of a broker",
            'Write "mqtt:host:port/topic"; a topic that is written to has no + and no #.',
        )
    if "password" in options:
        raise bad_option(o, "password", "...", 'Name a variable: password_env="MQTT_PASSWORD".')
    for name in ("user", "password_env"):
        if not isinstance(options.get(name), str | None):
            raise bad_option(o, name, options[name], "Give a text.")
    if type(tls) is not bool:
        raise bad_option(o, "tls", tls, "Pass True or False.")
    user, password = options.get("user"), options.get("password_env")
    return Broker(host.strip("[]"), number, user, password, tls), topic


def _check(o: OutputRequest) -> None:
    refuse_unknown(o, _KNOWN)
    _target(o)
    if "patience" in o.options and (millis(o.options["patience"]) or 0) <= 0:
        raise bad_option(o, "patience", o.options["patience"], "Give a duration above zero.")


def _open(o: OutputRequest) -> Sink:
    return MqttSink(o)


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    return about["place"], dict(about["options"])


MQTT = OutputKind(_check, _open, _reopen)
