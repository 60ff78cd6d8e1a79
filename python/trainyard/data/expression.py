"""Expressions over columns, as `filter(expr="x > 3 and kind == 'a'")` has them: comparisons, arithmetic, and, or, not, in."""

from __future__ import annotations

import ast
import operator
from typing import Any, Callable

import numpy as np

from .block import Block, as_numpy

_COMPARE: dict[type, Callable] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: np.isin(left, list(right)),
    ast.NotIn: lambda left, right: ~np.isin(left, list(right)),
    ast.Is: lambda left, right: np.array([one is right for one in left]),
    ast.IsNot: lambda left, right: np.array([one is not right for one in left]),
}
_BINARY: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: np.logical_and,
    ast.BitOr: np.logical_or,
}
_UNARY: dict[type, Callable] = {ast.Not: np.logical_not, ast.Invert: np.logical_not, ast.USub: operator.neg}


class Expression:
    """Of a block it gives which rows the expression is true for."""

    def __init__(self, expression: str):
        if not isinstance(expression, str):
            raise ValueError(f"`expr` must be text, not {type(expression).__name__}")
        try:
            self.tree = ast.parse(expression, mode="eval").body
        except SyntaxError:
            raise ValueError(
                f"`expr`={expression!r} is no expression over columns, as \"x > 3 and y != 'a'\""
            ) from None
        self.text = expression
        self._check(self.tree)

    def _check(self, tree: ast.AST) -> None:
        known = (
            ast.BoolOp,
            ast.Compare,
            ast.BinOp,
            ast.UnaryOp,
            ast.Name,
            ast.Constant,
            ast.List,
            ast.Tuple,
            ast.Set,
        )
        plain = (ast.boolop, ast.cmpop, ast.operator, ast.unaryop, ast.expr_context)
        for node in ast.walk(tree):
            if not isinstance(node, (*known, *plain)):
                raise ValueError(
                    f"`expr`={self.text!r}: {ast.unparse(node)!r} is not provided: columns, constants, comparisons, arithmetic, "
                    "and, or, not, in; give a function for more"
                )

    def __call__(self, block: Block) -> np.ndarray:
        return np.broadcast_to(np.asarray(self._value(self.tree, block), dtype=bool), (block.rows,))

    def _value(self, node: ast.AST, block: Block) -> Any:
        if isinstance(node, ast.Name):
            if node.id not in block.columns:
                raise KeyError(
                    f"`expr`={self.text!r}: there is no column {node.id!r}, only {list(block.columns)}"
                )
            return as_numpy(block.columns[node.id])
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return [self._value(one, block) for one in node.elts]
        if isinstance(node, ast.BoolOp):
            join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return join.reduce([self._value(one, block) for one in node.values])
        if isinstance(node, ast.UnaryOp):
            return _UNARY[type(node.op)](self._value(node.operand, block))
        if isinstance(node, ast.BinOp):
            return _BINARY[type(node.op)](self._value(node.left, block), self._value(node.right, block))
        assert isinstance(node, ast.Compare)
        left, found = self._value(node.left, block), []
        for kind, one in zip(node.ops, node.comparators):
            right = self._value(one, block)
            found.append(_COMPARE[type(kind)](left, right))
            left = right
        return np.logical_and.reduce(found)
