"""What nodes there are: `ray.nodes`, `ray.cluster_resources`, `ray.available_resources`, and `ray.cluster_utils.Cluster`, whose
nodes become the logical nodes of a cluster file."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import tempfile
from typing import Any, Mapping

from .. import defaults, driver, runtime

_files: set[str] = set()  # of all Clusters
SCHEME = "trainyard-nodes:"
_TYPE = "accelerator_type:"
_NO_NODE = "node-none"  # that of a cluster without nodes
_TPU_LABELS = {
    "ray.io/tpu-slice-name": "TPU_NAME",
    "ray.io/tpu-worker-id": "TPU_WORKER_ID",
    "ray.io/tpu-topology": "TPU_TOPOLOGY",
    "ray.io/tpu-pod-type": "TPU_ACCELERATOR_TYPE",
}
# A node of a test cluster has these, where it is not told: as in Ray.
_NODE_OPTIONS = (
    "num_cpus",
    "num_gpus",
    "resources",
    "memory",
    "labels",
    "env_vars",
    "object_store_memory",
    "wait",
)
# What they say of Ray's own daemons has no meaning for a logical node, and does no harm.
_OF_DAEMONS = frozenset(
    "autoscaling_config dashboard_agent_listen_port dashboard_host dashboard_port enable_object_reconstruction "
    "external_addresses gcs_server_port huge_pages include_dashboard include_log_monitor log_to_stderr max_worker_port "
    "metrics_agent_port metrics_export_port min_worker_port no_monitor node_manager_port num_redis_shards object_manager_port "
    "object_spilling_directory plasma_directory proxy_server_url ray_client_server_port ray_debugger_external redirect_output "
    "redis_max_clients redis_password redis_port redis_shard_ports redis_username resource_isolation_config "
    "runtime_env_agent_port runtime_env_dir_name session_name temp_dir tracing_startup_hook worker_port_list".split()
)


def _facts() -> list[dict[str, Any]]:
    """The nodes that a run would have now, with the amounts that Ray counts: floats, and one of node:NAME on each."""
    from . import session

    session.ensure()
    found = [node for node in defaults.current.nodes() if node["name"] != _NO_NODE]
    for node in found:
        for field in ("resources", "available"):
            amounts = {name: float(amount) for name, amount in node[field].items()}
            node[field] = {**amounts, f"node:{node['name']}": 1.0}
    return found


def _sum(field: str) -> dict[str, float]:
    total: dict[str, float] = {}
    for node in _facts():
        for name, amount in node[field].items():
            total[name] = total.get(name, 0.0) + amount
    return total


def cluster_resources() -> dict[str, float]:
    """The resources of all nodes together, by name."""
    return _sum("resources")


def available_resources() -> dict[str, float]:
    """What of them no run holds."""
    held = _held()
    left = {name: amount - held.get(name, 0.0) for name, amount in _sum("available").items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _held() -> dict[str, float]:
    """What the run holds whose worker this process is, and those that it drives; not devices of which leases have told."""
    from .context import KINDS

    bundles: list[tuple[dict[str, float], int]] = []
    session, given = runtime.current(), defaults.current
    if session is not None and not session.local:
        on_others = given.cluster is None and session.world_size > session.local_world_size  # which are not told of here
        bundles.append((session.resources, session.local_world_size if on_others else session.world_size))
        bundles.append((session.trainer_resources, 0 if on_others and session.node_rank > 0 else 1))
    for one in driver.going:
        if one.workers > 0 and not one.is_child():
            bundles += [(one.scaling._resources_per_worker_not_none, one.workers), (one.scaling._trainer_resources_not_none, 1)]
    leased = given.cluster is None and given.seen is None
    held: dict[str, float] = {}
    for resources, times in bundles:
        for name, amount in resources.items():
            if not leased or name not in KINDS:
                held[name] = held.get(name, 0.0) + amount * times
    return held


def node_id(name: str) -> str:
    """A node's id in the form that Ray's have: 56 hexadecimal digits, made of its name."""
    return hashlib.sha224(name.encode()).hexdigest()


def nodes() -> list[dict[str, Any]]:
    """A dict for each node, with the keys that Ray's have; all are alive, and stand for this machine."""
    from .context import get_node_ip_address

    address = get_node_ip_address()
    return [
        {
            "NodeID": node_id(node["name"]),
            "Alive": True,
            "alive": True,
            "NodeManagerAddress": address,
            "NodeManagerHostname": node["name"],
            "NodeName": node["name"],
            "Resources": dict(node["resources"]),
            "Labels": {**node["labels"], "ray.io/node-id": node_id(node["name"])},
        }
        for node in _facts()
    ]


def _tpu_labels(environment: Mapping[str, str]) -> dict[str, str]:
    """What a host of a slice is told by its environment, as the labels that say so."""
    said = {label: environment.get(name) for label, name in _TPU_LABELS.items()}
    return {label: value for label, value in said.items() if value}


def _entry(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A node of a cluster file from the options that Ray's node takes."""
    known = {*_NODE_OPTIONS, *_OF_DAEMONS}
    unknown = [option for option in options if option not in known and not option.startswith("_")]
    if unknown:
        raise ValueError(f"a node has no option {unknown[0]!r}; there are {', '.join(_NODE_OPTIONS)}")
    resources = dict(options.get("resources") or {})
    labels = dict(options.get("labels") or {})
    if resources.get("TPU"):
        environment = {**os.environ, **(options.get("env_vars") or {})}
        labels = {**_tpu_labels(environment), **labels}
        generation = environment.get("TPU_ACCELERATOR_TYPE", "").partition("-")[0]
        if generation and not any(key.startswith(_TYPE) for key in resources):
            resources[f"{_TYPE}TPU-{generation.upper()}"] = 1
    types = [key[len(_TYPE) :] for key in resources if key.startswith(_TYPE)]
    for kind in types:
        del resources[_TYPE + kind]
    for key, option in (("CPU", "num_cpus"), ("GPU", "num_gpus"), ("memory", "memory")):
        if options.get(option) is not None:
            resources[key] = options[option]
    entry: dict[str, Any] = {
        "name": name,
        "resources": resources,
        "labels": labels,
    }
    if types:
        entry["accelerator_type"] = types[0]
    return entry


def _write(folder: str, entries: list[dict[str, Any]]) -> str:
    """Writes the entries as a cluster file of that folder (JSON is YAML), whole or not at all; its path."""
    path = os.path.join(folder, "cluster.yaml")
    with open(path + ".new", "w") as file:
        json.dump({"nodes": entries}, file)
    os.replace(path + ".new", path)
    return path


def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="trainyard-nodes-")
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: str, owner: int) -> None:
    """Not at the end of a child that was forked: its parent needs the folder."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def types_in(resources: Mapping[str, float] | None) -> dict[str, float]:
    """Of these resources those that are a type of accelerator, as Ray counts it."""
    return {name: amount for name, amount in (resources or {}).items() if name.startswith(_TYPE)}


def described_machine(labels: Mapping[str, str], amounts: Mapping[str, Any]) -> str:
    """A cluster file with this machine as its only node, the amounts over what was found, with labels and an accelerator type."""
    resources = amounts.get("resources") or {}
    types = types_in(resources)
    others = {name: amount for name, amount in resources.items() if name not in types}
    (machine,) = defaults.Defaults(**{**amounts, "resources": others}).nodes()
    options = {"resources": {**machine["resources"], **types}, "labels": {**machine["labels"], **labels}}
    return _write(_folder(), [_entry(machine["name"], options)])


def file_of(address: str) -> str:
    return address[len(SCHEME) :]


def is_of_cluster(path: str | None) -> bool:
    """Whether a `Cluster` of this process, whose nodes come and go, writes that file."""
    return path in _files


class Node:
    """A node of a `Cluster`."""

    def __init__(self, name: str, options: Mapping[str, Any]):
        self.entry = _entry(name, options)
        self.node_id = node_id(name)

    def __repr__(self) -> str:
        return f"Node({self.entry['name']!r})"


class Cluster:
    """`ray.cluster_utils.Cluster`: nodes that this machine stands in for. `ray.init(address=cluster.address)` takes them.

    A node that is added or removed counts for runs that start afterwards, which wait where there are too few, and for elastic ones
    that go on: these look at the nodes every `elastic_resize_monitor_interval_s`.
    """

    def __init__(
        self,
        initialize_head: bool = False,
        connect: bool = False,
        head_node_args: Mapping[str, Any] | None = None,
        shutdown_at_exit: bool = True,
    ):
        self._folder = _folder()
        _files.add(file_of(self.address))
        self._made = 0
        self._nodes: list[Node] = []
        self._save()
        if initialize_head:
            self.add_node(**(head_node_args or {}))
        if connect:
            self.connect()

    @property
    def address(self) -> str:
        return SCHEME + os.path.join(self._folder, "cluster.yaml")

    @property
    def gcs_address(self) -> str:
        return self.address

    @property
    def head_node(self) -> Node | None:
        return self._nodes[0] if self._nodes else None

    def connect(self, namespace: str | None = None) -> None:
        from . import session

        session.init(address=self.address)

    def add_node(self, wait: bool = True, **node_args: Any) -> Node:
        """A node with num_cpus (1 unless told), num_gpus, memory, resources and labels."""
        node = Node(f"node-{self._made}", {"num_cpus": 1, **node_args})
        self._made += 1
        self._nodes.append(node)
        self._save()
        return node

    def remove_node(self, node: Node, allow_graceful: bool = True) -> None:
        self._nodes.remove(node)
        self._save()

    def list_all_nodes(self) -> list[Node]:
        return list(self._nodes)

    def wait_for_nodes(self, timeout: float = 30) -> None:
        """They are there at once."""

    def remaining_processes_alive(self) -> bool:
        """There are none beside those of runs."""
        return True

    def shutdown(self) -> None:
        self._nodes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _save(self) -> None:
        """A cluster file has a node at least: where there is none, one that has nothing."""
        entries = [node.entry for node in self._nodes]
        _write(self._folder, entries or [_entry(_NO_NODE, {"num_cpus": 0})])
