"""How workers ended, and the exceptions that stand for it in the driver."""

from __future__ import annotations

import base64
import os
import pickle
import signal
from typing import Any

from . import errors, preemption

_KINDS = {
    "TY_EINFEASIBLE": errors.InsufficientClusterResourcesError,
    "TY_EBUSY": errors.InsufficientClusterResourcesError,
    "TY_ESTART": errors.WorkerGroupStartupFailedError,
}


class Failures:
    """The workers of the last attempt that failed by themselves, from the events of the run."""

    def __init__(self) -> None:
        self._exits: dict[int, dict[str, Any]] = {}
        self._told: dict[int, dict[str, Any]] = {}  # what workers said of their exceptions
        self._first: set[int] = set()  # those that said it before any had ended, and the others were stopped
        self._lost: dict[int, str] = {}  # node rank -> why

    def take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "attempt":
            self._exits, self._told, self._first, self._lost = {}, {}, set(), {}
        elif kind == "failure":
            self._told[event["rank"]] = event["failure"]
            if not self._exits:
                self._first.add(event["rank"])
        elif kind == "node_lost":
            self._lost[event["node"]] = event.get("reason") or "its agent is gone"
        elif kind == "exited" and not event.get("stopped") and (event.get("signal") or event.get("code")):
            self._exits[event["rank"]] = event

    def first_traceback(self, rank: int | None) -> tuple[int | None, str | None]:
        """Of this rank, or of the first that told one when that did not; (None, None) when none did."""
        if rank not in self._told:
            rank = next(iter(self._told), None)
        return rank, self._told[rank]["traceback"] if rank is not None else None

    def collect(self, path: str) -> dict[int, Exception]:
        """Rank -> exception of those that failed in this attempt; `path` is the run's directory."""
        failed = {*self._exits, *self._first} if self._exits else ()
        return {rank: self._failure(path, rank) for rank in sorted(failed)}

    def _failure(self, path: str, rank: int) -> Exception:
        event = self._exits.get(rank)
        if event is None or (rank in self._told and not event.get("signal")):
            return _rebuilt(self._told[rank])
        return _ended(rank, event, path)

    def exception(self, error: Exception, summary: dict[str, Any], tracebacks: bool) -> Exception:
        """What `fit` raises for `error`, with which the run was closed; its text has `tracebacks` when nothing else showed them."""
        if getattr(error, "symbol", "") == "TY_EPREEMPTED":
            return self._preempted(error, summary)
        if getattr(error, "symbol", "") not in ("TY_EWORKER", "TY_ENODE"):
            return refusal(error)
        failed = self.collect(summary.get("path", "")) or self._without_exit(error, summary)
        text = errors.group_failures(failed, tracebacks)
        return errors.WorkerGroupError(f"Training failed due to worker errors:\n{text}", failed)

    def _preempted(self, error: Exception, summary: dict[str, Any]) -> Exception:
        facts = summary.get("preemption")
        workers = summary.get("workers", ())
        return errors.PreemptionError(
            preemption.read(facts) if facts else None,
            any(worker.get("stopped") and worker.get("exit") == 128 + signal.SIGKILL for worker in workers),
            str(error),
            self.collect(summary.get("path", "")),
        )

    def _without_exit(self, error: Exception, summary: dict[str, Any]) -> dict[int, Exception]:
        """For workers of which no end was seen: those of lost nodes, or whichever the library blames."""
        lost: dict[int, Exception] = {
            worker["rank"]: errors.NodeLostError(
                f"node {worker['node']} was lost: {self._lost[worker['node_rank']]}"
            )
            for worker in summary.get("workers", ())
            if worker.get("node_rank") in self._lost
        }
        if lost:
            return lost
        rank = summary.get("first_rank")
        return {
            rank if isinstance(rank, int) else 0: errors.WorkerExitError(str(error), summary.get("status", 1))
        }


def refusal(error: Exception) -> Exception:
    """The same for a run that failed without a worker's fault; a wrong request stays the ValueError that it is."""
    symbol = getattr(error, "symbol", "")
    if symbol in ("TY_EUSAGE", "TY_EEXISTS"):
        return error
    kind = _KINDS.get(symbol)
    return errors.ControllerError(kind(str(error)) if kind is not None else error)


def _rebuilt(told: dict[str, Any]) -> Exception:
    """The exception that a worker told of, chained to its traceback."""
    failure = _unpickled(told.get("pickle"))
    if failure is None:
        message = told.get("message")
        failure = errors.WorkerExitError(
            f"{told.get('type')}: {message}" if message else str(told.get("type")), 1
        )
    failure.__cause__ = errors.RemoteTraceback(told["traceback"])
    return failure


def _unpickled(text: str | None) -> Exception | None:
    """What a worker of this very run said over its channel; it is kept nowhere, and nothing that is read from a file comes here."""
    if text is None:
        return None
    try:
        failure = pickle.loads(base64.b64decode(text))
    except Exception:
        return None
    return failure if isinstance(failure, BaseException) else None


def _ended(rank: int, event: dict[str, Any], path: str) -> Exception:
    """For a worker that ended without an exception to tell."""
    cause = f": {event['cause']}" if event.get("cause") else ""
    log = os.path.join(path, "logs", f"rank-{rank}.log")
    number = event.get("signal")
    if number:
        return errors.WorkerKilledError(
            f"rank {rank} was killed by {_signal_name(number)}{cause}; its output: {log}", number
        )
    return errors.WorkerExitError(
        f"rank {rank} ended with exit code {event['code']}{cause}; its output: {log}", event["code"]
    )


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
