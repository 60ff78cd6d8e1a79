"""Columns of numbers brought to one scale."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from ..block import plain
from ..dataset import Dataset
from .base import ByColumn

_LEAST = 1e-8  # a smaller spread is none


def _of(found: Callable[[np.ndarray], Any], values: np.ndarray) -> Any:
    """None where there are no values."""
    return plain(found(values)) if len(values) else None


def _scaled(values: np.ndarray, middle: Any, spread: Any) -> np.ndarray:
    if middle is None or spread is None:
        return np.full(len(values), np.nan)
    return (values - middle) / (spread if abs(spread) > _LEAST else 1)


class StandardScaler(ByColumn):
    """Mean 0 and deviation 1. A column without deviation becomes 0."""

    def _fit(self, dataset: Dataset) -> None:
        for name, values in self._learn(dataset, self.columns).items():
            self.stats_[f"mean({name})"], self.stats_[f"std({name})"] = _of(np.mean, values), _of(np.std, values)

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        return _scaled(values, self.stats_[f"mean({name})"], self.stats_[f"std({name})"])


class MinMaxScaler(ByColumn):
    """From 0 to 1. A column of one value becomes 0."""

    def _fit(self, dataset: Dataset) -> None:
        for name, values in self._learn(dataset, self.columns).items():
            self.stats_[f"min({name})"], self.stats_[f"max({name})"] = _of(np.min, values), _of(np.max, values)

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        low, high = self.stats_[f"min({name})"], self.stats_[f"max({name})"]
        return _scaled(values, low, None if low is None else high - low)


class MaxAbsScaler(ByColumn):
    """From -1 to 1."""

    def _fit(self, dataset: Dataset) -> None:
        for name, values in self._learn(dataset, self.columns).items():
            self.stats_[f"abs_max({name})"] = _of(lambda values: np.abs(values).max(), values)

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        return _scaled(values, 0, self.stats_[f"abs_max({name})"])


class RobustScaler(ByColumn):
    """Median 0, and 1 between two quantiles."""

    def __init__(
        self,
        columns: list[str],
        quantile_range: tuple[float, float] = (0.25, 0.75),
        output_columns: list[str] | None = None,
        quantile_precision: int = 800,
    ):
        super().__init__(columns, output_columns)
        self.quantile_range = quantile_range

    def _fit(self, dataset: Dataset) -> None:
        low, high = self.quantile_range
        for name, values in self._learn(dataset, self.columns).items():
            found = np.quantile(values, [low, 0.5, high], method="nearest")
            for kind, value in zip(("low_quantile", "median", "high_quantile"), found):
                self.stats_[f"{kind}({name})"] = value.item()

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        low, high = self.stats_[f"low_quantile({name})"], self.stats_[f"high_quantile({name})"]
        return (values - self.stats_[f"median({name})"]) / ((high - low) or 1)
