"""The other side of a run (remote.py), as its workers and the driver's readers know it; and checkpoints that the training function
brought there itself. In the run's directory here a directory stands for such a one, with a note that says what it is called there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import tempfile
from typing import TYPE_CHECKING, Any, Iterator

from . import filesystem as filesystems
from .paths import opened

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

NOTE = ".elsewhere.json"
_MOST = 4096  # bytes of it


@dataclasses.dataclass(frozen=True)
class There:
    """The run's directory on another file system."""

    path: str
    filesystem: Any

    def name_of(self, checkpoint: Checkpoint) -> str | None:
        """What the checkpoint is called in the run's directory there; None where it lies elsewhere."""
        folder, name = os.path.split(os.path.normpath(checkpoint.path))
        is_ours = folder == os.path.normpath(self.path)
        return name if is_ours and filesystems.are_same(checkpoint._filesystem, self.filesystem) else None

    def checkpoint(self, name: str) -> Checkpoint:
        from .checkpoint import Checkpoint

        return Checkpoint(f"{self.path}/{name}", filesystem=self.filesystem)


def sent(base: str, filesystem: Any) -> tuple[str, bytes] | None:
    """The place where runs are kept, as it is told to workers; None for a file system that is of its process alone (mock://)."""
    import cloudpickle

    try:
        return base, cloudpickle.dumps(filesystem)
    except Exception:
        return None


def told(storage: tuple[str, bytes] | None, run: str) -> There | None:
    """Of the run of this name, from what `sent` gave."""
    return None if storage is None else There(f"{storage[0]}/{run}", pickle.loads(storage[1]))


def found(path: str, there: There | None) -> Checkpoint:
    """The checkpoint that the directory `path` of a run is, or stands for."""
    from .checkpoint import Checkpoint

    name = None if there is None else noted(path)
    return Checkpoint(path) if there is None or name is None else there.checkpoint(name)


def noted(directory: str) -> str | None:
    """The name in the note of this directory; None where there is none."""
    try:
        with opened(os.path.join(directory, NOTE)) as file:
            return name_in(file.read(_MOST))
    except OSError:
        return None


def name_in(data: bytes) -> str | None:
    """The name that a note holds; None for what is none."""
    try:
        name = json.loads(data)["name"]
    except (ValueError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) and name not in ("", ".", "..") and "/" not in name else None


def note(directory: str, name: str) -> None:
    """Writes the note, whole, into a directory that need not be there yet. ValueError where another rank noted another name."""
    os.makedirs(directory, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=directory, prefix=NOTE)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump({"name": name}, file)
    os.chmod(temporary, 0o644)
    try:
        os.link(temporary, os.path.join(directory, NOTE))
    except FileExistsError:
        if noted(directory) != name:
            raise ValueError(f"the ranks name different places: {noted(directory)!r} and {name!r}") from None
    finally:
        os.unlink(temporary)


@contextlib.contextmanager
def standing_for(name: str) -> Iterator[str]:
    """A directory with the note alone, to be reported."""
    with tempfile.TemporaryDirectory(prefix="trainyard-note-") as directory:
        note(directory, name)
        yield directory
