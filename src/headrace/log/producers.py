"""What a partition knows at the start of a segment, so that older segments may go.

For each producer the last sequence appended and the offsets it got: a retried append is
recognised for ever, not only while its records are kept. Written and synced before the
segment it belongs to; JSON with a checksum.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import LogError
from headrace.log.contract import Ack
from headrace.log.lock import write_synced


@dataclass(slots=True)
class Past:
    """Producers' last appends, and the time of the last append of all."""

    time: int = 0
    last: dict[str, tuple[int, Ack]] = field(default_factory=dict)

    def seen(self, producer: str, sequence: int) -> Ack | None:
        """What an append already made was answered; empty for one that is long past."""
        known = self.last.get(producer)
        if known is None or sequence > known[0]:
            return None
        return known[1] if sequence == known[0] else Ack(known[1].first, known[1].first)

    def note(self, producer: str, sequence: int, ack: Ack) -> None:
        self.last[producer] = (sequence, ack)


def past_path(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.past"


def save(folder: Path, base: int, past: Past) -> None:
    last = {name: [seq, *ack] for name, (seq, ack) in past.last.items()}
    body = json.dumps({"time": past.time, "last": last}).encode()
    write_synced(past_path(folder, base), b"%08x\n" % zlib.crc32(body) + body)


def load(folder: Path, base: int) -> Past:
    path = past_path(folder, base)
    if base == 0 and not path.exists():
        return Past()
    try:
        crc, body = path.read_bytes().split(b"\n", 1)
        if int(crc, 16) != zlib.crc32(body):
            raise ValueError("checksum")
        data = json.loads(body)
        last = {n: (int(s), Ack(int(f), int(e))) for n, (s, f, e) in data["last"].items()}
        return Past(int(data["time"]), last)
    except (OSError, ValueError, KeyError) as error:
        raise LogError(
            f"the producers' past '{path}' is damaged or missing", code="HR-LOG-011",
            hint="Restore the file from a copy: without it a retried append could be doubled.",
        ) from error  # fmt: skip
