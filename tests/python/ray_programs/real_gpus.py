# Two GPUs of one worker, where there are two.
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, get_device, get_devices


def learn():
    assert torch.cuda.is_available()
    assert get_device() == torch.device("cuda:0")
    assert get_devices() == [torch.device("cuda:0"), torch.device("cuda:1")]


two_each = ScalingConfig(num_workers=1, use_gpu=True, resources_per_worker={"GPU": 2})
TorchTrainer(learn, scaling_config=two_each).fit()
print("ok")
