"""A block: some rows of a data set, column by column.

A column is an array of numpy, whose first dimension is the rows, or a ChunkedArray of pyarrow: whichever it came as. A slice shares
the memory of the block, and what a column becomes (numpy, pandas, arrow) is made when it is asked for. pyarrow is needed only where
a column is of it; without it values are kept in arrays of numpy.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Iterable, Iterator, Mapping

import numpy as np

FORMATS = ("default", "numpy", "pandas", "pyarrow", None)


def pyarrow() -> Any:
    """The package; None where it is not installed."""
    try:
        import pyarrow
    except ImportError:
        return None
    return pyarrow


def needed(package: str, what: str) -> Any:
    """The package; ImportError that names what needs it."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        root = {"PIL": "pillow"}.get(package.partition(".")[0], package.partition(".")[0])
        raise ImportError(f"{what} needs {root} (pip install {root})") from None


class Block:
    """Columns of one length."""

    __slots__ = ("columns", "rows")

    def __init__(self, columns: dict[str, Any], rows: int | None = None):
        self.columns = columns
        self.rows = rows if rows is not None else len(next(iter(columns.values()), ()))

    def slice(self, start: int, stop: int) -> Block:
        """Shares the memory of this one."""
        if start <= 0 and stop >= self.rows:
            return self
        start, stop = max(start, 0), max(start, min(stop, self.rows))
        return Block({name: column[start:stop] for name, column in self.columns.items()}, stop - start)

    def take(self, rows: Any) -> Block:
        """The rows of these numbers, in their order."""
        rows = np.asarray(rows, dtype=np.int64)
        taken = {
            name: column[rows] if isinstance(column, np.ndarray) else column.take(rows)
            for name, column in self.columns.items()
        }
        return Block(taken, len(rows))

    def select(self, names: Iterable[str]) -> Block:
        return Block({name: self.columns[name] for name in names}, self.rows)

    def numpy(self) -> dict[str, np.ndarray]:
        return {name: as_numpy(column) for name, column in self.columns.items()}

    def arrow(self) -> Any:
        pa = needed("pyarrow", "the batch format 'pyarrow'")
        return pa.table({name: as_arrow(column) for name, column in self.columns.items()})

    def pandas(self) -> Any:
        pd = needed("pandas", "the batch format 'pandas'")
        return pd.DataFrame({name: _as_series(column) for name, column in self.columns.items()})

    def batch(self, form: str | None) -> Any:
        """As a user's function, or loop, gets it."""
        if form == "pandas":
            return self.pandas()
        as_is = form is None and pyarrow() is not None
        return self.arrow() if form == "pyarrow" or as_is else self.numpy()

    def records(self) -> Iterator[dict[str, Any]]:
        """Row by row, with values of Python; those of more dimensions are arrays."""
        names = list(self.columns)
        for values in zip(*(python_values(column) for column in self.columns.values())):
            yield dict(zip(names, values))

    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())


def check_format(form: str | None) -> None:
    if form not in FORMATS:
        raise ValueError(
            f"The given batch format {form} isn't allowed (must be one of {[one for one in FORMATS if one != 'default']})."
        )


def of_table(table: Any) -> Block:
    """Of a table of pyarrow. Tensors of fixed shape become arrays."""
    return Block({name: _of_arrow(table.column(name)) for name in table.column_names}, table.num_rows)


def of_frame(frame: Any) -> Block:
    """Of a data frame of pandas: by way of pyarrow, where a column is something it knows."""
    return Block({str(name): _of_series(frame[name]) for name in frame.columns}, len(frame))


def of_records(records: list[Mapping[str, Any]]) -> Block:
    """Of rows. A name that a row lacks is None there."""
    names: dict[str, None] = {}
    for record in records:
        names.update(dict.fromkeys(record))
    return Block({name: of_values([record.get(name) for record in records]) for name in names}, len(records))


def of_batch(batch: Any, source: str) -> Block:
    """Of what a user's function gave; ValueError, which names the function, for anything but a batch."""
    if isinstance(batch, Mapping):
        return _of_columns(batch, source)
    kind = f"{type(batch).__module__}.{type(batch).__qualname__}"
    if kind.startswith("pyarrow.") and hasattr(batch, "column_names"):
        return of_table(batch)
    if kind.startswith("pandas.") and hasattr(batch, "columns"):
        return of_frame(batch)
    raise ValueError(
        f"The `fn` you passed to `map_batches` returned a value of type {type(batch)}. This isn't allowed -- `map_batches` "
        f"expects `fn` ({source}) to return a `pandas.DataFrame`, `pyarrow.Table`, `numpy.ndarray`, `list`, or "
        "`dict[str, numpy.ndarray]`."
    )


def _of_columns(batch: Mapping[str, Any], source: str) -> Block:
    columns = {}
    for name, column in batch.items():
        if not hasattr(column, "__len__") or isinstance(column, (str, bytes)):
            raise ValueError(
                f"Error validating the batch of {source}: the column {name!r} is a {type(column).__name__}, and no array or list"
            )
        columns[name] = _of_column(column)
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"Batch must have the same length for all columns, but {source} returned {sizes}")
    return Block(columns)


def _of_column(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column if column.ndim else column.reshape(1)
    home = type(column).__module__
    if home.startswith("pyarrow"):
        return _of_arrow(column)
    if home.startswith("pandas"):
        return _of_series(column)
    if home.startswith("torch"):
        return column.detach().cpu().numpy()
    return of_values(list(column))


def of_values(values: list[Any]) -> Any:
    """A column of values of Python: arrays of one shape are stacked; of other shapes, and of what pyarrow does not know, it is an
    array of objects."""
    first = next((value for value in values if value is not None), None)
    if isinstance(first, np.ndarray) or (type(first).__module__ == "torch" and hasattr(first, "numpy")):
        return _stacked([np.asarray(value) if value is not None else None for value in values])
    if isinstance(first, np.generic) and all(type(value) is type(first) for value in values):
        return np.array(values)
    pa = pyarrow()
    if pa is None:
        return _plain(values)
    try:
        return pa.chunked_array([pa.array(values)])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return objects(values)


def _plain(values: list[Any]) -> np.ndarray:
    """Without pyarrow."""
    kinds = {type(value) for value in values}
    if kinds <= {int} or kinds <= {int, float} or kinds <= {bool}:
        return np.array(values)
    return objects(values)


def objects(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array


def _stacked(arrays: list[Any]) -> np.ndarray:
    shapes = {array.shape if array is not None else None for array in arrays}
    return np.stack(arrays) if len(shapes) == 1 else objects(arrays)


def as_numpy(column: Any) -> np.ndarray:
    """Numbers with missing ones are floats with NaN; text, lists and records are arrays of objects."""
    if isinstance(column, np.ndarray):
        if column.dtype == object and len(column) and isinstance(column[0], np.ndarray):
            return _stacked(list(column))
        return column
    if str(column.type) == "null":
        return np.full(len(column), np.nan)
    column = decoded(column)
    if column.num_chunks == 1:
        chunk = column.chunk(0)
        try:
            return chunk.to_numpy(zero_copy_only=True)
        except sys.modules["pyarrow"].ArrowInvalid:
            return chunk.to_numpy(zero_copy_only=False)
    return column.to_numpy()


def as_arrow(column: Any) -> Any:
    if not isinstance(column, np.ndarray):
        return column
    pa = sys.modules["pyarrow"]
    if column.ndim > 1:
        return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(column))
    return pa.array(list(column) if column.dtype == object else column)


def _as_series(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column if column.ndim == 1 else list(column)
    return column.to_pandas()


def _of_arrow(column: Any) -> Any:
    pa = sys.modules["pyarrow"]
    if not isinstance(column, pa.ChunkedArray):
        column = pa.chunked_array([column])
    if isinstance(column.type, pa.FixedShapeTensorType):
        parts = [chunk.to_numpy_ndarray() for chunk in column.chunks]
        shape = (0, *column.type.shape)
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(shape)
    return column


def decoded(column: Any) -> Any:
    """Of categories their values."""
    is_dictionary = sys.modules["pyarrow"].types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_dictionary else column


def _of_series(series: Any) -> Any:
    if series.dtype == object:
        values = series.to_numpy()
        if len(values) and isinstance(values[0], np.ndarray):
            return _stacked(list(values))
    elif isinstance(series.dtype, np.dtype):
        return series.to_numpy()
    pa = pyarrow()
    if pa is None:
        return series.to_numpy()
    try:
        made = _of_arrow(pa.array(series, from_pandas=True))
        return made.cast(pa.string()) if pa.types.is_large_string(made.type) else made
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return series.to_numpy()


def python_values(column: Any) -> Iterable[Any]:
    """Of Python; those of more dimensions are arrays."""
    if not isinstance(column, np.ndarray):
        return column.to_pylist()
    if column.ndim > 1 or column.dtype == object:
        return list(column)
    if column.dtype.kind in "mM":
        return [value.item() if not isinstance(value.item(), int) else value for value in column]
    return column.tolist()


def missing(values: np.ndarray) -> np.ndarray:
    """Which rows are None, NaN or no time. A list or an array is none of these, whatever is in it."""
    if values.dtype == object:
        return np.array([value is None or (not _is_nested(value) and value != value) for value in values], dtype=bool)
    if values.ndim > 1 or values.dtype.kind not in "fmM":
        return np.zeros(len(values), dtype=bool)
    return np.isnan(values)


def _is_nested(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict, np.ndarray))


def present(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column that are there, whole numbers as such, and which rows have none."""
    if isinstance(column, np.ndarray):
        values = as_numpy(column)
        gone = missing(values)
        return values[~gone], gone
    gone = as_numpy(column.is_null(nan_is_null=True))
    return as_numpy(column.filter(sys.modules["pyarrow"].array(~gone)) if gone.any() else column), gone


def plain(value: Any) -> Any:
    """Of Python."""
    return value.item() if isinstance(value, np.generic) else value


def concat(blocks: list[Block]) -> Block:
    """One block of several; a column that one lacks is missing values there."""
    blocks = [block for block in blocks if block.columns and block.rows] or blocks[:1]
    if len(blocks) <= 1:
        return blocks[0] if blocks else Block({}, 0)
    names: dict[str, None] = {}
    for block in blocks:
        names.update(dict.fromkeys(block.columns))
    rows = sum(block.rows for block in blocks)
    return Block({name: _joined([_column(block, name) for block in blocks]) for name in names}, rows)


def _column(block: Block, name: str) -> Any:
    found = block.columns.get(name)
    return found if found is not None else of_values([None] * block.rows)


def _joined(columns: list[Any]) -> Any:
    arrays = [isinstance(column, np.ndarray) for column in columns]
    if not any(arrays):
        pa = sys.modules["pyarrow"]
        if len({column.type for column in columns}) == 1:
            return pa.chunked_array([chunk for column in columns for chunk in column.chunks]).unify_dictionaries()
        tables = [pa.table({"": decoded(column)}) for column in columns]
        return pa.concat_tables(tables, promote_options="permissive").column(0)
    if not all(arrays):
        return of_values([value for column in columns for value in python_values(column)])
    if len({column.shape[1:] for column in columns}) > 1:
        return objects([row for column in columns for row in column])
    return np.concatenate(columns)


def rebatched(blocks: Iterable[Block], size: int | None) -> Iterator[Block]:
    """Blocks of `size` rows, the last perhaps smaller; None leaves them as they are."""
    if size is None:
        yield from (block for block in blocks if block.rows)
        return
    waiting: list[Block] = []
    rows = 0
    for block in blocks:
        at = size - rows if waiting else 0
        if waiting and block.rows:
            waiting.append(block.slice(0, at))
            rows += waiting[-1].rows
            if rows < size:
                continue
            yield concat(waiting)
            waiting, rows = [], 0
        while block.rows - at >= size:
            yield block.slice(at, at + size)
            at += size
        if block.rows > at:
            waiting, rows = [block.slice(at, block.rows)], block.rows - at
    if waiting:
        yield concat(waiting)


def gathered(records: Iterable[Mapping[str, Any]], size: int) -> Iterator[Block]:
    """Blocks of `size` rows."""
    waiting: list[Mapping[str, Any]] = []
    for record in records:
        waiting.append(record)
        if len(waiting) == size:
            yield of_records(waiting)
            waiting = []
    if waiting:
        yield of_records(waiting)


def described(block: Block) -> dict[str, Any]:
    """The type of each column: of pyarrow, or numpy's with the shape."""
    return {
        name: column.type
        if not isinstance(column, np.ndarray)
        else TensorType(column)
        if column.ndim > 1
        else _type_of(column)
        for name, column in block.columns.items()
    }


def _type_of(column: np.ndarray) -> Any:
    pa = pyarrow()
    if pa is None:
        return column.dtype
    try:
        return (
            pa.from_numpy_dtype(column.dtype) if column.dtype != object else pa.array(list(column[:1])).type
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return column.dtype


class TensorType:
    """Of a column with arrays of one shape."""

    def __init__(self, column: np.ndarray):
        self.shape, self.dtype = column.shape[1:], column.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"ArrowTensorTypeV2(shape={self.shape}, dtype={_type_of(np.empty(0, self.dtype))})"


Transform = Callable[[Iterator[Block]], Iterator[Block]]


def blocks_missing(blocks: list[Block], names: list[str]) -> None:
    """ValueError where the rows have no such column."""
    for name in names:
        if not any(name in block.columns for block in blocks):
            raise ValueError(f"there is no column {name!r}, only {list(blocks[0].columns)}")
