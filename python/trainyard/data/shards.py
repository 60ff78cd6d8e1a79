"""Shards: which rows of a data set a rank gets, in which order, and how far it has come.

Every rank works out by itself which rows are its own: the order is drawn from a seed that all have, and rank r of n has the r-th
n-th of the rows in that order. Where the number of rows is only known by reading (a filter, files of text) the ranks count
once, each an n-th of the parts, and tell each other. A function on batches is taken to give as many rows as it gets until
it is seen to do otherwise; a rank that then would have fewer rows than the others is given some of its own a second time.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator

import numpy as np

from .block import Block
from .parts import Part, cut
from .plan import Reading, blocks_of

if TYPE_CHECKING:
    from .dataset import Dataset

log = logging.getLogger("trainyard")
Agree = Callable[[str, bytes], list]  # a label and what this rank says: what all say


class Shard:
    """One rank's part of a data set. With `equal` all ranks get as many rows as each other, and what is over is left out."""

    def __init__(self, dataset: Dataset, rank: int = 0, ranks: int = 1, equal: bool = True):
        self.dataset, self.rank, self.ranks, self.equal = dataset, rank, ranks, equal
        self.agree: Agree | None = None  # with the other ranks, where all of them iterate
        self.name = "data"
        self._counts: dict[tuple, int] = {}
        self._epoch = 0  # of the next pass
        self._given: list[list[int]] = []  # [ranks, rows] that were given before it, in its epoch
        self._pass: Pass | None = None

    def begin(self, mixed: bool) -> Pass:
        """The next pass over the rows. With `mixed` they are to be given in another order than they are read."""
        given, self._given = self._given, []
        self._pass = Pass(self, self._epoch, given)
        self._epoch += 1
        self._pass.open(mixed)
        return self._pass

    def state(self) -> dict[str, Any]:
        if self._pass is None or self._pass.done:
            return {"epoch": self._epoch, "given": [list(one) for one in self._given]}
        return {"epoch": self._pass.epoch, "given": self._pass.given()}

    def go_on(self, state: dict[str, Any]) -> None:
        try:
            epoch, given = int(state["epoch"]), [[int(ranks), int(rows)] for ranks, rows in state["given"]]
        except (TypeError, KeyError, ValueError):
            raise ValueError(f"{state!r:.200} is nothing that `state_dict` gave") from None
        self._epoch, self._given, self._pass = epoch, given, None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "agree": None, "_pass": None}


class Pass:
    """One iteration of a shard."""

    def __init__(self, shard: Shard, epoch: int, given: list[list[int]]):
        self.shard, self.epoch, self._before = shard, epoch, given
        self._rows = 0
        self._skip = 0  # rows to leave out, after they were mixed
        self._blocks: Iterator[Block] = iter(())
        self.done = False

    def open(self, mixed: bool) -> None:
        """Finds the rows of this rank; all ranks make the call where they have something to agree on."""
        same = [one for one in self._before if one[0] == self.shard.ranks]
        if mixed and self._before and same == self._before:
            self._skip = sum(rows for _, rows in self._before)
            self._blocks = self._find([])
        else:
            self._blocks = self._find(self._before)

    def blocks(self) -> Iterator[Block]:
        return self._blocks

    def unseen(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Without those that were given before."""
        skip = self._skip
        for block in blocks:
            left = block.slice(min(skip, block.rows), block.rows)
            skip -= block.rows - left.rows
            if left.rows:
                yield left

    def numbers(self, seed: int | None) -> np.random.Generator:
        """To draw an order of rows by: the same ones again when an epoch is gone on with."""
        return np.random.default_rng(
            seed if seed is not None else [self.shard.dataset.seed, self.epoch, self.shard.rank]
        )

    def gave(self, rows: int) -> None:
        self._rows += rows

    def ended(self) -> None:
        self.done = True

    def given(self) -> list[list[int]]:
        """[ranks, rows] by rows that each rank was given of the epoch, from its beginning on."""
        before = [list(one) for one in self._before]
        if before and before[-1][0] == self.shard.ranks:
            before[-1][1] += self._rows
            return before
        return [*before, [self.shard.ranks, self._rows]]

    def _find(self, given: list[list[int]]) -> Iterator[Block]:
        shard = self.shard
        reading = Reading(self.epoch, shard.ranks, shard._counts)
        parts = shard.dataset.plan.parts(reading)
        if shard.ranks == 1 and (not given or any(part.rows() is None for part in parts)):
            if all(ranks == 1 for ranks, _ in given):
                return _behind(blocks_of(parts), sum(rows for _, rows in given))
        if any(part.rows() is None for part in parts):
            presumed = self._presumed(parts, given)
            if presumed is not None:
                return presumed
            self._count(parts, reading)
        mine, _ = self._own(parts, [reading.count(part) for part in parts], given)
        return blocks_of(mine)

    def _own(self, parts: list[Part], counts: list[int], given: list[list[int]]) -> tuple[list[Part], int]:
        """The parts of this rank, and their rows, where the parts have so many."""
        for ranks, rows in given:
            each = sum(counts) // ranks
            left = [(rank * each + min(rows, each), (rank + 1) * each) for rank in range(ranks)]
            parts, counts = _chosen(parts, counts, left)
        total, shard = sum(counts), self.shard
        if shard.equal:
            each = total // shard.ranks
            start, stop = shard.rank * each, (shard.rank + 1) * each
        else:
            start, stop = (total * rank // shard.ranks for rank in (shard.rank, shard.rank + 1))
        return cut(parts, counts, start, stop), stop - start

    def _presumed(self, parts: list[Part], given: list[list[int]]) -> Iterator[Block] | None:
        """As if functions on batches gave as many rows as they get; None where that cannot be, or a rank saw another thing."""
        agree = self.shard.agree
        counts = [part.rows(presume=True) for part in parts]
        if agree is None or None in counts:
            return None
        mine, rows = self._own(parts, counts, given)  # type: ignore[arg-type]
        blocks = blocks_of(mine)
        first = next(blocks, None)
        steps = [step for part in mine for step in part.steps()]
        if b"1" in agree(
            f"data/{self.shard.name}/kept", b"1" if any(step.changed for step in steps) else b"0"
        ):
            for step in steps:
                step.changed = True
            return None
        return self._filled(first, blocks, mine, rows)

    def _filled(
        self, first: Block | None, blocks: Iterator[Block], parts: list[Part], rows: int
    ) -> Iterator[Block]:
        """Exactly so many rows."""
        left = rows
        for block in _after(first, blocks):
            yield block.slice(0, left)
            left -= min(block.rows, left)
            if not left:
                return
        if left and left < rows:
            log.warning(
                "data set %r: a function on batches gave rank %d %d rows fewer than it got, and the ranks are to have as many as "
                "each other: rows are given a second time; from the next epoch on they are counted",
                self.shard.name,
                self.shard.rank,
                left,
            )
        while left and left < rows:
            for block in blocks_of(parts):
                yield block.slice(0, left)
                left -= min(block.rows, left)
                if not left:
                    return

    def _count(self, parts: list[Part], reading: Reading) -> None:
        """What is not known yet, each rank its part of it."""
        unknown = [part for part in parts if part.rows() is None and part.key not in reading.counts]
        agree, shard = self.shard.agree, self.shard
        if agree is None:
            for part in unknown:
                reading.count(part)
            return
        mine = [reading.count(part) for part in unknown[shard.rank :: shard.ranks]]
        said = agree(f"data/{shard.name}/rows", json.dumps(mine).encode())
        for rank, text in enumerate(said):
            for part, rows in zip(unknown[rank :: shard.ranks], json.loads(text)):
                reading.counts[part.key] = rows


def _chosen(
    parts: list[Part], counts: list[int], spans: list[tuple[int, int]]
) -> tuple[list[Part], list[int]]:
    """The parts of these rows, and how many they are."""
    found: list[Part] = []
    rows: list[int] = []
    for start, stop in spans:
        for part in cut(parts, counts, start, stop):
            found.append(part)
        at = 0
        for count in counts:
            length = min(stop - at, count) - max(start - at, 0)
            if length > 0:
                rows.append(length)
            at += count
    return found, rows


def _behind(blocks: Iterator[Block], rows: int) -> Iterator[Block]:
    """Without the first `rows` rows."""
    for block in blocks:
        left = block.slice(min(rows, block.rows), block.rows)
        rows -= block.rows - left.rows
        if left.rows:
            yield left


def _after(first: Block | None, blocks: Iterator[Block]) -> Iterator[Block]:
    if first is not None:
        yield first
        del first
    yield from blocks


def of(session: Any, name: str) -> Any:
    """The iterator of this rank over a data set of its trainer."""
    found = getattr(session, "shards", None)
    if found is None:
        found = session.shards = _all(session)
    if name not in found:
        there = f"it was given {', '.join(map(repr, found))}" if found else "it was given none"
        raise KeyError(
            f"Dataset shard for '{name}' not found. Please ensure that the dataset is passed through the Trainer `datasets` "
            f"argument: {there}."
        )
    return found[name]


def _all(session: Any) -> dict[str, Any]:
    from . import travel

    sent = session.datasets
    if sent is None:
        return {}
    given = travel.received(sent) if "data" in sent else sent
    node_ids = [str(rank) for rank in range(session.world_size)]
    split = given["config"].configure(
        given["datasets"], session.world_size, worker_handles=None, worker_node_ids=node_ids
    )
    if len(split) != session.world_size:
        raise ValueError(
            f"`DataConfig.configure` gave iterators for {len(split)} ranks of {session.world_size}"
        )
    mine = split[session.world_rank]
    for key, one in mine.items():
        shard = getattr(one, "_shard", None)
        if shard is not None:
            shard.name = key
            if shard.ranks == session.world_size > 1:
                shard.agree = session.gather
    return mine
