"""A worker that waits for the reports of the other ranks: it says whose is missing, and does not wait longer than it may.

The wait itself is in the library, so a thread looks after it. Which reports were made stands in the run's journal.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import collective, journal
from .errors import BroadcastCollectiveTimeoutError, ranks_text

if TYPE_CHECKING:
    from . import runtime

_LOOK_S = 0.02


def missing(session: runtime.WorkerSession, made: int | None = None) -> list[int]:
    """The ranks that have made fewer reports in this attempt than `made`, by default as many as this one; [] where the journal
    does not tell."""
    import sqlite3

    question = "SELECT rank, count(*) FROM reports WHERE attempt = ? GROUP BY rank"
    try:
        counts = journal.read(
            session.run_path, lambda database: dict(database.execute(question, (session.attempt,)))
        )
    except (sqlite3.Error, OSError):
        return []
    least = counts.get(session.world_rank, 0) if made is None else made
    return [rank for rank in range(session.world_size) if counts.get(rank, 0) < least]


def _did_not_come(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {ranks_text(ranks)} did not come"


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
            ranks = missing(session)
            if ranks and not ended.is_set():
                raise TimeoutError(_did_not_come(ranks))

    try:
        collective.patiently(ask, label, patience)
    except BroadcastCollectiveTimeoutError as error:
        from . import _worker

        _worker.fail(error, sys._current_frames().get(caller))


def until_all_came(session: runtime.WorkerSession, made: int, timeout_s: float) -> None:
    """Returns when every rank has made as many reports; TimeoutError names those that have not in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        ranks = missing(session, made)
        if not ranks:
            return
        if time.monotonic() >= deadline:
            raise TimeoutError(
                f"get_all_reported_checkpoints: {_did_not_come(ranks)} within {timeout_s:g} s; "
                "every worker must make as many reports"
            )
        time.sleep(
            max(_LOOK_S, time.monotonic() - began)
        )  # a look takes long where the journal has to be copied
