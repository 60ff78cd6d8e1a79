# Workers that hold GPUs, and talk by Gloo all the same. Where there is no GPU, the GPUs are logical: ray.init says how many.
import sys

import ray
import torch.distributed
from ray.train import ScalingConfig, get_context, report
from ray.train.torch import TorchConfig, TorchTrainer

how_many = int(sys.argv[1])
ray.init(num_gpus=how_many)


def learn():
    assert torch.distributed.get_backend() == "gloo"
    ones = torch.ones(1)
    torch.distributed.all_reduce(ones)
    report({"sum": ones.item(), "rank": get_context().get_world_rank()})


trainer = TorchTrainer(
    learn,
    scaling_config=ScalingConfig(num_workers=how_many, use_gpu=True),
    torch_config=TorchConfig(backend="gloo"),
)
assert trainer.fit().metrics == {"sum": how_many, "rank": 0}
print("ok")
