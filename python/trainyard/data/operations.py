"""What expressions compute: by pyarrow where a column is one of pyarrow, else by numpy."""

from __future__ import annotations

import enum
import operator
import sys
from typing import Any, Callable

import numpy as np

from .block import as_arrow, decoded, missing, needed, of_values


class Operation(enum.Enum):
    """What an expression makes of one or two others."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MOD = "mod"
    FLOORDIV = "floordiv"
    POWER = "power"
    GT = "gt"
    LT = "lt"
    GE = "ge"
    LE = "le"
    EQ = "eq"
    NE = "ne"
    AND = "and"
    OR = "or"
    NOT = "not"
    NEGATE = "negate"
    IS_NULL = "is_null"
    IS_NOT_NULL = "is_not_null"
    IN = "in"
    NOT_IN = "not_in"
    IS = "is"
    IS_NOT = "is_not"


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


OPERATIONS: dict[Operation, Callable[..., Any]] = {
    Operation.EQ: operator.eq,
    Operation.NE: operator.ne,
    Operation.LT: operator.lt,
    Operation.LE: operator.le,
    Operation.GT: operator.gt,
    Operation.GE: operator.ge,
    Operation.IN: lambda left, right: np.isin(left, list(right)),
    Operation.NOT_IN: lambda left, right: ~np.isin(left, list(right)),
    Operation.IS: lambda left, right: np.array([one is right for one in left]),
    Operation.IS_NOT: lambda left, right: np.array([one is not right for one in left]),
    Operation.ADD: operator.add,
    Operation.SUB: operator.sub,
    Operation.MUL: operator.mul,
    Operation.DIV: _divided,
    Operation.FLOORDIV: _floor_divided,
    Operation.MOD: lambda left, right: left - _floor_divided(left, right) * right,
    Operation.POWER: operator.pow,
    Operation.AND: np.logical_and,
    Operation.OR: np.logical_or,
}
OF_ONE: dict[Operation, Callable[..., Any]] = {
    Operation.NOT: np.logical_not,
    Operation.NEGATE: operator.neg,
    Operation.IS_NULL: missing,
    Operation.IS_NOT_NULL: lambda values: ~missing(values),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
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
    "power": np.power,
}


class Arrow:
    """The same by pyarrow, of which one value at least is a column of it. null is neither true nor false, nor equal to anything."""

    COMPUTED = {
        Operation.EQ: "equal",
        Operation.NE: "not_equal",
        Operation.LT: "less",
        Operation.LE: "less_equal",
        Operation.GT: "greater",
        Operation.GE: "greater_equal",
        Operation.ADD: "add",
        Operation.SUB: "subtract",
        Operation.MUL: "multiply",
        Operation.POWER: "power",
        Operation.NEGATE: "negate",
        Operation.IS_NULL: "is_null",
        Operation.IS_NOT_NULL: "is_valid",
    }
    JOINED = {Operation.AND: "and_kleene", Operation.OR: "or_kleene"}

    def __init__(self) -> None:
        self.compute = needed("pyarrow.compute", "an expression over a column of pyarrow")
        self.types = sys.modules["pyarrow"].types

    def of_two(self, op: Operation, left: Any, right: Any) -> Any:
        if op in (Operation.IN, Operation.NOT_IN):
            found = self._is_in(left, right)
            return self.compute.invert(found) if op is Operation.NOT_IN else found
        if op in (Operation.IS, Operation.IS_NOT):
            return self._is(left, right, op is Operation.IS)
        left, right = self._side(left), self._side(right)
        if op in self.JOINED:
            return getattr(self.compute, self.JOINED[op])(self.truth(left), self.truth(right))
        if op in (Operation.FLOORDIV, Operation.MOD):
            quotient = self._floor_divided(left, right)
            if op is Operation.FLOORDIV:
                return quotient
            return self.compute.subtract(left, self.compute.multiply(quotient, right))
        if op is Operation.DIV:
            return self._divided(left, right)
        if op is Operation.ADD and any(self._is_text(side) for side in (left, right)):
            return self._joined(left, right)
        return getattr(self.compute, self.COMPUTED[op])(left, right)

    def of_one(self, op: Operation, value: Any) -> Any:
        value = self._side(value)
        if op is Operation.NOT:
            return self.compute.invert(self.truth(value))
        return getattr(self.compute, self.COMPUTED[op])(value)

    def called(self, function: str, value: Any, *arguments: Any) -> Any:
        return getattr(self.compute, function)(self._side(value), *arguments)

    def truth(self, value: Any) -> Any:
        return value.cast("bool")

    def _side(self, value: Any) -> Any:
        """A column, or a scalar."""
        if isinstance(value, np.ndarray) and value.ndim:
            return as_arrow(value)
        return decoded(value) if is_arrow(value) else sys.modules["pyarrow"].scalar(value)

    def _is_text(self, side: Any) -> bool:
        return bool(self.types.is_string(side.type) or self.types.is_large_string(side.type))

    def _joined(self, left: Any, right: Any) -> Any:
        for side in (left, right):
            if not (self._is_text(side) or self.types.is_null(side.type)):
                raise TypeError(f"`+` of text needs string-like pyarrow columns or values on both sides, not {side.type}")
        text = "large_string" if any(self.types.is_large_string(side.type) for side in (left, right)) else "string"
        return self.compute.binary_join_element_wise(left.cast(text), right.cast(text), "")

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
            return self.of_one(Operation.IS_NULL if is_same else Operation.IS_NOT_NULL, left)
        same = self.compute.fill_null(self.of_two(Operation.EQ, left, right), False)
        return same if is_same else self.compute.invert(same)


def is_arrow(value: Any) -> bool:
    """Whether it is a column of pyarrow."""
    return hasattr(value, "type") and hasattr(value, "to_pylist")


def filled(value: Any, rows: int) -> Any:
    """A column: what is one value is there for each row."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value
    if is_arrow(value):
        return value if hasattr(value, "chunks") else sys.modules["pyarrow"].chunked_array([value])
    return of_values([value] * rows)
