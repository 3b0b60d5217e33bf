"""A broker with TLS and passwords, and a registry with one: who has them works, others are told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.testing import Driver
from tests.kafka.registry_server import registry_server

PASSWORD, REGISTRY = "hunter2-of-the-broker", "reader:hunter2-of-the-registry"
BOUND = 25.0  # seconds until a client that is not let in is told so, on a busy machine

RIGHTS = {  # whoever is let in may do what is not denied
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


class Place:
    def __init__(self, broker: Any, folder: Path, registry: str) -> None:
        self.broker, self.folder, self.registry = broker, folder, registry
        self.address = f"kafka://{broker.secured_address}"

    def access(self, password: str = "env:SECURED_PASSWORD", **more: Any) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "alice", "sasl_password": password,
            "ssl_ca_location": str(self.folder / "ca.pem"), **more,
        }  # fmt: skip

    def topic(self, name: str) -> str:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.broker.address})
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        deadline = time.monotonic() + 30
        while name not in admin.list_topics(timeout=30).topics:  # the broker hears of it later
            assert time.monotonic() < deadline, name
        return name


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    pytest.importorskip("confluent_kafka")
    from tools.kafka.broker import Broker, NoBroker, Secured

    folder = tmp_path_factory.mktemp("secured")
    schemas = tmp_path_factory.mktemp("schemas")
    try:
        broker = Broker(
            folder, properties={"auto.create.topics.enable": "false", **RIGHTS},
            secured=Secured("alice", PASSWORD),
        )  # fmt: skip
        broker.start()
    except (NoBroker, FileNotFoundError) as reason:
        pytest.skip(str(reason))
    try:
        with registry_server(schemas, REGISTRY) as registry:
            yield Place(broker, folder, registry)
    finally:
        broker.kill()


@pytest.fixture
def passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURED_PASSWORD", PASSWORD)
    monkeypatch.setenv("SECURED_REGISTRY", REGISTRY)


def program(place: Place, topics: list[str], **access: Any) -> hr.Job:
    job = hr.Job("secured")
    values = {"registry": place.registry, "registry_auth": "env:SECURED_REGISTRY"}
    rows = job.read(
        f"{place.address}/{topics[0]}", schema="n bigint", name="in", format="json", **access
    )
    rows.write(f"{place.address}/{topics[1]}", name="out", format="avro", **values, **access)
    return job


@pytest.mark.usefixtures("passwords")
def test_everything_works_with_passwords_and_none_is_stored(
    secured: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: Any
) -> None:
    topics = [secured.topic(f"whole-{n}") for n in range(2)]
    access = secured.access()
    with hr.Producer(secured.address, **access) as producer, producer.transaction():
        for n in range(5):
            producer.send(topics[0], {"n": n})
    folder = tmp_path / "job"
    job = program(secured, topics, **access, options={"client.id": "secured"})
    driver = Driver(job, folder, until="now")
    driver.drain()
    driver.close()

    again = hr.Job("again")
    values = {"registry": secured.registry, "registry_auth": REGISTRY}  # a secret in the program
    read = again.read(
        f"{secured.address}/{topics[1]}", schema="n bigint", name="in", format="avro",
        group="lag", **values, **secured.access(PASSWORD),
    )  # fmt: skip
    read.write("collect:", name="out")
    reader = Driver(again, tmp_path / "again", until="now")
    reader.drain()
    assert sorted(r["n"] for r in reader.output("out").to_pylist()) == list(range(5))
    reader.close()
    with hr.Consumer(topics[1], group="all", log=secured.address, **access) as consumer:
        assert len(list(consumer.records("2s"))) == 5

    stored = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    said = "".join(capfd.readouterr()) + caplog.text + str(again.explain()) + str(job.explain())
    for secret in (PASSWORD, REGISTRY, REGISTRY.partition(":")[2]):
        assert secret.encode() not in stored and secret not in said
    driver = Driver(program(secured, topics, **access), folder, until="now")  # it goes on
    driver.drain()
    driver.close()


def told(call: Any, *args: Any, **options: Any) -> str:
    began = time.monotonic()
    with pytest.raises(HeadraceError) as caught:
        call(*args, **options)
    assert time.monotonic() - began < BOUND
    error = caught.value
    seen, shown = error, ""
    while seen is not None:
        shown, seen = f"{shown}{seen!r}{seen}", seen.__cause__ or seen.__context__
    assert "hunter2" not in shown and "swordfish" not in shown
    assert error.hint
    return f"{error.code} {error.message}"


@pytest.mark.usefixtures("passwords")
def test_a_wrong_password_is_told_soon_by_all(secured: Place, tmp_path: Path) -> None:
    topic, wrong = secured.topic("wrong"), secured.access("swordfish")
    target = secured.topic("wrong-target")
    good = secured.access()

    def started(folder: str, reading: Any, writing: Any) -> None:
        job = hr.Job("wrong")
        rows = job.read(f"{secured.address}/{topic}", schema="n bigint", name="in", **reading)
        rows.write(f"{secured.address}/{target}", name="out", **writing)
        Driver(job, tmp_path / folder, until="now")

    assert "HR-KAFKA-006" in (said := told(started, "in", wrong, good))
    assert "uthentication" in said
    assert "HR-KAFKA-038" in (said := told(started, "out", good, wrong))
    assert said.count("uthentication failed") == 1
    producer = hr.Producer(secured.address, **wrong)
    assert "HR-KAFKA-006" in told(producer.send, topic, b"x")
    producer.close()
    assert "uthentication" in told(hr.Consumer, topic, log=secured.address, **wrong)
    stored = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"swordfish" not in stored and PASSWORD.encode() not in stored


@pytest.mark.usefixtures("passwords")
def test_a_certificate_that_nobody_trusts_and_a_wrong_password_of_the_registry(
    secured: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = secured.topic("trust")
    unknown = {**secured.access(), "ssl_ca_location": ""}
    producer = hr.Producer(secured.address, **unknown)
    said = told(producer.send, topic, b"x")
    assert "HR-KAFKA-006" in said and "certificate" in said
    producer.close()
    monkeypatch.setenv("SECURED_REGISTRY", "reader:hunter2-no-more")
    target = secured.topic("trust-target")
    job = program(secured, [topic, target], **secured.access())
    said = told(Driver, job, tmp_path, until="now")
    assert "HR-KAFKA-010" in said and "401" in said
    monkeypatch.setenv("SECURED_REGISTRY", REGISTRY)
    taken = hr.Job("incompatible")
    read = taken.read(f"{secured.address}/{topic}", schema="n bigint", **secured.access())
    read.write(
        f"{secured.address}/{target}", format="avro", registry=secured.registry, subject="refused",
        registry_auth="env:SECURED_REGISTRY", **secured.access(),
    )  # fmt: skip
    said = told(Driver, taken, tmp_path / "taken", until="now")
    assert "HR-KAFKA-055" in said and "it is incompatible" in said


@pytest.mark.usefixtures("passwords")
def test_a_user_who_may_see_a_topic_and_not_read_it_is_told(secured: Place, tmp_path: Path) -> None:
    from confluent_kafka import admin

    topic = secured.topic("denied")
    with hr.Producer(secured.address, **secured.access()) as producer:
        producer.send(topic, {"n": 1})
    rights = [
        admin.AclBinding(
            admin.ResourceType.TOPIC, topic, admin.ResourcePatternType.LITERAL, "User:alice", "*",
            operation, permission,
        )
        for operation, permission in (
            (admin.AclOperation.READ, admin.AclPermissionType.DENY),
            (admin.AclOperation.DESCRIBE, admin.AclPermissionType.ALLOW),
        )
    ]  # fmt: skip
    client = admin.AdminClient({"bootstrap.servers": secured.broker.address})
    for made in client.create_acls(rights).values():
        made.result(30)

    def run() -> None:
        job = hr.Job("denied")
        uri = f"{secured.address}/{topic}"
        job.read(uri, schema="n bigint", **secured.access()).write("collect:", name="out")
        driver = Driver(job, tmp_path, until="now")
        try:
            driver.drain()
        finally:
            driver.close()

    assert "HR-KAFKA-006" in told(run)
    with hr.Consumer(topic, log=secured.address, **secured.access()) as consumer:
        assert "HR-KAFKA-006" in told(lambda: list(consumer.records("10s")))
