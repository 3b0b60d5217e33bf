"""Aadhaar: who gets a number, who is rejected by which task, and what was measured."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from math import sqrt

import pytest
from examples.data.enrolment import PACKETS, REQUESTS
from examples.data.playing import topic
from examples.enrolment import SIMULATED

import headrace as hr
from tests.examples.playing import PLACES, played

FAST = 0.05  # as fast as this, so that the test does not sleep long
TASKS = {task: [ms * FAST, share] for task, (ms, share) in SIMULATED.items()}
ENROLMENT = {  # task: where the edges P and F lead
    "unpack": ("validate", None), "validate": ("demographics", None),
    "demographics": ("quality", "review"), "review": ("quality", None),
    "quality": ("biometrics", None), "biometrics": ("issue", "adjudicate"),
    "adjudicate": ("issue", None), "issue": ("number", None),
}  # fmt: skip


@pytest.fixture(scope="module", params=PLACES)
def printed(request, tmp_path_factory) -> Iterator[str]:
    changed = json.dumps(TASKS)
    with played(request, tmp_path_factory, "enrolment", max_batch=100, TASKS=changed) as text:
        yield text


def drawn(task: str, what: str, packet: str) -> float:
    digits = sha256(f"{task} {what} {packet}".encode()).hexdigest()
    return int(digits[:12], 16) / 2**48


def walk(packet: str) -> list[str]:
    """The tasks of a packet, and "number" at the end if it gets one."""
    trail, task = [], "unpack"
    while task in ENROLMENT:
        trail.append(task)
        passed = drawn(task, "passes", packet) < SIMULATED[task][1]
        task = ENROLMENT[task][0 if passed else 1]
    return [*trail, task] if task else trail


def walks() -> dict[str, list[str]]:
    return {name: walk(name) for name in (f"p{i:05}" for i in range(PACKETS))}


def test_each_packet_ends_with_a_number_or_is_rejected_by_the_task_that_failed(printed) -> None:
    ends = {name: trail[-1] for name, trail in walks().items()}
    rejected = {name: end for name, end in ends.items() if end != "number"}
    assert len(set(rejected.values())) >= 4  # else this shows little
    assert {r["id"]: r["by"] for r in topic("rejections")} == rejected
    numbers = {r["id"]: r["number"] for r in topic("numbers")}
    assert set(numbers) == set(ends) - set(rejected)
    assert len(set(numbers.values())) == len(numbers) == len(topic("numbers"))
    assert len(topic("rejections")) == len(rejected)


def test_every_request_is_answered_once(printed: str) -> None:
    expected = {
        name: drawn("match", "passes", name) < SIMULATED["match"][1]
        for name in (f"r{i:05}" for i in range(REQUESTS))
    }
    answers = topic("answers")
    assert {a["id"]: a["yes"] for a in answers} == expected
    assert len(answers) == REQUESTS and not all(expected.values())


def test_what_was_measured_is_printed_beside_what_was_told(printed: str) -> None:
    visits = Counter(task for trail in walks().values() for task in trail if task != "number")
    visits |= {task: REQUESTS for task in ("decrypt", "lookup", "match")}
    for task, (_, told) in TASKS.items():
        line = re.search(rf"^{task} .*", printed, re.MULTILINE)
        assert line is not None
        packets, _, _, p, measured, f, fails = map(float, line[0].split()[1:])
        assert (packets, p, f) == (visits[task], round(told, 3), round(1 - told, 3))
        assert measured + fails == pytest.approx(1)
        assert abs(measured - told) <= 4 * sqrt(told * (1 - told) / packets) + 0.001


def test_a_task_takes_at_least_as_long_as_told(printed: str) -> None:
    shown = {r["task"] for r in hr.read_output(".headrace/aadhaar/latency").to_pylist()}
    assert shown == set(SIMULATED)
    for task, (latency, _) in TASKS.items():
        ids = [n for n, trail in walks().items() if task in trail]
        ids = ids or [f"r{i:05}" for i in range(REQUESTS)]
        asked = latency * (0.5 + sum(drawn(task, "takes", i) for i in ids) / len(ids))
        line = re.search(rf"^{task} .*", printed, re.MULTILINE)
        assert line is not None
        assert float(line[0].split()[3]) >= asked - 0.006  # printed with two digits
