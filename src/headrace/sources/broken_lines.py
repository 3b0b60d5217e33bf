"""Lines that are received over a connection, which may end in the middle of one.

Half a line is never taken for a line, because `12` may be half of `1250`: what came of it is stored
with the reason, and is a dead letter.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sources.contract import RAW, Decoded
from headrace.sources.receiving import ReceivedSource

ENDED = "the connection ended in the middle of this line"
STOPPED = "the job stopped in the middle of this line"
_BREAK = b"\n"  # no line has one: what is stored with one is a reason and what was received


def broken(why: str, received: bytes) -> pa.Array:
    """What is stored of a line that did not come as a whole."""
    return pa.array([why.encode() + _BREAK + received], pa.binary())


class LinesSource(ReceivedSource):
    """An input whose stored lines may be broken."""

    def decode(self, chunk: pa.Table) -> Decoded:
        values = chunk.column(RAW)
        broken = pc.greater_equal(pc.find_substring(values, _BREAK), 0).to_numpy()
        if not broken.any():
            return super().decode(chunk)
        whole = np.flatnonzero(~broken)
        rows, bad, reasons = super().decode(chunk.take(pa.array(whole)))
        why = {int(whole[i]): text for i, text in zip(np.flatnonzero(bad), reasons, strict=True)}
        for i in np.flatnonzero(broken):
            why[int(i)] = values[int(i)].as_py().partition(_BREAK)[0].decode()
        mask = broken.copy()
        mask[whole[bad]] = True
        return rows, mask, [why[i] for i in sorted(why)]
