"""What a training function asks: where am I, what was saved; and what it tells: reports."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Any, Callable, Mapping

from . import runtime
from .reported import CheckpointConsistencyMode, CheckpointUploadMode, ReportedCheckpoint, ReportOptions

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .data import DataIterator
    from .placement_group import PlacementGroupFactory


class TrainContext:
    """The place of this worker in its run. Ranks count from 0."""

    def __init__(self, session: runtime.Session):
        self._session = session

    def get_world_size(self) -> int:
        """Number of workers."""
        return self._session.world_size

    def get_world_rank(self) -> int:
        """This worker among all."""
        return self._session.world_rank

    def get_local_rank(self) -> int:
        """This worker among those of its node."""
        return self._session.local_rank

    def get_local_world_size(self) -> int:
        """Number of workers on this node."""
        return self._session.local_world_size

    def get_node_rank(self) -> int:
        """This node among those of the run."""
        return self._session.node_rank

    def get_experiment_name(self) -> str:
        """The name of the run."""
        return os.path.join(self._session.group, self._session.run_name)

    def get_attempt(self) -> int:
        """Which attempt of the run this is; 1 is the first."""
        return self._session.attempt

    def get_storage(self) -> Storage:
        """Where the run keeps its files; NotImplementedError with num_workers=0."""
        if self._session.run_path is None:
            raise NotImplementedError("there is no storage with num_workers=0: nothing is kept")
        if self._session.storage_there and self._session.there is not None:
            return Storage(self._session.there.path, self._session.there.filesystem, self.get_experiment_name())
        return Storage(self._session.run_path, None, self.get_experiment_name())

    # Of the first Ray Train, where a run was a trial of Ray Tune's.

    def _deprecated(self, name: str) -> None:
        from . import defaults

        defaults.deprecated(f"`{name}` is deprecated and has no meaning for a run: remove the call")

    def get_metadata(self) -> dict[str, Any]:
        self._deprecated("get_metadata")
        return dict(self._session.metadata)

    def get_trial_name(self) -> str:
        self._deprecated("get_trial_name")
        return self._session.run_name

    def get_trial_id(self) -> str:
        self._deprecated("get_trial_id")
        return self._session.run_name

    def get_trial_resources(self) -> PlacementGroupFactory:
        from .placement_group import PlacementGroupFactory

        self._deprecated("get_trial_resources")
        return PlacementGroupFactory([self._session.resources] * self._session.world_size)

    def get_trial_dir(self) -> str | None:
        self._deprecated("get_trial_dir")
        return self._session.run_path

    def __repr__(self) -> str:
        return f"TrainContext(world_rank={self.get_world_rank()}, world_size={self.get_world_size()})"


class Storage:
    """The run's directory, on this machine or on `filesystem`."""

    def __init__(self, run_path: str, filesystem: Any = None, name: str | None = None):
        self._filesystem = filesystem
        self.experiment_fs_path = run_path
        self.experiment_dir_name = name or os.path.basename(run_path)
        self.storage_fs_path = run_path.removesuffix(f"/{self.experiment_dir_name}")

    @property
    def storage_filesystem(self) -> Any:
        """Where it lies, as pyarrow names it; None where pyarrow is not installed."""
        from . import filesystem

        return filesystem.local() if self._filesystem is None else self._filesystem

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        """Where the checkpoint that is reported with this `checkpoint_dir_name` lies."""
        return pathlib.PurePosixPath(self.experiment_fs_path, checkpoint_name).as_posix()

    def extract_checkpoint_dir_name_from_path(self, checkpoint_path: str) -> str:
        """The contrary: the name of a checkpoint of this run; ValueError for a place elsewhere."""
        above = self.experiment_fs_path + "/"
        if not checkpoint_path.startswith(above):
            raise ValueError(f"Checkpoint path {checkpoint_path} is not under the experiment directory {self.experiment_fs_path}.")
        return checkpoint_path[len(above) :]

    @staticmethod
    def make_default_checkpoint_dir_name() -> str:
        """A name by the time, to the microsecond."""
        import datetime

        return f"checkpoint_{datetime.datetime.now():%Y-%m-%d_%H-%M-%S.%f}"

    def persist_current_checkpoint(self, checkpoint: Checkpoint, checkpoint_dir_name: str) -> Checkpoint:
        """Copies the checkpoint's files to where one of this name lies, as a `checkpoint_upload_fn` may; the copy."""
        from . import filesystem
        from .checkpoint import Checkpoint

        place = self.build_checkpoint_path_from_name(checkpoint_dir_name)
        if self._filesystem is None:
            return Checkpoint(checkpoint.to_directory(place))
        with checkpoint.as_directory() as directory:
            filesystem.send(self._filesystem, directory, place)
        return Checkpoint(place, self._filesystem)

    def __repr__(self) -> str:
        return f"Storage({self.experiment_fs_path!r})"


class DistributedTrainContext(TrainContext):
    """Of a worker."""


class LocalTrainContext(TrainContext):
    """Of the driver's own process, with num_workers=0."""


def get_context() -> TrainContext:
    """The place of this worker in its run. RuntimeError outside of a training function."""
    session = runtime.session("get_context")
    return LocalTrainContext(session) if session.run_path is None else DistributedTrainContext(session)


def report(
    metrics: Mapping[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: Callable[..., Any] | None = None,
    validation: Any = False,
) -> None:
    """Hands metrics, and perhaps a checkpoint, over to the run.

    Without a checkpoint the call queues and returns. With one, a Checkpoint whose directory holds this rank's files, it
    returns once they are copied and every rank has made its report of the same number (SYNC), at once (ASYNC; the
    files are copied behind the training and then removed), or records the path as it is (NO_UPLOAD): such a place is never
    removed, and may be anywhere but in what is the run's own. On another file system it must lie right below the run's
    directory there, and goes as any checkpoint of the run does. A wait for ranks that do not come is told every
    RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S (60), and fails the worker after RAY_TRAIN_COLLECTIVE_TIMEOUT_S (-1: never) with
    BroadcastCollectiveTimeoutError.

    Ranks may bring files of their own, or the same ones; where a file of one name differs, the one that came first is kept, and a
    RuntimeWarning names it (SYNC).

    validation: True, or a ValidationTaskConfig, has the checkpoint validated beside the training, by the `validation_config` of the
    trainer: the one that the first rank with a checkpoint gives counts. What comes of it is added to the checkpoint's metrics.

    Metrics are kept as JSON. Numbers, text, lists, dicts, tuples, sets, bytes, dates, numbers and arrays of numpy and what can be
    made one come back with their types, in callbacks and from the run's directory; of other objects comes their repr, a text.

    ValueError when the metrics hold a torch tensor, or an object of which neither is known (a lock); RuntimeError outside of a
    training function.
    """
    session = runtime._session
    if session is None:
        session = runtime.session("report")
    if checkpoint is None and checkpoint_dir_name is None and not validation:
        session.report(metrics)
        return
    options = ReportOptions(
        checkpoint_dir_name,
        checkpoint_upload_mode,
        delete_local_checkpoint_after_upload,
        checkpoint_upload_fn,
        validation,
    )
    session.report(metrics, checkpoint, options)


def heartbeat() -> None:
    """Says that this worker is alive, in a long time without a report; for runs with RunConfig(hang_timeout_s=). Cheap."""
    runtime.session("heartbeat").heartbeat()


def stop_requested() -> bool:
    """Whether the run asked this worker to stop: for Ctrl-C, a preemption, another worker's failure.

    After the first call the worker is no longer ended at once when it is: it has the run's grace to save and to return.
    """
    return runtime.session("stop_requested").stop_requested()


def get_checkpoint() -> Checkpoint | None:
    """The last committed checkpoint of the run, or None: after a restart, where to go on from."""
    return runtime.session("get_checkpoint").checkpoint()


def get_dataset_shard(dataset_name: str | None = None) -> DataIterator:
    """This rank's `trainyard.data.DataIterator` of a data set of the trainer's `datasets`; None is "train". The same object
    whenever it is asked for. KeyError where the trainer was given no such data set."""
    from .data import shards

    found: DataIterator = shards.of(runtime.session("get_dataset_shard"), dataset_name or "train")
    return found


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """The kept checkpoints, oldest first, or worst first where a metric ranks them (CheckpointConfig), once every rank has made as
    many reports as this one and their checkpoints are committed.

    After `timeout_s` those that are kept by then; None waits. With VALIDATED what is to be validated is waited for as well,
    within the same time; `status` tells which still is.
    """
    return runtime.session("get_all_reported_checkpoints").checkpoints_reported(consistency_mode, timeout_s)
