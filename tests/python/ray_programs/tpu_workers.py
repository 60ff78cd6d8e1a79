# Workers on TPU hosts; how many slices, the first argument says. The hosts are logical nodes, so JAX is told to use the CPU.
import os
import sys

import ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.jax import JaxTrainer

slices = int(sys.argv[1])


def learn():
    import jax

    assert len(jax.devices()) >= 1
    ray.train.report(
        {
            "slices": os.environ.get("MEGASCALE_NUM_SLICES"),
            "slice": os.environ.get("MEGASCALE_SLICE_ID"),
            "host": os.environ["TPU_WORKER_ID"],
            "type": os.environ["TPU_ACCELERATOR_TYPE"],
            "chips": ray.get_runtime_context().get_accelerator_ids()["TPU"],
        }
    )


trainer = JaxTrainer(
    learn,
    scaling_config=ScalingConfig(num_workers=4 * slices, use_tpu=True, topology="4x4", accelerator_type="TPU-V6E"),
    run_config=RunConfig(worker_runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu"}}),
)
several = {"slices": str(slices), "slice": "0"} if slices > 1 else {"slices": None, "slice": None}
expected = {**several, "host": "0", "type": "v6e-16", "chips": ["0", "1", "2", "3"]}
metrics = trainer.fit().metrics
assert metrics == expected, metrics
print("ok")
