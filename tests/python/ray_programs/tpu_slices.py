# One slice of TPU hosts, and two.
from ray.train import ScalingConfig

one = ScalingConfig(num_workers=4, use_tpu=True, topology="4x4", accelerator_type="TPU-V6E")
assert one.num_tpus_per_worker == 4

two = ScalingConfig(num_workers=8, use_tpu=True, topology="4x4", accelerator_type="TPU-V6E")
assert two.total_resources["TPU"] == 32

half = ScalingConfig(
    num_workers=4, use_tpu=True, topology="4x4", accelerator_type="TPU-V6E", resources_per_worker={"TPU": 2}
)
assert half.num_tpus_per_worker == 2

fourth = ScalingConfig(num_workers=4, use_tpu=True, topology="2x2x4", accelerator_type="TPU-V4")
assert fourth.additional_resources_per_worker["accelerator_type:TPU-V4"] == 0.001
print("ok")
