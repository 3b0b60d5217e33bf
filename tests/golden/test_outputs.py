"""What the golden programs give, against plain Python: no operator has a part in these.

`test_golden.py` holds every run to the outputs that were packed; here those are held to the input.
"""

from __future__ import annotations

import json
import zipfile
from collections import defaultdict
from typing import Any

import pytest

from tests.golden import feeding
from tests.golden.feeding import BASE, BATCHES, SIZE
from tests.golden.write import FOLDERS

READINGS = [feeding.reading(n) for n in range(BATCHES * SIZE)]
ORDERS = [feeding.order(n) for n in range(BATCHES * 10)]
LATE = {37, 56, 75}  # 90 s; row 18 came with the first batch, when no watermark had begun
ON_TIME = [row for row in READINGS if row["id"] not in LATE]


@pytest.fixture(params=sorted(path.name for path in FOLDERS.iterdir()))
def packed(request):
    def outputs(program: str) -> dict[str, list[dict[str, Any]]]:
        with zipfile.ZipFile(FOLDERS / request.param / f"{program}.zip") as left:
            found = json.loads(left.read("outputs.json"))
        return {name: [json.loads(row) for row in rows] for name, rows in found.items()}

    return outputs


def by_area(rows):
    found = defaultdict(list)
    for row in rows:
        found[row["area"]].append(row)
    return found


def test_every_row_is_in_its_tumbling_window_or_late(packed):
    found = packed("aggregates")
    windows = defaultdict(list)
    for row in ON_TIME:
        windows[row["area"], row["at"] // 10_000].append(row)

    assert {row["id"] for row in found["late out"]} == LATE
    assert len(found["tumbling out"]) == len(windows)
    ids = sorted((str(row["area"]), sorted(row["all"])) for row in found["tumbling out"])
    assert ids == sorted((str(k[0]), sorted(r["id"] for r in rows)) for k, rows in windows.items())
    totals = sorted(round(row["total"], 6) for row in found["tumbling out"])
    assert totals == sorted(round(sum(r["celsius"] for r in rows), 6) for rows in windows.values())


@pytest.mark.parametrize("key", ["area", "zone", "ok", "day", "seen", "price", "raw"])
def test_rows_of_a_key_are_counted_one_by_one(packed, key):
    counts = defaultdict(list)
    for row in packed("keys")[f"{key} out"]:
        counts[str(READINGS[row["id"]][key])].append(row["n"])

    assert {k: sorted(n) for k, n in counts.items()} == {
        k: [*range(1, 1 + sum(str(r[key]) == k for r in READINGS))] for k in counts
    }
    assert sum(map(len, counts.values())) == len(READINGS)


def test_running_sums_end_with_the_whole(packed):
    last = {row["area"]: row for row in sorted(packed("running")["sums out"], key=lambda r: r["n"])}
    for area, rows in by_area(READINGS).items():
        assert last[area]["n"] == len(rows)
        assert last[area]["total"] == pytest.approx(sum(row["celsius"] for row in rows))


def test_windows_of_four_rows_hold_every_row_once(packed):
    lists = by_area(packed("counted")["rows out"])
    for area, rows in by_area(READINGS).items():
        sizes = sorted(row["n"] for row in lists[area])
        assert sorted(i for row in lists[area] for i in row["ids"]) == [r["id"] for r in rows]
        assert sizes[1:] == [4] * (len(sizes) - 1)


def test_pairs_are_those_that_are_near_in_time(packed):
    pairs = {(row["id"], row["due"]) for row in packed("near")["inner out"]}
    assert pairs == {
        (left["id"], right["due"])
        for left in ON_TIME
        for right in ORDERS
        if left["area"] == right["area"] and -3_000 <= right["due"] - left["at"] <= 5_000
    }


def test_a_row_meets_the_version_of_its_time(packed):
    pairs = {(row["id"], row["due"]) for row in packed("latest")["inner out"]}
    expected = set()
    for left in ON_TIME:
        versions = [o for o in ORDERS if o["area"] == left["area"] and o["due"] <= left["at"]]
        if versions and not versions[-1]["gone"]:
            expected.add((left["id"], versions[-1]["due"]))
    assert pairs == expected


def test_each_of_its_kind_goes_on_once(packed):
    found = sorted(str((row["area"], row["zone"])) for row in packed("thinned")["ever out"])
    assert found == sorted({str((row["area"], row["zone"])) for row in READINGS})


def test_two_inputs_of_a_process_function_add_up(packed):
    rows = packed("processes")["both out"]
    for area, given in by_area(ORDERS).items():
        mine = [row["amounts"] for row in rows if row["area"] == area]
        assert (len(mine), max(mine)) == (len(given), sum(order["amount"] for order in given))


def test_rows_that_cannot_be_processed_are_dead_letters(packed):
    found, prices, wrong, broken = packed("letters"), [], 0, 0
    for n in range(BATCHES * 8):
        if n % 13 == 5 or n % 11 == 4:
            broken += 1
        elif n % 4 == 0:
            wrong += 1
        else:
            prices.append(n * 1.5 / (n % 4))
    assert sorted(row["value"] for row in found["prices out"]) == pytest.approx(sorted(prices))
    assert (len(found["mine out"]), len(found["broken.write"])) == (wrong, broken)


@pytest.mark.parametrize("output", ["parquet.write", "json.write", "copied.write"])
def test_places_hold_every_row_once(packed, output):
    assert sorted(row["id"] for row in packed("places")[output]) == [r["id"] for r in READINGS]


def test_a_made_input_goes_by_the_clock(packed):
    found = packed("clocks")
    assert sorted(row["at"] for row in found["made rows"]) == [BASE + 1_000 * i for i in range(18)]
    assert [row["n"] for row in found["given windows"]] == [4, 5]
