"""What a job knows, as files: keyed tables, runs, slot states and the log of epochs.

State is data: immutable sorted runs, named by the manifest of an epoch. What no manifest
names does not exist. No Spark here, and no pickle.
"""

from headrace.arrays import Mask
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest
from headrace.state.prune import RUNS, STAGED
from headrace.state.runs import RunCache, RunRef, RunWriter, cache_of
from headrace.state.sorted_run import SortedRun, merge_runs
from headrace.state.spec import GONE, TableSpec
from headrace.state.store import (
    Segment,
    SlotState,
    load,
    open_table,
    plan_slot,
    plan_young,
    store_changes,
)
from headrace.state.table import KeyedTable

__all__ = [
    "GONE",
    "RUNS",
    "STAGED",
    "EpochLog",
    "KeyedTable",
    "Manifest",
    "Mask",
    "RunCache",
    "RunRef",
    "RunWriter",
    "Segment",
    "SlotState",
    "SortedRun",
    "TableSpec",
    "cache_of",
    "load",
    "merge_runs",
    "open_table",
    "plan_slot",
    "plan_young",
    "store_changes",
]  # fmt: skip
