"""Data sets written to files, part by part, by the process that asks for it."""

from __future__ import annotations

import enum
import functools
import os
import urllib.parse
import uuid
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping

from .. import filesystem as places
from ..paths import as_text
from .block import Block, as_numpy, needed, rebatched
from .files import NULL_FOLDER

if TYPE_CHECKING:
    from .dataset import Dataset

# Of all writers; the last two are taken without effect.
_OPTIONS = frozenset(
    "min_rows_per_file num_rows_per_file max_rows_per_file filename_provider mode try_create_dir arrow_open_stream_args "
    "ray_remote_args concurrency".split()
)


class SaveMode(str, enum.Enum):
    """What becomes of files that are there already."""

    APPEND = "append"
    CREATE = "create"
    ERROR = "error"
    IGNORE = "ignore"
    OVERWRITE = "overwrite"
    UPSERT = "upsert"


class FilenameProvider:
    """How files are called; derive from it for other names."""

    def __init__(self, dataset_uuid: str | None = None, file_format: str | None = None):
        self.dataset_uuid, self.file_format = dataset_uuid, file_format

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        ending = f".{self.file_format}" if self.file_format else ""
        return f"{write_uuid}_{task_index:06}{ending}"

    def get_filename_for_block(self, block: Any, write_uuid: str, task_index: int, block_index: int) -> str:
        """The same, by the rows in it, a table of pyarrow."""
        return self.get_filename_for_task(write_uuid, task_index)


def _name(provider: Any, block: Block, written: str, number: int) -> str:
    of_block = getattr(type(provider), "get_filename_for_block", FilenameProvider.get_filename_for_block)
    if of_block is FilenameProvider.get_filename_for_block:
        return str(provider.get_filename_for_task(written, number))
    return str(provider.get_filename_for_block(block.arrow(), written, number, 0))


def _mode(given: Any) -> SaveMode:
    try:
        mode = SaveMode(given)
    except ValueError:
        allowed = ", ".join(repr(one.value) for one in SaveMode if one is not SaveMode.UPSERT)
        raise ValueError(f"`mode` must be one of {allowed}, not {given!r}") from None
    if mode is SaveMode.UPSERT:
        raise NotImplementedError("mode=SaveMode.UPSERT is not provided: rows of files are not matched")
    return mode


class Target:
    """A directory, here or on a file system of pyarrow."""

    def __init__(self, path: Any, filesystem: Any):
        text = as_text(path, "`path`")
        self.path, found = places.find_beside(text.removeprefix("local://"), filesystem, "`path`")
        needed("pyarrow.fs", "writing a data set")
        self.is_local = found is None
        self.filesystem = places.local() if found is None else found
        self.path = os.path.abspath(os.path.expanduser(self.path)) if found is None else self.path.rstrip("/")
        self.old: list[Any] = []  # what is to make way for what is written

    def prepare(self, mode: SaveMode, dataset: Dataset, creates: bool) -> bool:
        """Whether anything is to be written. ValueError where the mode forbids what is there."""
        from pyarrow.fs import FileSelector

        if mode is not SaveMode.APPEND:
            there = self.filesystem.get_file_info(FileSelector(self.path, recursive=True, allow_not_found=True))
            is_taken = any(info.is_file for info in there)
            if is_taken and mode in (SaveMode.ERROR, SaveMode.CREATE):
                raise ValueError(f"Path {self.path} already exists. If this is unexpected, use mode='append' or 'overwrite'")
            if is_taken and mode is SaveMode.IGNORE:
                return False
            if mode is SaveMode.OVERWRITE:
                self._check_apart(dataset.input_files())
                self.old = there
        if creates:
            self.filesystem.create_dir(self.path, recursive=True)
        return True

    def _check_apart(self, files: list[str]) -> None:
        """ValueError where one of the files that are read would be overwritten."""
        whole = os.path.realpath if self.is_local else str
        for file in files:
            if f"{whole(file)}/".startswith(f"{whole(self.path)}/"):
                raise ValueError(
                    f"mode='overwrite': {file} in {self.path} is read for what is to be written; "
                    "materialize() the data set first, or write to another place"
                )

    def put(self, name: str, write: Callable[[Any], None], stream: Mapping[str, Any]) -> None:
        """A file, written whole or not at all."""
        folder = os.path.dirname(name)
        if folder:
            self.filesystem.create_dir(f"{self.path}/{folder}", recursive=True)
        path = f"{self.path}/{name}"
        try:
            with self.filesystem.open_output_stream(path, **stream) as file:
                write(file)
        except BaseException:
            if self.filesystem.get_file_info(path).is_file:
                self.filesystem.delete_file(path)
            raise

    def clear(self, written: set[str]) -> None:
        """Removes what was there before, but for files of a name that was written again."""
        from pyarrow.fs import FileSelector, FileType

        again = {f"{self.path}/{name}" for name in written}
        for info in self.old:
            if info.is_file and info.path not in again:
                self.filesystem.delete_file(info.path)
        for path in sorted((info.path for info in self.old if not info.is_file), reverse=True):
            is_there = self.filesystem.get_file_info(path).type == FileType.Directory
            if is_there and not self.filesystem.get_file_info(FileSelector(path)):
                self.filesystem.delete_dir(path)


def divided(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of writing itself, and those of the library that makes the files."""
    ours = {name: value for name, value in options.items() if name in _OPTIONS}
    return ours, {name: value for name, value in options.items() if name not in _OPTIONS}


def write(
    dataset: Dataset,
    target: Target,
    ending: str,
    put: Callable[[Block, Any], None],
    options: Mapping[str, Any],
    partition_cols: str | list[str] | None = None,
) -> None:
    """A file for each part that has rows, written by `put(block, file)`. What is to be overwritten is removed after that."""
    mode, rows = _mode(options.get("mode", SaveMode.APPEND)), _rows(options)
    if not target.prepare(mode, dataset, options.get("try_create_dir", True)):
        return
    provider = options.get("filename_provider") or FilenameProvider(file_format=ending)
    columns = [partition_cols] if isinstance(partition_cols, str) else partition_cols or []
    stream = options.get("arrow_open_stream_args") or {}
    write_uuid, written = uuid.uuid4().hex, set()
    for number, block in enumerate(_blocks(dataset, rows)):
        name = _name(provider, block, write_uuid, number)
        if ending == "parquet" and mode is SaveMode.APPEND and write_uuid not in name:
            raise ValueError(
                f"Write UUID missing from the file name {name!r}: files that are there could be overwritten. Put `write_uuid` "
                "into the names that the filename_provider gives, or use mode='overwrite'"
            )
        for folder, piece in _partitions(block, columns):
            if folder + name in written:
                raise ValueError(f"`filename_provider` gave the name {name!r} twice: it must differ by `task_index`")
            written.add(folder + name)
            target.put(folder + name, functools.partial(put, piece), stream)
    target.clear(written)


def _rows(options: Mapping[str, Any]) -> int | None:
    """How many of a file; None for as many as a part has."""
    sizes = ("min_rows_per_file", "num_rows_per_file", "max_rows_per_file")
    given = {name: options[name] for name in sizes if options.get(name) is not None}
    for name, rows in given.items():
        if not isinstance(rows, int) or rows < 1:
            raise ValueError(f"`{name}` must be a whole number from 1 on, not {rows!r}")
    least, most = given.get("min_rows_per_file"), given.get("max_rows_per_file")
    if least is not None and most is not None and least > most:
        raise ValueError(f"`min_rows_per_file`={least} must not be above `max_rows_per_file`={most}")
    return next(iter(given.values()), None)


def _blocks(dataset: Dataset, rows: int | None) -> Iterator[Block]:
    from .block import concat
    from .plan import Reading, blocks_of

    parts = dataset.plan.parts(Reading())
    if rows is not None:
        yield from rebatched(blocks_of(parts), rows)
        return
    for part in parts:
        block = concat(list(part.blocks()))
        if block.rows:
            yield block


def _partitions(block: Block, columns: list[str]) -> Iterable[tuple[str, Block]]:
    """The rows of each directory, without the columns that its name tells ("kind=a/")."""
    if not columns:
        return [("", block)]
    from .grouped import rows_by

    others = [name for name in block.columns if name not in columns]
    if not others:
        raise ValueError(f"`partition_cols`={columns} leaves no column for the files: one must not be in it")
    found = []
    for rows in rows_by(block, columns):
        head = next(block.take(rows[:1]).records())
        folder = "".join(f"{name}={_quoted(head[name])}/" for name in columns)
        found.append((folder, block.take(rows).select(others)))
    return found


def _quoted(value: Any) -> str:
    return NULL_FOLDER if value is None else urllib.parse.quote(str(value), safe="")


def parquet(options: Mapping[str, Any]) -> Callable[[Block, Any], None]:
    def put(block: Block, file: Any) -> None:
        needed("pyarrow.parquet", "write_parquet").write_table(block.arrow(), file, **options)

    return put


def csv(options: Mapping[str, Any]) -> Callable[[Block, Any], None]:
    def put(block: Block, file: Any) -> None:
        needed("pyarrow.csv", "write_csv").write_csv(block.arrow(), file, **options)

    return put


def json(options: Mapping[str, Any]) -> Callable[[Block, Any], None]:
    """Lines, a row each, by pandas."""

    def put(block: Block, file: Any) -> None:
        text = block.pandas().to_json(**{"orient": "records", "lines": True, **options})
        file.write(text.encode())

    return put


def numpy(column: str) -> Callable[[Block, Any], None]:
    """The one column, as numpy.save does."""

    def put(block: Block, file: Any) -> None:
        import io

        import numpy as np

        if column not in block.columns:
            raise ValueError(f"there is no column {column!r}, only {list(block.columns)}")
        held = io.BytesIO()
        np.save(held, as_numpy(block.columns[column]))
        file.write(held.getvalue())

    return put
