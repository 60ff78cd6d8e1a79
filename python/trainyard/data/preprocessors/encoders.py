"""Classes as numbers."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

from ..block import as_numpy, missing, objects
from ..dataset import Dataset
from ..steps import Function, MapBatches
from .base import ByColumn


def _items(values: np.ndarray) -> list[Any]:
    return [tuple(value) if isinstance(value, (list, np.ndarray)) else value for value in values.tolist()]


def _listed(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


class _Encoder(ByColumn):
    takes_missing = False

    def _classes(self, dataset: Dataset, most: dict[str, int] | None = None, of_lists: bool = False) -> None:
        for name, values in self._learn(dataset, self.columns, whole=not self.takes_missing).items():
            items = _items(values)
            counted = collections.Counter(one for item in items for one in (_listed(item) if of_lists else (item,)))
            kept = [value for value, _ in counted.most_common((most or {}).get(name))]
            self.stats_[f"unique_values({name})"] = {value: i for i, value in enumerate(sorted(kept))}

    def _numbers(self, values: np.ndarray, name: str) -> list[int | None]:
        self._check_whole(missing(values), name)
        known = self.stats_[f"unique_values({name})"]
        return [known.get(value) for value in _items(values)]


class OrdinalEncoder(_Encoder):
    """The number of each class, in their order; of a list, with `encode_lists`, those of what is in it."""

    def __init__(
        self, columns: list[str], *, encode_lists: bool = True, output_columns: list[str] | None = None
    ):
        super().__init__(columns, output_columns)
        self.encode_lists = encode_lists

    def _fit(self, dataset: Dataset) -> None:
        self._classes(dataset, of_lists=self.encode_lists)

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        if self.encode_lists and len(values) and isinstance(values[0], (list, tuple, np.ndarray)):
            known = self.stats_[f"unique_values({name})"]
            return objects([[known.get(one) for one in _listed(item)] for item in _items(values)])
        found = self._numbers(values, name)
        return (
            np.array(found)
            if None not in found
            else np.array([np.nan if one is None else one for one in found])
        )


class LabelEncoder(OrdinalEncoder):
    """The number of each class of one column. A class that was not there when it was fitted is NaN."""

    def __init__(self, label_column: str, *, output_column: str | None = None):
        super().__init__([label_column], encode_lists=False, output_columns=[output_column] if output_column else None)
        self.label_column, self.output_column = label_column, output_column or label_column

    def inverse_transform(self, ds: Dataset) -> Dataset:
        """The classes again."""
        self._check_fitted()
        classes = list(self.stats_[f"unique_values({self.label_column})"])

        def named(batch: dict[str, np.ndarray]) -> dict[str, Any]:
            numbers = as_numpy(batch[self.output_column])
            return {**batch, self.label_column: [classes[int(number)] for number in numbers]}

        return ds._then(MapBatches(Function(named), None, "numpy"))


class _OfCategories(_Encoder):
    def __init__(
        self,
        columns: list[str],
        *,
        max_categories: dict[str, int] | None = None,
        output_columns: list[str] | None = None,
    ):
        """max_categories: by column how many of its classes count, those that are there most often."""
        super().__init__(columns, output_columns)
        self.max_categories = max_categories or {}


class OneHotEncoder(_OfCategories):
    """A vector with a 1 where the class is; of zeros for one that was not there when it was fitted."""

    def _fit(self, dataset: Dataset) -> None:
        self._classes(dataset, self.max_categories)

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        vectors = np.zeros((len(values), len(self.stats_[f"unique_values({name})"])), dtype=np.uint8)
        for row, number in enumerate(self._numbers(values, name)):
            if number is not None:
                vectors[row, number] = 1
        return vectors


class MultiHotEncoder(_OfCategories):
    """Of a list of classes how often each is in it; of a class that was not there when it was fitted, and of no list, nothing."""

    takes_missing = True

    def _fit(self, dataset: Dataset) -> None:
        self._classes(dataset, self.max_categories, of_lists=True)

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        known = self.stats_[f"unique_values({name})"]
        vectors = np.zeros((len(values), len(known)), dtype=np.int64)
        for row, value in enumerate(_items(values)):
            for one in _listed(value):
                if one in known:
                    vectors[row, known[one]] += 1
        return vectors


class Categorizer(_Encoder):
    """Columns of categories: a data frame has them as such. `dtypes`: types of pandas by column; of the others the classes count
    that are there."""

    def __init__(
        self, columns: list[str], dtypes: dict[str, Any] | None = None, output_columns: list[str] | None = None
    ):
        super().__init__(columns, output_columns)
        self.dtypes = dtypes or {}

    def _fit(self, dataset: Dataset) -> None:
        import pandas

        learned = self._learn(dataset, [name for name in self.columns if name not in self.dtypes])
        for name in self.columns:
            found = sorted(set(_items(learned[name]))) if name in learned else []
            self.stats_[name] = self.dtypes[name] if name in self.dtypes else pandas.CategoricalDtype(found)

    def _transform_pandas(self, df: Any) -> Any:
        made = {new: df[name].astype(self.stats_[name]) for name, new in zip(self.columns, self.output_columns)}
        return df.assign(**made)
