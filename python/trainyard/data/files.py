"""Sources that are files: each file, or each row group of a parquet file, is a part. From any file system of pyarrow."""

from __future__ import annotations

import contextlib
import copy
import fnmatch
import glob
import os
import posixpath
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterable, Iterator
from urllib.parse import unquote

import numpy as np

from ..paths import as_text
from .block import Block, gathered, needed, of_records, of_table, of_values
from .parts import Bundle, Part
from .sources import Source

ROWS = 32768  # of a block of a parquet file
SMALL = 32  # files of a row each in a block
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"  # what stands for a missing value in the name of a directory


class Files(Source):
    """The files of a reader, in the order of their names. They are listed when a data set is first asked for its parts."""

    def __init__(
        self,
        paths: Any,
        reader: Reader,
        *,
        filesystem: Any = None,
        extensions: list[str] | None = None,
        include_paths: bool = False,
        shuffle: Any = None,
        partitioned: bool = False,
        blocks: int | None = None,
        ignore_missing: bool = False,
    ):
        super().__init__(blocks)
        self.reader, self.include_paths, self.shuffle = reader, include_paths, shuffle
        self.filesystem, found = listed(paths, filesystem, extensions, ignore_missing)
        self.files = found
        self.partitioned = partitioned
        self._parts: list[Part] | None = None

    def parts(self) -> list[Part]:
        if self._parts is None:
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(self._parts_of, self.files))
            parts = [part for parts in found for part in parts]
            small = self.reader.bundled
            self._parts = (
                [Bundle(parts[i : i + small], small) for i in range(0, len(parts), small)] if small else parts
            )
        return self._parts

    def _parts_of(self, file: tuple[str, str]) -> list[Part]:
        with named(file[0]):
            return self._pieces_of(file)

    def _pieces_of(self, file: tuple[str, str]) -> list[Part]:
        return [FilePart(self, *file, piece, rows) for piece, rows in self.reader.pieces(self, file[0])]

    def input_files(self) -> list[str]:
        return [path for path, _ in self.files]

    def only(self, names: list[str]) -> Files:
        """The same source of these columns alone, where files need not be read for others; else itself."""
        named = self.include_paths or (self.partitioned and any(_of_path(*file) for file in self.files))
        if not self.reader.leaves_out or self.reader.columns is not None or named:
            return self
        other = copy.copy(self)
        other.reader, other._parts = copy.copy(self.reader), None
        other.reader.columns = names
        return other

    def open(self, path: str) -> Any:
        """The file, to be read at any place."""
        if self.filesystem is None:
            return open(path, "rb")
        return self.filesystem.open_input_file(path)

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return file.read()


class FilePart(Part):
    """A file, or a piece of it, with what its path says."""

    def __init__(self, source: Files, path: str, base: str, piece: Any, rows: int | None):
        self.source, self.path, self.base, self.piece, self.known = source, path, base, piece, rows
        self.key = ("file", source.identity, path, piece)

    def rows(self, presume: bool = False) -> int | None:
        return self.known

    def count(self) -> int:
        return (
            self.known
            if self.known is not None
            else self.source.reader.count(self.source, self.path, self.piece)
        )

    def blocks(self) -> Iterator[Block]:
        with named(self.path):
            yield from self._read()

    def _read(self) -> Iterator[Block]:
        more = _of_path(self.path, self.base) if self.source.partitioned else {}
        wanted = self.source.reader.columns
        for block in self.source.reader.read(self.source, self.path, self.piece):
            columns = dict(block.columns)
            if self.source.include_paths:
                columns["path"] = of_values([self.path] * block.rows)
            for name, value in more.items():
                if wanted is None or name in wanted:
                    columns[name] = of_values([value] * block.rows)
            yield Block(columns, block.rows)


@contextlib.contextmanager
def named(path: str) -> Iterator[None]:
    """What is wrong with a file names it."""
    try:
        yield
    except (OSError, ValueError) as error:
        if path in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error


def _of_path(path: str, base: str) -> dict[str, str | None]:
    """{"year": "2020"} of a path like base/year=2020/x.parquet; None for what stands for a missing value there."""
    inside = posixpath.relpath(path, base) if path.startswith(base) else path
    words = (word.partition("=") for word in posixpath.dirname(inside).split("/"))
    return {name: None if value == NULL_FOLDER else unquote(value) for name, equal, value in words if equal and name}


class Reader:
    """How files of one kind are read. `columns` are those that are wanted, None for all."""

    columns: list[str] | None = None
    bundled: int | None = None  # so many files are one block
    leaves_out = False  # whether columns that are not wanted cost nothing

    def pieces(self, source: Files, path: str) -> list[tuple[Any, int | None]]:
        """What a file is read in, and the rows of each, None where they are not known."""
        return [(None, None)]

    def count(self, source: Files, path: str, piece: Any) -> int:
        return sum(block.rows for block in self.read(source, path, piece))

    def read(self, source: Files, path: str, piece: Any) -> Iterator[Block]:
        raise NotImplementedError


class Parquet(Reader):
    leaves_out = True

    def __init__(self, columns: list[str] | None, options: dict[str, Any]):
        needed("pyarrow.parquet", "read_parquet")
        self.columns, self.options = columns, options

    def pieces(self, source: Files, path: str) -> list[tuple[Any, int | None]]:
        with self._file(source, path) as file:
            found = file.metadata
            return [(i, found.row_group(i).num_rows) for i in range(found.num_row_groups)]

    def _file(self, source: Files, path: str) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetFile(path, filesystem=source.filesystem, pre_buffer=source.filesystem is not None)

    def read(self, source: Files, path: str, piece: int) -> Iterator[Block]:
        with self._file(source, path) as file:
            options = {"batch_size": ROWS, **self.options}
            pa = needed("pyarrow", "read_parquet")
            for batch in file.iter_batches(row_groups=[piece], columns=self.columns, **options):
                yield of_table(pa.Table.from_batches([batch]))


class Csv(Reader):
    def __init__(self, options: dict[str, Any]):
        needed("pyarrow.csv", "read_csv")
        self.options = options

    def read(self, source: Files, path: str, piece: Any) -> Iterator[Block]:
        import pyarrow as pa
        from pyarrow import csv

        compression = "detect" if re.search(r"\.(gz|bz2|zst|lz4)$", path) else None
        with self._stream(source, path, compression) as file, csv.open_csv(file, **self.options) as reader:
            for batch in reader:
                yield of_table(pa.Table.from_batches([batch]))

    def _stream(self, source: Files, path: str, compression: str | None) -> Any:
        from pyarrow import fs

        return (source.filesystem or fs.LocalFileSystem()).open_input_stream(path, compression=compression)


class Json(Reader):
    """A row a line, or one list of rows."""

    def __init__(self, lines: bool, options: dict[str, Any]):
        needed("pyarrow.json", "read_json")
        self.lines, self.options = lines, options

    def read(self, source: Files, path: str, piece: Any) -> Iterator[Block]:
        import io
        import json

        import pyarrow as pa
        from pyarrow import json as reader

        data = source.read(path)
        if path.endswith(".gz"):
            import gzip

            data = gzip.decompress(data)
        if data.lstrip()[:1] == b"[":
            yield of_records(json.loads(data))
        elif data.strip():
            try:
                yield of_table(reader.read_json(io.BytesIO(data), **self.options))
            except pa.ArrowInvalid:
                try:
                    parsed = [json.loads(line) for line in data.splitlines() if line.strip()]
                except ValueError:
                    parsed = [json.loads(data)]  # one row over many lines
                yield of_records(parsed)


class Text(Reader):
    def __init__(self, encoding: str, drop_empty_lines: bool):
        self.encoding, self.drop_empty_lines = encoding, drop_empty_lines

    def read(self, source: Files, path: str, piece: Any) -> Iterator[Block]:
        with source.open(path) as file:
            lines = (line.decode(self.encoding).rstrip("\r\n") for line in file)
            yield from gathered(({"text": line} for line in lines if line or not self.drop_empty_lines), 4096)


class Binary(Reader):
    bundled = SMALL

    def pieces(self, source: Files, path: str) -> list[tuple[Any, int | None]]:
        return [(None, 1)]

    def read(self, source: Files, path: str, piece: Any) -> Iterator[Block]:
        yield of_records([{"bytes": source.read(path)}])


class Images(Reader):
    bundled = SMALL

    def __init__(self, size: tuple[int, int] | None, mode: str | None):
        needed("PIL.Image", "read_images")
        if size is not None and (len(size) != 2 or min(size) <= 0):
            raise ValueError(
                f"Expected `size` to contain two positive integers (height, width), but got {size}"
            )
        self.size, self.mode = size, mode

    def pieces(self, source: Files, path: str) -> list[tuple[Any, int | None]]:
        return [(None, 1)]

    def read(self, source: Files, path: str, piece: Any) -> Iterator[Block]:
        import io

        from PIL import Image, UnidentifiedImageError

        try:
            image = Image.open(io.BytesIO(source.read(path)))
        except UnidentifiedImageError:
            raise ValueError(f"PIL couldn't load image file at path '{path}'.") from None
        if self.size is not None:
            image = image.resize((self.size[1], self.size[0]))
        if self.mode is not None:
            image = image.convert(self.mode)
        yield Block({"image": np.asarray(image)[None]}, 1)


class Numpy(Reader):
    def pieces(self, source: Files, path: str) -> list[tuple[Any, int | None]]:
        if source.filesystem is None:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            return [(None, len(array) if array.ndim else 1)]
        return [(None, None)]

    def read(self, source: Files, path: str, piece: Any) -> Iterator[Block]:
        if source.filesystem is None:
            array = np.load(
                path, mmap_mode="r", allow_pickle=False
            )  # what is read of it is what is in memory
        else:
            with source.open(path) as file:
                array = np.load(file, allow_pickle=False)
        array = array if array.ndim else array.reshape(1)
        for start in range(0, len(array), 4096):
            yield Block({"data": np.asarray(array[start : start + 4096])})


def listed(
    paths: Any, filesystem: Any, extensions: list[str] | None, ignore_missing: bool
) -> tuple[Any, list[tuple[str, str]]]:
    """The file system, None for this machine's, and every file with the directory that was given for it."""
    given = list(paths) if isinstance(paths, Iterable) and not isinstance(paths, str) else [as_text(paths, "`paths`")]
    if not given:
        raise ValueError("Must provide at least one path.")
    found: list[tuple[str, str]] = []
    for path in given:
        place, filesystem = _place(path, filesystem)
        files = _local(place) if filesystem is None else _remote(place, filesystem)
        if files is None and not ignore_missing:
            raise FileNotFoundError(f"No such file or directory: {os.fspath(path)}")
        found += _wanted(files or [], place, extensions)
    if not found and not ignore_missing:
        kinds = f" that end in one of {extensions}" if extensions else ""
        raise ValueError(f"No input files found to read{kinds}: {', '.join(map(os.fspath, given))}")
    return filesystem, found


def _place(path: Any, filesystem: Any) -> tuple[str, Any]:
    from .. import filesystem as places

    text = os.fspath(path)
    if text.startswith(("local://", "example://")):
        text = text.partition("://")[2]
    if "*" in text and filesystem is None and "://" not in text:
        return os.path.abspath(os.path.expanduser(text)), None
    return places.find(text, filesystem, "paths")


def _local(place: str) -> list[str] | None:
    if any(mark in place for mark in "*?[") and not os.path.exists(place):
        return sorted(name for name in glob.glob(place, recursive=True) if os.path.isfile(name)) or None
    if os.path.isdir(place):
        return sorted(os.path.join(top, name) for top, _, names in os.walk(place) for name in names)
    return [place] if os.path.exists(place) else None


def _remote(place: str, filesystem: Any) -> list[str] | None:
    from pyarrow.fs import FileSelector, FileType

    if "*" in place:
        base = place[: place.index("*")].rpartition("/")[0]
        infos = filesystem.get_file_info(FileSelector(base, recursive=True))
        names = [info.path for info in infos if info.type == FileType.File]
        return sorted(name for name in names if fnmatch.fnmatch(name, place)) or None
    info = filesystem.get_file_info(place)
    if info.type == FileType.File:
        return [place]
    if info.type != FileType.Directory:
        return None
    found = filesystem.get_file_info(FileSelector(place, recursive=True))
    return sorted(one.path for one in found if one.type == FileType.File)


def _wanted(files: list[str], place: str, extensions: list[str] | None) -> list[tuple[str, str]]:
    """Of a directory those that end as they should, and are not hidden; a file that was named itself in any case."""
    if files == [place]:
        return [(place, os.path.dirname(place))]
    base = re.split(r"[*?[]", place)[0].rpartition("/")[0] if re.search(r"[*?[]", place) else place
    ends = tuple(f".{end.lower().lstrip('.')}" for end in extensions or ())
    hidden = re.compile(r"(^|/)[._]")
    chosen = [name for name in files if not hidden.search(os.path.relpath(name, base))]
    return [(name, base) for name in chosen if not ends or name.lower().endswith(ends)]
