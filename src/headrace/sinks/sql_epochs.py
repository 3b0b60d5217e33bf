"""The table of epochs beside an output's table: who has delivered, up to which epoch, and what.

It is written in the transaction that writes the rows: whoever finds an epoch claimed has nothing to
do.
"""

from __future__ import annotations

import hashlib

import pyarrow as pa

from headrace.connect.sql import Connection, TableName, quoted

EPOCHS = "headrace_epochs"  # at rest, as its columns


class OtherRows(Exception):
    """The epoch was delivered with other rows."""


def create_epochs(c: Connection, table: TableName) -> None:
    c.run(
        f"CREATE TABLE IF NOT EXISTS {table.beside(EPOCHS).sql} (output text NOT NULL, "
        "producer text NOT NULL, epoch bigint NOT NULL, checksum text NOT NULL, "
        "PRIMARY KEY (output, producer))"
    )


def recorded_epochs(c: Connection, table: TableName) -> dict[str, tuple[int, str]]:
    """By producer: the last epoch that it has delivered to a table, and the checksum of that."""
    if c.columns(table.beside(EPOCHS)) is None:
        return {}
    sql = (
        f"SELECT producer, epoch, checksum FROM {table.beside(EPOCHS).sql} "
        f"WHERE {_same_output(c)} ORDER BY epoch"
    )
    return {str(p): (int(e), str(s)) for p, e, s in c.run(sql, table.name)}


def claimed_epoch(
    c: Connection, table: TableName, producer: str, epoch: int, rows: pa.Table, digest: str
) -> bool:
    """Whether the epoch is ours to write; who else claims it waits for this transaction.

    OtherRows if it was claimed with other rows than these, of whose staged files `digest` is.
    """
    epochs = table.beside(EPOCHS)
    spelled = c.run(
        f"SELECT output FROM {epochs.sql} WHERE {_same_output(c)} AND producer = $2 "
        "ORDER BY epoch DESC LIMIT 1",
        table.name,
        producer,
    )
    claimed = c.run(
        f"INSERT INTO {epochs.sql} (output, producer, epoch, checksum) "
        "VALUES ($1, $2, $3, $4) ON CONFLICT (output, producer) DO UPDATE "
        "SET epoch = excluded.epoch, checksum = excluded.checksum "
        f"WHERE {epochs.sql if c.dialect != 'duckdb' else quoted(EPOCHS)}.epoch "
        "< excluded.epoch RETURNING epoch",
        spelled[0][0] if spelled else table.name,
        producer,
        epoch,
        digest,
    )
    if claimed:
        return True
    stored = recorded_epochs(c, table).get(producer)
    if stored is not None and stored[0] == epoch and not is_same(stored[1], digest, rows):
        raise OtherRows
    return False


def is_same(stored: str, digest: str, rows: pa.Table) -> bool:
    """Whether the epoch was delivered with these rows, of whose staged files `digest` is.

    Earlier releases stored a checksum of the rows themselves."""
    return stored == (digest if len(stored) == len(digest) else _of_rows(rows))


def _of_rows(rows: pa.Table) -> str:
    found = hashlib.sha256()
    for column in rows.columns:
        for chunk in column.chunks:
            found.update(pa.record_batch([chunk], names=["x"]).serialize())
    return found.hexdigest()[:32]


def _same_output(c: Connection) -> str:
    """Of the table of epochs: the rows of a table, whose name may ignore case."""
    return "output = $1" if c.dialect == "postgresql" else "lower(output) = lower($1)"
