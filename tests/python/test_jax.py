"""JaxTrainer: the JAX world of a run on CPUs, and the environment of workers that hold GPUs or TPU chips."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
import trainyard
from conftest import BUILD, tpu_hosts
from trainyard import RunConfig, ScalingConfig, WorkerGroupError, init
from trainyard.jax import JaxConfig, JaxTrainer, world

pytest.importorskip("jax")
pytestmark = pytest.mark.usefixtures("common_directory")


@pytest.fixture
def fit(storage):
    def fit(function, workers=2, config=None, scaling=None, **run):
        return JaxTrainer(
            function,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=workers, **(scaling or {})),
            run_config=RunConfig(storage_path=storage, **run),
        ).fit()

    return fit


# -- what is wrong is refused before anything starts


def nothing():
    pass


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"use_tpu": 1}, "`JaxConfig.use_tpu` must be True or False, not 1"),
        ({"use_gpu": "yes"}, "JaxConfig.use_gpu"),
        ({"use_tpu": True, "use_gpu": True}, "Cannot specify both"),
    ],
)
def test_wrong_configs(storage, wrong, text):
    trainer = JaxTrainer(nothing, jax_config=JaxConfig(**wrong), run_config=RunConfig(storage_path=storage))
    with pytest.raises(ValueError, match=text):
        trainer.fit()
    assert not os.path.exists(storage)


def test_wrong_classes():
    with pytest.raises(
        ValueError, match="Invalid `JaxConfig` type: `jax_config` must be a trainyard.jax.JaxConfig, "
    ):
        JaxTrainer(nothing, jax_config={})
    with pytest.raises(ValueError, match="must be a trainyard.ScalingConfig, "):
        JaxTrainer(nothing, scaling_config={"use_tpu": True})


def test_the_config_follows_from_the_scaling_config():
    assert JaxTrainer(nothing).backend_config == JaxConfig()
    gpu = ScalingConfig(use_gpu=True)
    assert JaxTrainer(nothing, scaling_config=gpu).backend_config == JaxConfig(use_gpu=True)
    tpu = ScalingConfig(use_tpu=True)
    trainer = JaxTrainer(nothing, scaling_config=tpu)
    assert trainer.backend_config == JaxConfig(use_tpu=True) and trainer.backend_config.preload == ()
    assert JaxTrainer(nothing, scaling_config=gpu, jax_config=JaxConfig()).backend_config == JaxConfig()


def test_ranks_that_share_a_gpu_share_its_memory():
    half = ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"GPU": 0.5})
    assert JaxConfig(use_gpu=True).environment(half) == {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.375"}
    assert JaxConfig(use_gpu=True).environment(ScalingConfig(num_workers=2, use_gpu=True)) == {}


@pytest.mark.parametrize(
    "config, platforms, size, expected",
    [
        (JaxConfig(), ["cpu"], 1, False),
        (JaxConfig(), ["cpu"], 2, True),
        (JaxConfig(), [], 2, True),
        (JaxConfig(use_tpu=True), ["tpu"], 1, True),
        (JaxConfig(use_tpu=True), ["tpu", "cpu"], 4, True),
        (JaxConfig(use_tpu=True), ["cpu"], 4, False),
        (JaxConfig(use_gpu=True), ["cuda"], 1, True),
        (JaxConfig(use_gpu=True), ["cpu"], 2, False),
    ],
)
def test_which_workers_are_a_world(config, platforms, size, expected):
    assert world.needs_world(config, platforms, size) is expected


# -- on CPUs


def add_up():
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("all",))
    mine = np.full((1,), jax.process_index() + 1, np.float32)
    split = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("all")), mine)
    add = jax.shard_map(
        lambda x: jax.lax.psum(x, "all"), mesh=mesh, in_specs=PartitionSpec("all"), out_specs=PartitionSpec()
    )
    return float(jax.jit(add)(split)[0])


def look():
    import jax

    context = trainyard.get_context()
    assert (jax.process_index(), jax.process_count()) == (context.get_world_rank(), context.get_world_size())
    trainyard.report(
        {
            "sum": add_up(),
            "local": jax.local_device_count(),
            "devices": jax.device_count(),
            "platform": jax.default_backend(),
        }
    )


def test_a_world_of_four_processes(fit):
    assert fit(look, 4).metrics == {"sum": 10.0, "local": 1, "devices": 4, "platform": "cpu"}


def test_the_driver_imports_no_jax_and_fresh_processes_do_as_well(start, storage):
    script = f"""
        import sys
        import trainyard
        from trainyard import RunConfig, ScalingConfig
        from trainyard.jax import JaxTrainer

        def train():
            import jax
            trainyard.report({{"size": jax.process_count(), "devices": len(jax.devices())}})

        run = RunConfig(storage_path={storage!r}, start_method="spawn")
        print(JaxTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit().metrics)
        print("jax" in sys.modules, "numpy" in sys.modules)
    """
    finished = start(script).finish()
    assert finished.out.endswith("{'size': 2, 'devices': 2}\nFalse False\n"), finished


def test_one_worker_is_by_itself(fit):
    def train():
        import jax

        trainyard.report({"world": jax.distributed.is_initialized(), "devices": jax.device_count()})

    assert fit(train, 1).metrics == {"world": False, "devices": 1}


def test_importing_starts_no_thread(start):
    script = """
        import os
        import jax
        print(len(os.listdir("/proc/self/task")))
    """
    assert start(script, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1").finish().out == "1\n"


def test_ranks_that_return_early_wait_for_the_others(fit):
    def train():
        import jax

        jax.devices()
        if jax.process_index() != 1:
            return
        time.sleep(1.5)
        trainyard.report({"done": jax.process_index()})

    environment = {"JAX_DISTRIBUTED_SHUTDOWN_TIMEOUT_S": "0.5"}
    fit(train, 3, worker_runtime_env={"env_vars": environment})


def test_shutdown_without_time_for_it(fit):
    environment = {"JAX_DISTRIBUTED_SHUTDOWN_TIMEOUT_S": "0"}
    assert fit(look, worker_runtime_env={"env_vars": environment}).metrics["sum"] == 3


@pytest.mark.parametrize("method", ["template", "spawn"])
def test_an_exception_comes_home_at_once(fit, method):
    def train():
        import jax

        if jax.process_index() == 1:
            raise KeyError("lost")
        time.sleep(300)

    begin = time.monotonic()
    with pytest.raises(WorkerGroupError) as caught:
        fit(train, start_method=method)
    assert isinstance(caught.value.worker_failures[1], KeyError)
    assert time.monotonic() - begin < 200, "JAX's own way out waits for the other ranks, for minutes"


def test_a_worker_that_is_told_to_end_does(fit, storage):
    def train():
        import jax

        if jax.process_index() == 1:
            raise KeyError("lost")
        time.sleep(60)

    with pytest.raises(WorkerGroupError):
        fit(train, name="told")
    with sqlite3.connect(os.path.join(storage, "told", "run.db")) as journal:
        (data,) = journal.execute("select data from events where kind = 'exited' and rank = 0").fetchone()
    journal.close()
    assert json.loads(data)["signal"] == signal.SIGTERM, "JAX took it for itself"


def test_a_coordinator_that_never_comes(monkeypatch):
    from trainyard import _core, runtime

    def never(key, limit_s):
        raise TimeoutError("no such key")

    monkeypatch.setattr(_core, "store_wait", never)
    with pytest.raises(RuntimeError, match="waited 300 s for rank 0 to start JAX's coordinator"):
        world._wait_for_coordinator(runtime.Session())


def test_the_digits(fit):
    import sys

    examples = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "examples"))

    def train():
        sys.path.insert(0, examples)
        import digits_jax

        digits_jax.train({"data": os.path.join(examples, "data", "digits.csv")})

    found = fit(train, 2).metrics
    assert found["epoch"] == 14 and found["accuracy"] > 0.9


# -- GPUs and TPU chips, on nodes that only say that they have them


def tell(config):
    """Writes the variables that `config` names."""
    import jax

    rank = trainyard.get_context().get_world_rank()
    found = {name: os.environ.get(name) for name in config}
    found["world"] = jax.distributed.is_initialized()
    with open(os.path.join(os.environ["PLACE"], f"rank-{rank}"), "w") as file:
        json.dump(found, file)


@pytest.fixture
def told(fit, place, monkeypatch):
    """told(names, workers, scaling): the variables of each rank, whose JAX keeps to the CPU."""

    def told(names, workers, scaling):
        monkeypatch.setenv("JAX_PLATFORMS", "cpu")
        fit(tell, workers, config=names, scaling=scaling)
        return [json.loads((place / f"rank-{rank}").read_text()) for rank in range(workers)]

    return told


def test_gpu_workers_see_the_ids_that_they_were_given(told):
    init(num_cpus=4, num_gpus=4)
    scaling = {"use_gpu": True, "resources_per_worker": {"CPU": 1, "GPU": 2}}
    found = told(["CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS"], 2, scaling)
    assert found == [
        {"CUDA_VISIBLE_DEVICES": "0,1", "JAX_PLATFORMS": "cpu", "world": False},
        {"CUDA_VISIBLE_DEVICES": "2,3", "JAX_PLATFORMS": "cpu", "world": False},
    ]


def slices(place, names):
    """A cluster file of v6e slices of 4x4 chips: four hosts of four chips each."""
    path = place / "cluster.json"
    path.write_text(json.dumps({"nodes": tpu_hosts(names)}))
    init(cluster=path)


TPU = {"use_tpu": True, "topology": "4x4", "accelerator_type": "TPU-V6E"}
SLICES = ["MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_PORT", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID"]


def test_one_slice(told, place):
    slices(place, ["s1"])
    found = told([*SLICES, "TPU_NAME", "TPU_WORKER_ID", "JAX_PLATFORMS"], 4, TPU)
    for rank, worker in enumerate(found):
        assert [worker[name] for name in SLICES] == [None] * 4
        assert worker["TPU_NAME"] == "s1" and worker["TPU_WORKER_ID"] == str(rank)
        assert worker["JAX_PLATFORMS"] == "cpu" and not worker["world"]


def test_several_slices(told, place, monkeypatch):
    monkeypatch.setenv("MEGASCALE_NUM_SLICES", "99")
    monkeypatch.setenv("MEGASCALE_PORT", "9090")
    slices(place, ["s2", "s1"])
    found = told([*SLICES, "TPU_NAME", "MASTER_ADDR"], 8, TPU)
    for rank, worker in enumerate(found):
        assert worker["MEGASCALE_NUM_SLICES"] == "2" and worker["MEGASCALE_PORT"] == "9090"
        assert worker["MEGASCALE_COORDINATOR_ADDRESS"] == worker["MASTER_ADDR"]
        assert worker["MEGASCALE_SLICE_ID"] == str(rank // 4)
        assert worker["TPU_NAME"] == ("s1" if rank < 4 else "s2")


def test_too_many_workers_for_a_slice():
    with pytest.raises(ValueError, match="must be a multiple of"):
        ScalingConfig(num_workers=3, **TPU)


@pytest.mark.skipif(not os.path.exists("/dev/nvidia0"), reason="no GPU")
def test_on_gpus(fit):
    found = fit(look, 1, scaling={"use_gpu": True}).metrics
    assert found["platform"] == "gpu" and found["devices"] == 1


@pytest.mark.parametrize("framework", ["plain", "jax"])
def test_a_program_that_initializes_without_arguments_finds_the_run(place, framework):
    program = place / "program.py"
    program.write_text(
        "import jax\njax.distributed.initialize()\nprint(jax.process_index(), jax.process_count(), flush=True)\n"
    )
    command = os.path.join(os.path.abspath(BUILD), "trainyard")
    options = ["-n", "2", "--num-cpus", "2", "--framework", framework, "--no-prefix"]
    words = [command, "run", *options, "--", sys.executable, str(program)]
    finished = subprocess.run(words, capture_output=True, text=True, timeout=300, env={**os.environ, "HOME": str(place)})
    assert finished.returncode == 0, finished
    assert sorted(finished.stdout.split("\n")) == ["", "0 2", "1 2"]
