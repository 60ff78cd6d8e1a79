# Workers that must go where a kind of GPU is.
import ray
from ray.train import ScalingConfig, report
from ray.train.torch import TorchConfig, TorchTrainer

ray.init()
kinds = {node["NodeName"]: [key for key in node["Resources"] if key.startswith("accelerator_type:")] for node in ray.nodes()}
wanted = {name for name, found in kinds.items() if "accelerator_type:A100" in found}
assert wanted and wanted != set(kinds)
ids = {node["NodeID"] for node in ray.nodes() if node["NodeName"] in wanted}


def learn():
    report({"node": ray.get_runtime_context().get_node_id()})


scale = ScalingConfig(num_workers=1, use_gpu=True, accelerator_type="A100")
result = TorchTrainer(learn, scaling_config=scale, torch_config=TorchConfig(backend="gloo")).fit()
assert result.metrics["node"] in ids
print("ok")
