"""Trainers: a training function, and what it needs to run on many workers."""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable, Mapping, NoReturn

from . import defaults
from .config import RunConfig, ScalingConfig, given_or_default, mapping

if TYPE_CHECKING:
    from .backend import Backend
    from .checkpoint import Checkpoint
    from .data import DataConfig
    from .result import Result
    from .runtime import Session
    from .validation import ValidationConfig


class BackendConfig:
    """What a framework needs of a run. Derive from it for another; this one needs nothing.

    `prepare`, `environment` and `comm_backend` run in the driver before anything starts; the other methods run in every
    worker, in the order on_start, on_training_start, the training function inside train_func_context, on_shutdown.
    `on_shutdown` is not called when the function failed. The object travels to the workers by pickle.
    """

    framework = "plain"  # what the C library calls it: plain, torch or jax
    preload: tuple[str, ...] = ()  # modules that the fork template imports
    reads_torchrun = False  # with num_workers=0 an outer torchrun gives the ranks
    shares_devices = False  # whether workers need to see the devices of their neighbours (defaults.Policy.shares_by_backend)

    @property
    def backend_cls(self) -> type[Backend]:
        """Hooks that are called once, in rank 0, with all workers at hand (backend.py). This one has none."""
        from .backend import Backend

        return Backend

    @property
    def _has_hooks(self) -> bool:
        """Whether a class of its own is to be asked: nothing is imported to find that out."""
        return type(self).backend_cls is not BackendConfig.backend_cls

    def to_dict(self) -> dict[str, Any]:
        """What of it can be shown."""
        return {}

    def prepare(self, scaling_config: ScalingConfig) -> None:
        """Refuses (ValueError) or warns about what cannot work, and fills in what depends on the scaling config."""

    def environment(self, scaling_config: ScalingConfig) -> dict[str, str]:
        """More variables for the workers; the user's own win."""
        return {}

    def comm_backend(self, scaling_config: ScalingConfig) -> str | None:
        """How workers talk: "gloo", "nccl", or None for the default."""
        return None

    def train_func_context(self) -> contextlib.AbstractContextManager[Any]:
        """What the training function runs inside of."""
        return contextlib.nullcontext()

    def on_start(self, session: Session) -> None:
        """Before the training function; `session` is a `trainyard.runtime.Session`."""
        if self._has_hooks:
            from . import backend

            backend.start(self, session)

    def on_training_start(self, session: Session) -> None:
        """After on_start has returned on this worker."""

    def on_shutdown(self, session: Session) -> None:
        """After the training function has returned."""
        if self._has_hooks:
            from . import backend

            backend.stop(self, session)

    def on_failure(self, session: Session) -> None:
        """Instead of on_shutdown on a worker that fails."""
        if self._has_hooks:
            from . import backend

            backend.fail(self, session)


def required_arguments(function: Callable[..., Any]) -> int:
    """How many positional arguments `function` must be called with; partials are seen through, `*args` counts as 1."""
    parameters = inspect.signature(function).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(
        p.kind is inspect.Parameter.VAR_POSITIONAL or (p.kind in positional and p.default is p.empty)
        for p in parameters
    )


def check_function(function: Any, name: str = "train_loop_per_worker") -> None:
    """ValueError unless `function` can be called with one argument or none."""
    if not callable(function):
        raise ValueError(f"`{name}` must be a function of 0 or 1 arguments, not {type(function).__name__}")
    _refuse_unrun(function, name)
    try:
        n = required_arguments(function)
    except (TypeError, ValueError):
        return  # a builtin does not say
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise ValueError(
                f"`{name}` requires `{parameter.name}` by keyword, which nobody gives: take the config as its first argument"
            )
    if n > 1:
        raise ValueError(
            f"`{name}` should take in 0 or 1 required arguments, but it accepts {n} required arguments instead."
        )


def _refuse_unrun(function: Callable[..., Any], name: str) -> None:
    """Calling one of these runs nothing of it."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function).__call__  # of an object that can be called
    kinds = {
        inspect.iscoroutinefunction: ("an `async def` function", "call asyncio.run(...) in a plain one"),
        inspect.isasyncgenfunction: ("an async generator function", "use a plain one"),
        inspect.isgeneratorfunction: (
            "a generator function (it has a `yield`)",
            "call trainyard.report(...) instead",
        ),
    }
    for is_kind, (what, advice) in kinds.items():
        if is_kind(function):
            raise ValueError(f"`{name}` is {what}, and calling it would run nothing: {advice}")


def call(function: Callable[..., Any], config: dict[str, Any] | None) -> Any:
    """Runs the training function: with the config when it takes one ({} for None)."""
    try:
        n = required_arguments(function)
    except (TypeError, ValueError):
        n = 0
    return function(config if config is not None else {}) if n == 1 else function()


def _deprecated(name: str, advice: str) -> None:
    defaults.deprecated(f"`{name}` is deprecated: {advice}")


_GO_ON = "give `RunConfig(name=..., storage_path=..., resume=True)` and call `fit` again"


class DataParallelTrainer:
    """Runs one function on every worker. Nothing starts before `fit`.

    train_loop_per_worker: the function, of no argument, or of one: `train_loop_config`, {} where there is none.
    backend_config: what a framework needs of the run; None: nothing.
    scaling_config: how many workers, and what each holds; default: one, with a CPU. run_config: how the run is named, stored and
        bounded.
    datasets: data sets by name, whose shards `get_dataset_shard` gives; dataset_config: a `trainyard.data.DataConfig`, which says
        how they are divided (default: so that all ranks get as many rows).
    validation_config: how checkpoints are validated that a report asks it for.
    resume_from_checkpoint, what `get_checkpoint` gives as long as the run has none of its own, and metadata, what the context's
        `get_metadata` gives, are refused, but in programs of the first Ray Train (docs/as-ray.md).

    ValueError, which names the argument, for what is none of these.
    """

    _saves = False  # checkpoints by itself, as the config of programs of the first Ray Train may ask for

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: Any = None,
        validation_config: Any = None,
        resume_from_checkpoint: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ):
        if resume_from_checkpoint is not None:
            _deprecated(
                "resume_from_checkpoint", "give the checkpoint to the function in `train_loop_config`"
            )
            from .checkpoint import Checkpoint

            resume_from_checkpoint = given_or_default(resume_from_checkpoint, Checkpoint, "resume_from_checkpoint")
        if metadata is not None:
            _deprecated("metadata", "give it to the function in `train_loop_config`")
        if validation_config is not None:
            from .validation import ValidationConfig

            validation_config = given_or_default(validation_config, ValidationConfig, "validation_config")
        check_function(train_loop_per_worker)
        self.train_loop_per_worker = train_loop_per_worker
        self.train_loop_config = train_loop_config
        self.backend_config = given_or_default(backend_config, BackendConfig, "backend_config")
        self.scaling_config = given_or_default(scaling_config, ScalingConfig, "scaling_config")
        self.run_config = given_or_default(run_config, RunConfig, "run_config")
        self.datasets = mapping(datasets, "datasets")
        self.dataset_config = dataset_config
        self.validation_config: ValidationConfig | None = validation_config
        self.resume_from_checkpoint: Checkpoint | None = resume_from_checkpoint
        self.metadata = mapping(metadata, "metadata")

    def fit(self) -> Result:
        """Runs the function on every worker and waits; gives a `Result`.

        TrainingFailedError (WorkerGroupError, ControllerError) when it failed; ValueError for a request that is wrong;
        KeyboardInterrupt after Ctrl-C, when all is ended. With num_workers=0 the function runs in this process, and its
        exceptions come as they are.
        """
        asked = self.run_config.checkpoint_config
        for name in ("checkpoint_frequency", "checkpoint_at_end"):
            if getattr(asked, name) and not self._saves:
                raise ValueError(f"`CheckpointConfig.{name}`: checkpoints are those that the training function reports")
        self.backend_config.prepare(self.scaling_config)
        if self.running_in_local_mode:
            from . import local

            return local.run(self)
        from . import driver

        this = driver.Driver(self)  # others of this trainer may be on their way, in other threads
        driver.going.append(this)
        try:
            return this.run()
        finally:
            driver.going.remove(this)

    @property
    def running_in_local_mode(self) -> bool:
        """Whether `fit` runs the function in this process."""
        return self.scaling_config.num_workers == 0

    def data(self) -> dict[str, Any]:
        """The data sets of `datasets`, made of whatever they were given as, and how the ranks get them."""
        from . import data

        datasets = {name: data.as_dataset(given, name) for name, given in self.datasets.items()}
        return {"datasets": datasets, "config": self.data_config, "context": data.DataContext.get_current()}

    @functools.cached_property
    def data_config(self) -> DataConfig:
        """How the ranks get the data sets: the `dataset_config` that was given, or the default."""
        from . import data

        return given_or_default(self.dataset_config, data.DataConfig, "dataset_config")

    def shutdown(self) -> None:
        """Ends each `fit` that is on its way, from a callback or another thread."""
        from . import driver

        for one in list(driver.going):
            if one.is_of(self):
                one.stop()

    @classmethod
    def restore(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _deprecated("restore", _GO_ON)
        raise NotImplementedError(f"`restore` is not provided: {_GO_ON}")

    @classmethod
    def can_restore(cls, *args: Any, **kwargs: Any) -> bool:
        _deprecated("can_restore", _GO_ON)
        return False
