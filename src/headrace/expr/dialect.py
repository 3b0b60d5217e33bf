"""How Spark reads SQL text: sqlglot's parser with Spark's precedence and Spark's literals.

Invariant: a text is read here as Spark's own grammar reads it, or not at all. sqlglot binds
comparisons, predicates and `||` in an order of its own; here the levels are those of Spark's
`valueExpression` and `booleanExpression`. A function call is only a name and its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

Node = exp.Expr

_COMPARISONS: dict[TokenType, type[Node]] = {
    TokenType.EQ: exp.EQ, TokenType.NEQ: exp.NEQ, TokenType.NULLSAFE_EQ: exp.NullSafeEQ,
    TokenType.LT: exp.LT, TokenType.LTE: exp.LTE, TokenType.GT: exp.GT, TokenType.GTE: exp.GTE,
}  # fmt: skip
# From the weakest to the strongest; operators of one level are read from the left.
_LEVELS: tuple[dict[TokenType, type[Node]], ...] = (
    _COMPARISONS,
    {TokenType.PIPE: exp.BitwiseOr},
    {TokenType.CARET: exp.BitwiseXor},
    {TokenType.AMP: exp.BitwiseAnd},
    {},  # the shifts, which are pairs of tokens
    {TokenType.PLUS: exp.Add, TokenType.DASH: exp.Sub, TokenType.DPIPE: exp.DPipe},
    {TokenType.STAR: exp.Mul, TokenType.SLASH: exp.Div, TokenType.MOD: exp.Mod,
     TokenType.DIV: exp.IntDiv},
)  # fmt: skip
_SHIFTS = 4


class ShiftUnsigned(exp.Expression, exp.Binary):
    """`>>>`, which sqlglot does not know."""


_SHIFT_SIGNS: dict[str, type[Node]] = {
    "<<": exp.BitwiseLeftShift, ">>>": ShiftUnsigned, ">>": exp.BitwiseRightShift
}  # fmt: skip
_WITH_SUFFIX = (exp.DataType.Type.TINYINT, exp.DataType.Type.SMALLINT, exp.DataType.Type.BIGINT)
_PREDICATES = (TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE, TokenType.IN)
_AFTER_PREDICATE = {*_COMPARISONS, *_PREDICATES, TokenType.BETWEEN, TokenType.IS, TokenType.NOT}

_ESCAPE = re.compile(
    r"\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\([01][0-7]{2})|\\(.)|''|\"\"", re.DOTALL
)
_LETTERS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a",
            "%": "\\%", "_": "\\_"}  # fmt: skip


def unescaped(quoted: str) -> str:
    """The value of a text literal, which comes as in the source, with its quotes."""
    mark = quoted[0] * 2

    def one(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        if code:
            return chr(int(code, 16))
        if match[3]:
            return chr(int(match[3], 8))
        if match[4]:
            return _LETTERS.get(match[4], match[4])
        return match[0][0] if match[0] == mark else match[0]

    return _ESCAPE.sub(one, quoted[1:-1])


def _has_suffix(cast: exp.Cast) -> bool:
    """Whether it is an integer with a suffix, and not a cast that was written as such."""
    plain = isinstance(cast.this, exp.Literal) and not cast.to.meta.get("written")
    return plain and cast.to.this in _WITH_SUFFIX


class ExpressionParser(SparkParser):
    """The parser: levels and predicates of Spark, no functions with a grammar of their own."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Node]]] = {}
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, type[exp.Func]]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {
        k: v for k, v in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if k == "CASE"
    }
    FUNCTION_PARSERS: ClassVar = {
        k: v
        for k, v in SparkParser.FUNCTION_PARSERS.items()
        if k in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION")
    }
    ASSIGNMENT: ClassVar[dict[TokenType, type[Node]]] = {}
    UNARY_PARSERS: ClassVar = {
        TokenType.PLUS: lambda self: self._plus(self._parse_unary()),
        TokenType.DASH: lambda self: self._minus(self._parse_unary()),
        TokenType.TILDE: SparkParser.UNARY_PARSERS[TokenType.TILDE],
    }
    PRIMARY_PARSERS: ClassVar = {
        **SparkParser.PRIMARY_PARSERS,
        TokenType.STRING: lambda self, token: self._text(token),
    }

    def _text(self, token: Token) -> Node:
        quoted = self.sql[token.start : token.end + 1]
        return self.expression(exp.Literal.string(unescaped(quoted)), token)

    def _plus(self, this: Node | None) -> Node:
        if isinstance(this, exp.Literal) and not this.is_string:
            return this
        return self.expression(exp.Anonymous(this="positive", expressions=[this]))

    def _minus(self, this: Node | None) -> Node:
        """A minus belongs to an integer with a suffix: -128Y is one, though 128Y is none."""
        if isinstance(this, exp.Cast) and _has_suffix(this):
            this.set("this", exp.Neg(this=this.this))
            return this
        return self.expression(exp.Neg(this=this))

    def _parse_alias(self, this: Node | None, explicit: bool = False) -> Node | None:
        """A name comes after AS: a word after an expression is more often a mistake."""
        word = self._curr
        if word and word.token_type in self.ALIAS_TOKENS:
            self.raise_error(f"unexpected word {word.text!r}; a name is written with AS")
        return super()._parse_alias(this, explicit=True)

    def _parse_types(self, *args: Any, **kwargs: Any) -> Node | None:
        """A type, which remembers how it was written: sqlglot turns many into others."""
        first = self._curr
        parsed = super()._parse_types(*args, **kwargs)
        if isinstance(parsed, exp.DataType) and first and self._prev:
            written = self.sql[first.start : self._prev.end + 1]
            parsed.meta["written"] = written if written[:1].isalpha() else ""  # 1.5D is a literal
        return parsed

    # booleanExpression: NOT, then a value with at most one predicate

    def _parse_equality(self, parse_is: bool = True) -> Node | None:
        if self._match(TokenType.NOT):
            return self.expression(exp.Not(this=self._parse_equality()))
        return self._parse_range()

    def _parse_comparison(self, this: Node | None = None) -> Node | None:
        return this or self._parse_bitwise()

    def _parse_range(self, this: Node | None = None, parse_is: bool = False) -> Node | None:
        this = this or self._parse_bitwise()
        predicate = self._predicate(this)
        if predicate is not this and self._curr and self._curr.token_type in _AFTER_PREDICATE:
            self.raise_error(f"put parentheses around the condition before {self._curr.text}")
        return predicate

    def _predicate(self, this: Node | None) -> Node | None:
        if self._match(TokenType.IS):
            return self._is(this)
        negated = self._curr.text != "!" and self._match(TokenType.NOT)
        if self._match(TokenType.BETWEEN):
            predicate: Node | None = self._between(this)
        elif self._match_set(_PREDICATES):
            predicate = self.RANGE_PARSERS[self._prev.token_type](self, this)
        else:
            if negated:
                self._retreat(self._index - 1)
            return this
        if negated and isinstance(predicate, exp.Like | exp.ILike):
            predicate.set("negate", True)  # NOT LIKE ANY is not the contrary of LIKE ANY
            return predicate
        return self.expression(exp.Not(this=predicate)) if negated else predicate

    def _between(self, this: Node | None) -> Node:
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            self.raise_error("BETWEEN takes two values with AND between them")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise()))

    def _is(self, this: Node | None) -> Node:
        negated = self._curr.text != "!" and bool(self._match(TokenType.NOT))
        if self._match_text_seq("DISTINCT", "FROM"):
            other = self._parse_bitwise()
            test: Node = self.expression(exp.NullSafeEQ(this=this, expression=other))
            negated = not negated
        elif self._match_set((TokenType.NULL, TokenType.TRUE, TokenType.FALSE)):
            kind = self._prev.token_type
            what = (
                exp.Null() if kind == TokenType.NULL else exp.Boolean(this=kind == TokenType.TRUE)
            )
            test = self.expression(exp.Is(this=this, expression=what))
        else:
            self.raise_error("IS takes null, true, false or distinct from")
        return self.expression(exp.Not(this=test)) if negated else test

    # valueExpression: operators of seven levels over unary ones

    def _parse_bitwise(self) -> Node | None:
        return self._level(0)

    def _parse_term(self, parse_mod: bool = True) -> Node | None:
        return self._level(_SHIFTS + 1)

    def _parse_factor(self, parse_mod: bool = True) -> Node | None:
        return self._level(_SHIFTS + 2)

    def _level(self, level: int) -> Node | None:
        if level == len(_LEVELS):
            return self._parse_at_time_zone(self._parse_unary())
        this = self._level(level + 1)
        while kind := self._operator(level):
            this = self.expression(kind(this=this, expression=self._level(level + 1)))
        return this

    def _operator(self, level: int) -> type[Node] | None:
        if level == _SHIFTS:
            return self._shift()
        return _LEVELS[level][self._prev.token_type] if self._match_set(_LEVELS[level]) else None

    def _shift(self) -> type[Node] | None:
        signs = self.sql[self._curr.start : self._curr.start + 3] if self._curr else ""
        for sign, kind in _SHIFT_SIGNS.items():
            if signs.startswith(sign) and self._curr.token_type in (TokenType.LT, TokenType.GT):
                self._advance(len(sign))
                return kind
        return None


class Dialect(Spark):
    """Spark SQL as `ExpressionParser` reads it."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES: ClassVar = ["'", '"', "\\"]

    class Parser(ExpressionParser):
        pass
