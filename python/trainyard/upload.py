"""Reports with a checkpoint, in a worker."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import defaults, filesystem, limits, paths, waiting
from . import there as _there
from .checkpoint import Checkpoint, leads_out
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
        self.is_writing = False  # an upload function, or a copy from another file system
        self._running: list[Any] = []
        self._brought: set[str] = set()  # names that were on the other side

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
        check(checkpoint, mode, delete, function)
        is_local = filesystem.is_local(checkpoint._filesystem)
        if is_local and mode is not CheckpointUploadMode.NO_UPLOAD and not os.path.exists(checkpoint.path):
            raise FileNotFoundError(f"checkpoint {checkpoint.path}: No such file or directory")
        if delete is None:
            delete = mode.default_delete_local_checkpoint_after_upload()
        if mode is CheckpointUploadMode.NO_UPLOAD and not is_local:
            noted = self._name_there(checkpoint, "`checkpoint`")
            self._refuse_gone(noted)
            with _there.standing_for(noted) as directory:
                self.report(metrics, Checkpoint(directory), noted, CheckpointUploadMode.SYNC, False, None)
            self._brought.add(noted)
            return
        if is_local and mode is CheckpointUploadMode.NO_UPLOAD:
            self._hand_over(metrics, checkpoint.path, name, mode, delete)
            return
        if is_local and function is None:
            if defaults.policy.follows_links and leads_out(checkpoint.path):
                self._hand_over_copy(metrics, checkpoint, name, mode, delete)
            else:
                self._hand_over(metrics, checkpoint.path, name, mode, delete)
            return
        self._raise_what_failed()
        if function is not None:
            name = name or self._name_of_attempt()
            self._refuse_gone(name or "")
        number, staging = self._core.report_begin(metrics, name)
        arguments = (number, staging, checkpoint, name or f"checkpoint_{number:06}", delete, function)
        if mode is CheckpointUploadMode.SYNC:
            with waiting.watched(self._session, "report"):
                self._put_away(*arguments)
        else:
            self._put_away_later(*arguments)

    def _hand_over(self, metrics: str, path: str, name: str | None, mode: CheckpointUploadMode, delete: bool) -> None:
        """To the library, which copies the files unless they are where they stay."""
        with _slow(self._session), self._waiting(mode):
            told(self._core.report(metrics, path, name, _NUMBERS[mode], delete))

    def _hand_over_copy(
        self, metrics: str, checkpoint: Checkpoint, name: str | None, mode: CheckpointUploadMode, delete: bool
    ) -> None:
        """The same of a checkpoint with links that lead out of it: as its copy, which has the files."""
        copy = tempfile.mkdtemp()
        try:
            self._hand_over(metrics, checkpoint.to_directory(copy), name, mode, True)
        except BaseException:
            shutil.rmtree(copy, ignore_errors=True)
            raise
        if delete and self._is_given(checkpoint.path, copy):
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def drain(self) -> None:
        """Waits for all that is on its way; raises what failed."""
        for future in self._running:
            future.exception()
        self._raise_what_failed()

    def _name_of_attempt(self) -> str | None:
        """What a checkpoint that a function may bring to the other side is called there, unless by its number: what an attempt
        that died left under that name is none of its files."""
        if self._session.there is None or self._session.attempt == 1:
            return None
        return f"checkpoint_attempt-{self._session.attempt}_{self._session.made + 1:06}"

    def _refuse_gone(self, name: str) -> None:
        """ValueError for a name on the other side of which this rank had a checkpoint that is no longer kept: the driver may be
        about to remove it."""
        if name not in self._brought:
            return
        kept = [os.path.basename(one["path"]) for one in json.loads(self._core.checkpoints_reported(0.0))]
        if name not in kept:
            raise ValueError(
                f"a checkpoint {name!r} of this run is no longer kept, and its removal may take what is brought under its name: "
                "give each checkpoint a name of its own"
            )

    def _name_there(self, checkpoint: Checkpoint, what: str) -> str:
        """What a checkpoint of another file system is called in the run's directory there. ValueError where it lies elsewhere."""
        there = self._session.there
        if there is None:
            raise ValueError(
                f"{what} {checkpoint!r} is outside the experiment directory, {self._session.run_path}, which is on this machine as "
                "far as its workers know: `report` copies it where neither NO_UPLOAD nor `checkpoint_upload_fn` is given"
            )
        try:
            return there.name_of(checkpoint)
        except ValueError as error:
            raise ValueError(f"{what} {checkpoint!r} {error}") from None

    def _put_away(
        self, number: int, staging: str, checkpoint: Checkpoint, name: str, delete: bool, function: Callable[..., Any] | None
    ) -> None:
        try:
            place = self._written(staging, checkpoint, name, function)
        except BaseException:
            with contextlib.suppress(Exception):
                self._core.report_end(number, None)
            raise
        lost = self._core.report_end(number, place)
        told(lost)
        if function is not None and place == staging and lost is None:
            self._brought.add(name)
        is_local = filesystem.is_local(checkpoint._filesystem)
        if delete and lost is None and is_local and self._is_given(checkpoint.path, place):
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def _written(self, staging: str, checkpoint: Checkpoint, name: str, function: Callable[..., Any] | None) -> str:
        self.is_writing = True
        try:
            with _slow(self._session):
                if function is None:
                    return checkpoint._add_to(staging)
                return self._placed(function(checkpoint, name), staging, name)
        finally:
            self.is_writing = False

    def _put_away_later(self, *arguments: Any) -> None:
        """Behind those before it, in a thread that a program which fails can end without."""
        from concurrent.futures import Future

        before, future = self._running[-1:], Future[None]()

        def run() -> None:
            for earlier in before:
                earlier.exception()
            try:
                future.set_result(self._put_away(*arguments))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="trainyard-upload", daemon=True).start()
        self._running.append(future)

    def _placed(self, made: Any, staging: str, name: str) -> str:
        """Where the files lie by what an upload function gave: the staging directory, with a note, for those on the other side."""
        if not isinstance(made, Checkpoint):
            raise ValueError(
                f"checkpoint_upload_fn must return a `{defaults.policy.package}.Checkpoint`, that of where the files are, "
                f"not {type(made).__name__}"
            )
        if filesystem.is_local(made._filesystem):
            return made.path
        noted = self._name_there(made, "the checkpoint of your `checkpoint_upload_fn`,")
        if noted != name:
            raise ValueError(
                f"your `checkpoint_upload_fn` put {name!r} under another name, {noted!r}: it must be the one given to it"
            )
        _there.note(staging, noted)
        return staging

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

    def _raise_what_failed(self) -> None:
        done = [future for future in self._running if future.done()]
        self._running = [future for future in self._running if not future.done()]
        for future in done:
            future.result()


def check(checkpoint: Any, mode: Any, delete: Any, function: Any) -> None:
    """ValueError for what is no checkpoint, no mode, no choice or no function."""
    if not isinstance(checkpoint, Checkpoint):
        raise ValueError(f"`checkpoint` must be a Checkpoint or None, not {type(checkpoint).__name__}")
    if not isinstance(mode, CheckpointUploadMode):
        standard_first = sorted(CheckpointUploadMode, key=lambda one: one is not CheckpointUploadMode.SYNC)
        known = ", ".join(map(str, standard_first))
        raise ValueError(f"`checkpoint_upload_mode` must be one of {known}, not {mode!r}")
    if not isinstance(delete, (bool, type(None))):
        raise ValueError(f"`delete_local_checkpoint_after_upload` must be True, False or None, not {delete!r}")
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
