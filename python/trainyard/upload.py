"""Reports with a checkpoint, in a worker."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

from . import limits
from .checkpoint import Checkpoint
from .reported import CheckpointUploadMode

log = logging.getLogger("trainyard")

_NUMBERS = {CheckpointUploadMode.SYNC: 0, CheckpointUploadMode.ASYNC: 1, CheckpointUploadMode.NO_UPLOAD: 2}
_WARN = "RAY_TRAIN_CHECKPOINT_UPLOAD_WARN_INTERVAL_S"


class Uploads:
    """The checkpoints of one worker on their way. Files are copied by the library, or put away by a function of the user's:
    with ASYNC in a thread of their own, one after the other."""

    def __init__(self, core: Any):
        self._core = core
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
        if name is not None and not isinstance(name, str):
            raise ValueError(f"`checkpoint_dir_name` must be text or None, not {type(name).__name__}")
        if not isinstance(delete, (bool, type(None))):
            raise ValueError(
                f"`delete_local_checkpoint_after_upload` must be True, False or None, not {delete!r}"
            )
        if delete is None:
            delete = mode._default_delete_local_checkpoint_after_upload()
        if function is None or mode is CheckpointUploadMode.NO_UPLOAD:
            with _watched():
                told(self._core.report(metrics, checkpoint.path, name, _NUMBERS[mode], delete))
            return
        self._raise_what_failed()
        number, _ = self._core.report_begin(metrics, name)
        arguments = (number, checkpoint, name or f"checkpoint_{number:06}", delete, function)
        if mode is CheckpointUploadMode.SYNC:
            self._put_away(*arguments)
        else:
            self._running.append(self._threads().submit(self._put_away, *arguments))

    def drain(self) -> None:
        """Waits for all that is on its way; raises what failed."""
        for future in self._running:
            future.exception()
        self._raise_what_failed()

    def _put_away(
        self, number: int, checkpoint: Checkpoint, name: str, delete: bool, function: Callable
    ) -> None:
        try:
            with _watched():
                made = function(checkpoint, name)
            if not isinstance(made, Checkpoint):
                raise ValueError(
                    f"`checkpoint_upload_fn` must return the Checkpoint of where the files are, not {type(made).__name__}"
                )
        except BaseException:
            with contextlib.suppress(Exception):
                self._core.report_end(number, None)
            raise
        told(self._core.report_end(number, made.path))
        if delete:
            shutil.rmtree(checkpoint.path, ignore_errors=True)

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
def _watched() -> Iterator[None]:
    """Warns once when what is inside takes long."""
    interval = limits.seconds(_WARN, 60)
    timer = threading.Timer(
        interval, log.warning, ("a checkpoint is on its way for %g s (%s)", interval, _WARN)
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
