"""What a program asks of Ray's runtime about the process it is in: its node, its devices."""

from __future__ import annotations

import os
import socket
from typing import Any

from .. import accelerators, defaults, runtime
from .cluster import node_id

# Every kind of device has an entry in get_accelerator_ids, as in Ray.
KINDS = ("GPU", "TPU", "NPU", "HPU", "neuron_cores", "RBLN", "FURIOSA")
_OTHER_KINDS = ("MBLT", "TTNPU")  # no devices of these are looked for
_logged: set[str] = set()


def get_gpu_ids() -> list[int] | list[str]:
    """The ids of this worker's GPUs, as numbers where they are; [] outside of a worker."""
    ids = accelerators.assigned().get("GPU", [])
    return [int(one) for one in ids] if all(one.isdigit() for one in ids) else ids


def get_node_ip_address() -> str:
    """The address by which the workers of a run reach this machine: on one machine alone it is not for others."""
    return runtime.node_address() if runtime.in_worker() else runtime.LOOPBACK


def log_once(key: str) -> bool:
    """True the first time it is called with `key` in this process."""
    first = key not in _logged
    _logged.add(key)
    return first


class RuntimeContext:
    """`ray.get_runtime_context()`: the part of it that a training program can use."""

    namespace = ""
    gcs_address = ""
    was_current_actor_reconstructed = False

    def get_node_id(self) -> str:
        """The id of this process's node, as `ray.nodes()` has it; the driver is on the first of a cluster's."""
        own = os.environ.get("TRAINYARD_NODE")
        if own is None and defaults.current.cluster is not None:
            own = next((node["name"] for node in defaults.current.nodes()), None)
        return node_id(own or socket.gethostname())

    def get_worker_id(self) -> str:
        return node_id(f"{socket.gethostname()}:{os.getpid()}")

    def get_job_id(self) -> str:
        """The name of the run, or "" in the driver."""
        return os.environ.get("TRAINYARD_RUN", "")

    def get_actor_id(self) -> str | None:
        """A worker's id; None in the driver."""
        return self.get_worker_id() if runtime.in_worker() else None

    def get_actor_name(self) -> str | None:
        return None

    def get_task_id(self) -> str | None:
        return self.get_actor_id()

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """The ids of this worker's devices by resource; every known resource has an entry."""
        return {kind: [] for kind in (*KINDS, *_OTHER_KINDS)} | accelerators.assigned()

    def get_assigned_resources(self) -> dict[str, float]:
        """What this worker holds; {} in the driver."""
        session = runtime.session() if runtime.in_session() else None
        return {name: float(amount) for name, amount in session.resources.items()} if session is not None else {}

    def get_node_labels(self) -> dict[str, str]:
        from . import cluster

        own = self.get_node_id()
        return next((node["Labels"] for node in cluster.nodes() if node["NodeID"] == own), {})

    def get_temp_dir(self) -> str:
        import tempfile

        return tempfile.gettempdir()

    def get_session_name(self) -> str:
        return self.get_job_id()

    def get_runtime_env_string(self) -> str:
        return "{}"

    @property
    def runtime_env(self) -> dict[str, Any]:
        return {}

    @property
    def node_id(self) -> str:
        return self.get_node_id()

    @property
    def job_id(self) -> str:
        return self.get_job_id()

    def get(self) -> dict[str, Any]:
        return {"node_id": self.get_node_id(), "job_id": self.get_job_id(), "worker_id": self.get_worker_id()}


def get_runtime_context() -> RuntimeContext:
    return RuntimeContext()
