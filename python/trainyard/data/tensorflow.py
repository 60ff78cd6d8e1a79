"""Batches as tensors of TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping

import numpy as np

from .block import needed
from .tensors import unwrapped

if TYPE_CHECKING:
    from .iterator import DataIterator


def batches(rows: DataIterator, dtypes: Any = None, **options: Any) -> Iterable[Any]:
    """{"column": tensor} for each batch. dtypes: one for all columns, or {"column": one}."""
    tf = needed("tensorflow", "iter_tf_batches")

    def tensors(batch: dict[str, np.ndarray]) -> dict[str, Any]:
        types = dtypes if isinstance(dtypes, Mapping) else dict.fromkeys(batch, dtypes)
        return {name: tf.convert_to_tensor(unwrapped(column), dtype=types.get(name)) for name, column in batch.items()}

    return rows.iter_batches(_finalize_fn=tensors, **options)


def dataset(
    rows: DataIterator,
    feature_columns: Any,
    label_columns: Any,
    *,
    additional_columns: Any = None,
    feature_type_spec: Any = None,
    label_type_spec: Any = None,
    additional_type_spec: Any = None,
    batch_size: int = 1,
    **options: Any,
) -> Any:
    """A `tf.data.Dataset` of (features, labels), or (features, labels, additional): a tensor where a column is named, {"column":
    tensor} for a list of names. A type that is not given is that of the first row; lists are ragged tensors."""
    tf = needed("tensorflow", "to_tf")
    asked = [(feature_columns, feature_type_spec), (label_columns, label_type_spec)]
    if additional_columns is not None:
        asked.append((additional_columns, additional_type_spec))
    if any(spec is None for _, spec in asked):
        sample = rows._shard.dataset.take_batch(1)
        asked = [(columns, _specs(sample, columns) if spec is None else spec) for columns, spec in asked]

    def tuples() -> Iterator[tuple[Any, ...]]:
        for batch in rows.iter_batches(batch_size=batch_size, **options):
            yield tuple(_chosen(batch, columns, spec) for columns, spec in asked)

    made = tf.data.Dataset.from_generator(tuples, output_signature=tuple(spec for _, spec in asked))
    own = tf.data.Options()  # the rows are this rank's already
    own.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return made.with_options(own)


def _chosen(batch: Mapping[str, np.ndarray], columns: Any, spec: Any) -> Any:
    if isinstance(columns, str):
        return _tensor(batch[columns], spec)
    return {name: _tensor(batch[name], spec[name]) for name in columns}


def _tensor(column: np.ndarray, spec: Any) -> Any:
    import tensorflow as tf

    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.ragged.constant([np.asarray(one).tolist() for one in column], dtype=spec.dtype)
    return tf.convert_to_tensor(unwrapped(column), dtype=spec.dtype)


def _specs(sample: Mapping[str, np.ndarray], columns: Any) -> Any:
    if isinstance(columns, str):
        return _spec(sample, columns)
    return {name: _spec(sample, name) for name in columns}


def _spec(sample: Mapping[str, np.ndarray], name: str) -> Any:
    """The type of a column's batches; ValueError for a name that is none."""
    import tensorflow as tf

    if name not in sample:
        raise ValueError(
            f"You specified '{name}' in `feature_columns`, `label_columns`, or `additional_columns`, but there's no column named "
            f"'{name}' in the dataset. Valid column names are: {sorted(sample)}."
        )
    column = sample[name]
    if column.dtype == object and isinstance(column[0], (list, np.ndarray)):
        return tf.RaggedTensorSpec((None, None), dtype=tf.as_dtype(np.asarray(column[0]).dtype))
    return tf.TensorSpec((None, *column.shape[1:]), dtype=tf.as_dtype(column.dtype), name=name)
