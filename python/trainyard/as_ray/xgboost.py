"""`ray.train.xgboost` where XGBoost is installed: its ranks find each other by a tracker in rank 0, whose address goes through the
run's store."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import threading
from typing import Any, Callable, Mapping

import xgboost
from xgboost.callback import TrainingCallback

from ..checkpoint import Checkpoint
from ..config import RunConfig, ScalingConfig, given_or_default
from ..runtime import Session
from ..trainer import BackendConfig
from .boosting import BoostingTrainer, IterationReports, ModelCheckpoint

log = logging.getLogger("trainyard")

_FOUND_S = 1800.0  # that ranks wait for the tracker's address, as TorchConfig.timeout_s
_LAST_S = 5.0  # that the tracker has to end


@dataclasses.dataclass
class XGBoostConfig(BackendConfig):
    """How XGBoost's workers talk; there is one way, "rabit"."""

    xgboost_communicator: str = "rabit"

    def __post_init__(self) -> None:
        if self.xgboost_communicator != "rabit":
            raise NotImplementedError(f"Unsupported backend: {self.xgboost_communicator}")
        self._arguments: dict[str, Any] | None = None
        self._tracked: threading.Thread | None = None

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def on_start(self, session: Session) -> None:
        from .. import _core

        key = f"xgboost/{session.attempt}"
        if session.world_rank == 0:
            host = os.environ["MASTER_ADDR"]
            tracker = xgboost.RabitTracker(n_workers=session.world_size, host_ip=host, sortby="task")
            tracker.start()
            self._tracked = threading.Thread(target=tracker.wait_for, name="trainyard-rabit", daemon=True)
            self._tracked.start()
            _core.store_set(key, json.dumps(tracker.worker_args()).encode())
        told = json.loads(_core.store_wait(key, _FOUND_S))
        self._arguments = {**told, "dmlc_task_id": f"{session.world_rank:08}"}  # by which ranks are given

    def train_func_context(self) -> contextlib.AbstractContextManager[Any]:
        if self._arguments is None:
            return contextlib.nullcontext()
        return xgboost.collective.CommunicatorContext(**self._arguments)

    def on_shutdown(self, session: Session) -> None:
        if self._tracked is not None:
            self._tracked.join(_LAST_S)
            if self._tracked.is_alive():
                log.warning("XGBoost's tracker has not ended within %g s", _LAST_S)


class RayTrainReportCallback(IterationReports, TrainingCallback):
    """One of the `callbacks` of `xgboost.train`."""

    CHECKPOINT_NAME = "model.ubj"

    _last: dict[str, dict[str, Any]] = {}
    _brought = -1  # the iteration whose model was reported

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> xgboost.Booster:
        """The model that such a callback reported."""
        return _load(checkpoint, filename)

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> bool:
        self._last = {
            data: {name: values[-1] for name, values in each.items()} for data, each in evals_log.items()
        }
        if self._is_due(epoch):
            self._brought = epoch
        self._report(self._last, model if self._brought == epoch else None)
        return False

    def after_training(self, model: Any) -> Any:
        if self._checkpoint_at_end and model.num_boosted_rounds() - 1 != self._brought:
            self._report(self._last, model)
        return model


class XGBoostTrainer(BoostingTrainer):
    """Inside of the function XGBoost's ranks are those of the run: `xgboost.train` trains one model on what all ranks bring."""

    _reports = RayTrainReportCallback

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None = None,
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        xgboost_config: XGBoostConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: Any = None,
        validation_config: Any = None,
        metadata: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Any = None,
        label_column: str | None = None,
        params: Mapping[str, Any] | None = None,
        num_boost_round: int | None = None,
        **train_kwargs: Any,
    ):
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=given_or_default(xgboost_config, XGBoostConfig, "xgboost_config"),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
            label_column=label_column,
            params=params,
            num_boost_round=num_boost_round,
            arguments=train_kwargs,
        )

    @classmethod
    def _train(cls, params: dict[str, Any], data: dict[str, Any], rounds: int, model: Any, **arguments: Any) -> None:
        made = {name: xgboost.DMatrix(features, label=labels) for name, (features, labels) in data.items()}
        evals = [(one, name) for name, one in made.items()]
        xgboost.train(params, evals[0][0], num_boost_round=rounds, evals=evals, xgb_model=model, **arguments)

    @classmethod
    def _rounds(cls, model: xgboost.Booster) -> int:
        return model.num_boosted_rounds()


class XGBoostCheckpoint(ModelCheckpoint):
    """A checkpoint with a model of XGBoost's."""

    MODEL_FILENAME = "model.json"

    def get_model(self) -> xgboost.Booster:
        return _load(self, self.MODEL_FILENAME)


def _load(checkpoint: Checkpoint, filename: str) -> xgboost.Booster:
    booster = xgboost.Booster()
    with checkpoint.as_directory() as folder:
        booster.load_model(os.path.join(folder, filename))
    return booster
