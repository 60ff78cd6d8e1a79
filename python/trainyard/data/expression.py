"""Expressions over columns: `col("x") * 2`, and in text, as `filter(expr="x > 3 and kind == 'a'")` has them.

An expression is a tree; of a block it gives a column. Columns of pyarrow are computed with by pyarrow, so that a missing value
stays one and types are kept; where all are arrays of numpy, by numpy, where a missing number is NaN.
"""

from __future__ import annotations

import ast
import functools
import operator
import sys
from typing import Any, Callable, Sequence

import numpy as np

from .block import Block, as_arrow, as_numpy, decoded, missing, needed, of_values, pyarrow

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



def _is_whole(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "iu"


def _divided(left: Any, right: Any) -> Any:
    """Of whole numbers a whole one, towards zero, as in pyarrow."""
    if not (_is_whole(left) and _is_whole(right)):
        return np.true_divide(left, right)
    if np.any(np.asarray(right) == 0):
        raise ZeroDivisionError("divide by zero")
    return np.sign(left) * np.sign(right) * (np.abs(left) // np.abs(right))


def _floor_divided(left: Any, right: Any) -> Any:
    """What division gives, rounded down: of whole numbers nothing is left to be rounded, as in Ray."""
    divided = _divided(left, right)
    return divided if _is_whole(divided) else np.floor(divided)


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
    "//": _floor_divided,
    "%": lambda left, right: left - _floor_divided(left, right) * right,
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


class _Arrow:
    """The same by pyarrow, of which one value at least is a column of it. null is neither true nor false, nor equal to anything."""

    COMPARED = {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
    COMPUTED = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "**": "power"}
    JOINED = {"&": "and_kleene", "|": "or_kleene"}
    CALLED = {"is_not_null": "is_valid"}  # where the name is not that of the function

    def __init__(self) -> None:
        self.compute = needed("pyarrow.compute", "an expression over a column of pyarrow")
        self.types = sys.modules["pyarrow"].types

    def of_two(self, sign: str, left: Any, right: Any) -> Any:
        if sign in ("in", "not in"):
            found = self._is_in(left, right)
            return self.compute.invert(found) if sign == "not in" else found
        if sign in ("is", "is not"):
            return self._is(left, right, sign == "is")
        left, right = self._side(left), self._side(right)
        if sign in self.JOINED:
            return getattr(self.compute, self.JOINED[sign])(self.truth(left), self.truth(right))
        if sign in ("//", "%"):
            quotient = self._floor_divided(left, right)
            if sign == "//":
                return quotient
            return self.compute.subtract(left, self.compute.multiply(quotient, right))
        if sign == "/":
            return self._divided(left, right)
        if sign == "+" and any(self._is_text(side) for side in (left, right)):
            text = self._text_type(left, right)
            return self.compute.binary_join_element_wise(left.cast(text), right.cast(text), "")
        return getattr(self.compute, {**self.COMPARED, **self.COMPUTED}[sign])(left, right)

    def of_one(self, name: str, value: Any, *arguments: Any) -> Any:
        value = self._side(value)
        if name == "~":
            return self.compute.invert(self.truth(value))
        return getattr(self.compute, "negate" if name == "-" else self.CALLED.get(name, name))(value, *arguments)

    def truth(self, value: Any) -> Any:
        return value.cast("bool")

    def _side(self, value: Any) -> Any:
        """A column, or a scalar."""
        if isinstance(value, np.ndarray) and value.ndim:
            return as_arrow(value)
        return decoded(value) if is_arrow(value) else sys.modules["pyarrow"].scalar(value)

    def _is_text(self, side: Any) -> bool:
        return self.types.is_string(side.type) or self.types.is_large_string(side.type)

    def _text_type(self, left: Any, right: Any) -> str:
        return "large_string" if any(self.types.is_large_string(side.type) for side in (left, right)) else "string"

    def _divided(self, left: Any, right: Any) -> Any:
        try:
            return self.compute.divide(left, right)
        except sys.modules["pyarrow"].ArrowInvalid as error:
            raise ZeroDivisionError(str(error)) if "divide by zero" in str(error) else error from None

    def _floor_divided(self, left: Any, right: Any) -> Any:
        divided = self._divided(left, right)
        return divided if self.types.is_integer(divided.type) else self.compute.floor(divided)

    def _is_in(self, left: Any, right: Any) -> Any:
        pa = sys.modules["pyarrow"]
        left = self._side(left)
        given = right.to_pylist() if is_arrow(right) else list(right)
        try:
            return self.compute.is_in(left, value_set=pa.array(given))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):  # values of several types
            return pa.chunked_array([pa.array([one in given for one in left.to_pylist()], "bool")])

    def _is(self, left: Any, right: Any, is_same: bool) -> Any:
        if right is None:
            return self.of_one("is_null" if is_same else "is_not_null", left)
        same = self.compute.fill_null(self.of_two("==", left, right), False)
        return same if is_same else self.compute.invert(same)


def is_arrow(value: Any) -> bool:
    """Whether it is a column of pyarrow."""
    return hasattr(value, "type") and hasattr(value, "to_pylist")


def _filled(value: Any, rows: int) -> Any:
    """A column: what is one value is there for each row."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value
    if is_arrow(value):
        return value if hasattr(value, "chunks") else sys.modules["pyarrow"].chunked_array([value])
    return of_values([value] * rows)


_REFUSED = frozenset("arr dt list map str struct to_pyarrow".split())  # what Ray's have beside these


class Expr:
    """A part of an expression. Built of `col` and `lit` by operators; `&`, `|` and `~` stand for and, or and not."""

    def value(self, block: Block) -> Any:
        """An array, or one value for all rows."""
        raise NotImplementedError

    def column(self, block: Block) -> Any:
        """A value for each row."""
        return _filled(self.value(block), block.rows)

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

    def __eq__(self, other: Any) -> Expr:  # type: ignore[override]
        return Binary("==", self, _expr(other))

    def __ne__(self, other: Any) -> Expr:  # type: ignore[override]
        return Binary("!=", self, _expr(other))

    def __lt__(self, other: Any) -> Expr:
        return Binary("<", self, _expr(other))

    def __le__(self, other: Any) -> Expr:
        return Binary("<=", self, _expr(other))

    def __gt__(self, other: Any) -> Expr:
        return Binary(">", self, _expr(other))

    def __ge__(self, other: Any) -> Expr:
        return Binary(">=", self, _expr(other))

    def __add__(self, other: Any) -> Expr:
        return Binary("+", self, _expr(other))

    def __radd__(self, other: Any) -> Expr:
        return Binary("+", _expr(other), self)

    def __sub__(self, other: Any) -> Expr:
        return Binary("-", self, _expr(other))

    def __rsub__(self, other: Any) -> Expr:
        return Binary("-", _expr(other), self)

    def __mul__(self, other: Any) -> Expr:
        return Binary("*", self, _expr(other))

    def __rmul__(self, other: Any) -> Expr:
        return Binary("*", _expr(other), self)

    def __truediv__(self, other: Any) -> Expr:
        return Binary("/", self, _expr(other))

    def __rtruediv__(self, other: Any) -> Expr:
        return Binary("/", _expr(other), self)

    def __floordiv__(self, other: Any) -> Expr:
        return Binary("//", self, _expr(other))

    def __rfloordiv__(self, other: Any) -> Expr:
        return Binary("//", _expr(other), self)

    def __mod__(self, other: Any) -> Expr:
        return Binary("%", self, _expr(other))

    def __rmod__(self, other: Any) -> Expr:
        return Binary("%", _expr(other), self)

    def __pow__(self, other: Any) -> Expr:
        return Binary("**", self, _expr(other))

    def __rpow__(self, other: Any) -> Expr:
        return Binary("**", _expr(other), self)

    def __and__(self, other: Any) -> Expr:
        return Binary("&", self, _expr(other))

    def __rand__(self, other: Any) -> Expr:
        return Binary("&", _expr(other), self)

    def __or__(self, other: Any) -> Expr:
        return Binary("|", self, _expr(other))

    def __ror__(self, other: Any) -> Expr:
        return Binary("|", _expr(other), self)

    def __invert__(self) -> Expr:
        return Unary("~", self)

    def __neg__(self) -> Expr:
        return Unary("-", self)

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has a value for each row: write `&` for and, `|` for or, `~` for not")

    __hash__ = object.__hash__

    def round(self, ndigits: int = 0) -> Expr:
        return Called("round", self, ndigits)

    def __getattr__(self, name: str) -> Any:
        if name in _FUNCTIONS:
            return functools.partial(Called, name, self)
        if name in _REFUSED:
            raise NotImplementedError(f"expressions have no `.{name}` here: give map_batches or add_column a function")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class Column(Expr):
    def __init__(self, name: str):
        self.name = name

    def value(self, block: Block) -> Any:
        column = self.column(block)
        if not isinstance(column, np.ndarray) or column.dtype != object or pyarrow() is None:
            return column
        return of_values(list(column))

    def column(self, block: Block) -> Any:
        """The column itself."""
        if self.name not in block.columns:
            raise KeyError(f"there is no column {self.name!r}, only {list(block.columns)}")
        return block.columns[self.name]

    def __repr__(self) -> str:
        return f"col({self.name!r})"


class Literal(Expr):
    def __init__(self, value: Any):
        self.constant = value

    def value(self, block: Block) -> Any:
        return self.constant

    def column(self, block: Block) -> Any:
        return of_values([self.constant] * block.rows)

    def __repr__(self) -> str:
        return repr(self.constant)


class Binary(Expr):
    def __init__(self, sign: str, left: Expr, right: Expr):
        self.sign, self.left, self.right = sign, left, right

    def value(self, block: Block) -> Any:
        left, right = self.left.value(block), self.right.value(block)
        if is_arrow(left) or is_arrow(right):
            return _Arrow().of_two(self.sign, left, right)
        with np.errstate(divide="ignore", invalid="ignore"):
            return _OPERATIONS[self.sign](left, right)

    def __repr__(self) -> str:
        return f"({self.left!r} {self.sign} {self.right!r})"


class Unary(Expr):
    def __init__(self, sign: str, operand: Expr):
        self.sign, self.operand = sign, operand

    def value(self, block: Block) -> Any:
        value = self.operand.value(block)
        return _Arrow().of_one(self.sign, value) if is_arrow(value) else _OF_ONE[self.sign](value)

    def __repr__(self) -> str:
        return f"{self.sign}{self.operand!r}"


class Called(Expr):
    """A function of one column, as `round(2)`."""

    def __init__(self, function: str, operand: Expr, *arguments: Any):
        self.function, self.operand, self.arguments = function, operand, arguments

    def value(self, block: Block) -> Any:
        value = _filled(self.operand.value(block), block.rows)
        if is_arrow(value):
            return _Arrow().of_one(self.function, value, *self.arguments)
        return _FUNCTIONS[self.function](value, *self.arguments)

    def __repr__(self) -> str:
        return f"{self.operand!r}.{self.function}({', '.join(map(repr, self.arguments))})"


class Cast(Expr):
    def __init__(self, operand: Expr, target: Any, safe: bool):
        self.operand, self.target, self.safe = operand, target, safe

    def value(self, block: Block) -> Any:
        needed("pyarrow", "`cast`")
        return _filled(as_arrow(self.operand.column(block)).cast(self.target, safe=self.safe), block.rows)

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
            value = self.tree.column(block)
            if is_arrow(value):
                value = as_numpy(_Arrow().truth(value).fill_null(False))
            return np.asarray(value, dtype=bool)
        except KeyError as error:
            raise KeyError(f"`expr`={self.text!r}: {error.args[0]}") from None
