"""PageRank as a loop, and as plain Python to compare it with.

The loop keeps edges and ranks; each batch starts from the ranks of the one before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

EDGES, RANKS = "src string, dst string", "node string, rank double"
DAMPING, CLOSE = 0.85, 1e-12


def pagerank(ranks, loop):
    """One round of the power method; the first turn takes in new edges."""
    if loop.turn == 0:
        edges = pa.concat_tables([loop.kept["edges"], loop.rows.select(["src", "dst"])])
        loop.kept["edges"] = edges = edges.group_by(["src", "dst"], use_threads=False).aggregate([])
        src, dst = (edges[c].combine_chunks() for c in ("src", "dst"))
        nodes = pa.concat_arrays([src, dst]).unique()
        at = [pc.index_in(c, nodes).to_numpy() for c in (src, dst)]
        loop.scratch |= {"nodes": nodes, "src": at[0], "dst": at[1]}
        known = dict(zip(*(c.to_pylist() for c in loop.kept["ranks"].columns), strict=True))
        rank = np.array([known.get(n, 1 / len(nodes)) for n in nodes.to_pylist()])
        rank = rank / rank.sum()
    else:
        rank = ranks["rank"].to_numpy()
    nodes, src, dst = (loop.scratch[n] for n in ("nodes", "src", "dst"))
    out = np.bincount(src, minlength=len(nodes))
    share = np.divide(rank, out, where=out > 0, out=np.zeros(len(nodes)))
    flow = np.bincount(dst, share[src], len(nodes)) + rank[out == 0].sum() / len(nodes)
    new = pa.table({"node": nodes, "rank": (1 - DAMPING) / len(nodes) + DAMPING * flow})
    loop.kept["ranks"] = new
    return new


def settled(before, after):
    """Whether the ranks have come to rest."""
    if before.num_rows != after.num_rows:
        return False
    return bool(np.abs(before["rank"].to_numpy() - after["rank"].to_numpy()).sum() < CLOSE)


def by_hand(edges: Iterable[tuple[str, str]]) -> dict[str, float]:
    """The same by dictionaries, a thousand rounds from the start."""
    out: dict[str, set[str]] = defaultdict(set)
    nodes: dict[str, None] = {}
    for a, b in edges:
        out[a].add(b)
        nodes[a] = nodes[b] = None
    rank = dict.fromkeys(nodes, 1 / len(nodes))
    for _ in range(200):
        lost = sum(rank[n] for n in nodes if not out[n])
        new = {n: (1 - DAMPING) / len(nodes) + DAMPING * lost / len(nodes) for n in nodes}
        for a in nodes:
            for b in out[a]:
                new[b] += DAMPING * rank[a] / len(out[a])
        rank = new
    return rank
