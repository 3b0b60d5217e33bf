"""What Avro stores as numbers or texts and calls times, dates and UUIDs: read as it is stored.

`as_stored` takes the names away from a schema, so that the library returns what is stored, and
`to_moments` makes times and dates of the numbers, wherever they are in a record. Where a union has
several types it is not known of which one a value is, so there they stay the library's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.connect.moments import Days, Micros

Convert = Callable[[Any], Any]

_PER_UNIT: dict[str, Convert] = {
    "millis": lambda v: Micros(v * 1_000),
    "micros": Micros,
    "nanos": lambda v: v if v % 1_000 else Micros(v // 1_000),  # none is cut
}
_MOMENTS: dict[str, Convert] = {"date": Days} | {
    f"{local}timestamp-{unit}": convert
    for local in ("", "local-")
    for unit, convert in _PER_UNIT.items()
}
_STORED = {*_MOMENTS, "time-millis", "time-micros", "uuid", "duration"}


def as_stored(avro: Any, unions: bool = True) -> Any:
    """The schema by which times, dates and the like are read as they are stored; in unions of
    several types only if `unions`."""
    if isinstance(avro, list):
        left = not unions and sum(a != "null" for a in avro) > 1
        return avro if left else [as_stored(a, unions) for a in avro]
    if not isinstance(avro, dict):
        return avro
    found = {k: v for k, v in avro.items() if k != "logicalType" or v not in _STORED}
    for part in ("type", "items", "values"):
        if part in found:
            found[part] = as_stored(found[part], unions)
    if "fields" in found:
        found["fields"] = [{**f, "type": as_stored(f["type"], unions)} for f in found["fields"]]
    return found


def to_moments(avro: Any, named: Mapping[str, Any]) -> Convert | None:
    """A function that makes times and dates of the numbers in a value; None if it has none.

    `avro` and `named`, the types that it names, are as the library parses them.
    """
    return _Moments(named).of(avro)


class _Moments:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known = dict[str, Convert | None]()  # what is made for types that have names

    def of(self, avro: Any) -> Convert | None:
        if isinstance(avro, str):
            return self._of_name(avro)
        if isinstance(avro, list):
            others = [a for a in avro if a != "null"]
            return _optional(self.of(others[0])) if len(others) == 1 else None
        if moment := _MOMENTS.get(avro.get("logicalType")):
            return lambda v: moment(v) if type(v) is int else v
        match avro["type"]:
            case "record" | "error":
                return self._of_name(avro["name"], avro)
            case "array":
                one = self.of(avro["items"])
                return one and (lambda v: [one(i) for i in v])
            case "map":
                item = self.of(avro["values"])
                return item and (lambda v: {k: item(i) for k, i in v.items()})
            case dict() | list():
                return self.of(avro["type"])
        return None

    def _of_name(self, name: str, avro: Any = None) -> Convert | None:
        if name in self._known:
            return self._known[name]
        avro = avro or self._named.get(name)
        if not isinstance(avro, dict) or "fields" not in avro:
            return None
        parts = list[tuple[str, Convert]]()

        def record(value: Any) -> Any:
            for field, convert in parts:
                value[field] = convert(value[field])
            return value

        self._known[name] = record  # also of a record within itself
        parts += [(f["name"], convert) for f in avro["fields"] if (convert := self.of(f["type"]))]
        if not parts:
            self._known[name] = None
        return self._known[name]


def _optional(convert: Convert | None) -> Convert | None:
    return convert and (lambda v: None if v is None else convert(v))
