"""Batches as tensors of torch."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Mapping

import numpy as np

from .block import needed, of_table


class CollateFn:
    """Makes of a batch what a training loop gets. Derive from one of those below, by the form that the batch is to have."""

    batch_format = "numpy"

    def __call__(self, batch: Any) -> Any:
        raise NotImplementedError


class NumpyBatchCollateFn(CollateFn):
    pass


class PandasBatchCollateFn(CollateFn):
    batch_format = "pandas"


class ArrowBatchCollateFn(CollateFn):
    batch_format = "pyarrow"


class DefaultCollateFn(ArrowBatchCollateFn):
    """Each column of a table as a tensor, or, without `combine_chunks`, as a list of them, which the iterator joins."""

    def __init__(self, dtypes: Any = None, combine_chunks: bool = False, num_workers: int = 0):
        self.dtypes, self.combine_chunks = dtypes, combine_chunks

    def __call__(self, batch: Any) -> dict[str, Any]:
        return arrow_batch_to_tensors(batch, self.dtypes, self.combine_chunks)


def arrow_batch_to_tensors(
    batch: Any, dtypes: Any = None, combine_chunks: bool = False, pin_memory: bool = False, threadpool: Any = None
) -> dict[str, Any]:
    """As DefaultCollateFn, by a function."""
    made = of_columns(of_table(batch).numpy(), dtypes)
    if pin_memory:
        made = {name: one.pin_memory() for name, one in made.items()}
    return made if combine_chunks else {name: [one] for name, one in made.items()}


def of_columns(batch: Mapping[str, np.ndarray], dtypes: Any = None) -> dict[str, Any]:
    """Each column as a tensor, of a type by its name, or all of one."""
    types = dtypes if isinstance(dtypes, Mapping) else dict.fromkeys(batch, dtypes)
    return {name: tensor(array, types.get(name), name) for name, array in batch.items()}


def tensor(array: np.ndarray, dtype: Any = None, name: str = "") -> Any:
    """RuntimeError for what is no numbers, or of several shapes."""
    torch = needed("torch", "iter_torch_batches")
    array = unwrapped(array)
    if array.dtype.kind not in "biufc":
        raise RuntimeError(
            f"Numpy array of object dtype cannot be converted to a Torch Tensor: the column {name!r} holds {array.dtype} (text, or "
            "arrays of different sizes). Leave it out by select_columns or drop_columns, or give a `collate_fn`."
        )
    if array.dtype in (np.uint16, np.uint32, np.uint64) and not hasattr(torch, str(array.dtype)):  # before torch 2.3
        array = array.astype({2: np.int32, 4: np.int64, 8: np.int64}[array.dtype.itemsize])
    # What cannot be written to is memory of the data set itself.
    made = torch.from_numpy(array) if array.flags.writeable else torch.tensor(array)
    return made if dtype is None else made.to(dtype)


def unwrapped(array: np.ndarray) -> np.ndarray:
    """Lists of one length become rows of an array; other arrays stay."""
    if array.dtype != object:
        return array
    try:
        made = np.stack([np.asarray(one) for one in array]) if len(array) else array
    except ValueError:
        return array
    return made


def collating(collate: Any, dtypes: Any, pin: bool) -> tuple[str, Callable[[Any], Any]]:
    """The form of batch, and what makes tensors of it."""
    needed("torch", "iter_torch_batches")
    if collate is None:
        collate = functools.partial(of_columns, dtypes=dtypes)
    elif not callable(collate):
        raise ValueError(f"Unsupported collate function: {type(collate)}")
    form = getattr(collate, "batch_format", "numpy")
    if not pin:
        return form, collate
    return form, lambda batch: moved(collate(batch), lambda one: one.pin_memory())


def mover(device: Any) -> Callable[[Any], Any]:
    """Moves what is collated: "auto" is the worker's device, or the processor outside of one."""
    torch = needed("torch", "iter_torch_batches")
    if device == "auto":
        from .. import runtime
        from ..torch import get_device

        device = get_device() if runtime.in_session() else torch.device("cpu")
    target = torch.device(device) if device is not None else torch.device("cpu")
    return lambda batch: moved(joined(batch), lambda one: one.to(target, non_blocking=True))


def joined(batch: Any) -> Any:
    """One tensor for each part of a batch, by name or in a sequence, that is a sequence of them, as chunks of a column are."""
    import torch

    def are_tensors(part: Any) -> bool:
        return isinstance(part, (list, tuple)) and bool(part) and all(isinstance(one, torch.Tensor) for one in part)

    if isinstance(batch, Mapping) and batch and all(map(are_tensors, batch.values())):
        return {name: torch.cat(list(part)) for name, part in batch.items()}
    if type(batch) in (list, tuple) and batch and all(map(are_tensors, batch)):
        return type(batch)(torch.cat(list(part)) for part in batch)
    return batch


def moved(batch: Any, move: Callable[[Any], Any]) -> Any:
    """Tensors, in dicts, lists and tuples too; anything else stays."""
    import torch

    if isinstance(batch, torch.Tensor):
        return move(batch)
    if isinstance(batch, Mapping):
        return {name: moved(one, move) for name, one in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(moved(one, move) for one in batch)
    return batch


class Pairs:
    """Features and label of a batch, as `to_torch` gives them."""

    def __init__(
        self,
        label: str | None,
        features: Any,
        label_dtype: Any,
        feature_dtypes: Any,
        unsqueeze_label: bool,
        unsqueeze: bool,
    ):
        self.label, self.features, self.label_dtype, self.feature_dtypes = (
            label,
            features,
            label_dtype,
            feature_dtypes,
        )
        self.unsqueeze_label, self.unsqueeze = unsqueeze_label, unsqueeze

    def __call__(self, batch: dict[str, np.ndarray]) -> tuple[Any, Any]:
        label = None
        if self.label is not None:
            label = self._joined(batch, [self.label], self.label_dtype, self.unsqueeze_label)
        names = [name for name in batch if name != self.label]
        return self._of(batch, self.features if self.features is not None else names), label

    def _of(self, batch: dict[str, np.ndarray], names: Any) -> Any:
        types = self.feature_dtypes
        if isinstance(names, Mapping):
            chosen = {key: types.get(key) if isinstance(types, Mapping) else types for key in names}
            return {
                key: self._joined(batch, list(group), chosen[key], self.unsqueeze)
                for key, group in names.items()
            }
        if names and isinstance(names[0], (list, tuple)):
            each = types if isinstance(types, (list, tuple)) else [types] * len(names)
            return [
                self._joined(batch, list(group), dtype, self.unsqueeze) for group, dtype in zip(names, each)
            ]
        return self._joined(batch, list(names), types, self.unsqueeze)

    def _joined(self, batch: dict[str, np.ndarray], names: list[str], dtype: Any, unsqueeze: bool) -> Any:
        import torch

        tensors = [tensor(batch[name], dtype, name) for name in names]
        tensors = [one.unsqueeze(1) for one in tensors] if unsqueeze else tensors
        return torch.cat(tensors, dim=1) if len(tensors) > 1 else tensors[0]


def iterable(batches: Iterable[Any], made: Callable[[Any], Any]) -> Any:
    torch = needed("torch.utils.data", "to_torch")

    class Batches(torch.IterableDataset):
        def __iter__(self) -> Any:
            return (made(batch) for batch in batches)

    return Batches()
