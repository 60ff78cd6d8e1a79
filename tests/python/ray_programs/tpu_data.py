# Workers on TPU hosts that are told to use the CPU: one world of JAX all the same, whose arrays lie over the devices of all.
import ray.data
import ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.jax import JaxTrainer


def learn():
    import jax

    data = ray.train.get_dataset_shard("train")
    batches = list(data.iter_jax_batches(batch_size=4, synchronize_batches=True))
    total = sum(int(jax.numpy.sum(batch["id"])) for batch in batches)
    devices = jax.device_count(), jax.local_device_count(), jax.process_count()
    ray.train.report({"devices": devices, "shapes": [batch["id"].shape for batch in batches], "total": total})


variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
metrics = (
    JaxTrainer(
        learn,
        scaling_config=ScalingConfig(num_workers=4, use_tpu=True, topology="4x4", accelerator_type="TPU-V6E"),
        run_config=RunConfig(worker_runtime_env={"env_vars": variables}),
        datasets={"train": ray.data.range(32)},
    )
    .fit()
    .metrics
)
assert metrics == {"devices": (16, 4, 4), "shapes": [(16,), (16,)], "total": 31 * 16}, metrics
print("ok")
