"""A run's journal, to read from, also while the run goes on: as the library does (src/journal/journal_guard.h).

Nothing in the run's directory is written, made or removed. Without a log the file is read alone; beside a writer on this machine's
disk the log through its index; else a copy of both. What was read counts only if no file changed so that it may be wrong.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .paths import JOURNAL, opened

_T = TypeVar("_T")
_READINGS = 5
_LOG_HEAD = 32  # bytes, which are others when the log begins anew
_SHARED, _SHARED_SIZE, _INDEX_USED = 0x40000002, 510, 128  # where clients of SQLite lock
_IS_TABLE = "type = 'table' AND rootpage > 0 AND name IN ('events', 'reports', 'checkpoints')"
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay"}


def read(path: str, question: Callable[[Any], _T]) -> _T:
    """What `question` gives, called with a connection to the journal of the run in directory `path`; again where the journal
    changed under it. sqlite3.Error; one says that the journal is busy, OSError."""
    import sqlite3

    journal = os.path.join(path, JOURNAL)
    for last in [False] * (_READINGS - 1) + [True]:
        before = _look(journal)
        try:
            with _opened(journal, before) as database:
                _check(database)
                answer = question(database)
        except (sqlite3.Error, OSError):
            if last or _look(journal) == before:
                raise
            continue
        if before.indexed or _look(journal) == before:
            return answer
    raise sqlite3.OperationalError(
        f"{journal} is busy: it was written during each of {_READINGS} readings; try again"
    )


def _check(database: Any) -> None:
    """sqlite3.DatabaseError where what is to be a table is none: a view could have rows without end."""
    import sqlite3

    (tables,) = database.execute(f"SELECT count(*) FROM sqlite_master WHERE {_IS_TABLE}").fetchone()
    if tables != 3:
        raise sqlite3.DatabaseError("it is not the journal of a run")


class _Look:
    """The files by all that a writer changes with their bytes; a log without bytes is none."""

    def __init__(self, journal: str):
        with opened(journal) as file:
            self.file = os.fstat(file.fileno())
        self.log, self.head = _head(journal + "-wal")
        self.indexed = self.log is not None and _is_local(journal) and _is_used(journal + "-shm")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Look) and self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> tuple:
        file = (self.file.st_dev, self.file.st_ino, self.file.st_size, self.file.st_mtime_ns)
        return (file, self.log, self.head)


_look = _Look


def _head(log: str) -> tuple[tuple[int, int] | None, bytes]:
    try:
        with opened(log) as file:
            status = os.fstat(file.fileno())
            return ((status.st_dev, status.st_ino), file.read(_LOG_HEAD)) if status.st_size else (None, b"")
    except FileNotFoundError:
        return None, b""


def _is_local(path: str) -> bool:
    """Whether its file system is this machine's alone, so that all who map a file of it see the same."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with (
        contextlib.suppress(OSError),
        open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts,
    ):
        for line in mounts:
            words = line.split()
            if words[2] == wanted:
                return words[words.index("-") + 1] in _LOCAL
    return False


def _is_used(index: str) -> bool:
    """Whether anybody has the index open."""
    try:
        fd = os.open(index, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _lock(fcntl.F_WRLCK, _INDEX_USED, 1))
    except OSError:
        return False
    finally:
        os.close(fd)
    return struct.unpack_from("h", found)[0] != fcntl.F_UNLCK


def _lock(kind: int, first: int, size: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, first, size, 0)  # struct flock of 64-bit machines


@contextlib.contextmanager
def _opened(journal: str, look: _Look) -> Iterator[Any]:
    if look.log is None:
        with _connected(journal, "mode=ro&immutable=1") as database:
            yield database
    elif look.indexed:
        with _log_kept(journal), _connected(journal, "mode=ro&readonly_shm=1") as database:
            yield database
    else:
        with tempfile.TemporaryDirectory(prefix="trainyard-journal-") as place:
            for suffix in ("-wal", ""):
                shutil.copyfile(journal + suffix, os.path.join(place, JOURNAL + suffix))
            with _connected(os.path.join(place, JOURNAL), "mode=rw") as database:
                yield database


@contextlib.contextmanager
def _log_kept(journal: str) -> Iterator[None]:
    """Meanwhile no writer that ends removes the log: SQLite would make an empty one."""
    fd = os.open(journal, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _lock(fcntl.F_RDLCK, _SHARED, _SHARED_SIZE))
        if not os.path.exists(journal + "-wal"):
            raise FileNotFoundError(journal + "-wal")
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def _connected(path: str, parameters: str) -> Iterator[Any]:
    import sqlite3
    from urllib.parse import quote

    database = sqlite3.connect(f"file:{quote(path)}?{parameters}", uri=True)
    try:
        if hasattr(
            database, "setconfig"
        ):  # else a connection that only reads carries nothing over, for want of rights
            database.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
        yield database
    finally:
        database.close()
