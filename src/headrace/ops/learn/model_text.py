"""A model of river as text, and back: JSON of plain values, without anything that is executed.

The text is a list of objects, the model first. An object is a list: its kind, and then its fields
in the order of `library.py`; a container is its kind and its elements. What is not a number, a
text, a boolean or null is referred to by its place, as [7]; so an object that two others share is
still shared when it is read, and no tree is too deep. Floats are written so that they are read as
the same bits.
"""

from __future__ import annotations

import base64
import json
import math
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from headrace.errors import StateError
from headrace.ops.learn.library import FORMAT, StoredKind, by_class, kinds, rust

_PLAIN = frozenset([int, str, bool, type(None)])
_ABSENT = ["absent"]  # a field that an object has not yet
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_FACTORIES: dict[str, Callable[[], Any]] = {
    "int": int, "float": float, "floats": partial(defaultdict, float),
}  # fmt: skip
_UNUSED = random.Random(0)  # of distributions that are never drawn from

Ref = Callable[[Any], Any]


class NotStorableError(Exception):
    """An object of a class that is not listed, or with a field that its class is not known for."""


# Writing


def model_text(model: Any) -> str:
    """The text of a model."""
    isfinite = math.isfinite
    objects, places = [model], {id(model): 0}  # which also holds what is made here while written

    def ref(value: Any) -> Any:
        kind = type(value)
        if kind is float:
            return value if isfinite(value) else [repr(value)]
        if kind in _PLAIN:
            return value
        if kind is np.float64:
            return ["float64", ref(float(value))]
        place = places.get(id(value))
        if place is None:
            place = places[id(value)] = len(objects)
            objects.append(value)
        return [place]

    known, writers = by_class(), _writers()
    entries: list[list[Any]] = []
    for one in objects:  # which grows
        stored = known.get(type(one))
        if stored is not None:
            entries.append(_fields(one, stored, ref))
        elif type(one) in writers:
            entries.append(writers[type(one)](one, ref))
        else:
            raise NotStorableError(f"{type(one).__module__}.{type(one).__qualname__}")
    return json.dumps([FORMAT, entries], separators=(",", ":"), allow_nan=False)


# what an object has besides what is stored: made anew when it is read
_MADE = {
    "gaussian": {"_rng"},
    "ebst_node": {"_update_estimator"},
    "page_hinkley": {"_test_drift"},
    "pipeline": {"_plan", "_inference_transformers", "_last_step_cached", "_last_step_params"},
}


def _fields(one: Any, stored: StoredKind, ref: Ref) -> list[Any]:
    own = getattr(one, "__dict__", None)
    if own is None:  # it has slots
        return [stored.kind, *[ref(getattr(one, name)) for name in stored.fields]]
    if len(own) == len(stored.fields) and own.keys() == stored.names:
        return [stored.kind, *[ref(own[name]) for name in stored.fields]]
    more = own.keys() - stored.names - _MADE.get(stored.kind, set())
    if more:
        raise NotStorableError(f"{stored.made.__name__}.{min(more)}")
    found = [ref(own[name]) if name in own else _ABSENT for name in stored.fields]
    return [stored.kind, *found]


def _pairs(one: Any, ref: Ref) -> list[Any]:
    return [ref(part) for pair in one.items() for part in pair]


def _write_random(one: random.Random, ref: Ref) -> list[Any]:
    version, numbers, gauss = one.getstate()
    return ["random", version, ref(gauss), *numbers]


def _write_default(one: defaultdict[Any, Any], ref: Ref) -> list[Any]:
    made = one.default_factory
    names = [n for n, f in _FACTORIES.items() if f is made]
    if isinstance(made, partial) and made.func is defaultdict and made.args == (float,):
        names = ["floats"]
    if not names:
        raise NotStorableError(f"a defaultdict of {made!r}")
    return ["defaultdict", names[0], *_pairs(one, ref)]


def _write_vector(one: Any, ref: Ref) -> list[Any]:
    _, (_, factory, mask, _) = one.__reduce__()
    if mask is not None:
        raise NotStorableError("a VectorDict with a mask")
    return ["vector", ref(factory), *_pairs(one, ref)]


@cache
def _writers() -> dict[type, Callable[[Any, Ref], list[Any]]]:
    window, vector = rust()
    return {
        list: lambda one, ref: ["list", *map(ref, one)],
        set: lambda one, ref: ["set", *map(ref, sorted(one, key=repr))],
        deque: lambda one, ref: ["deque", one.maxlen, *map(ref, one)],
        dict: lambda one, ref: ["dict", *_pairs(one, ref)],
        OrderedDict: lambda one, ref: ["ordered", *_pairs(one, ref)],
        Counter: lambda one, ref: ["counter", *_pairs(one, ref)],
        defaultdict: _write_default,
        random.Random: _write_random,
        window: lambda one, ref: ["window", base64.b64encode(one.__getstate__()).decode()],
        vector: _write_vector,
    }


# Reading


def read_model(text: str) -> Any:
    """The model of a text."""
    version, entries = json.loads(text)
    if version != FORMAT:
        raise StateError(
            "HR-LEARN-003",
            f"a model is stored in format {version}, and this version reads {FORMAT}",
            "Continue the job with the version of headrace that wrote it.",
        )
    known = kinds()
    made = [
        stored.made.__new__(stored.made) if (stored := known.get(entry[0])) else _empty(entry)
        for entry in entries
    ]
    for place, entry in enumerate(entries):
        if entry[0] == "vector":  # what makes its missing elements is known when it is made
            made[place] = rust()[1](None, None if entry[1] is None else made[entry[1][0]])

    def value(part: Any) -> Any:
        if type(part) is not list:
            return part
        first = part[0]
        if type(first) is int:
            return made[first]
        return np.float64(value(part[1])) if first == "float64" else _SPECIAL[first]

    # what an object refers to comes after it, so it is complete before the object is filled
    for one, entry in zip(reversed(made), reversed(entries), strict=True):
        stored = known.get(entry[0])
        if stored is None:
            _fill(one, entry, value)
        else:
            _fill_fields(one, stored, entry, value)
    return made[0]


def _empty(entry: list[Any]) -> Any:
    kind = entry[0]
    if kind == "vector":
        return None
    if kind == "window":
        window = rust()[0]()
        window.__setstate__(base64.b64decode(entry[1]))
        return window
    if kind == "deque":
        return deque(maxlen=entry[1])
    if kind == "defaultdict":
        return defaultdict(_FACTORIES[entry[1]])
    if kind in _CONTAINERS:
        return _CONTAINERS[kind]()
    raise StateError(
        "HR-LEARN-004",
        f"a stored model has a part of the kind {kind!r}, which is not known",
        "Continue the job with the version of headrace that wrote it.",
    )


_CONTAINERS: dict[str, Callable[[], Any]] = {
    "list": list, "set": set, "dict": dict, "ordered": OrderedDict, "counter": Counter,
    "random": lambda: random.Random(0),
}  # fmt: skip
_FIRST = {"deque": 2, "defaultdict": 2, "vector": 2}  # where the elements begin, if not at 1


def _fill(one: Any, entry: list[Any], value: Callable[[Any], Any]) -> None:
    kind = entry[0]
    if kind == "random":
        one.setstate((entry[1], tuple(entry[3:]), value(entry[2])))
    elif kind in ("list", "deque"):
        one.extend(map(value, entry[_FIRST.get(kind, 1) :]))
    elif kind == "set":
        one.update(map(value, entry[1:]))
    elif kind != "window":
        parts = list(map(value, entry[_FIRST.get(kind, 1) :]))
        for name, what in zip(parts[::2], parts[1::2], strict=True):
            one[name] = what


def _fill_fields(
    one: Any, stored: StoredKind, entry: list[Any], value: Callable[[Any], Any]
) -> None:
    if stored.kind == "pipeline":
        one.__init__(*value(entry[1]).items())
        return
    parts = zip(stored.fields, entry[1:], strict=True)
    found = {name: value(part) for name, part in parts if part != _ABSENT}
    own = getattr(one, "__dict__", None)
    if own is not None:
        own.update(found)
    else:  # it has slots
        for name, what in found.items():
            setattr(one, name, what)
    if stored.kind == "gaussian":
        one._rng = _UNUSED
    elif stored.kind == "ebst_node":
        one._update_estimator = stored.made._update_estimator_univariate
    elif stored.kind == "page_hinkley":
        tests = {"up": one._test_increase, "down": one._test_decrease, "both": one._test_both}
        one._test_drift = tests[one.mode]
