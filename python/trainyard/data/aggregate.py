"""Aggregations: what the rows of a group, or all rows, come to."""

from __future__ import annotations

import collections
from typing import Any, Callable, Sequence

import numpy as np

from .block import Block, blocks_missing, plain, present, python_values


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


class AggregateFnV2(AggregateFn):
    """Derive from it: `aggregate_block(table)` gives what a table comes to, in `self._target_col_name` (None: in all of it),
    `combine(so_far, of_another)` joins two of these, `finalize(so_far)` makes the result."""

    def __init__(self, name: str, zero_factory: Callable[[], Any], *, on: str | None, ignore_nulls: bool):
        if not isinstance(name, str) or not name:
            raise ValueError("Non-empty string has to be provided as name of the aggregation")
        self.name, self._target_col_name = name, on
        self._zero, self._ignore_nulls = zero_factory, ignore_nulls

    def of(self, rows: Block, key: Any) -> Any:
        found = self.aggregate_block(rows.arrow())
        if not self._ignore_nulls and found is not None:
            found = self.combine(self._zero(), found)
        return None if found is None else self.finalize(found)

    def get_target_column(self) -> str | None:
        return self._target_col_name

    def aggregate_block(self, block: Any) -> Any:
        raise NotImplementedError

    def combine(self, current_accumulator: Any, new: Any) -> Any:
        raise NotImplementedError

    def finalize(self, accumulator: Any) -> Any:
        return accumulator


class _OfColumn(AggregateFn):
    """Of the values of a column, without missing ones; where these are not to be ignored, one makes it None."""

    called = ""
    needs_column = True

    def __init__(self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None):
        if not isinstance(on, str) and (on is not None or self.needs_column):
            raise ValueError(f"{type(self).__name__} needs `on`, the name of a column, not {on!r}")
        self.on, self.ignore_nulls = on, ignore_nulls
        self.name = alias_name or f"{self.called}({on})"

    def of(self, rows: Block, key: Any) -> Any:
        values, gone = present(self._column(rows))
        if (gone.any() and not self.ignore_nulls) or not len(values):
            return None
        if values.ndim > 1 or isinstance(values[0], (list, dict, np.ndarray)):
            raise TypeError(f"{type(self).__name__}({self.on!r}): lists and arrays are taken by AsList, Unique and map_groups only")
        return self.work(values)

    def _column(self, rows: Block) -> Any:
        assert self.on is not None
        blocks_missing([rows], [self.on])
        return rows.columns[self.on]

    def work(self, values: np.ndarray) -> Any:
        raise NotImplementedError


class Count(_OfColumn):
    """Of rows; of a column with `ignore_nulls` those that have a value."""

    called = "count"
    needs_column = False

    def __init__(self, on: str | None = None, ignore_nulls: bool = False, alias_name: str | None = None):
        super().__init__(on, ignore_nulls, alias_name or f"count({on or ''})")

    def of(self, rows: Block, key: Any) -> Any:
        if self.on is None:
            return rows.rows
        column = self._column(rows)
        return len(present(column)[0]) if self.ignore_nulls else rows.rows


class Sum(_OfColumn):
    called = "sum"

    def work(self, values: np.ndarray) -> Any:
        return plain(np.sum(values))


class Min(_OfColumn):
    called = "min"

    def work(self, values: np.ndarray) -> Any:
        return plain(np.min(values))


class Max(_OfColumn):
    called = "max"

    def work(self, values: np.ndarray) -> Any:
        return plain(np.max(values))


class AbsMax(_OfColumn):
    called = "abs_max"

    def work(self, values: np.ndarray) -> Any:
        return plain(np.max(np.abs(values)))


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


class ApproximateQuantile(_OfColumn):
    """Several quantiles at once: values of the column, as they are all there."""

    called = "approx_quantile"

    def __init__(
        self, on: str, quantiles: Sequence[float], quantile_precision: int = 800, alias_name: str | None = None
    ):
        super().__init__(on, True, alias_name)
        self.quantiles = list(quantiles)

    def work(self, values: np.ndarray) -> Any:
        return [plain(one) for one in np.quantile(values, self.quantiles, method="nearest")]


class MissingValuePercentage(_OfColumn):
    """How many of 100 rows have no value."""

    called = "missing_pct"

    def __init__(self, on: str, alias_name: str | None = None):
        super().__init__(on, False, alias_name)

    def of(self, rows: Block, key: Any) -> Any:
        return float(100 * np.mean(present(self._column(rows))[1])) if rows.rows else None


class ZeroPercentage(_OfColumn):
    """How many of 100 values are 0; without `ignore_nulls` of 100 rows."""

    called = "zero_pct"

    def of(self, rows: Block, key: Any) -> Any:
        values = present(self._column(rows))[0]
        among = len(values) if self.ignore_nulls else rows.rows
        return 100.0 * int(np.sum(values == 0)) / among if among else None


def _key(value: Any) -> Any:
    """By which a dict knows it, also where it is a list, a record or an array."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, dict):
        return tuple((name, _key(one)) for name, one in value.items())
    return tuple(map(_key, value)) if isinstance(value, list) else value


def _opened(values: list[Any], is_opened: bool | None) -> list[Any]:
    """What is in lists, in their place."""
    if not is_opened:
        return values
    return [one for value in values for one in (value if isinstance(value, (list, np.ndarray)) else [value])]


class Unique(_OfColumn):
    """Each value once; None for missing ones, unless they are to be ignored."""

    called = "unique"

    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = False,
        alias_name: str | None = None,
        encode_lists: bool | None = None,
    ):
        """encode_lists: what is in lists counts, not the lists."""
        super().__init__(on, ignore_nulls, alias_name)
        self.encode_lists = encode_lists

    def of(self, rows: Block, key: Any) -> Any:
        column = self._column(rows)
        gone = present(column)[1]
        values = _opened([value for value, lacks in zip(python_values(column), gone) if not lacks], self.encode_lists)
        known: dict[Any, Any] = {}
        for value in values:
            if value is not None:
                known.setdefault(_key(value), value)
        has_none = gone.any() or any(value is None for value in values)
        return [*known.values(), None] if has_none and not self.ignore_nulls else list(known.values())


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
        column = self._column(rows)
        gone = present(column)[1]
        return [
            None if lacks else value
            for value, lacks in zip(python_values(column), gone)
            if not (lacks and self.ignore_nulls)
        ]


class ApproximateTopK(_OfColumn):
    """The `k` values that are there most often, the most frequent first, as they are all counted."""

    called = "approx_topk"

    def __init__(
        self,
        on: str,
        k: int,
        log_capacity: int = 15,
        alias_name: str | None = None,
        encode_lists: bool = False,
    ):
        """encode_lists: what is in lists counts, not the lists."""
        super().__init__(on, True, alias_name)
        self.k, self.encode_lists = k, encode_lists

    def of(self, rows: Block, key: Any) -> Any:
        values = [value for value in _opened(list(python_values(self._column(rows))), self.encode_lists) if value == value]
        values = [value for value in values if value is not None]
        known = {_key(value): value for value in values}
        most = collections.Counter(map(_key, values)).most_common(self.k)
        return [{self.on: known[key], "count": count} for key, count in most]
