"""The door to paho-mqtt: sessions at a broker, with QoS 1.

A session outlives its connection: the broker stores what comes for it while the client is away,
and what was not acknowledged comes again. Messages are published by MQTT 5, where the
acknowledgement of a message says whether the broker has taken it; by 3.1.1 what it drops is
acknowledged, too. Passwords come from the environment, by name.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.connect.extras import needed

FIRST_TRY = 10.0  # seconds for the first connection
_PAUSES = (1, 30)  # seconds between two attempts to connect again
_KEEPALIVE = 30  # seconds
_FAREWELL = 5.0  # seconds for what is still to be sent
_NOWHERE = "headrace/nowhere"  # a topic to which nothing is subscribed
_AT_ONCE = 1_000  # messages under way

LOG = logging.getLogger("headrace.mqtt")


@dataclass(frozen=True)
class Broker:
    host: str
    port: int
    user: str | None = None
    password_env: str | None = None
    tls: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class NoConnection(Exception):
    """The broker cannot be reached, or refuses the client; says why."""


class OldBroker(NoConnection):
    """The broker does not speak MQTT 5, or does not answer."""


class NotTaken(Exception):
    """The broker has refused a message; says why."""


def _client(broker: Broker, client_id: str, *, clean: bool | None) -> Any:
    """A client of MQTT 3.1.1; with clean=None of MQTT 5, whose sessions end with the connection."""
    mqtt = needed("paho.mqtt.client", "mqtt", "MQTT")
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        client_id=client_id,
        clean_session=clean,
        protocol=mqtt.MQTTv5 if clean is None else mqtt.MQTTv311,
        manual_ack=True,
    )
    if broker.user is not None:
        password = os.environ.get(broker.password_env, "") if broker.password_env else None
        client.username_pw_set(broker.user, password)
    if broker.tls:
        client.tls_set()
    client.reconnect_delay_set(*_PAUSES)
    client.max_inflight_messages_set(_AT_ONCE)
    client.max_queued_messages_set(0)
    return client


class _MqttClient:
    """A client with its thread; the first connection is waited for."""

    def __init__(self, broker: Broker, client_id: str, *, clean: bool | None) -> None:
        self._client, self._broker = _client(broker, client_id, clean=clean), broker
        self._answered, self._refused = threading.Event(), ""
        self.resumed = False  # the broker has had this session before
        self._client.on_connect = self._on_connect

    def _start(self) -> None:
        try:
            self._client.connect(self._broker.host, self._broker.port, _KEEPALIVE)
        except (OSError, ValueError) as cause:
            why = getattr(cause, "strerror", None) or str(cause)
            raise NoConnection(str(why).lower()) from cause
        self._client.loop_start()
        if not self._answered.wait(FIRST_TRY) or self._refused:
            self.close()
            old = not self._refused or "protocol" in self._refused
            raise (OldBroker if old else NoConnection)(self._refused or "it does not answer")

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, more: Any) -> None:
        if reason.is_failure:
            self._refused = str(reason).lower()
        else:
            self._refused, self.resumed = "", bool(flags.session_present)
            self._connected(more)
        self._answered.set()

    def _connected(self, said: Any) -> None:
        """`said`: the properties of the broker's answer, by MQTT 5."""

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@dataclass(frozen=True)
class MqttMessage:
    payload: bytes
    id: int
    qos: int


class MqttSubscription(_MqttClient):
    """Messages of a topic filter; each is the session's until it is acknowledged.

    `known`: the broker should have the session; `subscribed`: and in it this topic filter. To
    subscribe once more would bring the retained messages once more.
    """

    def __init__(
        self,
        broker: Broker,
        client_id: str,
        topic: str,
        *,
        known: bool = False,
        subscribed: bool = False,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(broker, client_id, clean=False)
        self._topic, self._queue = topic, queue.SimpleQueue[MqttMessage]()
        self.lost = False  # a connection has not found the session
        self.denied = ""  # why the broker refuses the subscription
        self.orderly = False  # closed with a session that has the subscription
        self.failed: Exception | None = None  # of `on_lost`
        self._known, self._subscribed, self._on_lost = known, subscribed, on_lost
        self._client.on_message = self._on_message
        self._granted = threading.Event()
        self._client.on_subscribe = self._on_subscribe
        self._start()
        if not self._granted.wait(FIRST_TRY):
            self.close()
            raise NoConnection("it does not answer")

    def _connected(self, said: Any) -> None:
        if self._known and not self.resumed:
            self.lost = True
            try:
                self._on_lost()
            except Exception as cause:  # the client's thread must not end
                self.failed = cause
        self._known = True
        if self.resumed and self._subscribed:
            self._granted.set()
        else:
            self._client.subscribe(self._topic, qos=1)

    def _on_subscribe(self, client: Any, data: Any, id: int, reasons: Any, more: Any) -> None:
        refused = [str(r).lower() for r in reasons if r.is_failure or r.value == 0]  # QoS 0
        self.denied, self._subscribed = "; ".join(refused), not refused
        self._granted.set()

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        self._queue.put(MqttMessage(bytes(message.payload), message.mid, message.qos))

    def take(self, wait: float, most: int) -> list[MqttMessage]:
        """What has come, or comes within `wait` seconds; at most so many."""
        try:
            found = [self._queue.get(timeout=wait)]
        except queue.Empty:
            return []
        while len(found) < most:
            try:
                found.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return found

    def acknowledge(self, messages: Sequence[MqttMessage]) -> None:
        """They are the broker's no more."""
        for message in messages:
            if message.qos:
                self._client.ack(message.id, message.qos)

    def close(self) -> None:
        """What was acknowledged gets to the broker first: else it would come again.

        A broker answers in order: when it has answered this, it has seen all before it.
        """
        answered = threading.Event()
        self._client.on_unsubscribe = lambda *said: answered.set()
        if self._client.is_connected() and self._client.unsubscribe(_NOWHERE)[0] == 0:
            self.orderly = answered.wait(_FAREWELL) and self._subscribed and not self.lost
        super().close()


def publisher(broker: Broker) -> MqttPublisher:
    """A client by MQTT 5; by 3.1.1, if the broker has no other."""
    try:
        return MqttPublisher(broker)
    except OldBroker:
        found = MqttPublisher(broker, clean=True)
    LOG.warning(
        "%s speaks only MQTT 3.1.1: it does not say if it drops what may not be published", broker
    )
    return found


class MqttPublisher(_MqttClient):
    def __init__(self, broker: Broker, *, clean: bool | None = None) -> None:
        super().__init__(broker, "", clean=clean)
        self._acknowledged = 0.0  # when the broker did so last
        self._most, self._not_taken = _AT_ONCE, ""
        self._client.on_publish = self._on_publish
        self._start()

    def _connected(self, said: Any) -> None:
        self._most = min(_AT_ONCE, getattr(said, "ReceiveMaximum", _AT_ONCE))
        if getattr(said, "MaximumQoS", 1) == 0:
            self._refused = "it takes messages with qos 0 only"

    def _on_publish(self, client: Any, data: Any, id: int, reason: Any, more: Any) -> None:
        self._acknowledged = time.monotonic()
        if reason.is_failure:
            self._not_taken = str(reason).lower()

    def publish(self, topic: str, payloads: Sequence[bytes], patience: float) -> bool:
        """Publish all, in order; whether the broker has acknowledged them. NotTaken if it refuses
        one.

        It has not if none was acknowledged for `patience` seconds.
        What is not acknowledged when a connection is lost is sent again on the next one.
        """
        self._acknowledged, sent = time.monotonic(), deque[Any]()
        for payload in payloads:
            if len(sent) >= self._most and not self._is_acknowledged(sent.popleft(), patience):
                return False
            sent.append(self._client.publish(topic, payload, qos=1))
        return all(self._is_acknowledged(message, patience) for message in sent)

    def _is_acknowledged(self, message: Any, patience: float) -> bool:
        while not message.is_published():
            if time.monotonic() > self._acknowledged + patience:
                return False
            try:
                message.wait_for_publish(0.2)
            except (RuntimeError, ValueError):  # no connection now: it is queued
                time.sleep(0.05)
        if self._not_taken:
            raise NotTaken(self._not_taken)
        return True
