"""TorchTrainer: the process group of a run, models, and training on several workers."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import nullcontext

import pytest
import trainyard
from trainyard import (
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    WorkerGroupError,
    _command,
    init,
    limits,
    runtime,
)
from trainyard import torch as yard
from trainyard.torch import TorchConfig, TorchTrainer, group, hints
from trainyard.torch.config import uses_nccl

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("common_directory")


@pytest.fixture
def fit(storage):
    """fit(function, workers, config of the group, config of the function, **run config)"""

    def fit(function, workers=2, group=None, config=None, scaling=None, **run):
        return TorchTrainer(
            function,
            train_loop_config=config,
            torch_config=group,
            scaling_config=ScalingConfig(num_workers=workers, **(scaling or {})),
            run_config=RunConfig(storage_path=storage, **run),
        ).fit()

    return fit


def failure_of(fit, *arguments, **options):
    """The exception of the first rank that failed."""
    with pytest.raises(WorkerGroupError) as caught:
        fit(*arguments, **options)
    return next(iter(caught.value.worker_failures.values()))


# -- what is wrong is refused before anything starts


def nothing():
    pass


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"init_method": "file"}, "`TorchConfig.init_method`='file' must be either 'env' or 'tcp'"),
        ({"init_method": None}, "'env' or 'tcp'"),
        ({"timeout_s": 0}, "`TorchConfig.timeout_s`=0 must be a number of seconds"),
        ({"timeout_s": -1.5}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"timeout_s": "60"}, "timeout_s"),
        ({"timeout_s": True}, "timeout_s"),
        ({"backend": ""}, "`TorchConfig.backend`='' must be None, the name of a backend"),
        ({"backend": 3}, "`TorchConfig.backend`=3"),
        ({"backend": "cpu:gloo:x"}, "TorchConfig.backend"),
        ({"backend": "cpu:,cuda:nccl"}, "TorchConfig.backend"),
        ({"backend": "gloo,nccl"}, "each needs its device"),
    ],
)
def test_wrong_configs(fit, storage, wrong, text):
    with pytest.raises(ValueError) as caught:
        fit(nothing, group=TorchConfig(**wrong))
    assert text in str(caught.value)
    assert not os.path.exists(storage)


def test_wrong_classes():
    with pytest.raises(
        ValueError, match="`torch_config` must be a trainyard.torch.TorchConfig, not builtins.dict"
    ):
        TorchTrainer(nothing, torch_config={"backend": "gloo"})
    with pytest.raises(ValueError, match="0 or 1 required arguments, but it accepts 2"):
        TorchTrainer(lambda a, b: None)
    with pytest.raises(DeprecationWarning):
        TorchTrainer(nothing, metadata={})
    with pytest.raises(DeprecationWarning):
        TorchTrainer.restore("x")


@pytest.mark.parametrize("name", ["accelerate", "prepare_optimizer", "backward"])
def test_names_that_are_gone(name):
    with pytest.raises(DeprecationWarning, match=f"`{name}` is deprecated"):
        getattr(yard, name)(None)


def test_names_that_never_were():
    with pytest.raises(AttributeError, match="get_devise"):
        _ = yard.get_devise
    assert set(yard.__all__) < set(dir(yard))


@pytest.mark.parametrize(
    "backend, expected",
    [
        ("nccl", True),
        ("cuda:nccl", True),
        ("cpu:gloo,cuda:nccl", True),
        ("cpu:gloo, cuda:NCCL", True),
        ("gloo", False),
        ("cpu:nccl", False),
        ("cuda:gloo", False),
    ],
)
def test_is_nccl(backend, expected):
    assert uses_nccl(backend) is expected


def test_which_backend():
    assert (
        TorchConfig().choose(0) == "gloo" and TorchConfig().choose(0.5) == TorchConfig().choose(1) == "nccl"
    )
    assert TorchConfig(backend="gloo").choose(1) == "gloo"


def test_outside_of_a_training_function():
    with pytest.raises(RuntimeError, match="prepare_model.*outside of a Trainyard training function"):
        yard.prepare_model(torch.nn.Linear(1, 1))


# -- the group


def look(config):
    """What a training function finds."""
    import torch.distributed as dist

    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    mine = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(mine)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "ACCELERATE_TORCH_DEVICE")
    trainyard.report(
        {
            "initialized": dist.is_initialized(),
            "backend": dist.get_backend(),
            "size": dist.get_world_size(),
            "sum": mine.item(),
            "keys": store.num_keys() > 0,
            "environment": [os.environ[name] for name in names],
            "config": config,
        }
    )


@pytest.mark.parametrize(
    "group", [None, TorchConfig(backend="gloo", init_method="tcp"), TorchConfig(backend="cpu:gloo")]
)
def test_the_group_stands(fit, group):
    found = fit(look, 2, group, {"a": 1}).metrics
    assert found.pop("backend") in ("gloo", "cpu:gloo")
    assert found == {
        "initialized": True,
        "size": 2,
        "sum": 3.0,
        "keys": True,
        "environment": ["0", "2", "0", "2", "0", "cpu"],
        "config": {"a": 1},
    }


def test_one_worker_has_a_group_too_and_the_driver_no_torch(start, storage):
    script = f"""
        import sys
        import trainyard
        from trainyard import RunConfig, ScalingConfig
        from trainyard.torch import TorchTrainer

        def train():
            import torch.distributed as dist
            trainyard.report({{"size": dist.get_world_size()}})

        for method in ("template", "spawn"):
            run = RunConfig(storage_path={storage!r}, start_method=method)
            print(TorchTrainer(train, run_config=run).fit().metrics)
        print("torch" in sys.modules, "numpy" in sys.modules)
    """
    finished = start(script).finish()
    assert finished.out == "{'size': 1}\n{'size': 1}\nFalse False\n", finished


def test_gpus_that_torch_does_not_see(fit, capfd):
    if torch.cuda.is_available():
        pytest.skip("torch sees one here")
    init(num_cpus=2, num_gpus=2)
    found = fit(look, scaling={"use_gpu": True}).metrics
    assert found["backend"] == "gloo" and found["sum"] == 3 and found["environment"][-1] == "cuda:0"
    assert "the backend is gloo, not nccl" in capfd.readouterr().err


def test_a_backend_that_torch_does_not_know(fit):
    for backend in ("foo", "cpu:foo", "cpu:gloo,cuda:foo"):
        with pytest.raises(
            ValueError, match="'foo' is no backend of torch.distributed, which has gloo, nccl, mpi, ucc"
        ):
            TorchConfig(backend=backend)
    with pytest.raises(ValueError, match="did you mean 'gloo'?"):
        TorchConfig(backend="cpu:glooo")
    config = TorchConfig()
    config.backend = "foo"
    with pytest.raises(ValueError, match="'foo' is no backend"):
        fit(nothing, group=config)
    assert TorchConfig(backend="NCCL").backend == "NCCL" and TorchConfig(backend="hccl").backend == "hccl"


def test_a_backend_that_is_registered_here(fit):
    torch.distributed.Backend.register_backend("mine", lambda *arguments: None)
    assert TorchConfig(backend="cpu:mine").backend == "cpu:mine"


def test_a_stuck_collective_ends_the_run(fit):
    def train():
        import torch.distributed as dist

        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1))
        else:
            __import__("time").sleep(600)

    for timeout_s in (6, 60):
        failure = failure_of(fit, train, group=TorchConfig(timeout_s=timeout_s))
        if "for rank 0 to tell" not in str(failure):  # or the ranks began so far apart that there was no group
            break
    assert "imed out" in str(failure)


def test_a_rank_that_never_comes(monkeypatch):
    class Core:
        def store_wait(self, key, limit_s):
            raise TimeoutError("no such key")

    with pytest.raises(RuntimeError, match=r"waited 3 s \(TorchConfig.timeout_s\) for rank 0"):
        group._found(Core(), "torch/1/store", 3)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_the_store_listens_where_it_is_told_to_only(host):
    from datetime import timedelta

    from torch.distributed import TCPStore

    try:
        listening, port = group._listen(host)
    except RuntimeError as error:
        pytest.skip(str(error))
    address = listening.getsockname()[0]
    store = group._serve(listening, host, port, 2, 60)
    client = TCPStore(host, port, 2, False, timedelta(seconds=60))
    client.set("key", "value")
    assert store.get("key") == b"value" and address in ("127.0.0.1", "::1")
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", port), timeout=1)


def test_an_address_that_is_not_here():
    with pytest.raises(RuntimeError, match=r"rank 0 cannot listen on 192.0.2.1 \(MASTER_ADDR\)"):
        group._listen("192.0.2.1")


def test_ranks_that_return_early_wait_for_the_others(fit):
    def train():
        import torch.distributed as dist

        if dist.get_rank() == 0:
            sys.exit(0)  # no failure: as if it had returned
        __import__("time").sleep(0.5)
        pair = dist.new_group([1, 2], use_local_synchronization=True)
        mine = torch.ones(1)
        dist.all_reduce(mine, group=pair)
        assert mine.item() == 2

    fit(train, 3)


def test_a_rank_that_ends_without_returning_is_told(fit):
    def train():
        trainyard.collective.barrier()  # the group stands on both
        if trainyard.get_context().get_world_rank() == 1:
            __import__("os")._exit(0)

    failure = failure_of(fit, train)
    assert "returned here, but rank 1 has ended before it returned there" in str(failure)


def test_a_rank_may_destroy_its_group_itself(fit):
    def train():
        import torch.distributed as dist

        if dist.get_rank() == 1:
            dist.destroy_process_group()

    fit(train)


@pytest.mark.parametrize("limit", ["0", "20"])
def test_shutdown_has_its_limit(fit, limit):
    environment = {"TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": limit}
    assert fit(look, worker_runtime_env={"env_vars": environment}).metrics["sum"] == 3


def test_shutdown_with_a_wrong_limit(fit):
    environment = {"TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "soon"}
    with pytest.raises(ValueError, match="TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S='soon' must be a number of seconds"):
        fit(nothing, worker_runtime_env={"env_vars": environment})


def test_a_limit_that_is_passed(caplog):
    import threading

    stuck = threading.Event()
    assert not limits.within(0.05, stuck.wait, "the wait did not end")
    assert "the wait did not end within 0.05 s; going on without" in caplog.text
    stuck.set()

    def fail():
        raise OSError("gone")

    assert not limits.within(5, fail, "it was not done")
    assert "it was not done: gone" in caplog.text
    assert not limits.within(0, fail, "not called")
    assert limits.within(5, nothing, "done")


def test_a_new_attempt_has_a_group_of_its_own(fit):
    def train():
        import torch.distributed as dist

        mine = torch.ones(1)
        dist.all_reduce(mine)
        attempt = trainyard.get_context().get_attempt()
        assert attempt > 1 or dist.get_rank() != 1
        trainyard.report({"attempt": attempt, "sum": mine.item()})

    found = fit(train, failure_config=FailureConfig(max_failures=1)).metrics
    assert found == {"attempt": 2, "sum": 2.0}


def test_ranks_by_hand(fit):
    """A group that a program takes down may be set up again, at the same address."""

    def train():
        import torch.distributed as dist

        dist.barrier()
        dist.destroy_process_group()
        trainyard.collective.barrier()  # or rank 1 might come to the store that rank 0 is about to take down
        dist.init_process_group("gloo")
        mine = torch.ones(1)
        dist.all_reduce(mine)
        trainyard.report({"sum": mine.item()})

    assert fit(train).metrics == {"sum": 2.0}


# -- under an outer torchrun


def test_under_torchrun(start, tmp_path):
    script = """
        import sys
        import trainyard
        from trainyard import ScalingConfig
        from trainyard.torch import TorchTrainer

        def train():
            import torch
            import torch.distributed as dist
            mine = torch.ones(1) * (dist.get_rank() + 1)
            dist.all_reduce(mine)
            context = trainyard.get_context()
            trainyard.report({"sum": mine.item(), "rank": context.get_world_rank(), "size": context.get_world_size()})

        for _ in range(2):  # the second finds nothing of the first
            result = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=0)).fit()
        sys.stdout.write(str(result.metrics) + chr(10))  # in one piece: two ranks share the pipe
    """
    import subprocess
    import textwrap

    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(script))
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(program),
    ]
    cpus = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(torchrun, capture_output=True, text=True, timeout=300, env=cpus)
    lines = sorted(done.stdout.splitlines())
    assert lines == [f"{{'sum': 3.0, 'rank': {rank}, 'size': 2}}" for rank in range(2)], done.stderr


def test_other_trainers_may_use_the_group(storage):
    trainer = DataParallelTrainer(
        look,
        backend_config=TorchConfig(),
        train_loop_config={},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=storage),
    )
    assert trainer.fit().metrics["sum"] == 3


def test_reproducible(fit):
    def train():
        import random

        import numpy
        from trainyard.torch import enable_reproducibility

        enable_reproducibility(7)
        assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        trainyard.report({"numbers": [torch.rand(1).item(), random.random(), float(numpy.random.rand())]})

    assert fit(train, 1).metrics == fit(train, 1).metrics


# -- models; from here on templates have imported the compiler, too


def test_models(fit):
    def train():
        from torch.nn.parallel import DistributedDataParallel as DDP
        from trainyard.torch import prepare_model

        model = lambda: torch.nn.Linear(2, 2)
        wrapped = prepare_model(model(), parallel_strategy_kwargs={"broadcast_buffers": False})
        assert isinstance(wrapped, DDP) and not wrapped.broadcast_buffers
        on_cpu = prepare_model(model(), move_to_device=torch.device("cpu"))
        assert isinstance(on_cpu, DDP) and next(on_cpu.parameters()).device.type == "cpu"
        assert type(prepare_model(model(), parallel_strategy=None)) is torch.nn.Linear
        meta = prepare_model(model(), move_to_device=torch.device("meta"), parallel_strategy=None)
        assert next(meta.parameters()).device.type == "meta"
        assert isinstance(prepare_model(model(), move_to_device=False), DDP)
        with pytest.raises(ValueError, match='`parallel_strategy`=\'dp\' must be "ddp", "fsdp" or None'):
            prepare_model(model(), parallel_strategy="dp")
        if not torch.cuda.is_available():
            with pytest.raises(RuntimeError, match='"fsdp"` needs CUDA'):
                prepare_model(model(), parallel_strategy="fsdp")

    fit(train)


def test_a_model_of_one_worker_is_not_wrapped():
    from trainyard.torch import prepare_model

    model = torch.nn.Linear(2, 2)
    fit = TorchTrainer(lambda: prepare_model(model), scaling_config=ScalingConfig(num_workers=0)).fit
    assert fit().return_value is model


# -- training


def train_digits(config):
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from trainyard.torch import prepare_data_loader, prepare_model

    sys.path.insert(0, config["examples"])
    import digits

    images, labels = digits.load(os.path.join(config["examples"], "data", "digits.csv"))
    workers = trainyard.get_context().get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    model = prepare_model(model)
    # 44 batches of 32, in order: every so-manieth image of a batch is a worker's own
    data = TensorDataset(images[:1408], labels[:1408])
    loader = prepare_data_loader(DataLoader(data, batch_size=32 // workers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = (model(images[1408:]).argmax(1) == labels[1408:]).float().mean().item()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    trainyard.report({"accuracy": accuracy, "weights": weights.tolist()})


def test_four_workers_learn_what_one_does(fit):
    examples = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "examples"))
    one, four = (fit(train_digits, workers, config={"examples": examples}).metrics for workers in (1, 4))
    assert one["accuracy"] == pytest.approx(four["accuracy"], abs=0.006) and one["accuracy"] > 0.9
    assert four["weights"] == pytest.approx(one["weights"], abs=2e-4)


def test_sharded_and_tensor_parallel_models(fit):
    """What torch offers beside DDP runs on the group that stands."""

    def train():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        torch.manual_seed(0)
        make = lambda: torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        plain, x = make(), torch.rand(4, 8)
        expected = plain(x)
        mesh = init_device_mesh("cpu", (2,))
        sharded = make()
        sharded.load_state_dict(plain.state_dict())
        fully_shard(sharded, mesh=mesh)
        assert torch.allclose(sharded(x), expected, atol=1e-6)
        split = make()
        split.load_state_dict(plain.state_dict())
        split = parallelize_module(split, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        assert torch.allclose(split(x), expected, atol=1e-6)
        split(x).sum().backward()

    fit(train)


# -- what the fork template imports


def bare():
    import torch.distributed as dist

    dist.barrier()


def with_optimizer():
    def inner():
        torch.optim.SGD([torch.ones(1)], lr=0.1)

    inner()


def helper():
    yard.prepare_model(None)


def calls_helper():
    helper()


class Callable:
    def __call__(self):
        helper()

    def method(self):
        helper()


@pytest.mark.parametrize("function", [bare, nothing, len, print, lambda: 1])
def test_functions_that_need_no_compiler(function):
    assert not hints.needs_compiler(function)
    assert TorchTrainer(function).backend_config.preload == ("torch",)


@pytest.mark.parametrize(
    "function",
    [
        with_optimizer,
        helper,
        calls_helper,
        Callable(),
        Callable().method,
        lambda: calls_helper(),
        __import__("functools").partial(calls_helper),
    ],
)
def test_functions_that_need_the_compiler(function):
    assert hints.needs_compiler(function)


def profiled():
    options = {"ranks": 1, "activities": [torch.profiler.ProfilerActivity.CPU]}
    with trainyard.profile(steps=range(2, 4), record_shapes=True, **options) as profiler:
        for step in range(6):
            torch.nn.Linear(8, 8)(torch.randn(8, 8)).sum().backward()
            trainyard.report({"step": step, "clock": time.time_ns()})
            profiler.step()
    told = pytest.warns(RuntimeWarning, match="step 9 was not reached")
    with told if trainyard.get_context().get_world_rank() == 1 else nullcontext():
        with trainyard.profile(range(9, 10), **options):
            pass
    for wrong in ({"steps": 0}, {"steps": True}, {"steps": range(3, 3)}, {"steps": range(0, 4, 2)}, {"ranks": -1}, {"ranks": "0"}):
        with pytest.raises(ValueError, match="`(steps|ranks)` must be"):
            trainyard.profile(**wrong)


def test_options_that_a_profile_sets_itself(monkeypatch):
    monkeypatch.setattr(runtime, "_session", runtime.Session())
    for options in ({"on_trace_ready": print}, {"steps": 2, "schedule": print}):
        with pytest.raises(ValueError, match=rf"trainyard.profile\({list(options)[-1]}=...\)"):
            trainyard.profile(**options)
    trainyard.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=2))


def killed_as_it_writes(config):
    first = not os.path.exists(config["marker"])
    with open(config["marker"], "w"):
        pass
    with trainyard.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        torch.randn(8, 8).sum()
        if first:
            os.replace = lambda part, path: os.kill(os.getpid(), 9)


def test_a_profile_that_is_killed_leaves_nothing_behind_the_next(fit, tmp_path):
    config = {"marker": str(tmp_path / "marker")}
    result = fit(killed_as_it_writes, 1, config=config, failure_config=FailureConfig(max_failures=1))
    assert os.listdir(f"{result.path}/logs/profile") == ["rank-0.pt.trace.json.gz"]


def test_profiles_of_steps(fit, storage, tmp_path):
    """What the profiler saw is where the clock stood in the step, in the trace of the run."""
    with pytest.raises(RuntimeError, match="outside of a"):
        trainyard.profile()
    path = fit(profiled, name="p").path
    assert os.listdir(f"{path}/logs/profile") == ["rank-1.pt.trace.json.gz"]
    command = [_command.path(), "trace", "p", "--storage-path", storage, "--with-profile", "-o", str(tmp_path / "t.json")]
    subprocess.run(command, check=True)
    trace = json.loads((tmp_path / "t.json").read_text())
    events = trace["traceEvents"]
    reports = {event["args"]["step"]: event["args"] for event in events if "clock" in event.get("args", {})}
    steps = [event for event in events if event["name"].startswith("ProfilerStep")]
    assert [step["name"] for step in steps] == ["ProfilerStep#2", "ProfilerStep#3"]
    for step, number in zip(steps, (2, 3)):
        clock = (reports[number]["clock"] - int(trace["otherData"]["began_ns"])) / 1000
        assert step["ts"] - 1e6 < clock < step["ts"] + step["dur"] + 1e6
    assert any(event["name"] == "aten::linear" and event["pid"] == steps[0]["pid"] for event in events)


def test_a_config_serves_several_trainers():
    config = TorchConfig(timeout_s=60)
    assert TorchTrainer(helper, torch_config=config).backend_config.preload == ("torch", hints.COMPILER)
    assert TorchTrainer(bare, torch_config=config).backend_config.preload == ("torch",)
    assert config == TorchConfig(timeout_s=60) and config.preload == ("torch",)


def test_what_is_imported_once_is_there_in_the_worker(fit):
    def train():
        before = "torch._dynamo" in sys.modules
        torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
        trainyard.report({"before": before, "after": "torch._dynamo" in sys.modules})

    assert fit(train, 1, start_method="template").metrics == {"before": True, "after": True}


def test_importing_starts_no_thread(start):
    script = """
        import os
        import torch, trainyard.torch.compiler
        print(len(os.listdir("/proc/self/task")))
    """
    assert start(script, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1").finish().out == "1\n"
