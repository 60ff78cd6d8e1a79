"""Aggregations: what the rows of a group, or all rows, come to."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from .block import Block, as_numpy, blocks_missing, missing


class AggregateFn:
    """One of the user's own: `init(key)` is what it begins with, `accumulate_row(so_far, row)` or
    `accumulate_block(so_far, table)` goes on, `finalize(so_far)` ends."""

    def __init__(
        self,
        init: Callable[[Any], Any],
        merge: Callable[[Any, Any], Any],
        name: str,
        accumulate_row: Callable[[Any, dict[str, Any]], Any] | None = None,
        accumulate_block: Callable[[Any, Any], Any] | None = None,
        finalize: Callable[[Any], Any] | None = None,
    ):
        if (accumulate_row is None) == (accumulate_block is None):
            raise ValueError("Exactly one of accumulate_row or accumulate_block must be provided.")
        if not isinstance(name, str):
            raise TypeError("`name` must be provided.")
        self.name = name
        self._init, self._row, self._block, self._finalize = init, accumulate_row, accumulate_block, finalize

    def of(self, rows: Block, key: Any) -> Any:
        so_far = self._init(key)
        if self._block is not None:
            so_far = self._block(so_far, rows.arrow())
        else:
            assert self._row is not None
            for record in rows.records():
                so_far = self._row(so_far, record)
        return so_far if self._finalize is None else self._finalize(so_far)


class _OfColumn(AggregateFn):
    """Of the values of a column, without missing ones; where these are not to be ignored, one makes it None."""

    called = ""

    def __init__(self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None):
        if on is not None and not isinstance(on, str):
            raise ValueError(f"`on` must be the name of a column, not {on!r}")
        self.on, self.ignore_nulls = on, ignore_nulls
        self.name = alias_name or f"{self.called}({on})"

    def of(self, rows: Block, key: Any) -> Any:
        values, gone = self._values(rows)
        if gone.any() and not self.ignore_nulls:
            return None
        values = values[~gone]
        return self.work(values) if len(values) else None

    def _values(self, rows: Block) -> tuple[np.ndarray, np.ndarray]:
        if self.on is None:
            raise ValueError(f"{type(self).__name__} needs `on`, the name of a column")
        blocks_missing([rows], [self.on])
        values = as_numpy(rows.columns[self.on])
        return values, missing(values)

    def work(self, values: np.ndarray) -> Any:
        raise NotImplementedError


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


class Count(_OfColumn):
    """Of rows; of a column with `ignore_nulls` those that have a value."""

    called = "count"

    def __init__(self, on: str | None = None, ignore_nulls: bool = False, alias_name: str | None = None):
        super().__init__(on, ignore_nulls, alias_name or f"count({on or ''})")

    def of(self, rows: Block, key: Any) -> Any:
        return rows.rows if self.on is None or not self.ignore_nulls else int((~self._values(rows)[1]).sum())


class Sum(_OfColumn):
    called = "sum"

    def work(self, values: np.ndarray) -> Any:
        return _plain(np.sum(values))


class Min(_OfColumn):
    called = "min"

    def work(self, values: np.ndarray) -> Any:
        return _plain(np.min(values))


class Max(_OfColumn):
    called = "max"

    def work(self, values: np.ndarray) -> Any:
        return _plain(np.max(values))


class AbsMax(_OfColumn):
    called = "abs_max"

    def work(self, values: np.ndarray) -> Any:
        return _plain(np.max(np.abs(values)))


class Mean(_OfColumn):
    called = "mean"

    def work(self, values: np.ndarray) -> Any:
        return float(np.mean(values))


class Std(_OfColumn):
    called = "std"

    def __init__(
        self, on: str | None = None, ddof: int = 1, ignore_nulls: bool = True, alias_name: str | None = None
    ):
        super().__init__(on, ignore_nulls, alias_name)
        self.ddof = ddof

    def work(self, values: np.ndarray) -> Any:
        return float(np.std(values, ddof=self.ddof)) if len(values) > self.ddof else float("nan")


class Quantile(_OfColumn):
    called = "quantile"

    def __init__(
        self, on: str | None = None, q: float = 0.5, ignore_nulls: bool = True, alias_name: str | None = None
    ):
        super().__init__(on, ignore_nulls, alias_name)
        self.q = q

    def work(self, values: np.ndarray) -> Any:
        return float(np.quantile(values, self.q))


class Unique(_OfColumn):
    """Each value once; None for missing ones, unless they are to be ignored."""

    called = "unique"

    def __init__(self, on: str | None = None, ignore_nulls: bool = False, alias_name: str | None = None):
        super().__init__(on, ignore_nulls, alias_name)

    def of(self, rows: Block, key: Any) -> Any:
        values, gone = self._values(rows)
        found = list(dict.fromkeys(values[~gone].tolist()))
        return [*found, None] if gone.any() and not self.ignore_nulls else found


class CountDistinct(Unique):
    called = "count_distinct"

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None):
        super().__init__(on, ignore_nulls, alias_name)

    def of(self, rows: Block, key: Any) -> Any:
        return len(super().of(rows, key))


class AsList(_OfColumn):
    called = "list"

    def __init__(self, on: str, alias_name: str | None = None, ignore_nulls: bool = False):
        super().__init__(on, ignore_nulls, alias_name)

    def of(self, rows: Block, key: Any) -> Any:
        values, gone = self._values(rows)
        return [
            None if lacks else value
            for value, lacks in zip(values.tolist(), gone)
            if not (lacks and self.ignore_nulls)
        ]
