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
from headrace.ops.pattern.parts import (
    ANY,
    LINKS,
    NEXT,
    THEN,
    Either,
    Ending,
    Group,
    Item,
    Part,
    Repeat,
    Row,
    Skip,
    Without,
)
from headrace.ops.pattern.refusals import check_items, check_no_limit

_WITHOUT, _NOT_NEXT = "without", "not_next"
_DEEPEST = 50  # parts within parts
_OF_LOOPS = {"by", "greedy", "times_within"}  # beside `times`
_KEYS = {"link", "within", "name", "where", "either", "parts", "times", "until", "optional"}
_KEYS |= _OF_LOOPS


def written(group: Group, span: int | None, skip: Skip, ending: Ending | None) -> str:
    said: dict[str, Any] = {"parts": [_item(i) for i in group.items]}
    if span is not None:
        said["within"] = f"{span}ms"
    if skip.to != "none":
        said["skip"] = {"to": skip.to} | ({"name": skip.name} if skip.name else {})
    if ending is not None:
        said["then_not"] = {"name": ending.name} | _where("where", ending.where)
        said["then_not"] |= {"within": f"{ending.length}ms"} if ending.length else {}
    return json.dumps(said)


def _item(item: Item) -> dict[str, Any]:
    said = {"link": item.link}
    if isinstance(item.part, Without):
        said = {"link": _NOT_NEXT if item.part.directly else _WITHOUT}
    return said | _duration("within", item.limit) | _part(item.part)


def _part(part: Part | Without) -> dict[str, Any]:
    match part:
        case Row(name=name, where=where) | Without(name=name, where=where):
            return {"name": name} | _where("where", where)
        case Repeat(part=inner, low=0, high=1, greedy=greedy):
            return {**_part(inner), "optional": "greedy" if greedy else True}
        case Repeat(part=inner, low=low, high=high, by=by, greedy=greedy, until=until):
            said = {**_part(inner), "times": [low, high], "by": by, "greedy": greedy}
            said |= _duration("times_within", part.limit)
            return said | ({} if until is None else _where("until", until))
        case Group(items=items):
            return {"parts": [_item(i) for i in items]}
        case Either(parts=parts):
            return {"either": [{"parts": [_item(i) for i in p.items]} for p in parts]}


def _duration(key: str, length: int | None) -> dict[str, str]:
    return {} if length is None else {key: f"{length}ms"}


def _where(key: str, where: Any) -> dict[str, Any]:
    said = []
    for one in where:
        if callable(one) and not isinstance(one, Expr):
            raise refusal(
                "HR-PATTERN-017",
                "a pattern with a Python function cannot be written as JSON",
                "Write the condition as an expression: its text, or with hr.col.",
            )
        said.append(one.sql() if isinstance(one, Expr) else str(one))
    return {key: said[0] if len(said) == 1 else said} if said else {}


def read(text: str, begin: Callable[..., Any], either: Callable[..., Any]) -> Any:
    """The pattern; `begin` makes one of its first part, `either` one of several."""
    try:
        said = json.loads(text)
        return _Reader(begin, either).whole(said)
    except HeadraceError:
        raise
    except KeyError as error:
        raise _unreadable(f"{error} is missing") from error
    except RecursionError:
        raise _too_deep() from None
    except (ValueError, TypeError, AttributeError) as error:
        raise _unreadable(f"{type(error).__name__}: {error}") from error


class _Reader:
    def __init__(self, begin: Callable[..., Any], either: Callable[..., Any]) -> None:
        self._begin, self._either = begin, either

    def whole(self, said: Mapping[str, Any]) -> Any:
        _known(said, {"parts", "within", "skip", "then_not"})
        made = self._group(said["parts"], 1)
        if "then_not" in said:
            last = said["then_not"]
            _known(last, {"name", "where", "within"})
            made = made.then_not(last["name"], *_texts(last), within=last.get("within"))
        if "within" in said:
            made = made.within(said["within"])
        if "skip" in said:
            made = _skipping(made, said["skip"])
        made.check()
        return made

    def _group(self, parts: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise _too_deep()
        _list(parts)
        check_items(parts)
        made = None
        for said in parts:
            _known(said, _KEYS)
            made = self._after(made, said, depth)
        return made

    def _after(self, made: Any, said: Mapping[str, Any], depth: int) -> Any:
        link, part, where = said.get("link", THEN), self._part(said, depth), _texts(said)
        if link in (_WITHOUT, _NOT_NEXT) and made is not None:
            forbid = made.without if link == _WITHOUT else made.not_next
            check_no_limit(said.get("within"), f"{part!r} must not be there")
            return _counted(forbid(part, *where), said)
        if link not in LINKS:
            raise _unreadable(f"a part cannot follow by {link!r}")
        if made is None:
            check_no_limit(said.get("within"), "no row is before the first part")
            return _counted(self._begin(part, *where), said)
        follow = {NEXT: made.next, THEN: made.then, ANY: made.then_any}[link]
        return _counted(follow(part, *where, within=said.get("within")), said)

    def _part(self, said: Mapping[str, Any], depth: int) -> Any:
        if "either" in said:
            _list(said["either"])
            for one in said["either"]:
                _known(one, {"parts"})
            return self._either(*(self._group(one["parts"], depth + 1) for one in said["either"]))
        return self._group(said["parts"], depth + 1) if "parts" in said else said["name"]


def _counted(made: Any, said: Mapping[str, Any]) -> Any:
    how: dict[str, Any] = {"by": said.get("by", THEN), "greedy": bool(said.get("greedy", False))}
    how["within"] = said.get("times_within")
    if "times" not in said and _OF_LOOPS & said.keys():
        raise _unreadable(f"{min(_OF_LOOPS & said.keys())!r} is there, but 'times' is not")
    if "times" in said:
        if not isinstance(said["times"], list) or len(said["times"]) != 2:
            raise _unreadable(f"times is {said['times']!r}, not [least, most]")
        low, high = said["times"]
        made = made.times_or_more(low, **how) if high is None else made.times(low, high, **how)
    if "until" in said:
        made = made.until(*_texts(said, "until"))
    if said.get("optional"):
        made = made.optional(greedy=said["optional"] == "greedy")
    return made


def _skipping(made: Any, said: Mapping[str, Any]) -> Any:
    _known(said, {"to", "name"})
    match said["to"]:
        case "next":
            return made.skip_to_next()
        case "past_last":
            return made.skip_past_last()
        case "first":
            return made.skip_to_first(said["name"])
        case "last":
            return made.skip_to_last(said["name"])
    raise _unreadable(f"there is no skip to {said['to']!r}")


def _texts(said: Mapping[str, Any], key: str = "where") -> list[str]:
    where = said.get(key, [])
    texts = [where] if isinstance(where, str) else where
    if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
        raise _unreadable(f"{key} is {where!r}")
    return texts


def _known(said: Mapping[str, Any], keys: set[str]) -> None:
    if not isinstance(said, dict):
        raise _unreadable(f"{json.dumps(said)} stands where an object must, such as {{...}}")
    strange = sorted(set(said.keys()) - keys)
    if strange:
        raise _unreadable(f"there is no {strange[0]!r}")


def _list(said: object) -> None:
    if not isinstance(said, list):
        raise _unreadable(f"{json.dumps(said)} stands where a list must, such as [...]")


def _too_deep() -> PlanError:
    return _unreadable("it is nested too deep")


def _unreadable(why: str) -> PlanError:
    return refusal(
        "HR-PATTERN-018",
        f"the text is no pattern: {why}",
        "Write it with Pattern.to_json and compare.",
    )
