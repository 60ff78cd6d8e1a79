"""Columns joined, filled in, normed, or given to a function of pictures."""

from __future__ import annotations

import collections
from typing import Any, Callable

import numpy as np

from ..block import missing
from ..dataset import Dataset
from .base import ByColumn, Preprocessor, outputs


class Concatenator(Preprocessor):
    """Columns joined to one of vectors, in their place."""

    _is_fittable = False

    def __init__(
        self,
        columns: list[str] | None = None,
        output_column_name: str = "concat_out",
        dtype: Any = None,
        raise_if_missing: bool = False,
        flatten: bool = False,
        exclude: list[str] | None = None,
    ):
        self.columns, self.output_column_name, self.dtype = columns, output_column_name, dtype
        self.raise_if_missing, self.flatten, self.exclude = raise_if_missing, flatten, exclude or []

    def _transform_numpy(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        wanted = (
            self.columns if self.columns is not None else [name for name in data if name not in self.exclude]
        )
        absent = [name for name in wanted if name not in data]
        if absent and self.raise_if_missing:
            raise ValueError(f"Missing columns specified in 'columns': {absent}")
        chosen = [name for name in wanted if name in data]
        parts = [data[name] if data[name].ndim > 1 else data[name][:, None] for name in chosen]
        if self.flatten:
            parts = [part.reshape(len(part), -1) for part in parts]
        made = {name: column for name, column in data.items() if name not in chosen}
        made[self.output_column_name] = np.concatenate(parts, axis=1, dtype=self.dtype)
        return made


class Normalizer(Preprocessor):
    """The columns of each row as a vector of length 1, by the norm "l1", "l2" or "max"."""

    _is_fittable = False
    _NORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "l1": lambda rows: np.abs(rows).sum(axis=1),
        "l2": lambda rows: np.sqrt((rows**2).sum(axis=1)),
        "max": lambda rows: np.abs(rows).max(axis=1),
    }

    def __init__(self, columns: list[str], norm: str = "l2", *, output_columns: list[str] | None = None):
        if norm not in self._NORMS:
            raise ValueError(f"Norm {norm} is not supported.Supported values are: {self._NORMS.keys()}")
        self.columns, self.norm, self.output_columns = columns, norm, outputs(columns, output_columns)

    def _transform_numpy(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = np.stack([data[name] for name in self.columns], axis=1)
        scaled = rows / self._NORMS[self.norm](rows)[:, None]
        return {**data, **{name: scaled[:, i] for i, name in enumerate(self.output_columns)}}


class PowerTransformer(ByColumn):
    """Values nearer to a normal distribution, by the power that is given: "yeo-johnson", or "box-cox" for positive ones."""

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        power: float,
        method: str = "yeo-johnson",
        *,
        output_columns: list[str] | None = None,
    ):
        super().__init__(columns, output_columns)
        if method not in ("yeo-johnson", "box-cox"):
            raise ValueError(
                f"Method {method} is not supported.Supported values are: ['yeo-johnson', 'box-cox']"
            )
        self.power, self.method = power, method

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        values = values.astype(np.float64)
        if self.method == "box-cox":
            return _raised(values, self.power)
        is_low = values < 0
        made = np.where(is_low, 0, values) + 1
        return np.where(is_low, -_raised(np.where(is_low, -values, 0) + 1, 2 - self.power), _raised(made, self.power))


def _raised(values: np.ndarray, power: float) -> np.ndarray:
    return (np.power(values, power) - 1) / power if power else np.log(values)


class OfWords(ByColumn):
    """Takes texts apart, by spaces or a function."""

    def __init__(
        self,
        columns: list[str],
        tokenization_fn: Callable[[str], list[str]] | None = None,
        output_columns: list[str] | None = None,
    ):
        super().__init__(columns, output_columns)
        self.tokenization_fn = tokenization_fn or by_spaces


class Tokenizer(OfWords):
    """The words of each text, by spaces or a function; a missing text stays missing."""

    _is_fittable = False

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        made = np.empty(len(values), dtype=object)
        for row, text in enumerate(values):
            made[row] = None if text is None else list(self.tokenization_fn(text))
        return made


def by_spaces(text: str) -> list[str]:
    return text.split(" ")


class SimpleImputer(ByColumn):
    """Missing values filled in: with the mean, the most frequent one, or a constant."""

    def __init__(
        self,
        columns: list[str],
        strategy: str = "mean",
        fill_value: Any = None,
        *,
        output_columns: list[str] | None = None,
    ):
        super().__init__(columns, output_columns)
        if strategy not in ("mean", "most_frequent", "constant"):
            raise ValueError(
                f"Strategy {strategy} is not supported.Supported values are: ['mean', 'most_frequent', 'constant']"
            )
        if strategy == "constant" and fill_value is None:
            raise ValueError('`fill_value` must be set when using "constant" strategy.')
        self.strategy, self.fill_value = strategy, fill_value
        self._is_fittable = strategy != "constant"

    def _fit(self, dataset: Dataset) -> None:
        for name, values in self._learn(dataset, self.columns).items():
            if not len(values):
                self.stats_[f"{self.strategy}({name})"] = None
            elif self.strategy == "mean":
                self.stats_[f"mean({name})"] = float(np.mean(values))
            else:
                self.stats_[f"most_frequent({name})"] = collections.Counter(values.tolist()).most_common(1)[
                    0
                ][0]

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        value = self.fill_value if self.strategy == "constant" else self.stats_[f"{self.strategy}({name})"]
        if value is None:
            raise ValueError(f"SimpleImputer: the column {name!r} had no values when it was fitted: there is none to fill in")
        gone = missing(values)
        if gone.all():
            return np.full(len(values), value)
        filled = values.copy()
        filled[gone] = value
        return filled

    def _transform_numpy(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """A column that is not there is one of missing values."""
        rows = len(next(iter(data.values()), ()))
        absent = {name: np.full(rows, np.nan) for name in self.columns if name not in data}
        return super()._transform_numpy({**data, **absent})


class TorchVisionPreprocessor(Preprocessor):
    """A transform of torchvision for each picture, or with `batched` for all of a batch at once."""

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        transform: Callable,
        output_columns: list[str] | None = None,
        batched: bool = False,
    ):
        self.columns, self.transform_function = columns, transform
        self.output_columns, self.batched = outputs(columns, output_columns), batched

    def _transform_numpy(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        made = dict(data)
        for name, output in zip(self.columns, self.output_columns):
            images = data[name]
            results = self._called(images) if self.batched else [self._called(image) for image in images]
            made[output] = np.asarray(results)
        return made

    def _called(self, given: np.ndarray) -> np.ndarray:
        import torch

        try:
            return self.transform_function(torch.as_tensor(np.array(given))).numpy()
        except TypeError:  # of a transform that takes arrays, as ToTensor
            return self.transform_function(np.array(given)).numpy()
