"""The process group of a worker: set up before the training function, taken down after it.

Rank 0 binds a port of the kernel's choice and keeps it: its listening socket becomes the TCPStore, whose address the others
get from the run's store. So no port can be lost to another process between choosing and binding it.
"""

from __future__ import annotations

import logging
import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .. import ending, limits, missing, runtime
from . import devices

if TYPE_CHECKING:
    from torch.distributed import Store, TCPStore

    from .config import TorchConfig

log = logging.getLogger("trainyard")

_SHUTDOWN_S = 30.0

_outer: Store | None = None  # of the torchrun that this process is in; opened once
_fits = 0  # that have used it


def start(config: TorchConfig, session: runtime.Session) -> None:
    """Initialises torch.distributed for all ranks; RuntimeError names what was waited for in vain."""
    import torch.distributed as dist

    if not dist.is_available():
        raise RuntimeError("torch.distributed is not available: this build of PyTorch is without it")
    backend = _backend(config, session)
    limit = timedelta(seconds=config.timeout_s)
    if session.local:
        _join_torchrun(backend, limit, session)
        return
    _stay_on_loopback(os.environ["MASTER_ADDR"])
    store = _store(session, config.timeout_s)
    dist.init_process_group(
        backend, store=store, rank=session.world_rank, world_size=session.world_size, timeout=limit
    )
    _tell(session)


def stop(session: runtime.Session) -> None:
    """Destroys the group, and gives cached device memory back; warns when that takes too long and goes on."""
    import torch

    ending.all_returned(session)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        limit = limits.seconds("TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S", _SHUTDOWN_S)
        if not limits.within(
            limit, torch.distributed.destroy_process_group, "the process group was not destroyed"
        ):
            return
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _backend(config: TorchConfig, session: runtime.Session) -> str:
    import torch
    from torch.distributed import Backend

    gpus = session.resources.get("GPU", 0)
    backend = config.choose(gpus)
    if config.backend is None and backend == "nccl" and not torch.cuda.is_available():
        if session.world_rank == 0:
            log.warning(
                "the workers hold GPUs, but torch %s finds none: the backend is gloo, not nccl",
                torch.__version__,
            )
        return "gloo"
    if "hccl" in backend:
        _import_first("habana_frameworks.torch.distributed.hccl", "torch_npu")
    for part in backend.split(","):
        name = part.rpartition(":")[2].strip().lower()
        if name not in Backend.backend_list:
            near = missing.nearest(name, Backend.backend_list)
            allowed = ", ".join(one for one in Backend.backend_list if one != "undefined")
            hint = f"did you mean {near!r}?" if near is not None else f"it knows {allowed}"
            raise ValueError(f"`TorchConfig.backend`={config.backend!r}: torch knows no {name!r}; {hint}")
    return backend


def _import_first(*modules: str) -> None:
    """Imports the first of the plug-ins that is installed."""
    for module in modules:
        if devices._imports(module):
            return


def _join_torchrun(backend: str, limit: timedelta, session: runtime.Session) -> None:
    """In the process that called `fit`, under an outer torchrun, which gave ranks and address."""
    import torch

    if torch.cuda.is_available():
        if session.local_world_size > torch.cuda.device_count():
            raise RuntimeError(
                f"torchrun started {session.local_world_size} processes here, each needs a GPU, and there are "
                f"{torch.cuda.device_count()}: start fewer (--nproc-per-node), or hide the GPUs (CUDA_VISIBLE_DEVICES=)"
            )
        torch.cuda.set_device(session.local_rank)
        backend = "nccl" if backend == "gloo" else backend
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            backend,
            store=_outer_store(limit),
            rank=session.world_rank,
            world_size=session.world_size,
            timeout=limit,
        )


def _outer_store(limit: timedelta) -> Store:
    """The torchrun's store, with keys of this `fit` alone: in those of the one before, ranks would find its dead addresses."""
    global _outer, _fits
    from torch.distributed import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    if _outer is None:
        _outer, _, _ = next(rendezvous("env://", timeout=limit))
    _fits += 1
    return PrefixStore(f"fit/{_fits}", _outer)


def _stay_on_loopback(host: str) -> None:
    """When all workers are on this machine Gloo need not ask what the machine's name resolves to."""
    if (host == "::1" or host.startswith("127.")) and "GLOO_SOCKET_IFNAME" not in os.environ:
        if any(name == "lo" for _, name in socket.if_nameindex()):
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def _store(session: runtime.Session, limit_s: float) -> TCPStore:
    """The store of this attempt: rank 0's own, the others' connections to it. MASTER_ADDR and MASTER_PORT name it."""
    from torch.distributed import TCPStore

    from .. import _core

    key = f"torch/{session.attempt}/store"
    host = os.environ["MASTER_ADDR"]
    if session.world_rank == 0:
        listening, port = _listen(host)
        store = _serve(listening, host, port, session.world_size, limit_s)
        _core.store_set(key, f"{port} {host}".encode())
    else:
        host, port = _found(_core, key, limit_s)
        store = TCPStore(host, port, session.world_size, False, timedelta(seconds=limit_s))
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = host, str(port)
    return store


def _listen(host: str) -> tuple[socket.socket, int]:
    """A socket that listens on a free port of this address only, IPv4 or IPv6, and the port."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(socket.SOMAXCONN)
    except OSError as error:
        listening.close()
        raise RuntimeError(
            f"rank 0 cannot listen on {host} (MASTER_ADDR) for the process group: {error}"
        ) from error
    return listening, listening.getsockname()[1]


def _serve(listening: socket.socket, host: str, port: int, world_size: int, limit_s: float) -> TCPStore:
    from torch.distributed import TCPStore

    limit = timedelta(seconds=limit_s)
    # The store owns the descriptor from here on.
    return TCPStore(
        host, port, world_size, True, limit, wait_for_workers=False, master_listen_fd=listening.detach()
    )


def _found(core: Any, key: str, limit_s: float) -> tuple[str, int]:
    try:
        text = core.store_wait(key, limit_s).decode()
    except TimeoutError:
        raise RuntimeError(
            f"waited {limit_s:g} s (TorchConfig.timeout_s) for rank 0 to tell where the process group's store is: "
            "it has not come so far"
        ) from None
    port, _, host = text.partition(" ")
    return host, int(port)


def _tell(session: runtime.Session) -> None:
    from .. import _core

    _core.rendezvous()
