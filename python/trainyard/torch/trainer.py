"""TorchTrainer: a training function on workers whose process group stands."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ..config import RunConfig, ScalingConfig, given_or_default
from ..trainer import DataParallelTrainer
from .config import TorchConfig


class TorchTrainer(DataParallelTrainer):
    """Runs one PyTorch function on every worker.

    Before it is called, `torch.distributed` is initialised and the worker's device is the current one; afterwards the
    group is taken down. See DataParallelTrainer for the rest.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        dataset_config: Any = None,
        datasets: Mapping[str, Any] | None = None,
        validation_config: Any = None,
        resume_from_checkpoint: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ):
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=given_or_default(torch_config, TorchConfig, "torch_config").for_function(train_loop_per_worker),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
        )
