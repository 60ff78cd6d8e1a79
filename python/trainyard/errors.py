"""What a run can fail with."""

from __future__ import annotations

import re
import traceback
from typing import TYPE_CHECKING, Any

from .screen import harmless

if TYPE_CHECKING:
    from .preemption import PreemptionInfo

_TEXT_LIMIT = 1000
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


class TrainingFailedError(RuntimeError):
    """A run failed; raised by `fit` in one of the forms below."""


class RemoteTraceback(Exception):
    """The traceback of a worker's exception, as text; the cause that the exception is chained to."""

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return "\n" + self.text.rstrip("\n")


def made_of(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """An exception of that class, which is not called: not all can be called with their `args`."""
    made = kind.__new__(kind, *args)
    made.args = args
    made.__dict__.update(state)
    return made


class WorkerExitError(RuntimeError):
    """A worker's process ended by itself, without an exception to tell: `exit_code` says how."""

    def __init__(self, text: str, exit_code: int):
        super().__init__(text, exit_code)
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.args[0]


class WorkerKilledError(WorkerExitError):
    """A worker's process was ended by a signal: `signal` is its number."""

    def __init__(self, text: str, signal: int):
        super().__init__(text, 128 + signal)
        self.args = (text, signal)
        self.signal = signal


class NodeLostError(RuntimeError):
    """A worker is gone because its node or its agent is."""


class WorkerGroupStartupFailedError(RuntimeError):
    """Workers could not be started."""


class WorkerGroupStartupTimeoutError(RuntimeError):
    """Workers did not start in time."""


class InsufficientClusterResourcesError(RuntimeError):
    """The request does not fit the nodes; the text names what is short."""


class WorkerGroupError(TrainingFailedError):
    """Workers failed. `worker_failures` maps world rank to exception, each chained to its remote traceback."""

    def __init__(self, error_message: str, worker_failures: dict[int, Exception]):
        super().__init__(error_message)
        self._error_message = error_message
        self.worker_failures = worker_failures

    def __reduce__(self) -> Any:
        return (type(self), (self._error_message, self.worker_failures))


class PreemptionError(TrainingFailedError):
    """The machines were taken away: `fit` with RunConfig(name=..., resume=True) goes on.

    `preemption_info` tells which (PreemptionInfo or None), and `drain_timed_out` is true when a worker was ended because it did not
    end within the grace. `worker_failures` is as in WorkerGroupError, mostly empty. When nobody catches it, the process
    ends by the signal that told of the preemption.
    """

    def __init__(
        self,
        preemption_info: PreemptionInfo | None,
        drain_timed_out: bool = False,
        error_message: str | None = None,
        worker_failures: dict[int, Exception] | None = None,
    ):
        ranks = preemption_info.preempted_ranks if preemption_info is not None else []
        facts = f"(preempted_ranks={ranks}, drain_timed_out={drain_timed_out})"
        super().__init__(error_message or f"Training was interrupted by node preemption {facts}.")
        self._error_message = error_message
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out
        self.worker_failures = worker_failures or {}

    @property
    def deadline_exceeded(self) -> bool:
        """Another name of `drain_timed_out`."""
        return self.drain_timed_out

    def __reduce__(self) -> Any:
        parts = (self.preemption_info, self.drain_timed_out, self._error_message, self.worker_failures)
        return (type(self), parts)


class ControllerError(TrainingFailedError):
    """The run itself failed, not a worker's function. `controller_failure` is why."""

    def __init__(self, controller_failure: Exception):
        super().__init__(f"Training failed due to controller error:\n{harmless(str(controller_failure))}")
        self.controller_failure = controller_failure
        self.__cause__ = controller_failure

    def __reduce__(self) -> Any:
        return (type(self), (self.controller_failure,))


class BroadcastCollectiveTimeoutError(TrainingFailedError, TimeoutError):
    """Ranks did not come to a barrier, broadcast or report in time; the text names them."""


class CheckpointManagerInitializationError(RuntimeError):
    """What is on record of a run's checkpoints cannot be read."""


def failure_text(failure: BaseException, tracebacks: bool = True) -> str:
    """One worker's failure as text: its remote traceback where there is one, or only the traceback's last lines."""
    cause = failure.__cause__
    if not isinstance(cause, RemoteTraceback) or (isinstance(failure, WorkerExitError) and not tracebacks):
        return str(failure) or repr(failure)
    if tracebacks:
        return cause.text.strip()
    return "".join(traceback.format_exception_only(type(failure), failure)).strip()


def group_failures(failures: dict[int, BaseException | str], tracebacks: bool = True) -> str:
    """The failures as text, ranks that failed alike together: "[Rank 0, 3]:" and then the text of the first of them.

    Texts are alike when they are equal but for numbers and addresses. They are for a screen: what a terminal obeys is escaped.
    """
    groups: dict[str, dict[int, str]] = {}
    for rank in sorted(failures):
        failure = failures[rank]
        text = harmless(failure if isinstance(failure, str) else failure_text(failure, tracebacks))
        groups.setdefault(_NUMBERS.sub("<NUM>", text), {})[rank] = text
    return "\n".join(map(_group, groups.values()))


def _group(texts: dict[int, str]) -> str:
    first, *others = texts
    differing = [rank for rank in others if texts[rank] != texts[first]]
    note = f"\n(numbers of rank {first}; others in rank {ranks_text(differing)})" if differing else ""
    return f"[Rank {', '.join(map(str, texts))}]:\n{_cut(texts[first])}{note}"


def ranks_text(ranks: list[int]) -> str:
    """1-7,9: sorted ranks, neighbours together."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank])
    return ",".join("-".join(map(str, run)) for run in runs)


def _cut(text: str) -> str:
    """A long text without its middle: a traceback begins with where, and ends with why."""
    if len(text) <= _TEXT_LIMIT:
        return text
    note = "...\n... (truncated; the whole text is in worker_failures and in the rank's log) ...\n..."
    return text[: _TEXT_LIMIT // 2] + note + text[-(_TEXT_LIMIT // 2) :]
