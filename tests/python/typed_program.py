"""What programs of users look like, for a type checker that is strict."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Mapping, Sequence, TypedDict

import trainyard
from trainyard import (
    Checkpoint,
    CheckpointConfig,
    CheckpointUploadMode,
    ControllerError,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    UserCallback,
    ValidationConfig,
    ValidationTaskConfig,
    WorkerGroupError,
    collective,
    get_all_reported_checkpoints,
    get_checkpoint,
    get_context,
    get_dataset_shard,
    get_preemption_info,
    heartbeat,
    report,
    stop_requested,
)
from trainyard.data import range as rows
from trainyard.data.expression import Expr, col
from trainyard.jax import JaxConfig, JaxTrainer
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


class Options(TypedDict):
    steps: int
    rate: float


def train_data(config: Options) -> None:
    for batch in get_dataset_shard("train").iter_batches(batch_size=4):
        heartbeat()
        print(config["rate"], batch)
        if stop_requested() or get_preemption_info() is not None:
            break
    with tempfile.TemporaryDirectory() as directory:
        report(
            {"loss": 0.5},
            Checkpoint(directory),
            checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
            validation=ValidationTaskConfig(fn_kwargs={"limit": 3}, timeout_s=60),
        )
    print([(reported.checkpoint.path, reported.metrics) for reported in get_all_reported_checkpoints()])


def by_whole_names() -> int:
    """As those write it who import the package alone."""
    trainer = trainyard.torch.TorchTrainer(train, torch_config=trainyard.torch.TorchConfig(backend="gloo"))
    tools = [trainyard.integrations.WandbCallback(project="a"), trainyard.integrations.TensorBoardCallback()]
    run_config = trainyard.RunConfig(callbacks=tools)
    trainyard.jax.JaxTrainer(train, run_config=run_config).fit()
    trainer.shutdown()
    return trainyard.data.range(3).count()


def kept() -> int:
    doubled: Expr = 1 + col("id") * 2
    wanted: Expr = (col("id") > 3) & ~(doubled == 11) | col("id").is_in([0])
    return rows(10).with_column("twice", doubled).filter(expr=wanted).count()


def validate(checkpoint: Checkpoint, limit: int) -> dict[str, Any]:
    checkpoint.update_metadata({"limit": limit})
    return {"score": len(checkpoint.get_metadata())}


class Tell(UserCallback):
    """All that there is, with the narrowest types that are promised."""

    def on_run_start(self, run_context: Any) -> None:
        print(run_context.run_config.name)

    def on_attempt_start(self, run_context: Any, attempt: int, num_workers: int) -> None:
        print(attempt + num_workers)

    def on_run_end(self, run_context: Any, result: Result | None, error: BaseException | None) -> None:
        print(result.path if result is not None else error)

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        print(metrics, checkpoint)

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        print({rank: str(error) for rank, error in worker_exceptions.items()})


def fit_with(resources: dict[str, int], labels: Sequence[Mapping[str, str]], options: Options) -> Result:
    scaling = ScalingConfig(num_workers=len(labels), resources_per_worker=resources, label_selector=labels)
    validation = ValidationConfig(validate, task_config=ValidationTaskConfig(fn_kwargs={"limit": 1}))
    return TorchTrainer(
        train_data,
        train_loop_config=options,
        scaling_config=scaling,
        datasets={"train": [{"x": 1}]},
        validation_config=validation,
    ).fit()


def told_of(result: Result) -> list[str]:
    failed: Exception | None = result.error
    if isinstance(failed, WorkerGroupError):
        return [f"{rank}: {error}" for rank, error in failed.worker_failures.items()]
    if isinstance(failed, ControllerError):
        return [str(failed.controller_failure)]
    return [f"{attempt.outcome} after {attempt.seconds} s by {attempt.rank}" for attempt in result.history]


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
    JaxTrainer(train, train_loop_config={"steps": 1}, jax_config=JaxConfig(), scaling_config=elastic, run_config=run).fit()
    print(told_of(fit_with({"CPU": 1}, [{"zone": "a"}], {"steps": 1, "rate": 0.1})), told_of(Result.from_path("/tmp/a")))


if __name__ == "__main__":
    main()
