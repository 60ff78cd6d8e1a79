"""`fit` with real workers: ranks, configs, environments, names, and what ends a run before it begins."""

import functools
import os
import signal
import subprocess
import sys
import warnings

import pytest
import trainyard
from conftest import processes_with, wait_until
from trainyard import ControllerError, DataParallelTrainer, RunConfig, ScalingConfig
from trainyard.driver import Driver
from trainyard.errors import InsufficientClusterResourcesError
from trainyard.trainer import BackendConfig


@pytest.fixture
def fit(storage):
    def fit(function, workers=2, config=None, scaling=None, backend_config=None, **run):
        trainer = DataParallelTrainer(
            function,
            train_loop_config=config,
            backend_config=backend_config,
            scaling_config=scaling or ScalingConfig(num_workers=workers),
            run_config=RunConfig(storage_path=storage, **run),
        )
        return trainer.fit()

    return fit


METHODS = ["spawn", "template", "auto"]


@pytest.mark.parametrize("method", METHODS)
def test_every_worker_runs_the_function(fit, tmp_path, method):
    def train(config):
        context = trainyard.get_context()
        text = " ".join(
            str(number)
            for number in (
                context.get_world_rank(),
                context.get_world_size(),
                context.get_local_rank(),
                context.get_local_world_size(),
                context.get_node_rank(),
                context.get_attempt(),
                config["lr"],
            )
        )
        (config["place"] / str(context.get_world_rank())).write_text(text)
        assert context.get_experiment_name() == "named" and os.getcwd() == str(config["place"])
        assert context.get_storage().experiment_fs_path.endswith("/runs/named")
        trainyard.report({"rank": context.get_world_rank()})

    result = fit(train, 4, {"lr": 0.5, "place": tmp_path}, name="named", start_method=method)
    assert [(tmp_path / str(rank)).read_text() for rank in range(4)] == [
        f"{rank} 4 {rank} 4 0 1 0.5" for rank in range(4)
    ]
    assert result.path == str(tmp_path / "runs" / "named") and os.path.exists(result.path + "/run.db")
    assert result.metrics == {"rank": 0} and result.error is None and result.checkpoint is None


def test_functions_of_any_kind(fit):
    base = 1
    seen = []
    result = fit(lambda: trainyard.report({"x": base + 1}), 1)
    assert result.metrics == {"x": 2} and seen == []
    partial = functools.partial(lambda a, config: trainyard.report({"x": a, **config}), 5)
    assert fit(partial, 1, {"y": 6}).metrics == {"x": 5, "y": 6}
    assert fit(lambda config: trainyard.report({"config": config}), 1).metrics == {"config": {}}


def test_a_binding_is_asked_of_the_library():
    asked = [
        Driver(DataParallelTrainer(lambda: None, run_config=RunConfig(**fields))).request()["bind"]
        for fields in ({}, {"bind": "none"})
    ]
    assert asked == ["numa", "none"]


class OverGloo(BackendConfig):
    def comm_backend(self, scaling_config):
        return "gloo"


def test_what_a_scaling_config_is_warned_of_is_told_once(fit, capfd):
    trainyard.init(num_cpus=8, num_gpus=1)
    with pytest.warns() as caught:
        half = ScalingConfig(
            num_workers=2,
            use_gpu=True,
            resources_per_worker={"GPU": 0.5},
            trainer_resources={"CPU": 1},
            topology="4x4",
        )
        assert len(caught) == 2
        fit(lambda: None, scaling=half)
    assert [(one.category, one.filename) for one in caught] == [
        (DeprecationWarning, __file__),
        (UserWarning, __file__),
        (UserWarning, __file__),
    ]
    assert "NCCL" in str(caught[-1].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(lambda: None, scaling=half, backend_config=OverGloo())
    assert not any(word in capfd.readouterr().err for word in ("NCCL", "deprecated", "topology"))


def test_output_is_prefixed_and_kept(fit, capfd):
    def train():
        print("hello")
        print("error", file=sys.stderr)

    result = fit(train, 2)
    captured = capfd.readouterr()
    assert "[rank 0] hello\n" in captured.out and "[rank 1] hello\n" in captured.out
    assert "[rank 0] error\n" in captured.err
    with open(os.path.join(result.path, "logs", "rank-1.log")) as file:
        assert "hello" in file.read()
    fit(train, 1, quiet=True)
    assert "hello" not in capfd.readouterr().out


def test_environments(fit, monkeypatch):
    monkeypatch.setenv("OF_DRIVER", "1")
    monkeypatch.setenv("TWICE", "driver")
    trainyard.init(num_cpus=8, runtime_env={"env_vars": {"OF_INIT": "2", "TWICE": "init", "THRICE": "init"}})

    class Backend(BackendConfig):
        def environment(self, scaling_config):
            return {"OF_BACKEND": str(scaling_config.num_workers), "TWICE": "backend"}

    def train():
        names = ("OF_DRIVER", "OF_INIT", "OF_RUN", "OF_BACKEND", "TWICE", "THRICE", "RANK", "WORLD_SIZE")
        trainyard.report({name: os.environ.get(name) for name in names})

    environment = {"env_vars": {"OF_RUN": "3", "THRICE": "run"}}
    metrics = fit(train, 2, worker_runtime_env=environment, backend_config=Backend()).metrics
    assert metrics == {
        "OF_DRIVER": "1",
        "OF_INIT": "2",
        "OF_RUN": "3",
        "OF_BACKEND": "2",
        "TWICE": "init",
        "THRICE": "run",
        "RANK": "0",
        "WORLD_SIZE": "2",
    }
    assert "OF_RUN" not in os.environ


def test_a_variable_that_is_no_text_reaches_the_workers(fit, monkeypatch):
    monkeypatch.setenv("LATIN", os.fsdecode(b"caf\xe9"))
    assert fit(lambda: trainyard.report({"is": list(os.environb[b"LATIN"])})).metrics == {
        "is": [*b"caf", 0xE9]
    }


@pytest.mark.parametrize("method", ["template", "spawn"])
def test_a_path_of_the_user_s_does_not_hide_the_package(fit, tmp_path, method):
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "extra_module.py").write_text("VALUE = 3\n")

    def train():
        import extra_module

        trainyard.report({"value": extra_module.VALUE})

    environment = {"env_vars": {"PYTHONPATH": str(tmp_path / "beside")}}
    assert fit(train, worker_runtime_env=environment, start_method=method).metrics == {"value": 3}


def test_hooks_of_a_backend(fit):
    class Recorder(BackendConfig):
        def __init__(self):
            self.calls = []

        def on_start(self, session):
            self.calls.append(f"start {session.world_rank} {session.resources}")

        def on_training_start(self, session):
            self.calls.append("training_start")

        def train_func_context(self):
            import contextlib

            self.calls.append("context")
            return contextlib.closing(self)

        def close(self):
            self.calls.append("closed")

        def on_shutdown(self, session):
            self.calls.append("shutdown")
            trainyard.report({"calls": self.calls})

    metrics = fit(lambda: None, 2, backend_config=Recorder()).metrics
    assert metrics == {"calls": ["start 0 {'CPU': 1}", "training_start", "context", "closed", "shutdown"]}


def test_elastic_starts_with_what_fits(fit):
    trainyard.init(num_cpus=3)
    result = fit(
        lambda: trainyard.report({"n": trainyard.get_context().get_world_size()}),
        scaling=ScalingConfig(num_workers=(1, 8)),
    )
    assert result.metrics == {"n": 3}


def test_what_never_fits_is_refused_at_once(fit):
    trainyard.init(num_cpus=4)
    with pytest.raises(ControllerError, match="CPU") as caught:
        fit(lambda: None, 9)
    assert isinstance(caught.value.controller_failure, InsufficientClusterResourcesError)


def test_a_name_that_exists_is_refused_unless_resumed(fit, storage, capfd):
    fit(lambda: None, 1, name="mine")
    with pytest.raises(FileExistsError, match="mine"):
        fit(lambda: None, 1, name="mine")
    fit(lambda: None, 1, name="mine", resume=True)
    assert "nothing to resume" not in capfd.readouterr().err


def test_a_name_that_does_not_exist_is_a_new_run_and_told(fit, storage, capfd):
    fit(lambda: None, 1, name="mine")
    fit(lambda: None, 1, name="mien", resume=True)
    told = f"trainyard: nothing to resume under {storage}/mien: a new run begins; did you mean mine?\n"
    assert capfd.readouterr().err.count(told) == 1


@pytest.mark.parametrize("fields", [{"name": "../x"}, {"name": "a/b"}, {"resume": True}])
def test_names_are_checked_by_the_library(fit, fields, storage):
    with pytest.raises(ValueError, match="name"):
        fit(lambda: None, 1, **fields)
    assert not os.path.exists(storage) or os.listdir(storage) == []


def test_what_cannot_be_pickled_is_refused_before_anything_starts(fit, storage):
    import threading

    lock = threading.Lock()
    with pytest.raises(TypeError, match="closure variable `lock`"):
        fit(lambda: lock)
    assert not os.path.exists(storage)


def test_a_large_config_is_read_from_the_driver(fit, storage):
    data = os.urandom(40 << 20)
    metrics = fit(
        lambda config: trainyard.report(
            {"size": len(config["data"]), "last": config["data"][-1], "in storage": os.listdir(storage)}
        ),
        1,
        {"data": data},
        name="large",
    ).metrics
    assert metrics == {"size": 40 << 20, "last": data[-1], "in storage": ["large"]}


def test_a_large_config_does_not_outlive_a_driver_that_is_killed(start, storage, tmp_path):
    script = start(
        """
        import os, signal, sys, time, trainyard
        from trainyard import DataParallelTrainer, RunConfig, UserCallback

        class Kill(UserCallback):
            def after_report(self, **arguments):
                os.kill(os.getpid(), signal.SIGKILL)

        def train(config):
            trainyard.report({"size": len(config)})
            time.sleep(60)

        config = RunConfig(storage_path=sys.argv[1], name="killed", callbacks=[Kill()])
        DataParallelTrainer(train, train_loop_config={str(i): bytes(1 << 20) for i in range(40)}, run_config=config).fit()
        """,
        storage,
    )
    assert script.finish().status == -signal.SIGKILL
    assert wait_until(lambda: not processes_with(str(tmp_path)))
    assert os.listdir(storage) == ["killed"]
    left = [
        path
        for path, _, names in os.walk(tmp_path)
        for name in names
        if os.path.getsize(f"{path}/{name}") > 1 << 20
    ]
    assert left == []


def test_logical_nodes(fit, tmp_path):
    (tmp_path / "cluster.yaml").write_text(
        "nodes:\n  - {name: 'n[1-2]', resources: {CPU: 2, GPU: 2}, accelerator_type: A100}\n"
    )
    trainyard.init(cluster=tmp_path / "cluster.yaml")

    def train():
        context = trainyard.get_context()
        names = ("CUDA_VISIBLE_DEVICES", "TRAINYARD_DEVICES")
        trainyard.report({"node": context.get_node_rank(), **{name: os.environ.get(name) for name in names}})

    scaling = ScalingConfig(num_workers=4, use_gpu=True, accelerator_type="A100")
    result = fit(train, scaling=scaling)
    assert result.metrics == {"node": 0, "CUDA_VISIBLE_DEVICES": "0,1", "TRAINYARD_DEVICES": "0"}


def test_a_second_fit_in_one_process(fit):
    def pids():
        trainyard.report({"parent": os.getppid()})

    first, second = fit(pids, 1).metrics, fit(pids, 1).metrics
    assert first == second, "the agent rested in between"


LIMITED = """
import resource, sys, trainyard
from trainyard import DataParallelTrainer, RunConfig

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
run = RunConfig(storage_path=sys.argv[2])
print(DataParallelTrainer(lambda: trainyard.report({"a": 1}), run_config=run).fit().metrics)
"""


@pytest.mark.parametrize("limit", [10, 16, 20, 24, 28, 30, 32, 64])
def test_the_limit_of_open_files_is_named(storage, limit):
    """Wherever it is met; the run works, or is refused at once."""
    words = [sys.executable, "-c", LIMITED, str(limit), storage]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300)
    if ended.returncode == 0:
        assert (ended.stdout, limit > 20) == ("{'a': 1}\n", True)
    else:
        assert limit < 64 and f"Too many open files (limit {limit}: ulimit -n)" in ended.stderr.splitlines()[-1], ended.stderr


def test_what_is_given_by_name_is_a_dict():
    with pytest.raises(ValueError, match="`datasets` must be a dict, not list"):
        DataParallelTrainer(print, datasets=[1, 2])


def test_an_environment_that_a_parent_left_odd(storage, start):
    """A variable without a name, a word that is none, one that is there twice."""
    finished = start(
        """
        import ctypes, os, sys
        if "again" not in sys.argv:
            words = [sys.executable, *sys.argv, "again"]
            entries = [b"=odd", b"ODD", b"TWICE=1", b"TWICE=2", *(os.fsencode(f"{k}={v}") for k, v in os.environ.items())]
            array = lambda texts: (ctypes.c_char_p * (len(texts) + 1))(*texts, None)
            ctypes.CDLL(None).execve(os.fsencode(words[0]), array(list(map(os.fsencode, words))), array(entries))
        from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, defaults
        defaults.current = defaults.Defaults(num_cpus=4)
        train = lambda: print("here", os.environ["HOME"] != "")
        run_config = RunConfig(storage_path=sys.argv[1], progress="none")
        DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=1), run_config=run_config).fit()
        """,
        storage,
    ).finish()
    assert (finished.status, finished.out) == (0, "[rank 0] here True\n"), finished


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_fit_of_a_child_of_multiprocessing(storage, start, method):
    """Whose module `__main__` has another name than the program's."""
    finished = start(
        """
        import multiprocessing, sys
        from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, defaults, get_context

        class Found:
            def __init__(self, rank):
                self.rank = rank

        def train():
            return Found(get_context().get_world_rank())

        def fit(found):
            defaults.current = defaults.Defaults(num_cpus=4)
            run_config = RunConfig(storage_path=sys.argv[1], progress="none")
            trainer = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=run_config)
            found.put(trainer.fit().return_value.rank)

        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[2])
            found = context.SimpleQueue()
            child = context.Process(target=fit, args=(found,))
            child.start()
            child.join()
            print(child.exitcode, None if found.empty() else found.get())
        """,
        storage,
        method,
    ).finish()
    assert finished.out == "0 0\n", finished
