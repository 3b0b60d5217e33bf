"""Nobody without the secret speaks with a job's Spark, and nobody sees the secret."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

import headrace as hr
from headrace.engine import session
from headrace.errors import RunError
from tests.engine.cluster import SECURE, master

FAR = "spark://far:7077"


@contextmanager
def _intruder(java: Any) -> Iterator[Any]:
    """Spark's RPC as another process of this machine has it: without the secret."""
    spark = java.org.apache.spark
    conf = spark.SparkConf(False).set("spark.rpc.lookupTimeout", "20s")
    manager = spark.SecurityManager
    defaults = [getattr(manager, f"$lessinit$greater$default${n}")() for n in (2, 3)]
    known = manager(conf, *defaults)
    env = spark.rpc.RpcEnv.create("intruder", "127.0.0.1", 0, conf, known, True)
    try:
        yield env
    finally:
        env.shutdown()


@pytest.mark.spark
def test_an_intruder_cannot_reach_the_executor_of_a_job(spark: Any, tmp_path: Path) -> None:
    job = hr.Job("guarded")
    job.read(hr.generate(100, lambda i: {"n": i}), name="rows").write("collect:", name="out")
    run = hr.run(job, folder=str(tmp_path / "job"), quiet=True)
    java, port = spark._jvm, int(spark.conf.get("spark.driver.port"))
    with _intruder(java) as env:
        for endpoint in ("LocalSchedulerBackendEndpoint", "BlockManagerMaster"):
            address = java.org.apache.spark.rpc.RpcAddress("127.0.0.1", port)
            with pytest.raises(Py4JJavaError) as caught:
                env.setupEndpointRef(address, endpoint)  # from here on it could stop it
            assert "Expected SaslMessage" in str(caught.value)
    before = run.status.epoch
    while run.status.epoch < before + 2:  # it goes on
        assert run.wait(timeout=0.05).state == "running"
    assert run.stop().state == "stopped"


@pytest.mark.spark
def test_the_gateway_of_the_jvm_asks_for_a_token(spark: Any) -> None:
    assert len(spark.sparkContext._gateway.gateway_parameters.auth_token) >= 32


def test_only_a_standalone_cluster_needs_a_secret_of_ours() -> None:
    for other in ("local[2]", "yarn", "k8s://https://far:443", "local-cluster[1,1,1024]"):
        assert session.private(other, None) == {}
    with pytest.raises(RunError) as caught:
        session.private(FAR, None)
    assert caught.value.code == "HR-RUN-013" and "HEADRACE_SECRET_FILE" in str(caught.value)


def test_across_processes_all_is_authenticated_and_encrypted() -> None:
    for where, here in ((FAR, False), ("yarn", False), ("local[2]", True)):
        settings = session.public(where, here)
        assert settings["spark.authenticate"] == "true"
        assert here or settings["spark.network.crypto.enabled"] == "true"
        assert here or settings["spark.network.crypto.saslFallback"] == "false"
        assert not any("secret" in name for name in settings)


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [("s", 0o644, "others"), ("s", 0o640, "others"), (" \n", 0o600, "empty"), (None, 0, "read")],
)
def test_a_secret_file_that_others_can_read_or_that_is_empty_is_refused(
    tmp_path: Path, text: str | None, mode: int, why: str
) -> None:
    file = tmp_path / "secret"
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    with pytest.raises(RunError) as caught:
        session.private(FAR, str(file))
    assert caught.value.code == "HR-RUN-014" and why in str(caught.value)


def test_the_secret_is_what_the_file_holds_without_the_end_of_the_line(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("open sesame\n")
    file.chmod(0o600)
    assert session.private(FAR, str(file)) == {"spark.authenticate.secret": "open sesame"}


@pytest.mark.spark
@pytest.mark.parametrize("configuration", [SECURE, ""], ids=["another secret", "no secret"])
def test_a_master_that_does_not_know_our_secret_is_refused_by_name(
    spark: Any, configuration: str
) -> None:
    with master(configuration) as address, pytest.raises(RunError) as caught:
        session.check_master(spark._jvm, address, session.public(address, False))
    assert str(caught.value).startswith(
        f"HR-RUN-015 the master '{address}' does not accept our secret\n"
    )


@pytest.mark.spark
def test_a_master_that_is_not_there_is_another_matter(spark: Any) -> None:
    nowhere = "spark://127.0.0.1:1"
    with pytest.raises(RunError) as caught:
        session.check_master(spark._jvm, nowhere, session.public(nowhere, False))
    assert caught.value.code == "HR-RUN-003" and "nothing answers there" in str(caught.value)
