"""A checkpoint: a directory of files, and metadata beside them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import uuid
from typing import Any, Iterator, Mapping

from . import paths

_METADATA = ".metadata.json"
_OURS = "trainyard"  # the key in it that holds the manifest; all others are the user's


class Checkpoint:
    """Names a directory. It does not copy it, nor own it.

    `path` is absolute when made by `from_directory` or by a run.
    """

    def __init__(self, path: str | os.PathLike, filesystem: Any = None):
        if not isinstance(path, (str, os.PathLike)):
            raise ValueError(f"`Checkpoint(path)` must be a path, not {type(path).__name__}")
        text = paths.local(path, "`Checkpoint(path)`")
        if filesystem is not None and type(filesystem).__name__ != "LocalFileSystem":
            raise ValueError("`Checkpoint(filesystem=...)` is not provided: a checkpoint is a directory")
        self.path = text
        self.filesystem = filesystem

    @classmethod
    def from_directory(cls, path: str | os.PathLike) -> Checkpoint:
        """The checkpoint in a local directory, which stays where it is."""
        if not isinstance(path, (str, os.PathLike)):
            raise ValueError(f"`Checkpoint.from_directory(path)` must be a path, not {type(path).__name__}")
        return cls(os.path.abspath(os.fspath(path)))

    def to_directory(self, path: str | os.PathLike | None = None) -> str:
        """Copies the files to `path`, or to a new temporary directory, and gives its path.

        Processes that copy to one directory at a time wait for each other; a copy that is complete is not made again.
        """
        if path is None:
            target = os.path.join(tempfile.gettempdir(), f"checkpoint_{uuid.uuid4().hex[:12]}")
        else:
            target = os.path.abspath(os.fspath(path))
        os.makedirs(target, exist_ok=True)
        with _locked(target):
            if not self._is_copied_to(target):
                shutil.copytree(self._source(), target, dirs_exist_ok=True, symlinks=True)
                self._mark_copied(target)
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The directory itself, to read from; not to be changed."""
        yield self._source()

    def get_metadata(self) -> dict[str, Any]:
        """The user's metadata; {} when none was set."""
        return {name: value for name, value in self._read_metadata().items() if name != _OURS}

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replaces the user's metadata, a dict that JSON can carry."""
        if not isinstance(metadata, Mapping):
            raise ValueError(f"`metadata` must be a dict, not {type(metadata).__name__}")
        if _OURS in metadata:
            raise ValueError(f"`metadata`: the name {_OURS!r} is taken")
        ours = {name: value for name, value in self._read_metadata().items() if name == _OURS}
        text = json.dumps({**ours, **metadata})
        fd, temporary = tempfile.mkstemp(dir=self._source(), prefix=_METADATA)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, os.path.join(self.path, _METADATA))

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Adds to the user's metadata; names that exist get the new value."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def _source(self) -> str:
        if not os.path.isdir(self.path):
            raise FileNotFoundError(f"checkpoint {self.path} is no directory here (was it removed?)")
        return self.path

    def _read_metadata(self) -> dict[str, Any]:
        try:
            with open(os.path.join(self.path, _METADATA), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def _mark(self) -> str:
        return f"{os.path.realpath(self.path)}\n"

    def _is_copied_to(self, target: str) -> bool:
        try:
            with open(_side_file(target, "done"), encoding="utf-8") as file:
                return file.read() == self._mark()
        except FileNotFoundError:
            return False

    def _mark_copied(self, target: str) -> None:
        with open(_side_file(target, "done"), "w", encoding="utf-8") as file:
            file.write(self._mark())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checkpoint):
            return NotImplemented
        return self.path == other.path and self.filesystem == other.filesystem

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"Checkpoint(path={self.path!r})"

    def __fspath__(self) -> str:
        raise TypeError(
            "You cannot use `Checkpoint` objects directly as paths. Use `Checkpoint.to_directory()` or "
            "`Checkpoint.as_directory()` instead."
        )


def _side_file(target: str, what: str) -> str:
    """A file beside `target`, so that nothing strange is in it."""
    directory, name = os.path.split(target)
    return os.path.join(directory, f".{name}.{what}")


@contextlib.contextmanager
def _locked(target: str) -> Iterator[None]:
    """Holds the lock of `target` among the processes of this machine; it ends with the process."""
    import fcntl

    with open(_side_file(target, "lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
