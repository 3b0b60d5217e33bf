"""From a node of the plan to the operator that gives it meaning."""

from __future__ import annotations

import pyarrow as pa

from headrace.ops.contract import Operator
from headrace.ops.general_windows.fold import WindowFoldOperator
from headrace.ops.general_windows.operator import TimedWindowOperator
from headrace.ops.panes.operator import WindowAggOperator
from headrace.ops.process.chunked import ChunkOperator
from headrace.ops.process.operator import ProcessOperator
from headrace.ops.row_windows.operator import RowWindowOperator
from headrace.ops.running.agg import RollingOperator
from headrace.ops.running.fold import Folder, FoldOperator
from headrace.ops.window.assigners import Session
from headrace.ops.window.function import AggregateRows, FoldRows, WindowFunction
from headrace.ops.window.own import Own
from headrace.ops.window.process import ProcessRows, WindowProcess
from headrace.plan.nodes import (
    AnyWindow,
    Apply,
    Fold,
    Process,
    Rolling,
    RowWindow,
    Stateful,
    WindowAgg,
    WindowFold,
)
from headrace.reads import columns_of_rows


def operator_for(node: Stateful) -> Operator:
    """A fresh operator for one task and one epoch."""
    keys = node.keys[0]
    inputs = [edge.schema for edge in node.inputs]
    match node:
        case WindowAgg():
            return WindowAggOperator(node.window, dict(node.aggs), keys, inputs[0], node.schema)
        case AnyWindow():
            work = (_over_rows(node), node.evictor) if node.function or node.evictor else None
            aggs = {} if work else dict(node.aggs)
            return TimedWindowOperator(node.windowing, aggs, work, keys, inputs[0], node.schema)
        case RowWindow():
            function = _over_rows(node) if node.function else dict(node.aggs)
            return RowWindowOperator(node.window, function, keys, inputs[0], node.schema)
        case WindowFold():
            return WindowFoldOperator(node.window, _folder(node), keys, inputs[0], node.schema)
        case Rolling():
            return RollingOperator(dict(node.aggs), keys, inputs[0], node.schema)
        case Fold():
            return FoldOperator(_folder(node), keys, inputs[0], node.schema)
        case Process() if type(node.function).chunked():
            return ChunkOperator(node.function, keys, inputs[0], node.schema, node.timed)
        case Process():
            return ProcessOperator(
                node.function,
                node.names,
                node.keys,
                inputs,
                node.schema,
                node.timed,
                node.broadcast,
            )
        case Apply():
            return node.what.operator(node.keys, inputs, node.schema)
    raise TypeError(f"no operator for {type(node).__name__}")


def runs_user_code(node: Stateful) -> bool:
    """Whether what the user wrote runs before the rows travel, where each may fail alone."""
    if isinstance(node, AnyWindow) and isinstance(node.windowing.assigner, Own):
        return True
    if isinstance(node, Apply):
        window = getattr(node.what, "window", None)
        return isinstance(window, Session) and not isinstance(window.gap, int)
    aggs = node.aggs if isinstance(node, WindowAgg | AnyWindow) else ()
    return any(agg.own is not None for _, agg in aggs)


def _over_rows(node: AnyWindow | RowWindow) -> WindowFunction:
    """What is computed over the rows of each window."""
    schema = node.inputs[0].schema
    if node.function is None:
        fields = [node.schema.field(name) for name, _ in node.aggs]
        return AggregateRows(dict(node.aggs), pa.schema(fields))
    rows = pa.schema([f for f in schema if f.name not in dict(node.extras)])
    if node.process:
        fn = node.function.fn
        seen = rows.names if isinstance(fn, WindowProcess) else columns_of_rows(fn, rows.names, 2)
        return ProcessRows(fn, node.keys[0], rows, node.value, seen)
    zero = node.zero.fn if node.zero else None
    return FoldRows(node.function.fn, zero, rows, node.value)


def _folder(node: Fold | WindowFold) -> Folder:
    zero = node.zero.fn if node.zero else None
    return Folder(node.function.fn, zero, node.value, node.inputs[0].schema)
