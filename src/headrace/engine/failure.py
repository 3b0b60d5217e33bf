"""Errors across the JVM: one Python exception out of a wall of Java text.

A task or driver-side process raises a `Marked` error that carries our own error as JSON
between two marks; `recover` finds it again in whatever text Spark wraps around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

from headrace import errors
from headrace.errors import HeadraceError, RunError, Site

_OPEN, _CLOSE = "[headrace-error[", "]headrace-error]"
_MARK = re.compile(re.escape(_OPEN) + r"(.*?)" + re.escape(_CLOSE), re.DOTALL)
_NO_WORKER = "Python worker failed to connect back"
_OVERLOADED = (
    "A process took too long to start, as on a machine that has too much to do: start the job "
    "again, and it goes on after its last batch (headrace run --restart does so by itself)."
)
_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)): (.*)$", re.MULTILINE)


class Marked(RuntimeError):
    """A HeadraceError on its way through the JVM."""


@contextmanager
def marked() -> Iterator[None]:
    """Let a HeadraceError that leaves this block survive the journey."""
    try:
        yield
    except HeadraceError as error:
        raise Marked(mark(error)) from None


def mark(error: HeadraceError) -> str:
    site = [error.site.file, error.site.line] if error.site else None
    fields = [type(error).__name__, error.message, error.code, error.hint, site]
    return f"{_OPEN}{json.dumps(fields)}{_CLOSE}"


def recover(cause: BaseException) -> HeadraceError:
    """The error in a failed query's text, or that there is nobody left to ask."""
    if _cut_off(cause):
        return RunError(
            "HR-RUN-006",
            "Spark's JVM is gone",
            "Was it killed, for want of memory perhaps? Start the program again: the job "
            "goes on after its last batch.",
        )
    text = str(cause)
    match = _MARK.search(text)
    if match is None:
        return RunError(
            "HR-RUN-001",
            f"Spark stopped the job: {_summary(text)}",
            _OVERLOADED
            if _NO_WORKER in text
            else "Run again with --debug to see Spark's own text.",
        )
    name, message, code, hint, site = json.loads(match[1])
    kind = getattr(errors, name, HeadraceError)
    return kind(code, message, hint, site=Site(*site) if site else None)


def java_text(error: BaseException) -> str:
    """The text of an error, for which the JVM may be asked: it may be gone."""
    try:
        return str(error)
    except Exception:
        return "Java is gone"


def no_start(master: str, text: str, jvm_output: str) -> RunError:
    """Why Spark did not start, in one line of what Java has said of it."""
    return RunError(
        "HR-RUN-003",
        f"cannot start Spark on {master!r}: {_java_reason(text, jvm_output)}",
        "Check the master's address, and that Java runs. Run again with --debug to see all "
        "that Java says.",
    )


def _java_reason(text: str, jvm_output: str) -> str:
    lines = [line.strip() for line in f"{jvm_output}\n{text}".splitlines() if line.strip()]
    if any("stopped SparkContext" in line for line in lines):
        return "nothing answers there"
    reasons = [match[1].strip() for line in lines if (match := _JAVA.search(line))]
    plain = [line for line in lines if not _TRACE.match(line)]
    if len(reasons) > 1 and reasons[-1] != reasons[0]:  # of which the last is the first cause
        return f"{reasons[0]} ({reasons[-1]})"
    return (reasons or plain or ["no reason given"])[0]


# Of `Exception in thread "main" org.apache.spark.SparkException: [CODE] text`, the text.
_JAVA = re.compile(r"^(?:.*?[\s:])?(?:[a-z]\w*\.)+\w*(?:Exception|Error): (?:\[[\w.]+\] )?(.+)")
_TRACE = re.compile(r"at [\w.$/]+\(|\.\.\. \d+ more|An error occurred while calling|WARNING: ")


def _cut_off(cause: BaseException | None) -> bool:
    """Whether the conversation with the JVM has broken off: an error that no Java class threw."""
    if cause is None or isinstance(cause, Py4JNetworkError | ConnectionError):
        return cause is not None
    return type(cause) is Py4JError or _cut_off(cause.__cause__ or cause.__context__)


def _summary(text: str) -> str:
    python = _PYTHON.findall(text)
    if python:
        return f"{python[-1][0]}: {python[-1][1]}"
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
