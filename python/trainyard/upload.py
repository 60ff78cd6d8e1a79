"""A report with a checkpoint, in a worker."""

from __future__ import annotations

import shutil
from typing import Any, Callable

from .checkpoint import Checkpoint
from .reported import CheckpointUploadMode


def report(
    core: Any,
    metrics: str,
    checkpoint: Checkpoint,
    name: str | None,
    mode: CheckpointUploadMode,
    delete: bool | None,
    function: Callable | None,
) -> None:
    """See context.report. `function(checkpoint, name)` copies the files itself and gives the Checkpoint of where."""
    if not isinstance(checkpoint, Checkpoint):
        raise ValueError(f"`checkpoint` must be a Checkpoint or None, not {type(checkpoint).__name__}")
    if not isinstance(mode, CheckpointUploadMode):
        raise ValueError(f"`checkpoint_upload_mode` must be a CheckpointUploadMode, not {mode!r}")
    core.report(metrics, checkpoint.path)
    if delete:
        shutil.rmtree(checkpoint.path, ignore_errors=True)
