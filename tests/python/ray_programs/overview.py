# A function, a scale and a trainer: the whole of it.
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def learn():
    """Runs in each worker; a real one would load a model and data, train, save and report."""


one_cpu = ScalingConfig(num_workers=1, use_gpu=False)
one_gpu = ScalingConfig(num_workers=1, use_gpu=True)
four_gpus = ScalingConfig(num_workers=4, use_gpu=True)
assert four_gpus.total_resources == {"GPU": 4}

for scale in (one_cpu, one_gpu, four_gpus):
    outcome = TorchTrainer(learn, scaling_config=scale).fit()
    assert outcome.error is None
print("ok", outcome.path)
