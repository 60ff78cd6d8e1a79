# The scale alone: how many workers, and what they then hold.
from ray.train import ScalingConfig

eight = ScalingConfig(num_workers=8)
assert eight.num_workers == 8
assert eight.total_resources == {"CPU": 8}

eight_gpus = ScalingConfig(num_workers=8, use_gpu=True)
assert eight_gpus.total_resources == {"GPU": 8}
print("ok", eight, eight_gpus)
