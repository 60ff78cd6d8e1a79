"""What programs of users look like, for a type checker that is strict."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import trainyard
from trainyard import (
    Checkpoint,
    CheckpointConfig,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    UserCallback,
    collective,
    get_checkpoint,
    get_context,
    report,
)
from trainyard.torch import TorchConfig, TorchTrainer


def train(config: dict[str, Any]) -> float:
    context = get_context()
    rank: int = context.get_world_rank()
    size: int = context.get_world_size()
    checkpoint = get_checkpoint()
    start = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            start = int((Path(directory) / "step").read_text())
    for step in range(start, config["steps"]):
        loss = 1.0 / (step + rank + size)
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "step").write_text(str(step))
            report({"loss": loss, "step": step}, checkpoint=Checkpoint.from_directory(directory))
    collective.barrier()
    shared: dict[str, int] = collective.broadcast_from_rank_zero({"a": 1})
    return float(len(shared))


class Tell(UserCallback):
    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        print(metrics, checkpoint)


def main() -> None:
    trainyard.init(num_cpus=4)
    scaling = ScalingConfig(num_workers=2, use_gpu=False, resources_per_worker={"CPU": 1})
    elastic = ScalingConfig(num_workers=(1, 4))
    run = RunConfig(
        name="a",
        storage_path=Path("/tmp"),
        failure_config=FailureConfig(max_failures=3),
        checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"),
        callbacks=[Tell()],
        worker_runtime_env={"env_vars": {"A": "b"}},
        log_limit="100MiB",
    )
    trainer = DataParallelTrainer(train, train_loop_config={"steps": 3}, scaling_config=scaling, run_config=run)
    try:
        result: Result = trainer.fit()
    except TrainingFailedError as error:
        print(error)
        return
    print(result.metrics, result.checkpoint, result.path, elastic)
    print(result.get_best_checkpoint("loss", "min").path)
    for checkpoint, metrics in result.best_checkpoints or []:
        print(checkpoint.path, metrics["loss"])
    TorchTrainer(train, train_loop_config={"steps": 1}, torch_config=TorchConfig(backend="gloo"), scaling_config=scaling).fit()


if __name__ == "__main__":
    main()
