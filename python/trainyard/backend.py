"""Backends in the form of Ray Train's: hooks that are called once, and reach the workers through a worker group.

The hooks run in rank 0. What they have executed goes through the run's store: each call is a key that all ranks wait for, and each
answer one of its own. Between the hooks nobody serves: the training function has the workers to itself.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import pickle
import signal
import socket
import threading
import traceback
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from . import accelerators, ending, runtime
from .errors import RemoteTraceback

if TYPE_CHECKING:
    from .runtime import WorkerSession
    from .trainer import BackendConfig

log = logging.getLogger("trainyard")
T = TypeVar("T")
_LIMIT_S = 86400.0
_END = b""  # in place of a call: the hooks have returned


class Backend:
    """Derive from it, and name the class as `backend_cls` of a BackendConfig. One object serves all hooks of an attempt.

    share_cuda_visible_devices: instead of the config's `shares_devices`."""

    share_cuda_visible_devices: bool = False
    has_replica_groups: bool = False  # Ray's name for what is not provided

    def on_start(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """First of all."""

    def on_training_start(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """Right before the training function."""

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """When the training function has returned in all workers, or has failed in one: then the group has the worker alone in
        which the hook runs, and what it raises is a warning."""


@dataclasses.dataclass(frozen=True)
class WorkerMetadata:
    """Where a worker is."""

    hostname: str
    node_id: str
    node_ip: str
    pid: int
    accelerator_ids: dict[str, list[str]]

    @property
    def gpu_ids(self) -> list[str]:
        return self.accelerator_ids.get("GPU", [])


@dataclasses.dataclass(frozen=True)
class WorkerInfo:
    """One of the group."""

    metadata: WorkerMetadata
    world_rank: int


class Future:
    """What a worker will have answered; `result` waits for it."""

    def __init__(self, ask: Callable[[], Any]):
        self._ask: Callable[[], Any] | None = ask
        self._value: Any = None

    def result(self) -> Any:
        """The value; raises what the function raised."""
        if self._ask is not None:
            ask, self._ask = self._ask, None
            self._value = ask()
        return self._value


class WorkerGroup:
    """All workers of the attempt, as the hooks see them."""

    def __init__(self, session: WorkerSession, alone: bool = False):
        self._session = session
        self._alone = alone  # the others are ending
        self._own: list[Future] = []  # calls of this rank that nobody has asked for yet, in their order
        self._workers: list[WorkerInfo] | None = None

    def __len__(self) -> int:
        return self._session.world_size

    def execute(self, func: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
        """What `func` returns on each worker, by rank."""
        return [future.result() for future in self.execute_async(func, *args, **kwargs)]

    def execute_async(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Future]:
        return self._send(None, func, args, kwargs)

    def execute_single(self, worker_index: int, func: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """What `func` returns on this worker."""
        value: T = self.execute_single_async(worker_index, func, *args, **kwargs).result()
        return value

    def execute_single_async(
        self, worker_index: int, func: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Future:
        if not 0 <= worker_index < len(self):
            raise ValueError(
                f"The provided worker_index {worker_index} is not valid for {len(self)} workers."
            )
        return self._send(worker_index, func, args, kwargs)[0]

    @property
    def workers(self) -> list[WorkerInfo]:
        if self._workers is None:
            found = self.execute(_metadata)
            self._workers = [WorkerInfo(metadata, rank) for rank, metadata in enumerate(found)]
        return self._workers

    def get_workers(self) -> list[WorkerInfo]:
        return self.workers

    def finish(self) -> None:
        """The hooks have returned: the other ranks go on."""
        self._run_own()
        if len(self) > 1:
            self._session.core.store_set(_key(self._session, next(self._session.backend_calls)), _END)

    def _send(self, rank: int | None, func: Callable[..., Any], args: Any, kwargs: Any) -> list[Future]:
        """Rank 0's own part is done when somebody asks for it, or for a later one: the others are not to wait for it."""
        from .payload import pickled

        if self._alone and len(self) > 1 and rank != 0:
            raise RuntimeError("the training has failed, and the other workers are ending: nothing can be executed there any more")
        number = -1
        if len(self) > 1 and rank != 0:
            number = next(self._session.backend_calls)
            call = pickled({"call": (rank, func, args, kwargs)})
            self._session.core.store_set(_key(self._session, number), call)
        futures = []
        for one in range(len(self)) if rank is None else (rank,):
            if one == 0:
                own = Future(lambda: func(*args, **kwargs))
                self._own.append(own)
                futures.append(Future(lambda own=own: self._own_result(own)))
            else:
                futures.append(Future(lambda one=one: self._answer(number, one)))
        return futures

    def _own_result(self, own: Future) -> Any:
        self._run_own(own)
        return own.result()

    def _run_own(self, last: Future | None = None) -> None:
        while self._own:
            first = self._own.pop(0)
            first.result()
            if first is last:
                return

    def _answer(self, number: int, rank: int) -> Any:
        answer = self._session.core.store_wait(f"{_key(self._session, number)}/{rank}", _LIMIT_S)
        trace, made = pickle.loads(answer)
        if trace is not None:
            raise pickle.loads(made) from RemoteTraceback(trace)
        return pickle.loads(made)


def start(config: BackendConfig, session: WorkerSession) -> None:
    """Before the training function, in every rank."""
    if session.world_rank > 0:
        _serve(session)
        return
    session.backend = config.backend_cls()
    if config.backend_cls.on_shutdown is not Backend.on_shutdown:
        _before_the_end(config, session)
    group = WorkerGroup(session)
    session.backend.on_start(group, config)
    session.backend.on_training_start(group, config)
    group.finish()


def stop(config: BackendConfig, session: WorkerSession) -> None:
    """After it."""
    ending.all_returned(session)
    if session.world_rank > 0:
        _serve(session)
        return
    group = WorkerGroup(session)
    made, session.backend = session.backend, None
    assert made is not None
    made.on_shutdown(group, config)
    group.finish()


def fail(config: BackendConfig, session: WorkerSession) -> None:
    """Instead, when this worker fails or is told to end; does nothing where there is no backend, or it has been shut down."""
    made, session.backend = session.backend, None
    if made is None:
        return
    try:
        made.on_shutdown(WorkerGroup(session, alone=True), config)
    except Exception:
        log.warning("Graceful shutdown of backend failed. This is expected if one of the workers has crashed.", exc_info=True)


def _before_the_end(config: BackendConfig, session: WorkerSession) -> None:
    """Has `fail` called when the run ends this worker, unless the training function handles that itself."""
    pid = os.getpid()

    def end(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() == pid:
            fail(config, session)
        os.kill(os.getpid(), number)

    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)


def _serve(session: WorkerSession) -> None:
    """Does what rank 0 has executed, until its hooks have returned."""
    while (
        call := session.core.store_wait(key := _key(session, next(session.backend_calls)), _LIMIT_S)
    ) != _END:
        rank, func, args, kwargs = pickle.loads(call)["call"]
        if rank not in (None, session.world_rank):
            continue
        session.core.store_set(f"{key}/{session.world_rank}", _outcome(func, args, kwargs))


def _outcome(func: Callable[..., Any], args: Any, kwargs: Any) -> bytes:
    """What the call gives, or the traceback and the exception that it raised."""
    import cloudpickle

    try:
        return pickle.dumps((None, cloudpickle.dumps(func(*args, **kwargs))))
    except Exception as error:
        trace = traceback.format_exc()
        try:
            made = cloudpickle.dumps(error)
            pickle.loads(made)
        except Exception:
            made = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
        return pickle.dumps((trace, made))


def _key(session: WorkerSession, number: int) -> str:
    return f"backend/{session.attempt}/{number}"


def _metadata() -> WorkerMetadata:
    host = socket.gethostname()
    node = os.environ.get("TRAINYARD_NODE") or host
    return WorkerMetadata(host, node, runtime.node_address(), os.getpid(), accelerators.assigned())
