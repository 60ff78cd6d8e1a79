"""Columns of numbers brought to one scale."""

from __future__ import annotations

import numpy as np

from ..dataset import Dataset
from .base import ByColumn


class StandardScaler(ByColumn):
    """Mean 0 and deviation 1. A column without deviation becomes 0."""

    def _fit(self, dataset: Dataset) -> None:
        for name, values in self._learn(dataset, self.columns).items():
            self.stats_[f"mean({name})"] = float(np.mean(values))
            self.stats_[f"std({name})"] = float(np.std(values))

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        mean, std = self.stats_[f"mean({name})"], self.stats_[f"std({name})"]
        return (values - mean) / (std if std > 0 else 1)


class MinMaxScaler(ByColumn):
    """From 0 to 1. A column of one value becomes 0."""

    def _fit(self, dataset: Dataset) -> None:
        for name, values in self._learn(dataset, self.columns).items():
            self.stats_[f"min({name})"] = values.min().item()
            self.stats_[f"max({name})"] = values.max().item()

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        low, high = self.stats_[f"min({name})"], self.stats_[f"max({name})"]
        return (values - low) / ((high - low) or 1)


class MaxAbsScaler(ByColumn):
    """From -1 to 1."""

    def _fit(self, dataset: Dataset) -> None:
        for name, values in self._learn(dataset, self.columns).items():
            self.stats_[f"abs_max({name})"] = np.abs(values).max().item()

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        return values / (self.stats_[f"abs_max({name})"] or 1)


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
