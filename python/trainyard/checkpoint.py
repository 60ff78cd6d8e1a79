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

        Processes that copy to one directory at a time wait for each other; files that are there already are not copied again.
        """
        source = self._source()
        if path is None:
            target = os.path.join(tempfile.gettempdir(), f"checkpoint_{uuid.uuid4().hex[:12]}")
        else:
            target = os.path.abspath(os.fspath(path))
        os.makedirs(target, exist_ok=True)
        with _locked(target):
            _copy_tree(source, target)
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
        with _locked(self._source()):
            self._write_metadata(metadata)

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Adds to the user's metadata; names that exist get the new value."""
        with _locked(self._source()):
            self._write_metadata({**self.get_metadata(), **metadata})

    def _write_metadata(self, metadata: Mapping[str, Any]) -> None:
        if not isinstance(metadata, Mapping):
            raise ValueError(f"`metadata` must be a dict, not {type(metadata).__name__}")
        if _OURS in metadata:
            raise ValueError(f"`metadata`: the name {_OURS!r} is taken")
        ours = {name: value for name, value in self._read_metadata().items() if name == _OURS}
        text = json.dumps({**ours, **metadata})
        with _replaced(os.path.join(self._source(), _METADATA), _METADATA) as temporary:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(temporary, 0o644)

    def _source(self) -> str:
        if not os.path.isdir(self.path):
            raise FileNotFoundError(f"checkpoint {self.path} is no directory here (was it removed?)")
        return self.path

    def _read_metadata(self) -> dict[str, Any]:
        try:
            with paths.opened(os.path.join(self.path, _METADATA)) as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

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


def _copy_tree(source: str, target: str) -> None:
    """The files of `source` into `target`, where others stay. A link takes the place of what was there."""

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(source, onerror=fail):
        to = os.path.normpath(os.path.join(target, os.path.relpath(folder, source)))
        os.makedirs(to, exist_ok=True)
        for name in [*files, *folders]:
            one, other = os.path.join(folder, name), os.path.join(to, name)
            if os.path.islink(one):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(other)
                os.symlink(os.readlink(one), other)
            elif name in files:
                _copied(one, other)


def _copied(source: str, target: str) -> None:
    """Copies a file, whole or not at all, unless what is there is the same by size and time."""
    if not _is_same(source, target):
        with _replaced(target, ".copy-") as temporary:
            shutil.copy2(source, temporary)


@contextlib.contextmanager
def _replaced(target: str, prefix: str) -> Iterator[str]:
    """A new file, empty and beside `target`, whose place it takes at the end; where that is not reached it goes."""
    fd, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=prefix)
    os.close(fd)
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _is_same(source: str, target: str) -> bool:
    try:
        there, here = os.stat(target), os.stat(source)
    except FileNotFoundError:
        return False
    return (there.st_size, there.st_mtime_ns) == (here.st_size, here.st_mtime_ns)


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Holds the lock of a directory among the processes of this machine; it ends with the process. On a file system that has no
    locks for directories it is none."""
    import fcntl

    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
