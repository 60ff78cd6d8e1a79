"""The other side of a run (remote.py), as its workers and the driver's readers know it; and checkpoints that the training function
brought there itself. In the run's directory here a directory stands for such a one, with a note that says what it is called there.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import tempfile
import time
from typing import TYPE_CHECKING, Any, Callable, Iterator

from . import filesystem as filesystems
from . import manifest
from .paths import opened

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

NOTE = ".elsewhere.json"
_MOST = 4096  # bytes of it
_ARRIVE_S = 600.0
_LOOK_S = 0.1


class There:
    """The run's directory on another file system. `load` gives that file system, when it is first needed."""

    def __init__(self, path: str, load: Callable[[], Any]):
        self.path = path
        self._load = load

    @functools.cached_property
    def filesystem(self) -> Any:
        return self._load()

    def name_of(self, checkpoint: Checkpoint) -> str:
        """What the checkpoint is called in the run's directory there. ValueError, without its subject, where it lies elsewhere."""
        where = f"is outside the experiment directory, {filesystems.name(self.filesystem)}:{self.path}"
        if not filesystems.are_same(checkpoint._filesystem, self.filesystem):
            raise ValueError(f"{where}, since its file system is another one than RunConfig.storage_filesystem: bring it there")
        folder, name = os.path.split(os.path.normpath(checkpoint.path))
        if folder != os.path.normpath(self.path):
            raise ValueError(f"{where}: it must lie directly below it, as get_context().get_storage() names it")
        return name

    def checkpoint(self, name: str) -> Checkpoint:
        from .checkpoint import Checkpoint

        return Checkpoint(f"{self.path}/{name}", filesystem=self.filesystem)

    def await_copied(self, directory: str) -> None:
        """Waits for the files of ranks that copied theirs, where others brought their own: the driver sends them behind the
        training. TimeoutError."""
        end = time.monotonic() + _ARRIVE_S
        target = f"{self.path}/{noted(directory)}"
        for here, inside, is_file in filesystems.tree(directory):
            if not is_file or inside in (NOTE, manifest.INSIDE):
                continue
            while not filesystems.has(self.filesystem, f"{target}/{inside}", os.path.getsize(here)):
                if time.monotonic() > end:
                    raise TimeoutError(f"{here} did not come to {target} in {_ARRIVE_S:g} s")
                time.sleep(_LOOK_S)


def sent(base: str, filesystem: Any) -> tuple[str, bytes] | None:
    """The place where runs are kept, as it is told to workers; None for a file system that is of its process alone (mock://)."""
    import cloudpickle

    try:
        return base, cloudpickle.dumps(filesystem)
    except Exception:
        return None


def told(storage: tuple[str, bytes] | None, run: str) -> There | None:
    """Of the run of this name, from what `sent` gave."""
    return None if storage is None else There(f"{storage[0]}/{run}", functools.partial(pickle.loads, storage[1]))


def found(path: str, there: There | None, waits: bool = False) -> Checkpoint:
    """The checkpoint that the directory `path` of a run is, or stands for; FileNotFoundError where that is nowhere to be found.
    `waits`: until all of it is there (There.await_copied)."""
    from .checkpoint import Checkpoint

    name = noted(path)
    if name is None:
        return Checkpoint(path)
    if there is None:
        raise FileNotFoundError(absent(path))
    if waits:
        there.await_copied(path)
    return there.checkpoint(name)


def absent(path: str) -> str:
    """Of a directory that stands for a checkpoint, for who does not know the other side."""
    return f"{path} only stands for a checkpoint, which is on another file system: name that as the run's storage"


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
