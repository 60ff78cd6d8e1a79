"""Programs written for Ray Train, run unchanged: each of ray_programs/ in a process of its own."""

import glob
import importlib.util
import json
import os
import subprocess
import sys
import textwrap

import pytest
from conftest import Script, tpu_hosts

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ray_programs")


GPU_HOSTS = [
    {"name": "small", "resources": {"CPU": 8, "GPU": 4}, "accelerator_type": "T4"},
    {"name": "large", "resources": {"CPU": 8, "GPU": 4}, "accelerator_type": "A100"},
]
CPUS = ["--num-cpus", "8"]

# program: (arguments, nodes of a cluster file or options that say what this machine has)
RUNS = [
    ("number_of_workers", [], []),
    ("tpu_slices", [], []),
    ("amounts", [], []),
    ("overview", [], [*CPUS, "--num-gpus", "4"]),
    ("gloo_backend", ["1"], []),
    ("gloo_backend", ["2"], CPUS),
    ("network_interface", [], CPUS),
    ("logical_gpu", [], []),
    ("kind_of_gpu", [], GPU_HOSTS),
    ("tpu_workers", ["1"], tpu_hosts("a")),
    ("tpu_workers", ["2"], tpu_hosts("ab")),
    ("tpu_data", [], tpu_hosts("a")),
    ("cluster", [], []),
    ("data", [], CPUS),
]
# These need a package: they are collected only where it is installed.
WRAPPED = {"with_lightning": "lightning", "with_lightning_async": "lightning", "with_transformers": "transformers"}
# These assert that torch sees so many GPUs: they are collected only where it does.
REAL_GPUS = {"real_gpu": 1, "real_gpus": 2}


def gpus_here():
    text = "import torch; print(torch.cuda.device_count())"
    answer = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return int(answer.stdout)


def wrapped_runs():
    return [(program, [], CPUS) for program, package in WRAPPED.items() if importlib.util.find_spec(package)]


def real_gpu_runs():
    if not glob.glob("/dev/nvidia[0-9]*"):
        return []
    here = gpus_here()
    return [(program, [], []) for program, needed in REAL_GPUS.items() if needed <= here]


class Program(Script):
    """A program under `python -m trainyard.as_ray`."""

    def __init__(self, place, program, arguments, nodes, **environment):
        self._place = place
        options = list(nodes)
        if nodes and isinstance(nodes[0], dict):
            (place / "cluster.yaml").write_text(json.dumps({"nodes": nodes}))
            options = ["--cluster", "cluster.yaml"]
        path = program if os.path.isabs(program) else os.path.join(PROGRAMS, program + ".py")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainyard.as_ray", *options, path, *arguments],
            cwd=place,
            env={**os.environ, **environment},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
        )


@pytest.fixture
def run(place, start):
    """run(program, arguments, nodes, **environment): the program, finished; nothing of it is left after the test."""
    return lambda program, arguments=(), nodes=(), **environment: Program(
        place, program, list(arguments), list(nodes), **environment
    ).finish()


def test_every_program_has_a_run():
    programs = {os.path.basename(path)[:-3] for path in glob.glob(os.path.join(PROGRAMS, "*.py"))}
    assert programs == {program for program, _, _ in RUNS} | {"line"} | set(REAL_GPUS) | set(WRAPPED)


@pytest.mark.parametrize(
    "program, arguments, nodes", RUNS + wrapped_runs() + real_gpu_runs(), ids=lambda value: str(value)[:24]
)
def test_program(run, program, arguments, nodes):
    finished = run(program, arguments, nodes)
    assert finished.status == 0, finished
    assert finished.out.splitlines()[-1].startswith("ok"), finished


@pytest.mark.parametrize("start_method", ["spawn", "template"])
def test_ray_is_there_however_workers_start(place, run, start_method):
    text = f"""
        import ray
        from ray.train import ScalingConfig, RunConfig
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        def learn():
            import ray.train.torch, sys
            from ray import tune
            ray.train.report({{"rank": ray.train.get_context().get_world_rank(), "initialized": ray.is_initialized()}})

        run_config = RunConfig(start_method={start_method!r})
        result = DataParallelTrainer(learn, scaling_config=ScalingConfig(num_workers=2), run_config=run_config).fit()
        assert result.metrics == {{"rank": 0, "initialized": True}}
        print("ok")
        """
    path = place / "program.py"
    path.write_text(textwrap.dedent(text))
    finished = run(str(path), nodes=CPUS)
    assert finished.status == 0 and finished.out.endswith("ok\n"), finished


def test_a_name_that_exists_is_resumed(run):
    first, second = run("line", ["3"], CPUS), run("line", ["5"], CPUS)
    for one in (first, second):
        assert one.status == 0 and one.out.splitlines()[-1] == "ok", one
    assert "start 0 " in first.out
    assert "start 3 " in second.out
    assert "resume" not in first.err + second.err  # nobody asked for it


def test_functions_of_a_module_beside_the_script(place, run):
    (place / "library").mkdir()
    (place / "library" / "loops.py").write_text(
        "from ray import train\n\ndef learn():\n    train.report({'rank': train.get_context().get_world_rank()})\n"
    )
    (place / "library" / "program.py").write_text(
        "from loops import learn\nfrom ray.train import ScalingConfig\nfrom ray.train.torch import TorchTrainer\n"
        "assert TorchTrainer(learn, scaling_config=ScalingConfig(num_workers=2)).fit().metrics == {'rank': 0}\nprint('ok')\n"
    )
    finished = run(str(place / "library" / "program.py"), nodes=CPUS)
    assert finished.status == 0 and finished.out.endswith("ok\n"), finished


def test_a_working_directory_of_the_runtime_environment(place, run):
    (place / "work").mkdir()
    (place / "work" / "data.txt").write_text("seven")
    (place / "program.py").write_text(
        "import ray\nfrom ray.train import ScalingConfig, report\n"
        "from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer\n"
        "ray.init(runtime_env={'working_dir': 'work'})\n"
        "result = DataParallelTrainer(lambda: report({'text': open('data.txt').read()})).fit()\n"
        "assert result.metrics == {'text': 'seven'}\nprint('ok')\n"
    )
    finished = run(str(place / "program.py"), nodes=CPUS)
    assert finished.status == 0 and finished.out.endswith("ok\n"), finished


def test_a_failure_in_a_worker_is_the_program_s(place, run):
    (place / "program.py").write_text(
        "import ray.train\nfrom ray.train import ScalingConfig, WorkerGroupError\n"
        "from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer\n"
        "def learn():\n    raise KeyError('lost')\n"
        "try:\n    DataParallelTrainer(learn, scaling_config=ScalingConfig(num_workers=2)).fit()\n"
        "except WorkerGroupError as error:\n"
        "    assert isinstance(error, ray.train.TrainingFailedError)\n"
        "    assert all(isinstance(one, KeyError) for one in error.worker_failures.values())\n    print('ok')\n"
    )
    finished = run(str(place / "program.py"), nodes=CPUS)
    assert finished.status == 0 and finished.out.endswith("ok\n"), finished


def test_local_mode(place, run):
    (place / "program.py").write_text(
        "import ray\nfrom ray.train import ScalingConfig, report\nfrom ray.train.torch import TorchTrainer\n"
        "def learn(config):\n    report({'rank': ray.train.get_context().get_world_rank(), **config})\n"
        "scale = ScalingConfig(num_workers=0)\n"
        "result = TorchTrainer(learn, train_loop_config={'lr': 1}, scaling_config=scale).fit()\n"
        "assert result.metrics == {'rank': 0, 'lr': 1} and result.path is None\nprint('ok')\n"
    )
    finished = run(str(place / "program.py"))
    assert finished.status == 0 and finished.out.endswith("ok\n"), finished


def test_devices_are_not_shared_when_the_variable_says_so(place, run):
    (place / "program.py").write_text(
        "import os, ray\nfrom ray.train import ScalingConfig, report\n"
        "from ray.train.torch import TorchConfig, TorchTrainer, get_device\n"
        "ray.init(num_gpus=2)\n"
        "def learn():\n"
        "    rank = ray.train.get_context().get_world_rank()\n"
        "    assert os.environ['CUDA_VISIBLE_DEVICES'] == str(rank) and str(get_device()) == 'cuda:0'\n"
        "    assert ray.get_gpu_ids() == [rank]\n"
        "scale = ScalingConfig(num_workers=2, use_gpu=True)\n"
        "TorchTrainer(learn, scaling_config=scale, torch_config=TorchConfig(backend='gloo')).fit()\nprint('ok')\n"
    )
    finished = run(str(place / "program.py"), TRAIN_ENABLE_SHARE_CUDA_VISIBLE_DEVICES="0")
    assert finished.status == 0 and finished.out.endswith("ok\n"), finished


SHARING = """import os, ray
from ray.train import ScalingConfig
from ray.train.backend import Backend, BackendConfig
from ray.train.data_parallel_trainer import DataParallelTrainer
from ray.train.torch import TorchConfig, TorchTrainer
ray.init(num_gpus=2)
class Shares(Backend):
    share_cuda_visible_devices = True
class Sharing(BackendConfig):
    backend_cls = Shares
class Apart(TorchConfig):
    backend_cls = Backend
def learn():
    return os.environ['CUDA_VISIBLE_DEVICES']
scale = ScalingConfig(num_workers=2, use_gpu=True)
def seen(trainer, **config):
    return trainer(learn, scaling_config=scale, **config).fit().return_value
print(seen(DataParallelTrainer), seen(DataParallelTrainer, backend_config=Sharing()),
    seen(TorchTrainer, torch_config=TorchConfig(backend='gloo')), seen(TorchTrainer, torch_config=Apart(backend='gloo')))
"""


@pytest.mark.parametrize("variable, seen", [("", "0 0,1 0,1 0"), ("1", "0,1 0,1 0,1 0,1"), ("0", "0 0 0 0")])
def test_the_backend_says_whether_devices_are_shared_unless_the_variable_does(place, run, variable, seen):
    (place / "program.py").write_text(SHARING)
    finished = run(str(place / "program.py"), TRAIN_ENABLE_SHARE_CUDA_VISIBLE_DEVICES=variable)
    assert finished.status == 0 and finished.out.splitlines()[-1] == seen, finished


KINDS = """import os
from ray.train import ScalingConfig
from ray.train.backend import Backend, BackendConfig
from ray.train.data_parallel_trainer import DataParallelTrainer
class Shares(Backend):
    share_cuda_visible_devices = True
class Sharing(BackendConfig):
    backend_cls = Shares
def seen(variable, **scaling):
    trainer = DataParallelTrainer(
        lambda: os.environ[variable], backend_config=Sharing(), scaling_config=ScalingConfig(num_workers=2, **scaling)
    )
    return trainer.fit().return_value
print(
    seen("CUDA_VISIBLE_DEVICES", use_gpu=True, accelerator_type="T4"),
    seen("HIP_VISIBLE_DEVICES", use_gpu=True, accelerator_type="AMD-Instinct-MI210"),
    seen("NEURON_RT_VISIBLE_CORES", resources_per_worker={"neuron_cores": 1}),
    seen("ASCEND_RT_VISIBLE_DEVICES", resources_per_worker={"NPU": 1}),
)
"""
KINDS_OF_NODE = {"T4": "GPU", "AMD-Instinct-MI210": "GPU", "aws-neuron-core": "neuron_cores", "Ascend910B": "NPU"}


@pytest.mark.parametrize(
    "variable, seen",
    [
        ("NOTHING", "0,1 0,1 0,1 0,1"),
        ("CUDA_VISIBLE_DEVICES", "0 0,1 0,1 0,1"),
        ("HIP_VISIBLE_DEVICES", "0,1 0 0,1 0,1"),
        ("NEURON_CORES_ACCELERATOR", "0,1 0,1 0 0,1"),
        ("ASCEND_RT_VISIBLE_DEVICES", "0,1 0,1 0,1 0"),
    ],
)
def test_a_variable_keeps_devices_of_its_own_kind_apart(place, run, variable, seen):
    (place / "program.py").write_text(KINDS)
    nodes = [
        {"name": kind.lower(), "resources": {"CPU": 2, resource: 2}, "accelerator_type": kind}
        for kind, resource in KINDS_OF_NODE.items()
    ]
    finished = run(str(place / "program.py"), nodes=nodes, **{f"TRAIN_ENABLE_SHARE_{variable}": "0"})
    assert finished.status == 0 and finished.out.splitlines()[-1] == seen, finished


def test_what_a_worker_uses_and_is_not_there_is_told_as_its_failure(place, run):
    (place / "program.py").write_text(
        "import ray\nfrom ray.train.v2.api.data_parallel_trainer import DataParallelTrainer\n"
        "def learn():\n    ray.put(1)\nDataParallelTrainer(learn).fit()\n"
    )
    finished = run(str(place / "program.py"))
    assert finished.status == 1
    assert "ray.put is not provided: Trainyard is not a task system" in finished.err, finished


def test_a_request_that_never_fits_is_refused_at_once(place, run):
    (place / "program.py").write_text(
        "import ray\nfrom ray.train import ScalingConfig\n"
        "from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer\n"
        "ray.init(num_gpus=2)\n"
        "DataParallelTrainer(lambda: None, scaling_config=ScalingConfig(num_workers=4, use_gpu=True)).fit()\n"
    )
    finished = run(str(place / "program.py"))
    assert finished.status == 1
    assert "GPU" in finished.err.splitlines()[-1] and "TrainingFailedError" not in finished.out, finished
