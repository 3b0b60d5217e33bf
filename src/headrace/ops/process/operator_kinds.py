"""The kinds of operator state: a value and a list per task, whatever the key.

Declarations, as those of keyed state in `state_kinds.py`; they also say what becomes of the state
when a start has another number of tasks. Nothing here runs with a job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import PlanError, call_site
from headrace.ops.process.state_kinds import ListState, ValueState, list_of, takes_two, value

SPLIT, UNION = "split", "union"


@dataclass(frozen=True, slots=True, eq=False)
class OperatorValue(ValueState):
    """One value per task; `merge` makes one of two when there are fewer tasks."""

    merge: Callable[[Any, Any], Any] | None = None

    word = "operator value"
    at_rest = "KeptOperatorValue"  # never changes


@dataclass(frozen=True, slots=True, eq=False)
class OperatorList(ListState):
    """A list per task, dealt out anew when there are more or fewer tasks."""

    redistribute: str = SPLIT

    word = "operator list"
    at_rest = "KeptOperatorList"  # never changes

    @property
    def whole(self) -> Any:
        return list[self.kind]  # type: ignore[name-defined]


OperatorKind = OperatorValue | OperatorList


def operator_value(
    kind: Any,
    default: Any = None,
    *,
    merge: Callable[[Any, Any], Any] | None = None,
    was: str | None = None,
    was_fields: Mapping[str, str] | None = None,
) -> Any:
    """Declare a value per task, not per key: `sent = hr.operator_value(int, default=0)`.

    When a job starts with another number of tasks, merge(a, b) makes one value of two tasks'; a
    task that gets none has the default. Without `merge` such a start is refused.
    """
    if merge is not None and not (callable(merge) and takes_two(merge)):
        raise PlanError(
            "HR-PROCESS-022",
            f"merge= of an operator_value needs a function of two arguments, not {merge!r}",
            "Say how the values of two tasks become one: merge=max, or a function of both.",
            site=call_site(),
        )
    one = value(kind, default, was=was, was_fields=was_fields)
    return OperatorValue(
        one.type, one.default, one.kind, None, False, one.was, one.was_fields, merge=merge
    )


def operator_list(
    kind: Any,
    *,
    redistribute: str = SPLIT,
    was: str | None = None,
    was_fields: Mapping[str, str] | None = None,
) -> Any:
    """Declare a list per task, not per key: `self.waiting.append(row.id)`.

    When a job starts with another number of tasks, the lists of all are put together, in the order
    of the tasks, and `redistribute` says what each gets: "split" an even share, "union" all of it,
    equal elements once.
    """
    if redistribute not in (SPLIT, UNION):
        raise PlanError(
            "HR-PROCESS-022",
            f"redistribute= of an operator_list is {redistribute!r}",
            f'Choose "{SPLIT}", an even share for each task, or "{UNION}", all for every task.',
            site=call_site(),
        )
    one = list_of(kind, was=was, was_fields=was_fields)
    return OperatorList(
        one.type, None, one.kind, None, False, one.was, one.was_fields, redistribute=redistribute
    )
