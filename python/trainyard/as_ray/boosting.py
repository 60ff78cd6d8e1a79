"""What `ray.train.xgboost` and `ray.train.lightgbm` share: the trainer's arguments, reports of a model as it grows, an iteration
after the other, and the training function of who gives none, as programs of the first Ray Train."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, ClassVar, Mapping, Sequence

from ..checkpoint import Checkpoint
from ..config import RunConfig
from ..context import get_checkpoint, get_context, get_dataset_shard, report
from ..trainer import DataParallelTrainer, _deprecated
from . import first
from .framework_checkpoint import FrameworkCheckpoint

_TRAIN, _ROUNDS = "train", 10  # the data set that is trained on, and how many iterations are made where nobody says


class BoostingTrainer(DataParallelTrainer):
    """Runs one function on every worker, which can train a model with those of the other ranks.

    Without one, in programs of the first Ray Train, the model is trained on the data set "train", whose labels are in
    `label_column`: `num_boost_round` iterations with `params`, those of a checkpoint to resume from among them. `arguments` are the
    library's own `train`'s.
    """

    _reports: ClassVar[type[IterationReports]]

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None,
        *,
        label_column: str | None,
        params: Mapping[str, Any] | None,
        num_boost_round: int | None,
        arguments: dict[str, Any],
        **given: Any,
    ):
        kind = type(self)
        for name, value in (("label_column", label_column), ("params", params), ("num_boost_round", num_boost_round)):
            if value is not None:
                _deprecated(
                    name,
                    f"The legacy {kind.__name__} API is deprecated. Please switch to passing in a custom "
                    "`train_loop_per_worker` function instead, which calls the library's own `train`.",
                )
        self._saves = train_loop_per_worker is None and first.is_meant()
        if self._saves:
            names = _names(given["datasets"], label_column)
            arguments["callbacks"] = kind._callbacks(arguments.get("callbacks"), given["run_config"])
            train_loop_per_worker = _training(kind, names, label_column, num_boost_round or _ROUNDS, arguments)
            given["train_loop_config"] = params
        elif train_loop_per_worker is None:
            raise TypeError(f"{kind.__name__}.__init__() missing 1 required positional argument: 'train_loop_per_worker'")
        elif arguments:
            raise TypeError(f"{kind.__name__}.__init__() got an unexpected keyword argument {next(iter(arguments))!r}")
        super().__init__(train_loop_per_worker, **given)

    @classmethod
    def _callbacks(cls, given: Sequence[Any] | None, run_config: RunConfig | None) -> list[Any]:
        """Those that were given, with one that reports, as often as the config says, where none of them does."""
        callbacks = list(given or ())
        if not any(isinstance(one, cls._reports) for one in callbacks):
            config = (run_config or RunConfig()).checkpoint_config
            at_end = config.checkpoint_at_end is not False
            callbacks.append(cls._reports(frequency=config.checkpoint_frequency or 0, checkpoint_at_end=at_end))
        return callbacks

    @classmethod
    def _train(cls, params: dict[str, Any], data: dict[str, Any], rounds: int, model: Any, **arguments: Any) -> None:
        """Makes so many iterations more, on top of a model or of none, and evaluates on `data`: (features, labels) by name."""
        raise NotImplementedError

    @classmethod
    def _rounds(cls, model: Any) -> int:
        """How many iterations the model has had."""
        raise NotImplementedError

    @classmethod
    def get_model(cls, checkpoint: Checkpoint) -> Any:
        if not first.is_meant():
            raise DeprecationWarning(f"`{cls.__name__}.get_model` is deprecated: use `RayTrainReportCallback.get_model`")
        return cls._reports.get_model(checkpoint)


def _names(datasets: Mapping[str, Any] | None, label_column: str | None) -> list[str]:
    """Of the data sets, that which is trained on first; ValueError where what the training needs was not given."""
    if _TRAIN not in (datasets or {}):
        raise ValueError(f"`datasets` must hold the one to train on as {_TRAIN!r} where there is no `train_loop_per_worker`")
    if not label_column:
        raise ValueError("`label_column` must name the column of the labels where there is no `train_loop_per_worker`")
    return sorted(datasets or {}, key=lambda name: name != _TRAIN)


def _training(
    kind: type[BoostingTrainer], names: list[str], label_column: str | None, rounds: int, arguments: dict[str, Any]
) -> Callable[[dict[str, Any]], None]:
    def train(params: dict[str, Any]) -> None:
        checkpoint = get_checkpoint()
        model = None if checkpoint is None else kind._reports.get_model(checkpoint)
        left = rounds if model is None else rounds - kind._rounds(model)
        frames = {name: get_dataset_shard(name).materialize().to_pandas() for name in names}
        data = {name: (frame.drop(columns=[label_column]), frame[label_column]) for name, frame in frames.items()}
        kind._train(dict(params), data, left, model, **arguments)

    return train


class IterationReports:
    """Reports the metrics of each iteration; rank 0 brings the model every `frequency` of them (0: never), and at the end.

    metrics: names to report, or {name to report: name of the library}; None: all. results_postprocessing_fn: makes of them what is
    reported.
    """

    CHECKPOINT_NAME = ""

    @classmethod
    def get_model(cls, checkpoint: Checkpoint) -> Any:
        """The model that such a callback reported."""
        raise NotImplementedError

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


class ModelCheckpoint(FrameworkCheckpoint):
    """A checkpoint with one model in it."""

    MODEL_FILENAME = ""

    @classmethod
    def from_model(cls, booster: Any, *, preprocessor: Any = None, path: str | None = None) -> Any:
        """In `path`, or a new temporary directory."""
        folder = path or tempfile.mkdtemp(prefix="trainyard-model-")
        booster.save_model(os.path.join(folder, cls.MODEL_FILENAME))
        made = cls.from_directory(folder)
        made._with(preprocessor)
        return made
