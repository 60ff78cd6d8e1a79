"""Trainyard: run a training function on many workers.

    from trainyard import ScalingConfig, report
    from trainyard.torch import TorchTrainer

    def train(config):
        ...
        report({"loss": loss})

    result = TorchTrainer(train, train_loop_config={"lr": 0.1}, scaling_config=ScalingConfig(num_workers=4)).fit()

In the driver: a trainer (torch.TorchTrainer, jax.JaxTrainer, DataParallelTrainer) with a ScalingConfig, a RunConfig, which holds a
FailureConfig and a CheckpointConfig, and perhaps a ValidationConfig; `init` says for all runs where they go. `fit` gives a Result,
or raises a TrainingFailedError; Result.from_path reads an earlier run.

In the training function: report with a Checkpoint or without, get_context, get_checkpoint, get_dataset_shard,
get_all_reported_checkpoints, stop_requested, get_preemption_info, heartbeat, profile, and `collective`.

`data` has data sets, `integrations` callbacks for W&B, MLflow and TensorBoard; `python -m trainyard.export` brings a run there.

The names below are loaded when they are first used, so that `import trainyard` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all that is here

_HOMES = {
    "callbacks": ("UserCallback",),
    "checkpoint": ("Checkpoint",),
    "config": ("CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig"),
    "context": (
        "get_all_reported_checkpoints",
        "get_dataset_shard",
        "get_checkpoint",
        "get_context",
        "heartbeat",
        "report",
        "stop_requested",
    ),
    "defaults": ("init",),
    "errors": ("ControllerError", "PreemptionError", "TrainingFailedError", "WorkerGroupError"),
    "preemption": ("PreemptionInfo", "get_preemption_info"),
    "profiling": ("profile",),
    "reported": ("CheckpointUploadMode", "ReportedCheckpoint"),
    "result": ("Result",),
    "trainer": ("BackendConfig", "DataParallelTrainer"),
    "validation": ("ValidationConfig", "ValidationTaskConfig"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("collective", "data", "integrations", "jax", "torch")
_BELOW = (  # looked for here by mistake
    "jax.JaxConfig",
    "jax.JaxTrainer",
    "torch.TorchConfig",
    "torch.TorchTrainer",
    "torch.get_device",
    "torch.prepare_data_loader",
    "torch.prepare_model",
)

__version__ = "0.1.0"
__all__ = sorted([*_HOME_OF, "collective"])

if TYPE_CHECKING:
    from typing import Any

    from . import collective as collective
    from . import data as data
    from . import integrations as integrations
    from . import jax as jax
    from . import torch as torch
    from .callbacks import UserCallback as UserCallback
    from .checkpoint import Checkpoint as Checkpoint
    from .config import CheckpointConfig as CheckpointConfig
    from .config import FailureConfig as FailureConfig
    from .config import RunConfig as RunConfig
    from .config import ScalingConfig as ScalingConfig
    from .context import get_all_reported_checkpoints as get_all_reported_checkpoints
    from .context import get_checkpoint as get_checkpoint
    from .context import get_context as get_context
    from .context import get_dataset_shard as get_dataset_shard
    from .context import heartbeat as heartbeat
    from .context import report as report
    from .context import stop_requested as stop_requested
    from .defaults import init as init
    from .errors import ControllerError as ControllerError
    from .errors import PreemptionError as PreemptionError
    from .errors import TrainingFailedError as TrainingFailedError
    from .errors import WorkerGroupError as WorkerGroupError
    from .preemption import PreemptionInfo as PreemptionInfo
    from .preemption import get_preemption_info as get_preemption_info
    from .profiling import profile as profile
    from .reported import CheckpointUploadMode as CheckpointUploadMode
    from .reported import ReportedCheckpoint as ReportedCheckpoint
    from .result import Result as Result
    from .trainer import BackendConfig as BackendConfig
    from .trainer import DataParallelTrainer as DataParallelTrainer
    from .validation import ValidationConfig as ValidationConfig
    from .validation import ValidationTaskConfig as ValidationTaskConfig


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOME_OF:
        value = getattr(import_module("." + _HOME_OF[name], __name__), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return import_module("." + name, __name__)
    missing = import_module(".missing", __name__)
    raise missing.MissingName(__name__, name, [*__all__, *_MODULES, *_BELOW])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
