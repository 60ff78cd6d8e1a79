"""What a run reports, for other tools as it goes on: callbacks for `RunConfig(callbacks=[...])`.

They log the metrics of rank 0 that are numbers, by the packages of these tools, in a thread of the driver. One that fails warns
once and is silent from then on: it never ends a run. `python -m trainyard.export` does the same for a run that is there already.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import re
import subprocess
import tempfile
import threading
import time
import warnings
from typing import IO, Any, Callable, Protocol

from . import _command, paths, rows
from .callbacks import UserCallback
from .screen import harmless

_BATCH_S = 1.0
_CLOSE_S = 300  # as MLflow itself goes on trying to reach its server
_END_S = 60
_WAITING_MOST = 100_000  # reports that a tool has not taken yet
_MLFLOW_NAME = 240  # and what is put behind it

Row = tuple[int, float, dict[str, float]]  # step, seconds since the epoch, metrics


class Writer(Protocol):
    """A run, as another tool keeps it."""

    def write(self, batch: list[Row]) -> None: ...

    def close(self, succeeded: bool) -> None: ...


def need(package: str, who: str) -> None:
    """ImportError says what is to be installed."""
    if importlib.util.find_spec(package) is None:
        raise ImportError(f"{who} needs {package} (pip install {package})")


class Wandb:
    """A run of Weights & Biases. Its own steps may not go back, as those of a run do that begins from a checkpoint: it plots over
    `trainyard_step`. `_step`, `_runtime` and `_timestamp` are its own."""

    def __init__(self, name: str, config: dict[str, Any] | None, options: dict[str, Any]):
        import wandb

        self._run = wandb.init(
            **{"project": "trainyard", "name": name, "config": config, "mode": "offline", **options}
        )
        self._run.define_metric("trainyard_step")
        self._run.define_metric("*", step_metric="trainyard_step")

    def write(self, batch: list[Row]) -> None:
        for step, at, metrics in batch:
            self._run.log({**metrics, "trainyard_step": step, "_timestamp": at})

    def close(self, succeeded: bool) -> None:
        self._run.finish(exit_code=0 if succeeded else 1)


class MLflow:
    """A run of MLflow."""

    def __init__(self, name: str, config: dict[str, Any] | None, options: dict[str, Any]):
        from mlflow.tracking import MlflowClient

        experiment = options.get("experiment") or "trainyard"
        self._client = MlflowClient(tracking_uri=options.get("tracking_uri"))
        known = self._client.get_experiment_by_name(experiment)
        place = known.experiment_id if known is not None else self._client.create_experiment(experiment)
        self.run_id = self._client.create_run(place, run_name=name).info.run_id
        self._names = _MLflowNames()
        names = _MLflowNames()
        for key, value in rows.flat(config or {}).items():
            self._client.log_param(self.run_id, names.of(key), str(value)[:500])

    def write(self, batch: list[Row]) -> None:
        from mlflow.entities import Metric

        made = [
            Metric(self._names.of(name), value, int(at * 1000), step)
            for step, at, metrics in batch
            for name, value in metrics.items()
        ]
        for first in range(0, len(made), 1000):  # the most that it takes at once
            self._client.log_batch(self.run_id, metrics=made[first : first + 1000])

    def close(self, succeeded: bool) -> None:
        self._client.set_terminated(self.run_id, "FINISHED" if succeeded else "FAILED")


class _MLflowNames:
    """What MLflow calls metrics: up to 250 letters, digits and _-. :/ that would do as the path of a file. Two that would be the
    same then get numbers."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        if name not in self._known:
            made = first = self._as_path(self._as_path(re.sub(r"[^\w\-. :/]", "_", name))[:_MLFLOW_NAME])
            number = 1
            while made in self._taken:
                number += 1
                made = f"{first}_{number}"
            self._taken.add(made)
            self._known[name] = made
        return self._known[name]

    @staticmethod
    def _as_path(name: str) -> str:
        return "/".join(part if part.strip(".") else "_" * max(len(part), 1) for part in name.split("/"))


class _Callback(UserCallback):
    """What never ends a run. One that has failed is silent until the next run begins."""

    _silent = False

    def on_run_start(self, run_context: Any) -> None:
        self._silent = False
        self._try(self._begin, run_context)

    def _begin(self, run_context: Any) -> None:
        raise NotImplementedError

    def _give_up(self) -> None:
        """After a failure: nothing stays open."""

    def _try(self, function: Callable[..., None], *arguments: Any) -> None:
        if self._silent:
            return
        try:
            function(*arguments)
        except Exception as error:
            self._silent = True
            self._give_up()
            warnings.warn(
                f"{type(self).__name__}: {harmless(str(error))}; the run goes on without it",
                RuntimeWarning,
                stacklevel=2,
            )


class _Writing:
    """A run of a tool that a thread of its own writes, once a second: a tool that does not answer holds nothing up."""

    def __init__(self, make: Callable[[], Writer]):
        self._make = make
        self._waiting: queue.SimpleQueue[Row | bool] = queue.SimpleQueue()  # at last whether the run succeeded
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="trainyard-tool", daemon=True)
        self._thread.start()

    def add(self, row: Row) -> None:
        """Raises what the tool had against an earlier one; RuntimeError where too many wait."""
        self._raise()
        if self._waiting.qsize() >= _WAITING_MOST:
            raise RuntimeError(f"it does not keep up: {_WAITING_MOST} reports wait to be written")
        self._waiting.put(row)

    def end(self, succeeded: bool) -> None:
        """Waits until all is written; TimeoutError, or what the tool had against it."""
        self._waiting.put(succeeded)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            raise TimeoutError(f"it has not taken all that was reported within {_CLOSE_S} s of the end")
        self._raise()

    def give_up(self) -> None:
        """The tool's run lacks something from here on: it has failed, and does not look as if it went on."""
        self._waiting.put(False)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        writer: Writer | None = None
        succeeded: bool | None = None
        try:
            writer = self._make()
            while succeeded is None:
                batch, succeeded = self._gathered()
                writer.write(batch)
        except Exception as error:
            self._error, succeeded = error, False
        try:
            if writer is not None:
                writer.close(succeeded is True)
        except Exception as error:
            self._error = self._error or error

    def _gathered(self) -> tuple[list[Row], bool | None]:
        """The rows of a second, from the first one on, or up to the end, and how that is."""
        batch: list[Row] = []
        until: float | None = None
        while True:
            try:
                one = self._waiting.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
            except queue.Empty:
                return batch, None
            if isinstance(one, bool):
                return batch, one
            batch.append(one)
            until = until or time.monotonic() + _BATCH_S


class _LoggingCallback(_Callback):
    """Hands on what rank 0 reports."""

    _kind: type[Wandb] | type[MLflow]

    def __init__(self, package: str, options: dict[str, Any]):
        need(package, f"`{type(self).__name__}`")
        self._options = options
        self._writing: _Writing | None = None

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        self._try(self._take, run_context.report_number, metrics[0])

    def on_run_end(self, run_context: Any, result: Any, error: BaseException | None) -> None:
        self._try(self._end, error is None and result.error is None)

    def _begin(self, run_context: Any) -> None:
        name, config = run_context.run_id, run_context.train_loop_config
        self._writing = _Writing(lambda: type(self)._kind(name, config, self._options))

    def _take(self, number: int, metrics: dict[str, Any]) -> None:
        if self._writing is not None:
            self._writing.add((rows.step(metrics, number), time.time(), rows.numbers(metrics)))

    def _end(self, succeeded: bool) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.end(succeeded)

    def _give_up(self) -> None:
        if self._writing is not None:
            self._writing.give_up()


class WandbCallback(_LoggingCallback):
    """A run of Weights & Biases, in files of this machine (`wandb sync` sends them), with mode="online" in an account. Other
    options are those of `wandb.init`. ImportError without the package."""

    _kind = Wandb

    def __init__(self, mode: str = "offline", **options: Any):
        super().__init__("wandb", {"mode": mode, **options})


class MLflowCallback(_LoggingCallback):
    """A run of MLflow, where `tracking_uri` is, else where MLflow keeps its runs. ImportError without the package."""

    _kind = MLflow

    def __init__(self, tracking_uri: str | None = None, experiment: str = "trainyard"):
        super().__init__("mlflow", {"tracking_uri": tracking_uri, "experiment": experiment})


class TensorBoardCallback(_Callback):
    """TensorBoard's event files, a run for each rank and one for their mean, as the run goes on, by `trainyard metrics --follow`.

    directory: where to, with nothing in it; None: `tensorboard` in the run's directory, of a run that is resumed `tensorboard-2`.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None):
        self._directory = None if directory is None else paths.as_text(directory, "`TensorBoardCallback(directory)`")
        self._process: subprocess.Popen[bytes] | None = None
        self._told: IO[bytes] | None = None  # what the command complains of

    def on_run_end(self, run_context: Any, result: Any, error: BaseException | None) -> None:
        self._try(self._end)

    def _begin(self, run_context: Any) -> None:
        place = self._directory or _free(os.path.join(run_context.path, "tensorboard"))
        storage, name = os.path.split(os.path.abspath(run_context.path))
        words = [
            _command.path(),
            "metrics",
            "--storage-path",
            storage,
            "--format=tensorboard",
            "--follow",
            "-o",
            place,
        ]
        told = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                [*words, "--", name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=told,
                start_new_session=True,
            )
        except BaseException:
            told.close()
            raise
        self._told = told

    def _end(self) -> None:
        """It ends by itself, with the run."""
        process, told = self._process, self._told
        self._process = self._told = None
        if process is None or told is None:
            return
        with told:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.returncode != 0:
                told.seek(0)
                raise RuntimeError(
                    told.read().decode(errors="replace").strip() or f"status {process.returncode}"
                )


def _free(path: str) -> str:
    number, free = 1, path
    while os.path.exists(free):
        number += 1
        free = f"{path}-{number}"
    return free
