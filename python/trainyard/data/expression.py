"""Expressions over columns: `col("x") * 2`, and in text, as `filter(expr="x > 3 and kind == 'a'")` has them.

An expression is a tree; of a block it gives a column. Columns of pyarrow are computed with by pyarrow, so that a missing value
stays one and types are kept; where all are arrays of numpy, by numpy, where a missing number is NaN.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import sys
from typing import Any, Callable, Mapping, Sequence
from uuid import uuid4

import numpy as np

from . import namespaces
from .block import Block, as_arrow, as_numpy, decoded, needed, of_values, pyarrow
from .datatype import DataType
from .operations import FUNCTIONS, OF_ONE, OPERATIONS, Arrow, Operation, filled, is_arrow

_COMPARE: dict[type, Operation] = {
    ast.Eq: Operation.EQ,
    ast.NotEq: Operation.NE,
    ast.Lt: Operation.LT,
    ast.LtE: Operation.LE,
    ast.Gt: Operation.GT,
    ast.GtE: Operation.GE,
    ast.In: Operation.IN,
    ast.NotIn: Operation.NOT_IN,
    ast.Is: Operation.IS,
    ast.IsNot: Operation.IS_NOT,
}
_BINARY: dict[type, Operation] = {
    ast.Add: Operation.ADD,
    ast.Sub: Operation.SUB,
    ast.Mult: Operation.MUL,
    ast.Div: Operation.DIV,
    ast.FloorDiv: Operation.FLOORDIV,
    ast.Mod: Operation.MOD,
    ast.Pow: Operation.POWER,
    ast.BitAnd: Operation.AND,
    ast.BitOr: Operation.OR,
}
_UNARY: dict[type, Operation] = {ast.Not: Operation.NOT, ast.Invert: Operation.NOT, ast.USub: Operation.NEGATE}
_SIGNS = {
    Operation.ADD: "+", Operation.SUB: "-", Operation.MUL: "*", Operation.DIV: "/", Operation.FLOORDIV: "//",
    Operation.MOD: "%", Operation.POWER: "**", Operation.AND: "&", Operation.OR: "|", Operation.EQ: "==",
    Operation.NE: "!=", Operation.LT: "<", Operation.LE: "<=", Operation.GT: ">", Operation.GE: ">=",
    Operation.IN: "in", Operation.NOT_IN: "not in", Operation.IS: "is", Operation.IS_NOT: "is not",
}  # fmt: skip


class Expr:
    """A part of an expression. Built of `col` and `lit` by operators; `&`, `|` and `~` stand for and, or and not."""

    def of(self, block: Block) -> Any:
        """An array, or one value for all rows."""
        raise NotImplementedError

    def column(self, block: Block) -> Any:
        """A value for each row."""
        return filled(self.of(block), block.rows)

    @property
    def name(self) -> str | None:
        """Of the column, where the expression says one."""
        return None

    @property
    def data_type(self) -> DataType:
        """What is known of its type before there are rows."""
        return DataType(object)

    def structurally_equals(self, other: Any) -> bool:
        """Whether it is built of the same parts: `==` is an expression."""
        return type(self) is type(other) and _same(self._parts(), other._parts())

    def _parts(self) -> Any:
        raise NotImplementedError

    def alias(self, name: str) -> AliasExpr:
        return AliasExpr(self, name)

    def is_in(self, values: Sequence[Any] | Expr) -> Expr:
        return BinaryExpr(Operation.IN, self, _expr(values))

    def not_in(self, values: Sequence[Any] | Expr) -> Expr:
        return BinaryExpr(Operation.NOT_IN, self, _expr(values))

    def power(self, exponent: Any) -> Expr:
        if isinstance(exponent, Expr):
            return self**exponent
        return Called("power", self, exponent)

    def cast(self, target_type: Any, *, safe: bool = True) -> Expr:
        """To a type of pyarrow."""
        return Cast(self, target_type, safe)

    def __eq__(self, other: Any) -> Expr:  # type: ignore[override]
        return BinaryExpr(Operation.EQ, self, _expr(other))

    def __ne__(self, other: Any) -> Expr:  # type: ignore[override]
        return BinaryExpr(Operation.NE, self, _expr(other))

    def __lt__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.LT, self, _expr(other))

    def __le__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.LE, self, _expr(other))

    def __gt__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.GT, self, _expr(other))

    def __ge__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.GE, self, _expr(other))

    def __add__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.ADD, self, _expr(other))

    def __radd__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.ADD, _expr(other), self)

    def __sub__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.SUB, self, _expr(other))

    def __rsub__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.SUB, _expr(other), self)

    def __mul__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.MUL, self, _expr(other))

    def __rmul__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.MUL, _expr(other), self)

    def __truediv__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.DIV, self, _expr(other))

    def __rtruediv__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.DIV, _expr(other), self)

    def __floordiv__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.FLOORDIV, self, _expr(other))

    def __rfloordiv__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.FLOORDIV, _expr(other), self)

    def __mod__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.MOD, self, _expr(other))

    def __rmod__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.MOD, _expr(other), self)

    def __pow__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.POWER, self, _expr(other))

    def __rpow__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.POWER, _expr(other), self)

    def __and__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.AND, self, _expr(other))

    def __rand__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.AND, _expr(other), self)

    def __or__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.OR, self, _expr(other))

    def __ror__(self, other: Any) -> Expr:
        return BinaryExpr(Operation.OR, _expr(other), self)

    def __invert__(self) -> Expr:
        return UnaryExpr(Operation.NOT, self)

    def __neg__(self) -> Expr:
        return UnaryExpr(Operation.NEGATE, self)

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has a value for each row: write `&` for and, `|` for or, `~` for not")

    __hash__ = object.__hash__

    def is_null(self) -> Expr:
        return UnaryExpr(Operation.IS_NULL, self)

    def is_not_null(self) -> Expr:
        return UnaryExpr(Operation.IS_NOT_NULL, self)

    def round(self, ndigits: int = 0) -> Expr:
        return Called("round", self, ndigits)

    def __getattr__(self, name: str) -> Any:
        if name in FUNCTIONS:
            return functools.partial(Called, name, self)
        namespace = namespaces.of(name, self)
        if namespace is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return namespace


def _same(one: Any, other: Any) -> bool:
    """Of parts of expressions: other expressions, and values, of which 1 is not 1.0."""
    if isinstance(one, Expr):
        return one.structurally_equals(other)
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


class ColumnExpr(Expr):
    def __init__(self, name: str):
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def of(self, block: Block) -> Any:
        column = self.column(block)
        if not isinstance(column, np.ndarray) or column.dtype != object or pyarrow() is None:
            return column
        return of_values(list(column))

    def column(self, block: Block) -> Any:
        """The column itself."""
        if self.name not in block.columns:
            raise KeyError(f"there is no column {self.name!r}, only {list(block.columns)}")
        return block.columns[self.name]

    def _parts(self) -> Any:
        return self.name

    def __repr__(self) -> str:
        return f"col({self.name!r})"


class LiteralExpr(Expr):
    def __init__(self, value: Any):
        self.value = value

    @property
    def data_type(self) -> DataType:
        return DataType.infer_dtype(self.value)

    def of(self, block: Block) -> Any:
        return self.value

    def column(self, block: Block) -> Any:
        return of_values([self.value] * block.rows)

    def _parts(self) -> Any:
        return self.value

    def __repr__(self) -> str:
        return repr(self.value)


class BinaryExpr(Expr):
    def __init__(self, op: Operation, left: Expr, right: Expr):
        self.op, self.left, self.right = op, left, right

    def of(self, block: Block) -> Any:
        left, right = self.left.of(block), self.right.of(block)
        if is_arrow(left) or is_arrow(right):
            return Arrow().of_two(self.op, left, right)
        with np.errstate(divide="ignore", invalid="ignore"):
            return OPERATIONS[self.op](left, right)

    def _parts(self) -> Any:
        return self.op, self.left, self.right

    def __repr__(self) -> str:
        return f"({self.left!r} {_SIGNS[self.op]} {self.right!r})"


class UnaryExpr(Expr):
    def __init__(self, op: Operation, operand: Expr):
        self.op, self.operand = op, operand

    @property
    def data_type(self) -> DataType:
        return DataType(object) if self.op is Operation.NEGATE else DataType.bool()

    def of(self, block: Block) -> Any:
        value = self.operand.of(block)
        if self.op in (Operation.IS_NULL, Operation.IS_NOT_NULL):
            value = filled(value, block.rows)
        return Arrow().of_one(self.op, value) if is_arrow(value) else OF_ONE[self.op](value)

    def _parts(self) -> Any:
        return self.op, self.operand

    def __repr__(self) -> str:
        if self.op in (Operation.NOT, Operation.NEGATE):
            return f"{'~' if self.op is Operation.NOT else '-'}{self.operand!r}"
        return f"{self.operand!r}.{self.op.value}()"


class UDFExpr(Expr):
    """What a function gives for columns. `args` and `kwargs` are those of the function: expressions, and other values."""

    def __init__(self, data_type: DataType, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]):
        self._data_type, self.fn, self.args, self.kwargs = data_type, fn, list(args), dict(kwargs)

    @property
    def data_type(self) -> DataType:
        return self._data_type

    def of(self, block: Block) -> Any:
        needed("pyarrow", "a function of columns")
        args = [self._given(one, block) for one in self.args]
        made = self.fn(*args, **{name: self._given(one, block) for name, one in self.kwargs.items()})
        return self._checked(asyncio.run(made) if inspect.iscoroutine(made) else made)

    def _given(self, argument: Any, block: Block) -> Any:
        if not isinstance(argument, Expr):
            return argument
        column = as_arrow(argument.column(block))
        column = decoded(column.combine_chunks() if hasattr(column, "chunks") else column)
        return column.storage if hasattr(column, "storage") else column

    def _checked(self, made: Any) -> Any:
        kind = f"{type(made).__module__}.{type(made).__qualname__}"
        if is_arrow(made):
            return made if hasattr(made, "chunks") else sys.modules["pyarrow"].chunked_array([made])
        if isinstance(made, np.ndarray) or kind.startswith("pandas."):
            return of_values(made.tolist()) if made.dtype == object else np.asarray(made)
        raise TypeError(
            f"the function {self._called()!r} returned invalid type {type(made).__name__}. Expected type: pandas.Series, "
            "numpy.ndarray, pyarrow.Array or pyarrow.ChunkedArray"
        )

    def _called(self) -> str:
        return str(getattr(self.fn, "__name__", type(self.fn).__name__))

    def _parts(self) -> Any:
        return self.fn, self.args, sorted(self.kwargs.items()), self._data_type

    def __repr__(self) -> str:
        words = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self._called()}({', '.join(words)})"


class Called(UDFExpr):
    """A function of numpy or pyarrow of one column, as `round(2)`."""

    def __init__(self, function: str, operand: Expr, *arguments: Any):
        super().__init__(operand.data_type, FUNCTIONS[function], [operand, *arguments], {})
        self.function = function

    def of(self, block: Block) -> Any:
        operand, *arguments = self.args
        value = filled(operand.of(block), block.rows)
        return Arrow().called(self.function, value, *arguments) if is_arrow(value) else self.fn(value, *arguments)

    def __repr__(self) -> str:
        operand, *arguments = self.args
        return f"{operand!r}.{self.function}({', '.join(map(repr, arguments))})"


class Cast(Expr):
    def __init__(self, operand: Expr, target: Any, safe: bool):
        self.operand, self.safe = operand, safe
        self.target = target.to_arrow_dtype() if isinstance(target, DataType) else target

    def of(self, block: Block) -> Any:
        needed("pyarrow", "`cast`")
        return filled(as_arrow(self.operand.column(block)).cast(self.target, safe=self.safe), block.rows)

    def _parts(self) -> Any:
        return self.operand, self.target, self.safe

    def __repr__(self) -> str:
        return f"{self.operand!r}.cast({self.target})"


class AliasExpr(Expr):
    """What `alias` gives."""

    def __init__(self, expr: Expr, name: str):
        self.expr, self._name = expr, name

    @property
    def name(self) -> str:
        return self._name

    @property
    def data_type(self) -> DataType:
        return self.expr.data_type

    def of(self, block: Block) -> Any:
        return self.expr.of(block)

    def column(self, block: Block) -> Any:
        return self.expr.column(block)

    def _parts(self) -> Any:
        return self.expr, self.name

    def __repr__(self) -> str:
        return f"{self.expr!r}.alias({self.name!r})"


class RandomExpr(Expr):
    """Numbers from 0 to 1; with a seed the same ones for the same rows."""

    def __init__(self, seed: int | None = None):
        self.seed = seed

    @property
    def data_type(self) -> DataType:
        return DataType.float64()

    def of(self, block: Block) -> Any:
        if self.seed is None:
            return np.random.default_rng().random(block.rows)
        first = as_numpy(next(iter(block.columns.values())))[:1].tobytes() if block.columns else b""
        return np.random.default_rng([self.seed, *first]).random(block.rows)

    def _parts(self) -> Any:
        return self.seed

    def __repr__(self) -> str:
        return f"random(seed={self.seed})"


class UUIDExpr(Expr):
    """A text for each row that no other row has."""

    @property
    def data_type(self) -> DataType:
        return DataType.string()

    def of(self, block: Block) -> Any:
        return of_values([str(uuid4()) for _ in range(block.rows)])

    def _parts(self) -> Any:
        return ()

    def __repr__(self) -> str:
        return "uuid()"


def col(name: str) -> ColumnExpr:
    """The column of this name."""
    return ColumnExpr(name)


def lit(value: Any) -> LiteralExpr:
    """The same value in each row."""
    return LiteralExpr(value)


def random(*, seed: int | None = None, reseed_after_execution: bool = True) -> RandomExpr:
    """A number from 0 to 1 for each row, drawn each time that it is read; with a seed the same for the same rows."""
    return RandomExpr(seed)


def uuid() -> UUIDExpr:
    """A text for each row that no other row has."""
    return UUIDExpr()


def udf(return_dtype: DataType) -> Callable[[Any], Any]:
    """Makes a function of arrays of pyarrow, or a callable class, one of expressions: `twice(col("x"))`. It gives a value for each
    row, as an array of pyarrow or numpy or a series of pandas. Of a class one object is made in each process that reads."""

    def made(call: Any) -> Any:
        if not inspect.isclass(call):
            return _expressed(call, return_dtype)

        @functools.wraps(call, updated=())
        def constructed(*args: Any, **kwargs: Any) -> Any:
            return _expressed(_Object(call, args, kwargs), return_dtype)

        return constructed

    return made


pyarrow_udf = udf


def _expressed(call: Any, return_dtype: DataType) -> Callable[..., UDFExpr]:
    def expression(*args: Any, **kwargs: Any) -> UDFExpr:
        if not any(isinstance(one, Expr) for one in (*args, *kwargs.values())):
            raise ValueError(f"{getattr(call, '__name__', call)!r} needs at least one expression, as col('x')")
        return UDFExpr(return_dtype, call, args, kwargs)

    return functools.wraps(call)(expression) if hasattr(call, "__name__") else expression


class _Object:
    """A callable class of a user's, of which each process makes an object when it is first called."""

    def __init__(self, made: type, args: Sequence[Any], kwargs: Mapping[str, Any]):
        self._class, self._args, self._kwargs = made, tuple(args), dict(kwargs)
        self._object: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._object is None:
            self._object = self._class(*self._args, **self._kwargs)
        return self._object(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Object) and self._described() == other._described()

    def __hash__(self) -> int:
        return hash(self._class)

    def _described(self) -> Any:
        return self._class, self._args, self._kwargs

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_object": None}

    @property
    def __name__(self) -> str:
        return self._class.__name__


def _expr(value: Any) -> Expr:
    return value if isinstance(value, Expr) else LiteralExpr(value)


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
            raise ValueError(
                f"Invalid syntax in the expression: `expr`={text!r} is none over columns, as \"x > 3 and y != 'a'\""
            ) from None

    def _made(self, node: ast.AST) -> Expr:
        if isinstance(node, ast.Name):
            return ColumnExpr(node.id)
        if isinstance(node, ast.Constant):
            return LiteralExpr(node.value)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return LiteralExpr(self._listed(node))
        if isinstance(node, ast.BoolOp):
            join = Operation.AND if isinstance(node.op, ast.And) else Operation.OR
            return functools.reduce(functools.partial(BinaryExpr, join), map(self._made, node.values))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            return UnaryExpr(_UNARY[type(node.op)], self._made(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return BinaryExpr(_BINARY[type(node.op)], self._made(node.left), self._made(node.right))
        if isinstance(node, ast.Compare):
            sides = [self._made(one) for one in (node.left, *node.comparators)]
            pairs = [BinaryExpr(_COMPARE[type(kind)], *two) for kind, two in zip(node.ops, zip(sides, sides[1:]))]
            return functools.reduce(functools.partial(BinaryExpr, Operation.AND), pairs)
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
                value = as_numpy(Arrow().truth(value).fill_null(False))
            return np.asarray(value, dtype=bool)
        except KeyError as error:
            raise KeyError(f"`expr`={self.text!r}: {error.args[0]}") from None
