"""Data sets to train on: `datasets={"train": ds}` of a trainer, and `get_dataset_shard("train")` in the training function.

A data set is read when it is iterated over, by each rank for itself, and only what is this rank's. docs/data.md tells how."""

from .config import ActorPoolStrategy as ActorPoolStrategy
from .config import DataConfig as DataConfig
from .config import DataContext as DataContext
from .config import ExecutionOptions as ExecutionOptions
from .config import ExecutionResources as ExecutionResources
from .config import FileShuffleConfig as FileShuffleConfig
from .config import RandomSeedConfig as RandomSeedConfig
from .config import TaskPoolStrategy as TaskPoolStrategy
from .dataset import Dataset as Dataset
from .dataset import MaterializedDataset as MaterializedDataset
from .dataset import Schema as Schema
from .iterator import DataIterator as DataIterator
from .reading import as_dataset as as_dataset
from .reading import from_arrow as from_arrow
from .reading import from_blocks as from_blocks
from .reading import from_huggingface as from_huggingface
from .reading import from_items as from_items
from .reading import from_numpy as from_numpy
from .reading import from_pandas as from_pandas
from .reading import from_torch as from_torch
from .reading import range as range  # noqa: A004
from .reading import range_tensor as range_tensor
from .reading import read_binary_files as read_binary_files
from .reading import read_csv as read_csv
from .reading import read_images as read_images
from .reading import read_json as read_json
from .reading import read_numpy as read_numpy
from .reading import read_parquet as read_parquet
from .reading import read_text as read_text
