# The device of a worker, by its number: the same calls as with real GPUs, and nothing that touches one.
import os

import ray
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, get_device, get_devices

ray.init(num_cpus=8, num_gpus=4)
by_gloo = TorchConfig(backend="gloo")


def one_device():
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    assert get_device() == torch.device("cuda:0")


def two_devices():
    assert get_device() == torch.device("cuda:0")
    assert get_devices() == [torch.device("cuda:0"), torch.device("cuda:1")]


def own_device():
    rank = ray.train.get_context().get_world_rank()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert get_device() == torch.device(f"cuda:{rank}")
    assert ray.get_gpu_ids() == [rank]
    assert ray.get_runtime_context().get_accelerator_ids()["GPU"] == [str(rank)]


def shared_device():
    rank = ray.train.get_context().get_world_rank()
    assert get_device() == torch.device(f"cuda:{rank // 2}")


def fit(function, workers, **resources):
    scale = ScalingConfig(num_workers=workers, use_gpu=True, resources_per_worker=resources or None)
    TorchTrainer(function, scaling_config=scale, torch_config=by_gloo).fit()


fit(one_device, 1)
fit(two_devices, 1, GPU=2)
fit(own_device, 4)
fit(shared_device, 8, CPU=1, GPU=0.5)
print("ok")
