"""Words of texts, and numbers by names, as vectors."""

from __future__ import annotations

import collections
import hashlib
from typing import Any, Callable

import numpy as np

from ..block import missing
from ..dataset import Dataset
from .base import Preprocessor
from .columns import OfWords


def _place(value: Any, places: int) -> int:
    """The same in all processes, and on all machines."""
    return int(hashlib.sha256(str(value).encode()).hexdigest(), 16) % places


class _Counted(OfWords):
    def _words(self, values: np.ndarray) -> list[collections.Counter[str]]:
        """How often each word is in each text; a missing one has none."""
        return [
            collections.Counter(() if is_gone else self.tokenization_fn(text))
            for text, is_gone in zip(values, missing(values))
        ]


class CountVectorizer(_Counted):
    """How often each word is in a text: the words that were there when it was fitted, those that are there most often first."""

    def __init__(
        self,
        columns: list[str],
        tokenization_fn: Callable[[str], list[str]] | None = None,
        max_features: int | None = None,
        *,
        output_columns: list[str] | None = None,
    ):
        """max_features: how many words of a column count."""
        super().__init__(columns, tokenization_fn, output_columns)
        self.max_features = max_features

    def _fit(self, dataset: Dataset) -> None:
        for name, values in self._learn(dataset, self.columns).items():
            counted = sum(self._words(values), collections.Counter[str]())
            self.stats_[f"token_counts({name})"] = collections.Counter(dict(counted.most_common(self.max_features)))

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        known = [word for word, _ in self.stats_[f"token_counts({name})"].most_common()]
        rows = [[words[word] for word in known] for words in self._words(values)]
        return np.array(rows, dtype=np.int64).reshape(len(values), len(known))


class HashingVectorizer(_Counted):
    """How often words are in a text, at `num_features` places: the place of a word is a hash of it, and some share one."""

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        num_features: int,
        tokenization_fn: Callable[[str], list[str]] | None = None,
        *,
        output_columns: list[str] | None = None,
    ):
        super().__init__(columns, tokenization_fn, output_columns)
        self.num_features = num_features

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        vectors = np.zeros((len(values), self.num_features), dtype=np.int64)
        for row, words in enumerate(self._words(values)):
            for word, count in words.items():
                vectors[row, _place(word, self.num_features)] += count
        return vectors


class FeatureHasher(Preprocessor):
    """The numbers of several columns in one vector, each at the place that is a hash of the column's name."""

    _is_fittable = False

    def __init__(self, columns: list[str], num_features: int, output_column: str):
        self.columns, self.num_features, self.output_column = columns, num_features, output_column

    def _transform_numpy(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        vectors = np.zeros((len(data[self.columns[0]]), self.num_features))
        for name in self.columns:
            vectors[:, _place(name, self.num_features)] += data[name]
        return {**data, self.output_column: vectors}
