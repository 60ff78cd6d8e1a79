"""Reports with a checkpoint, in a worker."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import defaults, filesystem, limits, paths, waiting
from . import there as _there
from .checkpoint import Checkpoint
from .reported import CheckpointUploadMode

if TYPE_CHECKING:
    from . import runtime

log = logging.getLogger("trainyard")

_NUMBERS = {CheckpointUploadMode.SYNC: 0, CheckpointUploadMode.ASYNC: 1, CheckpointUploadMode.NO_UPLOAD: 2}
_WARN = "RAY_TRAIN_CHECKPOINT_UPLOAD_WARN_INTERVAL_S"


class Uploads:
    """The checkpoints of one worker on their way. Files are copied by the library, or put away by a function of the user's:
    with ASYNC in a thread of their own, one after the other."""

    def __init__(self, session: runtime.WorkerSession):
        self._session = session
        self._core = session.core
        self._pool: Any = None
        self._running: list[Any] = []

    def report(
        self,
        metrics: str,
        checkpoint: Checkpoint,
        name: str | None,
        mode: CheckpointUploadMode,
        delete: bool | None,
        function: Callable[[Checkpoint, str], Checkpoint] | None,
    ) -> None:
        """See context.report. `function(checkpoint, name)` gives the Checkpoint of where it put the files."""
        check(checkpoint, mode, function)
        is_local = filesystem.is_local(checkpoint._filesystem)
        if is_local and mode is not CheckpointUploadMode.NO_UPLOAD and not os.path.exists(checkpoint.path):
            raise FileNotFoundError(f"checkpoint {checkpoint.path}: No such file or directory")
        if not isinstance(delete, (bool, type(None))):
            raise ValueError(
                f"`delete_local_checkpoint_after_upload` must be True, False or None, not {delete!r}"
            )
        if delete is None:
            delete = mode.default_delete_local_checkpoint_after_upload()
        if mode is CheckpointUploadMode.NO_UPLOAD and not is_local:
            noted = self._name_there(checkpoint, "`checkpoint`")
            with _there.standing_for(noted) as directory:
                self.report(metrics, Checkpoint(directory), noted, CheckpointUploadMode.SYNC, False, None)
            return
        if function is None and not is_local:
            copy = checkpoint.to_directory(tempfile.mkdtemp(prefix="trainyard-report-"))
            self.report(metrics, Checkpoint(copy), name, mode, True, None)
            return
        if function is None or mode is CheckpointUploadMode.NO_UPLOAD:
            with _slow(self._session), self._waiting(mode):
                told(self._core.report(metrics, checkpoint.path, name, _NUMBERS[mode], delete))
            return
        self._raise_what_failed()
        number, staging = self._core.report_begin(metrics, name)
        arguments = (number, staging, checkpoint, name or f"checkpoint_{number:06}", delete, function)
        if mode is CheckpointUploadMode.SYNC:
            with waiting.watched(self._session, "report"):
                self._put_away(*arguments)
        else:
            self._running.append(self._threads().submit(self._put_away, *arguments))

    def drain(self) -> None:
        """Waits for all that is on its way; raises what failed."""
        for future in self._running:
            future.exception()
        self._raise_what_failed()

    def _name_there(self, checkpoint: Checkpoint, what: str) -> str:
        """What a checkpoint of another file system is called in the run's directory there. ValueError where it lies elsewhere."""
        there = self._session.there
        name = None if there is None else there.name_of(checkpoint)
        if name is None:
            run = self._session.run_path if there is None else f"{filesystem.name(there.filesystem)}:{there.path}"
            raise ValueError(
                f"{what} {checkpoint!r} is outside the experiment directory, {run}: a place of another file system must lie "
                "directly below it, as get_context().get_storage() names it"
            )
        return name

    def _put_away(
        self, number: int, staging: str, checkpoint: Checkpoint, name: str, delete: bool, function: Callable[..., Any]
    ) -> None:
        try:
            with _slow(self._session):
                made = function(checkpoint, name)
            if not isinstance(made, Checkpoint):
                raise ValueError(
                    f"checkpoint_upload_fn must return a `{defaults.policy.package}.Checkpoint`, that of where the files are, "
                    f"not {type(made).__name__}"
                )
            place = made.path
            if not filesystem.is_local(made._filesystem):
                place = staging
                noted = self._name_there(made, "the checkpoint of your `checkpoint_upload_fn`,")
                if noted != name:
                    raise ValueError(
                        f"your `checkpoint_upload_fn` put {name!r} under another name, {noted!r}: it must be the one given to it"
                    )
                _there.note(staging, noted)
        except BaseException:
            with contextlib.suppress(Exception):
                self._core.report_end(number, None)
            raise
        lost = self._core.report_end(number, place)
        told(lost)
        is_local = filesystem.is_local(checkpoint._filesystem)
        if delete and lost is None and is_local and self._is_given(checkpoint.path, place):
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def _is_given(self, source: str, place: str) -> bool:
        """Whether the source may go: nothing of a run's, such as a committed checkpoint, and not where the files are now."""
        source = os.path.realpath(source)
        holds = [path for path in (place, self._session.run_path) if path and paths.lies_in(path, source)]
        return not holds and not paths.is_in_run(source)

    def _waiting(self, mode: CheckpointUploadMode) -> contextlib.AbstractContextManager[Any]:
        """Only ASYNC does not wait for the other ranks."""
        if mode is CheckpointUploadMode.ASYNC:
            return contextlib.nullcontext()
        return waiting.watched(self._session, "report")

    def _threads(self) -> Any:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, "trainyard-upload")
        return self._pool

    def _raise_what_failed(self) -> None:
        done = [future for future in self._running if future.done()]
        self._running = [future for future in self._running if not future.done()]
        for future in done:
            future.result()


def check(checkpoint: Any, mode: Any, function: Any) -> None:
    """ValueError for what is no checkpoint, no mode or no function."""
    if not isinstance(checkpoint, Checkpoint):
        raise ValueError(f"`checkpoint` must be a Checkpoint or None, not {type(checkpoint).__name__}")
    if not isinstance(mode, CheckpointUploadMode):
        known = ", ".join(str(known) for known in CheckpointUploadMode)
        raise ValueError(f"`checkpoint_upload_mode` must be one of {known}, not {mode!r}")
    if function is not None and not callable(function):
        raise ValueError(f"`checkpoint_upload_fn` must be a function, not {type(function).__name__}")


def told(lost: str | None) -> None:
    """Warns of a checkpoint that was lost, which the run is allowed to be."""
    if lost is not None:
        log.warning("a checkpoint was lost, and the run goes on without it: %s", lost)


@contextlib.contextmanager
def _slow(session: runtime.WorkerSession) -> Iterator[None]:
    """Warns once when what is inside takes long, unless it is for a rank that is missing."""
    interval = limits.seconds(_WARN, 60)

    def tell() -> None:
        if not waiting.missing(session):
            log.warning("a checkpoint is on its way for %g s (%s)", interval, _WARN)

    timer = threading.Timer(interval, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
