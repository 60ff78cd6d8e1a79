"""File systems of pyarrow, as checkpoints and results name them: the local one, which needs no pyarrow, and others, from which a
checkpoint's files are fetched. pyarrow is imported when it is first needed."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any, Callable

from .paths import local as local_path


def local() -> Any:
    """pyarrow's file system of this machine; None where pyarrow is not installed."""
    try:
        from pyarrow.fs import LocalFileSystem
    except ImportError:
        return None
    return LocalFileSystem()


def is_local(filesystem: Any) -> bool:
    """Whether it is this machine's, as None is."""
    return filesystem is None or getattr(filesystem, "type_name", None) == "local"


def name(filesystem: Any) -> str:
    return "local" if filesystem is None else filesystem.type_name


def are_same(one: Any, other: Any) -> bool:
    """Whether both are one file system; None is this machine's own."""
    if one is None or other is None:
        return one is other
    return name(one) == name(other) and bool(one.equals(other))


def is_address(text: str) -> bool:
    """Whether it names another file system: "s3://bucket/runs"."""
    return re.match(r"(?!file:)[a-z][a-z0-9+.-]*://", text) is not None


def _is_of_fsspec(filesystem: Any) -> bool:
    return hasattr(filesystem, "protocol") and hasattr(filesystem, "info")


def check(filesystem: Any, what: str) -> None:
    """ValueError that begins with `what` for what is no file system of pyarrow or fsspec."""
    if not hasattr(filesystem, "get_file_info") and not _is_of_fsspec(filesystem):
        kind = f"{type(filesystem).__module__}.{type(filesystem).__name__}"
        raise ValueError(f"{what}: the file system must be one of pyarrow.fs or fsspec, not {kind}")


def find(path: str | os.PathLike[str], filesystem: Any, what: str) -> tuple[str, Any]:
    """The path and its file system: the one that is given, else that of the address; None for this machine's.

    ValueError that begins with `what` where there is none, or it is no file system of pyarrow.
    """
    text = os.fspath(path)
    if filesystem is not None:
        check(filesystem, what)
        if _is_of_fsspec(filesystem):
            from pyarrow.fs import FSSpecHandler, PyFileSystem

            filesystem = PyFileSystem(FSSpecHandler(filesystem))
    if filesystem is not None or not is_address(text):
        return local_path(text, what), None if is_local(filesystem) else filesystem
    try:
        from pyarrow.fs import FileSystem
    except ImportError:
        raise ImportError(f"{what}={text!r} needs pyarrow (pip install pyarrow)") from None
    try:
        found, inside = FileSystem.from_uri(text)
    except (OSError, ValueError) as error:
        raise ValueError(f"{what}={text!r} is no address of a file system: {error}") from None
    return inside, found


def place_of(path: str, source: str, target: str) -> str:
    """Where a file that lies below `source` there goes below `target` here. OSError for a name that leads out: a store of objects
    knows no "..", and may hold any key."""
    inside = os.path.relpath(path, source)
    if inside == ".." or inside.startswith("../") or "\0" in inside:
        raise OSError(f"{source}: the name {path!r} leads out of it")
    return os.path.join(target, inside)


def fetch(filesystem: Any, source: str, target: str, is_same: Callable[..., Any], replaced: Callable[..., Any]) -> None:
    """The files below `source` into `target`, each whole or not at all; those that `is_same` knows are there already."""
    from pyarrow.fs import FileSelector, FileType

    for info in filesystem.get_file_info(FileSelector(source, recursive=True)):
        place = place_of(info.path, source, target)
        if info.type == FileType.Directory:
            os.makedirs(place, exist_ok=True)
        elif not is_same(place, info.size, info.mtime_ns):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with replaced(place, ".copy-") as temporary:
                with filesystem.open_input_stream(info.path) as there, open(temporary, "wb") as here:
                    shutil.copyfileobj(there, here, 1 << 20)
                if info.mtime_ns is not None:
                    os.utime(temporary, ns=(info.mtime_ns, info.mtime_ns))


def send(filesystem: Any, source: str, target: str) -> None:
    """The files below `source` here to `target` there."""
    from pyarrow.fs import copy_files

    filesystem.create_dir(target, recursive=True)
    # Threads of pyarrow hang where many files go to S3 (https://github.com/apache/arrow/issues/32372).
    threads = name(filesystem) != "s3"
    copy_files(source, target, source_filesystem=local(), destination_filesystem=filesystem, use_threads=threads)


def is_directory(filesystem: Any, path: str) -> bool:
    from pyarrow.fs import FileType

    return filesystem.get_file_info(path).type == FileType.Directory


def read(filesystem: Any, path: str) -> bytes | None:
    """The bytes of a file, None where there is none."""
    from pyarrow.fs import FileType

    if filesystem.get_file_info(path).type == FileType.NotFound:
        return None
    with filesystem.open_input_stream(path) as file:
        return file.read()


def write(filesystem: Any, path: str, data: bytes) -> None:
    with filesystem.open_output_stream(path) as file:
        file.write(data)
