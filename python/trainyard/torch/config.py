"""TorchConfig: how the workers' process group is set up."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import sys
from typing import Any, Callable

from .. import missing
from ..trainer import BackendConfig
from . import devices, group, hints

_METHODS = ("env", "tcp")
_BACKENDS = ("gloo", "nccl", "mpi", "ucc", "xccl")
# Registered when the package is imported, which may be in the workers alone.
_BACKENDS_OF_OTHERS = (
    "bccl",
    "ccl",
    "cncl",
    "eccl",
    "fake",
    "flagcx",
    "hccl",
    "mccl",
    "neuron",
    "qccl",
    "smddp",
    "xla",
)
_LONGEST_S = 10 * 365 * 86400  # what torch's clocks can count


@dataclasses.dataclass
class TorchConfig(BackendConfig):
    """How the workers' process group is set up.

    backend: "nccl", "gloo", another that torch knows, or one for each kind of device ("cpu:gloo,cuda:nccl"). None: nccl
        when the workers hold GPUs, else gloo.
    init_method: "env" or "tcp". Either way the group stands when the training function begins, and MASTER_ADDR and
        MASTER_PORT name its store.
    timeout_s: of each collective, and of setting the group up.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: float = 1800

    framework = "torch"
    preload = ("torch",)
    reads_torchrun = True
    shares_devices = True

    def __post_init__(self) -> None:
        _check_backend(self.backend)

    def for_function(self, function: Callable[..., Any]) -> TorchConfig:
        """This config, for a training function whose imports a fork template is to make once for all workers."""
        made = copy.copy(self)
        if hints.needs_compiler(function):
            made.preload = ("torch", hints.COMPILER)
        return made

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def prepare(self, scaling_config: Any) -> None:
        """ValueError for a field that cannot work."""
        if self.init_method not in _METHODS:
            raise ValueError(f"`TorchConfig.init_method`={self.init_method!r} must be either 'env' or 'tcp'")
        limit = self.timeout_s
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 < limit <= _LONGEST_S:
            raise ValueError(f"`TorchConfig.timeout_s`={limit!r} must be a number of seconds, more than 0")
        _check_backend(self.backend)

    def comm_backend(self, scaling_config: Any) -> str | None:
        """What the C library calls it, which knows two and no kinds of devices."""
        if self.backend is None:
            return None
        return "nccl" if uses_nccl(self.backend) else "gloo"

    def choose(self, gpus: float) -> str:
        """The backend for workers that hold so many GPUs each."""
        return self.backend or ("nccl" if gpus > 0 else "gloo")

    def on_start(self, session: Any) -> None:
        group.start(self, session)

    def on_training_start(self, session: Any) -> None:
        os.environ["ACCELERATE_TORCH_DEVICE"] = str(devices.of_session(session)[0])

    def train_func_context(self) -> contextlib.AbstractContextManager[Any]:
        return _on_own_device()

    def on_shutdown(self, session: Any) -> None:
        group.stop(session)


def uses_nccl(backend: str) -> bool:
    """Whether GPU tensors go through NCCL: "nccl", "cuda:nccl" and "cpu:gloo,cuda:nccl" do, "cpu:nccl" does not."""
    return any(part.strip() in ("nccl", "cuda:nccl") for part in backend.lower().split(","))


def _check_backend(backend: Any) -> None:
    """Refuses what no torch has, before anything starts. Of those that are registered by other packages the names are known,
    and whatever torch knows where it is imported already."""
    if backend is None:
        return
    parts = backend.split(",") if isinstance(backend, str) else []
    pieces = [part.split(":") for part in parts]
    if not pieces or any(len(piece) > 2 or not all(word.strip() for word in piece) for piece in pieces):
        raise ValueError(
            f'`TorchConfig.backend`={backend!r} must be None, the name of a backend such as "gloo" or "nccl", '
            'or one for each kind of device such as "cpu:gloo,cuda:nccl"'
        )
    if len(pieces) > 1 and any(len(piece) == 1 for piece in pieces):
        raise ValueError(
            f'`TorchConfig.backend`={backend!r} names several backends: each needs its device, as in "cpu:gloo"'
        )
    for piece in pieces:
        _check_name(backend, piece[-1].strip())


def _check_name(backend: str, name: str) -> None:
    torch = sys.modules.get("torch")
    registered = getattr(getattr(torch, "distributed", None), "Backend", None)
    known = [*_BACKENDS, *_BACKENDS_OF_OTHERS, *getattr(registered, "backend_list", [])]
    if name.lower() in known:
        return
    near = missing.nearest(name, known)
    hint = f"; did you mean {near!r}?" if near is not None else ""
    raise ValueError(
        f"`TorchConfig.backend`={backend!r}: {name!r} is no backend of torch.distributed, which has "
        f"{', '.join(_BACKENDS)}, and those that `torch.distributed.Backend.register_backend` is told of here{hint}"
    )


@contextlib.contextmanager
def _on_own_device():
    """Makes the worker's device the current one of CUDA."""
    import torch

    if torch.cuda.is_available():
        device = devices.get_device()
        if device.type == "cuda":
            torch.cuda.set_device(device)
    yield
