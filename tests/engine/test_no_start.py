"""What keeps Spark from starting is one line with a code; Java's text comes with --debug only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.engine.failure import no_start
from headrace.errors import RunError
from headrace.settings import Settings

WALL = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: [CODE.SUB] Could not do it
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:1)
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
\t... 12 more
"""


@pytest.mark.parametrize(
    ("text", "told", "reason"),
    [
        (WALL, "", "Could not do it (Connection refused)"),
        ("", 'Exception in thread "main" java.lang.Error: no\n\tat a.B.c(D.java:1)', "no"),
        ("Java ended", "Error: Unrecognized option: --x\n", "Error: Unrecognized option: --x"),
        ("Java ended before Spark was up", "", "Java ended before Spark was up"),
        ("", "", "no reason given"),
    ],
)
def test_one_line_is_made_of_what_java_says(text: str, told: str, reason: str) -> None:
    error = no_start("local[2]", text, told)
    assert error.code == "HR-RUN-003"
    assert str(error).splitlines()[0] == f"HR-RUN-003 cannot start Spark on 'local[2]': {reason}"
    assert "\tat " not in str(error)


@pytest.mark.parametrize(
    "master",
    ["yarnn", "yarn-client", "local[x]", "local[2", "localhost", "spark://h", "spark:/h:1", "k8s:"],
)
def test_a_master_that_spark_does_not_know_is_answered_with_those_it_does(master: str) -> None:
    with pytest.raises(RunError) as caught:
        Settings.load(master=master)
    assert caught.value.code == "HR-SETTINGS-002"
    assert '"spark://host:7077", "yarn" or "k8s://' in str(caught.value)


@pytest.mark.parametrize(
    "master",
    [
        "local", "local[1]", "local[*]", "local[4, 2]", "local-cluster[2,1,1024]", "yarn",
        "spark://h:7077", "spark://a:1,b:2", "spark://[::1]:7077", "k8s://https://h:443",
    ],
)  # fmt: skip
def test_masters_that_spark_knows_are_taken(master: str) -> None:
    assert Settings.load(master=master).master == master


@pytest.mark.spark
@pytest.mark.parametrize("debug", [False, True])
def test_javas_text_is_shown_with_debug_only(tmp_path: Path, debug: bool) -> None:
    (tmp_path / "job.py").write_text(
        "import headrace as hr\njob = hr.Job('j')\n"
        "job.read(hr.rows([{'n': 1}], 'n bigint')).write('console:')\n"
    )
    unset = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HEADRACE_ZYGOTE")
    done = subprocess.run(
        [Path(sys.executable).with_name("headrace"), "run", "job.py", "--master", "yarn",
         *(["--debug"] if debug else [])],
        cwd=tmp_path, env={k: v for k, v in os.environ.items() if k not in unset}, check=False,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 75  # the cluster may come back
    assert "HR-RUN-003 cannot start Spark on 'yarn': When running with master" in done.stderr
    assert ("at org.apache.spark" in done.stderr) is debug
    assert "Traceback" not in done.stderr
