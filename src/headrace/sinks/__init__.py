"""What a job writes: the contract of a sink, the sinks, and reading outputs back."""

from headrace.sinks.contract import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    Description,
    EpochWriter,
    HeldEpochs,
    Reference,
    Sink,
    Timelines,
    in_groups,
)
from headrace.sinks.open import (
    absolute,
    check_output,
    collected,
    open_sink,
    output_files,
    read_output,
    reopen_sink,
    with_guarantee,
)
from headrace.sinks.own import Output

__all__ = [
    "AT_LEAST_ONCE", "EXACTLY_ONCE", "Description", "EpochWriter", "HeldEpochs", "Output",
    "Reference", "Sink", "Timelines", "absolute", "check_output", "collected", "in_groups",
    "open_sink", "output_files", "read_output", "reopen_sink", "with_guarantee",
]  # fmt: skip
