"""prepare_data_loader: each worker reads its own share, and finds it on its device."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any

from .. import runtime
from . import devices

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

log = logging.getLogger("trainyard")


def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> DataLoader[Any]:
    """The loader, all its options kept, for one of several workers.

    add_dist_sampler: with several workers each reads an equal share of the dataset, other for each epoch where the loader
        shuffles; `loader.sampler.set_epoch(epoch)` may be called, and need not be. Left alone are loaders of iterable
        datasets and those with a DistributedSampler. Of a batch sampler of one's own each worker takes every so-manieth
        batch; it must give the same batches on all workers.
    move_to_device: batches are moved to the worker's device; with auto_transfer the next one while the current is worked on,
        which needs CUDA, and pinned memory to be of use (`pin_memory=True`).

    RuntimeError outside of a training function.
    """
    session = runtime.session("prepare_data_loader")
    if add_dist_sampler and session.world_size > 1:
        data_loader = _shared_out(data_loader, session)
    if not move_to_device:
        return data_loader
    device = devices.of_session(session)[0]
    if device.type == "cpu":
        return data_loader
    from .transfer import MovingLoader

    return MovingLoader(data_loader, device, auto_transfer)


def _shared_out(loader: DataLoader[Any], session: runtime.Session) -> DataLoader[Any]:
    """A loader of this worker's share; the same loader when it is shared out already, or cannot be."""
    from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset

    if isinstance(loader.dataset, IterableDataset) or isinstance(loader.sampler, DistributedSampler):
        return loader
    batches = loader.batch_sampler
    if loader.batch_size is None and batches is not None:
        if isinstance(getattr(batches, "sampler", None), DistributedSampler):
            return loader
        if type(batches) is not BatchSampler:
            from .samplers import SharedBatches

            return _with(
                loader, loader.sampler, SharedBatches(batches, session.world_rank, session.world_size)
            )
        sampler = _sampler(batches.sampler, loader.dataset, session)
        return _with(loader, loader.sampler, BatchSampler(sampler, batches.batch_size, batches.drop_last))
    sampler = _sampler(loader.sampler, loader.dataset, session)
    if batches is not None:
        batches = BatchSampler(sampler, loader.batch_size, loader.drop_last)
    return _with(loader, sampler, batches)


def _sampler(given: Any, dataset: Any, session: runtime.Session) -> Any:
    """Instead of the sampler `given`, one of this worker's share."""
    from torch.utils.data import SequentialSampler

    from .samplers import EpochSampler

    if session.world_rank == 0 and not _is_plain(given, dataset):
        log.warning(
            "prepare_data_loader: the %s of the data loader is replaced by a DistributedSampler; to keep it, make it choose "
            "each worker's share and give add_dist_sampler=False",
            type(given).__name__,
        )
    shuffle = not isinstance(given, SequentialSampler)
    return EpochSampler(dataset, num_replicas=session.world_size, rank=session.world_rank, shuffle=shuffle)


def _is_plain(sampler: Any, dataset: Any) -> bool:
    """Whether a DistributedSampler does what this sampler did: each example once, in order or shuffled."""
    from torch.utils.data import RandomSampler, SequentialSampler

    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples == len(dataset)
    return type(sampler) is SequentialSampler


def _with(loader: DataLoader[Any], sampler: Any, batches: Any) -> DataLoader[Any]:
    """A copy of the loader that differs in its samplers only. Made anew it would lose what its class adds to it, and an
    option that is not known here."""
    made = copy.copy(loader)
    made.__dict__.update(sampler=sampler, batch_sampler=batches, _iterator=None)
    return made
