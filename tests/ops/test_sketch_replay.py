"""Sketches of every kind: a job that crashes and replays leaves the bytes of one that does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.testing import Harness

KINDS: dict[str, Any] = {
    "hll": hr.approx_count_distinct("v", size=168),
    "kll": hr.approx_quantile("v", 0.5, size="3KB"),
    "depth": hr.histogram("v", 4, size="3KB"),
    "top": hr.approx_top_k("v", 2, counters=5),
    "cells": hr.count_min("v", [1, 2], size=360),
    "sample": hr.sample("v", 3, seed=2),
    "weighted": hr.sample("v", 3, weight="w"),
    "theta": hr.theta("v", size=160),
}


def job(running: bool) -> hr.Job:
    made = hr.Job("replayed")
    schema = "k string, v bigint, w double, at bigint"
    rows = made.read("log:a", schema=schema, time="at", delay="1s", name="in").key_by("k")
    if running:
        rows.agg(**KINDS, unbounded=True, name="s").write("log:out", name="out")
    else:
        rows.window(hr.sliding("20s", every="5s")).agg(**KINDS, name="s").write(
            "log:out", name="out"
        )
    return made


@pytest.mark.parametrize("running", [False, True])
def test_a_crash_and_a_replay_leave_the_same_bytes(running: bool) -> None:
    draw, left = np.random.default_rng(9), []
    rows = [
        {"k": "ab"[draw.integers(0, 2)], "v": int(draw.integers(0, 500)), "w": float(1 + n % 3),
         "at": n * 60} for n in range(300)
    ]  # fmt: skip
    for disturbed in (False, True):
        with Harness(job(running), tasks=2) as test:
            for number in range(5):
                if disturbed and number % 2:
                    test.crash()
                elif disturbed:
                    test.restart()
                test.send("in", rows[60 * number : 60 * number + 60])
            state = {n: t.to_pylist() for n, t in test.state("s").items()}
            left.append((str(state), str(test.output("out"))))
    assert left[0] == left[1]
    assert all(f"{name}__" in left[0][0] for name in KINDS)
