"""Which models of river a program may have: what can be stored, and gives the same when replayed.

Refused where the program is built: a class that is not listed, chance without a seed, what depends
on the memory or the hash seed of a process, and a model that has learned already.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import PlanError
from headrace.ops.learn.library import (
    BINARY,
    CLASSIFIERS,
    DETECTORS,
    REGRESSORS,
    RELEASE,
    SCALERS,
    by_class,
    check_installed,
    detector,
    kinds,
)
from headrace.ops.learn.model_text import NotStorableError, model_text

_NEVER = 2**53  # more rows than a tree sees before its memory would be measured
_DEPTH = 980  # what river takes for no limit, with Python's usual limit of recursion
_MEASURED = ("max_size", "memory_estimate_period", "stop_mem_management")
_WITHOUT = ("nominal_attributes", *_MEASURED)

Settings = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class NewModel:
    """A model that has learned nothing."""

    text: str
    settings: Settings  # what identifies it
    classifies: bool
    binary: bool  # its labels are false and true


def new_model(model: Any) -> NewModel:
    """A model as a program says it, checked."""
    check_installed("learn")
    kind, settings = _described(model)
    _check_seeds(settings)
    try:
        written = model_text(model)
        fresh = model.clone()
        if model_text(fresh) != written:
            raise PlanError(
                "HR-LEARN-009",
                f"the model of learn has learned already: {kind}",
                "Pass one that has not: model.clone(). What it learns is state of the step.",
            )
    except NotStorableError as error:
        raise _unknown(str(error)) from error
    _make_repeatable(fresh)
    last = kind.rpartition(" | ")[2]
    return NewModel(model_text(fresh), settings, last in CLASSIFIERS, last in BINARY)


def new_detector(kind: str, options: Mapping[str, Any]) -> tuple[str, Settings]:
    """A detector that has seen nothing, as text, and what identifies it."""
    check_installed("drift")
    if kind not in DETECTORS:
        raise PlanError(
            "HR-LEARN-013",
            f"drift has no detector {kind!r}",
            f"Choose one of {', '.join(DETECTORS)}.",
        )
    known = inspect.signature(kinds()[kind].made).parameters
    allowed = [name for name in known if name != "window"]
    for name in options:
        if name not in allowed:
            raise PlanError(
                "HR-LEARN-014",
                f"the detector {kind!r} has no option {name!r}",
                f"It has {', '.join(allowed)}.",
            )
    chosen = {**({"seed": 0} if kind == "kswin" else {}), **options}
    values = {n: chosen.get(n, known[n].default) for n in allowed}
    for name, value in values.items():
        if (wrong := _wrong_option(name, value, values)) is not None:
            raise PlanError("HR-LEARN-015", f"drift({name}=) is {value!r}", wrong)
    return model_text(detector(kind, chosen)), tuple(values.items())


_COUNTS = ("clock", "max_buckets", "min_window_length", "grace_period", "min_instances",
           "window_size", "stat_size")  # fmt: skip


def _wrong_option(name: str, value: Any, values: Mapping[str, Any]) -> str | None:
    """What an option of a detector must be instead."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name == "mode":
        return None if value in ("up", "down", "both") else 'Choose "up", "down" or "both".'
    if name == "seed":
        return None if type(value) is int else "Choose a whole number: a replay draws the same."
    if name in _COUNTS:
        if type(value) is not int or value < 1:
            return "Choose a whole number above zero."
        if name == "stat_size" and 2 * value > values["window_size"]:
            return "Choose at most half of window_size: as many are drawn from the rest."
        return None
    if not number or not abs(value) < float("inf"):
        return "Choose a number."
    between = name == "alpha" or (name == "delta" and "clock" in values)
    return "Choose a number between 0 and 1." if between and not 0 < value < 1 else None


def _check_seeds(settings: Settings) -> None:
    for name, value in settings:
        if name.rpartition(".")[2] == "seed" and value is None:
            raise PlanError(
                "HR-LEARN-007",
                f"the model of learn has {name}=None, so a replay would give something else",
                "Choose a seed: seed=1.",
            )


def _described(model: Any) -> tuple[str, Settings]:
    """The kind of a model, of a pipeline those of its steps, and its parameters."""
    if isinstance(model, type):
        fact, hint = f"{model.__name__} is a class, and no model", f"Write {model.__name__}()."
        raise PlanError("HR-LEARN-006", fact, hint)
    stored = by_class().get(type(model))
    if stored is None or stored.kind not in (*CLASSIFIERS, *REGRESSORS, "pipeline"):
        raise _unknown(_name(model))
    if stored.kind != "pipeline":
        return stored.kind, (("model", stored.kind), *_parameters(model, ""))
    found: list[tuple[str, Any]] = []
    names: list[str] = []
    *scalers, last = model.steps.values()
    for place, step in enumerate((*scalers, last)):
        part = by_class().get(type(step))
        wanted = SCALERS if place < len(scalers) else (*CLASSIFIERS, *REGRESSORS)
        if part is None or part.kind not in wanted:
            raise _unknown(_name(step))
        names.append(part.kind)
        found += _parameters(step, f"{place}." if place < len(scalers) else "")
    kind = " | ".join(names)
    return kind, (("model", kind), *found)


def _parameters(one: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """The parameters that an object was made with; those of its parts under their names."""
    for name, parameter in inspect.signature(type(one)).parameters.items():
        value = getattr(one, name)
        if name == "cm":  # what a metric counts
            continue
        if name in _WITHOUT:
            _check_default(name, value, parameter.default)
        elif name == "max_depth":
            yield prefix + name, _DEPTH if value in (None, _no_depth()) else value
        elif value is None or isinstance(value, bool | int | str):
            yield prefix + name, value
        elif isinstance(value, float):
            yield prefix + name, repr(value)
        else:
            part = by_class().get(type(value))
            if part is None:
                raise _unknown(f"{_name(value)} as {name}")
            yield prefix + name, part.kind
            yield from _parameters(value, f"{prefix}{name}.")


def _check_default(name: str, value: Any, default: Any) -> None:
    if value == default or value is None:
        return
    if name in _MEASURED:
        fact = "goes by the memory of Python objects, which differs from process to process"
        hint = "Leave it out, and bound a tree by max_depth."
    else:
        fact = "leads to trees that depend on the hash seed of a process"
        hint = "Leave it out, and make numbers of what is nominal: is_red=\"color = 'red'\"."
    raise PlanError("HR-LEARN-008", f"{name}= of a model {fact}", hint)


def _no_depth() -> int:
    return sys.getrecursionlimit() - 20


def _make_repeatable(model: Any) -> None:
    """Set what would depend on the process."""
    for one in model.steps.values() if hasattr(model, "steps") else [model]:
        if hasattr(one, "memory_estimate_period"):
            one.memory_estimate_period = _NEVER
        if hasattr(one, "max_depth") and one.max_depth in (None, _no_depth()):
            one.max_depth = _DEPTH


def _name(one: Any) -> str:
    kind = one if isinstance(one, type) else type(one)
    return f"{kind.__module__}.{kind.__qualname__}"


def _unknown(what: str) -> PlanError:
    names = [kinds()[kind].made.__name__ for kind in (*CLASSIFIERS, *REGRESSORS)]
    return PlanError(
        "HR-LEARN-006",
        f"learn cannot store {what} of a model",
        f"It takes {', '.join(names)} of river {RELEASE}, alone or after a StandardScaler, with "
        "the optimizers, losses and detectors that docs/guide/learning.md lists.",
    )
