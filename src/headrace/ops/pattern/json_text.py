"""Patterns as JSON: what a control stream carries.

    {"parts": [{"name": "a", "where": "amount < 1"},
               {"link": "not_next", "name": "n", "where": "amount < 0"},
               {"link": "then", "within": "5m", "name": "b", "where": "amount > 500",
                "times": [2, 4], "times_within": "30s"}],
     "within": "10m"}

Only conditions that are expressions can be written. What is read is built by the same calls that
users write, so it is refused for the same reasons.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import HeadraceError, PlanError, refusal
from headrace.expr import Expr
from headrace.ops.pattern.checks import check_items, check_no_limit
from headrace.ops.pattern.parts import (
    ANY,
    LINKS,
    NEXT,
    THEN,
    EitherPart,
    Ending,
    GroupPart,
    Item,
    Part,
    RepeatPart,
    RowPart,
    Skip,
    WithoutPart,
)

_WITHOUT, _NOT_NEXT = "without", "not_next"
_DEEPEST = 50  # parts within parts
_OF_LOOPS = {"by", "greedy", "times_within"}  # in addition to `times`
_KEYS = {"link", "within", "name", "where", "either", "parts", "times", "until", "optional"}
_KEYS |= _OF_LOOPS


def to_json(group: GroupPart, span: int | None, skip: Skip, ending: Ending | None) -> str:
    node: dict[str, Any] = {"parts": [_item(i) for i in group.items]}
    if span is not None:
        node["within"] = f"{span}ms"
    if skip.to != "none":
        node["skip"] = {"to": skip.to} | ({"name": skip.name} if skip.name else {})
    if ending is not None:
        node["then_not"] = {"name": ending.name} | _where("where", ending.where)
        node["then_not"] |= {"within": f"{ending.length}ms"} if ending.length else {}
    return json.dumps(node)


def _item(item: Item) -> dict[str, Any]:
    node = {"link": item.link}
    if isinstance(item.part, WithoutPart):
        node = {"link": _NOT_NEXT if item.part.directly else _WITHOUT}
    return node | _duration("within", item.limit) | _part(item.part)


def _part(part: Part | WithoutPart) -> dict[str, Any]:
    match part:
        case RowPart(name=name, where=where) | WithoutPart(name=name, where=where):
            return {"name": name} | _where("where", where)
        case RepeatPart(part=inner, low=0, high=1, greedy=greedy):
            return {**_part(inner), "optional": "greedy" if greedy else True}
        case RepeatPart(part=inner, low=low, high=high, by=by, greedy=greedy, until=until):
            node = {**_part(inner), "times": [low, high], "by": by, "greedy": greedy}
            node |= _duration("times_within", part.limit)
            return node | ({} if until is None else _where("until", until))
        case GroupPart(items=items):
            return {"parts": [_item(i) for i in items]}
        case EitherPart(parts=parts):
            return {"either": [{"parts": [_item(i) for i in p.items]} for p in parts]}


def _duration(key: str, length: int | None) -> dict[str, str]:
    return {} if length is None else {key: f"{length}ms"}


def _where(key: str, where: Any) -> dict[str, Any]:
    node = []
    for one in where:
        if callable(one) and not isinstance(one, Expr):
            raise refusal(
                "HR-PATTERN-017",
                "a pattern with a Python function cannot be written as JSON",
                "Write the condition as an expression: its text, or with hr.col.",
            )
        node.append(one.sql() if isinstance(one, Expr) else str(one))
    return {key: node[0] if len(node) == 1 else node} if node else {}


def from_json(text: str, begin: Callable[..., Any], either: Callable[..., Any]) -> Any:
    """The pattern; `begin` makes one of its first part, `either` one of several."""
    try:
        node = json.loads(text)
        return _PatternReader(begin, either).whole(node)
    except HeadraceError:
        raise
    except KeyError as error:
        raise _unreadable(f"{error} is missing") from error
    except RecursionError:
        raise _too_deep() from None
    except (ValueError, TypeError, AttributeError) as error:
        raise _unreadable(f"{type(error).__name__}: {error}") from error


class _PatternReader:
    def __init__(self, begin: Callable[..., Any], either: Callable[..., Any]) -> None:
        self._begin, self._either = begin, either

    def whole(self, node: Mapping[str, Any]) -> Any:
        _check_keys(node, {"parts", "within", "skip", "then_not"})
        pattern = self._group(node["parts"], 1)
        if "then_not" in node:
            last = node["then_not"]
            _check_keys(last, {"name", "where", "within"})
            pattern = pattern.then_not(last["name"], *_texts(last), within=last.get("within"))
        if "within" in node:
            pattern = pattern.within(node["within"])
        if "skip" in node:
            pattern = _skipping(pattern, node["skip"])
        pattern.check()
        return pattern

    def _group(self, parts: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise _too_deep()
        _list(parts)
        check_items(parts)
        pattern = None
        for node in parts:
            _check_keys(node, _KEYS)
            pattern = self._after(pattern, node, depth)
        return pattern

    def _after(self, pattern: Any, node: Mapping[str, Any], depth: int) -> Any:
        link, part, where = node.get("link", THEN), self._part(node, depth), _texts(node)
        if link in (_WITHOUT, _NOT_NEXT) and pattern is not None:
            forbid = pattern.without if link == _WITHOUT else pattern.not_next
            check_no_limit(node.get("within"), f"{part!r} must not be there")
            return _counted(forbid(part, *where), node)
        if link not in LINKS:
            raise _unreadable(f"a part cannot follow by {link!r}")
        if pattern is None:
            check_no_limit(node.get("within"), "no row is before the first part")
            return _counted(self._begin(part, *where), node)
        follow = {NEXT: pattern.next, THEN: pattern.then, ANY: pattern.then_any}[link]
        return _counted(follow(part, *where, within=node.get("within")), node)

    def _part(self, node: Mapping[str, Any], depth: int) -> Any:
        if "either" in node:
            _list(node["either"])
            for one in node["either"]:
                _check_keys(one, {"parts"})
            return self._either(*(self._group(one["parts"], depth + 1) for one in node["either"]))
        return self._group(node["parts"], depth + 1) if "parts" in node else node["name"]


def _counted(pattern: Any, node: Mapping[str, Any]) -> Any:
    how: dict[str, Any] = {"by": node.get("by", THEN), "greedy": bool(node.get("greedy", False))}
    how["within"] = node.get("times_within")
    if "times" not in node and _OF_LOOPS & node.keys():
        raise _unreadable(f"{min(_OF_LOOPS & node.keys())!r} is there, but 'times' is not")
    if "times" in node:
        if not isinstance(node["times"], list) or len(node["times"]) != 2:
            raise _unreadable(f"times is {node['times']!r}, not [least, most]")
        low, high = node["times"]
        pattern = (
            pattern.times_or_more(low, **how) if high is None else pattern.times(low, high, **how)
        )
    if "until" in node:
        pattern = pattern.until(*_texts(node, "until"))
    if node.get("optional"):
        pattern = pattern.optional(greedy=node["optional"] == "greedy")
    return pattern


def _skipping(pattern: Any, node: Mapping[str, Any]) -> Any:
    _check_keys(node, {"to", "name"})
    match node["to"]:
        case "next":
            return pattern.skip_to_next()
        case "past_last":
            return pattern.skip_past_last()
        case "first":
            return pattern.skip_to_first(node["name"])
        case "last":
            return pattern.skip_to_last(node["name"])
    raise _unreadable(f"there is no skip to {node['to']!r}")


def _texts(node: Mapping[str, Any], key: str = "where") -> list[str]:
    where = node.get(key, [])
    texts = [where] if isinstance(where, str) else where
    if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
        raise _unreadable(f"{key} is {where!r}")
    return texts


def _check_keys(node: Mapping[str, Any], keys: set[str]) -> None:
    if not isinstance(node, dict):
        raise _unreadable(f"{json.dumps(node)} is not an object, such as {{...}}")
    strange = sorted(set(node.keys()) - keys)
    if strange:
        raise _unreadable(f"there is no {strange[0]!r}")


def _list(node: object) -> None:
    if not isinstance(node, list):
        raise _unreadable(f"{json.dumps(node)} is not a list, such as [...]")


def _too_deep() -> PlanError:
    return _unreadable("it is nested too deep")


def _unreadable(why: str) -> PlanError:
    return refusal(
        "HR-PATTERN-018",
        f"the text is not a pattern: {why}",
        "Write it with Pattern.to_json and compare.",
    )
