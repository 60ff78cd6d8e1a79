"""Shards: which rows of a data set a rank gets, in which order, and how far it has come.

Every rank works out by itself which rows are its own: the order is drawn from a seed that all have, and rank r of n has the r-th
n-th of the rows in that order. Where the number of rows is only known by reading (a filter, files of text) the ranks count
once, each an n-th of the parts, and tell each other. A function on batches is taken to give as many rows as it gets until
it is seen to do otherwise; a rank that then would have fewer rows than the others is given some of its own a second time.

What was given of an epoch is told in phases, one for each number of ranks and way of mixing: from these and the seeds every rank
works out which rows are left, also where other ranks, or another process, go on with the epoch.
"""

from __future__ import annotations

import itertools
import json
import logging
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple

import numpy as np

from .block import Block, concat
from .parts import Part, cut, resumed
from .plan import Reading, blocks_of, drawers

if TYPE_CHECKING:
    from .dataset import Dataset

log = logging.getLogger("trainyard")
Agree = Callable[[str, bytes], list]  # a label and what this rank says: what all say


class Mixing(NamedTuple):
    """A local shuffle: batches of `size` rows are drawn from at least `least` that are held, as long as there are so many.

    Which row comes when depends on the seed and on how many rows there are, not on the blocks in which they come: so what is left
    of them is known without reading any."""

    least: int
    size: int
    seed: int | None

    def mixed(self, blocks: Iterator[Block], numbers: np.random.Generator) -> Iterator[Block]:
        held: list[Block] = []
        rows, most = 0, self._most()
        for block in blocks:
            while block.rows >= most - rows:
                mixed = concat([*held, block.slice(0, most - rows)]).take(numbers.permutation(most))
                block = block.slice(most - rows, block.rows)
                given = (most - self.least) // self.size * self.size
                yield mixed.slice(0, given)
                held, rows = [mixed.slice(given, most)], most - given
            if block.rows:
                held.append(block)
                rows += block.rows
        if rows:
            yield concat(held).take(numbers.permutation(rows))

    def left(self, given: int, total: int, numbers: np.random.Generator) -> list[tuple[int, int]]:
        """Spans of the rows that are not among the first `given` of `total`."""
        seen = min(total, given + self._most())  # beyond that no row has been given
        order = self.mixed(iter([Block({"row": np.arange(seen)})]), numbers)
        is_left = np.ones(seen, bool)
        for block in order:
            is_left[block.columns["row"][:given]] = False
            given -= min(block.rows, given)
            if not given:
                break
        edges = np.flatnonzero(np.diff(is_left, prepend=False, append=False))
        return [*zip(edges[::2].tolist(), edges[1::2].tolist()), (seen, total)]

    def _most(self) -> int:
        return self.least + max(self.least // 2, 4 * self.size)


class Phase(NamedTuple):
    """Rows of an epoch that each of so many ranks was given, in the order of its shard or mixed."""

    ranks: int
    rows: int
    mixing: Mixing | None = None

    def is_same(self, ranks: int, mixing: Mixing | None) -> bool:
        return (self.ranks, self.mixing) == (ranks, mixing)

    def plain(self) -> list[Any]:
        return [self.ranks, self.rows, *(self.mixing or ())]

    @classmethod
    def of(cls, plain: list[Any]) -> Phase:
        ranks, rows, *mixing = plain
        return cls(int(ranks), int(rows), Mixing(*mixing) if mixing else None)


class Shard:
    """One rank's part of a data set. With `equal` all ranks get as many rows as each other, and what is over is left out."""

    def __init__(self, dataset: Dataset, rank: int = 0, ranks: int = 1, equal: bool = True):
        self.dataset, self.rank, self.ranks, self.equal = dataset, rank, ranks, equal
        self.agree: Agree | None = None  # with the other ranks, where all of them iterate
        self.name = "data"
        self._counts: dict[tuple, int] = {}
        self._epoch = 0  # of the next pass
        self._given: list[Phase] = []  # before it, in its epoch
        self._presumes: bool | None = None  # whether by rows as presumed; None: not agreed on yet
        self._pass: Pass | None = None

    def begin(self, mixing: Mixing | None = None) -> Pass:
        """The next pass over the rows, in the order of the shard or mixed."""
        self._pass = Pass(self, self._epoch, self._given, self._presumes, mixing)
        self._epoch, self._given, self._presumes = self._epoch + 1, [], None
        self._pass.open()
        return self._pass

    def state(self) -> dict[str, Any]:
        if self._pass is None or self._pass.done:
            epoch, given, presumes = self._epoch, self._given, self._presumes
        else:
            epoch, given, presumes = self._pass.epoch, self._pass.given(), self._pass.presumes
        seeds = [self.dataset.seed, *(one.seed for one in drawers(self.dataset.plan))]
        return {"epoch": epoch, "given": [one.plain() for one in given], "presumes": presumes, "seeds": seeds}

    def go_on(self, state: dict[str, Any]) -> None:
        try:
            epoch, given = int(state["epoch"]), [Phase.of(one) for one in state["given"]]
            own, *seeds = map(int, state["seeds"])
            presumes = state["presumes"]
        except (TypeError, KeyError, ValueError):
            raise ValueError(f"{state!r:.200} is nothing that `state_dict` gave") from None
        drawing = list(drawers(self.dataset.plan))
        if len(seeds) != len(drawing):
            raise ValueError(
                f"the state is of a data set with {len(seeds)} steps that draw, as random_shuffle does; this one has {len(drawing)}"
            )
        for one, seed in zip([self.dataset, *drawing], [own, *seeds]):
            one.seed = seed
        self._counts = {}
        self._epoch, self._given, self._presumes, self._pass = epoch, given, presumes, None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "agree": None, "_pass": None}


class Pass:
    """One iteration of a shard."""

    def __init__(
        self, shard: Shard, epoch: int, before: list[Phase], presumes: bool | None, mixing: Mixing | None
    ):
        self.shard, self.epoch, self.presumes = shard, epoch, presumes
        self._before, self._mixing = before, mixing
        self._rows = 0
        self._blocks: Iterator[Block] = iter(())
        self.done = False

    def open(self) -> None:
        """Finds the rows of this rank; all ranks make the call where they have something to agree on."""
        before, skip = self._before, 0
        if self._mixing is not None and before and before[-1].is_same(self.shard.ranks, self._mixing):
            *before, (_, skip, _) = before  # left out once they are mixed as they were
        self._blocks = self._find(before)
        if self._mixing is not None:
            mixed = self._mixing.mixed(self._blocks, self._numbers(self._mixing, self.shard.rank))
            self._blocks = _behind(mixed, skip)

    def blocks(self) -> Iterator[Block]:
        return self._blocks

    def _numbers(self, mixing: Mixing, rank: int) -> np.random.Generator:
        """To draw the order of a rank's rows by: the same ones again when an epoch is gone on with."""
        seed = mixing.seed
        return np.random.default_rng([self.shard.dataset.seed, self.epoch, rank] if seed is None else seed)

    def gave(self, rows: int) -> None:
        self._rows += rows

    def ended(self) -> None:
        self.done = True

    def given(self) -> list[Phase]:
        """What was given of the epoch, from its beginning on."""
        before, ranks = self._before, self.shard.ranks
        if before and before[-1].is_same(ranks, self._mixing):
            return [*before[:-1], before[-1]._replace(rows=before[-1].rows + self._rows)]
        return [*before, Phase(ranks, self._rows, self._mixing)]

    def _find(self, given: list[Phase]) -> Iterator[Block]:
        shard = self.shard
        began = self._before[0].ranks if self._before else shard.ranks  # the order of files depends on it
        reading = Reading(self.epoch, began, shard._counts)
        parts = shard.dataset.plan.parts(reading)
        if shard.ranks == 1 and (not given or any(part.rows() is None for part in parts)):
            if all(one.is_same(1, None) for one in given):
                return _behind(blocks_of(parts), sum(one.rows for one in given))
        if any(part.rows() is None for part in parts):
            presumed = self._presumed(parts, given) if self.presumes is not False else None
            self.presumes = presumed is not None
            if presumed is not None:
                return presumed
            self._count(parts, reading)
        mine, _ = self._own(parts, [reading.count(part) for part in parts], given)
        return blocks_of(mine)

    def _own(self, parts: list[Part], counts: list[int], given: list[Phase]) -> tuple[list[Part], int]:
        """The parts of this rank, and their rows, where the parts have so many."""
        for one in given:
            if one.mixing is not None:
                parts = list(map(resumed, parts, counts))
            left = [span for rank in range(one.ranks) for span in self._left(one, rank, sum(counts))]
            parts, counts = _chosen(parts, counts, left)
        start, stop = self._share(sum(counts), self.shard.rank, self.shard.ranks)
        return cut(parts, counts, start, stop), stop - start

    def _share(self, total: int, rank: int, ranks: int) -> tuple[int, int]:
        """The rows of a rank."""
        if self.shard.equal:
            each = total // ranks
            return rank * each, (rank + 1) * each
        return total * rank // ranks, total * (rank + 1) // ranks

    def _left(self, phase: Phase, rank: int, total: int) -> list[tuple[int, int]]:
        """Spans of the rows that a rank was not given in a phase that began with `total` rows."""
        start, stop = self._share(total, rank, phase.ranks)
        given = min(phase.rows, stop - start)
        if phase.mixing is None:
            return [(start + given, stop)]
        left = phase.mixing.left(given, stop - start, self._numbers(phase.mixing, rank))
        return [(start + first, start + last) for first, last in left]

    def _presumed(self, parts: list[Part], given: list[Phase]) -> Iterator[Block] | None:
        """As if functions on batches gave as many rows as they get; None where that cannot be, or a rank saw another thing. In an
        epoch that was begun so it is gone on with so: what was given is told in rows that were presumed."""
        agree = self.shard.agree
        counts = [part.rows(presume=True) for part in parts]
        if (agree is None and not self.presumes) or None in counts:
            return None
        mine, rows = self._own(parts, counts, given)  # type: ignore[arg-type]
        blocks = blocks_of(mine)
        if self.presumes:
            return self._filled(None, blocks, mine, rows)
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
    """The parts of these rows, whose spans are in order, and how many they are."""
    found: list[Part] = []
    rows: list[int] = []
    there = zip(parts, counts, itertools.accumulate(counts))
    part, count, end = next(there, (None, 0, 0))
    for start, stop in spans:
        while start < stop and part is not None:
            if end > start:
                at, upto = start - (end - count), min(stop, end) - (end - count)
                found.append(part if (at, upto) == (0, count) else part.slice(at, upto))
                rows.append(upto - at)
                start += upto - at
            if end <= start:
                part, count, end = next(there, (None, 0, 0))
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
