"""From a node of the plan to the operator that gives it meaning."""

from __future__ import annotations

from headrace.ops.contract import Operator
from headrace.ops.fold import Folder, FoldOperator
from headrace.ops.process import ProcessOperator
from headrace.ops.rolling_agg import RollingOperator
from headrace.ops.window_agg import WindowAggOperator
from headrace.ops.window_fold import WindowFoldOperator
from headrace.plan.nodes import Fold, Process, Rolling, Stateful, WindowAgg, WindowFold


def operator_for(node: Stateful) -> Operator:
    """A fresh operator for one task and one epoch."""
    keys = node.keys[0]
    inputs = [edge.schema for edge in node.inputs]
    match node:
        case WindowAgg():
            return WindowAggOperator(node.window, dict(node.aggs), keys, inputs[0], node.schema)
        case WindowFold():
            return WindowFoldOperator(node.window, _folder(node), keys, inputs[0], node.schema)
        case Rolling():
            return RollingOperator(dict(node.aggs), keys, inputs[0], node.schema)
        case Fold():
            return FoldOperator(_folder(node), keys, inputs[0], node.schema)
        case Process():
            return ProcessOperator(node.function, node.names, node.keys, inputs, node.schema)
    raise TypeError(f"no operator for {type(node).__name__}")


def _folder(node: Fold | WindowFold) -> Folder:
    zero = node.zero.fn if node.zero else None
    return Folder(node.function.fn, zero, node.value, node.inputs[0].schema)
