"""One training function, started by each contestant: torch_workers.py ours|ray|torchrun MARKS [FITS] [MODE].

Every rank writes when it entered the function and when its first all-reduce was done (CLOCK_MONOTONIC, which all processes of
a machine share) to MARKS/FIT-RANK; the driver writes when it asked for a fit to MARKS/FIT-asked. MODE is a start method of
Trainyard, with "+idle" behind it for workers that then wait to be looked at, until MARKS/done is there.
"""
import os
import sys

WORKERS = 8


def train(config):
    import time

    entered = time.monotonic()
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    reduced = time.monotonic()
    path = os.path.join(config["marks"], f"{config['fit']}-{dist.get_rank()}")
    with open(path + ".new", "w") as f:
        f.write(f"{entered} {reduced} {os.getpid()}")
    os.rename(path + ".new", path)
    while config["idle"] and not os.path.exists(os.path.join(config["marks"], "done")):
        time.sleep(0.02)


def mark(config):
    import time

    with open(os.path.join(config["marks"], f"{config['fit']}-asked"), "w") as f:
        f.write(str(time.monotonic()))


def ours(config, fits, mode):
    import trainyard
    from trainyard.torch import TorchTrainer

    trainyard.init(num_cpus=WORKERS)
    run = trainyard.RunConfig(storage_path=os.path.join(config["marks"], "runs"), start_method=mode or "auto",
                              failure_config=trainyard.FailureConfig(max_failures=1 if config["idle"] else 0))
    for fit in range(fits):
        config["fit"] = fit
        mark(config)
        TorchTrainer(train, train_loop_config=config, scaling_config=trainyard.ScalingConfig(num_workers=WORKERS),
                     run_config=run).fit()


def ray(config, fits, _mode):
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    for fit in range(fits):
        config["fit"] = fit
        mark(config)
        TorchTrainer(train, train_loop_config=config, scaling_config=ScalingConfig(num_workers=WORKERS),
                     run_config=RunConfig(storage_path=os.path.join(config["marks"], "runs"))).fit()


def torchrun(config, _fits, _mode):
    import torch.distributed as dist

    train(config)
    dist.destroy_process_group()


if __name__ == "__main__":
    how, marks, fits, mode = (sys.argv[1:] + ["1", ""])[:4] if len(sys.argv) == 3 else (sys.argv[1:] + [""])[:4]
    globals()[how]({"marks": marks, "fit": 0, "idle": mode.endswith("+idle")}, int(fits), mode.removesuffix("+idle"))
