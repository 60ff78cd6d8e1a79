# The device of a worker, where there is a GPU.
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, get_device


def learn():
    assert torch.cuda.is_available()
    device = get_device()
    assert device == torch.device("cuda:0")
    assert torch.cuda.current_device() == device.index
    assert torch.distributed.get_backend() == "nccl"


TorchTrainer(learn, scaling_config=ScalingConfig(num_workers=1, use_gpu=True)).fit()
print("ok")
