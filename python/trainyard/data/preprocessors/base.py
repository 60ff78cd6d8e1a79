"""What all preprocessors have: fit, transform, their state in `stats_`."""

from __future__ import annotations

import base64
import enum
import pickle
import warnings
from typing import Any, Callable

import numpy as np

from .. import steps
from ..block import Block, of_batch, present
from ..dataset import Dataset


class PreprocessorNotFittedException(RuntimeError):
    """`fit` has not been called."""


class Preprocessor:
    """Derive from it: `_fit` reads a data set and keeps what it learned in `stats_`; `_transform_numpy` takes and gives a dict of
    arrays, or `_transform_pandas` data frames."""

    class FitStatus(str, enum.Enum):
        NOT_FITTABLE = "NOT_FITTABLE"
        NOT_FITTED = "NOT_FITTED"
        PARTIALLY_FITTED = "PARTIALLY_FITTED"
        FITTED = "FITTED"

    MAGIC_CLOUDPICKLE = b"CPKL:"  # what a serialized one begins with

    _is_fittable = True

    def fit_status(self) -> FitStatus:
        if not self._is_fittable:
            return self.FitStatus.NOT_FITTABLE
        return self.FitStatus.FITTED if hasattr(self, "stats_") else self.FitStatus.NOT_FITTED

    @property
    def _fitted(self) -> bool:
        """As Ray's own preprocessors call it."""
        return hasattr(self, "stats_")

    def fit(self, ds: Dataset) -> Preprocessor:
        """Learns from all rows."""
        self._warn_of_fit()
        if self._is_fittable:
            self.stats_: dict[str, Any] = {}
            self._fit(ds)
        return self

    def _warn_of_fit(self) -> None:
        if self.fit_status() in (self.FitStatus.FITTED, self.FitStatus.PARTIALLY_FITTED):
            warnings.warn(
                "`fit` has already been called on the preprocessor (or at least one contained preprocessors if this is a chain). "
                "All previously fitted state will be overwritten!"
            )

    def fit_transform(self, ds: Dataset, **options: Any) -> Dataset:
        return self.fit(ds).transform(ds, **options)

    def transform(self, ds: Dataset, **_: Any) -> Dataset:
        """The data set after this step; PreprocessorNotFittedException before `fit`."""
        self._check_fitted()
        self._check_made()
        return ds._then(steps.Fitted(self))

    def transform_batch(self, data: Any) -> Any:
        """A data frame, a table, or a dict of arrays, in the same form."""
        self._check_fitted()
        block = self.transform_block(of_batch(data, type(self).__name__))
        home = type(data).__module__.partition(".")[0]
        return block.batch(home if home in ("pandas", "pyarrow") else "numpy")

    def _check_fitted(self) -> None:
        if self.fit_status() in (self.FitStatus.NOT_FITTED, self.FitStatus.PARTIALLY_FITTED):
            raise PreprocessorNotFittedException(
                "`fit` must be called before `transform`, or simply use fit_transform() to run both steps"
            )

    def _check_made(self) -> None:
        names = ("transform_block", "_transform_numpy", "_transform_pandas")
        if all(getattr(type(self), name) is getattr(Preprocessor, name) for name in names):
            raise NotImplementedError(
                f"{type(self).__name__} has neither `_transform_numpy` nor `_transform_pandas`"
            )

    def get_input_columns(self) -> list[str]:
        """The names of the columns that it works on."""
        return _names_of(self, "columns", "label_column")

    def get_output_columns(self) -> list[str]:
        """The names of the columns that it makes."""
        return _names_of(self, "output_columns", "output_column", "output_column_name")

    def transform_block(self, block: Block) -> Block:
        if type(self)._transform_pandas is not Preprocessor._transform_pandas:
            return of_batch(self._transform_pandas(block.pandas()), type(self).__name__)
        return of_batch(self._transform_numpy(block.numpy()), type(self).__name__)

    def _fit(self, dataset: Dataset) -> Any:
        raise NotImplementedError

    def _transform_numpy(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def _transform_pandas(self, df: Any) -> Any:
        raise NotImplementedError

    def serialize(self) -> bytes:
        """`deserialize` runs what it names, as unpickling does."""
        import cloudpickle

        return self.MAGIC_CLOUDPICKLE + cloudpickle.dumps(self)

    @staticmethod
    def deserialize(serialized: bytes | str) -> Preprocessor:
        """Of what `serialize` gave, or of the text that it gave earlier."""
        if isinstance(serialized, str):
            return pickle.loads(base64.b64decode(serialized))
        return pickle.loads(serialized.removeprefix(Preprocessor.MAGIC_CLOUDPICKLE))

    def __repr__(self) -> str:
        given = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


# The names that Ray has for what can be serialized: all of them can.
SerializablePreprocessor = SerializablePreprocessorBase = Preprocessor


def _names_of(preprocessor: Preprocessor, *attributes: str) -> list[str]:
    found = next((getattr(preprocessor, name) for name in attributes if getattr(preprocessor, name, None)), [])
    return [found] if isinstance(found, str) else list(found)


def outputs(columns: list[str], output_columns: list[str] | None) -> list[str]:
    """What columns are called when they have been transformed."""
    if output_columns is not None and len(output_columns) != len(columns):
        raise ValueError(
            "Invalid output_columns: Got len(columns) != len(output_columns). The length of columns and output_columns must "
            "match."
        )
    return list(output_columns) if output_columns else list(columns)


class ByColumn(Preprocessor):
    """Each of `columns` becomes the one of `output_columns`, by default itself."""

    def __init__(self, columns: list[str], output_columns: list[str] | None = None):
        if not columns or len(set(columns)) != len(columns):
            raise ValueError(f"`columns` must be names that differ, not {columns!r}")
        self.columns, self.output_columns = list(columns), outputs(columns, output_columns)

    def _learn(self, dataset: Dataset, names: list[str], whole: bool = False) -> dict[str, np.ndarray]:
        """All values of columns, without missing ones; of `whole` columns none is missing: ValueError."""
        found: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for block in dataset.select_columns(names)._blocks():
            for name in names:
                values, gone = present(block.columns[name])
                if whole:
                    self._check_whole(gone, name)
                found[name].append(values)
        return {name: np.concatenate(parts) if parts else np.array([]) for name, parts in found.items()}

    def _check_whole(self, gone: np.ndarray, name: str) -> None:
        if gone.any():
            raise ValueError(
                f"{type(self).__name__}: the column {name!r} has missing values: fill them in with a SimpleImputer before"
            )

    def _transform_numpy(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        made = dict(data)
        for name, output in zip(self.columns, self.output_columns):
            if name not in data:
                raise ValueError(f"{type(self).__name__}: there is no column {name!r}, only {list(data)}")
            made[output] = self._column(data[name], name)
        return made

    def _column(self, values: np.ndarray, name: str) -> np.ndarray:
        raise NotImplementedError


class Chain(Preprocessor):
    """One after the other; each is fitted to what those before it make."""

    def __init__(self, *preprocessors: Preprocessor):
        self.preprocessors = preprocessors

    def fit_status(self) -> Preprocessor.FitStatus:
        states = {one.fit_status() for one in self.preprocessors if one._is_fittable}
        if not states:
            return self.FitStatus.NOT_FITTABLE
        return states.pop() if len(states) == 1 else self.FitStatus.PARTIALLY_FITTED

    def fit(self, ds: Dataset) -> Chain:
        self._warn_of_fit()
        for one in self.preprocessors:
            ds = one.fit_transform(ds)
        return self

    def transform_block(self, block: Block) -> Block:
        for one in self.preprocessors:
            block = one.transform_block(block)
        return block


class BatchMapper(Preprocessor):
    """A function of batches."""

    _is_fittable = False

    def __init__(self, fn: Callable[[Any], Any], batch_format: str = "numpy", batch_size: int | None = None):
        self.fn, self.batch_format, self.batch_size = fn, batch_format, batch_size

    def transform_block(self, block: Block) -> Block:
        return of_batch(self.fn(block.batch(self.batch_format)), "BatchMapper")
