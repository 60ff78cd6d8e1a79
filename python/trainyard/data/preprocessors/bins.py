"""Numbers by the interval that they are in."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from ..block import needed
from ..dataset import Dataset
from .base import ByColumn

_MARGIN = 0.001  # by which the outermost intervals are wider than the values


class _Discretizer(ByColumn):
    def __init__(
        self,
        columns: list[str],
        bins: Any,
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: dict[str, Any] | None = None,
        output_columns: list[str] | None = None,
    ):
        """right: whether an interval has its right edge, or the left one. dtypes: by column a pandas.CategoricalDtype, whose
        categories are the intervals' names in place of numbers."""
        super().__init__(columns, output_columns)
        if isinstance(bins, dict) and not all(name in bins for name in columns):
            raise ValueError("If `bins` is a dictionary, all elements of `columns` must be present in it.")
        self.bins, self.right, self.include_lowest = bins, right, include_lowest
        self.duplicates, self.dtypes = duplicates, dtypes or {}

    def _of(self, name: str) -> Any:
        return self.bins[name] if isinstance(self.bins, dict) else self.bins

    def _edges(self, name: str) -> Any:
        return self._of(name)

    def _transform_pandas(self, df: Any) -> Any:
        cut = needed("pandas", type(self).__name__).cut
        made = {}
        for name, output in zip(self.columns, self.output_columns):
            if name not in df:
                raise ValueError(f"{type(self).__name__}: there is no column {name!r}, only {list(df)}")
            kind = self.dtypes.get(name)
            categories = getattr(kind, "categories", None)
            made[output] = cut(
                df[name],
                self._edges(name),
                right=self.right,
                labels=False if categories is None else list(categories),
                ordered=categories is None or kind.ordered,
                include_lowest=self.include_lowest,
                duplicates=self.duplicates,
            )
        return df.assign(**made)


class CustomKBinsDiscretizer(_Discretizer):
    """By the edges `bins`, of all columns or of each."""

    _is_fittable = False

    def __init__(self, columns: list[str], bins: Sequence[float] | dict[str, Sequence[float]], **options: Any):
        super().__init__(columns, bins, **options)


class UniformKBinsDiscretizer(_Discretizer):
    """By so many intervals of one width, from the lowest value to the highest."""

    def __init__(self, columns: list[str], bins: int | dict[str, int], **options: Any):
        super().__init__(columns, bins, **options)

    def _fit(self, dataset: Dataset) -> None:
        for name in self.columns:
            if not isinstance(self._of(name), int):
                raise TypeError(f"`bins` must be an integer or a dict of integers, got {self._of(name)}")
        for name, values in self._learn(dataset, self.columns).items():
            if not len(values):
                raise ValueError(f"Column {name} has no values to bin. Check the data used to fit the discretizer.")
            self.stats_[name] = self._uniform(float(np.min(values)), float(np.max(values)), self._of(name))

    def _uniform(self, low: float, high: float, count: int) -> np.ndarray:
        if not np.isfinite([low, high]).all():
            raise ValueError("Cannot specify integer `bins` when input data contains infinity.")
        if low == high:
            width = _MARGIN * (abs(low) or 1)
            return np.linspace(low - width, high + width, count + 1)
        edges = np.linspace(low, high, count + 1)
        margin = _MARGIN * (high - low)
        edges[0 if self.right else -1] += -margin if self.right else margin
        return edges

    def _edges(self, name: str) -> Any:
        return self.stats_[name]
