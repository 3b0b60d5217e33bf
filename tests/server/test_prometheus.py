"""`/metrics`, as Prometheus reads it; and the Grafana dashboard, which names nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import headrace as hr
from headrace.inspect.figures import figures
from headrace.server.http import serve
from headrace.server.lifecycle import State
from headrace.server.prometheus import FAMILIES, metrics_of
from headrace.server.values import JobView
from headrace.testing import Driver
from tests.server.memory_service import FIGURES, MemoryService, view
from tests.server.rest_client import TOKENS, ask

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "docs" / "grafana" / "headrace.json"
PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=ROOT / ".venv" / "bin")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(text: str) -> Samples:
    """Every sample by its name and labels; each is there once."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def at(samples: Samples, metric: str, /, **labels: str) -> float | None:
    return samples.get((f"headrace_job_{metric}", frozenset(labels.items())))


def limited() -> dict[str, Any]:
    return {**FIGURES, "bottleneck": {"step": "avg temp", "why": "it is Python"}}


def test_figures_are_samples_in_seconds_bytes_and_ratios():
    found = read(metrics_of([view("shop", State.RUNNING)], {"shop": limited()}))
    step = {"job": "shop", "step": "avg temp"}
    assert at(found, "state", job="shop", state="running") == 1
    assert at(found, "state", job="shop", state="failed") == 0
    assert at(found, "records_total", job="shop", fate="read") == 10_000
    assert at(found, "records_by_fate", job="shop", fate="filtered") == 900
    assert at(found, "epoch_seconds", job="shop") == 0.12
    assert at(found, "committed_timestamp_seconds", job="shop") == 1_700_000_000
    assert at(found, "latency_seconds", job="shop", since="event", quantile="0.95") == 1.5
    assert at(found, "memory_bytes", job="shop", process="jvm") == 200_000_000
    assert at(found, "gc_seconds_total", job="shop") == 0.012
    assert at(found, "held_back", job="shop") == 0
    assert at(found, "bottleneck", **step) == 1
    assert at(found, "input_lag_rows", job="shop", input="orders") == 4
    assert at(found, "step_rows_total", **step, direction="in") == 9_000
    assert at(found, "step_seconds_per_row", **step) == pytest.approx(1.5e-6)
    assert at(found, "step_windows_open", **step) == 5
    assert at(found, "output_rows_total", job="shop", output="alarms") == 300
    assert at(found, "user_events_total", **step, name="alarms") == 3
    assert at(found, "user_value", **step, name="hottest") == 99.5
    assert at(found, "user_quantiles", **step, name="wait", quantile="0.99") == 3
    assert at(found, "user_distribution_bucket", **step, name="wait", le="2.5") == 5
    assert at(found, "user_distribution_bucket", **step, name="wait", le="+Inf") == 6
    assert at(found, "user_distribution_count", **step, name="wait") == 6
    assert at(found, "user_distribution_sum", **step, name="wait") == 30.5
    assert at(found, "latencies_seconds_bucket", job="shop", since="event", le="2.0") == 9
    assert at(found, "latencies_seconds_sum", job="shop", since="event") == 12.5


def test_what_is_not_known_is_left_out():
    text = metrics_of([view("shop")], {"shop": FIGURES})
    assert 'process="workers"' not in text
    assert not re.search(r'latency_seconds{.*since="ingest"', text)
    assert "headrace_job_bottleneck{" not in text
    assert "headrace_job_lag_rows" not in metrics_of([view("shop")], {})
    nan = {**FIGURES, "rate_in": float("nan"), "lag_seconds": float("inf")}
    assert "NaN" not in metrics_of([view("shop")], {"shop": nan})


def test_every_family_has_samples_somewhere():
    """A name that nothing fills would be a promise that nobody keeps."""
    text = metrics_of([view("shop", State.RUNNING)], {"shop": limited()})
    assert {name for name in FAMILIES if f"# TYPE {name}" not in text} == set()


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
HOSTILE = [
    '"', "\\", "\n", '"} 1\nevil 1', "a\\nb", "{}", "#", "é\u2028", "' OR 1=1", "$(rm)", "\0",
]  # fmt: skip


@given(job=NAMES | st.sampled_from(HOSTILE), other=NAMES | st.sampled_from(HOSTILE))
def test_any_name_comes_out_as_it_went_in(job, other):
    (step,), (source,) = FIGURES["steps"], FIGURES["inputs"]
    known = {**FIGURES, "steps": [{**step, "name": other}], "inputs": [{**source, "name": other}]}
    found = read(metrics_of([view(job)], {job: known}))
    assert at(found, "step_rows_total", job=job, step=other, direction="in") == 9_000
    assert at(found, "input_splits", job=job, input=other) == 2
    assert {dict(labels)["job"] for _, labels in found} == {job}


def test_half_a_character_is_spelt():
    assert 'job="\\\\udc80"' in metrics_of([view("\udc80")], {})


def test_the_figures_of_a_real_job_are_all_taken(tmp_path):
    """Of a job that ran, with what a manifest holds: names and types fit what is read here."""
    job, values = hr.Job("real"), [{"k": "a", "n": i} for i in range(6)]
    rows = job.read(hr.rows(values, "k string, n bigint"), name="in")
    sums = rows.key_by("k").agg(total=hr.sum("n"), unbounded=True, name="sums")
    sums.write("collect:", name="out")
    driver = Driver(job, tmp_path / "real", max_batch=2)
    driver.drain()
    now = driver.manifest.wall + 1_000
    found = read(metrics_of([view("real")], {"real": figures(now, driver.manifest).to_json()}))
    driver.close()
    assert at(found, "records_total", job="real", fate="read") == 6
    assert at(found, "input_records_by_fate", job="real", input="in", fate="used") == 6
    assert at(found, "step_rows_total", job="real", step="sums", direction="in") == 6
    assert at(found, "output_rows_total", job="real", output="out") == driver.manifest.rows["out"]
    assert at(found, "step_state_rows", job="real", step="sums") is not None
    assert at(found, "latencies_seconds_count", job="real", since="ingest") == 6
    assert at(found, "latencies_seconds_bucket", job="real", since="ingest", le="+Inf") == 6


class FailsLater(hr.KeyedProcess):
    output = "k string, n bigint"

    def on_row(self, row: Any, ctx: Any) -> Any:
        if row.n >= 10:
            raise ValueError("too large")
        return row.k, row.n


def test_no_counter_goes_down_while_a_job_goes_on(tmp_path):
    """Rows that wait for the watermark count as used, and are dead when they have failed."""
    job, values = hr.Job("real"), [{"k": "a", "n": i, "at": i * 1_000} for i in range(40)]
    rows = job.read(hr.rows(values, "k string, n bigint, at bigint"), time="at", delay="15s")
    rows.key_by("k").process(FailsLater(), order="event_time", name="p").write("collect:")
    driver, before, fewer = (
        Driver(job, tmp_path / "real", max_batch=10),
        dict[Any, float](),
        set[str](),
    )
    while driver.epoch() is not None:
        known = figures(driver.manifest.wall, driver.manifest)
        text = metrics_of([view("real")], {"real": known.to_json()})
        kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))
        found = read(text)
        down = {name for (name, of), n in before.items() if found.get((name, of), n) < n}
        fewer |= down
        assert not {name for name in down if kinds.get(name) == "counter"}
        assert {one for one in before if kinds.get(one[0]) == "counter"} <= set(found)
        before = found
    driver.close()
    assert "headrace_job_records_by_fate" in fewer
    assert known.totals["read"] == 40 and known.totals["dead"] == 30


def test_a_histogram_of_numbers_below_zero_has_no_sum_which_would_go_down(tmp_path):
    class Recorded(hr.KeyedProcess):
        output = "k string"

        def on_row(self, row: Any, ctx: Any) -> None:
            ctx.histogram("n").record(row.n)
            ctx.histogram("zero").record(abs(row.n))

    job, values = hr.Job("real"), [{"k": "a", "n": n} for n in (5, -9, 0)]
    job.read(hr.rows(values, "k string, n bigint")).key_by("k").process(Recorded(), name="p").write(
        "collect:"
    )
    driver = Driver(job, tmp_path / "real")
    driver.drain()
    known = figures(driver.manifest.wall, driver.manifest).to_json()
    driver.close()
    found, at_p = read(metrics_of([view("real")], {"real": known})), {"job": "real", "step": "p"}
    assert at(found, "user_distribution_count", **at_p, name="n") == 3
    assert at(found, "user_distribution_sum", **at_p, name="n") is None
    assert at(found, "user_distribution_sum", **at_p, name="zero") == pytest.approx(14, rel=0.05)


def test_it_is_served_with_the_type_that_prometheus_wants_to_whoever_may_read(rest):
    answer = ask(rest, "GET", "/metrics", role="read")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert at(read(answer.body.decode()), "epoch", job="fire alarm") == 7
    assert ask(rest, "GET", "/metrics", role=None).status == 401


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool here: apt-get install prometheus")
def test_promtool_finds_nothing_to_say():
    jobs: list[JobView] = [view("shop", State.RUNNING), view('x"}\n\\', State.FAILED)]
    service = MemoryService()
    service._jobs = {job.name: replace(job, warnings=("slow",)) for job in jobs}
    service.figures_now = {job.name: limited() for job in jobs}
    with serve(service, port=0, tokens=TOKENS) as rest:
        text = ask(rest, "GET", "/metrics", role="read").body
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"], check=False, input=text, capture_output=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


# Grafana


def expressions() -> list[str]:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def test_every_metric_of_the_dashboard_exists_with_the_labels_that_it_asks_for():
    text = metrics_of([view("shop", State.RUNNING)], {"shop": limited()})
    labels: dict[str, set[str]] = {}
    for name, pairs in read(text):
        labels.setdefault(name, set()).update(key for key, _ in pairs)
    used = [found for e in expressions() for found in re.findall(r"(headrace_\w+)\{(.*?)\}", e)]
    assert len(used) >= 25
    for name, chosen in used:
        assert name in labels, name
        assert set(re.findall(r"(\w+)=", chosen)) <= labels[name], (name, chosen)
    board = DASHBOARD.read_text(encoding="utf-8")
    assert set(re.findall(r"headrace_\w+", board)) <= set(labels)


def test_the_legend_names_labels_that_there_are():
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    text = metrics_of([view("shop", State.RUNNING)], {"shop": limited()})
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            (name,) = set(re.findall(r"headrace_\w+", target["expr"]))
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert re.search(rf"^{name}{{.*{label}=", text, re.MULTILINE), (name, label)


def test_panels_have_places_and_numbers_of_their_own():
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    places = [tuple(panel["gridPos"][k] for k in "xy") for panel in board["panels"]]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(places)) == len(places) and len(set(ids)) == len(ids)
