"""Plans: what a data set is made of, as a tree. A plan says for an epoch which parts there are; nothing is read for that, but where
rows must be counted to know."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterator

import numpy as np

from .block import Block
from .parts import Chain, Drawn, Given, Part, Stepped, Whole, Zipped, cut, resumed
from .parts import blocks_of as blocks_of
from .steps import Regrouped, Step, new_identity

EXACT = 1 << 22  # rows of which any order can be drawn, in place of an order of parts
MIXED_ROWS = 1 << 16  # that are mixed with each other where it is an order of parts


@dataclasses.dataclass
class Reading:
    """For whom the parts are: the epoch, among how many ranks they are divided, and what was counted so far (by a part's key)."""

    epoch: int = 0
    ranks: int = 1
    counts: dict[tuple, int] = dataclasses.field(default_factory=dict)

    def count(self, part: Part) -> int:
        rows = part.rows()
        if rows is None:
            if part.key not in self.counts:
                self.counts[part.key] = part.count()
            rows = self.counts[part.key]
        return rows

    def cut(self, parts: list[Part], start: int, stop: int | None) -> list[Part]:
        """The rows `start` to `stop`, None for the end; no further part is counted than is needed."""
        counts, at, chosen = [], 0, []
        for part in parts:
            if stop is not None and at >= stop:
                break
            counts.append(self.count(part))
            chosen.append(part)
            at += counts[-1]
        return cut(chosen, counts, start, at if stop is None else stop)


class Plan:
    """A node of the tree."""

    inputs: tuple[Plan, ...] = ()
    name = ""

    def parts(self, reading: Reading) -> list[Part]:
        raise NotImplementedError

    def fixed(self) -> Plan:
        """The same, with the order that is drawn in the first epoch in all of them."""
        return self.over(tuple(plan.fixed() for plan in self.inputs)) if self.inputs else self

    def over(self, inputs: tuple[Plan, ...]) -> Plan:
        import copy

        other = copy.copy(self)
        other.inputs = inputs
        return other

    def walk(self) -> Iterator[Plan]:
        yield self
        for plan in self.inputs:
            yield from plan.walk()


class Read(Plan):
    def __init__(self, source: Any):
        self.source = source

    def parts(self, reading: Reading) -> list[Part]:
        parts = self.source.parts()
        shuffle = getattr(self.source, "shuffle", None)
        return _ordered(parts, shuffle.numbers(reading.epoch)) if shuffle is not None else parts


class Then(Plan):
    """A step for each part."""

    def __init__(self, plan: Plan, step: Step):
        self.inputs, self.step = (plan,), step
        self.name = step.name

    def parts(self, reading: Reading) -> list[Part]:
        return [Stepped(part, self.step) for part in self.inputs[0].parts(reading)]


class Union(Plan):
    name = "Union"

    def __init__(self, *plans: Plan):
        self.inputs = plans

    def parts(self, reading: Reading) -> list[Part]:
        return [part for plan in self.inputs for part in plan.parts(reading)]


class Between(Plan):
    """The rows from one number to another, None for the end."""

    def __init__(self, plan: Plan, start: int, stop: int | None, name: str = "Split"):
        self.inputs, self.start, self.stop, self.name = (plan,), start, stop, name

    def parts(self, reading: Reading) -> list[Part]:
        return reading.cut(self.inputs[0].parts(reading), self.start, self.stop)


class Draw:
    """Random numbers for each epoch: other ones, or always the same. Every rank draws the same."""

    def __init__(self, seed: int, again: bool):
        self.seed, self.again = seed, again

    def numbers(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, epoch if self.again else 0])


class Shuffled(Plan):
    """Any order of the rows where any row can be had by its number; of files an order of their parts, in which the rows of
    neighbours are mixed."""

    name = "RandomShuffle"

    def __init__(self, plan: Plan, draw: Draw):
        self.inputs, self.draw = (plan,), draw

    def fixed(self) -> Plan:
        return Shuffled(self.inputs[0].fixed(), Draw(self.draw.seed, False))

    def parts(self, reading: Reading) -> list[Part]:
        numbers = self.draw.numbers(reading.epoch)
        parts = self.inputs[0].parts(reading)
        drawn = _drawn(parts, numbers, reading)
        return drawn if drawn is not None else self._mixed(_ordered(parts, numbers), numbers, reading)

    def _mixed(self, parts: list[Part], numbers: np.random.Generator, reading: Reading) -> list[Part]:
        known = [part.rows(presume=True) for part in parts]
        rows = sum(count or 0 for count in known)
        most = min(MIXED_ROWS, max(rows // reading.ranks, 1))
        groups: list[list[Part]] = [[]]
        size = 0
        for part, count in zip(parts, known):
            if groups[-1] and (size + (count or MIXED_ROWS) > most):
                groups.append([])
                size = 0
            groups[-1].append(part)
            size += count or MIXED_ROWS
        return [self._mix(group, int(numbers.integers(1 << 62))) for group in groups if group]

    def _mix(self, parts: list[Part], seed: int) -> Part:
        def permuted(block: Block) -> Block:
            return block.take(np.random.default_rng(seed).permutation(block.rows))

        return Whole(parts, permuted, ("mix", seed))


def _ordered(parts: list[Part], numbers: np.random.Generator) -> list[Part]:
    return [parts[i] for i in numbers.permutation(len(parts))]


def _drawn(parts: list[Part], numbers: np.random.Generator, reading: Reading) -> list[Part] | None:
    """Rows of one source in any order, with the steps that were to be taken; None where they cannot be had so."""
    found = [_by_number(part) for part in parts]
    if not found or None in found:
        return None
    (source, _, steps), rows = found[0], sum(stop - start for _, (start, stop), _ in found)
    same = all(one is source and taken == steps for one, _, taken in found)
    if not same or rows > EXACT:
        return None
    order = np.concatenate([np.arange(start, stop) for _, (start, stop), _ in found])
    order = order[numbers.permutation(rows)]
    key = ("drawn", source.identity, int(numbers.integers(1 << 62)))
    edges = [rows * i // len(parts) for i in range(len(parts) + 1)]
    drawn: list[Part] = [
        Drawn(source, order[low:high], (*key, low, high)) for low, high in zip(edges, edges[1:])
    ]
    for step in steps:
        drawn = [Stepped(part, step) for part in drawn]
    return drawn


def _by_number(part: Part) -> tuple[Any, tuple[int, int], list[Step]] | None:
    """Its source, its range of rows there, and the steps after that, where each of them looks at a row alone."""
    steps: list[Step] = []
    while isinstance(part, Stepped) and part.step.by_row:
        steps.insert(0, part.step)
        part = part.part
    return (part.source, (part.start, part.stop), steps) if isinstance(part, Given) else None


class BlockOrder(Plan):
    """An order of the parts."""

    name = "RandomizeBlockOrder"

    def __init__(self, plan: Plan, draw: Draw):
        self.inputs, self.draw = (plan,), draw

    def fixed(self) -> Plan:
        return BlockOrder(self.inputs[0].fixed(), Draw(self.draw.seed, False))

    def parts(self, reading: Reading) -> list[Part]:
        return _ordered(self.inputs[0].parts(reading), self.draw.numbers(reading.epoch))


class Together(Plan):
    """What needs all rows at once, as sorting does. Every rank that reads of it reads it whole."""

    def __init__(self, plan: Plan, function: Callable[[Block], Block], name: str, keeps_rows: bool = True):
        self.inputs, self.function, self.name, self.keeps_rows = (plan,), function, name, keeps_rows
        self.identity = new_identity()

    def parts(self, reading: Reading) -> list[Part]:
        return [Whole(self.inputs[0].parts(reading), self.function, (self.name, self.identity), self.keeps_rows)]


class Zip(Plan):
    name = "Zip"

    def __init__(self, *plans: Plan):
        self.inputs = plans

    def parts(self, reading: Reading) -> list[Part]:
        all_parts = [plan.parts(reading) for plan in self.inputs]
        counts = [[reading.count(part) for part in parts] for parts in all_parts]
        totals = [sum(rows) for rows in counts]
        if len(set(totals)) > 1:
            raise ValueError(
                f"Cannot zip datasets of different number of rows: {', '.join(map(str, totals))}"
            )
        others_parts = [list(map(resumed, parts, sizes)) for parts, sizes in zip(all_parts[1:], counts[1:])]
        found: list[Part] = []
        at = 0
        for part, rows in zip(all_parts[0], counts[0]):
            others = [Chain(cut(parts, sizes, at, at + rows)) for parts, sizes in zip(others_parts, counts[1:])]
            if rows:
                found.append(Zipped([part, *others]))
            at += rows
        return found


class Divided(Plan):
    """In other parts: so many, or of so many rows."""

    name = "Repartition"

    def __init__(self, plan: Plan, blocks: int | None, rows: int | None, strict: bool):
        self.inputs, self.blocks, self.rows, self.strict = (plan,), blocks, rows, strict
        self.regrouped = Regrouped(rows)

    def parts(self, reading: Reading) -> list[Part]:
        parts = self.inputs[0].parts(reading)
        if self.blocks is None and not self.strict and any(part.rows() is None for part in parts):
            return [Stepped(part, self.regrouped) for part in parts]
        counts = [reading.count(part) for part in parts]
        parts = list(map(resumed, parts, counts))
        rows = sum(counts)
        blocks = self.blocks or max(1, -(-rows // (self.rows or 1)))
        edges = [rows * i // blocks for i in range(blocks + 1)]
        if self.blocks is None:
            edges = [*range(0, rows, self.rows), rows]  # type: ignore[arg-type]
        return [
            Whole(cut(parts, counts, low, high), _same, ("part", low)) for low, high in zip(edges, edges[1:])
        ]


def _same(block: Block) -> Block:
    return block


def drawers(plan: Plan) -> Iterator[Any]:
    """All in the tree that draws by a `seed` of its own, from the root on."""
    for one in plan.walk():
        source, step = getattr(one, "source", None), getattr(one, "step", None)
        found = (getattr(one, "draw", None), getattr(source, "shuffle", None), step)
        yield from (drawer for drawer in found if getattr(drawer, "seed", None) is not None)
