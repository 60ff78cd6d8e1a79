"""Samplers that share a dataset out among the workers."""

from __future__ import annotations

from typing import Any, Iterator

from torch.utils.data import DistributedSampler


class EpochSampler(DistributedSampler[Any]):
    """A DistributedSampler that begins a new epoch each time it is iterated over, until `set_epoch` is called: from then on
    the caller says which."""

    _told = False

    def set_epoch(self, epoch: int) -> None:
        self._told = True
        super().set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        indices = super().__iter__()
        if not self._told:
            self.epoch += 1
        return indices


class SharedBatches:
    """Every `replicas`-th batch of a batch sampler, from the `rank`-th on. All workers get equally many: what is missing of
    the last round is taken from the first batches. `set_epoch` and other attributes are the batch sampler's."""

    def __init__(self, batches: Any, rank: int, replicas: int):
        self.batches = batches
        self.rank = rank
        self.replicas = replicas

    def __iter__(self) -> Iterator[Any]:
        first: list[Any] = []
        own, position = None, 0
        for batch in self.batches:
            if len(first) < self.replicas:
                first.append(batch)
            if position == self.rank:
                own = batch
            position += 1
            if position == self.replicas:
                yield own
                position = 0
        if position > self.rank:
            yield own
        elif position > 0:
            yield first[(self.rank - position) % len(first)]

    def __len__(self) -> int:
        return -(-len(self.batches) // self.replicas)

    def __getattr__(self, name: str) -> Any:
        if name == "batches":  # not there yet while being unpickled
            raise AttributeError(name)
        return getattr(self.batches, name)
