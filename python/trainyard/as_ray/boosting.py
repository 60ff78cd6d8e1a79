"""What `ray.train.xgboost` and `ray.train.lightgbm` share: the trainer's arguments, and reports of a model as it grows, an
iteration after the other."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, Mapping, Sequence

from ..checkpoint import Checkpoint
from ..context import get_context, report
from ..trainer import DataParallelTrainer, _deprecated


class BoostingTrainer(DataParallelTrainer):
    """Runs one function on every worker, which can train a model with those of the other ranks."""

    @classmethod
    def _refuse_legacy(cls, **given: Any) -> None:
        """DeprecationWarning for an argument of the trainers that trained a model by themselves."""
        for name, value in given.items():
            if value is not None:
                _deprecated(
                    name,
                    f"The legacy {cls.__name__} API is deprecated. Please switch to passing in a custom "
                    "`train_loop_per_worker` function instead, which calls the library's own `train`.",
                )

    @classmethod
    def get_model(cls, checkpoint: Checkpoint) -> Any:
        raise DeprecationWarning(
            f"`{cls.__name__}.get_model` is deprecated: use `RayTrainReportCallback.get_model`"
        )


class IterationReports:
    """Reports the metrics of each iteration; rank 0 brings the model every `frequency` of them (0: never), and at the end.

    metrics: names to report, or {name to report: name of the library}; None: all. results_postprocessing_fn: makes of them what is
    reported.
    """

    CHECKPOINT_NAME = ""

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        filename: str | None = None,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ):
        self._metrics = [metrics] if isinstance(metrics, str) else metrics
        self._filename = filename or self.CHECKPOINT_NAME
        self._frequency = frequency
        self._checkpoint_at_end = checkpoint_at_end
        self._process = results_postprocessing_fn

    def _is_due(self, iteration: int) -> bool:
        return self._frequency > 0 and (iteration + 1) % self._frequency == 0

    def _report(self, found: Mapping[str, Mapping[str, Any]], model: Any = None) -> None:
        """`found`: the metrics of each data set; told as "DATA-METRIC"."""
        flat = {f"{data}-{name}": value for data, each in found.items() for name, value in each.items()}
        if isinstance(self._metrics, Mapping):
            flat = {name: flat[source] for name, source in self._metrics.items()} or flat
        elif self._metrics:
            flat = {name: flat[name] for name in self._metrics}
        if self._process is not None:
            flat = self._process(flat)
        if model is None or get_context().get_world_rank() != 0:
            report(flat)
            return
        with tempfile.TemporaryDirectory() as folder:
            model.save_model(os.path.join(folder, self._filename))
            report(flat, checkpoint=Checkpoint.from_directory(folder))


class ModelCheckpoint(Checkpoint):
    """A checkpoint with one model in it."""

    MODEL_FILENAME = ""

    @classmethod
    def from_model(cls, booster: Any, *, preprocessor: Any = None, path: str | None = None) -> Any:
        """In `path`, or a new temporary directory."""
        if preprocessor is not None:
            raise ValueError("`preprocessor` is not provided: prepare the data before the model sees it")
        folder = path or tempfile.mkdtemp(prefix="trainyard-model-")
        booster.save_model(os.path.join(folder, cls.MODEL_FILENAME))
        return cls.from_directory(folder)
