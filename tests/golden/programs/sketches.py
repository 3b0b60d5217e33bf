"""Sketches in state: of few values, and of more than they hold."""

from __future__ import annotations

from pathlib import Path

import headrace as hr
from tests.golden.programs.base import program, readings, write


@program("readings")
def sketches(root: Path, job: hr.Job) -> None:
    """In windows and running; small ones, so that registers, levels and theta are stored, too."""
    rows = readings(root, job)
    small = {
        "d": hr.approx_count_distinct("id", size=168),
        "q": hr.approx_quantile("id", 0.5, size="3KB"),
        "t": hr.approx_top_k("id", 2, counters=5), "s": hr.sample("id", 3, seed=7),
        "w": hr.sample("id", 2, weight="celsius"), "c": hr.count_min("id", [1, 2, 30], error=0.3),
        "h": hr.histogram("celsius", 3, low=0, high=60), "a": hr.theta("id", size=160),
        "b": hr.theta("zone"),
    }  # fmt: skip
    counts = {"a": hr.theta_count("a"), "b": hr.theta_count(hr.theta_union("a", "b"))}
    whole = rows.window(hr.tumbling("1h")).agg(**small, name="whole").with_columns(**counts)
    slid = rows.key_by("area").window(hr.sliding("20s", every="5s"))
    running = {
        "d": hr.approx_count_distinct("state"), "q": hr.approx_quantiles("celsius", [0.1, 0.9]),
        "t": hr.approx_top_k("state", 1), "n": hr.theta("id"),
    }  # fmt: skip
    far = rows.key_by("zone").agg(**running, unbounded=True, name="far")
    write(
        whole=whole, slid=slid.agg(**small, name="slid").with_columns(**counts),
        far=far.with_columns(n=hr.theta_count("n")),
    )  # fmt: skip
