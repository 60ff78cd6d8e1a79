"""`ray.train.tensorflow.keras`: reports from inside of Keras' own training loop."""

from __future__ import annotations

import shutil
from typing import Any, Callable, Mapping, Sequence

import tensorflow as tf

from ..context import get_context, report
from .tensorflow import TensorflowCheckpoint

_WITH_INDEX = [f"{what}_{end}" for what in ("epoch", "train_batch", "test_batch", "predict_batch") for end in ("begin", "end")]
_WITHOUT = [f"{what}_{end}" for what in ("train", "test", "predict") for end in ("begin", "end")]


class ReportCheckpointCallback(tf.keras.callbacks.Callback):
    """One of the `callbacks` of a model's `fit`: reports what Keras logs, with a checkpoint of the model.

    checkpoint_on, report_metrics_on: events, as "epoch_end" for Keras' on_epoch_end; with a checkpoint go metrics anyway.
    metrics: names to report, or {name to report: name of Keras}; None: all. Every rank saves the model, as the strategy needs it,
    and rank 0 brings it.
    """

    def __init__(
        self,
        checkpoint_on: str | Sequence[str] = "epoch_end",
        report_metrics_on: str | Sequence[str] = "epoch_end",
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
    ):
        super().__init__()
        self._checkpoint_on = [checkpoint_on] if isinstance(checkpoint_on, str) else list(checkpoint_on)
        self._report_on = [report_metrics_on] if isinstance(report_metrics_on, str) else list(report_metrics_on)
        names = [metrics] if isinstance(metrics, str) else metrics
        self._metrics = names if names is None or isinstance(names, Mapping) else {name: name for name in names}
        for event in (*self._checkpoint_on, *self._report_on):
            if event not in (*_WITH_INDEX, *_WITHOUT):
                raise ValueError(f"Invalid trigger time selected: {event}. Must be one of {[*_WITH_INDEX, *_WITHOUT]}")

    def _happened(self, event: str, logs: Mapping[str, Any] | None) -> None:
        if event not in self._checkpoint_on and event not in self._report_on:
            return
        found = logs or {}
        told = dict(found) if self._metrics is None else {name: found[source] for name, source in self._metrics.items()}
        if event not in self._checkpoint_on:
            report(told)
            return
        checkpoint = TensorflowCheckpoint.from_model(self.model)
        try:
            report(told, checkpoint=checkpoint if get_context().get_world_rank() == 0 else None)
        finally:
            shutil.rmtree(checkpoint.path, ignore_errors=True)


def _with_index(event: str) -> Callable[..., None]:
    return lambda self, index, logs=None: self._happened(event, logs)


def _without(event: str) -> Callable[..., None]:
    return lambda self, logs=None: self._happened(event, logs)


for _made, _events in ((_with_index, _WITH_INDEX), (_without, _WITHOUT)):
    for _event in _events:
        setattr(ReportCheckpointCallback, f"on_{_event}", _made(_event))
