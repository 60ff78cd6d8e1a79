"""`ray.train.lightgbm` where LightGBM is installed: every rank is to listen on a port of its own, and knows those of all.

LightGBM binds the port itself, when training begins, as it cannot be given a socket. Until all ranks of the run have chosen theirs
each is held, so that no two of them are the same; then nothing holds it. The rank's own port is none that the kernel gives to
others meanwhile."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from typing import Any, Callable, Mapping

import lightgbm

from .. import runtime
from ..checkpoint import Checkpoint
from ..config import RunConfig, ScalingConfig, given_or_default
from ..runtime import Session
from ..trainer import BackendConfig
from .boosting import BoostingTrainer, IterationReports, ModelCheckpoint

log = logging.getLogger("trainyard")

_network: dict[str, Any] = {}


class LightGBMConfig(BackendConfig):
    """Nothing can be set."""

    def on_start(self, session: Session) -> None:
        with socket.socket() as held:
            with contextlib.suppress(OSError):  # another's by now
                held.bind(("", int(os.environ.get("TRAINYARD_PORT", 0))))
            if held.getsockname()[1] == 0:
                held.bind(("", 0))
            own = (runtime.node_address(), held.getsockname()[1])
            pieces = session.gather("lightgbm", json.dumps(own).encode())
        machines = ",".join("{}:{}".format(*json.loads(piece)) for piece in pieces)
        _network.update(num_machines=session.world_size, local_listen_port=own[1], machines=machines)


def get_network_params() -> dict[str, Any]:
    """To be added to LightGBM's parameters in the training function: the ranks then train one model on what all of them bring."""
    if not _network:
        log.warning(
            "`get_network_params` was called outside of the training function of a LightGBMTrainer: it knows no other ranks"
        )
    return dict(_network)


class RayTrainReportCallback(IterationReports):
    """One of the `callbacks` of `lightgbm.train`."""

    CHECKPOINT_NAME = "model.txt"

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> lightgbm.Booster:
        """The model that such a callback reported."""
        return _load(checkpoint, filename)

    def __call__(self, env: lightgbm.callback.CallbackEnv) -> None:
        found: dict[str, dict[str, Any]] = {}
        for data, name, value, _, *deviation in env.evaluation_result_list or []:
            found.setdefault(data, {})[f"{name}-mean" if deviation else name] = value
            if deviation:
                found[data][f"{name}-stdv"] = deviation[0]
        is_last = env.iteration == env.end_iteration - 1
        brings = self._is_due(env.iteration) or (is_last and self._checkpoint_at_end)
        self._report(found, env.model if brings else None)


class LightGBMTrainer(BoostingTrainer):
    """Ranks train together where their parameters hold those of `get_network_params()`."""

    _reports = RayTrainReportCallback

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None = None,
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        lightgbm_config: LightGBMConfig | None = None,
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
            backend_config=given_or_default(lightgbm_config, LightGBMConfig, "lightgbm_config"),
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
        normal = {name: (normalize_pandas_for_lightgbm(features), labels) for name, (features, labels) in data.items()}
        sets = [lightgbm.Dataset(features, label=labels) for features, labels in normal.values()]
        lightgbm.train(
            {"tree_learner": "data_parallel", "pre_partition": True, **params, **get_network_params()},
            sets[0],
            num_boost_round=rounds,
            valid_sets=sets,
            valid_names=list(data),
            init_model=model,
            **arguments,
        )

    @classmethod
    def _rounds(cls, model: lightgbm.Booster) -> int:
        return model.current_iteration()


class LightGBMCheckpoint(ModelCheckpoint):
    """A checkpoint with a model of LightGBM's."""

    MODEL_FILENAME = "model.txt"

    def get_model(self) -> lightgbm.Booster:
        return _load(self, self.MODEL_FILENAME)


def _load(checkpoint: Checkpoint, filename: str) -> lightgbm.Booster:
    with checkpoint.as_directory() as folder:
        return lightgbm.Booster(model_file=os.path.join(folder, filename))


def normalize_pandas_for_lightgbm(df: Any) -> Any:
    """Columns of numbers that pyarrow holds, which LightGBM does not take, as pandas' own; others stay as they are."""
    import pandas
    import pyarrow

    types = {}
    for name, dtype in df.dtypes.items():
        if not isinstance(dtype, pandas.ArrowDtype):
            continue
        kind = dtype.pyarrow_dtype
        if pyarrow.types.is_boolean(kind):
            types[name] = "boolean"
        elif pyarrow.types.is_floating(kind):
            types[name] = f"Float{kind.bit_width}"
        elif pyarrow.types.is_integer(kind):
            sign = "U" if pyarrow.types.is_unsigned_integer(kind) else ""
            types[name] = f"{sign}Int{kind.bit_width}"
    return df.astype(types) if types else df
