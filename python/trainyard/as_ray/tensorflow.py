"""`ray.train.tensorflow` where TensorFlow is installed: MultiWorkerMirroredStrategy finds the ranks by TF_CONFIG, which a run of
this framework sets in each worker. TensorFlow itself is imported where a model or a data set of it is used, not to start a run."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from typing import Any, Callable, Mapping

from ..config import RunConfig, ScalingConfig, given_or_default
from ..trainer import BackendConfig, DataParallelTrainer
from .framework_checkpoint import FrameworkCheckpoint


@dataclasses.dataclass
class TensorflowConfig(BackendConfig):
    """Nothing can be set."""

    framework = "tensorflow"


class TensorflowTrainer(DataParallelTrainer):
    """Inside of the function `tf.distribute.MultiWorkerMirroredStrategy()` has a worker for each rank."""

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        tensorflow_config: TensorflowConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: Any = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        validation_config: Any = None,
        metadata: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Any = None,
    ):
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=given_or_default(tensorflow_config, TensorflowConfig, "tensorflow_config"),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
        )


def prepare_dataset_shard(tf_dataset_shard: Any) -> Any:
    """A `tf.data.Dataset` with the rank's own data as they are: TensorFlow is not to share them out among the ranks once more."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options).prefetch(tf.data.AUTOTUNE)


class TensorflowCheckpoint(FrameworkCheckpoint):
    """A checkpoint with a model of Keras."""

    MODEL_FILENAME_KEY = "_model_filename"  # in its metadata

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """In a new temporary directory."""
        folder, name = tempfile.mkdtemp(prefix="trainyard-model-"), "model.keras"
        model.save(os.path.join(folder, name))
        return cls._made(folder, name, preprocessor)

    @classmethod
    def from_h5(cls, file_path: str, *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """A copy of a model that is one file."""
        if not os.path.isfile(file_path) or not file_path.endswith(".h5"):
            raise ValueError(f"`file_path`={file_path!r} must be a file whose name ends in .h5")
        folder = tempfile.mkdtemp(prefix="trainyard-model-")
        shutil.copy(file_path, folder)
        return cls._made(folder, os.path.basename(file_path), preprocessor)

    @classmethod
    def from_saved_model(cls, dir_path: str, *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """A copy of a model that is a directory."""
        if not os.path.isdir(dir_path):
            raise ValueError(f"`dir_path`={dir_path!r} must be a directory")
        folder = tempfile.mkdtemp(prefix="trainyard-model-")
        shutil.copytree(dir_path, folder, dirs_exist_ok=True)
        return cls._made(folder, ".", preprocessor)

    @classmethod
    def _made(cls, folder: str, name: str, preprocessor: Any) -> TensorflowCheckpoint:
        made = cls.from_directory(folder)
        made._with(preprocessor)
        made.update_metadata({cls.MODEL_FILENAME_KEY: name})
        return made

    def get_model(self) -> Any:
        """The model; ValueError where the metadata do not say which file it is."""
        import tensorflow as tf

        name = self.get_metadata().get(self.MODEL_FILENAME_KEY)
        if name is None:
            raise ValueError(f"{self}: its metadata have no {self.MODEL_FILENAME_KEY!r}: `update_metadata` keeps it")
        with self.as_directory() as folder:
            return tf.keras.models.load_model(os.path.join(folder, name))
