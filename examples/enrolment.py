"""Aadhaar: a number for whoever enrols, and an answer to whoever must be sure who it is.

Two dataflows of tasks. A task takes so long, its latency; so many of the packets leave it by the
edge P, for passed, and the others by F, which is the edges' selectivity. Both are parameters, here
or as TASKS='{"review": [50, 0.5]}'; what a task does is simulated.
`python -m examples.enrolment` plays it and prints the measured figures beside the simulated ones.
"""

import json
import os
import time
from functools import partial
from hashlib import sha256

import headrace as hr

SIMULATED = {  # task: mean latency in ms, share that leaves by the edge P
    "unpack": (2, 0.99), "validate": (1, 0.97), "demographics": (4, 0.93), "review": (15, 0.6),
    "quality": (3, 0.96), "biometrics": (10, 0.95), "adjudicate": (20, 0.3), "issue": (1, 1.0),
    "decrypt": (0.5, 1.0), "lookup": (1, 1.0), "match": (3, 0.97),
    **json.loads(os.environ.get("TASKS", "{}")),
}  # fmt: skip
ROW = "id string, at timestamp, passed boolean, trail array<struct<task: string, ms: double>>"


def work(task, packet):
    """Take about as long as simulated; then let the packet pass or not."""
    began, (latency, share) = time.perf_counter(), SIMULATED[task]
    time.sleep(latency * (0.5 + chance(task, "takes", packet.id)) / 1_000)
    passed = chance(task, "passes", packet.id) < share
    took = {"task": task, "ms": (time.perf_counter() - began) * 1_000}
    return (packet.id, packet.at, passed, [*packet.trail, took])


def chance(*words):
    """A number from [0, 1) that follows from the words: a batch done again gives the same."""
    return int(sha256(" ".join(words).encode()).hexdigest()[:12], 16) / 16**12


def read(topic):
    rows = job.read(f"log:{topic}", schema="id string, at timestamp", time="at", delay="2s")
    return rows.map(lambda p: (p.id, p.at, True, []), schema=ROW)


def do(task, rows):
    return rows.map(partial(work, task), schema=ROW, name=task)


def check(task, rows):
    return do(task, rows).split(P="passed", F="not passed")


job = hr.Job("aadhaar")
unpacked = check("unpack", read("packets"))
valid = check("validate", unpacked.P)
alone = check("demographics", valid.P)  # F: somebody with this name and birthday is enrolled
reviewed = check("review", alone.F)
scanned = check("quality", alone.P.union(reviewed.P, name="to scan"))
unique = check("biometrics", scanned.P)  # F: these fingers or eyes may be known
judged = check("adjudicate", unique.F)
issued = do("issue", unique.P.union(judged.P, name="to issue"))
rejected = unpacked.F.union(valid.F, reviewed.F, scanned.F, judged.F, name="rejected")

# Authentication: nothing branches off before the match, so its tasks run as one fused step.
matched = check("match", do("lookup", do("decrypt", read("requests"))))
answers = matched.P.union(matched.F, name="answered")

done = issued.union(rejected, answers, name="done")
spent = done.flat_map(lambda row: row.trail, schema="task string, ms double")
latency = spent.key_by("task").window(hr.tumbling("1m")).agg(ms=hr.mean("ms"), n=hr.count())

issued.select("id", "at", number="concat('UID-', left(sha256(id), 12))").write("log:numbers")
rejected.select("id", "at", by=hr.col("trail")[-1]["task"]).write("log:rejections")
answers.select("id", "at", yes="passed").write("log:answers")
latency.write("files:.headrace/aadhaar/latency")

if __name__ == "__main__":
    from examples.data import enrolment, playing

    playing.play(job, enrolment)
