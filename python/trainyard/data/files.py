"""Sources that are files: each file, or each row group of a parquet file, is a part. From any file system of pyarrow."""

from __future__ import annotations

import contextlib
import copy
import fnmatch
import glob
import io
import itertools
import logging
import os
import posixpath
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Iterable, Iterator, Mapping, TypeVar
from urllib.parse import unquote

import numpy as np

from .. import filesystem as filesystems
from ..paths import as_text
from .block import Block, gathered, needed, of_frame, of_records, of_table, of_values
from .config import DataContext
from .parts import Bundle, Part, readers
from .sources import Source

log = logging.getLogger("trainyard")
T = TypeVar("T")

ROWS = 32768  # of a block of a parquet file
TRIES = 10  # of a file
PAUSE_S = 0.5  # after the first failure; it doubles
PAUSE_MOST_S = 32.0
LINES = 10000  # of a block of a JSON file that is read by lines
SHORT = 4 << 20  # bytes of a file that is read ahead of its turn, where it is not on this machine
SMALL = 32  # files of a row each in a block
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
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
        opening: Mapping[str, Any] | None = None,
    ):
        """opening: options of pyarrow's `open_input_stream`, as {"compression": "gzip"}."""
        super().__init__(blocks)
        self.reader, self.include_paths, self.shuffle = reader, include_paths, shuffle
        self.opening = dict(opening or {})
        self.sizes: dict[str, int] = {}  # of files of other file systems
        self.filesystem, found = listed(paths, filesystem, extensions, ignore_missing, self.sizes)
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
            pieces = tried(lambda: self.reader.pieces(self, file[0]), file[0])
            return [FilePart(self, *file, piece, rows) for piece, rows in pieces]

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

    def is_plain(self, path: str) -> bool:
        """Whether the file is on this machine, and its bytes are those that are wanted."""
        return self.filesystem is None and not self.opening and self._compression(path) is None

    def _compression(self, path: str) -> str | None:
        return next((kind for end, kind in _COMPRESSED.items() if path.endswith(end)), None)

    def open(self, path: str) -> Any:
        """The file, from its beginning on. What is compressed, by its name or by the options, is read as what is in there."""
        if self.is_plain(path):
            return open(path, "rb")
        fs = needed("pyarrow.fs", f"reading {path}")
        options = {"compression": self._compression(path), **self.opening}
        return (self.filesystem or fs.LocalFileSystem()).open_input_stream(path, **options)

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return file.read()


class FilePart(Part):
    """A file, or a piece of it, with what its path says."""

    def __init__(self, source: Files, path: str, base: str, piece: Any, rows: int | None):
        self.source, self.path, self.base, self.piece, self.known = source, path, base, piece, rows
        self.key = ("file", source.identity, path, piece)
        self._begun: list[tuple[int, Future[list[Block]]]] = []  # by a process

    def rows(self, presume: bool = False) -> int | None:
        return self.known

    def count(self) -> int:
        if self.known is not None:
            return self.known
        with named(self.path):
            return sum(tried(lambda: (block.rows for block in self._raw()), self.path))

    def begin(self) -> None:
        if not self._begun and self.source.sizes.get(self.path, SHORT + 1) <= SHORT:
            self._begun.append((os.getpid(), readers(os.getpid()).submit(lambda: list(self._told()))))

    def leave(self) -> None:
        self._begun.clear()

    def blocks(self) -> Iterator[Block]:
        try:  # whoever takes it has it alone
            pid, begun = self._begun.pop()
        except IndexError:
            pid = -1
        yield from begun.result() if pid == os.getpid() else self._told()

    def _told(self) -> Iterator[Block]:
        with named(self.path):
            yield from tried(self._read, self.path)

    def _raw(self) -> Iterator[Block]:
        return self.source.reader.read(self.source, self.path, self.piece)

    def _read(self) -> Iterator[Block]:
        more = _of_path(self.path, self.base) if self.source.partitioned else {}
        wanted = self.source.reader.columns
        for block in self._raw():
            columns = dict(block.columns)
            for name, value in more.items():
                if wanted is None or name in wanted:
                    columns[name] = of_values([value] * block.rows)
            if self.source.include_paths:
                columns["path"] = of_values([self.path] * block.rows)
            yield Block(columns, block.rows)


def tried(read: Callable[[], Iterable[T]], path: str) -> Iterator[T]:
    """What `read()` gives, which begins anew after an error that passes (`DataContext.retried_io_errors`)."""
    given, pause = 0, PAUSE_S
    for attempt in itertools.count(1):
        try:
            for one in itertools.islice(read(), given, None):
                given += 1
                yield one
            return
        except OSError as error:
            passing = any(words in str(error) for words in DataContext.get_current().retried_io_errors)
            if not passing or attempt == TRIES:
                raise
            log.warning("%s: %s; it is tried again", path, error)
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_MOST_S)


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

    def read(self, source: Files, path: str, piece: Any) -> Iterator[Block]:
        raise NotImplementedError


class Parquet(Reader):
    leaves_out = True

    def __init__(
        self, columns: list[str] | None, options: dict[str, Any], schema: Any = None, tensors: Mapping[str, Any] | None = None
    ):
        """schema: the columns and types that are wanted; what a file lacks is missing values. tensors: of columns of bytes the
        (dtype, shape) of the arrays that they are."""
        needed("pyarrow.parquet", "read_parquet")
        self.columns, self.options, self.schema, self.tensors = columns, options, schema, dict(tensors or {})

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
            for batch in file.iter_batches(row_groups=[piece], columns=self._wanted(file), **options):
                yield self._block(pa.Table.from_batches([batch]))

    def _wanted(self, file: Any) -> list[str] | None:
        if self.schema is None:
            return self.columns
        return [name for name in file.schema_arrow.names if name in self.schema.names and name in (self.columns or [name])]

    def _block(self, table: Any) -> Block:
        if self.schema is not None:
            pa = needed("pyarrow", "read_parquet")
            fields = [field for field in self.schema if field.name in (self.columns or [field.name])]
            columns = [
                table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(len(table), field.type)
                for field in fields
            ]
            table = pa.table(columns, schema=pa.schema(fields))
        block = of_table(table)
        for name, (dtype, shape) in self.tensors.items():
            if name in block.columns:
                arrays = [np.frombuffer(one, dtype).reshape(shape) for one in block.columns[name].to_pylist()]
                block.columns[name] = np.stack(arrays) if arrays else np.empty((0, *shape), dtype)
        return block


class Csv(Reader):
    def __init__(self, options: dict[str, Any]):
        needed("pyarrow.csv", "read_csv")
        self.options = options

    def read(self, source: Files, path: str, piece: Any) -> Iterator[Block]:
        import pyarrow as pa
        from pyarrow import csv

        try:
            with source.open(path) as file, csv.open_csv(file, **self.options) as reader:
                for batch in reader:
                    yield of_table(pa.Table.from_batches([batch]))
        except pa.ArrowInvalid as error:
            raise ValueError(f"Failed to read CSV file: {path}: {error}") from error


class Json(Reader):
    """A row a line, or one list of rows; with `lines` a row a line in any case."""

    def __init__(self, lines: bool, options: dict[str, Any]):
        needed("pyarrow.json", "read_json")
        self.lines, self.options = lines, options

    def read(self, source: Files, path: str, piece: Any) -> Iterator[Block]:
        if self.lines:
            yield from self._read_lines(source, path)
            return
        import json

        import pyarrow as pa
        from pyarrow import json as reader

        data = source.read(path)
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


    def _read_lines(self, source: Files, path: str) -> Iterator[Block]:
        """By pandas, which takes what pyarrow does not: lines that are lists, values of several types."""
        pd = needed("pandas", "read_json(lines=True)")
        with source.open(path) as file, pd.read_json(file, lines=True, chunksize=LINES) as frames:
            for frame in frames:
                yield of_frame(frame)


class Text(Reader):
    def __init__(self, encoding: str, drop_empty_lines: bool):
        self.encoding, self.drop_empty_lines = encoding, drop_empty_lines

    def read(self, source: Files, path: str, piece: Any) -> Iterator[Block]:
        with io.TextIOWrapper(source.open(path), encoding=self.encoding) as file:
            lines = (line for text in file for line in text.splitlines())  # which knows more ends of lines than "\n"
            yield from gathered(
                ({"text": line} for line in lines if line.strip() or not self.drop_empty_lines), 4096
            )


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
        from PIL import Image, UnidentifiedImageError

        try:
            image = Image.open(io.BytesIO(source.read(path)))
        except UnidentifiedImageError:
            raise ValueError(f"PIL couldn't load image file at path '{path}'.") from None
        if self.size is not None and image.size != (self.size[1], self.size[0]):
            image = image.resize((self.size[1], self.size[0]), Image.Resampling.BILINEAR)
        if self.mode is not None:
            image = image.convert(self.mode)
        yield Block({"image": np.asarray(image)[None]}, 1)


class Numpy(Reader):
    """Where a file can be mapped, what is read of it is what is in memory."""

    def __init__(self, allow_pickle: bool, options: dict[str, Any]):
        self.options = {**options, "allow_pickle": allow_pickle}

    def pieces(self, source: Files, path: str) -> list[tuple[Any, int | None]]:
        if not self._is_mapped(source, path):
            return [(None, None)]
        array = self._load(source, path)
        return [(None, len(array) if array.ndim else 1)]

    def _is_mapped(self, source: Files, path: str) -> bool:
        return source.is_plain(path) and not self.options["allow_pickle"]

    def _load(self, source: Files, path: str) -> np.ndarray:
        if self._is_mapped(source, path):
            with contextlib.suppress(ValueError):  # objects cannot be mapped
                return np.load(path, **{"mmap_mode": "r", **self.options})
        return np.load(io.BytesIO(source.read(path)), **self.options)

    def read(self, source: Files, path: str, piece: Any) -> Iterator[Block]:
        array = self._load(source, path)
        array = array if array.ndim else array.reshape(1)
        for start in range(0, len(array), 4096):
            yield Block({"data": np.asarray(array[start : start + 4096])})


def listed(
    paths: Any, filesystem: Any, extensions: list[str] | None, ignore_missing: bool, sizes: dict[str, int]
) -> tuple[Any, list[tuple[str, str]]]:
    """The file system, None for this machine's, and every file with the directory that was given for it. What another file system
    tells of its files goes into `sizes`."""
    given = list(paths) if isinstance(paths, Iterable) and not isinstance(paths, str) else [as_text(paths, "`paths`")]
    if not given:
        raise ValueError("Must provide at least one path.")
    found: list[tuple[str, str]] = []
    places = [_place(path, filesystem) for path in given]
    there = places[0][1]
    for path, (place, other) in zip(given, places):
        if not filesystems.are_same(other, there):
            raise ValueError(f"`paths` must lie on one file system: {os.fspath(given[0])} and {os.fspath(path)} do not")
        files = _local(place) if there is None else _remote(place, there, sizes)
        if files is None and not ignore_missing:
            raise FileNotFoundError(f"No such file or directory: {os.fspath(path)}")
        found += _wanted(files or [], place, extensions)
    if not found and not ignore_missing:
        kinds = f" that end in one of {extensions}" if extensions else ""
        raise ValueError(f"No input files found to read{kinds}: {', '.join(map(os.fspath, given))}")
    return there, found


def _place(path: Any, filesystem: Any) -> tuple[str, Any]:
    text = os.fspath(path)
    if text.startswith(("local://", "example://")):
        text = text.partition("://")[2]
    place, there = filesystems.find_beside(text, filesystem, "paths")
    if there is None:  # from wherever workers read it
        place = os.path.abspath(os.path.expanduser(place))
    return place, there


def _local(place: str) -> list[str] | None:
    if any(mark in place for mark in "*?[") and not os.path.exists(place):
        return sorted(name for name in glob.glob(place, recursive=True) if os.path.isfile(name)) or None
    if os.path.isdir(place):
        return sorted(os.path.join(top, name) for top, _, names in os.walk(place) for name in names)
    return [place] if os.path.exists(place) else None


def _remote(place: str, filesystem: Any, sizes: dict[str, int]) -> list[str] | None:
    from pyarrow.fs import FileSelector, FileType

    if "*" in place:
        base = place[: place.index("*")].rpartition("/")[0]
        infos = filesystem.get_file_info(FileSelector(base, recursive=True))
        infos = [info for info in infos if fnmatch.fnmatch(info.path, place)]
    else:
        infos = [filesystem.get_file_info(place)]
        if infos[0].type == FileType.Directory:
            infos = filesystem.get_file_info(FileSelector(place, recursive=True))
        elif infos[0].type != FileType.File:
            return None
    files = {info.path: info.size for info in infos if info.type == FileType.File}
    sizes.update({path: size for path, size in files.items() if size is not None})
    return sorted(files) or (None if "*" in place else [])


def _wanted(files: list[str], place: str, extensions: list[str] | None) -> list[tuple[str, str]]:
    """Of a directory those that end as they should, and are not hidden; a file that was named itself in any case."""
    if files == [place]:
        return [(place, os.path.dirname(place))]
    base = re.split(r"[*?[]", place)[0].rpartition("/")[0] if re.search(r"[*?[]", place) else place
    ends = tuple(f".{end.lower().lstrip('.')}" for end in extensions or ())
    hidden = re.compile(r"(^|/)[._]")
    chosen = [name for name in files if not hidden.search(os.path.relpath(name, base))]
    return [(name, base) for name in chosen if not ends or name.lower().endswith(ends)]
