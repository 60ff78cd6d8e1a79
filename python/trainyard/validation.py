"""Validation beside the training: the driver calls a function of the user's with checkpoints, in a process of its own, one after
the other, and what the function returns becomes metrics of the checkpoint.

A report asks for it (`report(..., validation=True)`). The wish goes with the metrics of the checkpoint, and so into the journal;
what came of it takes its place there. So a run that is resumed validates what was still to be.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Mapping, Protocol

from . import metrics as _metrics
from . import payload
from .config import check_environment, mapping
from .reported import ReportedCheckpointStatus
from .screen import barred

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

_OPTIONS = ("max_retries", "retry_exceptions", "runtime_env")
_LOOK_MS = 100  # between two looks at a process whose end nothing tells
_RETRIES = 3  # after crashes, and exceptions that are worth it, where the options do not say: as tasks of Ray


class ValidationFn(Protocol):
    """What ValidationConfig(fn=) takes."""

    def __call__(self, checkpoint: Checkpoint, **kwargs: Any) -> dict[str, Any]: ...


@dataclasses.dataclass
class ValidationTaskConfig:
    """One validation, as `report(validation=)` takes it.

    fn_kwargs: for the function, beside the checkpoint. timeout_s: how long it may take; None: any time.
    """

    fn_kwargs: Mapping[str, Any] | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        self.fn_kwargs = mapping(self.fn_kwargs, "fn_kwargs")
        self.timeout_s = _metrics.unboxed(self.timeout_s)
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, (int, float, type(None))):
            raise ValueError(f"`timeout_s` must be a number of seconds or None, not {self.timeout_s!r}")
        assert self.timeout_s is None or self.timeout_s > 0, (
            f"The `timeout_s` should be None or greater than zero, actual value: {self.timeout_s}"
        )


class ValidationConfig:
    """How the checkpoints of a run are validated.

    fn: called with a Checkpoint, and the keywords of the task; returns a dict of metrics. It may call `fit` of another trainer.
    task_config: where a report says `validation=True`; the keywords of a report's own task win over those of this one.
    ray_remote_kwargs: `max_retries`, `retry_exceptions` (True, or a list of classes) and `runtime_env`; others have no effect: the
        process sees what the driver sees, and nothing is reserved for it.
    """

    def __init__(
        self,
        fn: Callable[..., dict[str, Any]],
        task_config: ValidationTaskConfig | None = None,
        ray_remote_kwargs: Mapping[str, Any] | None = None,
    ):
        if not callable(fn):
            raise ValueError(f"`ValidationConfig.fn` must be a function, not {type(fn).__name__}")
        if task_config is not None and not isinstance(task_config, ValidationTaskConfig):
            given = type(task_config).__name__
            raise ValueError(f"`ValidationConfig.task_config` must be a ValidationTaskConfig, not {given}")
        self.fn = fn
        self.task_config = ValidationTaskConfig() if task_config is None else task_config
        self.ray_remote_kwargs = mapping(ray_remote_kwargs, "ValidationConfig.ray_remote_kwargs")
        _check_options(self.ray_remote_kwargs)


def _check_options(options: Mapping[str, Any]) -> None:
    """ValueError for an option that has an effect, and is none that a task of Ray's may have."""
    what = "ValidationConfig.ray_remote_kwargs"
    retries, again = options.get("max_retries"), options.get("retry_exceptions")
    if isinstance(retries, bool) or not isinstance(retries, (int, type(None))) or (retries or 0) < -1:
        raise ValueError(f"`{what}['max_retries']` must be a whole number from 0 on, or -1 for any, not {retries!r}")
    classes = again if isinstance(again, (list, tuple)) else ()
    is_class = (isinstance(one, type) and issubclass(one, BaseException) for one in classes)
    if not isinstance(again, (bool, list, tuple, type(None))) or not all(is_class):
        raise ValueError(f"`{what}['retry_exceptions']` must be True, False or a list of classes of exceptions, not {again!r}")
    check_environment(options.get("runtime_env"), f"{what}['runtime_env']")


def wish(validation: bool | ValidationTaskConfig) -> dict[str, Any]:
    """What a report says of how its checkpoint is to be validated, as it goes with the metrics."""
    if isinstance(validation, ValidationTaskConfig):
        return {"fn_kwargs": validation.fn_kwargs, "timeout_s": validation.timeout_s}
    if validation is True:
        return {}
    raise ValueError(f"`validation` must be True, False or a ValidationTaskConfig, not {validation!r}")


@dataclasses.dataclass
class _Task:
    """A checkpoint to be validated."""

    number: int
    path: str
    metrics: dict[str, Any]  # as the journal has them
    wish: dict[str, Any]
    failures: int = 0


@dataclasses.dataclass
class _Process:
    """The one that validates."""

    task: _Task
    popen: subprocess.Popen[bytes]
    pidfd: int  # -1 where there is none to be had: then it is looked at again and again
    exchange: int  # the file by which it is told what to do, and answers
    deadline: float | None
    files: dict[int, tuple[int, int] | None]  # which ones the descriptors stand for: a callback may close what is not its own

    def close(self) -> None:
        for fd, file in self.files.items():
            payload.close_file(fd, file)


class Validations:
    """Of one `fit`. Nothing of it waits: `step` is called whenever `fd` is readable or `timeout_ms` has passed."""

    def __init__(
        self,
        config: ValidationConfig,
        command: list[str],
        environment: dict[str, str],
        facts: dict[str, Any],
        output: Any = None,
    ):
        self._config = config
        self._command, self._environment, self._output = command, environment, output
        options = {name: value for name, value in config.ray_remote_kwargs.items() if name in _OPTIONS}
        self._retries = options.get("max_retries")
        call = {
            "validation": config.fn,
            "defaults": config.task_config.fn_kwargs,
            "retry_exceptions": options.get("retry_exceptions"),
        }
        self._call = payload.nameless(payload.dump_objects(call, facts))
        self._call_file = payload.file_of(self._call)
        # By ranks that are not 0, whose metrics the journal does not keep.
        self._asked: dict[int, dict[str, Any]] = {}
        self._queue: list[_Task] = []
        self._process: _Process | None = None

    @property
    def busy(self) -> bool:
        return self._process is not None or bool(self._queue)

    @property
    def fd(self) -> int:
        """Readable when the process has ended; -1 while nothing tells that."""
        return self._process.pidfd if self._process is not None else -1

    def timeout_ms(self, at_most: int) -> int:
        """How long to wait, where something else waits so long (-1: any time)."""
        limits = [at_most] if at_most >= 0 else []
        if self._process is not None and self._process.deadline is not None:
            limits.append(max(0, int(1000 * (self._process.deadline - time.monotonic())) + 1))
        if self._process is not None and self._process.pidfd < 0:
            limits.append(_LOOK_MS)
        return min(limits, default=-1)

    def take(self, event: dict[str, Any], run: Any) -> None:
        """A report or a checkpoint of the run."""
        number = event["number"]
        if event["event"] == "report":
            asked = _metrics.validation(event["metrics"])
            if event["rank"] != 0 and isinstance(asked, dict):
                self._asked.setdefault(number, asked)
            return
        asked = self._asked.pop(number, None)
        if event["event"] != "checkpoint":
            return
        metrics = event.get("metrics") or {}
        own = _metrics.validation(metrics)
        if isinstance(own, dict):
            self._queue.append(_Task(number, event["path"], metrics, own))
        elif asked is not None:
            self._queue.append(_Task(number, event["path"], metrics, asked))
            run.checkpoint_metrics(number, _metrics.dump(_metrics.restore(metrics), asked))

    def resume(self, number: int, path: str, metrics: dict[str, Any] | None) -> None:
        """A checkpoint of an earlier `fit` of the run."""
        asked = _metrics.validation(metrics or {})
        if isinstance(asked, dict):
            self._queue.append(_Task(number, path, metrics or {}, asked))

    def step(self, run: Any) -> None:
        """Takes the answer of a process that has ended, and begins with the next checkpoint."""
        if self._process is not None:
            ended = self._process.popen.poll() is not None
            late = self._process.deadline is not None and time.monotonic() >= self._process.deadline
            if ended or late:
                self._conclude(run, late and not ended)
        if self._process is None and self._queue:
            self._begin(self._queue.pop(0))

    def stop(self) -> None:
        """Ends what is on its way: it is validated when the run is resumed."""
        self._queue.clear()
        if self._process is not None:
            self._end()
        payload.close_file(self._call, self._call_file)
        self._call_file = None

    def _begin(self, task: _Task) -> None:
        if "fn_kwargs" in task.wish:
            timeout = task.wish.get("timeout_s")
        else:
            timeout = self._config.task_config.timeout_s
        told = {"driver": os.getpid(), "path": task.path, "fn_kwargs": _metrics.dump(task.wish.get("fn_kwargs") or {})}
        exchange = payload.nameless(json.dumps(told).encode(), sealed=False)
        try:
            popen = subprocess.Popen(
                [*self._command, "-m", "trainyard._validate", str(self._call), str(exchange)],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=(self._call, exchange),
                start_new_session=True,
            )
        except BaseException:
            os.close(exchange)
            raise
        deadline = None if timeout is None else time.monotonic() + timeout
        pidfd = -1
        with contextlib.suppress(OSError):  # an old kernel, or no descriptor left
            pidfd = os.pidfd_open(popen.pid)
        files = {fd: payload.file_of(fd) for fd in (exchange, pidfd)}
        self._process = _Process(task, popen, pidfd, exchange, deadline, files)

    def _end(self) -> dict[str, Any]:
        """Ends the process with all that it started, and gives its answer; {} without one."""
        process, self._process = self._process, None
        assert process is not None
        try:
            os.killpg(process.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.popen.wait()
        try:
            mine = payload.file_of(process.exchange) == process.files[process.exchange]
            answer: dict[str, Any] = json.loads(payload.contents(process.exchange) if mine else b"{}")
            return answer if "path" not in answer else {}
        except ValueError:
            return {}
        finally:
            process.close()

    def _conclude(self, run: Any, late: bool) -> None:
        assert self._process is not None
        task, popen = self._process.task, self._process.popen
        answer = self._end()
        metrics: dict[str, Any] = {}
        status = ReportedCheckpointStatus.VALIDATED
        if late:
            status = ReportedCheckpointStatus.VALIDATION_TIMEOUT
            _tell(f"the validation of {task.path} took longer than its timeout_s, and was ended")
        elif "metrics" in answer:
            metrics = _metrics.load(answer["metrics"])
        elif self._is_tried_again(task, answer):
            self._queue.insert(0, task)
            return
        else:
            status = ReportedCheckpointStatus.VALIDATION_FAILED
            why = answer.get("failure") or f"its process ended with status {popen.returncode}\n"
            _tell(f"the validation of {task.path} failed:\n{barred(why)}")
        merged = {**_metrics.restore(task.metrics), **metrics}
        run.checkpoint_metrics(task.number, _metrics.dump(merged, status.value))

    def _is_tried_again(self, task: _Task, answer: dict[str, Any]) -> bool:
        if answer.get("failure") is not None and not answer.get("again"):
            return False
        most = _RETRIES if self._retries is None else self._retries
        task.failures += 1
        return most < 0 or task.failures <= most


def _tell(text: str) -> None:
    print(f"trainyard: {text}", file=sys.stderr, flush=True)
