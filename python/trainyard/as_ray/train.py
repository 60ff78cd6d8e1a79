"""The small names of `ray.train` that Trainyard's own interface has under another form, or not at all."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import Any

from ..context import TrainContext as TrainContext
from ..context import get_context
from ..errors import PreemptionError as PreemptionError
from ..errors import WorkerGroupError
from ..preemption import PreemptionInfo as PreemptionInfo
from ..preemption import get_preemption_info as get_preemption_info
from . import first

TRAIN_DATASET_KEY = "train"


class NCCLHangError(WorkerGroupError):
    """Never raised: a run with `hang_timeout_s` whose workers hang fails with a WorkerGroupError, and their stacks are kept."""


class SessionMisuseError(Exception):
    """Never raised: outside of a training function these calls raise RuntimeError."""


@dataclass
class LoggingConfig:
    """Accepted; Trainyard writes each rank's output to logs/rank-N.log of the run whatever its level."""

    log_level: str = "INFO"

    def __post_init__(self):
        known = logging._nameToLevel
        if not isinstance(self.log_level, str) or self.log_level.upper() not in known:
            raise ValueError(f"Invalid log_level: {self.log_level!r}. Must be one of: {', '.join(map(repr, sorted(known)))}.")
        self.log_level = self.log_level.upper()


@dataclass
class SyncConfig:
    """Accepted where the first Ray Train was; what is reported is always in the storage path when report returns."""

    sync_period: int = 300
    sync_timeout: int = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True


def returned(value: Any) -> Any:
    """What the result has of what a training function returned: nothing in the first Ray Train, else all of it. ValueError where
    there are tensors in it, as in Ray: `Policy.returned`."""
    if first.is_meant():
        return None
    torch = sys.modules.get("torch")
    if torch is not None and _holds(value, (torch.Tensor, torch.nn.Module)):
        raise ValueError(
            "Returning objects containing Torch tensors from the training function is not supported as it will throw an exception "
            "on deserialization. Return numbers or arrays (`.item()`, `.numpy()`), and save tensors in a checkpoint"
        )
    return value


def _holds(value: Any, kinds: tuple[type, ...]) -> bool:
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return isinstance(value, kinds) or any(_holds(part, kinds) for part in parts)


# The functions of `ray.air.session`: methods of the context now.


def get_experiment_name() -> str:
    return get_context().get_experiment_name()


def get_world_rank() -> int:
    return get_context().get_world_rank()


def get_world_size() -> int:
    return get_context().get_world_size()


def get_local_rank() -> int:
    return get_context().get_local_rank()


def get_local_world_size() -> int:
    return get_context().get_local_world_size()


def get_node_rank() -> int:
    return get_context().get_node_rank()


def get_metadata() -> Any:
    return get_context().get_metadata()


def get_trial_name() -> Any:
    return get_context().get_trial_name()


def get_trial_id() -> Any:
    return get_context().get_trial_id()


def get_trial_resources() -> Any:
    return get_context().get_trial_resources()


def get_trial_dir() -> Any:
    return get_context().get_trial_dir()
