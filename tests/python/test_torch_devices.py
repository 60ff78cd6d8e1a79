"""get_device and get_devices: from assigned ids and the list of visible ones, and in workers of logical nodes."""

import json
import os
import sys
import types

import pytest
from trainyard import RunConfig, ScalingConfig, accelerators, init
from trainyard.torch import TorchConfig, TorchTrainer, devices, get_device, get_devices

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("common_directory")


def names(found):
    return [str(device) for device in found]


@pytest.mark.parametrize(
    "ids, visible, expected",
    [
        ([], "0,1", ["cpu"]),
        ([], None, ["cpu"]),
        (["0"], "0", ["cuda:0"]),
        (["2"], "2", ["cuda:0"]),
        (["2"], "0,1,2,3", ["cuda:2"]),
        (["3"], "2,3", ["cuda:1"]),
        (["0", "1"], "0,1", ["cuda:0", "cuda:1"]),
        (["2", "3"], "0,1,2,3", ["cuda:2", "cuda:3"]),
        (["3", "1"], "1,3", ["cuda:1", "cuda:0"]),
        (["GPU-b"], "GPU-a,GPU-b", ["cuda:1"]),
        (["MIG-GPU-1/2/0"], "MIG-GPU-1/1/0, MIG-GPU-1/2/0", ["cuda:1"]),
        (["10", "2"], "10,2", ["cuda:0", "cuda:1"]),
        (["7"], None, ["cuda:7"]),
    ],
)
def test_assigned_ids_are_found_among_the_visible_ones(monkeypatch, ids, visible, expected):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert names(devices.of_ids({"GPU": ids})) == expected


@pytest.mark.parametrize(
    "assigned, visible",
    [("5", "0,1"), ("0", ""), ("0", "NoDevFiles"), ("1", "10,11"), ("GPU-a", None), ("GPU-a", "0")],
)
def test_an_assigned_id_that_is_not_visible(monkeypatch, assigned, visible):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(
        RuntimeError, match=f"CUDA_VISIBLE_DEVICES set incorrectly.*expected to include {assigned}"
    ):
        devices.of_ids({"GPU": [assigned]})


def test_amd_devices_are_listed_by_another_variable(monkeypatch):
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "4,6")
    assert names(devices.of_ids({"GPU": ["6"]})) == ["cuda:1"]
    with pytest.raises(RuntimeError, match="HIP_VISIBLE_DEVICES set incorrectly"):
        devices.of_ids({"GPU": ["5"]})


def test_devices_of_two_kinds():
    with pytest.raises(RuntimeError, match="Unable to determine the appropriate DeviceManager.*GPU and NPU"):
        devices.of_ids({"GPU": ["0"], "NPU": ["0"]})
    assert names(devices.of_ids({"GPU": ["0"], "neuron_cores": ["0"]})) == ["cuda:0"]


def test_other_kinds(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    monkeypatch.setitem(sys.modules, "torch_tpu", None)
    assert names(devices.of_ids({"HPU": ["0", "1"]})) == ["hpu"]
    with pytest.raises(RuntimeError, match="torch_tpu is not installed"):
        devices.of_ids({"TPU": ["0"]})
    with pytest.warns(UserWarning, match="torch_npu is not installed"):
        assert names(devices.of_ids({"NPU": ["1"]})) == ["cpu"]


def test_npu_ids_are_found_among_the_visible_ones(monkeypatch):
    made = []
    monkeypatch.setitem(sys.modules, "torch_npu", types.ModuleType("torch_npu"))
    monkeypatch.setattr(torch, "device", lambda *parts: made.append(parts))
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "0,1")
    devices.of_ids({"NPU": ["1"]})
    assert made == [("npu", 1)]


def test_what_the_run_assigned():
    assert accelerators.assigned({}) == accelerators.assigned({"TRAINYARD_DEVICE_IDS": ""}) == {}
    assert accelerators.assigned({"TRAINYARD_DEVICE_IDS": "GPU=2,3;NPU=GPU-a"}) == {
        "GPU": ["2", "3"],
        "NPU": ["GPU-a"],
    }


@pytest.mark.parametrize("function", [get_device, get_devices])
def test_outside_of_a_training_function(function):
    with pytest.raises(RuntimeError, match="cannot be used outside of a Trainyard training function"):
        function()


def test_in_this_process():
    def train():
        return names([get_device(), *get_devices()])

    here = f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"
    assert TorchTrainer(train, scaling_config=ScalingConfig(num_workers=0)).fit().return_value == [here, here]


@pytest.fixture
def fit(place, storage):
    """fit(workers, gpus, isolate=False): what each rank of two nodes with two logical GPUs each says of its devices."""
    cluster = place / "cluster.yaml"
    cluster.write_text("nodes:\n  - {name: 'n[1-2]', resources: {CPU: 16, GPU: 2}}\n")
    init(cluster=cluster)

    def train():
        from trainyard import get_context
        from trainyard.torch import get_device, get_devices

        found = [device.index for device in get_devices()]
        told = [found, get_device() == get_devices()[0], os.environ["ACCELERATE_TORCH_DEVICE"]]
        with open(os.path.join(os.environ["PLACE"], f"rank-{get_context().get_world_rank()}"), "w") as file:
            json.dump(told, file)

    def fit(workers, gpus, **run):
        TorchTrainer(
            train,
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(
                num_workers=workers, use_gpu=True, resources_per_worker={"CPU": 1, "GPU": gpus}
            ),
            run_config=RunConfig(storage_path=storage, **run),
        ).fit()
        told = [json.loads((place / f"rank-{rank}").read_text()) for rank in range(workers)]
        assert all(same and name == f"cuda:{found[0]}" for found, same, name in told)
        return [found for found, _, _ in told]

    return fit


@pytest.mark.skipif(torch.cuda.is_available(), reason="its GPUs are made up, and workers make theirs the current one")
def test_devices_of_each_rank(fit):
    assert fit(8, 0.5) == [[0], [0], [1], [1], [0], [0], [1], [1]]
    assert fit(4, 1) == [[0], [1], [0], [1]]
    assert fit(2, 2) == [[0, 1], [0, 1]]
    assert fit(4, 1, isolate_devices=True) == [[0], [0], [0], [0]]


def test_a_worker_that_changes_what_is_visible(place, storage):
    def train():
        os.environ["CUDA_VISIBLE_DEVICES"] = "7"
        with pytest.raises(RuntimeError, match="CUDA_VISIBLE_DEVICES set incorrectly.*include 0"):
            get_device()

    init(num_cpus=2, num_gpus=2)
    TorchTrainer(
        train,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(use_gpu=True),
        run_config=RunConfig(storage_path=storage),
    ).fit()
