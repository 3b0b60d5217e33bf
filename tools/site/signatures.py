"""Signatures as a user should read them: no type variables, no modules that hold a class.

Annotations are taken as they are written in the source. A type variable becomes the class that it
stands for where the method is called, and a class of the reference a link to its entry.
"""

from __future__ import annotations

import builtins
import inspect
import re
import typing
from typing import Any

from tools.site.reference import class_named, imported, index
from tools.site.themes import CONSTRUCTED

FOREIGN = re.compile(r"(pa|pd|np|st|os|pathlib|datetime|Path|hypothesis)\b")
WORD = re.compile(r"\"[^\"]*\"|'[^']*'|[A-Za-z_][\w.]*")

# Internal names, and what a user calls the same.
READ_AS = {"Drafted": "Job", "AnyTable": "Table"}

# What these return is said by a type variable; it is the class that `window` and others put there.
RETURNED = {
    "WindowedStream": {"ResultT": "WindowResult"},
    "ConnectedStreams": {"ResultT": "ProcessResult"},
    "Branches": {"StreamT": "Stream"},
}


class Written:
    """An annotation or a default that is shown as it is written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def signature(thing: Any, owner: type | None) -> tuple[str, str]:
    """The arguments, and what is returned, as text; both empty if it is nobody's to call."""
    if inspect.isclass(thing) and thing.__name__ not in CONSTRUCTED:
        return "", ""
    found = inspect.signature(thing)
    arguments = list(found.parameters.values())
    if owner is not None and arguments and arguments[0].name in ("self", "cls"):
        arguments = arguments[1:]
    variables = _variables(owner)
    shown = found.replace(
        parameters=[_argument(a, variables) for a in arguments],
        return_annotation=inspect.Signature.empty,
    )
    returns = "" if inspect.isclass(thing) else _annotation(found.return_annotation, variables)
    return str(shown), returns if all(map(_known, WORD.findall(returns))) else ""


def _argument(argument: inspect.Parameter, variables: dict[str, str]) -> inspect.Parameter:
    if argument.annotation is not argument.empty:
        text = _annotation(argument.annotation, variables)
        argument = argument.replace(annotation=Written(text))
    if argument.default is not argument.empty and "<" in repr(argument.default):
        argument = argument.replace(default=Written("..."))  # an object that stands for "not given"
    return argument


def _annotation(annotation: Any, variables: dict[str, str]) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    if not isinstance(annotation, str):
        annotation = inspect.formatannotation(annotation)
    return readable(annotation, variables)


def readable(annotation: str, variables: dict[str, str]) -> str:
    """An annotation with the names that the reference has for what it names."""

    def name(found: re.Match[str]) -> str:
        module, _, short = found[0].rpartition(".")
        if FOREIGN.match(module):
            return found[0]
        short = READ_AS.get(short, short)
        if short in variables:
            return readable(variables[short], {})
        return f"~{index()[short]}" if short in index() else found[0]

    return _without_arguments(WORD.sub(name, annotation))


def _known(name: str) -> bool:
    """Whether a name says something to a user: others are those of values that are passed on."""
    if name in index().values() or FOREIGN.match(name):
        return True
    return hasattr(builtins, name) or hasattr(typing, name)


def _without_arguments(annotation: str) -> str:
    """`WindowedStream[WindowResult]` is a WindowedStream: what it returns, its entry says."""
    for kind in RETURNED:
        annotation = re.sub(rf"\b{kind}\[[^\[\]]*\]", kind, annotation)
    return annotation


def _variables(owner: type | None) -> dict[str, str]:
    """The type variables of a class and of its parts, and what stands for each."""
    if owner is None:
        return {}
    found = {"Self": owner.__name__, **RETURNED.get(owner.__name__, {})}
    for part in owner.__mro__:
        for base in getattr(part, "__orig_bases__", ()):
            parameters = getattr(typing.get_origin(base), "__parameters__", ())
            for parameter, given in zip(parameters, typing.get_args(base), strict=False):
                text = getattr(given, "__forward_arg__", None) or getattr(given, "__name__", "")
                found.setdefault(parameter.__name__, found.get(text, text))
    return found


def owner_of(what: str, path: str) -> type | None:
    """The class that a method or property is shown on."""
    if what not in ("method", "property"):
        return None
    place = path.rpartition(".")[0]
    try:
        return typing.cast(type, imported(place))
    except AttributeError:
        return class_named(place.rpartition(".")[2])
