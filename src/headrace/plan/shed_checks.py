"""Where records must not be shed: there a row would be wrong, not only missing.

As in `checks.py`, each check reads the graph and yields problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.errors import PlanError
from headrace.ops.stream.rank_order import CHANGE
from headrace.ops.watermarks import Bounded
from headrace.plan.nodes import Node, Read, Stateful

Problems = Iterator[PlanError]


def shed_checks(graph: Sequence[Node]) -> Problems:
    for node in graph:
        if isinstance(node, Read) and node.shed is not None:
            for fact, hint in _wrong(node, graph):
                yield PlanError(
                    "HR-SHED-006", f"input {node.name!r} sheds, and {fact}", hint, site=node.site
                )


def _wrong(read: Read, graph: Sequence[Node]) -> Iterator[tuple[str, str]]:
    if read.align is not None:
        yield (
            "is aligned: its records wait for other inputs, not for the job",
            "Leave align= or shed= out.",
        )
    if not isinstance(read.watermark, Bounded):
        yield (
            "its watermark depends on single records, which may be dropped",
            'Say delay="2s" instead of watermark=, or leave shed= out.',
        )
    if _holds_changes(read):
        yield (
            "its rows are changes of other rows: without one of them the others are wrong",
            "Leave shed= out.",
        )
    for node in graph:
        if isinstance(node, Stateful):
            yield from _steps(read, node)


def _steps(read: Read, node: Stateful) -> Iterator[tuple[str, str]]:
    for port, edge in enumerate(node.inputs):
        if not _comes_from(edge.node, read):
            continue
        if port in node.broadcast:
            yield (
                f"{node.name!r} takes its rows as rules: without one of them it is wrong for all",
                "Leave shed= out, or shed the other input.",
            )
        if port in node.what.table_ports:
            yield (
                f"{node.name!r} takes its rows as a table: without a row, the one before it would "
                "be taken for the latest",
                "Leave shed= out, or shed the other input.",
            )


def _holds_changes(read: Read) -> bool:
    if isinstance(read.uri, str) and read.uri.startswith("sql:") and read.options.get("changes"):
        return True
    name = CHANGE.name
    return name in read.schema.names and read.schema.field(name).type == CHANGE.type


def _comes_from(node: Node, read: Read) -> bool:
    """Whether rows of the input reach what reads `node`, not only results computed of them."""
    if isinstance(node, Stateful) and not node.what.passes:
        return False
    return node.name == read.name or any(_comes_from(e.node, read) for e in node.inputs)
