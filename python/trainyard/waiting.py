"""A worker that waits for the reports of the other ranks: it says whose is missing, and does not wait longer than it may.

The wait itself is in the library, so a thread looks after it. Which reports were made the run tells (`ty_report_wait`).
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import collective, reported
from .errors import BroadcastCollectiveTimeoutError
from .reported import ReportedCheckpointStatus

if TYPE_CHECKING:
    from . import runtime
    from .reported import ReportedCheckpoint

_AS_MANY = 0  # reports as this worker has made
_LOOK_S = 0.1
_BEHIND_S = 2.0  # that a rank which failed gives the others for their next report
_COMMIT_S = 30.0  # and for writing what they have reported, as the end of an attempt gives to storage


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


def _reached(session: runtime.WorkerSession, least: int, most: int) -> int:
    """How many reports, of `least` to `most`, all ranks that run have made."""
    while least < most:
        middle = (least + most + 1) // 2
        try:
            session.core.report_wait(middle, 0.0)
            least = middle
        except TimeoutError:
            most = middle - 1
        except (session.core.Error, OSError, MemoryError):
            break
    return least


def until_others_came(session: runtime.WorkerSession, made: int) -> bool:
    """Of a rank that failed, before it ends and all others with it: writes what it has handed over, and waits until they have made
    the reports that it has made, and their checkpoints are committed, as long as they come nearer; whether they came. Nobody waits
    for ranks that have ended."""
    done = threading.Event()

    def ask() -> None:
        with contextlib.suppress(Exception):
            session.finish()
            session.core.checkpoints_reported()
        done.set()

    threading.Thread(target=ask, name="trainyard-last-reports", daemon=True).start()
    reached = 0
    since = time.monotonic()
    while not done.wait(_LOOK_S):
        before, reached = reached, _reached(session, reached, made)
        if reached > before or session.is_writing():
            since = time.monotonic()
        if time.monotonic() - since > (_COMMIT_S if reached == made else _BEHIND_S):
            return False
    return True


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


def until_validated(
    session: runtime.WorkerSession, found: list[ReportedCheckpoint], end: float | None
) -> list[ReportedCheckpoint]:
    """The reported checkpoints once none of them is to be validated any more, or as they are at `end`. The process that
    validates is not this run's: the list is asked for again, at growing pauses."""
    pause = _LOOK_S / 4
    while any(one.status is ReportedCheckpointStatus.PENDING_VALIDATION for one in found):
        left = pause if end is None else min(pause, end - time.monotonic())
        if left <= 0:
            break
        session.heartbeat()
        time.sleep(left)
        pause = min(1.0, 1.5 * pause)
        found = reported.read(session.core, end, session.there)
    return found
