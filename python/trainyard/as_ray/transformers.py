"""`ray.train.huggingface.transformers` where Transformers is installed: its trainer inside the training function of a TorchTrainer,
which finds the process group and its device in the environment, as under torchrun."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from ..checkpoint import Checkpoint
from ..collective import barrier
from ..context import get_context, report


class RayTrainReportCallback(TrainerCallback):
    """Whenever the trainer saves, reports the newest metrics it logged, with a checkpoint that holds a folder `checkpoint`.

    The first worker of each node hands over what the workers of the node have saved.
    """

    CHECKPOINT_NAME = "checkpoint"

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        metrics: dict[str, Any] = {}
        for logged in state.log_history:
            metrics.update(logged)
        barrier()  # every worker has written its part
        newest = get_last_checkpoint(args.output_dir) if get_context().get_local_rank() == 0 else None
        if newest is None:
            report(metrics)
            return
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(newest, os.path.join(folder, self.CHECKPOINT_NAME))
            report(metrics, checkpoint=Checkpoint.from_directory(folder))


def prepare_trainer(trainer: Any) -> Any:
    """The trainer as it is: its data loaders share the data out among the ranks by themselves."""
    return trainer
