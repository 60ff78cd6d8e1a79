"""A data loader whose batches come on a device, the next one copied while the current is worked on."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Iterator

import torch
from torch.utils.data import DataLoader


class MovingLoader(DataLoader[Any]):
    """Gives the batches of another loader on a device; otherwise it is that loader."""

    def __init__(self, loader: DataLoader[Any], device: torch.device, auto_transfer: bool):
        self.__dict__.update(_loader=loader, _device=device, _auto=auto_transfer and device.type == "cuda")

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN or name.startswith("__"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "__dict__")["_loader"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_loader"], name, value)

    def __len__(self) -> int:
        return len(self.__dict__["_loader"])

    def __iter__(self) -> Iterator[Any]:
        own = self.__dict__
        batches = iter(own["_loader"])
        if own["_auto"]:
            return _ahead(batches, own["_device"])
        return (moved(batch, own["_device"]) for batch in batches)


_OWN = ("_loader", "_device", "_auto")


def moved(item: Any, device: torch.device, non_blocking: bool = False) -> Any:
    """`item` with the tensors in it on the device; what holds none, and cannot be moved, stays as it is."""
    return _mapped(item, lambda tensor: tensor.to(device, non_blocking=non_blocking))


def _mapped(item: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(item, torch.Tensor) or callable(getattr(item, "to", None)):
        return change(item)
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(_mapped(part, change) for part in item))
    if isinstance(item, (list, tuple)):
        return type(item)(_mapped(part, change) for part in item)
    if isinstance(item, dict):
        return {name: _mapped(part, change) for name, part in item.items()}
    return item


def _ahead(batches: Iterator[Any], device: torch.device) -> Iterator[Any]:
    """Copies on a stream of its own, one batch ahead."""
    side = torch.cuda.Stream(device)
    following = _copied(batches, device, side)
    while following:
        batch = following[0]
        current = torch.cuda.current_stream(device)
        current.wait_stream(side)
        _mapped(batch, partial(_used_on, stream=current))
        following = _copied(batches, device, side)
        yield batch


def _copied(batches: Iterator[Any], device: torch.device, side: Any) -> list[Any]:
    """The next batch, on its way; [] at the end."""
    for batch in batches:
        with torch.cuda.stream(side):
            return [moved(batch, device, non_blocking=True)]
    return []


def _used_on(tensor: Any, stream: Any) -> Any:
    """So that its memory is not given away while this stream still reads it."""
    if isinstance(tensor, torch.Tensor):
        tensor.record_stream(stream)
    return tensor
