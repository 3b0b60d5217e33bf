"""Messages of an MQTT broker as an input: "mqtt:host:port/topic".

The job has a session at the broker, under an id in its folder, and subscribes with QoS 1: a message
is acknowledged when it is durable in the job's folder, so none is lost while the job, the driver or
the broker is down. One that was stored and not yet acknowledged when the driver was killed comes
again. A broker that no longer has the session may have lost messages: that is an error.
"""

from __future__ import annotations

import re
import secrets
import threading
from pathlib import Path

import pyarrow as pa

from headrace.connect.mqtt import Broker, MqttSubscription, NoConnection
from headrace.errors import InputError
from headrace.guarantees import AT_LEAST_ONCE
from headrace.sources.contract import InputRequest, Source, refuse_unknown, write_durably
from headrace.sources.received import LineWriter, Received
from headrace.sources.receiving import BackgroundReceiver, ReceivedSource, line_format

CLIENT = "client"  # at rest: the id of the job's session, once the broker has had it
FIRST = "client.first"  # at rest: the id with which a first connection is tried
LOST = "client.lost"  # at rest: the broker has lost the session, and that was not accepted yet
SUBSCRIBED = "client.subscribed"  # at rest: the topic of a session that was closed in order
PORT = 1883
TLS_PORT = 8883
PORTS = 65_536
MOST_AT_ONCE = 10_000  # messages that are stored together
_WAIT = 0.1  # seconds
_PLACE = re.compile(
    r"(?://)?(?P<host>\[[^\]]+\]|[^:/]+)(?::(?P<port>\d+))?/(?P<topic>.+)", re.DOTALL
)
_BREAKS = bytes.maketrans(b"\r\n", b"  ")
_KNOWN = ("delimiter", "user", "password", "password_env", "tls", "new_session")


class MqttSource(ReceivedSource):
    kind = "mqtt"
    again = "What was acknowledged is not sent again"
    guarantee = AT_LEAST_ONCE
    because = "a message that is stored and not yet acknowledged when the driver dies comes again"

    def __init__(
        self,
        broker: Broker,
        topic: str,
        schema: pa.Schema,
        *,
        format: str,
        delimiter: str,
        new_session: bool,
        home: Path | None,
    ) -> None:
        super().__init__(
            f"{broker}/{topic}",
            schema,
            format=format,
            delimiter=delimiter,
            bounded=False,
            home=home,
        )
        self._broker, self._topic, self._new_session = broker, topic, new_session

    def receiver(self, received: Received) -> BackgroundReceiver:
        return MqttReceiver(self, received)


class MqttReceiver(BackgroundReceiver):
    """Stores messages, then acknowledges them."""

    def __init__(self, source: MqttSource, received: Received) -> None:
        self._source, self.subscribed = source, threading.Event()
        super().__init__(source.place, received)

    def receive(self, writer: LineWriter) -> None:
        source, home = self._source, self._received.home
        path, first, lost = home / CLIENT, home / FIRST, home / LOST
        if lost.exists() and not source._new_session:
            raise session_lost(self.place)
        known = path.exists()
        if not known and not first.exists():
            write_durably(first, f"headrace-{secrets.token_hex(8)}".encode())
        name = (path if known else first).read_text("ascii")
        try:
            session = MqttSubscription(
                source._broker,
                name,
                source._topic,
                known=known,
                subscribed=known and self._was_subscribed(),
                on_lost=lambda: None if source._new_session else write_durably(lost, b""),
            )
        except NoConnection as cause:
            raise InputError(
                "HR-INPUT-015",
                f"cannot connect to the MQTT broker {source._broker}: {cause}",
                "Start the broker first, and check the address, user= and password_env=.",
            ) from cause
        try:
            self._refuse(session)
            if not known:
                write_durably(path, name.encode())
            if source._new_session:
                lost.unlink(missing_ok=True)  # it is accepted
            self.subscribed.set()
            while not self._stop.is_set():
                messages = session.take(_WAIT, MOST_AT_ONCE)
                if messages:
                    payloads = [m.payload for m in messages]
                    if source.format != "text":
                        payloads = [p.translate(_BREAKS) for p in payloads]
                    writer.add(pa.array(payloads, pa.binary()))
                    session.acknowledge(messages)
                self._refuse(session)
        finally:
            session.close()
            if session.orderly:
                write_durably(home / SUBSCRIBED, source._topic.encode())

    def _was_subscribed(self) -> bool:
        """Whether the session was closed in order, with this subscription; asked once."""
        path = self._received.home / SUBSCRIBED
        found = path.exists() and path.read_bytes() == self._source._topic.encode()
        if found:
            write_durably(path, b"")
        return found

    def _refuse(self, session: MqttSubscription) -> None:
        if session.failed is not None:
            raise session.failed
        if session.lost and not self._source._new_session:
            raise session_lost(self.place)
        if session.denied:
            raise InputError(
                "HR-MQTT-004",
                f"the broker refuses the subscription to {self.place}: {session.denied}",
                "Check the topic, and what user= may read at the broker.",
            )


def session_lost(place: str) -> InputError:
    return InputError(
        "HR-MQTT-001",
        f"the broker of {place} no longer has the session of this job: messages that came while "
        "the job was away may be lost",
        "Let the broker store sessions (mosquitto: persistence true). To go on without what is "
        "lost: new_session=True.",
    )


def place_of(rest: str, tls: bool, what: str) -> tuple[str, int, str]:
    """Host, port and topic; ValueError if that is not what it says."""
    match = _PLACE.fullmatch(rest)
    port = int(match["port"] or (TLS_PORT if tls else PORT)) if match else 0
    if match is None or not 0 < port < PORTS or "@" in match["host"] or "\0" in match["topic"]:
        raise ValueError(f"{what} is not a place of a broker")
    return match["host"].strip("[]"), port, match["topic"]


def broker_of(host: str, port: int, options: dict[str, object]) -> Broker:
    """ValueError if the options make no sense."""
    user, password, tls = (options.get(n) for n in ("user", "password_env", "tls"))
    if "password" in options:
        raise ValueError('a password is not written in a program: password_env="NAME"')
    if not isinstance(user, str | None) or not isinstance(password, str | None):
        raise ValueError("user= and password_env= are texts")
    if type(tls) not in (bool, type(None)):
        raise ValueError("tls= is True or False")
    if password is not None and user is None:
        raise ValueError("password_env= needs user=")
    return Broker(host, port, user, password, bool(tls))


def open_mqtt(o: InputRequest) -> Source:
    refuse_unknown(o, _KNOWN)
    if o.bounded:
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has no end to run to",
            'A broker may always send another message: run without until="end".',
        )
    try:
        host, port, topic = place_of(o.rest, bool(o.options.get("tls")), repr(o.uri))
    except ValueError as cause:
        hint = 'Write "mqtt:host:port/topic", as in "mqtt:localhost:1883/sensors/+/celsius".'
        raise InputError("HR-INPUT-001", str(cause), hint) from cause
    try:
        broker = broker_of(host, port, dict(o.options))
    except ValueError as cause:
        raise InputError("HR-INPUT-013", f"{o.uri!r}: {cause}", "Correct the option.") from cause
    format, schema = line_format(o)
    return MqttSource(
        broker,
        topic,
        schema,
        format=format,
        delimiter=o.options.get("delimiter", ","),
        new_session=bool(o.options.get("new_session", False)),
        home=o.home,
    )
