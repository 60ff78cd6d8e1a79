# A cluster of several nodes, as Ray's own tests make one.
import ray
from ray.cluster_utils import Cluster
from ray.train import ScalingConfig, report
from ray.train.collective import barrier, broadcast_from_rank_zero
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
for _ in range(2):
    cluster.add_node(num_cpus=2, resources={"disk": 1}, labels={"zone": "a"})
cluster.wait_for_nodes()
ray.init(address=cluster.address)

assert ray.is_initialized()
assert len(ray.nodes()) == 3
assert ray.cluster_resources()["CPU"] == 4
assert ray.available_resources()["disk"] == 2


def learn():
    context = ray.train.get_context()
    first = broadcast_from_rank_zero(ray.get_runtime_context().get_node_id())
    barrier()
    report({"first": first, "node": context.get_node_rank(), "here": context.get_local_world_size()})


scale = ScalingConfig(num_workers=4, resources_per_worker={"CPU": 1, "disk": 0.5}, label_selector={"zone": "a"})
result = DataParallelTrainer(learn, scaling_config=scale).fit()
assert result.metrics["here"] == 2 and result.metrics["node"] == 0
assert result.metrics["first"] in [node["NodeID"] for node in ray.nodes()]
ray.shutdown()
assert not ray.is_initialized()
cluster.shutdown()
print("ok")
