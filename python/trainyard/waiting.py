"""A worker that waits for the reports of the other ranks: it says whose is missing, and does not wait longer than it may.

The wait itself is in the library, so a thread looks after it. Which reports were made the run tells (`ty_report_wait`).
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import collective
from .errors import BroadcastCollectiveTimeoutError

if TYPE_CHECKING:
    from . import runtime

_AS_MANY = 0  # reports as this worker has made


def missing(session: runtime.WorkerSession) -> str | None:
    """ "rank 2 did not come": the ranks that run and have made fewer reports in this attempt than this one; None without, or where
    the run does not tell."""
    try:
        session.core.report_wait(_AS_MANY, 0.0)
    except TimeoutError as error:
        return str(error)
    except (session.core.Error, OSError, MemoryError):
        pass
    return None


@contextlib.contextmanager
def watched(session: runtime.WorkerSession, label: str) -> Iterator[None]:
    """Around a call that waits for the reports of all: tells whose is missing as `collective.patiently` does. After the limit the
    worker ends, with the BroadcastCollectiveTimeoutError told as its failure: the call cannot be left."""
    ended = threading.Event()
    arguments = (session, label, ended, collective.patience(), threading.get_ident())
    threading.Thread(target=_watch, args=arguments, name="trainyard-watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _watch(
    session: runtime.WorkerSession,
    label: str,
    ended: threading.Event,
    patience: collective.Patience,
    caller: int,
) -> None:
    def ask(wait_s: float) -> None:
        while not ended.wait(wait_s if wait_s >= 0 else None):
            absent = missing(session)
            if absent and not ended.is_set():
                raise TimeoutError(absent)

    try:
        collective.patiently(ask, label, patience)
    except BroadcastCollectiveTimeoutError as error:
        from . import _worker

        _worker.fail(error, sys._current_frames().get(caller))


def until_all_came(session: runtime.WorkerSession, made: int, timeout_s: float) -> None:
    """Returns when every rank that runs has made as many reports; TimeoutError names those that have not in time."""
    if made == 0:
        return
    try:
        session.core.report_wait(made, timeout_s)
    except TimeoutError as error:
        raise TimeoutError(
            f"get_all_reported_checkpoints: {error} within {timeout_s:g} s; every worker must make as many reports"
        ) from None
