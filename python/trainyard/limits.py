"""Waits that have an end, whose length the environment may give."""

from __future__ import annotations

import logging
import math
import os
import threading
from typing import Callable, Mapping

log = logging.getLogger("trainyard")

# What is read by `seconds`, and whether it may be negative.
_READ = {
    "RAY_TRAIN_COLLECTIVE_TIMEOUT_S": True,
    "RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S": True,
    "RAY_TRAIN_CHECKPOINT_UPLOAD_WARN_INTERVAL_S": False,
    "JAX_DISTRIBUTED_SHUTDOWN_TIMEOUT_S": False,
    "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": False,
}


def seconds(name: str, default: float, environment: Mapping[str, str] = os.environ) -> float:
    """A length of time from the environment; ValueError when it is no number of seconds, 0 or more unless it may be negative."""
    negative = _READ[name]
    text = environment.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (value < 0 and not negative):
        raise ValueError(f"{name}={text!r} must be a number of seconds{'' if negative else ', 0 or more'}")
    return value


def check(environment: Mapping[str, str | None]) -> None:
    """That what workers will read of it can be read; ValueError."""
    given = {name: text for name, text in environment.items() if text is not None}
    for name in _READ:
        seconds(name, 0, given)


def within(limit_s: float, function: Callable[[], object], what: str) -> bool:
    """Whether `function` came to its end in time; a warning says `what` did not, or why it failed. The process then goes on
    without it; with 0 it is not called at all."""
    if limit_s == 0:
        return False
    failures: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name=what, daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        log.warning("%s within %g s; going on without", what, limit_s)
    elif failures:
        log.warning("%s: %s", what, failures[0])
    return not thread.is_alive() and not failures
