"""Callbacks: what a user wants to be called for, in the driver."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .result import Result

ENVIRONMENT = "RAY_TRAIN_CALLBACKS"


class RayTrainCallback:
    """The base of all callbacks."""


class UserCallback(RayTrainCallback):
    """Derive from it, and give instances to `RunConfig(callbacks=[...])`. The methods run in the driver, and
    their arguments come by keyword. `run_context` has run_id (the run's name), path (its directory), run_config, scaling_config,
    backend_config, train_loop_config, dataset_config, and report_number.

    An exception in one ends the run with a ControllerError.
    """

    def on_run_start(self, run_context: Any) -> None:
        """Called when the run has its directory, before any worker starts."""

    def on_attempt_start(self, run_context: Any, attempt: int, num_workers: int) -> None:
        """Called when the workers of an attempt, 1 for the first, are about to be started."""

    def on_run_end(self, run_context: Any, result: Result | None, error: BaseException | None) -> None:
        """Called last: with the Result that `fit` is about to return, or with the exception that it is about to raise, which
        nothing that is raised here takes the place of."""

    def before_run(self, run_context: Any) -> None:
        """As on_run_start; Ray Train's name."""

    def after_run(self, run_context: Any, result: Result) -> None:
        """Called last for a run that has begun; `result.error` is what `fit` is about to raise, and None where it succeeded."""

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None) -> None:
        """Called when every rank has made a report of one number.

        `metrics` holds the metrics of each rank, in rank order; `checkpoint` the one committed with it, or None;
        `run_context.report_number` is the number.
        """

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Called when workers failed, for each attempt; by rank, only the ranks that failed by themselves."""


def from_environment() -> list[RayTrainCallback]:
    """Instances of the classes that RAY_TRAIN_CALLBACKS names: dotted paths joined by commas."""
    paths = [path.strip() for path in os.environ.get(ENVIRONMENT, "").split(",")]
    return [_import(path) for path in paths if path]


def _import(path: str) -> RayTrainCallback:
    from importlib import import_module

    try:
        module, name = path.rsplit(".", 1)
        kind = getattr(import_module(module), name)
        if not (isinstance(kind, type) and issubclass(kind, RayTrainCallback)):
            raise TypeError(f"{path} is no class derived from UserCallback")
        return kind()
    except Exception as error:
        raise ValueError(f"Failed to import callback from '{path}': {error}") from error


def check(callbacks: Iterable[Any]) -> None:
    """ValueError unless every one is a callback."""
    for callback in callbacks:
        if not isinstance(callback, RayTrainCallback):
            raise ValueError(
                f"All callbacks passed to `RunConfig(callbacks=...)` must be instances of UserCallback, "
                f"not {type(callback).__name__}"
            )
