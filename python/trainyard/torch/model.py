"""prepare_model: a model on this worker's device, wrapped for training with the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from .. import runtime
from . import devices

if TYPE_CHECKING:
    import torch

_STRATEGIES = ("ddp", "fsdp", None)


def prepare_model(
    model: torch.nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> torch.nn.Module:
    """Moves the model to this worker's device and, when there are several workers, wraps it.

    move_to_device: True, False to leave it where it is, or the device to move it to.
    parallel_strategy: "ddp" (DistributedDataParallel), "fsdp" (FullyShardedDataParallel; needs CUDA), or None to wrap
        nothing. parallel_strategy_kwargs go to the wrapper, and win over what is chosen here.

    ValueError for another strategy; RuntimeError outside of a training function.
    """
    import torch

    if parallel_strategy not in _STRATEGIES:
        raise ValueError(f'`parallel_strategy`={parallel_strategy!r} must be "ddp", "fsdp" or None')
    session = runtime.session("prepare_model")
    device = move_to_device if isinstance(move_to_device, torch.device) else devices.of_session(session)[0]
    if device.type == "cuda" and torch.cuda.is_available():
        torch.cuda.set_device(device)
    if move_to_device:
        model = model.to(device)
    if session.world_size == 1 or parallel_strategy is None:
        return model
    options = dict(parallel_strategy_kwargs or {})
    return _ddp(model, options) if parallel_strategy == "ddp" else _fsdp(model, options)


def _ddp(model: torch.nn.Module, options: dict[str, Any]) -> torch.nn.Module:
    from torch.nn.parallel import DistributedDataParallel

    places = {parameter.device for parameter in model.parameters()}
    if len(places) == 1 and next(iter(places)).type == "cuda":
        options = {"device_ids": list(places), "output_device": next(iter(places)), **options}
    return DistributedDataParallel(model, **options)


def _fsdp(model: torch.nn.Module, options: dict[str, Any]) -> torch.nn.Module:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    if not torch.cuda.is_available():
        raise RuntimeError(
            '`parallel_strategy="fsdp"` needs CUDA devices, and torch finds none on this node; use "ddp"'
        )
    return FullyShardedDataParallel(model, **options)
