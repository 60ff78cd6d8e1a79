"""`ray.init`, `ray.shutdown`, `ray.is_initialized`: they set and clear the defaults of later runs. Nothing is started."""

from __future__ import annotations

import dataclasses
import logging
import os
import platform
from typing import Any

from .. import backend, defaults, runtime
from . import absent, finder
from . import cluster as _cluster
from . import runtime_env as _runtime_env

log = logging.getLogger("trainyard.as_ray")

logger = logging.getLogger("ray")  # `ray.logger`, for the program's own lines

# The newest Ray whose interface this is; programs compare it.
__version__ = "2.60.0"
SCRIPT_MODE, WORKER_MODE, LOCAL_MODE = 0, 1, 2

# Options of ray.init that have no meaning without its daemons, and do no harm.
_IGNORED = frozenset(
    "allow_multiple cgroup_path configure_logging dashboard_host dashboard_port enable_resource_isolation include_dashboard "
    "job_config local_mode logging_config logging_format logging_level namespace object_store_memory "
    "proxy_server_url storage system_reserved_cpu system_reserved_memory".split()
)
_OPTIONS = ("address", "num_cpus", "num_gpus", "resources", "labels", "runtime_env", "log_to_driver")

_before = defaults.Defaults()  # what shutdown goes back to
_context: RayContext | None = None


@dataclasses.dataclass
class LoggingConfig:
    """`ray.LoggingConfig`: accepted, and without effect."""

    encoding: str = "TEXT"
    log_level: str = "INFO"
    additional_log_standard_attrs: list[str] = dataclasses.field(default_factory=list)


class RayContext:
    """What `ray.init` returns: a few facts, and a `with` block at whose end all is shut down."""

    def __init__(self) -> None:
        self.dashboard_url = ""
        self.python_version = platform.python_version()
        self.ray_version = __version__
        self.ray_commit = ""
        self.address_info = {
            "node_ip_address": "127.0.0.1",
            "address": "local",
            "session_dir": "",
            "webui_url": "",
        }

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def __enter__(self) -> RayContext:
        return self

    def __exit__(self, *_: Any) -> None:
        shutdown()

    def disconnect(self) -> None:
        shutdown()

    def __repr__(self) -> str:
        return f"RayContext(python_version={self.python_version!r}, ray_version={self.ray_version!r}, on Trainyard)"


def init(
    address: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    runtime_env: Any = None,
    log_to_driver: bool | None = None,
    ignore_reinit_error: bool = False,
    **options: Any,
) -> RayContext:
    """Sets what later runs go by: the resources of this machine, and the environment of workers.

    `address` may be None, "auto" or "local", or that of a `ray.cluster_utils.Cluster`; there is no other cluster to connect to: the
    nodes are this machine, those of a cluster file, or the machines that the command line joins. With log_to_driver=False the
    workers' output is in their logs only. RuntimeError when called twice.
    """
    global _context, _before
    _check_options(options)
    if is_initialized():
        if not ignore_reinit_error:
            raise RuntimeError(
                "Maybe you called ray.init twice by accident? Call ray.shutdown() first, or give ignore_reinit_error=True"
            )
        return _context or RayContext()
    _runtime_env.check(runtime_env)
    before = defaults.current
    chosen = _nodes(address, num_cpus=num_cpus, num_gpus=num_gpus, resources=resources, labels=labels)
    defaults.init(**chosen, runtime_env=_runtime_env.defaults(runtime_env))
    defaults.current.environment = {**before.environment, **defaults.current.environment}
    defaults.current.grows = _cluster.is_of_cluster(chosen.get("cluster"))
    defaults.policy.quiet = log_to_driver is False
    _before, _context = before, RayContext()
    return _context


def _check_options(options: dict[str, Any]) -> None:
    for name in options:
        if name not in _IGNORED and not name.startswith("_"):
            raise RuntimeError(
                f"Unknown keyword argument of ray.init: {name!r}{finder.nearest(name, list(_OPTIONS))}"
            )


def _outer() -> dict[str, Any]:
    """What the command line, or `trainyard.init`, said before the program: it wins over ray.init."""
    names = ("num_cpus", "num_gpus", "resources", "engine", "cluster")
    said = {name: getattr(defaults.current, name) for name in names}
    join, hosts = defaults.joined(), defaults.named()
    if join is not None:
        said |= {**dataclasses.asdict(join), "engine": "join"}
    if hosts is not None:
        said |= {"hosts": hosts.names, "hostfile": hosts.file, "copy": hosts.copy}
    return {name: value for name, value in said.items() if value is not None and value != {}}


def _nodes(address: str | None, **amounts: Any) -> dict[str, Any]:
    """What `trainyard.init` is to know of nodes."""
    if address is not None and not isinstance(address, str):
        raise ValueError(f"`ray.init(address=...)` must be text or None, not {address!r}")
    outer = _outer()
    if "cluster" in outer:
        return outer
    if outer.keys() & {"rendezvous", "hosts", "hostfile"}:
        return {name: amounts[name] for name in ("num_cpus", "num_gpus", "resources")} | outer
    if address is not None and address.startswith(_cluster.SCHEME):
        return {"cluster": _cluster.file_of(address)}
    if address == "local":
        amounts["engine"] = "local"
    elif address not in (None, "auto"):
        log.warning(
            "ray.init(address=%r) is left aside: there is no Ray cluster to connect to; workers run on this machine",
            address,
        )
    labels = amounts.pop("labels")
    chosen = {name: value for name, value in amounts.items() if value is not None} | outer
    if labels or _cluster.types_in(chosen.get("resources")):
        return {"cluster": _cluster.described_machine(labels or {}, chosen)}
    return chosen


def shutdown(_exiting_interpreter: bool = False) -> None:
    """Forgets what `init` was told; does nothing without it."""
    global _context
    if _context is not None:
        defaults.current = _before
    _context = None
    defaults.policy.quiet = False


def is_initialized() -> bool:
    """Whether `init` was called, or a trainer started this process. A program that `trainyard run` started calls `init` itself."""
    return _context is not None or runtime.of_trainer


def get(object_refs: Any, *, timeout: float | None = None) -> Any:
    """The values of what the worker group of a backend was asked for. NotProvidedError for anything else: there are no objects."""
    refs = object_refs if isinstance(object_refs, list) else [object_refs]
    if not all(isinstance(ref, backend.Future) for ref in refs):
        raise absent.NotProvidedError(absent.explain("ray.get"))
    values = [ref.result() for ref in refs]
    return values if isinstance(object_refs, list) else values[0]


def ensure() -> None:
    """Calls `init` where a program has not, as Ray does when its state is asked for."""
    if not is_initialized():
        init(address=os.environ.get("RAY_ADDRESS"))
