"""Sources that are in memory, or give any row by its number: ranges, rows, arrays, tables, data frames, map-style data sets.

A source of this kind has `len`, an `identity`, and `block(numbers)` for a slice or an array of row numbers."""

from __future__ import annotations

import itertools
import os
from typing import Any, Iterable, Iterator, Mapping, Sequence

import numpy as np

from .block import Block, concat, gathered, needed, objects, of_frame, of_records, of_table, of_values
from .parts import Given, Part

BLOCKS = 200  # that a source is read in, where nothing is said of it
LEAST = 1000  # rows of such a part
MOST = 1 << 20  # which are mixed in memory, where their order is drawn
_numbers = itertools.count()


def identity() -> str:
    """Of a source: no other has it, and it is the same in the workers."""
    return f"{os.getpid()}-{next(_numbers)}"


class Source:
    """What a plan begins with. `parts` is the same list in every epoch."""

    def __init__(self, blocks: int | None = None):
        self.identity = identity()
        self.wanted = _checked_blocks(blocks)

    def parts(self) -> list[Part]:
        return spread(self, len(self), self.wanted)  # type: ignore[arg-type]

    def input_files(self) -> list[str]:
        return []


def _checked_blocks(blocks: Any) -> int | None:
    if blocks is not None and (not isinstance(blocks, int) or blocks < 1):
        raise ValueError(f"`override_num_blocks` must be a positive number or None, not {blocks!r}")
    return blocks


def spread(source: Any, rows: int, blocks: int | None) -> list[Part]:
    """In so many parts, that differ by one row at most."""
    if blocks is None:
        blocks = max(min(BLOCKS, -(-rows // LEAST)), -(-rows // MOST))
    edges = [rows * i // max(blocks, 1) for i in range(blocks + 1)]
    return [Given(source, start, stop) for start, stop in zip(edges, edges[1:]) if stop > start]


class Range(Source):
    """The numbers from 0, as numbers or as tensors of a shape that are full of them."""

    def __init__(self, n: int, column: str, shape: Sequence[int] | None, blocks: int | None):
        super().__init__(blocks)
        if not isinstance(n, int) or n < 0:
            raise ValueError(f"`n` must be a number of rows, not {n!r}")
        self.n, self.column, self.shape = n, column, tuple(shape) if shape is not None else None

    def __len__(self) -> int:
        return self.n

    def block(self, numbers: Any) -> Block:
        ids = np.arange(numbers.start, numbers.stop) if isinstance(numbers, slice) else numbers
        if self.shape is not None:
            ids = np.broadcast_to(ids.reshape(-1, *[1] * len(self.shape)), (len(ids), *self.shape)).copy()
        return Block({self.column: ids})


class Rows(Source):
    """A list of rows: dicts, or values that are the column "item"."""

    def __init__(self, items: Iterable[Any], blocks: int | None):
        super().__init__(blocks)
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def block(self, numbers: Any) -> Block:
        chosen = self.items[numbers] if isinstance(numbers, slice) else [self.items[i] for i in numbers]
        return of_records([item if isinstance(item, Mapping) else {"item": item} for item in chosen])


class Held(Source):
    """Blocks in memory: arrays, tables, data frames, what was materialized. A read-only view of them is given, no copy."""

    def __init__(self, blocks: list[Block], wanted: int | None = None):
        super().__init__(wanted)
        self.blocks = blocks
        self.edges = np.cumsum([0, *(block.rows for block in blocks)])

    def __len__(self) -> int:
        return int(self.edges[-1])

    def parts(self) -> list[Part]:
        if self.wanted is not None:
            return super().parts()
        edges = [int(edge) for edge in self.edges]
        return [Given(self, start, stop) for start, stop in zip(edges, edges[1:]) if stop > start]

    def block(self, numbers: Any) -> Block:
        if isinstance(numbers, slice):
            return _sealed(self._range(numbers.start, numbers.stop))
        if len(self.blocks) == 1:
            return self.blocks[0].take(numbers)
        of = np.searchsorted(self.edges, numbers, side="right") - 1
        order = np.argsort(of, kind="stable")
        pieces = [self.blocks[i].take(numbers[order][of[order] == i] - self.edges[i]) for i in np.unique(of)]
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return concat(pieces).take(back)

    def _range(self, start: int, stop: int) -> Block:
        first = int(np.searchsorted(self.edges, start, side="right")) - 1
        pieces = []
        for i in range(max(first, 0), len(self.blocks)):
            low, high = int(self.edges[i]), int(self.edges[i + 1])
            if low >= stop:
                break
            if high > start:
                pieces.append(self.blocks[i].slice(start - low, stop - low))
        return concat(pieces)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__


def _sealed(block: Block) -> Block:
    """Cannot be written to: what it shows is the data set itself."""
    columns = {}
    for name, column in block.columns.items():
        if isinstance(column, np.ndarray) and column.flags.writeable:
            column = column[:]
            column.flags.writeable = False
        columns[name] = column
    return Block(columns, block.rows)


class MapStyle(Source):
    """A data set with `len` and `[number]`, as those of torch: each item is a row of its own, or the column "item"."""

    def __init__(self, data: Any, blocks: int | None):
        super().__init__(blocks)
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def block(self, numbers: Any) -> Block:
        chosen = range(numbers.start, numbers.stop) if isinstance(numbers, slice) else numbers
        return of_values_block([self.data[int(i)] for i in chosen])


def of_values_block(values: list[Any]) -> Block:
    """Values under "item", as they are: a pair of an image and a label stays one."""
    plain = all(isinstance(value, (int, float, str, bytes, bool, np.ndarray)) for value in values)
    return Block({"item": of_values(values) if plain else objects(values)}, len(values))


class HuggingFace(Source):
    """A `datasets.Dataset`, of whose table only what is asked for is read."""

    def __init__(self, data: Any, blocks: int | None):
        super().__init__(blocks)
        self.data = data.with_format("arrow")

    def __len__(self) -> int:
        return len(self.data)

    def block(self, numbers: Any) -> Block:
        return of_table(self.data[numbers if isinstance(numbers, slice) else [int(i) for i in numbers]])


class Stream(Source):
    """An iterable, of which nothing is known before it is read. Each rank reads all of it and keeps its own rows."""

    def __init__(self, data: Iterable[Any], as_rows: bool):
        super().__init__()
        if iter(data) is data:
            raise ValueError(
                f"a {type(data).__name__} can be read only once: give an object whose `__iter__` begins anew, or its items"
            )
        self.data, self.as_rows = data, as_rows

    def parts(self) -> list[Part]:
        return [StreamPart(self)]


class StreamPart(Part):
    def __init__(self, source: Stream):
        self.source = source
        self.key = ("stream", source.identity)

    def rows(self, presume: bool = False) -> int | None:
        return None

    def blocks(self) -> Iterator[Block]:
        if self.source.as_rows:
            return gathered(iter(self.source.data), LEAST)
        return self._items()

    def _items(self) -> Iterator[Block]:
        waiting: list[Any] = []
        for item in self.source.data:
            waiting.append(item)
            if len(waiting) == LEAST:
                yield of_values_block(waiting)
                waiting = []
        if waiting:
            yield of_values_block(waiting)


def held_arrays(arrays: Any, column: str = "data") -> list[Block]:
    given = arrays if isinstance(arrays, list) else [arrays]
    return [Block({column: np.asarray(array)}) for array in given]


def held_tables(tables: Any) -> list[Block]:
    pa = needed("pyarrow", "from_arrow")
    given = tables if isinstance(tables, list) else [tables]
    return [of_table(pa.table(table) if isinstance(table, dict) else _table(pa, table)) for table in given]


def _table(pa: Any, table: Any) -> Any:
    if isinstance(table, bytes):
        with pa.ipc.open_stream(table) as reader:
            return reader.read_all()
    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        raise ValueError(f"from_arrow takes tables of pyarrow, not {type(table).__module__}.{type(table).__name__}")
    return pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table


def held_frames(frames: Any) -> list[Block]:
    given = frames if isinstance(frames, list) else [frames]
    for frame in given:
        if not hasattr(frame, "columns"):
            raise ValueError(f"from_pandas takes data frames of pandas, not {type(frame).__name__}")
    return [of_frame(frame) for frame in given]
