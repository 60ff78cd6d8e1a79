"""Parts: what a data set is read in. A part gives its blocks without any other part, so that each rank reads its own ones, and
knows how many rows it has where that can be known without reading."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import numpy as np

from .block import Block, concat, rebatched
from .steps import Step

READERS = 8  # files that are read at once
GIVEN_ROWS = 4096  # of a block of what is in memory


class Part:
    """A piece of a data set. `key` tells it from all others of the set, and is the same in every epoch and process."""

    key: tuple = ()

    def rows(self, presume: bool = False) -> int | None:
        """How many it gives; None where that is only known by reading. With `presume`, a function on batches is taken to give as
        many rows as it gets."""
        raise NotImplementedError

    def blocks(self) -> Iterator[Block]:
        raise NotImplementedError

    def slice(self, start: int, stop: int) -> Part:
        """Its rows `start` to `stop`, both within it."""
        if start == 0 and stop == self.rows():
            return self
        return Slice(self, start, stop)

    def between(self, start: int, stop: int) -> Iterator[Block]:
        """These rows of it, where it must be read from its beginning."""
        at = 0
        for block in self.blocks():
            piece = block.slice(start - at, stop - at) if at + block.rows > start else None
            at += block.rows
            if piece is not None and piece.rows:
                yield piece
            if at >= stop:
                return

    def count(self) -> int:
        """By reading, where it is not known."""
        rows = self.rows()
        return rows if rows is not None else sum(block.rows for block in self.blocks())

    def steps(self) -> list[Step]:
        """All that are taken in it."""
        return []

    def begin(self) -> None:
        """It is about to be asked for its blocks: what takes long may begin now."""

    def leave(self) -> None:
        """It is not asked for them, after all."""


class Given(Part):
    """Rows of a source that knows any of them by number: `source.block(numbers)` takes a slice or an array of numbers."""

    def __init__(self, source: Any, start: int, stop: int):
        self.source, self.start, self.stop = source, start, stop
        self.key = ("given", source.identity, start, stop)

    def rows(self, presume: bool = False) -> int:
        return self.stop - self.start

    def blocks(self) -> Iterator[Block]:
        for start in range(self.start, self.stop, GIVEN_ROWS):
            yield self.source.block(slice(start, min(start + GIVEN_ROWS, self.stop)))

    def slice(self, start: int, stop: int) -> Given:
        return Given(self.source, self.start + start, self.start + stop)


class Drawn(Part):
    """Rows of such a source by their numbers."""

    def __init__(self, source: Any, numbers: np.ndarray, key: tuple):
        self.source, self.numbers, self.key = source, numbers, key

    def rows(self, presume: bool = False) -> int:
        return len(self.numbers)

    def blocks(self) -> Iterator[Block]:
        for start in range(0, len(self.numbers), GIVEN_ROWS):
            yield self.source.block(self.numbers[start : start + GIVEN_ROWS])

    def slice(self, start: int, stop: int) -> Drawn:
        return Drawn(self.source, self.numbers[start:stop], (*self.key, start, stop))


class Slice(Part):
    """Rows of a part that must be read from its beginning."""

    def __init__(self, part: Part, start: int, stop: int):
        self.part, self.start, self.stop = part, start, stop
        self.key = ("slice", part.key, start, stop)

    def rows(self, presume: bool = False) -> int:
        return self.stop - self.start

    def blocks(self) -> Iterator[Block]:
        return self.part.between(self.start, self.stop)

    def slice(self, start: int, stop: int) -> Part:
        return Slice(self.part, self.start + start, self.start + stop)

    def steps(self) -> list[Step]:
        return self.part.steps()

    def begin(self) -> None:
        self.part.begin()

    def leave(self) -> None:
        self.part.leave()


class Resumed(Part):
    """A part of `rows` rows whose pieces are read one after the other: each goes on where the one before it ended."""

    def __init__(self, part: Part, rows: int):
        self.part, self.key, self._rows = part, part.key, rows
        self._at = 0  # the row that comes next of `_blocks`, behind what is left of a block
        self._left: Block | None = None
        self._blocks: Iterator[Block] | None = None

    def rows(self, presume: bool = False) -> int | None:
        return self.part.rows(presume)

    def blocks(self) -> Iterator[Block]:
        return self.part.blocks()

    def between(self, start: int, stop: int) -> Iterator[Block]:
        if self._blocks is None or self._at > start:
            self._at, self._left, self._blocks = 0, None, self.part.blocks()
        while self._at < stop and self._blocks is not None:
            block, self._left = self._left or next(self._blocks, None), None
            if block is None:
                break
            piece = block.slice(start - self._at, stop - self._at)
            end = self._at + block.rows
            if end > stop:
                self._left = block.slice(stop - self._at, block.rows)
            self._at = min(end, stop)
            if self._at >= self._rows:
                self._blocks = None  # nothing stays open
            if piece.rows:
                yield piece

    def steps(self) -> list[Step]:
        return self.part.steps()


def resumed(part: Part, rows: int) -> Part:
    """The same, cheap to be read in pieces."""
    if isinstance(part, Stepped) and part.step.keeps_rows:
        return Stepped(resumed(part.part, rows), part.step)
    return part if isinstance(part, (Given, Drawn, Chain)) else Resumed(part, rows)


class Stepped(Part):
    """A part after a step."""

    def __init__(self, part: Part, step: Step):
        self.part, self.step = part, step
        self.key = ("step", part.key, step.identity)

    def rows(self, presume: bool = False) -> int | None:
        if self.step.keeps_rows or (presume and self.step.keeps_rows is None):
            return self.part.rows(presume)
        return None

    def blocks(self) -> Iterator[Block]:
        return self.step.run(self.part.blocks())

    def slice(self, start: int, stop: int) -> Part:
        if self.rows(presume=True) is None:
            return super().slice(start, stop)
        if self.step.keeps_rows is None and self.step.changed:
            return super().slice(start, stop)
        return Stepped(self.part.slice(start, stop), self.step)

    def steps(self) -> list[Step]:
        return [*self.part.steps(), self.step]

    def begin(self) -> None:
        self.part.begin()

    def leave(self) -> None:
        self.part.leave()


class Whole(Part):
    """All of several parts at once, as a function makes it of them."""

    def __init__(self, parts: list[Part], function: Callable[[Block], Block], key: tuple, keeps_rows: bool = True):
        self.parts, self.function, self.keeps_rows = parts, function, keeps_rows
        self.key = (*key, tuple(part.key for part in parts))

    def rows(self, presume: bool = False) -> int | None:
        return total(self.parts, presume) if self.keeps_rows else None

    def blocks(self) -> Iterator[Block]:
        blocks = list(blocks_of(self.parts))
        block = concat(blocks)
        del blocks
        if block.rows:
            yield self.function(block)

    def steps(self) -> list[Step]:
        return [step for part in self.parts for step in part.steps()]

    def begin(self) -> None:
        for part in self.parts[:READERS]:
            part.begin()

    def leave(self) -> None:
        for part in self.parts[:READERS]:
            part.leave()


class Chain(Part):
    """Several parts, one after the other."""

    def __init__(self, parts: list[Part]):
        self.parts = parts
        self.key = ("chain", tuple(part.key for part in parts))

    def rows(self, presume: bool = False) -> int | None:
        return total(self.parts, presume)

    def blocks(self) -> Iterator[Block]:
        for part in self.parts:
            yield from part.blocks()

    def slice(self, start: int, stop: int) -> Part:
        return Chain(cut(self.parts, [part.rows(presume=True) or 0 for part in self.parts], start, stop))

    def steps(self) -> list[Step]:
        return [step for part in self.parts for step in part.steps()]


class Bundle(Chain):
    """Small parts, as files of one row each, in blocks of `size` rows. Several are read at once: most of the time goes into waiting
    for a store, or into decoding, which needs no interpreter."""

    def __init__(self, parts: list[Part], size: int):
        super().__init__(parts)
        self.size = size

    def blocks(self) -> Iterator[Block]:
        read = readers(os.getpid()).map(lambda part: list(part.blocks()), self.parts)
        return rebatched((block for blocks in read for block in blocks), self.size)

    def slice(self, start: int, stop: int) -> Part:
        counts = [part.rows() or 0 for part in self.parts]
        return Bundle(cut(self.parts, counts, start, stop), self.size)


@functools.cache
def readers(pid: int) -> ThreadPoolExecutor:
    """The threads of a process: one that was forked has none of its parent's."""
    return ThreadPoolExecutor(READERS, "trainyard-data-reader")


class Zipped(Part):
    """Parts of one number of rows side by side. A name that is there already gets a number."""

    def __init__(self, parts: list[Part]):
        self.parts = parts
        self.key = ("zip", tuple(part.key for part in parts))

    def rows(self, presume: bool = False) -> int | None:
        return self.parts[0].rows(presume)

    def blocks(self) -> Iterator[Block]:
        for blocks in zip(*(rebatched(part.blocks(), GIVEN_ROWS) for part in self.parts)):
            columns: dict[str, Any] = {}
            for block in blocks:
                for name, column in block.columns.items():
                    columns[_free(name, columns)] = column
            yield Block(columns, blocks[0].rows)

    def steps(self) -> list[Step]:
        return [step for part in self.parts for step in part.steps()]


def _free(name: str, taken: dict[str, Any]) -> str:
    number, free = 0, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def blocks_of(parts: list[Part]) -> Iterator[Block]:
    """Of one after the other; those that come next may begin."""
    at = 0
    try:
        for at, part in enumerate(parts):  # noqa: B007
            for later in parts[at + 1 : at + 1 + READERS]:
                later.begin()
            yield from part.blocks()
    finally:
        for part in parts[at : at + 1 + READERS]:
            part.leave()


def total(parts: list[Part], presume: bool = False) -> int | None:
    rows = [part.rows(presume) for part in parts]
    return None if None in rows else sum(rows)  # type: ignore[arg-type]


def cut(parts: list[Part], counts: list[int], start: int, stop: int) -> list[Part]:
    """The rows `start` to `stop` of the parts, which have so many each."""
    found, at = [], 0
    for part, rows in zip(parts, counts):
        first, last = max(start - at, 0), min(stop - at, rows)
        if first < last:
            found.append(part if (first, last) == (0, rows) else part.slice(first, last))
        at += rows
        if at >= stop:
            break
    return found
