"""Who may speak with a job's Spark: only those who know its secret.

Within one JVM, on YARN and on Kubernetes Spark makes a secret for every run and carries it to the
executors itself. A standalone cluster has one secret, which its master and workers were started
with; it is read from a file that only its owner can read. The secret is given to the JVM over the
authenticated connection that PySpark has with it: it is on no command line, and in no file of
ours. Across processes everything is encrypted too.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from headrace.errors import RunError

_STANDALONE = "spark://"
_AUTHENTICATED = {"spark.authenticate": "true"}
_ENCRYPTED = {
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
}
_PROBE = {"spark.rpc.lookupTimeout": "30s", "spark.rpc.io.connectionCreationTimeout": "30s"}
_SECRET = "spark.authenticate.secret"
_CONFIGURE = (
    "Start its master and workers with spark.authenticate true, spark.authenticate.secret, "
    "spark.network.crypto.enabled true and spark.network.crypto.authEngineVersion 2"
)
_UNREACHABLE = re.compile(
    r"Connection refused|UnknownHost|Unresolved|No route to host|Network is unreachable"
    r"|Connecting to \S+ (?:timed out|failed)"
)


def public(master: str, in_process: bool) -> dict[str, str]:
    """The settings that everybody may see."""
    return _AUTHENTICATED if in_process else _AUTHENTICATED | _ENCRYPTED


def private(master: str, file: str | None) -> dict[str, str]:
    """The settings that must not be seen: none, unless a standalone cluster has a secret."""
    if not master.startswith(_STANDALONE):
        return {}
    if file is None:
        raise RunError(
            f"no secret for the standalone cluster {master!r}", code="HR-RUN-013",
            hint=f"{_CONFIGURE}, and name a file that holds the same secret with the setting "
            "secret_file (HEADRACE_SECRET_FILE).",
        )  # fmt: skip
    return {_SECRET: _read(file)}


def _read(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as opened:
            mode, secret = os.fstat(opened.fileno()).st_mode, opened.read().strip()
    except (OSError, ValueError) as error:
        raise _bad_file(file, f"cannot be read: {error}") from error
    if not stat.S_ISREG(mode) or mode & 0o077:
        raise _bad_file(file, "can be read by others than its owner")
    if not secret:
        raise _bad_file(file, "is empty")
    return secret


def _bad_file(file: str, why: str) -> RunError:
    return RunError(
        f"the secret file {file!r} {why}", code="HR-RUN-014",
        hint="It must hold the cluster's secret, and only its owner may read it: chmod 600.",
    )  # fmt: skip


def check_master(jvm: Any, master: str, settings: dict[str, str]) -> None:
    """Refuse a standalone master that does not answer, or does not know our secret.

    Spark itself would try for a minute, and then say only that nobody answers.
    """
    if not master.startswith(_STANDALONE):
        return
    failures = []
    for address in master.removeprefix(_STANDALONE).split(","):
        failure = _failure(jvm, address, settings)
        if failure is None:
            return
        failures.append(failure)
    if all(map(_UNREACHABLE.search, failures)):
        raise RunError(
            f"cannot start Spark on {master!r}: nobody answers there", code="HR-RUN-003",
            hint="Check the master's address, and that it runs.",
        )  # fmt: skip
    raise RunError(
        f"the master {master!r} does not accept our secret", code="HR-RUN-015",
        hint=f"{_CONFIGURE}; the secret must be the one in our secret_file.",
    )  # fmt: skip


def _failure(jvm: Any, address: str, settings: dict[str, str]) -> str | None:
    """What Java says when it looks for the master at `address`; None if it is there."""
    spark = jvm.org.apache.spark
    host, _, port = address.rpartition(":")
    conf = spark.SparkConf(False)
    for name, value in {**settings, **_PROBE}.items():
        conf.set(name, value)
    manager = spark.SecurityManager
    defaults = [getattr(manager, f"$lessinit$greater$default${n}")() for n in (2, 3)]
    env = spark.rpc.RpcEnv.create("headrace", "localhost", 0, conf, manager(conf, *defaults), True)
    try:
        env.setupEndpointRef(spark.rpc.RpcAddress(host.strip("[]"), int(port)), "Master")
    except Py4JJavaError as error:
        return str(error)
    finally:
        env.shutdown()
    return None
