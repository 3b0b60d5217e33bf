"""PageRank: how much each page of a web matters, updated while links come and go.

Links come from the topic `links`: fill it with `python -m examples.data.pagerank`. Then
`headrace run examples/pagerank.py --until end` ranks the whole graph; without `--until end` it goes
on, from the ranks that it has, with every batch of changes. `python -m examples.pagerank` plays it.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headrace as hr

DAMPING = 0.85
CLOSE = 1e-8  # a turn that moves all ranks together by no more than this is the last
MOVED = 5e-7  # a rank is emitted again when it has changed by more than this
RANKS = "page string, rank double"
LINKS = "src string, dst string, change bigint"  # 1: the link was made, -1: it was taken away


def graph(loop):
    """The pages, and the places of both ends of each link that was made more often than taken.

    A sum does not mind the order of changes: a link that is taken before it is made waits as -1.
    """
    links = pa.concat_tables([loop.kept["links"], loop.rows])
    links = links.group_by(["src", "dst"], use_threads=False).aggregate([("change", "sum")])
    links = links.rename_columns(["src", "dst", "change"]).filter(pc.field("change") != 0)
    loop.kept["links"] = links
    there = links.filter(pc.field("change") > 0)
    src, dst = (there[name].combine_chunks() for name in ("src", "dst"))
    pages = pa.concat_arrays([src, dst]).unique()
    return pages, pc.index_in(src, pages).to_numpy(), pc.index_in(dst, pages).to_numpy()


def emitted(pages, loop):
    """The last emitted ranks of these pages; NaN for a new one."""
    page, rank = (column.combine_chunks() for column in loop.kept["ranks"].columns)
    return rank.take(pc.index_in(pages, page)).to_numpy(zero_copy_only=False)


def turn(ranks, loop):
    """One turn: each page shares its rank among those it links to. The last leaves nothing."""
    if loop.turn == 0:
        pages, src, dst = loop.scratch["graph"] = graph(loop)
        rank = np.nan_to_num(emitted(pages, loop), nan=1 / max(len(pages), 1))
        rank = rank / rank.sum()
    else:
        (pages, src, dst), rank = loop.scratch["graph"], ranks["rank"].to_numpy()
    out = np.bincount(src, minlength=len(pages))
    received = np.bincount(dst, (rank / np.maximum(out, 1))[src], len(pages))
    lost = rank[out == 0].sum()  # what pages without links have is shared by all
    new = (1 - DAMPING + DAMPING * lost) / max(len(pages), 1) + DAMPING * received
    if np.abs(new - rank).sum() > CLOSE:
        return pa.table({"page": pages, "rank": new})
    return emit(pages, new, loop)


def emit(pages, rank, loop):
    """Emit the ranks that have moved, and null for a page that is gone; nothing goes round."""
    old, before = emitted(pages, loop), loop.kept["ranks"]["page"]
    moved = ~(np.abs(rank - old) <= MOVED)  # so is a new one
    loop.kept["ranks"] = pa.table({"page": pages, "rank": np.where(moved, rank, old)})
    now = loop.kept["ranks"].filter(pa.array(moved))
    loop.emit(now.append_column("turns", pa.repeat(loop.turn + 1, len(now))))
    gone = before.filter(pc.invert(pc.is_in(before, pages)))
    loop.emit(pa.table({"page": gone, "rank": pa.nulls(len(gone)), "turns": pa.nulls(len(gone))}))
    return now.slice(0, 0)


job = hr.Job("pagerank")
links = job.read("log:links", schema=LINKS, format="json")
ranks = links.iterate(turn, until="empty", feed=RANKS, output=RANKS + ", turns bigint",
                      keep={"ranks": RANKS, "links": LINKS}, name="pagerank")  # fmt: skip
ranks.write("log:ranks")

if __name__ == "__main__":
    from examples.data import pagerank, playing

    playing.play(job, pagerank, during=pagerank.live)
