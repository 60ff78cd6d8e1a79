"""get_device and get_devices: the devices of this worker as torch.device."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Callable, Sequence

from .. import accelerators, runtime

if TYPE_CHECKING:
    import torch


def get_device() -> torch.device:
    """The device of this worker, the first when it holds several; cpu when it holds none.

    RuntimeError outside of a training function, and when the list of visible devices was changed so that an assigned one
    is missing.
    """
    return of_session(runtime.session("get_device"))[0]


def get_devices() -> list[torch.device]:
    """All devices of this worker, in the order in which they were assigned; [cpu] when it holds none."""
    return of_session(runtime.session("get_devices"))


def of_session(session: runtime.Session) -> list[torch.device]:
    """The devices of the worker whose session it is."""
    return _here() if session.local else of_ids(accelerators.assigned())


def of_ids(ids: dict[str, list[str]]) -> list[torch.device]:
    """The devices with these ids, by kind; [cpu] for none. Kinds that torch does not know do not count."""
    import torch

    kinds = [kind for kind in _MAKERS if ids.get(kind)]
    if len(kinds) > 1:
        raise RuntimeError(
            f"Unable to determine the appropriate DeviceManager: this worker holds {' and '.join(kinds)}, "
            "but its devices must be of one kind; ask for one of them in `resources_per_worker`"
        )
    return _MAKERS[kinds[0]](ids[kinds[0]]) if kinds else [torch.device("cpu")]


def _here() -> list[torch.device]:
    """Of a training function that runs in the process of `fit`: under torchrun its local rank's device."""
    import torch

    if not torch.cuda.is_available():
        return [torch.device("cpu")]
    return [torch.device("cuda", torch.cuda.current_device())]


def _gpus(ids: Sequence[str]) -> list[torch.device]:
    import torch

    return [torch.device("cuda", index) for index in accelerators.indices("GPU", ids)]


def _npus(ids: Sequence[str]) -> list[torch.device]:
    import torch

    if not _imports("torch_npu"):
        warnings.warn(
            "this worker holds an NPU, but torch_npu is not installed: its device is cpu", stacklevel=4
        )
        return [torch.device("cpu")]
    return [torch.device("npu", index) for index in accelerators.indices("NPU", ids)]


def _hpus(ids: Sequence[str]) -> list[torch.device]:
    import torch

    return [torch.device("hpu")]


def _tpus(ids: Sequence[str]) -> list[torch.device]:
    import torch

    if not _imports("torch_tpu"):
        raise RuntimeError(
            "this worker holds TPU chips, but torch_tpu is not installed; install it, or train with JaxTrainer"
        )
    return [torch.device("tpu")]


def _imports(module: str) -> bool:
    from importlib import import_module

    try:
        import_module(module)
    except ImportError:
        return False
    return True


_MAKERS: dict[str, Callable[[Sequence[str]], list[torch.device]]] = {
    "GPU": _gpus,
    "HPU": _hpus,
    "NPU": _npus,
    "TPU": _tpus,
}
