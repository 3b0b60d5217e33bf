"""What a user reads when Spark fails: our own error if there was one, never a wall of Java."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from headrace.engine.failure import Marked, marked, recover
from headrace.errors import RunError, Site, StepError

WALL = "org.apache.spark.SparkException: Job aborted\n\tat org.apache.Spark.run(Spark.scala:1)\n{}"


def test_an_error_of_ours_comes_back_whole_from_whatever_is_wrapped_around_it() -> None:
    error = StepError("HR-STEP-001", "it broke", "Mend it.", site=Site("job.py", 3))
    with pytest.raises(Marked) as sent, marked():
        raise error
    found = recover(RuntimeError(WALL.format(sent.value)))
    assert type(found) is StepError and str(found) == str(error)


def test_a_worker_that_did_not_start_in_time() -> None:
    text = "org.apache.spark.SparkException: Python worker failed to connect back."
    found = recover(RuntimeError(text))
    assert found.code == "HR-RUN-001" and "start the job again" in found.hint


def test_the_last_python_error_stands_for_the_rest() -> None:
    wall = WALL.format("Traceback (most recent call last):\nValueError: first\nOSError: disk gone")
    found = recover(RuntimeError(wall))
    assert (
        found.code == "HR-RUN-001" and found.message == "Spark stopped the job: OSError: disk gone"
    )


def test_a_conversation_that_breaks_off_means_that_the_jvm_is_gone() -> None:
    asking = Py4JError("An error occurred while calling o83.isActive")
    wrapped = RuntimeError("stopped")
    wrapped.__cause__ = ConnectionRefusedError("connection refused")
    for cause in (asking, Py4JNetworkError("answer from Java side is empty"), wrapped):
        found = recover(cause)
        assert isinstance(found, RunError) and found.code == "HR-RUN-006"
