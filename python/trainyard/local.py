"""num_workers=0: the training function runs in this very process; under an outer torchrun as one of its ranks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Mapping

from . import reported, runtime
from .reported import NO_OPTIONS, ReportOptions
from .result import Result

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .reported import CheckpointConsistencyMode, ReportedCheckpoint

TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class LocalSession(runtime.Session):
    """Keeps the last metrics and checkpoint in memory, and nothing else. `torchrun` tells whether an outer torchrun gave
    the ranks."""

    local = True

    def __init__(self, name: str, resources: dict[str, float], torchrun: bool):
        self.run_name = name
        self.resources = resources
        self.torchrun = torchrun
        self.last_metrics: dict[str, Any] | None = None
        self.last_checkpoint: Checkpoint | None = None
        if torchrun:
            self._read_torchrun()

    def _read_torchrun(self) -> None:
        self.world_rank = _number("RANK")
        self.world_size = _number("WORLD_SIZE")
        self.local_rank = _number("LOCAL_RANK")
        self.local_world_size = max(1, _number("LOCAL_WORLD_SIZE"))
        self.node_rank = self.world_rank // self.local_world_size

    def report(
        self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None, options: ReportOptions = NO_OPTIONS
    ) -> None:
        """What a run would refuse is refused here."""
        from . import metrics as checks

        checks.dump(metrics)
        runtime.named(options.name)
        if checkpoint is None and options.validation:
            raise ValueError(runtime.UNVALIDATED)
        if checkpoint is not None:
            from . import upload

            upload.check(checkpoint, options.mode, options.delete, options.function)
        self.last_metrics = metrics
        self.last_checkpoint = checkpoint

    def checkpoint(self) -> Checkpoint | None:
        return self.last_checkpoint

    def checkpoints_reported(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        reported.check(consistency_mode, timeout_s)
        return []

    def gather(self, label: str, piece: bytes) -> list[bytes]:
        """Nobody is asked: what the ranks of a torchrun agree on they agree on by their process group."""
        return [piece] * self.world_size


def _number(name: str) -> int:
    text = os.environ[name]
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} must be a number: torchrun sets it") from None


def under_torchrun() -> bool:
    """Whether all six variables that torchrun sets are there."""
    return all(name in os.environ for name in TORCHRUN)


def run(trainer: Any) -> Result:
    """Runs the function of a trainer with num_workers=0. Exceptions come as they are."""
    from .trainer import call

    backend = trainer.backend_config
    torchrun = backend.reads_torchrun and under_torchrun()
    name = trainer.run_config.name or "local"
    session = LocalSession(name, trainer.scaling_config._resources_per_worker_not_none, torchrun)
    if trainer.datasets:
        if session.world_size != 1:
            raise AssertionError("`datasets` cannot be used under a torchrun of several ranks: give `num_workers` instead")
        session.datasets = trainer.data()
    value = _run_in(session, backend, lambda: call(trainer.train_loop_per_worker, trainer.train_loop_config))
    return Result(session.last_metrics, session.last_checkpoint, None, None, [], return_value=value)


def _run_in(session: LocalSession, backend: Any, function: Any) -> Any:
    outer = runtime.current()
    if outer is not None and not outer.by_itself:
        raise RuntimeError("`fit` with num_workers=0 was called inside of a training function: call the function itself")
    if session.torchrun:
        backend.on_start(session)
    runtime.begin(session)
    try:
        with backend.train_func_context():
            return function()
    finally:
        runtime.end(outer)
        if session.torchrun:
            backend.on_shutdown(session)
