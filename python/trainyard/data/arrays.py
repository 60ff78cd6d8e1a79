"""Batches as arrays of JAX that all processes of its world have together: the first axis lies over all devices, and each process
brings the rows for its own.

Such an array is made by all processes at once, of parts of one shape. With `synchronize_batches` they tell each other how large
their next batches are, so that none waits for a batch that another does not have; that is a call of the whole world, which the loop
over the batches makes in its own thread, where the calls of the training are made.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterator, Mapping

import numpy as np

from . import tensors
from .block import needed

_ENDED = -1  # in place of a batch's size

Batches = Iterator[tuple[int, Any]]  # the rows of the data set that are in a batch, and the batch


def batch_format(collate: Any) -> str:
    """The form of batch that a collate function asks for; ValueError for one that is none of the three."""
    if collate is None:
        return "numpy"
    kinds = (tensors.ArrowBatchCollateFn, tensors.NumpyBatchCollateFn, tensors.PandasBatchCollateFn)
    if not isinstance(collate, kinds):
        raise ValueError(f"Unsupported collate function: {type(collate)}")
    return collate.batch_format


class Arrays:
    """Hands batches out as arrays. `ahead`: of how many batches the processes tell each other at once."""

    def __init__(
        self, batch_size: int | None, drop_last: bool, dtypes: Any, paddings: Any, synchronize: bool, ahead: int
    ):
        self._jax = needed("jax", "iter_jax_batches")
        self._devices = self._jax.local_device_count()
        if not isinstance(batch_size, (int, np.integer)) or batch_size < 1 or batch_size % self._devices:
            raise ValueError(
                f"The provided batch_size ({batch_size}) must be a positive integer evenly divisible by the number of local JAX "
                f"devices ({self._devices}) on this host."
            )
        self._size, self._drop_last, self._ahead = batch_size, drop_last, ahead
        self._dtypes, self._paddings = dtypes, paddings
        self._synchronize = synchronize and self._jax.process_count() > 1

    def handed(self, batches: Batches) -> Batches:
        """The batches as arrays; one that is there for other processes' sake has no rows."""
        sharding = self._over_all_devices()
        for rows, batch in self._agreed(batches) if self._synchronize else self._alone(batches):
            self._check_divisible(_length(batch))
            yield rows, self._array(batch, sharding)

    def _alone(self, batches: Batches) -> Batches:
        passed = 0  # rows of which nothing was left
        for rows, batch in batches:
            if not _length(batch):
                passed += rows
                continue
            yield rows + passed, batch
            passed = 0

    def _agreed(self, batches: Batches) -> Batches:
        from jax.experimental.multihost_utils import process_allgather

        like = None  # a batch of this process, which what it adds for the others' sake looks like
        while True:
            window = list(itertools.islice(batches, self._ahead))
            sizes = [_length(batch) for _, batch in window] + [_ENDED] * (self._ahead - len(window))
            like = window[0][1] if like is None and window else like
            for i, told in enumerate(np.asarray(process_allgather(np.array(sizes, np.int32))).T):
                if (told == _ENDED).all() or (self._drop_last and (told == _ENDED).any()):
                    return
                self._check_even(told)
                yield window[i] if i < len(window) else (0, self._filler(like))

    def _check_even(self, sizes: np.ndarray) -> None:
        """ValueError where the processes' batches make no array; they are all padded to one size where there are paddings."""
        if self._paddings is not None:
            return
        if (sizes == _ENDED).any():
            raise ValueError(
                "Uneven number of batches detected across JAX workers. To safely drop orphaned batches without hanging, set "
                "`drop_last=True` or provide a `paddings` in `iter_jax_batches()`."
            )
        if sizes.min() < sizes.max():
            raise ValueError(
                f"Uneven batch sizes detected across JAX workers. Host batch sizes range from {sizes.min()} to {sizes.max()}. To "
                "handle uneven batch sizes, provide a `paddings` in `iter_jax_batches()`."
            )

    def _filler(self, like: Any) -> Any:
        if like is None:
            raise ValueError(
                "Cannot create dummy batches for synchronization because this JAX host has not received any data batches to use "
                "as a template: its shard is empty. Give every host at least one batch of data, or `drop_last=True`."
            )
        if isinstance(like, Mapping):
            return {name: tensors.unwrapped(array)[:0] for name, array in like.items()}
        return like[:0]

    def _check_divisible(self, length: int) -> None:
        """ValueError for rows that the devices cannot share evenly, unless they are padded."""
        if self._paddings is None and length % self._devices:
            raise ValueError(
                f"The local batch size ({length}) must be evenly divisible by the number of local JAX devices ({self._devices}) on "
                "this host. To safely truncate or pad the batch, set `drop_last=True` or provide a `paddings` in "
                "`iter_jax_batches()`."
            )

    def _array(self, batch: Any, sharding: Any) -> Any:
        if isinstance(batch, Mapping):
            return {
                name: self._column(array, _of(self._dtypes, name), _of(self._paddings, name), sharding, f" for column {name!r}")
                for name, array in batch.items()
            }
        return self._column(batch, _only(self._dtypes, "dtype"), _only(self._paddings, "padding"), sharding, "")

    def _column(self, array: np.ndarray, dtype: Any, padding: Any, sharding: Any, where: str) -> Any:
        array = tensors.unwrapped(array)
        if self._paddings is not None and len(array) < self._size:
            if padding is None:
                raise ValueError(f"`paddings` of iter_jax_batches() has none{where}")
            added = np.full((self._size - len(array), *array.shape[1:]), padding, array.dtype)
            array = np.concatenate([array, added])
        shape = (len(array) * self._jax.process_count(), *array.shape[1:])
        try:
            made = self._jax.make_array_from_process_local_data(sharding, array, shape)
        except (TypeError, ValueError) as error:
            raise ValueError(f"JAX Array Conversion Error{where}: {error}") from error
        return made if dtype is None else made.astype(dtype)

    def _over_all_devices(self) -> Any:
        from jax.experimental import mesh_utils
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        try:
            devices = mesh_utils.create_device_mesh((self._jax.device_count(),))
        except Exception:  # of devices whose places it does not know
            devices = np.array(self._jax.devices())
        return NamedSharding(Mesh(devices, ("data",)), PartitionSpec("data"))


def _length(batch: Any) -> int:
    return len(next(iter(batch.values()), ())) if isinstance(batch, Mapping) else len(batch)


def _of(given: Any, name: str) -> Any:
    """What is given for this column: by name, or one thing for all."""
    return given.get(name) if isinstance(given, Mapping) else given


def _only(given: Any, what: str) -> Any:
    """What is given for a batch that is one array."""
    if not isinstance(given, Mapping):
        return given
    if len(given) != 1:
        raise ValueError(
            f"When constructing a single-tensor batch, only a single {what} should be given, instead got: {given}"
        )
    return next(iter(given.values()))
