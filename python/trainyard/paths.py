"""Places that a user names: directories, since no other file system is provided."""

from __future__ import annotations

import os


def local(path: str | os.PathLike, what: str) -> str:
    """`path` as text, "file://" taken off; ValueError that begins with `what` for an address of another file system."""
    text = os.fspath(path)
    if text.startswith("file://"):
        text = text[len("file://") :]
    if "://" in text:
        raise ValueError(f"{what}={text!r} must be a directory: other file systems are not provided")
    return text
