"""Waits that have an end, whose length the environment may give."""

from __future__ import annotations

import logging
import math
import os
import threading
from typing import Callable, Mapping

log = logging.getLogger("trainyard")


def seconds(
    name: str, default: float, environment: Mapping[str, str] = os.environ, negative: bool = False
) -> float:
    """A length of time from the environment; ValueError when it is no number of seconds, 0 or more unless it may be `negative`."""
    text = environment.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (value < 0 and not negative):
        raise ValueError(f"{name}={text!r} must be a number of seconds{'' if negative else ', 0 or more'}")
    return value


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
