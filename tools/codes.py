"""The table of error codes in docs/codes.md, read from the source.

Every error is built as `SomeError(code, fact, hint)` with a literal code: by a class of
headrace/errors.py, or by a function that passes its arguments on to one, such as `refusal`. The
source is read with `ast`; nothing of Headrace is imported. `python -m tools.codes` writes the
page, and a test compares the page with the source.
"""

# ruff: noqa: RUF001  (angle quotes mark the fields of a message)

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "codes.md"
CODE = re.compile(r"HR-[A-Z]+-\d{3}")
SHOWN = 8  # causes of one code that are listed; the others are counted
DEPTH = 3  # functions that pass an error's arguments on to each other
HEAD = """\
# Error codes

Every error has a stable code. In this table `‹name›` stands for a name or a value in your program,
`…` for a longer text. Where a code has several causes, they are numbered, and so are the remedies.
[Errors](guide/errors.md) describes the classes of errors, and what happens to rows that cannot be
processed.

This page is generated from the source by `python -m tools.codes`, which `make docs` runs.
"""

# Where a code is not a literal: the function, and the code as it is written there ...
DYNAMIC = {
    ("check", "change.code"),  # set by the Change, with a literal
    ("report", "problem.code"),  # that of another error
    ("_await", "failed['code']"),  # that of the driver
    ("_failed", "str(noted['code'])"),  # that of another process
    ("_as_output", "cause.code"),  # that of Kafka
    ("place_of", "cause.code"),
    ("registry_of", "cause.code"),  # that of a reference to a secret, or of a registry
    ("value_schema_of", "cause.code"),
    ("_registered", "cause.code"),
    ("decode", "cause.code"),
    ("as_input", "_CODES.get(cause.code, cause.code)"),  # that of Kafka, or one of _CODES
    ("_as_input", "_CODES.get(cause.code, cause.code)"),  # that of the log, or one of _CODES
}
# ... and what is reported there.
ELSEWHERE = {
    "HR-EVOLVE-001": (
        "the operator, input or output ‹name› cannot go on from what the job's folder holds, "
        "because …",
        "Undo the change, or give up what it holds; `headrace plan` shows how.",
    ),
    "HR-EVOLVE-003": (
        "the operator, input or output ‹name› cannot go on, because its was= does not name "
        "anything that the job's folder holds",
        "Correct was=, or remove it.",
    ),
    "HR-EVOLVE-005": (
        "the operator ‹name› has no name of its own, and it is not certain that the state under "
        "its derived name belongs to it",
        "Name the step, and use was= to say which state it continues.",
    ),
    "HR-EVOLVE-008": (
        "the operator ‹name› cannot go on from its state, because its new aggregates cannot be "
        "computed of past rows: …",
        'Say agg(..., since="restart"), or compute it in a job with a folder of its own.',
    ),
    "HR-INPUT-010": ("there is no topic ‹topic›", "See HR-LOG-002."),
    "HR-INPUT-011": ("the offset is outside the partition", "See HR-LOG-007."),
    "HR-OUTPUT-010": ("the topic cannot be written: …", "See the codes HR-LOG."),
}
# Codes with so many causes that the table summarises them.
SUMMARY = {
    "HR-EXPR-003": (
        "a type, an argument or a literal does not fit where the expression uses it; the message "
        "quotes the part and says why",
        "Follow the message: cast the value, or write the argument as it shows.",
    ),
    "HR-INPUT-009": (
        "what the job's folder holds of the input, such as a list of files or the lines "
        "received, is missing or damaged",
        "Restore it from a copy of the job's folder, or start with a new job folder.",
    ),
    "HR-LOG-006": (
        "the records do not fit the topic: a column or field is missing, unknown, there twice, or "
        "of another type, or the records are not bytes or rows at all",
        "Give records with the columns of the topic; the message lists them.",
    ),
    "HR-PROCESS-001": (
        "the step holds state or sees rows by key, but the stream has no key",
        'Key the stream: .key_by("column").',
    ),
    "HR-PROCESS-002": (
        "the step sets timers, which belong to a key, but the stream has no key",
        'Key the stream: .key_by("column").',
    ),
    "HR-STEP-002": (
        "an expression fails on a row: an overflow, a cast that does not fit",
        "See the dead letter: it holds the row and the reason.",
    ),
    "HR-TEST-011": (
        "a case of a transcript is wrong: ‹place› ('‹name›'): …",
        "Write it with the keys and steps that the message lists.",
    ),
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason for which an error is raised, and what to do about it."""

    code: str
    fact: str
    hint: str

    def says_something(self) -> bool:
        """Whether there is more in the text than values, such as the message of another error."""
        return re.search(r"\w", re.sub("‹[^›]*›", "", self.fact)) is not None


@dataclass(slots=True)
class Function:
    name: str
    module: str
    owner: str  # the class that it is a method of
    parameters: list[str]
    texts: list[tuple[int, str, ast.expr]] = field(default_factory=list)  # line, name, value

    def before(self, line: int) -> dict[str, ast.expr]:
        """The texts that its variables hold at a line."""
        return {name: value for at, name, value in self.texts if at < line}


class Module(ast.NodeVisitor):
    """The classes, texts and calls of a module."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.bases: dict[str, set[str]] = {}
        self.calls: list[tuple[ast.Call, Function]] = []
        self.returned: dict[str, list[ast.expr]] = {}  # the texts that a function returns
        self._around = [Function("", name, "", [])]
        self._owner = ""
        self.visit(ast.parse(source))

    def texts(self) -> dict[str, ast.expr]:
        return {name: value for _, name, value in self._around[0].texts}

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bases[node.name] = {_name(base) for base in node.bases}
        outer, self._owner = self._owner, node.name
        self.generic_visit(node)
        self._owner = outer

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        names = [a.arg for a in every if a.arg not in ("self", "cls")]
        self._around.append(Function(node.name, self.name, self._owner, names))
        outer, self._owner = self._owner, ""
        self.generic_visit(node)
        self._owner = outer
        self._around.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        else:
            pairs = [(target, node.value)]
        for name, value in pairs:
            if isinstance(name, ast.Name) and (_is_text(value) or "code" in name.id):
                self._around[-1].texts.append((node.lineno, name.id, value))
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and _is_text(node.value):
            self.returned.setdefault(self._around[-1].name, []).append(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.calls.append((node, self._around[-1]))
        self.generic_visit(node)


class Source:
    """All errors that the modules of a source tree build."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.modules = [Module(name, source) for name, source in texts.items()]
        self.mentioned = {code for source in texts.values() for code in CODE.findall(source)}
        self.dynamic: list[str] = []  # places where the code cannot be read
        self._errors = {"HeadraceError"}
        while more := self._derived() - self._errors:
            self._errors |= more

    def _derived(self) -> set[str]:
        bases = [item for module in self.modules for item in module.bases.items()]
        return {name for name, its in bases if its & self._errors}

    def causes(self) -> list[Cause]:
        """In the order of the table."""
        found = set()
        for module in self.modules:
            for call, around in module.calls:
                built = _name(call.func)
                if (around.owner if built == "cls" else built) in self._errors:
                    found |= {*self._at(module, around, call.lineno, _arguments(call))}
        found |= {Cause(c, *texts) for c, texts in ELSEWHERE.items() if c in self.mentioned}
        clear = {cause.code for cause in found if cause.says_something()}
        found = {c for c in found if c.code not in clear or c.says_something()}
        return sorted(found, key=lambda c: (c.code, len(c.fact), c.fact, c.hint))

    def _at(
        self, module: Module, around: Function, line: int, parts: list[ast.expr], depth: int = 0
    ) -> Iterator[Cause]:
        """What is built there: once for each caller, if the function passes its arguments on."""
        texts = module.texts() | around.before(line)
        parts = [_replaced(_either(module, part), texts) for part in parts]
        code, fact, hint = parts
        passed = any(isinstance(p, ast.Name) and p.id in around.parameters for p in parts)
        callers = list(self._callers(around)) if passed and depth < DEPTH else []
        for other, call, outer in callers:
            given = dict(zip(around.parameters, call.args, strict=False))
            given |= {k.arg: k.value for k in call.keywords if k.arg}
            inner = [_replaced(part, given) for part in parts]
            yield from self._at(other, outer, call.lineno, inner, depth + 1)
        if callers:
            return
        codes = [str(n.value) for n in _options(code) if isinstance(n, ast.Constant)]
        if not codes and (around.name, ast.unparse(code)) not in DYNAMIC:
            self.dynamic.append(f"{module.name}:{line}: {ast.unparse(code)}")
        for each in codes:
            yield Cause(each, shown(fact), shown(hint))

    def _callers(self, called: Function) -> Iterator[tuple[Module, ast.Call, Function]]:
        anywhere = not called.name.startswith("_") and not called.owner
        for module in self.modules:
            if anywhere or module.name == called.module:
                for call, around in module.calls:
                    if _name(call.func) == called.name and isinstance(
                        call.func, ast.Attribute
                    ) == bool(called.owner):
                        yield module, call, around


class _Replace(ast.NodeTransformer):
    def __init__(self, by: Mapping[str, ast.expr]) -> None:
        self._by = by

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._by.get(node.id, node)


def _replaced(node: ast.expr, by: Mapping[str, ast.expr]) -> ast.expr:
    """The expression with names replaced, as a copy."""
    result: ast.expr = _Replace(by).visit(copy.deepcopy(node))
    return result


def _either(module: Module, node: ast.expr) -> ast.expr:
    """For the call of a function of the module that returns texts: one of these."""
    texts = module.returned.get(_name(node.func)) if isinstance(node, ast.Call) else None
    first, *others = texts or [node]
    for other in others:
        first = ast.IfExp(ast.Constant(True), first, other)
    return first


def _arguments(call: ast.Call) -> list[ast.expr]:
    named = {k.arg: k.value for k in call.keywords}
    names = ("code", "message", "hint")
    given = [*call.args, *(named.get(name) for name in names[len(call.args) :])]
    return [part or ast.Constant("") for part in given[:3]]


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _options(node: ast.expr) -> list[ast.expr]:
    return [*_options(node.body), *_options(node.orelse)] if isinstance(node, ast.IfExp) else [node]


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and (_is_text(node.left) or _is_text(node.right))
    if isinstance(node, ast.IfExp):
        return all(map(_is_text, _options(node)))
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


# as text


def shown(node: ast.expr) -> str:
    """A message as a reader of the table sees it."""
    text = re.sub(r"\s+", " ", _shown(node)).strip()
    return re.sub(r"…(?:[\s,;]*…)+", "…", text)


def _shown(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.Constant():
            return ""
        case ast.JoinedStr(values=values):
            return "".join(map(_shown, values))
        case ast.FormattedValue(value=value, conversion=how):
            quote = "'" if how == ord("r") else ""
            return f"{quote}{_field(value)}{quote}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _shown(left) + _shown(right)
        case ast.IfExp():
            texts = [text for text in map(_shown, _options(node)) if text]
            return " / ".join(dict.fromkeys(texts))
        case ast.Call(func=ast.Attribute(value=text, attr="strip")) if _is_text(text):
            return _shown(text).strip()
        case ast.Call():
            return "…"
    return _field(node)


def _field(node: ast.expr) -> str:
    """A value inside a message."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return f"‹{name.strip('_').replace('_', ' ').lower()}›"
        case ast.Call(func=ast.Name(id="len")):
            return "‹number›"
        case ast.Call(func=ast.Name(), args=[(ast.Name() | ast.Attribute()) as only]):
            return _field(only)
        case ast.IfExp() if all(map(_is_text, _options(node))):
            return _shown(node) if len([t for t in map(_shown, _options(node)) if t]) > 1 else "…"
        case ast.Constant() | ast.JoinedStr():
            return _shown(node)
    return "…"


def page(causes: list[Cause]) -> str:
    """The whole page."""
    parts = [HEAD]
    for area, of_area in groupby(causes, key=lambda c: c.code.rpartition("-")[0]):
        parts.append(f"\n## {area}\n\n| code | cause | what to do |\n|---|---|---|\n")
        parts += [_row(code, list(same)) for code, same in groupby(of_area, key=lambda c: c.code)]
    return "".join(parts)


def _row(code: str, causes: list[Cause]) -> str:
    if code in SUMMARY:
        causes = [Cause(code, *SUMMARY[code])]
    by_fact = {c.fact: c for c in reversed(causes)}
    few = sorted(by_fact.values(), key=causes.index)[:SHOWN]
    hints = list(dict.fromkeys(c.hint for c in few))
    facts = [c.fact for c in few]
    more = len(by_fact) - len(few)
    if len(hints) > 1:
        hints = [c.hint for c in few]
    rest = f"<br>and {more} more like these" if more else ""
    return f"| `{code}` | {_numbered(facts)}{rest} | {_numbered(hints)} |\n"


def _numbered(texts: list[str]) -> str:
    texts = [re.sub(r"([|*\[\]\\])", r"\\\1", t).replace("<", "&lt;") for t in texts]
    if len(texts) == 1:
        return texts[0]
    return "<br>".join(f"{n}. {t}" for n, t in enumerate(texts, 1))


def source(folder: Path = SOURCE) -> Source:
    files = sorted(folder.rglob("*.py"))
    return Source({str(f.relative_to(folder)): f.read_text(encoding="utf-8") for f in files})


if __name__ == "__main__":
    PAGE.write_text(page(source().causes()), encoding="utf-8")
