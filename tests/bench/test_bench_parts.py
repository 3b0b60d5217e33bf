"""The arithmetic of the benchmarks: what is left out, what a ratio is, when results agree."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.against import SideBySide
from bench.batches import Batch, lasted, period, throughput
from bench.data import BASE, DISORDER, Shape, dataset
from bench.digest import digest, rounded
from bench.measure import Contest, Failed, Lab, Sample
from bench.plot import margin
from bench.rows import AT_LEAST, AT_MOST, Row

from bench import table

BATCHES = [Batch(100, 0, 5_000), Batch(100, 5_000, 6_000), Batch(300, 6_100, 7_000)]


def test_throughput_counts_from_the_end_of_the_last_skipped_batch():
    assert throughput(BATCHES, skip=1) == 400 / 2.0


def test_period_is_the_median_from_start_to_start():
    assert period([*BATCHES, Batch(1, 7_300, 7_400)], skip=1) == pytest.approx(1_150)


def test_lasted_is_the_median_from_planning_to_commit():
    assert lasted(BATCHES, skip=1) == 950


def sample(who, value):
    return Sample(who, {"value": value}, None, 0, 0, 0.0, 0.0)


def test_a_ratio_is_taken_within_pairs():
    pairs = [(10, 5), (100, 10), (9, 3)]
    contest = Contest([(sample("ours", a), sample("theirs", b)) for a, b in pairs])

    assert contest.ratio(lambda s: s.figures["value"]) == 3


@pytest.mark.parametrize(
    ("sense", "ratio", "met"),
    [(AT_LEAST, 3.0, True), (AT_LEAST, 2.9, False), (AT_MOST, 3.0, True), (AT_MOST, 3.1, False)],
)
def test_a_target_is_met_from_its_own_side(sense, ratio, met):
    row = Row("A", "", "", "", ratio, sense, target=3.0)

    assert row.met is met
    assert (margin(ratio, 3.0, sense) >= 1) is met


def write(place, rows, name="part-0.parquet"):
    (place / "out").mkdir(exist_ok=True)
    keys, values = zip(*rows, strict=True)
    pq.write_table(pa.table({"k": keys, "v": values}), place / "out" / name)


def digest_of(place):
    return digest(place, ["k", rounded("v")])


def test_a_digest_depends_neither_on_order_nor_on_files_nor_on_the_last_bits(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    write(one, [("a", 0.1 + 0.2), ("b", 2.0), ("b", 2.0)])
    write(two, [("b", 2.0)])
    write(two, [("b", 2.0), ("a", 0.3)], "part-1.parquet")

    assert digest_of(one) == digest_of(two)


@pytest.mark.parametrize("rows", [[("a", 1.0)], [("a", 1.0), ("b", 2.1)], [("a", 2.0), ("b", 1.0)]])
def test_a_digest_tells_a_lost_row_a_wrong_value_and_a_swap(tmp_path, rows):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    write(one, [("a", 1.0), ("b", 2.0)])
    write(two, rows)

    assert digest_of(one) != digest_of(two)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.data.CACHE", tmp_path)
    return tmp_path


def test_no_reading_is_late_for_its_watermark(cache):
    made = dataset(Shape("readings", files=3, rows=2_000, keys=10, rate=100))
    rows = pq.read_table(made.folder)
    times = rows["at"].cast(pa.int64()).to_numpy() // 1_000

    assert made.rows == rows.num_rows == 6_000
    assert made.newest == times.max()
    assert (np.maximum.accumulate(times) - times).max() <= DISORDER
    assert times.min() >= BASE - DISORDER


def test_a_dataset_is_made_once_and_always_the_same(cache, tmp_path, monkeypatch):
    shape = Shape("json", files=2, rows=50)
    first = read(dataset(shape).folder)
    stamp = (cache / "data" / shape.name / "dataset.json").stat().st_mtime_ns
    dataset(shape)
    assert (cache / "data" / shape.name / "dataset.json").stat().st_mtime_ns == stamp

    monkeypatch.setattr("bench.data.CACHE", tmp_path / "other")
    assert read(dataset(shape).folder) == first
    lines = [json.loads(line) for content in first for line in content.splitlines()]
    assert len(lines) == 100
    assert all(90 <= len(line) <= 110 for content in first for line in content.splitlines())


def read(folder):
    return [p.read_bytes() for p in sorted(Path(folder).iterdir())]


def test_every_run_adds_a_line_to_the_history(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "HISTORY", tmp_path / "history.jsonl")
    monkeypatch.setattr(table, "LATEST", tmp_path / "latest.json")
    row = Row("A", "what", "2 M/s", "1 M/s", 2.0, target=3.0, equal=True)

    table.keep([row], Lab())
    table.keep([row], Lab(quick=True))

    assert [run["quick"] for run in table.history()] == [False, True]
    assert table.history()[0]["rows"] == {"A": [2.0, 3.0, "2 M/s", "1 M/s"]}
    assert json.loads((tmp_path / "latest.json").read_text())["rows"][0]["met"] is False


@pytest.fixture
def other_tree(tmp_path):
    python = tmp_path / "other" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    return tmp_path / "other"


class Scripted(SideBySide):
    """Takes samples from a script instead of running a contender."""

    def script(self, results):
        self.ran, self._results = [], iter(results)
        return self

    def _measure(self, case, job, who, params, digest, limit, tree=None, python="", name=""):
        self.ran.append((name, tree))
        millis, result = next(self._results)
        batches = [[10, 0, 9_000], [10, 0, millis], [10, 0, millis]]
        return Sample(name, {"batches": batches}, result, 0, 1, 0.0, 0.0)


def test_two_trees_take_turns_and_another_engine_is_not_run(other_tree, capsys):
    lab = Scripted(other_tree).script([(300, "x"), (100, "x"), (100, "x"), (200, "x")])
    for who in ("ours", "theirs", "ours"):
        assert lab.one("A", "a", who, {}).who == "this"
    lab.show()

    other = ("other", other_tree.resolve())
    assert lab.ran == [("this", None), other, other, ("this", None)]
    assert "2 │ 250 ms │ 2.50 │ 2.00 │ 3.00" in capsys.readouterr().out


def test_two_trees_whose_results_differ_are_not_compared(other_tree):
    lab = Scripted(other_tree).script([(1, "x"), (1, "y")])

    with pytest.raises(Failed, match="the results differ"):
        lab.one("A", "a", "ours", {})


def test_a_tree_without_an_environment_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="run one of its verbs"):
        SideBySide(tmp_path)
