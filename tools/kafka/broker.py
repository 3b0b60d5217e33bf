"""One Kafka broker of our own (KRaft: no ZooKeeper, no Docker) on loopback, in a folder.

It can be stopped, killed as by a power cut, and started again on the same ports with the same
data. It dies with the process that started it, however that ends. Stops no process but its own.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.kafka.jars import jars

HEAP = "512m"
READY = 90  # seconds, on a machine that is busy
JAVA_MIN = 17
QUICK = {  # what takes minutes in a real cluster takes a moment here
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.segment.delete.delay.ms": "500",
}
SINGLE = {  # one broker holds every copy
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class NoBroker(Exception):
    """A broker cannot be had here; the text says why and what to install."""


@dataclass(frozen=True)
class Secured:
    """A second listener, with TLS, that lets in one user (SASL, SCRAM-SHA-512)."""

    user: str
    password: str

    def made(self, folder: Path) -> Path:
        """A key and a certificate for 127.0.0.1, signed by itself, in one file."""
        key, certificate, both = (folder / n for n in ("key.pem", "ca.pem", "server.pem"))
        made = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30",
             "-subj", "/CN=headrace", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", str(key), "-out", str(certificate)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            raise NoBroker(f"openssl made no certificate: {made.stderr}")
        both.write_text(key.read_text() + certificate.read_text())
        return both

    def properties(self, port: int, folder: Path, plain: str, control: str) -> dict[str, str]:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return {
            "listeners": f"{plain},SASL_SSL://127.0.0.1:{port},{control}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": module,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.made(folder)),
        }


class Broker:
    """`with Broker(folder) as broker: broker.address`; the folder's data survive the broker."""

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        secured: Secured | None = None,
    ) -> None:
        self._folder, self._port, self._more = folder, port, dict(properties or {})
        self._secured, self._secured_port = secured, 0
        self._java = [java(), f"-Xmx{HEAP}", "-XX:TieredStopAtLevel=1", "-cp", f"{_jars()}/*",
                      "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """host:port, for `bootstrap.servers`."""
        return f"127.0.0.1:{self._port}"

    @property
    def secured_address(self) -> str:
        """The same, of the listener with TLS; its certificate is ca.pem in the folder."""
        return f"127.0.0.1:{self._secured_port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it answers; a folder without data is made ready first."""
        if not self._config.exists():
            self._format()
        self._port = self._port or int(self._config.read_text().split("# port ")[1].split()[0])
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: we stop it in order
            )
        # Ends the broker when this process is gone and the pipe breaks.
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", f"read -r _; kill -9 {self._process.pid}"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop it in order, as an operator does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill it, and start it again with the same address and data."""
        self.kill()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        if self._watch is not None:
            self._watch.kill()
            self._watch.communicate()
            self._watch = None
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    @property
    def _config(self) -> Path:
        return self._folder / "server.properties"

    def _format(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        port, control, self._secured_port = _free_ports(3)
        self._port = self._port or port
        plain = f"PLAINTEXT://127.0.0.1:{self._port}"
        controller = f"CONTROLLER://127.0.0.1:{control}"
        more = {}
        if self._secured is not None:
            folder, port = self._folder, self._secured_port
            more = self._secured.properties(port, folder, plain, controller)
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{control}",
            "listeners": f"{plain},{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / "data"),
            **SINGLE,
            **QUICK,
            **more,
            **self._more,
        }
        lines = [f"# port {self._port}", *(f"{key}={value}" for key, value in properties.items())]
        new = self._folder / "server.properties.new"
        new.write_text("\n".join(lines) + "\n")
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        id = "-"
        while id.startswith("-"):  # that would be an option of the tool
            id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        made = subprocess.run(
            [*self._java, "kafka.tools.StorageTool", "format", "-t", id, "-c", str(new),
             "--standalone", *self._users()],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            raise NoBroker(f"the broker's folder could not be made: {made.stdout}{made.stderr}")
        new.replace(self._config)

    def make_topics(self, partitions: Mapping[str, int]) -> None:
        """Make these topics, where they are missing."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        fresh = [NewTopic(name, count, 1) for name, count in partitions.items()]
        admin = self._admin()  # it answers as long as it lives
        for made in admin.create_topics(fresh).values() if fresh else ():
            try:
                made.result(30)
            except KafkaException as cause:
                if cause.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise NoBroker(f"a topic cannot be made: {cause.args[0].str()}") from cause

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        quiet = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
        return AdminClient({"bootstrap.servers": self.address, **quiet})

    def _users(self) -> list[str]:
        if self._secured is None:
            return []
        user = f"name={self._secured.user},password={self._secured.password}"
        return ["--add-scram", f"SCRAM-SHA-512=[{user}]"]

    def _wait_until_ready(self) -> None:
        from confluent_kafka import KafkaException

        assert self._process is not None
        admin, end = self._admin(), time.monotonic() + READY
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            try:
                if admin.list_topics(timeout=0.5).brokers:
                    return
            except KafkaException:
                continue
        log = (self._folder / "broker.log").read_text(errors="replace")
        raise NoBroker(f"the broker did not start; the end of its log:\n{log[-3000:]}")


def java() -> str:
    """The Java to run a broker with; NoBroker if there is none, or it is too old."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if found is None:
        raise NoBroker(f"a Kafka broker needs Java {JAVA_MIN} or newer, and there is none")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = said.partition('version "')[2].partition(".")[0].rstrip('"\n')
    if not version.isdecimal() or int(version) < JAVA_MIN:
        raise NoBroker(f"a Kafka broker needs Java {JAVA_MIN} or newer, and {found} is: {said}")
    return found


def _jars() -> Path:
    try:
        return jars()
    except OSError as cause:
        raise NoBroker(f"the jars of a Kafka broker could not be fetched: {cause}") from cause


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
