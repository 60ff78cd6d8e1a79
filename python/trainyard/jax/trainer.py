"""JaxTrainer: a training function on workers that are processes of one JAX world."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ..config import RunConfig, ScalingConfig, given_or_default
from ..trainer import DataParallelTrainer
from .config import JaxConfig


class JaxTrainer(DataParallelTrainer):
    """Runs one JAX function on every worker.

    With several workers `jax.distributed` is initialised before it is called. Import jax inside of the function: in the
    driver it could take devices that the workers need. See DataParallelTrainer for the rest.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        jax_config: JaxConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: Any = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        validation_config: Any = None,
    ):
        scaling = given_or_default(scaling_config, ScalingConfig, "scaling_config")
        default = JaxConfig(use_tpu=scaling.use_tpu, use_gpu=scaling.use_gpu)
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=given_or_default(jax_config if jax_config is not None else default, JaxConfig, "jax_config"),
            scaling_config=scaling,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
        )
