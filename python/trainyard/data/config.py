"""What is said of data sets besides their steps: how a trainer divides them, seeds, and the options of Ray Data that have a meaning
for a program even where they have none here."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .dataset import Dataset
    from .iterator import DataIterator


@dataclasses.dataclass
class RandomSeedConfig:
    """A seed, and whether each epoch draws by another one made of it."""

    seed: int | None = None
    reseed_after_execution: bool = True

    def __post_init__(self) -> None:
        if self.seed is not None and not isinstance(self.seed, int):
            raise ValueError(
                f"Seed must be an integer or None. Got {self.seed!r} of type {type(self.seed).__name__}."
            )


@dataclasses.dataclass
class FileShuffleConfig(RandomSeedConfig):
    """The files in an order that is drawn."""

    def numbers(self, epoch: int) -> np.random.Generator:
        if self.seed is None:
            import secrets

            self.seed = secrets.randbits(62)
        return np.random.default_rng([self.seed, epoch if self.reseed_after_execution else 0])


@dataclasses.dataclass
class ExecutionResources:
    """Kept as given: what reads is a thread of each worker, whose resources are those of its worker."""

    cpu: float = 0.0
    gpu: float = 0.0
    object_store_memory: float = 0.0
    memory: float = 0.0

    def copy(
        self,
        cpu: float | None = None,
        gpu: float | None = None,
        memory: float | None = None,
        object_store_memory: float | None = None,
    ) -> ExecutionResources:
        """The same but for the amounts that are given."""
        amounts = {"cpu": cpu, "gpu": gpu, "memory": memory, "object_store_memory": object_store_memory}
        return dataclasses.replace(self, **{name: amount for name, amount in amounts.items() if amount is not None})

    @classmethod
    def zero(cls) -> ExecutionResources:
        return cls()

    @classmethod
    def inf(cls) -> ExecutionResources:
        return cls(*[float("inf")] * 4)

    @classmethod
    def for_limits(
        cls,
        cpu: float | None = None,
        gpu: float | None = None,
        object_store_memory: float | None = None,
        memory: float | None = None,
    ) -> ExecutionResources:
        return cls(
            *(
                float("inf") if amount is None else amount
                for amount in (cpu, gpu, object_store_memory, memory)
            )
        )


@dataclasses.dataclass
class ExecutionOptions:
    """Kept as given: rows come in their order in any case."""

    resource_limits: ExecutionResources | None = None
    exclude_resources: ExecutionResources | None = None
    preserve_order: bool = False
    actor_locality_enabled: bool = True
    locality_with_output: Any = False
    verbose_progress: bool | None = None

    def __post_init__(self) -> None:
        self.resource_limits = self.resource_limits or ExecutionResources.for_limits()
        self.exclude_resources = self.exclude_resources or ExecutionResources.zero()

    def is_resource_limits_default(self) -> bool:
        return self.resource_limits == ExecutionResources.for_limits()


# What an error of a store says that passes.
_PASSING = [
    "AWS Error INTERNAL_FAILURE", "AWS Error NETWORK_CONNECTION", "AWS Error SLOW_DOWN", "AWS Error UNKNOWN (HTTP status 503)",
    "AWS Error SERVICE_UNAVAILABLE",
]  # fmt: skip

# What a DataContext says where nothing was set.
_UNSET: dict[str, Any] = {
    "enable_pandas_block": True, "actor_prefetcher_enabled": False, "use_push_based_shuffle": False,
    "default_hash_shuffle_parallelism": 200, "scheduling_strategy": "SPREAD", "scheduling_strategy_large_args": "DEFAULT",
    "large_args_threshold": 50 << 20, "use_polars": False, "use_polars_sort": False, "min_parallelism": 200,
    "read_op_min_num_blocks": 200, "decoding_size_estimation": True, "streaming_read_buffer_size": 32 << 20,
    "enable_tensor_extension_casting": True, "use_arrow_tensor_v2": True, "enable_fallback_to_arrow_object_ext_type": None,
    "enable_auto_log_stats": False, "verbose_stats_logs": False, "trace_allocations": False, "use_ray_tqdm": True,
    "enable_operator_progress_bars": True, "enable_progress_bar_name_truncation": True, "enable_rich_progress_bars": False,
    "actor_task_retry_on_errors": False, "op_resource_reservation_enabled": True, "op_resource_reservation_ratio": 0.5,
    "retried_io_errors": _PASSING, "write_file_retry_on_errors": _PASSING, "retried_map_errors": False, "max_map_retries": 0,
    "actor_init_retry_on_errors": False, "actor_init_max_retries": 3, "use_datasource_v2": True, "isolate_read_workers": False,
    "use_disk_based_hash_shuffle": False, "max_hash_shuffle_aggregators": None, "max_hash_shuffle_finalization_batch_size": None,
    "pipeline_push_based_shuffle_reduce_tasks": True, "custom_execution_callback_classes": [],
    "memory_usage_poll_interval_s": 1, "enable_arrow_backed_pandas_conversion": False,
    "max_errored_blocks": 0, "log_internal_stack_trace": False, "raise_original_map_exception": False,
    "print_on_execution_start": True, "s3_try_create_dir": False, "wait_for_min_actors_s": -1,
    "max_tasks_in_flight_per_actor": None, "enable_per_node_metrics": False, "enforce_schemas": False,
    "override_object_store_memory_limit_fraction": None, "warn_on_driver_memory_usage_bytes": 2 << 30,
}  # fmt: skip


class DataContext:
    """Settings of Ray Data. They can be set and read, in workers too; `retried_io_errors` has its effect, under `as_ray`
    raise_original_map_exception, others have none."""

    _current: DataContext | None = None

    def __init__(self) -> None:
        self.execution_options = ExecutionOptions()
        self.enable_progress_bars = True
        self.target_max_block_size = 128 << 20
        self.target_min_block_size = 1 << 20
        self._settings: dict[str, Any] = {}

    @classmethod
    def get_current(cls) -> DataContext:
        if cls._current is None:
            cls._current = cls()
        return cls._current

    @classmethod
    def _set_current(cls, context: DataContext) -> None:
        cls._current = context

    def make_current(self) -> None:
        DataContext._current = self

    def get_config(self, key: str, default: Any = None) -> Any:
        return self._settings.get(key, default)

    def set_config(self, key: str, value: Any) -> None:
        self._settings[key] = value

    def remove_config(self, key: str) -> None:
        self._settings.pop(key, None)

    def copy(self) -> DataContext:
        return copy.deepcopy(self)

    def __getattr__(self, name: str) -> Any:
        if name not in _UNSET:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = copy.copy(_UNSET[name])
        if isinstance(value, list):  # to which a program may add
            setattr(self, name, value)
        return value


class DataConfig:
    """How a trainer gives its data sets to the ranks: those of `datasets_to_split` ("all", or names) divided, so that all ranks get
    as many rows, the others whole. Derive from it, and override `configure`, for another way."""

    def __init__(
        self,
        datasets_to_split: str | list[str] = "all",
        execution_options: ExecutionOptions | dict[str, ExecutionOptions] | None = None,
        enable_shard_locality: bool = True,
    ):
        if not isinstance(datasets_to_split, list) and datasets_to_split != "all":
            raise TypeError(
                "`datasets_to_split` should be a 'all' or a list of strings of dataset names. Received "
                f"{type(datasets_to_split).__name__} with value {datasets_to_split}."
            )
        self._datasets_to_split = datasets_to_split
        self._options = execution_options
        self._enable_shard_locality = enable_shard_locality

    def _resolve_execution_options(self, dataset_name: str) -> ExecutionOptions:
        given = self._options.get(dataset_name) if isinstance(self._options, dict) else self._options
        return copy.deepcopy(given or self.default_ingest_options())

    def configure(
        self,
        datasets: dict[str, Dataset],
        world_size: int,
        worker_handles: list | None = None,
        worker_node_ids: list | None = None,
        **kwargs: Any,
    ) -> list[dict[str, DataIterator]]:
        """For each rank its iterators by name. Called in every worker, and must give the same in all of them."""
        wanted = set(datasets) if self._datasets_to_split == "all" else set(self._datasets_to_split)
        hints = worker_node_ids if self._enable_shard_locality else None
        output: list[dict[str, DataIterator]] = [{} for _ in range(world_size)]
        for name, dataset in datasets.items():
            own = dataset.copy(dataset)
            own.context.execution_options = self._resolve_execution_options(name)
            if name in wanted:
                split = own.streaming_split(world_size, equal=True, locality_hints=hints)
            else:
                split = [own.iterator() for _ in range(world_size)]
            for shards, one in zip(output, split):
                shards[name] = one
        return output

    @staticmethod
    def default_ingest_options() -> ExecutionOptions:
        given = DataContext.get_current().execution_options
        return ExecutionOptions(
            resource_limits=given.resource_limits,
            exclude_resources=given.exclude_resources,
            preserve_order=given.preserve_order,
            verbose_progress=given.verbose_progress,
        )


class ActorPoolStrategy:
    """How many actors Ray would run a step in: here each process that reads has one."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.__dict__.update(kwargs)


class TaskPoolStrategy(ActorPoolStrategy):
    pass
