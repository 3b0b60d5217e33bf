"""Plans as text: compared with the files in `golden/`, word for word.

To accept a changed text: HEADRACE_GOLDEN=write pytest tests/plan/test_explain.py, then read
the difference before you commit it.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from headrace.api.job import Job
from headrace.errors import PlanError
from headrace.expr import col
from headrace.guarantees import JobGuarantee, Offer
from headrace.ops.agg.named import count, max, mean
from headrace.ops.process.function import KeyedProcess
from headrace.ops.process.state_kinds import value
from headrace.ops.window.aligned import sliding, tumbling

GOLDEN = Path(__file__).parent / "golden"


@dataclass
class Temperature:
    area: str
    celsius: float
    at: datetime
    note: str


@dataclass
class Smoke:
    area: str
    at: datetime


class FireAlarm(KeyedProcess):
    output = "area string, celsius double"
    celsius = value(float)

    def on_average(self, row, ctx): ...
    def on_smoke(self, row, ctx): ...


def fire_alarm() -> Job:
    job = Job("fire-alarm", slots=16)
    temperature = job.read(
        "log:temperature", schema=Temperature, time="at", delay="2s", idle="10s", max_skew="5m"
    )
    smoke = job.read("log:smoke", schema=Smoke, time="at", delay="2s")
    average = (
        temperature.where(col("celsius").between(-50, 150))
        .with_columns(fahrenheit="celsius * 1.8 + 32")
        .key_by("area")
        .window(sliding("60s", every="5s"))
        .agg(celsius=mean("celsius"), hottest=max(col("fahrenheit") + 1), readings=count())
    )
    alarms = average.connect(smoke, by="area", names=("average", "smoke")).process(
        FireAlarm(), name="alarm", unbounded=True
    )
    alarms.write("log:alarms")
    average.write("files:averages", format="parquet")
    average.late.write("files:late", format="parquet")
    job.dead.where("step = 'alarm'").write("files:dead")
    return job


def words() -> Job:
    job = Job("word-count", on_error="fail")
    lines = job.read("socket:localhost:9999", schema="line string")
    counted = (
        lines.flat_map(split_words)
        .filter(lambda r: len(r.value) > 3)
        .rename(word="value")
        .key_by("word")
        .agg(n=count(), unbounded=True)
    )
    counted.tap(print).write("console:")
    counted.key_by("word").reduce(lambda a, b: b, unbounded=True, name="latest").write("log:latest")
    return job


def split_words(row) -> list[str]:
    return row.line.split()


def branches() -> Job:
    job = Job("branches")
    read = job.read("files:in/*.json", schema=Temperature, time="at", in_order=True)
    hot, cold = read.split(hot="celsius > 40", cold=lambda e: e.celsius < 0)
    hot.union(cold).window(tumbling("1m")).fold(0, lambda n, row: n + 1).write("log:extremes")
    hot.union(cold, name="both").map_batches(lambda t: t).write("log:both")
    return job


JOBS = {"fire-alarm": fire_alarm, "words": words, "branches": branches}


@pytest.mark.parametrize("name", JOBS)
def test_the_plan_reads_as_written_down(name):
    text = re.sub(r"\(test_explain.py:\d+\)", "(test_explain.py:N)", JOBS[name]().explain().text)
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("HEADRACE_GOLDEN") == "write":
        golden.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", JOBS)
def test_text_and_json_say_the_same(name):
    explained = JOBS[name]().explain()
    assert json.loads(json.dumps(explained.json)) == explained.json
    assert str(explained) == explained.text
    for step in explained.json["logical"]:
        assert step["name"] in explained.text


def test_every_step_runs_somewhere():
    data = fire_alarm().explain().json
    run = {
        n for level in data["physical"] for s in level["steps"] for n in s["fused"] or [s["name"]]
    }
    run |= {o["name"] for o in data["outputs"]}
    written = {s["name"] for s in data["logical"]}
    assert written - run == {"dead", "dead.where"}


def test_python_steps_say_why():
    python = {s["step"]: s["why"] for s in words().explain().json["python"]}
    assert "len()" in python["localhost-9999.filter"]
    assert python["localhost-9999.flat_map"].startswith("split_words (test_explain.py:")


def test_what_sinks_guarantee_is_told_by_who_knows_them():
    offer = Offer("output", "alarms.write", "exactly once", "the topic knows")
    text = fire_alarm().explain(JobGuarantee((offer,))).text
    assert re.search(r"alarms.write +log:alarms +<- alarm +exactly once", text)
    assert text.splitlines()[-3:] == [
        "if it is killed: exactly once",
        "  no input and no output may lose or repeat rows",
        "  output  alarms.write  exactly once  the topic knows",
    ]


def test_a_wrong_program_is_not_explained():
    job = Job("wrong")
    job.read("log:a", schema="a string").where("b = 1").write("log:b")
    with pytest.raises(PlanError, match="HR-EXPR-001"):
        job.explain()
