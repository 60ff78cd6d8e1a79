"""File systems of pyarrow, as checkpoints and results name them: the local one, which needs no pyarrow, and others, from which a
checkpoint's files are fetched. pyarrow is imported when it is first needed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from typing import Any, Callable, Iterator, Sequence
from urllib.parse import quote

from .paths import as_text, lies_in
from .paths import local as local_path

AT_A_TIME = 4  # files on their way
_CHUNK = 8 << 20
_IN_ADDRESSES = "/:?&=#%@!$'()*+,;~[]"  # what means something in an address


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
    text = as_text(path, what)
    if filesystem is not None:
        check(filesystem, what)
        if is_address(text):
            raise ValueError(f"{what}={text!r} must be a path on the file system that is given with it, without {text.split(':')[0]}://")
        if _is_of_fsspec(filesystem):
            from pyarrow.fs import FSSpecHandler, PyFileSystem

            filesystem = PyFileSystem(FSSpecHandler(filesystem))
    if filesystem is not None:
        return local_path(text, what), None if is_local(filesystem) else filesystem
    if not is_address(text):
        here = os.path.expanduser(local_path(text, what))
        here = here.rstrip("/") or here[:1]
        return os.path.abspath(here) if isinstance(path, os.PathLike) else here, None
    try:
        from pyarrow.fs import FileSystem
    except ImportError:
        raise ImportError(f"{what}={text!r} needs pyarrow (pip install pyarrow)") from None
    try:
        found, inside = FileSystem.from_uri(quote(text, _IN_ADDRESSES))  # blanks and letters beyond ASCII as they are meant
    except (OSError, ValueError) as error:
        raise ValueError(f"{what}={text!r} is no address of a file system: {error}") from None
    return inside, found


def find_beside(path: str | os.PathLike[str], filesystem: Any, what: str) -> tuple[str, Any]:
    """As `find`, but an address beside a file system that is given, as "hf://datasets/x", names what lies there on that one."""
    text = as_text(path, what)
    if filesystem is not None and is_address(text):
        text = text.partition("://")[2]
    return find(text, filesystem, what)


def inside(path: str, source: str) -> str:
    """The path below `source` of a file that a listing of it gave; some file systems put a "/" in front. OSError for a name that
    leads out: a store of objects knows no "..", and may hold any key."""
    found = os.path.relpath("/" + path.lstrip("/"), "/" + source.lstrip("/"))
    if found == ".." or found.startswith("../") or "\0" in found:
        raise OSError(f"{source}: the name {path!r} leads out of it")
    return found


def place_of(path: str, source: str, target: str) -> str:
    """Where a file that lies below `source` there goes below `target` here."""
    return os.path.join(target, inside(path, source))


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


def tree(directory: str) -> Iterator[tuple[str, str, bool]]:
    """Of each directory and file in a directory of this machine: its path, its path below that, whether it is a file. A link counts
    as what it leads to, one that leads to where it lies as nothing."""
    for folder, folders, names in os.walk(directory, followlinks=True):
        folders[:] = [one for one in folders if not lies_in(folder, os.path.join(folder, one))]
        for one in [*folders, *names]:
            path = os.path.join(folder, one)
            if one in folders or os.path.isfile(path):
                yield path, os.path.relpath(path, directory), one not in folders


def send(
    filesystem: Any, source: str, target: str, but: Sequence[str] = (), is_enough: Callable[[], bool] = lambda: False
) -> None:
    """The files below `source` here to `target` there, several at a time, but for those of the names `but` at the top.
    InterruptedError once it `is_enough`.

    In threads of our own: those of pyarrow's copy_files hang where many files go to S3
    (https://github.com/apache/arrow/issues/32372).
    """
    filesystem.create_dir(target, recursive=True)
    from concurrent.futures import ThreadPoolExecutor  # which an interpreter that ends cannot import

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        files = []
        for path, below, is_file in tree(source):
            if is_file and below not in but:
                files.append((path, f"{target}/{below}"))
            elif not is_file:
                filesystem.create_dir(f"{target}/{below}", recursive=True)
        for _ in pool.map(lambda file: send_file(filesystem, *file, is_enough), files):
            pass


def send_file(filesystem: Any, source: str, target: str, is_enough: Callable[[], bool] = lambda: False) -> None:
    """Seen there when its last byte is, on a file system whose files appear when they are closed (S3, GCS)."""
    with open(source, "rb", buffering=0) as here, filesystem.open_output_stream(target) as there:
        while data := here.read(_CHUNK):
            if is_enough():
                raise InterruptedError("given up")
            there.write(data)


def has(filesystem: Any, path: str, size: int) -> bool:
    """Whether a file of this size is there."""
    return filesystem.get_file_info(path).size == size


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


@contextlib.contextmanager
def replaced(filesystem: Any, path: str) -> Iterator[str]:
    """Where to write a file that takes the place of `path` when it is whole. A store of objects needs nothing for that: they appear
    when they are closed."""
    if name(filesystem) in ("s3", "gcs", "abfs"):
        yield path
        return
    folder, _, last = path.rpartition("/")
    temporary = f"{folder}/.{last}.part"
    yield temporary
    try:
        filesystem.move(temporary, path)
    except OSError:  # HDFS moves nothing onto what is there
        filesystem.delete_file(path)
        filesystem.move(temporary, path)
