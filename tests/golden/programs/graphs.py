"""Graphs over streams of edges, one for each key and one for all."""

from __future__ import annotations

from pathlib import Path

import headrace as hr
from tests.golden.programs.base import program, readings, write


@program("readings")
def graphs(root: Path, job: hr.Job) -> None:
    """Every graph operator: texts and numbers as vertices, with a key and without."""
    rows = readings(root, job).select("id", "area", "zone", "state")
    rows = rows.where("area is not null and state is not null and zone is not null")
    few = rows.with_columns(a="id % 17", b="(id * id) % 13")
    texts, numbers = rows.edges("area", "state"), few.key_by("zone").edges("a", "b")
    ten = hr.tumbling("10s")
    write(
        named=texts.components(unbounded=True, name="named"),
        components=numbers.components(unbounded=True, name="components"),
        degrees=numbers.degrees(unbounded=True, name="degrees"),
        spread=numbers.degree_distribution(unbounded=True, name="spread"),
        about=few.edges("a", "b").triangles(sample=12, seed=3, name="about"),
        exact=few.edges("a", "b").triangles(ten, name="exact"),
        corners=numbers.triangles(ten, by_vertex=True, name="corners"),
        spanner=few.edges("a", "b").spanner(2, unbounded=True, name="spanner"),
        sparse=few.edges("a", "b").sparsify(ten, error=0.9, name="sparse"),
    )
