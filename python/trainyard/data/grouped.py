"""Rows by groups: `dataset.groupby("kind")`. Whoever reads of what is made of it holds all rows in memory, as with sorting."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable, Iterator

import numpy as np

from . import aggregate as aggregates
from . import plan as plans
from . import steps
from .block import Block, blocks_missing, check_format, concat, of_batch, of_values, present
from .not_provided import refuse

if TYPE_CHECKING:
    from .dataset import Dataset

_LAST = np.iinfo(np.int64).max  # in the order of values: none


class GroupedData:
    """The rows of a data set by the values of columns; with None for a key they are one group."""

    def __init__(self, dataset: Dataset, key: str | list[str] | None):
        self._dataset, self._key = dataset, key
        self._keys = [] if key is None else [key] if isinstance(key, str) else list(key)

    def aggregate(self, *aggs: aggregates.AggregateFn) -> Dataset:
        """A row for each group, in the order of their keys: the keys, then what each aggregation gives."""
        if not aggs:
            raise ValueError("Aggregate requires at least one aggregation")
        for one in aggs:
            if not isinstance(one, aggregates.AggregateFn):
                raise TypeError(f"`aggregate` takes aggregations as Sum('x'), not {one!r}")
        names = _distinct([one.name for one in aggs])
        keys = self._keys

        def made(block: Block) -> Block:
            groups = list(rows_by(block, keys)) if block.columns else []
            heads = block.take([rows[0] for rows in groups]).select(keys) if groups else Block({}, 0)
            found: list[list[Any]] = [[] for _ in aggs]
            for rows, head in zip(groups, _heads(heads, len(groups), keys)):
                group = block.take(rows)
                for one, values in zip(aggs, found):
                    values.append(one.of(group, head))
            columns = {name: of_values(values) for name, values in zip(names, found)}
            return Block({**heads.columns, **columns}, len(groups)) if groups else Block({}, 0)

        return self._together(made, f"Aggregate({self._key!r}, {names})")

    def map_groups(
        self,
        fn: Any,
        *,
        batch_format: str | None = "default",
        fn_args: Any = None,
        fn_kwargs: Any = None,
        fn_constructor_args: Any = None,
        fn_constructor_kwargs: Any = None,
        **places: Any,
    ) -> Dataset:
        """`fn` of each group as a batch, which gives a batch, or yields several."""
        steps.check_places("map_groups", places)
        check_format(batch_format)
        function = steps.Function(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        keys = self._keys

        def mapped(block: Block) -> Iterator[Block]:
            for rows in rows_by(block, keys) if block.columns else ():
                given = function(block.take(rows).batch(batch_format))
                for batch in given if inspect.isgenerator(given) else [given]:
                    yield of_batch(batch, function.name)

        return self._together(lambda block: concat(list(mapped(block))), f"MapGroups({function.name})")

    def count(self) -> Dataset:
        return self.aggregate(aggregates.Count())

    def sum(self, on: Any = None, ignore_nulls: bool = True) -> Dataset:
        return self._each(on, lambda name: aggregates.Sum(name, ignore_nulls))

    def min(self, on: Any = None, ignore_nulls: bool = True) -> Dataset:
        return self._each(on, lambda name: aggregates.Min(name, ignore_nulls))

    def max(self, on: Any = None, ignore_nulls: bool = True) -> Dataset:
        return self._each(on, lambda name: aggregates.Max(name, ignore_nulls))

    def mean(self, on: Any = None, ignore_nulls: bool = True) -> Dataset:
        return self._each(on, lambda name: aggregates.Mean(name, ignore_nulls))

    def std(self, on: Any = None, ddof: int = 1, ignore_nulls: bool = True) -> Dataset:
        return self._each(on, lambda name: aggregates.Std(name, ddof, ignore_nulls))

    def _each(self, on: Any, made: Callable[[str], aggregates.AggregateFn]) -> Dataset:
        """Of the columns `on`, None for all that are no key."""
        if on is None:
            on = [name for name in self._dataset.columns() or [] if name not in self._keys]
        names = [on] if isinstance(on, str) else list(on)
        if not names:
            raise ValueError("At least 1 column to aggregate on has to be provided")
        return self.aggregate(*map(made, names))

    def _together(self, function: Callable[[Block], Block], name: str) -> Dataset:
        return self._dataset._over(plans.Together(self._dataset.plan, function, name, keeps_rows=False))

    def __getattr__(self, name: str) -> Any:
        refuse(name, "GroupedData")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"GroupedData(dataset={self._dataset!r}, key={self._key!r})"


def part_of_each(block: Block, key: str, part: float, is_last: bool) -> Block:
    """Of each group its first rows, or the last, of which there are this part."""
    chosen = []
    for rows in rows_by(block, [key]):
        edge = len(rows) - int(len(rows) * part)
        chosen.append(rows[edge:] if is_last else rows[:edge])
    return block.take(np.concatenate(chosen))


def rows_by(block: Block, keys: list[str]) -> Iterator[np.ndarray]:
    """The numbers of each group's rows, in the order of the keys; missing values are a group, the last."""
    if not keys:
        yield np.arange(block.rows)
        return
    blocks_missing([block], keys)
    codes = np.stack([_codes(name, block.columns[name]) for name in keys])
    order = np.lexsort(codes[::-1])
    changes = (np.diff(codes[:, order]) != 0).any(axis=0)
    yield from np.split(order, np.flatnonzero(changes) + 1)


def rows_in_order(block: Block, keys: list[str], descending: list[bool]) -> np.ndarray:
    """The numbers of the rows by these columns; those without a value come last, whichever way."""
    codes = [_codes(name, block.columns[name]) for name in keys]
    turned = [np.where(one == _LAST, _LAST, -one) if down else one for one, down in zip(codes, descending)]
    return np.lexsort(turned[::-1])


def _codes(name: str, column: Any) -> np.ndarray:
    """A number for each value, in their order."""
    values, gone = present(column)
    codes = np.full(len(gone), _LAST)
    if values.ndim > 1 or (len(values) and isinstance(values[0], (list, dict, np.ndarray))):
        raise TypeError(f"the column {name!r} has lists or arrays: rows are grouped, and sorted, by numbers, texts and times")
    try:
        codes[~gone] = np.unique(values, return_inverse=True)[1]
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values})
        raise TypeError(f"the column {name!r} has values of several types, {', '.join(kinds)}, which have no order") from None
    return codes


def _heads(heads: Block, groups: int, keys: list[str]) -> list[Any]:
    """The key of each group, as the user's aggregations get it."""
    if not keys:
        return [None] * groups
    rows = [tuple(record.values()) for record in heads.records()]
    return rows if len(keys) > 1 else [row[0] for row in rows]


def _distinct(names: list[str]) -> list[str]:
    """Of equal names the second is "name_2"."""
    counts: dict[str, int] = {}
    made = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        made.append(name if counts[name] == 1 else f"{name}_{counts[name]}")
    return made
