"""Data sets written to files, part by part, by the process that asks for it."""

from __future__ import annotations

import enum
import os
import uuid
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping

from .. import filesystem as places
from .block import Block, as_numpy, needed, rebatched

if TYPE_CHECKING:
    from .dataset import Dataset

# Of all writers; those from try_create_dir on are taken without effect.
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
        self._uuid, self.file_format = dataset_uuid, file_format

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        ending = f".{self.file_format}" if self.file_format else ""
        return f"{write_uuid}_{task_index:06}{ending}"


class Target:
    """A directory, here or on a file system of pyarrow."""

    def __init__(self, path: Any, filesystem: Any):
        self.path, found = places.find(path, filesystem, "`path`")
        needed("pyarrow.fs", "writing a data set")
        self.filesystem = places.local() if found is None else found
        self.path = os.path.abspath(os.path.expanduser(self.path)) if found is None else self.path.rstrip("/")

    def prepare(self, mode: SaveMode | str) -> bool:
        """Whether anything is to be written. ValueError where the mode forbids what is there."""
        from pyarrow.fs import FileSelector

        mode = SaveMode(mode)
        there = self.filesystem.get_file_info(FileSelector(self.path, recursive=True, allow_not_found=True))
        is_taken = any(info.is_file for info in there)
        if mode is SaveMode.UPSERT:
            raise NotImplementedError("mode=SaveMode.UPSERT is not provided: rows of files are not matched")
        if is_taken and mode in (SaveMode.ERROR, SaveMode.CREATE):
            raise ValueError(f"Path {self.path} already exists. If this is unexpected, use mode='append' or 'overwrite'")
        if is_taken and mode is SaveMode.IGNORE:
            return False
        if is_taken and mode is SaveMode.OVERWRITE:
            self.filesystem.delete_dir_contents(self.path)
        self.filesystem.create_dir(self.path, recursive=True)
        return True

    def open(self, name: str) -> Any:
        folder = os.path.dirname(name)
        if folder:
            self.filesystem.create_dir(f"{self.path}/{folder}", recursive=True)
        return self.filesystem.open_output_stream(f"{self.path}/{name}")


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
    partition_cols: list[str] | None = None,
) -> None:
    """A file for each part that has rows, written by `put(block, file)`."""
    if not target.prepare(options.get("mode", SaveMode.APPEND)):
        return
    sizes = ("min_rows_per_file", "num_rows_per_file", "max_rows_per_file")
    rows = next((options[name] for name in sizes if options.get(name)), None)
    provider = options.get("filename_provider") or FilenameProvider(file_format=ending)
    written = uuid.uuid4().hex
    for number, block in enumerate(_blocks(dataset, rows)):
        name = provider.get_filename_for_task(written, number)
        for folder, piece in _partitions(block, partition_cols or []):
            with target.open(folder + name) as file:
                put(piece, file)


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
    from urllib.parse import quote

    from .grouped import rows_by

    others = [name for name in block.columns if name not in columns]
    found = []
    for rows in rows_by(block, columns):
        head = next(block.take(rows[:1]).records())
        folder = "".join(f"{name}={quote(str(head[name]), safe='')}/" for name in columns)
        found.append((folder, block.take(rows).select(others)))
    return found


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
