"""A look at a program: some rows of one of its streams, without a trace."""

from headrace.look.rows import look

__all__ = ["look"]
