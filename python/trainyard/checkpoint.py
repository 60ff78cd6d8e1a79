"""A checkpoint: a directory of files, and metadata beside them. It lies on this machine, or on a file system of pyarrow."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import stat
import tempfile
import uuid
import warnings
from typing import TYPE_CHECKING, Any, Iterator, Mapping

from . import filesystem as filesystems
from . import paths
from .manifest import INSIDE as _METADATA

_OURS = "trainyard"  # the key in it that holds the manifest; all others are the user's
_FLOAT = "$float"  # {"$float": "inf"} stands for a number that JSON has no form for
_COPY = "checkpoint_tmp_"  # how the temporary directories begin that checkpoints are copied to


_FILES = "it is a directory of files: write them, and give it to `from_directory`"
_PLACE = "give the address to the constructor, and read it with `as_directory` or `to_directory`"
_BESIDE = "keep what belongs to it in its metadata, with `set_metadata`"
_BEFORE = {
    **dict.fromkeys(("from_dict", "to_dict", "from_bytes", "to_bytes", "get_internal_representation"), _FILES),
    **dict.fromkeys(("from_uri", "to_uri", "uri"), _PLACE),
    **dict.fromkeys(("get_preprocessor", "set_preprocessor"), _BESIDE),
}


class _CheckpointType(type):
    """Says what to do instead of what the checkpoints of the first Ray Train had, where the class is asked for it."""

    if not TYPE_CHECKING:  # for which there is no such name

        def __getattr__(cls, name: str) -> Any:
            if name in _BEFORE:
                raise AttributeError(f"`{cls.__name__}` does not support `{name}()`: {_BEFORE[name]}")
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")


class Checkpoint(metaclass=_CheckpointType):
    """Names a directory. It does not copy it, nor own it.

    `path` is absolute when made by `from_directory` or by a run. An address such as "s3://bucket/model" names another file system,
    and so does `filesystem`, one of pyarrow.fs, on which `path` then lies.
    """

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None):
        self.path, self._filesystem = filesystems.find(path, filesystem, "`Checkpoint(path)`")
        self._id = uuid.uuid4().hex  # of its copy: all who have this checkpoint, in whatever process, share one

    @property
    def filesystem(self) -> Any:
        """Where `path` lies, a file system of pyarrow; None for this machine's where pyarrow is not installed."""
        return filesystems.local() if self._filesystem is None else self._filesystem

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """The checkpoint in a local directory, which stays where it is."""
        return cls(os.path.abspath(paths.as_text(path, "`Checkpoint.from_directory(path)`")))

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copies the files to `path`, or to a temporary directory that is this checkpoint's, and gives its path.

        Processes that copy to one directory at a time wait for each other; files that are there already are not copied again.
        """
        source = self._source()
        if path is None:
            target = os.path.abspath(self._copy())
            _make_ours(target)
        else:
            target = os.path.normpath(os.path.expanduser(paths.as_text(path, "`Checkpoint.to_directory(path)`")))
            if self._filesystem is None and paths.lies_in(target, source) and not paths.lies_in(source, target):
                raise ValueError(f"`path`={target!r} lies in the checkpoint itself, {source}: name a place outside of it")
            os.makedirs(target, exist_ok=True)
        with _locked(target):
            if self._filesystem is None:
                _copy_tree(source, target)
            else:
                filesystems.fetch(self._filesystem, source, target, _is_there, _replaced)
        return target

    def _add_to(self, target: str) -> str:
        """Fetches the files into a directory where other ranks put theirs, and gives its path. A file that is there stays, which a
        RuntimeWarning tells where its size is another."""

        def is_there(place: str, size: int, _: int | None) -> bool:
            if not os.path.lexists(place):
                return False
            if os.path.getsize(place) != size:
                inside = os.path.relpath(place, target)
                warnings.warn(f"{inside} differs between the ranks: the one that came first is kept", RuntimeWarning, stacklevel=2)
            return True

        os.makedirs(target, exist_ok=True)
        with _locked(target):
            filesystems.fetch(self._filesystem, self._source(), target, is_there, _replaced)
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The directory itself, to read from; not to be changed. That of another file system is a copy, which is removed when all
        who read it are done."""
        if self._filesystem is None:
            yield self._source()
            return
        with _read_by_us(self._copy()):
            yield self.to_directory()

    def _copy(self) -> str:
        return os.path.join(tempfile.gettempdir(), _COPY + self._id)

    def get_metadata(self) -> dict[str, Any]:
        """The user's metadata; {} when none was set."""
        return {name: value for name, value in self._read_metadata().items() if name != _OURS}

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replaces the user's metadata, a dict that JSON can carry."""
        with self._alone():
            self._write_metadata(metadata)

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Adds to the user's metadata; names that exist get the new value."""
        with self._alone():
            self._write_metadata({**self.get_metadata(), **_named(metadata)})

    def _alone(self) -> contextlib.AbstractContextManager[Any]:
        """Other processes of this machine wait; a remote file system has no locks."""
        return contextlib.nullcontext() if self._filesystem is not None else _locked(self._source())

    def _write_metadata(self, metadata: Mapping[str, Any]) -> None:
        taken = {_OURS, _FLOAT} & _named(metadata).keys()
        if taken:
            raise ValueError(f"`metadata`: the name {taken.pop()!r} is taken")
        ours = {name: value for name, value in self._read_metadata().items() if name == _OURS}
        try:
            text = json.dumps({**ours, **_finite(dict(metadata))}, allow_nan=False)
        except TypeError as error:
            raise TypeError(f"`metadata` must be what JSON can carry: {error}") from None
        if self._filesystem is not None:
            filesystems.write(self._filesystem, f"{self.path}/{_METADATA}", text.encode())
            return
        with _replaced(os.path.join(self._source(), _METADATA), _METADATA) as temporary:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(temporary, 0o644)

    def _source(self) -> str:
        elsewhere = self._filesystem is not None and filesystems.is_directory(self._filesystem, self.path)
        if not elsewhere and not (self._filesystem is None and os.path.isdir(self.path)):
            raise FileNotFoundError(f"checkpoint {self.path} is no directory here (was it removed?)")
        return self.path

    def _read_metadata(self) -> dict[str, Any]:
        if self._filesystem is not None:
            data = filesystems.read(self._filesystem, f"{self.path}/{_METADATA}") or b"{}"
            return json.loads(data, object_hook=_as_given)
        try:
            with paths.opened(os.path.join(self.path, _METADATA)) as file:
                return json.load(file, object_hook=_as_given)
        except FileNotFoundError:
            return {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checkpoint):
            return NotImplemented
        return (self.path, self._filesystem) == (other.path, other._filesystem)

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"Checkpoint(filesystem={filesystems.name(self._filesystem)}, path={self.path})"

    def __fspath__(self) -> str:
        raise TypeError(
            "You cannot use `Checkpoint` objects directly as paths. Use `Checkpoint.to_directory()` or "
            "`Checkpoint.as_directory()` instead."
        )


def _named(metadata: Any) -> Mapping[str, Any]:
    """The metadata; ValueError for what is no dict."""
    if not isinstance(metadata, Mapping):
        raise ValueError(f"`metadata` must be a dict, not {type(metadata).__name__}")
    return metadata


def _finite(value: Any) -> Any:
    """Metadata as JSON carries it: the library, which adds to the file, reads no NaN and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: repr(float(value))}
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _as_given(value: dict[str, Any]) -> Any:
    """Of an object in metadata what `_finite` was given."""
    text = value.get(_FLOAT)
    return float(text) if len(value) == 1 and text in ("nan", "inf", "-inf") else value


def _make_ours(directory: str) -> None:
    """A directory where everybody may make some. What others made there first may hold any file: PermissionError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(
            f"{directory} must be a directory of yours that nobody else may write: remove it, or set TMPDIR to another place"
        )


def _copy_tree(source: str, target: str) -> None:
    """The files of `source` into `target`, where others stay. A link takes the place of what was there; of one that leads to a file
    out of the directory, or by an absolute path, the file is copied."""

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(source, onerror=fail):
        to = os.path.normpath(os.path.join(target, os.path.relpath(folder, source)))
        os.makedirs(to, exist_ok=True)
        for name in [*files, *folders]:
            one, other = os.path.join(folder, name), os.path.join(to, name)
            if os.path.islink(one) and not _leads_out(one, source):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(other)
                os.symlink(os.readlink(one), other)
            elif name in files:
                _copied(one, other)


def leads_out(source: str) -> bool:
    """Whether there is a link in the directory to a file out of it, or by an absolute path."""
    return any(
        os.path.islink(path := os.path.join(folder, name)) and _leads_out(path, source)
        for folder, _, names in os.walk(source)
        for name in names
    )


def _leads_out(link: str, source: str) -> bool:
    """Whether the link leads to a file, and from a copy of `source` would not lead to that of the copy."""
    return os.path.isfile(link) and (os.path.isabs(os.readlink(link)) or not paths.lies_in(link, source))


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
    status = os.stat(source)
    return _is_there(target, status.st_size, status.st_mtime_ns)


def _is_there(target: str, size: int, mtime_ns: int | None) -> bool:
    """Whether a file of this size and time is there."""
    try:
        there = os.stat(target)
    except FileNotFoundError:
        return False
    return (there.st_size, there.st_mtime_ns) == (size, mtime_ns)


@contextlib.contextmanager
def _read_by_us(copy: str) -> Iterator[None]:
    """Keeps a copy for as long as the block lasts; whoever is the last of those who do, in whatever process, removes it."""
    import fcntl

    lock = copy + ".readers"
    while True:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(fd, fcntl.LOCK_SH)
        if _is_still(lock, fd):
            break
        os.close(fd)  # the last one went meanwhile, and the lock with it
    try:
        yield
    finally:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(copy, ignore_errors=True)
            os.unlink(lock)
        os.close(fd)


def _is_still(path: str, fd: int) -> bool:
    """Whether the open file is the one that lies there now."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


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
