"""A committed checkpoint's manifest, compared with what lies in its directory; what can be said of a place without one."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from .paths import opened

INSIDE = ".metadata.json"  # in the checkpoint, with the user's metadata
_MOST = 256 << 20  # bytes of a manifest, as in the library


def damage(directory: str) -> str | None:
    """What the first thing is that a committed checkpoint lacks, or has in another size than when it was committed.

    None when all is there. No file but the manifest is read: `trainyard checkpoints verify` compares every byte.
    """
    path = place(directory)
    called = os.path.basename(path)
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _MOST:
                return f"its {called} has more than {_MOST >> 20} MiB"
            text = file.read(size + 1)  # one that grows meanwhile is no JSON then
        files = json.loads(text)["trainyard"]["files"]
        problems = (_problem(directory, entry) for entry in files)
        return next(filter(None, problems), None)
    except OSError as error:
        return f"its {called} cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"its {called} is damaged"


def place(directory: str) -> str:
    """Where the manifest of a checkpoint is: in it, or beside it, where it is to hold nothing but what was saved."""
    inside, beside = os.path.join(directory, INSIDE), beside_name(directory)
    if not os.path.lexists(beside):
        return inside
    try:
        with opened(inside) as file:
            return inside if is_list(file.read()) else beside
    except OSError:
        return beside


def beside_name(path: str) -> str:
    """Of the manifest beside the checkpoint `path` (src/checkpoint/checkpoint.h)."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.manifest")


def is_list(data: bytes) -> bool:
    """Whether this is a list of files, and not what a user says of a checkpoint."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("trainyard"), dict)


def moved(manifest: dict[str, Any], directory: str) -> dict[str, Any]:
    """The manifest of a checkpoint that is in another directory now, and no stranger there."""
    return {**manifest, "trainyard": {**manifest["trainyard"], "directory": os.stat(directory).st_ino}}


def listed(directory: str) -> dict[str, Any]:
    """One of what lies in a directory that a user put files into, but for what that user says of the checkpoint."""
    found = [os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names]
    found = [path for path in found if path != os.path.join(directory, INSIDE)]
    files = [{"path": os.path.relpath(path, directory), "size": os.path.getsize(path)} for path in found]
    return moved({"trainyard": {"files": files}}, directory)


def vacancy(place: str) -> str | None:
    """Why nothing is in a directory that a user put files into, None when there is something."""
    try:
        with os.scandir(place) as entries:
            return None if any(entries) else "it is empty"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"


def _problem(directory: str, entry: dict[str, Any]) -> str | None:
    path, size, link = entry["path"], entry.get("size"), entry.get("link")
    full = os.path.join(directory, path)
    try:
        status = os.lstat(full)
        if link is not None:
            is_same = stat.S_ISLNK(status.st_mode) and os.readlink(full) == link
            return None if is_same else f"{path} is not the link that it was"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not the file that it was"
    return None if status.st_size == size else f"{path} has {status.st_size} bytes instead of {size}"
