# What each worker holds: more than one of a kind, a part of a GPU, a kind of GPU, and the trainer's own share.
import warnings

from ray.train import ScalingConfig

double = ScalingConfig(num_workers=8, resources_per_worker={"CPU": 4, "GPU": 2}, use_gpu=True)
assert double.total_resources == {"CPU": 32, "GPU": 16}

halves = ScalingConfig(num_workers=8, resources_per_worker={"CPU": 4, "GPU": 0.5}, use_gpu=True)
assert halves.total_resources == {"CPU": 32, "GPU": 4}
assert halves.num_gpus_per_worker == 0.5

kind = ScalingConfig(num_workers=1, use_gpu=True, accelerator_type="A100")
assert kind.additional_resources_per_worker == {"accelerator_type:A100": 0.001}

try:
    ScalingConfig(num_workers=8, resources_per_worker={"CPU": 4, "GPU": 2})
except ValueError as refusal:
    assert "`use_gpu` is False but `GPU` was found in" in str(refusal)
else:
    raise AssertionError("GPUs without use_gpu must be refused")

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    frugal = ScalingConfig(num_workers=4, resources_per_worker={"CPU": 2}, trainer_resources={"CPU": 0})
    heavy = ScalingConfig(num_workers=8, trainer_resources={"CPU": 4, "GPU": 1})
assert frugal.total_resources == {"CPU": 8}
assert heavy.total_resources == {"CPU": 12, "GPU": 1}
assert DeprecationWarning in {one.category for one in told}
print("ok")
