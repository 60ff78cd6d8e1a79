"""`init`: what later runs of this process go by unless they say otherwise."""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any, Callable, Mapping, Sequence

from . import config, paths

ENGINES = ("auto", "local", "join", "slurm")


@dataclasses.dataclass
class Join:
    """One of several machines on each of which the program is started once."""

    nnodes: tuple[int, int]
    node_rank: int
    rendezvous: str


@dataclasses.dataclass
class Hosts:
    """Agents are started by ssh on these: as `--hosts` has them, or in the file `file`. copy: the command is brought there."""

    names: str | None
    file: str | None
    copy: bool


@dataclasses.dataclass
class Defaults:
    """What `init` was given. The amounts are of this machine, instead of what was found on it. grows: nodes are added to the
    cluster file while the program goes on, so that a run waits where there are too few. seen: this machine as the driver found it,
    for a worker, which may see its own devices alone."""

    num_cpus: float | None = None
    num_gpus: float | None = None
    resources: dict[str, float] = dataclasses.field(default_factory=dict)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    directory: str | None = None
    engine: str | None = None
    cluster: str | None = None
    join: Join | None = None
    hosts: Hosts | None = None
    grows: bool = False
    seen: list[dict[str, Any]] | None = None

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that a run would have: name, resources, available, labels, accelerator_type."""
        import copy
        import json

        from . import _core

        if self.seen is not None and os.environ.get("TRAINYARD_NODE") in (None, *(node["name"] for node in self.seen)):
            return copy.deepcopy(self.seen)

        request = {
            "cluster": self.cluster,
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "node_resources": self.resources or None,
        }
        answer = _core.nodes(json.dumps({name: value for name, value in request.items() if value is not None}))
        found: list[dict[str, Any]] = json.loads(answer)["nodes"]
        return found


current = Defaults()

JOIN_VARIABLES = {
    "nnodes": "TRAINYARD_NNODES",
    "node_rank": "TRAINYARD_NODE_RANK",
    "rendezvous": "TRAINYARD_RENDEZVOUS",
}
HOSTS_VARIABLES = {"names": "TRAINYARD_HOSTS", "file": "TRAINYARD_HOSTFILE"}


@dataclasses.dataclass
class Policy:
    """What a RunConfig that does not say stands for; `trainyard.as_ray` sets another.

    storage_path: where runs are kept; None: ~/trainyard_runs.
    run_name: makes the name of a run, which the RunConfig then has from the start; without it the library gives one to each run.
    groups: whether a run's name may be "group/run", for a directory below the storage path.
    logging_config: makes that of a RunConfig, whose runtime environment then is {} and not None.
    tracebacks: whether what `fit` raises tells them though the screen has shown them, and is chained to the first failure.
    exits_fail: whether a SystemExit of a training function is its failure.
    manifest: where that of a checkpoint stands, "inside" or "beside"; None: as the library has it.
    storage_there: whether `get_storage()` of a run that is kept on another file system is that side of it.
    called, package: what messages call the project, and the package.
    step_error: makes what a data set raises of what a user's function in one of its steps raised.
    fail_together_s: how long a rank that failed stays, so that those which fail as it does are told of as well.
    follows_links: whether of a link in a checkpoint that leads out of it the file is copied; else such a checkpoint is refused.
    resume, quiet: as in RunConfig, of a run that says neither.
    cpu_world: workers of JAX with devices that JAX_PLATFORMS keeps on their CPUs are one world all the same.
    sharing: whether the workers of a node see each other's devices, by resource, "AMD GPU" for GPUs of that vendor.
    shares_by_backend: of a kind that is not in `sharing` they do where their backend says so.
    words: what stands in refusals of a scaling config instead of others.
    placeholders: whether of a checkpoint under NO_UPLOAD of which nothing is there the metrics count alone.
    returned: what the result has of what a training function returned; ValueError for what it may not return.
    tolerates: whether what is deprecated, as the text says, works all the same.
    shows_nodes: whether workers may ask for nodes.
    """

    storage_path: str | None = None
    run_name: Callable[[], str] | None = None
    groups: bool = False
    logging_config: Callable[[], Any] | None = None
    tracebacks: bool = False
    exits_fail: bool = False
    fail_together_s: float = 0.0
    follows_links: bool = False
    resume: bool = False
    manifest: str | None = None
    storage_there: bool = False
    called: str = "Trainyard"
    package: str = "trainyard"
    step_error: Callable[[Exception], Exception] | None = None
    cpu_world: bool = False
    sharing: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    shares_by_backend: bool = False
    quiet: bool = False
    words: Mapping[str, str] = dataclasses.field(default_factory=dict)
    placeholders: bool = False
    returned: Callable[[Any], Any] | None = None
    tolerates: Callable[[str], bool] | None = None
    shows_nodes: bool = False

    @property
    def isolate_devices(self) -> bool:
        """Whether a worker sees its own GPUs alone, whatever its backend says."""
        return self.sharing.get("GPU") is False


policy = Policy()


def deprecated(text: str) -> None:
    """DeprecationWarning with the text, unless the policy has it work."""
    if policy.tolerates is None or not policy.tolerates(text):
        raise DeprecationWarning(text)


_LARGEST = 461168601842738  # that a resource can be counted to, in parts of 1/10000


def _amount(name: str, value: Any) -> Any:
    from .metrics import unboxed

    value = unboxed(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ValueError(f"`init({name}=...)` must be a number, 0 or more, not {value!r}")
    if value > _LARGEST:
        raise ValueError(f"`init({name}=...)` is too large a number: at most {_LARGEST} is possible")
    return value


def _join(engine: str | None, nnodes: Any, node_rank: Any, rendezvous: Any) -> Join | None:
    given = {"nnodes": nnodes, "node_rank": node_rank, "rendezvous": rendezvous}
    missing = [name for name, value in given.items() if value is None]
    if engine != "join":
        if len(missing) < len(given):
            raise ValueError('`init(nnodes=..., node_rank=..., rendezvous=...)` goes with engine="join"')
        return None
    if missing:
        raise ValueError(f'`init(engine="join")` needs {", ".join(missing)}')
    both = nnodes if isinstance(nnodes, tuple) else (nnodes, nnodes)
    if len(both) != 2 or not all(type(n) is int for n in both) or not 1 <= both[0] <= both[1]:
        raise ValueError(f"`init(nnodes=...)` must be a number of nodes or (MIN, MAX), not {nnodes!r}")
    if type(node_rank) is not int or not 0 <= node_rank < both[1]:
        raise ValueError(f"`init(node_rank=...)` must be 0 to {both[1] - 1}, not {node_rank!r}")
    if not isinstance(rendezvous, str) or not rendezvous:
        raise ValueError(f'`init(rendezvous=...)` must be "HOST:PORT", not {rendezvous!r}')
    return Join(both, node_rank, rendezvous)


def _hosts(hosts: Any, hostfile: Any, copy: Any) -> Hosts | None:
    if not isinstance(copy, bool):
        raise ValueError(f"`init(copy=...)` must be True or False, not {copy!r}")
    if hosts is None and hostfile is None:
        if copy:
            raise ValueError("`init(copy=True)` is for `hosts` or `hostfile`, and there are none")
        return None
    if hosts is not None and hostfile is not None:
        raise ValueError("`init(hosts=..., hostfile=...)`: give one of the two")
    if hosts is not None and not isinstance(hosts, str):
        if not isinstance(hosts, (list, tuple)) or not all(isinstance(host, str) and host for host in hosts):
            raise ValueError(f"`init(hosts=...)` must be 'a,b:8' or a list of such names, not {hosts!r}")
        hosts = ",".join(hosts)
    if hosts == "":
        raise ValueError("`init(hosts=...)` names no host")
    if hostfile is not None:
        hostfile = os.path.abspath(paths.as_text(hostfile, "`init(hostfile=...)`"))
        if not os.path.exists(hostfile):
            raise ValueError(f"`init(hostfile=...)`: there is no file {hostfile}")
    return Hosts(hosts, hostfile, copy)


def _is_said() -> bool:
    """Whether `init` says where runs go."""
    elsewhere = current.join is not None or current.hosts is not None or current.cluster is not None
    return elsewhere or current.engine not in (None, "auto")


def named() -> Hosts | None:
    """The hosts on which agents are started: as `init` said, or, where nobody says where runs go, as the variables of the
    environment do."""
    found = {name: os.environ[variable] for name, variable in HOSTS_VARIABLES.items() if variable in os.environ}
    if _is_said() or not found:
        return current.hosts
    given = [name for name in (*JOIN_VARIABLES.values(), *HOSTS_VARIABLES.values()) if name in os.environ]
    if len(given) > 1:
        raise ValueError(f"{given[0]} and {given[-1]} of the environment say where the run goes: give one of the two")
    return Hosts(found.get("names"), found.get("file"), False)


def joined() -> Join | None:
    """Where a `fit` meets other machines: as `init` said, or, where nobody says where runs go, as the variables of the
    environment do. ValueError names what cannot be understood."""
    found = {name: os.environ[variable] for name, variable in JOIN_VARIABLES.items() if variable in os.environ}
    if _is_said() or not found:
        return current.join
    missing = [variable for name, variable in JOIN_VARIABLES.items() if name not in found]
    if missing:
        given = ", ".join(sorted(JOIN_VARIABLES[name] for name in found))
        raise ValueError(f"{given} of the environment: {', '.join(missing)} is missing")
    nodes = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?", found["nnodes"])
    if nodes is None or not re.fullmatch("[0-9]{1,9}", found["node_rank"]):
        name = "nnodes" if nodes is None else "node_rank"
        rule = "N or MIN:MAX" if nodes is None else "a number from 0"
        raise ValueError(f"{JOIN_VARIABLES[name]}={found[name]!r} must be {rule}")
    both = (int(nodes[1]), int(nodes[2] or nodes[1]))
    if not 1 <= both[0] <= both[1]:
        raise ValueError(f"{JOIN_VARIABLES['nnodes']}={found['nnodes']!r} must be N or MIN:MAX, from 1")
    rank = int(found["node_rank"])
    if rank >= both[1]:
        raise ValueError(f"{JOIN_VARIABLES['node_rank']}={rank} must be 0 to {both[1] - 1}")
    return Join(both, rank, found["rendezvous"]) if both[1] > 1 else None


def init(
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    engine: str | None = None,
    cluster: str | os.PathLike[str] | None = None,
    nnodes: int | tuple[int, int] | None = None,
    node_rank: int | None = None,
    rendezvous: str | None = None,
    hosts: str | Sequence[str] | None = None,
    hostfile: str | os.PathLike[str] | None = None,
    copy: bool = False,
) -> None:
    """Sets defaults of later runs; what is not given is as if `init` had not been called.

    num_cpus, num_gpus, resources: this machine's, as logical amounts, instead of what is found on it.
    runtime_env: {"env_vars": {...}, "working_dir": PATH} for all workers; `RunConfig(worker_runtime_env=...)` wins for one
    name. Without a working_dir workers start where the driver is.
    engine: "auto", "local", "join", or "slurm" in an allocation (docs/slurm.md).
    nnodes (N or (MIN, MAX)), node_rank, rendezvous ("HOST:PORT"): with "join" the same program is started on each node,
    with the key of all in TRAINYARD_RUN_KEY (docs/join.md); `fit` of another
    node than 0 serves that one, and ends its process with the run's exit status. Without an engine and a cluster the variables
    TRAINYARD_NNODES, TRAINYARD_NODE_RANK and TRAINYARD_RENDEZVOUS say the same.
    hosts ("a,b:8,gpu[01-04]", or a list of such), or hostfile: agents are started there by ssh (docs/ssh.md); copy: hosts without
    trainyard are brought the command. Without an engine and a cluster the variables TRAINYARD_HOSTS or TRAINYARD_HOSTFILE
    say the same.
    cluster: a cluster file; its nodes run on this machine.
    """
    global current
    made = Defaults()
    if num_cpus is not None:
        made.num_cpus = _amount("num_cpus", num_cpus)
    if num_gpus is not None:
        made.num_gpus = _amount("num_gpus", num_gpus)
    if resources is not None and not isinstance(resources, Mapping):
        raise ValueError(
            f"`init(resources=...)` must be a dict of names to amounts, not {type(resources).__name__}"
        )
    for name in resources or {}:
        if not isinstance(name, str) or not name:
            raise ValueError(f"`init(resources=...)`: the name {name!r} must be text")
    made.resources = {
        name: _amount(f"resources[{name!r}]", value) for name, value in (resources or {}).items()
    }
    made.environment = config.check_environment(runtime_env, "init(runtime_env=...)")
    made.directory = config.check_directory(runtime_env, "init(runtime_env=...)")
    if engine is not None and engine not in ENGINES:
        raise ValueError(f"`init(engine=...)`={engine!r} must be one of {', '.join(ENGINES)}")
    made.engine = engine
    if cluster is not None:
        made.cluster = os.path.abspath(paths.as_text(cluster, "`init(cluster=...)`"))
        if not os.path.exists(made.cluster):
            raise ValueError(f"`init(cluster=...)`: there is no file {made.cluster}")
    made.join = _join(engine, nnodes, node_rank, rendezvous)
    made.hosts = _hosts(hosts, hostfile, copy)
    if made.hosts is not None and (cluster is not None or engine not in (None, "auto")):
        other = f"engine={engine!r}" if cluster is None else "cluster=..."
        raise ValueError(f"`init(hosts=...)` and `init({other})` say where workers run: give one of the two")
    current = made
