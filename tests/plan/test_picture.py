"""Pictures of plans: every step is there, nothing lies upon another, and it is valid SVG."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any, ClassVar
from xml.etree import ElementTree

import pytest
from tests.topology.bolts import Exclaim, word_count
from tests.topology.test_cycles import around, itself

import headrace as hr

SVG = "{http://www.w3.org/2000/svg}"


def stream_program() -> hr.Job:
    job = hr.Job("streams")
    a = job.read("log:a", schema="k string, v bigint, at bigint", time="at", delay="2s")
    b = job.read("log:b", schema="k string, w bigint, at bigint", time="at", delay="2s")
    means = a.where("v < 3 and k <> '&'").key_by("k").window(hr.tumbling("1m")).agg(m=hr.mean("v"))
    joined = means.join(b, on="k", within="1m", name="joined")
    joined.write("collect:", name="out")
    joined.late.write("collect:", name="late")
    return job


def wide() -> hr.Topology:
    made = hr.Topology("wide")
    made.spout("words", hr.rows([{"word": "a"}]))
    made.bolt("a bolt with a name as long as this one", Exclaim(), tasks=40).shuffle("words")
    made.bolt("out", "collect:").shuffle("a bolt with a name as long as this one")
    return made


class Steps(hr.Bolt):
    output = "word string"
    outputs: ClassVar[Any] = {"again": "word string", "more": "word string"}

    def process(self, tup: Any, collector: Any) -> None:
        collector.emit(tuple(tup))


def meeting() -> hr.Topology:
    """A bolt that reads many streams: of one bolt, of several, its own."""
    made = hr.Topology("meeting")
    made.spout("words", hr.rows([{"word": "a"}]))
    made.bolt("steps", Steps(), tasks=2).shuffle("words").fields("all", "word", stream="again").all(
        "all", "more"
    )
    made.bolt("two", Exclaim(), tasks=2).all("words")
    bolt = made.bolt("all", Steps(), tasks=3).shuffle("steps", "again").global_("steps")
    bolt.all("steps", "more").fields("two", "word").partial_key("words", "word")
    made.bolt("out", "collect:").shuffle("all")
    return made


def boxes(root: Any) -> dict[str, dict[str, float]]:
    found = {}
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        found[group.find(f"{SVG}title").text] = {
            k: float(rect.get(k)) for k in ("x", "y", "width", "height")
        }
    return found


@pytest.mark.parametrize("make", [word_count, around, itself, stream_program, wide, meeting])
def test_each_step_has_a_box_of_its_own(make: Any) -> None:
    explained = make().explain()
    root = ElementTree.fromstring(explained.svg)
    placed = boxes(root)
    loops = [s for s in explained.json["logical"] if s["detail"].startswith("loop:")]
    gone = {s["name"] for s in loops} | {s["detail"].removeprefix("loop:") for s in loops}
    steps = [s for s in explained.json["logical"] if s["name"] not in gone]
    assert set(placed) == {s["name"] for s in steps}
    for one, other in combinations(placed.values(), 2):
        beside = one["x"] + one["width"] < other["x"] or other["x"] + other["width"] < one["x"]
        below = one["y"] + one["height"] < other["y"] or other["y"] + other["height"] < one["y"]
        assert beside or below
    arrows = [p for p in root.iter(f"{SVG}path") if p.get("marker-end")]
    assert len(arrows) == sum(len(s["inputs"]) for s in steps)
    width, height = (float(root.get(side)) for side in ("width", "height"))
    assert all(b["x"] + b["width"] <= width and b["y"] + b["height"] <= height
               for b in placed.values())  # fmt: skip


@pytest.mark.parametrize("make", [word_count, around, itself, wide, meeting])
def test_each_arrow_has_an_end_and_a_label_of_its_own(make: Any) -> None:
    root = ElementTree.fromstring(make().explain().svg)
    ends = [
        p.get("d", "").split()[-1] + p.get("d", "").split()[-2] for p in root.iter(f"{SVG}path")
    ]
    assert len(set(ends)) == len(ends)
    labels = [t for t in root.iter(f"{SVG}text") if t.get("font-style")]
    placed = []
    for label in labels:
        wide, x, y = 6.0 * len(label.text or ""), float(label.get("x", 0)), float(label.get("y", 0))
        placed.append((x - wide if label.get("text-anchor") else x, y, wide))
    for (x, y, wide), (x2, y2, wide2) in combinations(placed, 2):
        assert abs(y - y2) >= 11 or x + wide < x2 or x2 + wide2 < x


def test_tasks_and_groupings_are_shown() -> None:
    svg = word_count(tasks=3, splitters=2).explain().svg
    root = ElementTree.fromstring(svg)
    assert len(list(root.iter(f"{SVG}circle"))) == 5
    assert "fields word" in svg and "shuffle" in svg
    assert re.search(r"x 40<", wide().explain().svg)


def test_arrows_that_pass_a_column_pass_below_its_boxes() -> None:
    root = ElementTree.fromstring(stream_program().explain().svg)
    placed = boxes(root)
    flat = re.compile(r"([\d.]+),([\d.]+) H([\d.]+)")
    for path in (p.get("d", "") for p in root.iter(f"{SVG}path") if p.get("marker-end")):
        for x1, y, x2 in (map(float, m) for m in flat.findall(path)):
            crossed = [b for b in placed.values() if x1 < b["x"] + b["width"] and b["x"] < x2]
            assert all(y < b["y"] or y > b["y"] + b["height"] for b in crossed)
