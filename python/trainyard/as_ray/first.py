"""The first Ray Train, which a program means by RAY_TRAIN_V2_ENABLED=0: what it may say that the second refuses works, and is told
of as Ray tells of it."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from . import knobs
from .annotations import RayDeprecationWarning


def is_meant() -> bool:
    return not knobs.is_true("RAY_TRAIN_V2_ENABLED", True)


def tolerates(text: str) -> bool:
    """Whether what is deprecated, as `text` says, works all the same: see defaults.Policy."""
    if not is_meant():
        return False
    if knobs.is_true("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", True):
        warnings.warn(text, RayDeprecationWarning, stacklevel=_level_of_the_program())
    return True


def _level_of_the_program() -> int:
    """How far above the caller the nearest frame is that is not this package's."""
    level = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("trainyard."):
        level, frame = level + 1, frame.f_back
    return level
