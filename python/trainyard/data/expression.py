"""Expressions over columns: `col("x") * 2`, and in text, as `filter(expr="x > 3 and kind == 'a'")` has them.

An expression is a tree; of a block it gives a column. Columns are arrays of numpy there, a missing number is NaN.
"""

from __future__ import annotations

import ast
import functools
import operator
from typing import Any, Callable, Sequence

import numpy as np

from .block import Block, as_arrow, as_numpy, missing, needed

_COMPARE: dict[type, str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
_BINARY: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
}
_UNARY: dict[type, str] = {ast.Not: "~", ast.Invert: "~", ast.USub: "-"}



def _divided(left: Any, right: Any) -> Any:
    """Of whole numbers a whole one, towards zero, as in pyarrow."""
    if any(np.asarray(side).dtype.kind not in "iu" for side in (left, right)):
        return operator.truediv(left, right)
    if np.any(np.asarray(right) == 0):
        raise ZeroDivisionError("divide by zero")
    return np.sign(left) * np.sign(right) * (np.abs(left) // np.abs(right))


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda left, right: np.isin(left, list(right)),
    "not in": lambda left, right: ~np.isin(left, list(right)),
    "is": lambda left, right: np.array([one is right for one in left]),
    "is not": lambda left, right: np.array([one is not right for one in left]),
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "&": np.logical_and,
    "|": np.logical_or,
}
_OF_ONE: dict[str, Callable[..., Any]] = {"~": np.logical_not, "-": operator.neg}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round": np.round,
    "trunc": np.trunc,
    "ln": np.log,
    "log10": np.log10,
    "log2": np.log2,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "negate": np.negative,
    "sign": np.sign,
    "abs": np.abs,
    "is_null": missing,
    "is_not_null": lambda values: ~missing(values),
}
_REFUSED = frozenset("arr dt list map str struct to_pyarrow".split())  # what Ray's have beside these


class Expr:
    """A part of an expression. Built of `col` and `lit` by operators; `&`, `|` and `~` stand for and, or and not."""

    def value(self, block: Block) -> Any:
        """An array, or one value for all rows."""
        raise NotImplementedError

    def column(self, block: Block) -> Any:
        """A value for each row."""
        value = self.value(block)
        if isinstance(value, np.ndarray) and value.ndim:
            return value
        return value if hasattr(value, "type") else np.broadcast_to(np.asarray(value), (block.rows,))

    def alias(self, name: str) -> Named:
        return Named(self, name)

    def is_in(self, values: Sequence[Any] | Expr) -> Expr:
        return Binary("in", self, _expr(values))

    def not_in(self, values: Sequence[Any] | Expr) -> Expr:
        return Binary("not in", self, _expr(values))

    def power(self, exponent: Any) -> Expr:
        return Binary("**", self, _expr(exponent))

    def cast(self, target_type: Any, *, safe: bool = True) -> Expr:
        """To a type of pyarrow."""
        return Cast(self, target_type, safe)

    def __invert__(self) -> Expr:
        return Unary("~", self)

    def __neg__(self) -> Expr:
        return Unary("-", self)

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has a value for each row: write `&` for and, `|` for or, `~` for not")

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name in _FUNCTIONS:
            return functools.partial(Called, name, self)
        if name in _REFUSED:
            raise NotImplementedError(f"expressions have no `.{name}` here: give map_batches or add_column a function")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _operator(sign: str, is_reflected: bool) -> Callable[[Expr, Any], Expr]:
    def apply(self: Expr, other: Any) -> Expr:
        return Binary(sign, _expr(other), self) if is_reflected else Binary(sign, self, _expr(other))

    return apply


for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(Expr, f"__{_name}__", _operator(_sign, False))
for _name, _sign in {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|"
}.items():  # fmt: skip
    setattr(Expr, f"__{_name}__", _operator(_sign, False))
    setattr(Expr, f"__r{_name}__", _operator(_sign, True))


class Column(Expr):
    def __init__(self, name: str):
        self.name = name

    def value(self, block: Block) -> Any:
        if self.name not in block.columns:
            raise KeyError(f"there is no column {self.name!r}, only {list(block.columns)}")
        return as_numpy(block.columns[self.name])

    def __repr__(self) -> str:
        return f"col({self.name!r})"


class Literal(Expr):
    def __init__(self, value: Any):
        self.constant = value

    def value(self, block: Block) -> Any:
        return self.constant

    def __repr__(self) -> str:
        return repr(self.constant)


class Binary(Expr):
    def __init__(self, sign: str, left: Expr, right: Expr):
        self.sign, self.left, self.right = sign, left, right

    def value(self, block: Block) -> Any:
        return _OPERATIONS[self.sign](self.left.value(block), self.right.value(block))

    def __repr__(self) -> str:
        return f"({self.left!r} {self.sign} {self.right!r})"


class Unary(Expr):
    def __init__(self, sign: str, operand: Expr):
        self.sign, self.operand = sign, operand

    def value(self, block: Block) -> Any:
        return _OF_ONE[self.sign](self.operand.value(block))

    def __repr__(self) -> str:
        return f"{self.sign}{self.operand!r}"


class Called(Expr):
    """A function of one column."""

    def __init__(self, function: str, operand: Expr):
        self.function, self.operand = function, operand

    def value(self, block: Block) -> Any:
        return _FUNCTIONS[self.function](self.operand.column(block))

    def __repr__(self) -> str:
        return f"{self.operand!r}.{self.function}()"


class Cast(Expr):
    def __init__(self, operand: Expr, target: Any, safe: bool):
        self.operand, self.target, self.safe = operand, target, safe

    def value(self, block: Block) -> Any:
        return as_numpy(self.column(block))

    def column(self, block: Block) -> Any:
        pa = needed("pyarrow", "`cast`")
        column = as_arrow(self.operand.column(block)).cast(self.target, safe=self.safe)
        return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])

    def __repr__(self) -> str:
        return f"{self.operand!r}.cast({self.target})"


class Named(Expr):
    """What `alias` gives."""

    def __init__(self, expression: Expr, name: str):
        self.expression, self.name = expression, name

    def value(self, block: Block) -> Any:
        return self.expression.value(block)

    def column(self, block: Block) -> Any:
        return self.expression.column(block)

    def __repr__(self) -> str:
        return f"{self.expression!r}.alias({self.name!r})"


def col(name: str) -> Column:
    """The column of this name."""
    return Column(name)


def lit(value: Any) -> Literal:
    """The same value in each row."""
    return Literal(value)


def _expr(value: Any) -> Expr:
    return value if isinstance(value, Expr) else Literal(value)


class Expression:
    """Of a block it gives which rows the expression, a text or an Expr, is true for."""

    def __init__(self, expression: str | Expr):
        if not isinstance(expression, (str, Expr)):
            raise ValueError(f"`expr` must be text, or made of col(), not {type(expression).__name__}")
        self.text = expression if isinstance(expression, str) else repr(expression)
        self.tree = expression if isinstance(expression, Expr) else self._parsed(expression)

    def _parsed(self, text: str) -> Expr:
        try:
            return self._made(ast.parse(text, mode="eval").body)
        except SyntaxError:
            raise ValueError(f"`expr`={text!r} is no expression over columns, as \"x > 3 and y != 'a'\"") from None

    def _made(self, node: ast.AST) -> Expr:
        if isinstance(node, ast.Name):
            return Column(node.id)
        if isinstance(node, ast.Constant):
            return Literal(node.value)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return Literal(self._listed(node))
        if isinstance(node, ast.BoolOp):
            join = "&" if isinstance(node.op, ast.And) else "|"
            return functools.reduce(functools.partial(Binary, join), map(self._made, node.values))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            return Unary(_UNARY[type(node.op)], self._made(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return Binary(_BINARY[type(node.op)], self._made(node.left), self._made(node.right))
        if isinstance(node, ast.Compare):
            sides = [self._made(one) for one in (node.left, *node.comparators)]
            pairs = [Binary(_COMPARE[type(kind)], *two) for kind, two in zip(node.ops, zip(sides, sides[1:]))]
            return functools.reduce(functools.partial(Binary, "&"), pairs)
        raise self._refused(node)

    def _listed(self, node: ast.AST) -> list[Any]:
        try:
            return list(ast.literal_eval(node))
        except (ValueError, TypeError):
            raise self._refused(node) from None

    def _refused(self, node: ast.AST) -> ValueError:
        return ValueError(
            f"`expr`={self.text!r}: {ast.unparse(node)!r} is not provided: columns, constants, comparisons, arithmetic, "
            "and, or, not, in; give a function for more"
        )

    def __call__(self, block: Block) -> np.ndarray:
        try:
            return np.asarray(self.tree.column(block), dtype=bool)
        except KeyError as error:
            raise KeyError(f"`expr`={self.text!r}: {error.args[0]}") from None
