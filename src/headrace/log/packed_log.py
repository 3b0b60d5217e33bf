"""The embedded log as an output uses it: what is costly of an append is done by another process."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.log.arguments import check_retry
from headrace.log.contract import Ack
from headrace.log.embedded import EmbeddedLog
from headrace.log.routed_appends import PackedRecords


class PackedLog(EmbeddedLog):
    def pack(self, topic: str, records: pa.Table, key: str | None, turn: int) -> PackedRecords:
        """The records as the topic will store them: what is costly of an append, made beforehand.

        Records without a key are dealt out from partition number `turn` on.
        """
        return self._again(topic, lambda: self._appends.pack(topic, records, key, turn))

    def append_packed(
        self, topic: str, pieces: Sequence[PackedRecords], producer: str, sequence: int
    ) -> dict[int, Ack]:
        """Append what `pack` returned, in this process or another, as one append."""
        check_retry(producer, sequence)
        return self._again(
            topic, lambda: self._appends.append_packed(topic, pieces, producer, sequence)
        )
