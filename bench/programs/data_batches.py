"""Two workers go over a data set of parquet files, started by each contestant: data_batches.py ours|ray FILES OUT.

Rank 0 writes to OUT, as JSON: how long after the fit was asked for its first batch was there, and the rows a second of the
whole second epoch, in which everything has been imported.
"""
import json
import sys
import time

WORKERS = 2
BATCH = 1024


def double(batch):
    return {"x": batch["x0"] * 2 + batch["x1"], "y": batch["y"]}


def train(config):
    ranks, shard = config["of"]()
    first, speed = None, 0.0
    for _ in range(2):
        begin, rows = time.monotonic(), 0
        for batch in shard.iter_batches(batch_size=BATCH):
            first = first or time.monotonic()
            rows += len(batch["y"])
        speed = rows / (time.monotonic() - begin)
    if ranks.get_world_rank() == 0:
        with open(config["out"], "w") as f:
            json.dump({"first_s": first - config["asked"], "rows_per_s": speed * WORKERS}, f)


def of_ours():
    import trainyard

    return trainyard.get_context(), trainyard.get_dataset_shard("train")


def of_ray():
    import ray.train

    return ray.train.get_context(), ray.train.get_dataset_shard("train")


def ours(files, config):
    from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, data

    trainer = DataParallelTrainer(
        train, train_loop_config={**config, "of": of_ours}, datasets={"train": data.read_parquet(files).map_batches(double)},
        scaling_config=ScalingConfig(num_workers=WORKERS), run_config=RunConfig(progress="none"))
    trainer.train_loop_config["asked"] = time.monotonic()
    trainer.fit()


def ray(files, config):
    import ray
    import ray.data
    from ray.train import ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    ray.init(num_cpus=2 * WORKERS)  # one for each worker, and as many to read with
    trainer = DataParallelTrainer(
        train, train_loop_config={**config, "of": of_ray}, datasets={"train": ray.data.read_parquet(files).map_batches(double)},
        scaling_config=ScalingConfig(num_workers=WORKERS))
    trainer.train_loop_config["asked"] = time.monotonic()
    trainer.fit()


if __name__ == "__main__":
    contestant, files, out = sys.argv[1:]
    {"ours": ours, "ray": ray}[contestant](files, {"out": out})
