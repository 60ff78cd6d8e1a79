"""A machine with NVIDIA GPUs: what the command finds is what torch finds, and what becomes of work on them. Without one there is
nothing here to test: the same paths are tested on stand-ins of the drivers (tests/unit/fake_nvml.c, fake_nccl.c)."""

import glob
import json
import os
import sqlite3
import subprocess
import sys
import textwrap

import pytest
from conftest import BUILD

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not glob.glob("/dev/nvidia[0-9]*"), reason="no NVIDIA GPU is here")
COMMAND = os.path.join(os.path.abspath(BUILD), "trainyard")


def execute(*words):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=180)


@pytest.fixture
def script(place):
    """script(text, *options): a program on one GPU, by `trainyard run`."""

    def script(text, *options):
        (place / "train.py").write_text(textwrap.dedent(text))
        words = [COMMAND, "run", "--name", "run", "--storage-path", place / "runs", "--use-gpu", *options]
        return execute(*words, "--", sys.executable, place / "train.py")

    return script


def test_the_devices_are_those_of_torch():
    found = json.loads(execute(COMMAND, "accelerators", "--format", "json").stdout)["devices"]
    assert len(found) == torch.cuda.device_count()
    for device in found:
        properties = torch.cuda.get_device_properties(int(device["id"]))
        assert device["name"] == properties.name
        assert device["uuid"] == f"GPU-{properties.uuid}"
        assert device["memory_bytes"] >= properties.total_memory


def test_a_worker_holds_its_device(script):
    finished = script(
        """
        import torch, torch.distributed as dist, trainyard
        dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
        one = torch.ones(1, device="cuda")
        dist.all_reduce(one)
        trainyard.report({"sum": one.item(), "devices": torch.cuda.device_count()})
        dist.destroy_process_group()
        """
    )
    assert finished.returncode == 0, finished
    assert "sum 1  devices 1" in finished.stderr, finished


def test_two_workers_share_a_device(script):
    finished = script(
        """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        one = torch.ones(1, device="cuda:0")
        dist.all_reduce(one)
        print("sum", one.item())
        dist.destroy_process_group()
        """,
        "-n2",
        "--resources=GPU=0.5",
        "--backend=gloo",
    )
    assert finished.returncode == 0, finished
    assert finished.stdout.count("sum 2.0") == 2, finished


def test_a_device_is_held_against_other_runs(script, place):
    finished = script(
        f"""
        import subprocess
        words = ["{COMMAND}", "plan", "-n", "{torch.cuda.device_count()}", "--use-gpu"]
        print(subprocess.run(words, capture_output=True, text=True).stdout)
        """
    )
    assert finished.returncode == 0, finished
    assert "It fits once others have finished." in finished.stdout, finished


def test_a_fault_that_the_driver_numbers_is_told_with_the_program_s_words(script):
    finished = script(
        """
        import torch
        torch.zeros(4, device="cuda")[torch.tensor([1 << 30], device="cuda")]
        torch.cuda.synchronize()
        """,
        "--sample=1",
    )
    assert finished.returncode == 1, finished
    assert "device-side assert triggered" in finished.stderr, finished
    assert "closed its report channel" not in finished.stderr, finished
    assert "GPU 0 of node" not in finished.stderr or "fault of the program" in finished.stderr, finished


def test_what_a_device_does_is_sampled(script, place):
    finished = script(
        """
        import time, torch
        a = torch.randn(4096, 4096, device="cuda")
        end = time.monotonic() + 5
        while time.monotonic() < end:
            for _ in range(10):
                a @ a
            torch.cuda.synchronize()
        """,
        "--sample=0.5",
    )
    assert finished.returncode == 0, finished
    told = execute(
        COMMAND, "metrics", "run", "--storage-path", place / "runs", "--format", "openmetrics"
    ).stdout
    values = dict(line.rsplit(" ", 1) for line in told.splitlines() if 'device="0"' in line)
    value = {name.split("{")[0]: float(text) for name, text in values.items()}
    properties = torch.cuda.get_device_properties(0)
    assert value["trainyard_device_memory_size_bytes"] >= properties.total_memory
    assert value["trainyard_device_memory_used_bytes"] > 4096 * 4096 * 4
    assert 0 <= value["trainyard_device_utilization_ratio"] <= 1
    with sqlite3.connect(place / "runs" / "run" / "usage.db") as usage:  # the last sample may be behind the work
        [busiest] = usage.execute("SELECT max(max) FROM samples WHERE what = 'device_utilization'").fetchone()
    assert 0 < busiest <= 1
    assert 0 < value["trainyard_device_power_watts"] < 2000
    assert value["trainyard_device_clock_hertz"] > 1e8


def test_kernels_are_in_a_profile(place):
    from trainyard import RunConfig, ScalingConfig
    from trainyard.torch import TorchTrainer

    def learn():
        import torch
        import trainyard

        a = torch.randn(256, 256, device="cuda")
        with trainyard.profile(steps=range(1, 3)) as profiler:
            for _ in range(4):
                a = (a @ a).tanh()
                torch.cuda.synchronize()
                trainyard.report({"mean": a.mean().item()})
                profiler.step()

    scaling = ScalingConfig(num_workers=1, use_gpu=True)
    TorchTrainer(
        learn, scaling_config=scaling, run_config=RunConfig(name="run", storage_path=str(place / "runs"))
    ).fit()
    trace = place / "trace.json"
    finished = execute(
        COMMAND, "trace", "run", "--storage-path", place / "runs", "--with-profile", "-o", trace
    )
    assert finished.returncode == 0, finished
    assert any(event.get("cat") == "kernel" for event in json.loads(trace.read_text())["traceEvents"])
