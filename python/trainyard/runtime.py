"""What `report`, `get_context` and the rest speak to while a training function runs: one session a process.

There are two kinds: a worker of a run (here), and this very process (`local.py`, for `num_workers=0`). A program that
`trainyard run` or `torchrun` started by itself has no training function: its session begins with its first call.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Callable, Mapping

from . import metrics as _metrics
from .reported import NO_OPTIONS, CheckpointUploadMode, ReportOptions

if TYPE_CHECKING:
    from . import upload
    from .backend import Backend
    from .checkpoint import Checkpoint
    from .reported import CheckpointConsistencyMode, ReportedCheckpoint
    from .there import There

UNVALIDATED = "Validation requires a checkpoint to be provided: give `checkpoint` to `report`"
LOOPBACK = "127.0.0.1"

_session: Session | None = None
_inherited: Session | None = None  # in a child, its parent's, until the child's own first call
_beginning = threading.Lock()
of_trainer = False  # whether a trainer started this process: set where its workers begin


class Session:
    """Where the training function runs: its place among the workers, and what it can ask for.

    `devices` are indices of the worker's own devices within the visible ones, `resources` what each worker holds, such
    as {"CPU": 1, "GPU": 0.5}. `local` is true when the function runs in the process that called `fit`.
    """

    local = False
    by_itself = False  # begun by the first call of a program, not for a training function
    world_rank = 0
    world_size = 1
    local_rank = 0
    local_world_size = 1
    node_rank = 0
    attempt = 1
    run_name = ""
    group = ""  # of directories that its name begins with
    run_path: str | None = None
    devices: list[int] = []
    resources: dict[str, float] = {}
    trainer_resources: dict[str, float] = {}  # what is held beside rank 0
    datasets: Any = None  # what trainyard.data makes the shards of
    there: There | None = None  # the run's other side
    storage_there = False  # whether that is its storage
    metadata: dict[str, Any] = {}  # the trainer's

    def report(
        self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None, options: ReportOptions = NO_OPTIONS
    ) -> None:
        raise NotImplementedError

    def checkpoint(self) -> Checkpoint | None:
        """The last committed checkpoint, or None."""
        raise NotImplementedError

    def checkpoints_reported(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        raise NotImplementedError

    def gather(self, label: str, piece: bytes) -> list[bytes]:
        """The pieces of all ranks, in rank order; every rank must make the call."""
        raise NotImplementedError

    def stop_requested(self) -> bool:
        """Whether the run asked this worker to stop."""
        return False

    def preemption(self) -> str | None:
        """What is known of machines that are taken away, as JSON."""
        return None

    def heartbeat(self) -> None:
        """Says that this worker is alive."""

    def finish(self) -> None:
        """At the end of the training function: waits until nothing of its reports is left behind."""

    def finish_failed(self) -> bool:
        """The same at the end of one that failed: the run is not to lose what other ranks are about to hand over. False where a
        question to the agent is still open."""
        return True


class WorkerSession(Session):
    """A worker of a run, over its socket to the agent."""

    def __init__(self, facts: dict[str, Any]):
        from . import _core

        self.core = _core
        self.__dict__.update(_core.worker())
        self.resources = facts.get("resources", {})
        self.trainer_resources = facts.get("trainer_resources", {})
        self._storage = facts.get("storage")
        self.storage_there = facts.get("storage_there", False)
        self.group = facts.get("group", "")
        self._report = _core.report
        self.metadata = facts.get("metadata", {})
        self._resume_from: Checkpoint | None = facts.get("resume_from")
        self._validates = facts.get("validates", False)
        # The metric by which checkpoints are ranked, and the order.
        self._score: tuple[str, str] | None = facts.get("score")
        self._uploads: upload.Uploads | None = None
        self._uploads_of = 0  # their process: the threads are not in its children
        self._interrupts = True  # Ctrl-C is KeyboardInterrupt
        self._calls: dict[str, int] = {}
        self.made = 0  # reports
        self.backend: Backend | None = None  # of rank 0, and where the calls of its hooks are (backend.py)
        self.backend_calls: itertools.count[int] = itertools.count()

    @functools.cached_property
    def there(self) -> There | None:  # type: ignore[override]
        from . import there

        return there.told(self._storage, self.run_name)

    def report(
        self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None, options: ReportOptions = NO_OPTIONS
    ) -> None:
        uploaded = options.mode is not CheckpointUploadMode.NO_UPLOAD
        if checkpoint is not None and not options.validation and not uploaded:
            checkpoint = _unless_placeholder(checkpoint)
        if checkpoint is None:
            if options.validation:
                raise ValueError(UNVALIDATED)
            lost = self._report(_metrics.dump(metrics), None, named(options.name))
            self.made += 1
            self._tell_lost(lost)
            return
        if uploaded:
            self._check_place(checkpoint)
        if self.metadata and hasattr(checkpoint, "set_metadata"):
            checkpoint.set_metadata({**self.metadata, **checkpoint.get_metadata()})
        self._uploading().report(
            _metrics.dump(metrics, self._wish(options.validation)),
            checkpoint,
            named(options.name),
            options.mode,
            options.delete,
            options.function,
        )
        self.made += 1

    def _check_place(self, checkpoint: Any) -> None:
        """ValueError for a checkpoint whose directory holds the run's: it would be copied into itself, and its end be the run's."""
        path, run = getattr(checkpoint, "path", None), str(self.run_path)
        if not isinstance(path, str) or not os.path.isabs(path) or not os.path.exists(path):
            return
        if os.path.join(os.path.realpath(run), "").startswith(os.path.join(os.path.realpath(path), "")):
            from . import defaults

            raise ValueError(
                f"{defaults.policy.called}'s experiment directory ({run}) is contained within the checkpoint path ({path}): write "
                "the checkpoint to a directory of its own"
            )

    def _wish(self, validation: Any) -> dict[str, Any] | None:
        if validation is False or validation is None:
            return None
        from .validation import wish

        made = wish(validation)
        if not self._validates:
            raise ValueError(
                "`validation_config` was not set on the trainer, but a validation was requested."
            )
        return made

    def checkpoint(self) -> Checkpoint | None:
        from .there import found

        path = self.core.checkpoint_latest()
        return found(path, self.there, waits=True) if path else self._resume_from

    def checkpoints_reported(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        from . import reported, waiting

        mode = reported.check(consistency_mode, timeout_s)
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with waiting.watched(self, "get_all_reported_checkpoints"):
            found = reported.read(self.core, end, self.there)
        if mode is reported.CheckpointConsistencyMode.VALIDATED:
            found = waiting.until_validated(self, found, end)
        if self._score is None:
            return found
        name, order = self._score
        return sorted(found, key=lambda one: _metrics.score(one.metrics, name, order))

    def gather(self, label: str, piece: bytes) -> list[bytes]:
        from . import collective

        number = self._calls[label] = self._calls.get(label, 0) + 1
        return collective.gather(self.core.gather, f"py/{label}/{number}", piece, label)

    def stop_requested(self) -> bool:
        self._leave_interrupts()
        return self.core.stop_requested()

    def preemption(self) -> str | None:
        self._leave_interrupts()
        return self.core.preemption()

    def _leave_interrupts(self) -> None:
        """A function that asks whether it is to stop is not interrupted: without a handler of SIGINT, and Python's own is none that
        a program chose, Ctrl-C reaches it as SIGTERM, which `core` takes over."""
        if self._interrupts and threading.current_thread() is threading.main_thread():
            self._interrupts = False
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, signal.SIG_DFL)

    def heartbeat(self) -> None:
        self.core.heartbeat()

    def finish(self) -> None:
        if self._uploads is not None:
            self._uploading().drain()
        self._tell_lost(self.core.report_drain())

    def finish_failed(self) -> bool:
        if self.made == 0 or self.world_size == 1:
            self.finish()
            return True
        from . import waiting

        return waiting.until_others_came(self, self.made)

    def is_writing(self) -> bool:
        """Whether files of its own, which wait for nobody, are on their way."""
        return self.core.report_is_writing() or (self._uploads is not None and self._uploading().is_writing)

    def _tell_lost(self, why: str | None) -> None:
        """An earlier checkpoint was lost, which the run is allowed to lose."""
        if why is None:
            return
        from . import upload

        upload.told(why)

    def _uploading(self) -> upload.Uploads:
        from . import upload

        if self._uploads is None or self._uploads_of != os.getpid():
            self._uploads, self._uploads_of = upload.Uploads(self), os.getpid()
        return self._uploads


def _unless_placeholder(checkpoint: Any) -> Any:
    """The checkpoint; None where nothing is there, and the policy takes it for a placeholder."""
    from . import defaults, filesystem

    if not defaults.policy.placeholders or not hasattr(checkpoint, "_filesystem"):
        return checkpoint
    there, path = checkpoint._filesystem, checkpoint.path
    is_there = os.path.exists(path) if filesystem.is_local(there) else filesystem.is_directory(there, path)
    return checkpoint if is_there else None


def named(name: str | None) -> str | None:
    """What a checkpoint is to be called, None where that is nothing; ValueError for what is no text."""
    if name is not None and not isinstance(name, str):
        raise ValueError(f"`checkpoint_dir_name` must be text or None, not {type(name).__name__}")
    return name or None


def begin(session: Session) -> None:
    """Makes `session` the one that this process's training function speaks to."""
    global _session
    _session = session
    if session.datasets is not None:
        session.datasets["context"].make_current()


def end(outer: Session | None = None) -> None:
    """Makes `outer` the session of this process again."""
    global _session, _inherited
    _session, _inherited = outer, None


def session(function: str = "this") -> Session:
    """The session of this process; RuntimeError when no training function runs in it, and it is no worker by itself."""
    if _session is None and (_inherited is not None or in_worker()):
        with _beginning:
            if _session is None:
                _begin_here(function)
    if _session is None:
        from . import defaults

        raise RuntimeError(
            f"`{function}` cannot be used outside of a {defaults.policy.called} training function: call it in the function that is "
            "given to a trainer, while `fit` runs it, or in a program that `trainyard run` starts"
        )
    return _session


def _begin_here(function: str) -> None:
    """In a program that is a worker by itself, and in a child of any worker: nobody else looks after its end."""
    from . import _template, _worker  # noqa: F401 # what the end needs: an interpreter that ends cannot import it all

    global _session
    own = _inherited
    if own is None:
        from . import stacks

        try:
            own = WorkerSession({})
        except ValueError as error:
            raise RuntimeError(f"`{function}`: {error}") from None
        own.by_itself = True
        stacks.register()
    _at_end(_finish)
    _session = own


def _at_end(function: Callable[[], None]) -> None:
    """Has it called at the end of this process; a child of multiprocessing's does without `atexit`."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing import util

        util.Finalize(None, function, exitpriority=0)
    else:
        atexit.register(function)


def _finish() -> None:
    """At the end of this process: waits for its reports, and fails with what became of them. One that ends by an exception waits as
    a worker that failed does."""
    if _session is None:
        return
    from . import _template, _worker

    error = sys.exc_info()[1]  # inside of which a child of multiprocessing's ends
    if hasattr(sys, "last_type") or not isinstance(error, (SystemExit, type(None))):
        if not _worker.send_reports():
            if error is not None:
                traceback.print_exc()
            _template.flush()
            os._exit(1)
        return
    try:
        _session.finish()
    except Exception as lost:
        _worker.fail(lost, None)


def _begin_child() -> None:
    """The session is the child's from its first call on, which has its end looked after; the lock may be held by a thread that a
    child does not have."""
    global _session, _inherited, _beginning
    _session, _inherited = None, _session or _inherited
    _beginning = threading.Lock()


os.register_at_fork(after_in_child=_begin_child)


def current() -> Session | None:
    return _session or _inherited


def in_session() -> bool:
    return current() is not None


def node_address() -> str:
    """By which workers of other nodes reach this worker's."""
    return os.environ.get("TRAINYARD_ADDRESS") or os.environ.get("MASTER_ADDR") or LOOPBACK


def in_worker() -> bool:
    """Whether this process is a worker of a run, in whatever state."""
    return "TRAINYARD_FD" in os.environ
