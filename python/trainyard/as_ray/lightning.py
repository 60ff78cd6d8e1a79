"""`ray.train.lightning` where Lightning is installed: its trainer inside the training function of a TorchTrainer.

The process group stands already when Lightning's trainer is made, and Lightning takes it as it is; what it must be told is
which rank this is and which device it has.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from typing import Any

try:
    import lightning.pytorch as pl
    from lightning.pytorch.plugins.environments import LightningEnvironment
    from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy
except ModuleNotFoundError:
    import pytorch_lightning as pl
    from pytorch_lightning.plugins.environments import LightningEnvironment
    from pytorch_lightning.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy

from ..checkpoint import Checkpoint
from ..collective import barrier
from ..context import get_context, report
from ..reported import CheckpointUploadMode
from ..torch import get_device
from ..validation import ValidationTaskConfig
from . import first


def import_lightning() -> Any:
    """Lightning, by the name under which it is installed."""
    return pl


class RayLightningEnvironment(LightningEnvironment):
    """The ranks as the run has them."""

    def world_size(self) -> int:
        return get_context().get_world_size()

    def global_rank(self) -> int:
        return get_context().get_world_rank()

    def local_rank(self) -> int:
        return get_context().get_local_rank()

    def node_rank(self) -> int:
        return get_context().get_node_rank()

    def set_world_size(self, size: int) -> None:
        """The run sets it."""

    def set_global_rank(self, rank: int) -> None:
        """The run sets it."""

    def teardown(self) -> None:
        """The run takes the process group down."""


class _OwnDevice:
    """What the three strategies share: the device of this worker, and samplers over all of them."""

    @property
    def root_device(self) -> Any:
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, int]:
        return {"num_replicas": self.world_size, "rank": self.global_rank}


class RayDDPStrategy(_OwnDevice, DDPStrategy):
    """DistributedDataParallel on the worker's device."""


class RayFSDPStrategy(_OwnDevice, FSDPStrategy):
    """FullyShardedDataParallel on the worker's device."""


class RayDeepSpeedStrategy(_OwnDevice, DeepSpeedStrategy):
    """DeepSpeed on the worker's device."""

    def setup_environment(self) -> None:
        self.parallel_devices = [self.root_device]
        super().setup_environment()


class RayTrainReportCallback(pl.callbacks.Callback):
    """At the end of each training epoch reports the trainer's metrics, with a checkpoint that holds checkpoint.ckpt.

    checkpoint_upload_mode (SYNC where it is None) and validation are those of `report`. tmpdir_prefix: where checkpoints are until
    they are on their way."""

    CHECKPOINT_NAME = "checkpoint.ckpt"

    def __init__(
        self,
        checkpoint_upload_mode: CheckpointUploadMode | None = None,
        validation: bool | ValidationTaskConfig = False,
    ):
        super().__init__()
        given = {"checkpoint_upload_mode": checkpoint_upload_mode, "validation": validation}
        for name, value in given.items():
            if value and first.is_meant():
                raise ValueError(f"`{name}` is only supported in Ray Train v2: RAY_TRAIN_V2_ENABLED is 0")
        self.checkpoint_upload_mode = checkpoint_upload_mode or CheckpointUploadMode.SYNC
        self.validation = validation
        self.tmpdir_prefix = os.path.join(tempfile.gettempdir(), f"lightning_checkpoints-{uuid.uuid4().hex}")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        metrics.update(epoch=trainer.current_epoch, step=trainer.global_step)
        folder = os.path.join(self.tmpdir_prefix, str(trainer.current_epoch))
        os.makedirs(folder, mode=0o700, exist_ok=True)
        try:
            trainer.save_checkpoint(os.path.join(folder, self.CHECKPOINT_NAME), weights_only=False)
            report(
                metrics,
                checkpoint=Checkpoint.from_directory(folder),
                checkpoint_upload_mode=self.checkpoint_upload_mode,
                validation=self.validation,
            )
        finally:
            if self.checkpoint_upload_mode is CheckpointUploadMode.SYNC:  # else `report` has what becomes of it
                shutil.rmtree(self.tmpdir_prefix)
        barrier()


def prepare_trainer(trainer: Any) -> Any:
    """The trainer as it is; RuntimeError unless it has one of the strategies above and RayLightningEnvironment."""
    if not isinstance(trainer.strategy, _OwnDevice):
        raise RuntimeError(
            f"Invalid strategy class: {type(trainer.strategy).__name__}; give the trainer RayDDPStrategy, RayFSDPStrategy or "
            "RayDeepSpeedStrategy"
        )
    environment = trainer.strategy.cluster_environment
    if environment is not None and not isinstance(environment, RayLightningEnvironment):
        raise RuntimeError(
            f"Invalid cluster environment plugin: {type(environment).__name__}; give the trainer "
            "plugins=[RayLightningEnvironment()]"
        )
    return trainer
