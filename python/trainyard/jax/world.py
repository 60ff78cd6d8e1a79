"""The JAX world of a run: joined before the training function, left after it.

Rank 0's coordinator listens on MASTER_PORT, which is free for it. The others are told when it does, through the run's
store: who comes too early is let in a second later.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from .. import accelerators, defaults, ending, limits, runtime

if TYPE_CHECKING:
    from .config import JaxConfig

_GPUS = {"cuda", "rocm", "gpu"}
_DEVICES = {"tpu", *_GPUS}
_START_S = 300.0
_SHUTDOWN_S = 30.0
_LOOK_S = 0.002  # between two looks at whether the coordinator listens


def start(config: JaxConfig, session: runtime.Session) -> None:
    """Makes this worker a process of the run's JAX world, where it needs one."""
    import jax

    platforms = _platforms()
    if platforms:
        jax.config.update(
            "jax_platforms", ",".join(platforms)
        )  # jax may have been imported under another environment
    if not needs_world(config, platforms, session.world_size):
        return
    if "cpu" in platforms and not os.environ.get("JAX_CPU_COLLECTIVES_IMPLEMENTATION"):
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    ids = accelerators.assigned().get("GPU", [])
    _join(session, accelerators.indices("GPU", ids) if ids and not _GPUS.isdisjoint(platforms) else None)
    _tell()


def stop(session: runtime.Session) -> None:
    """Leaves the world when all ranks are done; warns when that takes too long and goes on."""
    import jax

    ending.all_returned(session)
    if not jax.distributed.is_initialized():
        return
    limit = limits.seconds("JAX_DISTRIBUTED_SHUTDOWN_TIMEOUT_S", _SHUTDOWN_S)
    limits.within(limit, jax.distributed.shutdown, "the JAX world was not shut down")


def needs_world(config: JaxConfig, platforms: list[str], world_size: int) -> bool:
    """Whether the workers are to be one world: with devices, unless JAX_PLATFORMS leaves them out (defaults.Policy.cpu_world);
    without, when there are several workers."""
    if config.use_tpu or config.use_gpu:
        wanted = {*_DEVICES, "cpu"} if defaults.policy.cpu_world else _DEVICES
        return not wanted.isdisjoint(platforms)
    return world_size > 1


def _platforms() -> list[str]:
    """The names in JAX_PLATFORMS, which the run has set where the user did not."""
    return [name.strip() for name in os.environ.get("JAX_PLATFORMS", "").lower().split(",") if name.strip()]


def _join(session: runtime.Session, local_device_ids: list[int] | None) -> None:
    import jax

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    options: dict[str, Any] = {"local_device_ids": local_device_ids, "initialization_timeout": int(_START_S)}
    if session.world_rank > 0:
        _wait_for_coordinator(session)
    elif session.world_size > 1:
        options["coordinator_bind_address"] = address
        threading.Thread(target=_tell_when_up, args=(host, port, _key(session)), daemon=True).start()
    _leave_sigterm_alone()
    jax.distributed.initialize(address, session.world_size, session.world_rank, **options)
    _leave_only_when_told()


def _leave_sigterm_alone() -> None:
    """JAX's preemption service takes SIGTERM for itself: a worker that is told to end would not, until its grace is over. The run
    tells of preemptions (`trainyard.get_context()`); who wants JAX's service sets JAX_ENABLE_PREEMPTION_SERVICE."""
    import jax

    if "JAX_ENABLE_PREEMPTION_SERVICE" not in os.environ:
        with contextlib.suppress(AttributeError):  # a JAX that has no such choice
            jax.config.update("jax_enable_preemption_service", False)


def _leave_only_when_told() -> None:
    """At the end of a process JAX would leave the world, and wait for all ranks to do so: five minutes long in a worker that
    failed. One that did not has left by `stop`."""
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import api

        atexit.unregister(api.clean_up)


def _key(session: runtime.Session) -> str:
    return f"jax/{session.attempt}/coordinator"


def _wait_for_coordinator(session: runtime.Session) -> None:
    from .. import _core

    try:
        _core.store_wait(_key(session), _START_S)
    except TimeoutError:
        raise RuntimeError(
            f"waited {_START_S:g} s for rank 0 to start JAX's coordinator: it has not come so far"
        ) from None


def _tell_when_up(host: str, port: int, key: str) -> None:
    """JAX says nothing between the start of its coordinator and the coming of all others, so we try its port."""
    from .. import _core

    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            time.sleep(_LOOK_S)
        else:
            _core.store_set(key, b"up")
            return


def _tell() -> None:
    from .. import _core

    _core.rendezvous()
