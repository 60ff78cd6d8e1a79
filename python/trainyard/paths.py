"""Directories: those that a user names, since no other file system is provided, and those of runs."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

JOURNAL = "run.db"  # in a run's directory


def as_text(path: object, what: str) -> str:
    """ValueError that begins with `what` for what is no path."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise ValueError(f"{what} must be a path, not {type(path).__name__}")
    return text


def local(path: str | os.PathLike[str], what: str) -> str:
    """`path` as text, "file://" taken off; ValueError that begins with `what` for an address of another file system."""
    text = as_text(path, what)
    if text.startswith("file://"):
        text = text[len("file://") :]
    if "://" in text:
        raise ValueError(f"{what}={text!r} must be a directory: other file systems are not provided")
    return text


def opened(path: str) -> BinaryIO:
    """A regular file, to read. OSError for what a reader might never come to the end of: a pipe, a device."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return open(fd, "rb", buffering=0)
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no regular file", path)


def lies_in(inner: str | os.PathLike[str], outer: str | os.PathLike[str]) -> bool:
    """True where `inner` is `outer`, or in it, whatever links lead there."""
    one, other = os.path.realpath(inner), os.path.realpath(outer)
    return os.path.commonpath([one, other]) == other


def is_in_run(path: str | os.PathLike[str]) -> bool:
    """True for what lies in the directory of any run."""
    above = os.path.dirname(os.path.realpath(path))
    while not os.path.exists(os.path.join(above, JOURNAL)):
        if above == os.path.dirname(above):
            return False
        above = os.path.dirname(above)
    return True
