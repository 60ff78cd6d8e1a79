"""What data sets are made of: files, and what a program has in memory."""

from __future__ import annotations

import sys
from typing import Any, Iterable, Mapping, Sequence

import numpy as np

from . import files, sources
from .block import Block, of_table, of_values
from .config import FileShuffleConfig
from .dataset import Dataset, MaterializedDataset
from .plan import Read

# Options of readers that say where and how often Ray reads, or by what.
_PLACES = frozenset(
    "parallelism override_num_blocks concurrency ray_remote_args num_cpus num_gpus memory meta_provider partition_filter "
    "open_stream_args arrow_open_stream_args arrow_open_file_args ignore_missing_paths file_extensions "
    "include_paths shuffle partitioning filesystem metadata_provider label_selector fallback_strategy max_calls resources "
    "accelerator_type runtime_env".split()
)

# Options of read_parquet with which other rows or columns would be read, and what to do instead.
_REFUSED = {
    "catalog": "give the paths of the files",
    "dataset_kwargs": "options of pyarrow's reader are given as such",
    "filter": "use `filter(expr=...)` of the data set",
    "include_row_hash": "hash the rows in `map_batches`",
    "skip_paths": "name the files that are wanted",
}
_OPENINGS = ("open_stream_args", "arrow_open_stream_args", "arrow_open_file_args")


def _dataset(source: sources.Source) -> Dataset:
    return Dataset(Read(source))


def _held(blocks: list[Block], wanted: int | None) -> MaterializedDataset:
    kept = [block for block in blocks if block.rows] or blocks[:1]
    return MaterializedDataset(Read(sources.Held(kept, wanted)))


def range(
    n: int, *, parallelism: int = -1, concurrency: Any = None, override_num_blocks: int | None = None
) -> Dataset:  # noqa: A001
    """The numbers from 0 in the column "id"."""
    return _dataset(sources.Range(n, "id", None, override_num_blocks))


def range_tensor(
    n: int,
    *,
    shape: Sequence[int] = (1,),
    parallelism: int = -1,
    concurrency: Any = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """The numbers from 0 as tensors of a shape, in the column "data"."""
    return _dataset(sources.Range(n, "data", shape, override_num_blocks))


def from_items(
    items: Iterable[Any], *, parallelism: int = -1, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """Rows, or values for the column "item"."""
    return MaterializedDataset(Read(sources.Rows(items, override_num_blocks)))


def from_numpy(
    ndarrays: Any, *, column: str = "data", override_num_blocks: int | None = None
) -> MaterializedDataset:
    """An array, or several, one after the other, in the column "data"."""
    return _held(sources.held_arrays(ndarrays, column), override_num_blocks)


def from_pandas(dfs: Any, override_num_blocks: int | None = None) -> MaterializedDataset:
    """A data frame, or several."""
    return _held(sources.held_frames(dfs), override_num_blocks)


def from_arrow(tables: Any, *, override_num_blocks: int | None = None) -> MaterializedDataset:
    """A table of pyarrow, or several."""
    return _held(sources.held_tables(tables), override_num_blocks)


def from_blocks(blocks: list[Any]) -> MaterializedDataset:
    """Tables or data frames, each a block."""
    return _held(
        [of_table(one) if hasattr(one, "column_names") else sources.held_frames(one)[0] for one in blocks],
        None,
    )


def from_huggingface(
    dataset: Any,
    parallelism: int = -1,
    concurrency: Any = None,
    override_num_blocks: int | None = None,
    **options: Any,
) -> Dataset:
    """A data set of the package `datasets`, also one that streams; of a `DatasetDict` give one of its splits."""
    if isinstance(dataset, dict):
        splits = ", ".join(repr(name) for name in dataset)
        raise ValueError(
            f"from_huggingface takes one split, not all of a {type(dataset).__name__}: give one of {splits}"
        )
    if hasattr(dataset, "__len__"):
        return MaterializedDataset(Read(sources.HuggingFace(dataset, override_num_blocks)))
    return _dataset(sources.Stream(dataset, as_rows=True))


def from_torch(dataset: Any, local_read: bool = False) -> Dataset:
    """A data set of torch, map-style or iterable; each item is a value of the column "item"."""
    torch = sys.modules.get("torch")  # whose iterable data sets have an item method as well, and may have a length
    is_stream = torch is not None and isinstance(dataset, torch.utils.data.IterableDataset)
    if not is_stream and hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        return _dataset(sources.MapStyle(dataset, None))
    return _dataset(sources.Stream(dataset, as_rows=False))


def _files(
    paths: Any,
    reader: files.Reader,
    extensions: list[str] | None,
    options: dict[str, Any],
    partitioned: bool = False,
) -> Dataset:
    for name in options:
        if name not in _PLACES:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    if options.get("partition_filter") is not None:
        raise NotImplementedError("`partition_filter` is not provided: name the files, or `filter` by what their directories say")
    shuffle = options.get("shuffle")
    if shuffle is not None and shuffle != "files" and not isinstance(shuffle, FileShuffleConfig):
        raise ValueError(
            f"Invalid value for 'shuffle': {shuffle!r}. Valid values are None, 'files', `FileShuffleConfig`."
        )
    source = files.Files(
        paths,
        reader,
        filesystem=options.get("filesystem"),
        extensions=options.get("file_extensions", extensions),
        include_paths=options.get("include_paths", False),
        shuffle=_drawn(FileShuffleConfig() if shuffle == "files" else shuffle),
        partitioned=partitioned and "partitioning" not in options or options.get("partitioning") is not None,
        blocks=options.get("override_num_blocks"),
        ignore_missing=options.get("ignore_missing_paths", False),
        opening=next((options[name] for name in _OPENINGS if options.get(name)), None),
    )
    return _dataset(source)


def _drawn(shuffle: FileShuffleConfig | None) -> FileShuffleConfig | None:
    """With a seed that all ranks have."""
    if shuffle is not None:
        shuffle.numbers(0)
    return shuffle


def read_parquet(
    paths: Any,
    *,
    columns: list[str] | None = None,
    schema: Any = None,
    tensor_column_schema: Mapping[str, tuple[Any, tuple[int, ...]]] | None = None,
    batch_size: int | None = None,
    use_threads: bool = True,
    **options: Any,
) -> Dataset:
    """Parquet files, each row group a part. Directories like year=2020 are columns.

    schema: one of pyarrow, with the columns that are wanted and their types; what a file lacks is missing values.
    tensor_column_schema: of columns of bytes {"name": (dtype, shape)} of the arrays that they are."""
    for name, instead in _REFUSED.items():
        value = options.pop(name, None)
        if value is not None and value is not False:
            raise NotImplementedError(f"`read_parquet({name}=...)` is not provided: {instead}")
    given = {"batch_size": batch_size} if batch_size else {}
    reader = files.Parquet(columns, given | {"use_threads": use_threads}, schema, tensor_column_schema)
    return _files(paths, reader, ["parquet"], options, partitioned=True)


def read_csv(
    paths: Any,
    *,
    parse_options: Any = None,
    read_options: Any = None,
    convert_options: Any = None,
    **options: Any,
) -> Dataset:
    """Files of comma-separated values; options as those of pyarrow.csv.open_csv."""
    arrow = {"parse_options": parse_options, "read_options": read_options, "convert_options": convert_options}
    given = {name: value for name, value in arrow.items() if value is not None}
    return _files(paths, files.Csv(given), None, options, partitioned=True)


def read_json(
    paths: Any, *, lines: bool = False, read_options: Any = None, parse_options: Any = None, **options: Any
) -> Dataset:
    """Files with a row a line, or one list of rows."""
    arrow = {"parse_options": parse_options, "read_options": read_options}
    given = {name: value for name, value in arrow.items() if value is not None}
    kinds = [kind + end for end in ("", ".gz", ".br", ".zst", ".lz4") for kind in ("json", "jsonl")]
    return _files(paths, files.Json(lines, given), kinds, options, partitioned=True)


def read_text(
    paths: Any, *, encoding: str = "utf-8", drop_empty_lines: bool = True, **options: Any
) -> Dataset:
    """The lines of files, in the column "text"."""
    return _files(paths, files.Text(encoding, drop_empty_lines), None, options)


def read_binary_files(paths: Any, **options: Any) -> Dataset:
    """Whole files, in the column "bytes"."""
    return _files(paths, files.Binary(), None, options)


def read_images(
    paths: Any, *, size: tuple[int, int] | None = None, mode: str | None = None, **options: Any
) -> Dataset:
    """Pictures as arrays in the column "image", (height, width, channels), also brought to one size and mode."""
    kinds = ["png", "jpg", "jpeg", "tif", "tiff", "bmp", "gif", "webp"]
    return _files(paths, files.Images(size, mode), kinds, options)


def read_numpy(paths: Any, *, allow_pickle: bool = False, **options: Any) -> Dataset:
    """Files of numpy, in the column "data". fix_imports, encoding and max_header_size as those of numpy.load."""
    load = {name: options.pop(name) for name in ("fix_imports", "encoding", "max_header_size") if name in options}
    return _files(paths, files.Numpy(allow_pickle, load), ["npy"], options)


def as_dataset(data: Any, name: str = "dataset") -> Dataset:
    """A data set of what a trainer was given as one: a Dataset, a table, a data frame, an array, a dict of them, a data set of
    Hugging Face or torch, or a function that gives one of these."""
    if isinstance(data, Dataset):
        return data
    home = type(data).__module__.partition(".")[0]
    if isinstance(data, np.ndarray):
        return from_numpy(data)
    if isinstance(data, dict):
        return _held(
            [
                Block(
                    {
                        key: value if isinstance(value, np.ndarray) else of_values(list(value))
                        for key, value in data.items()
                    }
                )
            ],
            None,
        )
    if home == "pandas":
        return from_pandas(data)
    if home == "pyarrow":
        return from_arrow(data.to_table() if hasattr(data, "to_table") else data)
    if home == "datasets":
        return from_huggingface(data)
    if isinstance(data, list):
        return from_items(data)
    if hasattr(data, "__getitem__") or hasattr(data, "__iter__"):
        return from_torch(data)
    if callable(data):
        return as_dataset(data(), name)
    raise ValueError(
        f"`datasets[{name!r}]` must be a data set (trainyard.data), a table, a data frame, an array or a data set of torch or "
        f"Hugging Face, not {type(data).__module__}.{type(data).__name__}"
    )
