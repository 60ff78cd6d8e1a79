"""The end of a training function, on all workers at once: what they set up together they take down together."""

from __future__ import annotations

import logging
import time

from . import runtime

log = logging.getLogger("trainyard")

_TOLD_S = 600.0  # between two lines that say who is waited for
_LIMIT_S = 86400.0


def all_returned(session: runtime.Session) -> None:
    """Waits until the training function has returned on every rank, a day at most: a rank that is done must not take away
    what the others still use. RuntimeError when one has ended without returning, as by `os._exit(0)`."""
    if session.local or session.world_size == 1:
        return
    from . import _core

    deadline = time.monotonic() + _LIMIT_S
    while (left := deadline - time.monotonic()) > 0:
        try:
            _core.gather(f"returned/{session.attempt}", b"", min(_TOLD_S, left))
            return
        except _core.Error as error:
            raise RuntimeError(
                f"the training function has returned here, but {str(error).partition(' without')[0]} before it returned there"
            ) from None
        except TimeoutError as error:
            log.warning("the training function has returned here, not yet on all ranks: %s", error)
