"""`ray.train.huggingface.transformers` where Transformers is installed: its trainer inside the training function of a TorchTrainer,
which finds the process group and its device in the environment, as under torchrun."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

import torch.utils.data
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from .. import runtime
from ..checkpoint import Checkpoint
from ..collective import barrier
from ..context import get_context, report
from ..data.iterator import Passes


class RayTrainReportCallback(TrainerCallback):
    """Whenever the trainer saves, reports the newest metrics it logged, with a checkpoint that holds a folder `checkpoint`.

    Of the workers of a node that save to one directory the first hands over what all of them have saved.
    """

    CHECKPOINT_NAME = "checkpoint"

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        metrics: dict[str, Any] = {}
        for logged in state.log_history:
            metrics.update(logged)
        barrier()  # every worker has written its part
        newest = get_last_checkpoint(args.output_dir)
        place = repr((get_context().get_node_rank(), newest and os.path.realpath(newest))).encode()
        places = runtime.session("RayTrainReportCallback").gather("transformers", place)
        if newest is None or places.index(place) < get_context().get_world_rank():
            report(metrics)
            return
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(newest, os.path.join(folder, self.CHECKPOINT_NAME))
            report(metrics, checkpoint=Checkpoint.from_directory(folder))


class _Batches(torch.utils.data.IterableDataset[Any]):
    def __init__(self, batches: Passes):
        self._batches = batches

    def __iter__(self) -> Any:
        return iter(self._batches)


def _given_as_they_are(batches: Passes) -> Any:
    return torch.utils.data.DataLoader(_Batches(batches), batch_size=1, collate_fn=lambda given: given[0])


def prepare_trainer(trainer: Any) -> Any:
    """Makes the trainer take the batches of a shard (`iter_torch_batches`), which are this rank's own, as they are. What other data
    sets have its loaders share out among the ranks by themselves."""

    class Prepared(type(trainer)):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            if isinstance(self.train_dataset, Passes):
                return _given_as_they_are(self.train_dataset)
            return super().get_train_dataloader()

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            chosen = self.eval_dataset if eval_dataset is None else eval_dataset
            if isinstance(chosen, str) and isinstance(self.eval_dataset, dict):
                chosen = self.eval_dataset[chosen]
            if isinstance(chosen, Passes):
                return _given_as_they_are(chosen)
            return super().get_eval_dataloader(eval_dataset)

    trainer.__class__ = Prepared
    return trainer
