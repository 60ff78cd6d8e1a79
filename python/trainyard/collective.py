"""Barrier and broadcast among the workers of a run, for small things: agreeing on a path, waiting for a file.

They go through the run's store, not through the framework's process group, and need no framework.
"""

from __future__ import annotations

import logging
import pickle
from typing import Any, Callable, NamedTuple, TypeVar

from . import limits, runtime

T = TypeVar("T")
log = logging.getLogger("trainyard")

_PIECE = 1 << 20  # what the store takes at once, in bytes
_LARGE = 1000  # bytes; more is better broadcast by the framework


def barrier() -> None:
    """Returns when every worker has made the call. RuntimeError outside of a training function; BroadcastCollectiveTimeoutError
    where a limit is set (RAY_TRAIN_COLLECTIVE_TIMEOUT_S) and a rank does not come."""
    runtime.session("barrier").gather("barrier", b"")


def broadcast_from_rank_zero(data: T) -> T:
    """Rank 0's `data`, on every worker, by pickle. What the other ranks give is not looked at. With num_workers=0, also
    under a torchrun, each process gets its own `data` back. TypeError for what cannot be pickled; else as `barrier`."""
    session = runtime.session("broadcast_from_rank_zero")
    if session.local:
        return data
    sent: T = broadcast(session, data)
    return sent


def broadcast(session: runtime.Session, data: Any, label: str = "broadcast_from_rank_zero") -> Any:
    first = session.world_rank == 0
    text = _pickled(data) if first else b""
    if len(text) > _LARGE:
        log.warning(
            "broadcast_from_rank_zero: %d bytes; large data is better sent by the framework's own broadcast",
            len(text),
        )
    head = len(text).to_bytes(8, "little") + session.world_size.to_bytes(4, "little") + text[: _PIECE - 12]
    pieces = session.gather(label, head)
    size = int.from_bytes(pieces[0][:8], "little")
    parts = [pieces[0][12:]]
    got = len(parts[0])
    while got < size:
        parts.append(session.gather(label, text[got : got + _PIECE])[0])
        got += len(parts[-1])
    return data if first else pickle.loads(b"".join(parts))


def _pickled(data: Any) -> bytes:
    import cloudpickle

    try:
        return cloudpickle.dumps(data)
    except Exception as error:
        raise NotPicklableError(
            f"`broadcast_from_rank_zero`: a {type(data).__name__} cannot be pickled: {error}"
        ) from error


class NotPicklableError(TypeError, ValueError):
    """What is to be broadcast cannot be pickled."""


class Patience(NamedTuple):
    """How long the ranks wait for each other: `limit` seconds (negative: without one), and a warning every `interval`."""

    limit: float
    interval: float


def patience() -> Patience:
    """As RAY_TRAIN_COLLECTIVE_TIMEOUT_S (-1) and RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S (60) say; ValueError."""
    return Patience(
        limits.seconds("RAY_TRAIN_COLLECTIVE_TIMEOUT_S", -1),
        limits.seconds("RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S", 60),
    )


def gather(ask: Callable[..., Any], key: str, piece: bytes, label: str) -> list[bytes]:
    """The pieces of all ranks."""
    return patiently(lambda wait_s: ask(key, piece, wait_s), label, patience())


def patiently(ask: Callable[[float], T], label: str, patience: Patience) -> T:
    """What `ask(seconds)` gives; while it raises TimeoutError, which names the ranks that have not come, it is asked again. Warns
    of them, and at the limit gives up with BroadcastCollectiveTimeoutError."""
    limit, interval = patience
    waited = 0.0
    while True:
        wait = interval if interval > 0 else -1.0
        if limit >= 0:
            wait = limit - waited if wait < 0 else min(wait, limit - waited)
        try:
            return ask(wait)
        except TimeoutError as error:
            waited += wait
            if limit >= 0 and waited >= limit:
                from .errors import BroadcastCollectiveTimeoutError

                raise BroadcastCollectiveTimeoutError(
                    f"{label}: {error} within {limit:g} s (RAY_TRAIN_COLLECTIVE_TIMEOUT_S); every worker must make "
                    "the call as often as the others"
                ) from None
            log.warning("%s: waiting for %g s: %s yet; every worker must make the call", label, waited, error)
