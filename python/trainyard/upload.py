"""A report with a checkpoint, in a worker."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from .checkpoint import Checkpoint
from .reported import CheckpointUploadMode


def report(
    core: Any,
    metrics: str,
    checkpoint: Checkpoint,
    name: str | None,
    mode: CheckpointUploadMode,
    delete: bool | None,
    function: Callable[[Checkpoint, str | None], Checkpoint] | None,
) -> None:
    """See context.report. `function(checkpoint, name)` copies the files itself and gives the Checkpoint of where."""
    check(checkpoint, mode, function)
    if delete is None:
        delete = mode._default_delete_local_checkpoint_after_upload()
    handed = checkpoint if function is None else _uploaded(function, checkpoint, name)
    core.report(metrics, handed.path)
    if delete:
        shutil.rmtree(checkpoint.path, ignore_errors=True)


def check(checkpoint: Any, mode: Any, function: Any) -> None:
    """ValueError for what is no checkpoint, no mode or no function."""
    if not isinstance(checkpoint, Checkpoint):
        raise ValueError(f"`checkpoint` must be a Checkpoint or None, not {type(checkpoint).__name__}")
    if not isinstance(mode, CheckpointUploadMode):
        known = ", ".join(str(known) for known in CheckpointUploadMode)
        raise ValueError(f"`checkpoint_upload_mode` must be one of {known}, not {mode!r}")
    if function is not None and not callable(function):
        raise ValueError(f"`checkpoint_upload_fn` must be a function, not {type(function).__name__}")


def _uploaded(function: Callable, checkpoint: Checkpoint, name: str | None) -> Checkpoint:
    made = function(checkpoint, name)
    if not isinstance(made, Checkpoint):
        raise ValueError(
            f"`checkpoint_upload_fn` must return the Checkpoint of where the files are, not {type(made).__name__}"
        )
    return made
