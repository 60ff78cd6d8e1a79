"""DataIterator: goes over a data set, or over one rank's shard of it, again and again: in batches, tensors or rows.

What is read ahead is read by a thread, which lives as long as an iteration. Every iteration is an epoch: orders that are drawn are
drawn anew. `state_dict` says how far the current one is, and `load_state_dict` lets the next one go on from there.
"""

from __future__ import annotations

import importlib.util
import queue
import threading
from typing import Any, Callable, Generator, Iterable, Iterator

import numpy as np

from .block import Block, check_format, rebatched
from .not_provided import refuse
from .shards import Mixing, Shard

_END = object()


class DataIterator:
    """`shard` says which blocks there are."""

    def __init__(self, shard: Shard):
        self._shard = shard

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: str | None = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        _collate_fn: Callable[[Any], Any] | None = None,
        _finalize_fn: Callable[[Any], Any] | None = None,
    ) -> Iterable[Any]:
        """Batches of `batch_size` rows, None for blocks as they are: {"column": array} ("default", "numpy"), a data frame
        ("pandas") or a table ("pyarrow"). Arrays may be views of the data set, which cannot be written to.

        With a shuffle buffer the rows of a batch are drawn from at least so many that are held in memory.
        """
        check_format(batch_format)
        _check(batch_size, local_shuffle_buffer_size)
        options = _Batching(
            batch_size, batch_format, drop_last, local_shuffle_buffer_size, local_shuffle_seed
        )

        def handed(batches: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
            for rows, batch in batches:
                yield rows, _finalize_fn(batch) if _finalize_fn else batch

        return Passes(lambda: self._run(options, prefetch_batches, _collate_fn, handed))

    def _run(
        self, options: _Batching, prefetch: int, collate: Callable | None, handed: Callable
    ) -> Iterator[Any]:
        """`handed` makes of (rows, batch) what is given away; it may look ahead, and what has no rows does not count."""
        pass_ = self._shard.begin(options.mixing)

        def made() -> Iterator[tuple[int, Any]]:
            for block in options.batches(pass_.blocks()):
                batch = block.batch(options.format)
                yield block.rows, collate(batch) if collate else batch

        batches = read_ahead(made, prefetch)
        try:
            for rows, batch in handed(batches):
                pass_.gave(rows)
                yield batch
            pass_.ended()
        finally:
            batches.close()

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        """Row by row."""
        return Passes(self._records)

    def _records(self) -> Iterator[dict[str, Any]]:
        pass_ = self._shard.begin()
        blocks = read_ahead(pass_.blocks, 1)
        try:
            for block in blocks:
                for record in block.records():
                    pass_.gave(1)
                    yield record
            pass_.ended()
        finally:
            blocks.close()

    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        pin_memory: bool = False,
    ) -> Iterable[Any]:
        """Batches of tensors, on the worker's device ("auto"): {"column": tensor}, or what `collate_fn` makes of the arrays."""
        from . import tensors

        if collate_fn is not None and dtypes is not None:
            raise ValueError(
                "collate_fn cannot be used with dtypes. You should manually move the output Torch tensors to the desired dtype."
            )
        form, collate = tensors.collating(collate_fn, dtypes, pin_memory)
        return self.iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            batch_format=form,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
            _collate_fn=collate,
            _finalize_fn=tensors.mover(device),
        )

    def to_torch(
        self,
        *,
        label_column: str | None = None,
        feature_columns: Any = None,
        label_column_dtype: Any = None,
        feature_column_dtypes: Any = None,
        batch_size: int = 1,
        prefetch_batches: int = 1,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        unsqueeze_label_tensor: bool = True,
        unsqueeze_feature_tensors: bool = True,
    ) -> Any:
        """A `torch.utils.data.IterableDataset` of pairs: features, and the label (None without a label column)."""
        from . import tensors

        batches = self.iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
        )
        pairs = tensors.Pairs(
            label_column, feature_columns, label_column_dtype, feature_column_dtypes,
            unsqueeze_label_tensor, unsqueeze_feature_tensors,
        )  # fmt: skip
        return tensors.iterable(batches, pairs)

    def iter_jax_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int = 256,
        dtypes: Any = None,
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        synchronize_batches: bool = False,
        paddings: Any = None,
    ) -> Iterable[Any]:
        """Batches of JAX's arrays, over the devices of all processes: {"column": array}, or what `collate_fn` makes, an array or a
        dict of them. `batch_size` are the rows of each process, a multiple of its devices.

        dtypes, paddings: one for all columns, or {"column": one}. With paddings a batch that is smaller is filled up with them.
        synchronize_batches: the processes compare sizes first, where they are not known to have as many batches as each other:
        what is uneven is an error, and with paddings made even; with `drop_last` all end with the first that ends.
        """
        from . import arrays

        form = arrays.batch_format(collate_fn)
        made = arrays.Arrays(
            batch_size, drop_last, dtypes, paddings, synchronize_batches, max(prefetch_batches, 1)
        )
        _check(batch_size, local_shuffle_buffer_size)
        options = _Batching(batch_size, form, drop_last, local_shuffle_buffer_size, local_shuffle_seed)
        return Passes(lambda: self._run(options, prefetch_batches, collate_fn, made.handed))

    def iter_tf_batches(self, **options: Any) -> Iterable[Any]:
        """Batches of TensorFlow's tensors, {"column": tensor}: `tensorflow.batches`."""
        return self._in_tensorflow("iter_tf_batches").batches(self, **options)

    def to_tf(self, *columns: Any, **options: Any) -> Any:
        """A `tf.data.Dataset` of pairs, features and labels: `tensorflow.dataset`."""
        return self._in_tensorflow("to_tf").dataset(self, *columns, **options)

    @staticmethod
    def _in_tensorflow(method: str) -> Any:
        """The module with what needs TensorFlow; NotImplementedError where that is not installed."""
        if importlib.util.find_spec("tensorflow") is None:
            refuse(method, "DataIterator")
        from . import tensorflow

        return tensorflow

    def materialize(self) -> Any:
        """The rows of this shard, in memory."""
        from .dataset import MaterializedDataset

        return MaterializedDataset.holding(list(self._shard.begin().blocks()))

    def schema(self) -> Any:
        return self._shard.dataset.schema()

    def stats(self) -> str:
        return self._shard.dataset.stats()

    def get_context(self) -> Any:
        return self._shard.dataset.context

    def world_size(self) -> int:
        """Among how many the data set is divided."""
        return self._shard.ranks

    def state_dict(self) -> dict[str, Any]:
        """How far this rank is: the epoch, and the rows that it was given in it. Small, and the same on all ranks that were given
        as many rows; report it with a checkpoint."""
        return self._shard.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from there, also among another number of ranks."""
        self._shard.go_on(state)

    def __getattr__(self, name: str) -> Any:
        refuse(name, "DataIterator")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            f"`{type(self).__name__}` objects aren't iterable. To iterate records, call `iter_rows()` or `iter_batches()`."
        )

    def __repr__(self) -> str:
        return f"DataIterator({self._shard.dataset!r})"


class Passes:
    """Rows or batches of a shard: every `iter` of it begins anew."""

    def __init__(self, begin: Callable[[], Iterator[Any]]):
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


def _check(batch_size: int | None, buffer_size: int | None) -> None:
    for name, value in (("batch_size", batch_size), ("local_shuffle_buffer_size", buffer_size)):
        if value is not None and (not isinstance(value, (int, np.integer)) or value < 1):
            raise ValueError(f"`{name}` must be a positive number or None, not {value!r}")
    if batch_size is None and buffer_size is not None:
        raise ValueError(
            "`batch_size` must be specified when using a local shuffle buffer (`local_shuffle_buffer_size`)"
        )


class _Batching:
    """How blocks become batches."""

    def __init__(
        self, size: int | None, form: str | None, drop_last: bool, buffer: int | None, seed: int | None
    ):
        self.size, self.format, self.drop_last = size, form, drop_last
        self.mixing = None
        if buffer is not None and size is not None:
            self.mixing = Mixing(int(buffer), int(size), None if seed is None else int(seed))

    def batches(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in rebatched(blocks, self.size):
            if self.size is None or block.rows == self.size or not self.drop_last:
                yield block


def read_ahead(make: Callable[[], Iterator[Any]], ahead: int) -> Generator[Any, None, None]:
    """What `make()` gives, of which a thread makes up to `ahead` things before they are asked for; 0 is without a thread."""
    if not isinstance(ahead, (int, np.integer)) or ahead < 0:
        raise ValueError(f"`prefetch_batches` must be a whole number, 0 or more, not {ahead!r}")
    if ahead == 0:
        yield from make()
        return
    ready: queue.Queue[Any] = queue.Queue(ahead)
    left = threading.Event()
    thread = threading.Thread(target=_fill, args=(make, ready, left), name="trainyard-data", daemon=True)
    thread.start()
    try:
        while True:
            thing = ready.get()
            if thing is _END:
                return
            if isinstance(thing, _Raised):
                raise thing.error
            yield thing
    finally:
        left.set()
        while not ready.empty():  # the thread may wait for room
            ready.get_nowait()


class _Raised:
    def __init__(self, error: BaseException):
        self.error = error


def _fill(make: Callable[[], Iterator[Any]], ready: queue.Queue, left: threading.Event) -> None:
    things = make()
    try:
        for thing in things:
            if not _put(ready, thing, left):
                return
        _put(ready, _END, left)
    except BaseException as error:
        _put(ready, _Raised(error), left)
    finally:
        close = getattr(things, "close", None)
        if close is not None:
            close()


def _put(ready: queue.Queue, thing: Any, left: threading.Event) -> bool:
    """False once nobody takes anything any more."""
    if left.is_set():
        return False
    ready.put(thing)  # whoever leaves makes room
    return True
