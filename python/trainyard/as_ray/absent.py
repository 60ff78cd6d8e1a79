"""Names of Ray that Trainyard does not provide.

Such a name can be imported, named in an annotation and asked about with isinstance(), so that a training program which only
mentions it runs. Using it (calling, decorating with it, deriving from it, iterating over it) raises NotProvidedError: one
line that names it, says why it is not there and what to use instead.
"""

from __future__ import annotations

from typing import Any, NoReturn

TASKS = "Trainyard is not a task system: it runs one training function on many workers"
TRAINERS = "Trainyard brings trainers for PyTorch, JAX, TensorFlow, XGBoost and LightGBM"
_SINKS = (
    "Trainyard writes parquet, csv, json and numpy files",
    "write them, or give the batches of iter_batches to the library that writes the rest",
)

# What to use instead, by the longest prefix of the name: (why it is not there, the way out).
HINTS = {
    "ray": (TASKS, "call the function directly, or hand it to a trainer as its training function"),
    "ray.put": (TASKS, "hand the value over in train_loop_config, or load it in the training function"),
    "ray.actor": (TASKS, "keep the state in the training function, one process per worker"),
    "ray.air.integrations": (
        "Trainyard's own callbacks for W&B, MLflow and TensorBoard are in trainyard.integrations",
        "give RunConfig(callbacks=) one, or call the tracker's own API in the training function where get_world_rank() is 0",
    ),
    "ray.autoscaler": ("Trainyard starts no machines", "ask the cluster's own scheduler for them"),
    "ray.data": (
        "Trainyard reads data sets to train on, and is no engine for data",
        "read it with the library that knows it, and give its arrays to from_numpy, from_arrow, from_pandas or from_torch",
    ),
    "ray.data.aggregate": (
        "Trainyard has the common aggregations",
        "make an AggregateFn of your own, or give map_groups a function",
    ),
    **dict.fromkeys(
        ("ray.data.Datasink", "ray.data.BlockBasedFileDatasink", "ray.data.RowBasedFileDatasink", "ray.data.SinkMode"), _SINKS
    ),
    **dict.fromkeys(
        (f"ray.data.datasource.{name}" for name in ("Datasink", "BlockBasedFileDatasink", "RowBasedFileDatasink", "datasink")),
        _SINKS,
    ),
    "ray.data.expressions": (
        "Trainyard's expressions are made of col() and lit()",
        "give map_batches or add_column a function",
    ),
    "ray.job_submission": (
        "Trainyard has no job server",
        "start the program itself, on a cluster with sbatch",
    ),
    "ray.rllib": (TRAINERS, "hand your own training loop to TorchTrainer or JaxTrainer"),
    "ray.serve": (TASKS, "serve the checkpoint with a model server"),
    "ray.train": (TRAINERS, "use TorchTrainer, JaxTrainer or DataParallelTrainer"),
    "ray.train.huggingface": (
        "it needs the package transformers, which is not installed",
        "install it, or write the loop in the training function of a TorchTrainer",
    ),
    "ray.train.lightning": (
        "it needs the package lightning, which is not installed",
        "install it, or write the loop in the training function of a TorchTrainer",
    ),
    "ray.train.lightgbm": (
        "it needs the package lightgbm, which is not installed",
        "install it, or call your library in the training function of a DataParallelTrainer",
    ),
    "ray.train.tensorflow": (
        "it needs the package tensorflow, which is not installed",
        "install it, or call your library in the training function of a DataParallelTrainer",
    ),
    **dict.fromkeys(
        ("ray.train.lightgbm.LightGBMPredictor", "ray.train.tensorflow.TensorflowPredictor", "ray.train.xgboost.XGBoostPredictor",
         "ray.train.torch.TorchDetectionPredictor"),
        ("a model is asked by its own methods", "load it by get_model of the checkpoint and call it in map_batches"),
    ),
    "ray.train.xgboost": (
        "it needs the package xgboost, which is not installed",
        "install it, or call your library in the training function of a DataParallelTrainer",
    ),
    "ray.tune": (
        "Trainyard does not search for hyperparameters",
        "call fit() once for each set of them, with train_loop_config; the second fit finds its workers warm",
    ),
    "ray.workflow": (TASKS, "call fit() again under the same run name: it resumes"),
}


class NotProvidedError(NotImplementedError):
    """A part of Ray was used that Trainyard does not provide; the message says what to use instead."""


def explain(name: str) -> str:
    """The one line that says that `name` (dotted, from `ray`) is not there, why, and what to use instead."""
    prefix = name
    while prefix not in HINTS:
        prefix = prefix.rpartition(".")[0]
    why, instead = HINTS[prefix]
    return f"{name} is not provided: {why}; {instead}"


class Absent(type):
    """The type of every name that is not provided: a class, so that annotations and isinstance() go on working."""

    def __new__(meta, name: str, bases: tuple, namespace: dict) -> type:
        for base in bases:
            if isinstance(base, Absent):
                base.refuse()
        return super().__new__(meta, name, bases, namespace)

    def refuse(cls, *_: Any, **__: Any) -> NoReturn:
        raise NotProvidedError(explain(cls.ray_name()))

    __call__ = __enter__ = __iter__ = __await__ = refuse

    def ray_name(cls) -> str:
        return f"{cls.__module__}.{cls.__qualname__}"

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = absent(cls.__module__, f"{cls.__qualname__}.{name}")
        setattr(cls, name, value)
        return value

    def __getitem__(cls, _: Any) -> Any:
        return cls  # Dataset[T] in an annotation

    def __instancecheck__(cls, _: Any) -> bool:
        return False

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls

    def __repr__(cls) -> str:
        return f"<{cls.ray_name()}: not provided by Trainyard>"


def absent(module: str, name: str) -> Any:
    """The stand-in for `module`.`name`. It is pickled by that name, as a class is. An error can be named in `except`."""
    bases = (Exception,) if name.endswith("Error") else ()
    return Absent(name.rpartition(".")[2], bases, {"__module__": module, "__qualname__": name})
