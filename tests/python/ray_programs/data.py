# Rows that Ray Data reads and prepares: some split among the workers, some whole on each; and a DataConfig that splits by itself.
import csv
import tempfile
from typing import Dict, List, Optional

import numpy as np
import ray
import ray.data
from ray import train
from ray.actor import ActorHandle
from ray.data import DataIterator, Dataset, NodeIdStr
from ray.train import Checkpoint, DataConfig, ScalingConfig
from ray.train.data_parallel_trainer import DataParallelTrainer

with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as file:
    csv.writer(file).writerows([["length", "kind"], *([n, "ab"[n % 2]] for n in range(1, 101))])
    file.flush()
    flowers = ray.data.read_csv(file.name).map_batches(
        lambda batch: {"length": batch["length"] / 100.0, "kind": batch["kind"]}
    )
    flowers = flowers.materialize().filter(lambda row: row["kind"] == "a")
held_out = ray.data.range(10)


def learn():
    rows, lengths = 0, []
    for _ in range(2):
        shard = train.get_dataset_shard("train")
        for batch in shard.iter_batches(batch_size=8, prefetch_batches=2, local_shuffle_buffer_size=16):
            assert isinstance(batch["length"], np.ndarray) and set(batch["kind"]) == {"a"}
            rows += len(batch["length"])
            lengths += batch["length"].tolist()
    whole = sum(len(batch["id"]) for batch in train.get_dataset_shard("test").iter_batches())
    with tempfile.TemporaryDirectory() as folder:
        train.report({"rows": rows, "largest": max(lengths), "whole": whole}, checkpoint=Checkpoint.from_directory(folder))


options = DataConfig.default_ingest_options()
options.resource_limits = options.resource_limits.copy(object_store_memory=10e9)
assert options.resource_limits.object_store_memory == 10e9 and options.resource_limits.cpu == float("inf")
result = DataParallelTrainer(
    learn,
    scaling_config=ScalingConfig(num_workers=2),
    datasets={"train": flowers, "test": held_out},
    dataset_config=DataConfig(datasets_to_split=["train"], execution_options=options),
).fit()
assert result.metrics["rows"] == 50 and result.metrics["whole"] == 10 and result.metrics["largest"] <= 1.0, result


class Own(DataConfig):
    def configure(
        self,
        datasets: Dict[str, Dataset],
        world_size: int,
        worker_handles: Optional[List[ActorHandle]],
        worker_node_ids: Optional[List[NodeIdStr]],
        **kwargs,
    ) -> List[Dict[str, DataIterator]]:
        ray.data.DataContext.get_current().execution_options = DataConfig.default_ingest_options()
        shards = datasets["train"].streaming_split(world_size, equal=True, locality_hints=worker_node_ids)
        return [{"train": shard} for shard in shards]


def count():
    train.report({"ids": sorted(row["id"] for row in train.get_dataset_shard("train").iter_rows())})


result = DataParallelTrainer(
    count, scaling_config=ScalingConfig(num_workers=2), datasets={"train": held_out}, dataset_config=Own()
).fit()
assert len(result.metrics["ids"]) == 5, result
print("ok")
