# A variable for all workers, through the runtime environment.
import os

import ray
from ray.train import ScalingConfig, report
from ray.train.torch import TorchTrainer

variables = {"NCCL_SOCKET_IFNAME": "ens5"}
ray.init(runtime_env={"env_vars": variables})


def learn():
    assert os.environ["NCCL_SOCKET_IFNAME"] == "ens5"
    report({"interface": os.environ["NCCL_SOCKET_IFNAME"]})


assert "NCCL_SOCKET_IFNAME" not in os.environ
assert TorchTrainer(learn, scaling_config=ScalingConfig(num_workers=2)).fit().metrics["interface"] == "ens5"
print("ok")
