"""Checkpoints as reports give them: how they are handed over, and the list of those that are kept."""

from __future__ import annotations

import dataclasses
import enum
import json
import time
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .there import There


class CheckpointUploadMode(enum.Enum):
    """How `report` hands a checkpoint over."""

    ASYNC = "ASYNC"  # copied behind the training
    SYNC = "SYNC"  # copied before `report` returns
    NO_UPLOAD = "NO_UPLOAD"  # already where it is to stay

    def default_delete_local_checkpoint_after_upload(self) -> bool:
        """Whether the directory that was reported goes when its files are copied, where the report does not say."""
        return self is CheckpointUploadMode.ASYNC


class ReportOptions(NamedTuple):
    """What `report` is told beside metrics and checkpoint, as context.report has it."""

    name: str | None = None
    mode: CheckpointUploadMode = CheckpointUploadMode.SYNC
    delete: bool | None = None
    function: Callable[..., Any] | None = None
    validation: Any = False


NO_OPTIONS = ReportOptions()


class CheckpointConsistencyMode(enum.Enum):
    """What get_all_reported_checkpoints waits for."""

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


class ReportedCheckpointStatus(enum.Enum):
    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    VALIDATION_FAILED = "VALIDATION_FAILED"


@dataclasses.dataclass
class ReportedCheckpoint:
    """A checkpoint that is kept, and the metrics of rank 0's report of it, with those of its validation."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED


def check(consistency_mode: Any, timeout_s: Any) -> CheckpointConsistencyMode:
    """The mode; ValueError for one that is none, or no number of seconds."""
    try:
        mode = CheckpointConsistencyMode(consistency_mode)
    except ValueError:
        known = ", ".join(map(str, CheckpointConsistencyMode))
        raise ValueError(f"`consistency_mode` must be one of {known}, not {consistency_mode!r}") from None
    if timeout_s is None:
        return mode
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not timeout_s >= 0:
        raise ValueError(f"`timeout_s`={timeout_s!r} must be a number of seconds, 0 or more, or None")
    return mode


def read(core: Any, end: float | None = None, there: There | None = None) -> list[ReportedCheckpoint]:
    """The kept checkpoints as this worker's agent tells them, once all that was reported is, or at `end` of the monotonic clock."""
    from . import metrics
    from .there import found as checkpoint_at

    found = []
    for row in json.loads(core.checkpoints_reported(-1.0 if end is None else max(0.0, end - time.monotonic()))):
        told = row.get("metrics") or {}
        status = _status(metrics.validation(told))
        found.append(ReportedCheckpoint(checkpoint_at(row["path"], there, waits=True), metrics.restore(told), status))
    return found


def _status(validation: dict[str, Any] | str | None) -> ReportedCheckpointStatus:
    if isinstance(validation, dict):
        return ReportedCheckpointStatus.PENDING_VALIDATION
    known = {status.value for status in ReportedCheckpointStatus}
    return ReportedCheckpointStatus(validation if validation in known else "COMMITTED")
