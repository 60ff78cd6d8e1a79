"""What a user sets: how many workers and what each holds, how a run is named and stored, what failures may cost.

The rules of ScalingConfig are the C library's (`_core.resolve`); nothing here checks them a second time.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import reprlib
import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Mapping, Sequence

from . import _core, paths
from . import filesystem as filesystems
from .metrics import unboxed
from .placement_group import PlacementGroupFactory

if TYPE_CHECKING:
    from .context import Storage

log = logging.getLogger("trainyard")


class _Unset:
    """The default of a field that warns when it is set at all. There is one, also after a copy or a pickle."""

    def __repr__(self) -> str:
        return "<unset>"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "_UNSET"


_UNSET: Any = _Unset()
_MOST = 2**63 - 1  # of what the C library reads as a whole number


def is_utf8(text: str) -> bool:
    """Whether `text` has no half of a character, as Python makes of bytes that are no UTF-8."""
    return text.isascii() or text.encode(errors="ignore").decode() == text


def _plain(field: str, value: Any) -> Any:
    """`value` as JSON carries it; ValueError names the field where it cannot."""
    value = unboxed(value)
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise ValueError(f"`{field}`: the name {name!r} must be text, not {type(name).__name__}")
            _plain(field, name)
        return {name: _plain(f"{field}[{name!r}]", item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(field, item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise ValueError(f"`{field}` must be a finite number, not {value}")
    if isinstance(value, int) and not -_MOST <= value <= _MOST:
        raise ValueError(f"`{field}` is too large a number: at most {_MOST} is possible")
    if isinstance(value, str) and "\0" in value:
        raise ValueError(f"`{field}` must not hold a NUL byte: {value!r}")
    if isinstance(value, str) and not is_utf8(value):
        raise ValueError(f"`{field}` must be UTF-8: {value!r}")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"`{field}` must not be of type {type(value).__name__}: {value!r}")


def mapping(value: Any, field: str) -> dict[str, Any]:
    """A copy of what is given by name, {} for None; ValueError for what is no dict."""
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"`{field}` must be a dict, not {type(value).__name__}")
    return dict(value or {})


def _public_name(kind: type) -> str:
    """trainyard.torch.TorchConfig: the class where a program imports it from, which is the package of its module."""
    return f"{kind.__module__.rpartition('.')[0] or kind.__module__}.{kind.__name__}"


def given_or_default(value: Any, kind: type, name: str) -> Any:
    """`value`, or the default when it is None; ValueError for another class."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise ValueError(
            f"Invalid `{kind.__name__}` type: `{name}` must be a {_public_name(kind)}, "
            f"not {type(value).__module__}.{type(value).__name__}"
        )
    return value


_WORDS = {"null": "None", "true": "True", "false": "False", "map": "dict", "maps": "dicts"}


def _in_python(message: str, config: Any) -> str:
    """A refusal of the C library, which speaks of JSON, in Python's words, with the value as it was given."""
    told = re.match(r"(`(\w+)`.* must be )(.*), not (.*)$", message, re.DOTALL)
    if not told:
        return message
    start, field, rule, value = told.groups()
    rule = re.sub(r"\w+", lambda word: _WORDS.get(word[0], word[0]), rule)
    if start == f"`{field}` must be " and hasattr(config, field):
        value = reprlib.repr(getattr(config, field))
    else:
        value = {"null": "None", "true": "True", "false": "False", "a map": "a dict"}.get(value, value)
    return f"{start}{rule}, not {value}"


def fields_json(config: ScalingConfig) -> str:
    """Its fields, as the C library takes them; ValueError for what JSON cannot carry."""
    if isinstance(config.num_workers, list):
        raise ValueError("`num_workers` must be an int or a tuple of two ints (MIN, MAX), not a list")
    names = [field.name for field in dataclasses.fields(config)]
    return json.dumps({name: _plain(name, getattr(config, name)) for name in names})


@dataclasses.dataclass(eq=False, repr=False)
class ScalingConfig:
    """How many workers, and what each holds.

    num_workers: a number; (min, max) starts with what fits; 0 runs the function in this process.
    use_gpu: one GPU a worker, unless `resources_per_worker` says otherwise.
    resources_per_worker: amounts by name: CPU, GPU, TPU, memory (bytes), any other name. Default: {"GPU": 1} with
        use_gpu, else {"CPU": 1}.
    placement_strategy: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
    accelerator_type: such as "A100" or "TPU-V6E".
    label_selector: labels that a worker's node must have; a list gives one map for each worker.
    use_tpu, topology: workers on TPU slices, such as topology="4x4".
    elastic_resize_monitor_interval_s: the least time between two looks at whether more workers would fit.
    topology_strategy: in place of placement_strategy: {"gpu-domain": "STRICT_PACK", "node-id": "SPREAD"} is nodes that share
        one value of the label, and a node for each worker there.
    trainer_resources: deprecated; reserved beside rank 0.
    """

    trainer_resources: Mapping[str, float] | None = None
    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: Mapping[str, float] | None = None
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None
    label_selector: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None
    use_tpu: bool = False
    topology: str | None = None
    elastic_resize_monitor_interval_s: float = 60.0
    topology_strategy: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        resolved = self._resolved()
        for text in resolved["deprecations"]:
            warnings.warn(text, DeprecationWarning, stacklevel=3)
        for text in resolved["warnings"]:
            warnings.warn(text, stacklevel=3)
        if self.num_workers == 0:
            log.info("num_workers=0: the training function runs in this process (local mode)")

    def _resolved(self) -> dict[str, Any]:
        """See ty_scaling_resolve. ValueError when the fields do not go together."""
        fields = fields_json(self)
        try:
            return json.loads(_core.resolve(fields))
        except ValueError as error:
            from .defaults import policy

            told = _in_python(str(error), self)
            for ours, theirs in policy.words.items():
                told = told.replace(ours, theirs)
            raise ValueError(told) from None

    @property
    def _resources_per_worker_not_none(self) -> dict[str, float]:
        return self._resolved()["per_worker"]

    @property
    def _trainer_resources_not_none(self) -> dict[str, float]:
        return self._resolved()["trainer"]

    @property
    def total_resources(self) -> dict[str, float]:
        """Of all workers (the most of them), the trainer's included."""
        return self._resolved()["total"]

    @property
    def num_cpus_per_worker(self) -> float:
        return self._resources_per_worker_not_none.get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        return self._resources_per_worker_not_none.get("GPU", 0)

    @property
    def num_tpus_per_worker(self) -> float:
        return self._resources_per_worker_not_none.get("TPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """What a worker holds beside CPU and GPU."""
        resources = self._resources_per_worker_not_none
        return {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU")}

    @property
    def min_workers(self) -> int:
        return self._resolved()["min_workers"]

    @property
    def max_workers(self) -> int:
        return self._resolved()["max_workers"]

    @property
    def elasticity_enabled(self) -> bool:
        """Whether num_workers is a (min, max) tuple."""
        return isinstance(self.num_workers, tuple)

    def as_placement_group_factory(self) -> PlacementGroupFactory:
        """An empty head, the trainer together with rank 0, then the other workers."""
        resolved = self._resolved()
        worker, first = resolved["per_worker"], dict(resolved["per_worker"])
        for name, amount in resolved["trainer"].items():
            first[name] = first.get(name, 0) + amount
        others = [dict(worker) for _ in range(resolved["max_workers"] - 1)]
        return PlacementGroupFactory([{}, first, *others], strategy=self.placement_strategy)

    @classmethod
    def from_placement_group_factory(cls, pgf: PlacementGroupFactory) -> ScalingConfig:
        """The config that gives such bundles; the trainer's part is what the first has more than the last."""
        bundles = [bundle for bundle in pgf.bundles if bundle]
        if not bundles:
            raise ValueError("the placement group holds no resources")
        worker = dict(bundles[-1])
        trainer = {name: amount - worker.get(name, 0) for name, amount in bundles[0].items()}
        types = [name for name in worker if name.startswith("accelerator_type:")]
        return cls(
            trainer_resources={name: amount for name, amount in trainer.items() if amount > 0} or None,
            num_workers=len(bundles),
            use_gpu=worker.get("GPU", 0) > 0,
            resources_per_worker={name: amount for name, amount in worker.items() if name not in types},
            placement_strategy=pgf.strategy,
            accelerator_type=types[0].partition(":")[2] if types else None,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScalingConfig):
            return NotImplemented
        return self.as_placement_group_factory() == other.as_placement_group_factory()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return _repr(self)


def _repr(config: Any) -> str:
    """The class and the fields that differ from their defaults."""
    parts = []
    for field in dataclasses.fields(config):
        default = field.default_factory() if field.default is dataclasses.MISSING else field.default
        value = getattr(config, field.name)
        if value is _UNSET or (type(value) is type(default) and value == default):
            continue
        if default is None and _stands_for_none(value):
            continue
        parts.append(f"{field.name}={value!r}")
    return f"{type(config).__name__}({', '.join(parts)})"


def _stands_for_none(value: Any) -> bool:
    """Whether RunConfig puts it where None was given."""
    if isinstance(value, list):
        return not value
    return isinstance(value, (FailureConfig, CheckpointConfig)) and value == type(value)()


def _refuse_deprecated(config: Any, advice: Mapping[str, str]) -> None:
    from . import defaults

    for name, text in advice.items():
        value = getattr(config, name)
        if value is _UNSET:
            continue
        told = f"`{type(config).__name__}({name}=...)` is deprecated: {text}"
        if name == "stop" and value is not None:  # a run would go on behind where it is to end
            raise DeprecationWarning(told)
        defaults.deprecated(told)


def settings_of(config: Any) -> dict[str, Any]:
    """The fields that the C library knows as settings of a run, as JSON carries them; those that are not given are left out."""
    from .defaults import policy

    names = [field.name for field in dataclasses.fields(config) if field.name not in config._OTHERS]
    given = {name: getattr(config, name) for name in names}
    if isinstance(config, CheckpointConfig) and config.checkpoint_score_attribute is None:
        given.pop("checkpoint_score_order")  # of no score: it has no effect
    if isinstance(config, RunConfig) and policy.groups and isinstance(config.name, str):
        given["name"] = os.path.basename(config.name)
    return {name: value for name, value in given.items() if value is not None}


def said_of(config: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of settings that are given what was said: without standard values, since files of settings for all runs may say otherwise."""
    standard = {field.name: field.default for field in dataclasses.fields(config) if field.name not in config._SAID}
    return {name: value for name, value in given.items() if name not in standard or value != standard[name]}


def _check_settings(config: Any, section: str | None = None) -> None:
    """ValueError where a value is none that a run may have, by the C library's table of settings. Numbers become plain ones."""
    kind = type(config).__name__
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in config._OTHERS:
            continue
        if value is None and field.default is not None:
            raise ValueError(f"`{kind}.{field.name}` must not be None")
        setattr(config, field.name, _plain(f"{kind}.{field.name}", value))
    given = settings_of(config)
    try:
        _core.check_run(json.dumps({section: given} if section else given))
    except ValueError as error:
        told = _in_python(str(error), config)
        raise ValueError(f"`{kind}.{told[1:]}" if told.startswith("`") else told) from None


@dataclasses.dataclass(repr=False)
class CheckpointConfig:
    """Which checkpoints are kept.

    num_to_keep: how many, the latest always among them; None keeps all.
    checkpoint_score_attribute: the metric by which they are ranked; None ranks them by time.
    checkpoint_score_order: whether "max" or "min" is best.

    By keyword only:
    on_checkpoint_error: when a checkpoint cannot be written: "fail", or "continue" with the one before it.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str | None = "max"
    checkpoint_frequency: Any = _UNSET
    checkpoint_at_end: Any = _UNSET
    _: dataclasses.KW_ONLY
    on_checkpoint_error: str = "fail"

    _OTHERS: ClassVar = ("checkpoint_frequency", "checkpoint_at_end")
    _SAID: ClassVar = ("checkpoint_score_order",)  # it belongs to the score

    def __post_init__(self) -> None:
        advice = "call `report` with a checkpoint when there is one to keep"
        _refuse_deprecated(self, {"checkpoint_frequency": advice, "checkpoint_at_end": advice})
        order = self.checkpoint_score_order
        if not isinstance(order, str) or order not in ("max", "min"):
            raise ValueError(
                '`CheckpointConfig.checkpoint_score_order` must be either "max" or "min", '
                f"not {self.checkpoint_score_order!r}"
            )
        _check_settings(self, "checkpoint_config")

    def __repr__(self) -> str:
        return _repr(self)


@dataclasses.dataclass(repr=False)
class FailureConfig:
    """How many failures a run survives, by a new attempt from the last checkpoint; -1 is without limit.

    max_failures: of workers. controller_failure_limit: of starting them. max_preemption_failures: of nodes that were
    taken away.
    preemption_grace_s: how much longer than the run's `grace_s` workers have to save when they are told to stop.
    relax_collectives_on_preemption: accepted, and without effect: a report waits for no rank that has ended, with it or without.
    """

    max_failures: int = 0
    fail_fast: Any = _UNSET
    controller_failure_limit: int = -1
    max_preemption_failures: int = -1
    relax_collectives_on_preemption: bool = False
    preemption_grace_s: float = 0.0

    _OTHERS: ClassVar = ("fail_fast", "relax_collectives_on_preemption", "preemption_grace_s")
    _SAID: ClassVar = ("controller_failure_limit", "max_preemption_failures")

    def __post_init__(self) -> None:
        _refuse_deprecated(self, {"fail_fast": "`max_failures=0` fails at once"})
        _check_settings(self, "failure_config")
        more = _plain("FailureConfig.preemption_grace_s", self.preemption_grace_s)
        if isinstance(more, bool) or not isinstance(more, (int, float)) or more < 0:
            raise ValueError(f"`FailureConfig.preemption_grace_s` must be a number of seconds, 0 or more, not {more!r}")
        if not isinstance(self.relax_collectives_on_preemption, bool):
            given = self.relax_collectives_on_preemption
            raise ValueError(f"`FailureConfig.relax_collectives_on_preemption` must be True or False, not {given!r}")

    def __repr__(self) -> str:
        return _repr(self)


def check_environment(value: Any, field: str) -> dict[str, str]:
    """The variables of a runtime environment: {"env_vars": {...}}. ValueError, or TypeError for values that are no
    text. What is known elsewhere and cannot be provided here (packages) is told and left out."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(
            f'`{field}` must be a dict such as {{"env_vars": {{...}}}}, not {type(value).__name__}'
        )
    for name in value:
        if name not in ("env_vars", "working_dir"):
            warnings.warn(
                f"`{field}`: {name!r} is not provided and has no effect; only `env_vars` and `working_dir` are",
                stacklevel=4,
            )
    variables = value.get("env_vars") or {}
    if not isinstance(variables, Mapping):
        raise TypeError(f"`{field}['env_vars']` must be a dict of text, not {type(variables).__name__}")
    for name, text in variables.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(
                f"`{field}['env_vars']`: {name!r} must be text, not {type(text).__name__}: {text!r}"
            )
        if not name or "=" in name or "\0" in name + text or not is_utf8(name + text):
            raise ValueError(
                f"`{field}['env_vars']`: {name!r} cannot be the name of a variable, or its value holds a NUL or is no UTF-8"
            )
    return dict(variables)


def check_directory(value: Any, field: str) -> str | None:
    """The directory that a runtime environment's `working_dir` names, where workers start; None without. ValueError when
    there is none of the name."""
    path = value.get("working_dir") if isinstance(value, Mapping) else None
    if path is None:
        return None
    if not isinstance(path, (str, os.PathLike)) or not os.path.isdir(os.path.expanduser(path)):
        raise ValueError(
            f"`{field}['working_dir']`={path!r} must be a directory: archives and URIs are not provided"
        )
    return os.path.abspath(os.path.expanduser(path))


_DEPRECATED_RUN = {
    "sync_config": "files are copied as they are reported",
    "verbose": "use `progress`",
    "stop": "return from the training function",
    "progress_reporter": "use `progress`",
    "log_to_file": "each rank's output is in `logs/` of the run's directory anyway",
}


@dataclasses.dataclass(repr=False)
class RunConfig:
    """How a run is named, stored and bounded.

    name: default run-YYYYMMDD-HHMMSS-xxxx. storage_path: default $TRAINYARD_STORAGE, else what files of settings for all runs say
    (docs/configuration.md), else ~/trainyard_runs; the run's files are below storage_path/name. callbacks: instances of
    UserCallback. worker_runtime_env: {"env_vars": {...}, "working_dir": PATH} for the workers.

    By keyword only:
    resume: go on with the run of this name, from its last checkpoint; where there is none a new one begins, which is told;
        without it a name that exists is refused.
    start_method: "template" forks workers from a process that has imported the framework, "spawn" starts each afresh,
        "auto" forks where that is safe. "fork" forks workers from this very process: nothing is imported twice, and the training
        function is not pickled, so it may use what cannot be, such as open files; ValueError where this process has other threads
        or has a device open. It is on this machine only.
    progress: "auto", "plain" or "none". quiet: no output of the workers here; it is in `logs/` all the same. no_prefix: their lines
        as they are, without [rank N].
    no_wait: ControllerError, instead of waiting, where other runs hold the devices.
    isolate_devices: a worker sees only its own devices. bind: "numa" keeps workers near their devices' cores and memory, where
        there are several NUMA nodes; "none" leaves that to the frameworks.
    grace_s: between being told to end and being ended.
    linger_s: what a worker that ended well leaves running, as an upload in the background, may go on for so long. Default 0.
    outlive_s: where the driver of several nodes dies their workers go on for so long, and a driver that resumes the run meanwhile
        adopts them; 0: they end with it. Default 60 on joined nodes, else 0.
    spares: how many of the nodes wait without workers, to take the places of nodes that are lost. Default 0.
    log_limit: bytes, or a text as "100MiB", that each rank's log may have: its head and its last lines are kept. Default 0: any.
    sample: seconds from 0.1 to 60, a text as "10s", or "off": how often what the hardware says is kept in usage.db of the run.
        Default "10s".
    metrics_file: path of a file in which what Prometheus reads of the run is kept while it goes on, as for its node_exporter.
    time_limit_s: of the whole run.
    hang_timeout_s: a worker that is up and makes no report, collective or heartbeat for so long has failed; the stacks of all are
        saved in logs/rank-N.stack of the run first.
    chaos: "SEED[:EVERY]", to try what the training does then: workers are killed, stopped and starved by a schedule that the seed
        gives, on average one every 10s, or EVERY.
    debug: the rank that has a terminal, and to which standard input goes, so that breakpoint() works in it; no hang is looked for.
    pty: a terminal for each worker; `trainyard attach NAME --rank 3` gives yours to one. stdin: the rank that gets this process's
        standard input, or "all"; the others see its end at once. Default: none does.
    preempt_signal: the signal that tells of a preemption, such as "USR1": workers may save, `fit` raises PreemptionError, and the
        run can be resumed. Default "TERM".
    """

    name: str | None = None
    storage_path: str | os.PathLike[str] | None = None
    storage_filesystem: Any = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    callbacks: Sequence[Any] | None = None
    worker_runtime_env: Mapping[str, Any] | None = None
    logging_config: Any = None
    sync_config: Any = _UNSET
    verbose: Any = _UNSET
    stop: Any = _UNSET
    progress_reporter: Any = _UNSET
    log_to_file: Any = _UNSET
    _: dataclasses.KW_ONLY
    resume: bool = False
    start_method: str = "auto"
    progress: str = "auto"
    quiet: bool = False
    no_prefix: bool = False
    no_wait: bool = False
    isolate_devices: bool = False
    bind: str = "numa"
    grace_s: float | None = None
    linger_s: float | None = None
    outlive_s: float | None = None
    spares: int | None = None
    log_limit: int | str | None = None
    sample: float | str | None = None
    metrics_file: str | None = None
    time_limit_s: float | None = None
    hang_timeout_s: float | None = None
    debug: int | None = None
    pty: bool = False
    stdin: int | str | None = None
    preempt_signal: str | None = None
    chaos: str | None = None

    # Fields that are no settings of the library, each config's own; and those whose standard value is not the library's, or
    # belongs to another field, so that they are always said.
    _OTHERS: ClassVar = (
        "storage_path",
        "storage_filesystem",
        "failure_config",
        "checkpoint_config",
        "callbacks",
        "worker_runtime_env",
        "logging_config",
        "sync_config",
        "verbose",
        "stop",
        "progress_reporter",
        "log_to_file",
    )
    _SAID: ClassVar = ("start_method",)

    def __post_init__(self) -> None:
        _refuse_deprecated(self, _DEPRECATED_RUN)
        self._fill_in()
        self._check_place()
        self.failure_config = given_or_default(self.failure_config, FailureConfig, "RunConfig.failure_config")
        self.checkpoint_config = given_or_default(self.checkpoint_config, CheckpointConfig, "RunConfig.checkpoint_config")
        self._check_callbacks()
        check_environment(self.worker_runtime_env, "RunConfig.worker_runtime_env")
        check_directory(self.worker_runtime_env, "RunConfig.worker_runtime_env")
        _check_settings(self)

    def _fill_in(self) -> None:
        from .defaults import policy

        if self.name in (None, "") and policy.run_name is not None:
            self.name = policy.run_name()
        if self.storage_path is None and policy.storage_path is not None:
            self.storage_path = os.path.expanduser(policy.storage_path)
        if policy.logging_config is not None:
            self.logging_config = self.logging_config or policy.logging_config()
            self.worker_runtime_env = {} if self.worker_runtime_env is None else self.worker_runtime_env

    def _check_place(self) -> None:
        path = self.storage_path
        if path is None and self.storage_filesystem is not None:
            raise ValueError("`RunConfig.storage_filesystem` needs `storage_path`, the place on it")
        if path is None:
            return
        if not isinstance(path, (str, os.PathLike)) or not str(path):
            raise ValueError(f"`RunConfig.storage_path` must be a path or None, not {path!r}")
        _plain("RunConfig.storage_path", str(path))
        if not self._is_remote():
            self.storage_path = paths.local(path, "`RunConfig.storage_path`")

    def _is_remote(self) -> bool:
        """Whether the storage path is on another file system; which one, and whether it can be had, is found out by `fit`."""
        given = self.storage_filesystem
        if given is not None:
            filesystems.check(given, "`RunConfig.storage_filesystem`")
            return not filesystems.is_local(given)
        return filesystems.is_address(str(self.storage_path or ""))

    @property
    def storage_context(self) -> Storage:
        """Where a run of this name keeps its files. ValueError while it has no name, as where the run is to be given one."""
        from .context import Storage

        if self.name is None:
            raise ValueError("`RunConfig.storage_context`: the run has no name yet: give it one")
        if self._is_remote():
            base, there = filesystems.find(self.storage_path, self.storage_filesystem, "`RunConfig.storage_path`")
        else:
            base, there = os.path.abspath(os.path.expanduser(self.storage_path or _core.storage_path())), None
        return Storage(os.path.join(base, self.name), there, self.name)

    def _check_callbacks(self) -> None:
        from . import callbacks

        if self.callbacks is None:
            self.callbacks = []
        if not isinstance(self.callbacks, (list, tuple)):
            raise ValueError(
                f"`RunConfig.callbacks` must be a list of UserCallback, not {type(self.callbacks).__name__}"
            )
        callbacks.check(self.callbacks)

    def __repr__(self) -> str:
        return _repr(self)
