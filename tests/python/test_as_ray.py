"""The names of Ray under `trainyard.as_ray`: what each one is, what is refused and how, and what ray.init sets."""

import importlib
import importlib.util
import inspect
import os
import pickle
import re
import subprocess
import sys

import pytest
from trainyard import as_ray, defaults, payload
from trainyard.as_ray import absent, finder, knobs, table


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """As installed, for one test."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(payload, "prepare", [])
    monkeypatch.setattr(defaults, "policy", defaults.policy)
    from trainyard.as_ray import session

    monkeypatch.setattr(session, "_context", None)
    monkeypatch.setattr(defaults, "current", defaults.Defaults())
    as_ray.install()
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
        del sys.modules[name]


def ray():
    return importlib.import_module("ray")


def run(*command):
    return subprocess.run(
        [sys.executable, "-m", "trainyard.as_ray", *command], capture_output=True, text=True
    )


# -- the command line


@pytest.mark.parametrize(
    "arguments, part",
    [
        ([], "which program?"),
        (["/nowhere.py"], "cannot open /nowhere.py: No such file"),
        (["-m", "no_such_module"], "trainyard.as_ray: No module named no_such_module\n"),
        (["-m", "no_such_package.module"], "No module named 'no_such_package'"),
        (["--cluster"], "--cluster"),
        (["--cluster", "/nowhere.yaml", "x.py"], "there is no file /nowhere.yaml"),
        (["--num-cpus", "many", "x.py"], "--num-cpus"),
        (["--num-gpus", "-1", "x.py"], "0 or more"),
        (["--node-resources", "a", "x.py"], "'a' is not NAME=AMOUNT"),
        (["--engine", "cloud", "x.py"], "cloud"),
    ],
)
def test_wrong_usage_is_told(arguments, part):
    finished = run(*arguments)
    assert finished.returncode != 0
    assert part in finished.stderr and "Traceback" not in finished.stderr


def test_help_names_the_variables_that_count():
    finished = run("--help")
    assert finished.returncode == 0
    assert all(name in finished.stdout for name in knobs.COUNTS)


def test_a_script_is_main_and_gets_its_arguments(place):
    (place / "program.py").write_text(
        "import sys\nassert __name__ == '__main__' and sys.modules['__main__'].__file__ == __file__\n"
        "assert sys.path[0] == __import__('os').path.dirname(__file__)\nprint(sys.argv[1:])\nsys.exit(7)\n"
    )
    finished = run(str(place / "program.py"), "--num-cpus", "-m", "x")
    assert (finished.returncode, finished.stdout) == (7, "['--num-cpus', '-m', 'x']\n"), finished.stderr


def test_a_module_runs_too(place):
    (place / "program.py").write_text(
        "import ray, sys\nprint(__name__, sys.argv[1:], ray.is_initialized())\n"
    )
    finished = run("-m", "program", "-n", "3")
    assert finished.stdout == "__main__ ['-n', '3'] False\n", finished.stderr


@pytest.mark.parametrize("words", [["program.py"], ["-m", "program"]])
def test_a_traceback_begins_in_the_program(place, words):
    (place / "program.py").write_text("import ray\n\ndef f():\n    ray.get(1)\n\nf()\n")
    finished = run(*words)
    assert finished.returncode == 1
    assert finished.stderr.splitlines()[1].endswith('program.py", line 6, in <module>'), finished.stderr
    assert "NotProvidedError: ray.get is not provided" in finished.stderr


def test_without_it_there_is_no_ray():
    text = "import importlib.util, trainyard.as_ray; print(importlib.util.find_spec('ray'))"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout == "None\n"


def test_importing_ray_train_imports_no_framework(place):
    (place / "program.py").write_text(
        "import ray.train, sys\nprint('torch' in sys.modules or 'jax' in sys.modules)\n"
    )
    assert run(str(place / "program.py")).stdout == "False\n"


# -- names


ALL_NAMES = [(module, name) for module in table.MODULES for name in finder.names_of(module)]


@pytest.mark.parametrize("module", sorted(table.MODULES))
def test_every_name_of_the_table_is_there(module):
    made = importlib.import_module(module)
    names = finder.names_of(module)
    assert made.__all__ == names
    for name in names:
        getattr(made, name)
    assert set(names) <= set(dir(made))


# What training programs import from each module, by the names of Ray 2.60.
IMPORTS = """
from ray import init, shutdown, is_initialized, remote, get, put, wait, kill, cluster_resources, available_resources, nodes
from ray import get_gpu_ids, get_runtime_context, ObjectRef, air, data, serve, tune, train
from ray.air import CheckpointConfig, FailureConfig, Result, RunConfig, ScalingConfig, session
from ray import logger, cloudpickle
import ray.cloudpickle as pickle
from ray.air import Checkpoint
from ray.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.air.integrations.mlflow import setup_mlflow
from ray.air.integrations.wandb import WandbLoggerCallback, setup_wandb
from ray.cluster_utils import Cluster
from ray.data import Dataset
from ray.data.preprocessors import StandardScaler
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.runtime_context import get_runtime_context
from ray.runtime_env import RuntimeEnv
from ray.train import BackendConfig, Checkpoint, CheckpointConfig, CheckpointUploadMode, ControllerError, DataConfig
from ray.train import FailureConfig, LoggingConfig, ReportedCheckpoint, Result, RunConfig, ScalingConfig, SyncConfig
from ray.train import TRAIN_DATASET_KEY, TrainContext, TrainingFailedError, UserCallback, ValidationConfig, WorkerGroupError
from ray.train import get_all_reported_checkpoints, get_checkpoint, get_context, get_dataset_shard, report
from ray.train.collective import barrier, broadcast_from_rank_zero
from ray.train.batch_predictor import BatchPredictor
from ray.train.constants import TRAIN_DATASET_KEY, TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S
from ray.train.data_parallel_trainer import DataParallelTrainer
from ray.train.error import SessionMisuseError
from ray.train.horovod import HorovodTrainer
from ray.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer
from ray.train.lightgbm import LightGBMTrainer
from ray.train.lightning import RayDDPStrategy, RayDeepSpeedStrategy, RayFSDPStrategy, RayLightningEnvironment
from ray.train.lightning import RayTrainReportCallback, prepare_trainer
from ray.train.tensorflow import TensorflowTrainer
from ray.train.torch import TorchConfig, TorchTrainer, get_device, get_devices, prepare_data_loader, prepare_model
from ray.train.torch import TorchCheckpoint, TorchPredictor
from ray.train.torch import accelerate, backward, enable_reproducibility, prepare_optimizer
from ray.train.torch.xla import TorchXLAConfig
from ray.train.trainer import BaseTrainer
from ray.train.v2._internal.constants import HEALTH_CHECK_INTERVAL_S_ENV_VAR, is_v2_enabled
from ray.train.v2.api.callback import RayTrainCallback, UserCallback
from ray.train.v2.api.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError, WorkerGroupError
from ray.train.v2.api.report_config import CheckpointUploadMode
from ray.train.v2.jax import JaxConfig, JaxTrainer
from ray.train.xgboost import XGBoostTrainer
from ray.tune import Tuner, TuneConfig
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
from ray.util import ActorPool, get_node_ip_address, placement_group
from ray.util.accelerators import GOOGLE_TPU_V6E, NVIDIA_A100, NVIDIA_TESLA_T4
from ray.util.annotations import DeveloperAPI, PublicAPI
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.queue import Queue
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
import ray.train.torch, ray.tune, ray.rllib.algorithms.ppo, ray.util.state, ray._private.utils
"""


@pytest.mark.parametrize("line", IMPORTS.strip().splitlines())
def test_programs_can_import(line):
    exec(line, {})


def test_the_table_of_the_page_has_every_name_of_ray_train():
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "as-ray.md")) as page:
        rows = [line.split("|")[1] for line in page if line.startswith("| `ray.train")]
    told = {name.rpartition(".")[2] for row in rows for name in re.findall(r"`([\w.]+)", row)}
    parts = ["", ".torch", ".collective", ".lightning", ".huggingface.transformers", ".v2.jax", ".data_parallel_trainer"]
    parts += [".xgboost", ".lightgbm", ".tensorflow"]
    missing = [name for part in parts for name in finder.names_of("ray.train" + part) if name not in told]
    assert missing == []


def test_the_names_are_those_of_trainyard():
    import trainyard

    assert importlib.import_module("ray.train").ScalingConfig is trainyard.ScalingConfig
    assert importlib.import_module("ray.train.v2.api.config").RunConfig is trainyard.RunConfig
    assert importlib.import_module("ray.air").Checkpoint is trainyard.Checkpoint
    assert importlib.import_module("ray.air.session").report is trainyard.report


@pytest.mark.parametrize(
    "module, name, hint",
    [
        ("ray", "trian", "; did you mean 'train'"),
        ("ray.train", "ScalingConfg", "; did you mean 'ScalingConfig'"),
        ("ray.train.torch", "Nothing", r"; dir\(ray.train.torch\) lists what is provided"),
    ],
)
def test_a_name_that_is_none_is_an_attribute_error(module, name, hint):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'{hint}"):
        getattr(importlib.import_module(module), name)
    assert not hasattr(importlib.import_module(module), name)
    with pytest.raises(ImportError, match=f"cannot import name '{name}' from '{module}'{hint}"):
        exec(f"from {module} import {name}", {})


def test_a_module_that_is_none_is_an_import_error():
    with pytest.raises(ModuleNotFoundError, match="No module named 'ray.tran'"):
        importlib.import_module("ray.tran")
    assert importlib.util.find_spec("ray.tran") is None
    assert importlib.util.find_spec("rayon") is None
    assert importlib.util.find_spec("ray.train.torch").origin == "trainyard.as_ray"


def test_modules_and_names_survive_pickling():
    import cloudpickle

    train = importlib.import_module("ray.train")
    tuner = importlib.import_module("ray.tune").Tuner
    assert pickle.loads(cloudpickle.dumps(train)) is train
    assert pickle.loads(pickle.dumps(tuner)) is tuner
    assert pickle.loads(pickle.dumps(tuner.restore)) is tuner.restore
    error = pickle.loads(pickle.dumps(importlib.import_module("ray.exceptions").RayTaskError("x")))
    assert isinstance(error, importlib.import_module("ray.exceptions").RayError)


def test_the_real_ray_is_never_covered_up(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", inspect)
    with pytest.raises(RuntimeError, match="ray is imported already, from .*inspect.py"):
        as_ray.install()


def test_workers_are_told_to_do_the_same():
    as_ray.install()
    assert payload.prepare == ["trainyard.as_ray:follow"]
    assert sum(isinstance(one, finder.RayFinder) for one in sys.meta_path) == 1


# -- what is not provided


def functions_and_classes():
    return [(m, n) for m, n in ALL_NAMES if table.MODULES[m].get(n) == table.ABSENT]


@pytest.mark.parametrize("module, name", functions_and_classes())
def test_what_is_not_provided_says_so_when_it_is_used(module, name):
    value = getattr(importlib.import_module(module), name)
    with pytest.raises(absent.NotProvidedError) as refusal:
        value(lambda: None)
    text = str(refusal.value)
    assert text.startswith(f"{module}.{name} is not provided: ") and "\n" not in text and "; " in text


@pytest.mark.parametrize(
    "use, part",
    [
        (lambda ray: ray.remote(print), "ray.remote is not provided: Trainyard is not a task system"),
        (lambda ray: ray.remote(num_gpus=1), "Trainyard is not a task system"),
        (lambda ray: ray.put([1]), "train_loop_config"),
        (lambda ray: ray.data.read_sql("x"), "ray.data.read_sql is not provided: Trainyard reads data sets to train on"),
        (lambda ray: ray.data.range(1).join(ray.data.range(1)), "Dataset.join is not provided"),
        (lambda ray: ray.data.aggregate.ValueCounter("x"), "ray.data.aggregate.ValueCounter is not provided"),
        (lambda ray: ray.data.expressions.download("x"), "ray.data.expressions.download is not provided"),
        (lambda ray: ray.tune.Tuner.restore("x"), "ray.tune.Tuner.restore is not provided"),
        (lambda ray: type("Mine", (ray.tune.Callback,), {}), "ray.tune.Callback is not provided"),
        (lambda ray: list(ray.data.Datasource), "ray.data.Datasource is not provided"),
        pytest.param(
            lambda ray: ray.train.lightning.prepare_trainer(1),
            "TorchTrainer",
            marks=pytest.mark.skipif(importlib.util.find_spec("lightning") is not None, reason="Lightning is here"),
        ),
    ],
)
def test_using_it_names_it_and_the_way_out(use, part):
    for module in ("ray.data.aggregate", "ray.data.expressions", "ray.tune", "ray.train.lightning"):
        importlib.import_module(module)
    with pytest.raises(NotImplementedError) as refusal:
        use(ray())
    assert part in str(refusal.value)


def test_modules_below_ray_data_are_there():
    importlib.import_module("ray.data")
    from trainyard.data.writing import FilenameProvider

    assert ray().data.datasource.FilenameProvider is FilenameProvider
    assert importlib.import_module("ray.data.datasource.filename_provider").FilenameProvider is FilenameProvider
    assert importlib.import_module("ray.data.datasource.partitioning").Partitioning is not None
    assert importlib.import_module("ray.data.datasource").DefaultFileMetadataProvider is not None


@pytest.mark.parametrize(
    "module, name, way_out",
    [
        ("ray.data.aggregate", "ValueCounter", "AggregateFn"),
        ("ray.data.expressions", "download", "map_batches"),
        ("ray.data.expressions", "StarExpr", "col"),
        ("ray.data", "Datasink", "iter_batches"),
        ("ray.data.datasource", "Datasink", "iter_batches"),
        ("ray.train.xgboost", "XGBoostPredictor", "get_model"),
        ("ray.train.lightgbm", "LightGBMPredictor", "get_model"),
        ("ray.train.tensorflow", "TensorflowPredictor", "get_model"),
        ("ray.train.torch", "TorchDetectionPredictor", "get_model"),
    ],
)
def test_the_way_out_is_one_for_the_name(module, name, way_out):
    with pytest.raises(absent.NotProvidedError, match=way_out):
        getattr(importlib.import_module(module), name)()


def test_methods_of_data_sets_that_others_have_not():
    from trainyard import data

    dataset = data.range(1)
    assert not hasattr(dataset.iterator(), "join")
    with pytest.raises(NotImplementedError, match="GroupedData.with_column is not provided"):
        dataset.groupby("id").with_column("x", None)


def test_errors_that_nothing_raises_can_be_caught():
    tune, train = importlib.import_module("ray.tune"), importlib.import_module("ray.train")
    with pytest.raises(KeyError):
        try:
            raise KeyError
        except (tune.TuneError, train.NCCLHangError):
            pass
    assert issubclass(train.NCCLHangError, train.WorkerGroupError)
    with pytest.raises(absent.NotProvidedError):
        tune.TuneError("x")


def test_mentioning_it_is_no_use():
    dataset = importlib.import_module("ray.data").Datasource
    assert not isinstance([], dataset) and not issubclass(list, dataset)

    def annotated(one: dataset, two: "dataset[int] | None" = None) -> dataset:
        return one

    assert annotated(1) == 1
    assert dataset[int] is dataset and (dataset | None)
    assert not hasattr(dataset, "__len__")
    assert repr(dataset) == "<ray.data.Datasource: not provided by Trainyard>"


# -- ray.init and what it sets


def test_init_sets_what_runs_go_by():
    context = ray().init(
        num_cpus=6, num_gpus=2, resources={"special": 3}, runtime_env={"env_vars": {"A": "b"}}
    )
    assert (
        context.address_info["node_ip_address"]
        and context["address"] == "local"
        and context.dashboard_url == ""
    )
    current = defaults.current
    assert (current.num_cpus, current.num_gpus, current.resources) == (6, 2, {"special": 3})
    assert current.environment == {"A": "b"}
    assert ray().is_initialized()
    assert ray().cluster_resources()["GPU"] == 2.0
    assert ray().available_resources()["special"] == 3.0
    ray().shutdown()
    ray().shutdown()
    assert not ray().is_initialized()
    assert defaults.current == defaults.Defaults()


def test_output_of_workers_is_kept_to_their_logs_on_demand():
    ray().init(log_to_driver=False)
    assert defaults.policy.quiet
    ray().shutdown()
    ray().init()
    assert not defaults.policy.quiet


def test_init_twice_is_refused_unless_asked_for():
    first = ray().init(num_cpus=4)
    with pytest.raises(RuntimeError, match="ignore_reinit_error"):
        ray().init(num_cpus=8)
    assert ray().init(num_cpus=8, ignore_reinit_error=True) is first
    assert defaults.current.num_cpus == 4


def test_init_as_a_block():
    with ray().init(num_cpus=3):
        assert ray().is_initialized()
    assert not ray().is_initialized()


@pytest.mark.parametrize(
    "options, error, part",
    [
        ({"num_cpu": 4}, RuntimeError, "did you mean 'num_cpus'"),
        ({"num_cpus": -1}, ValueError, "num_cpus"),
        ({"address": 3}, ValueError, "address"),
        ({"num_gpus": "two"}, ValueError, "num_gpus"),
        ({"resources": {"a": -1}}, ValueError, "'a'"),
        ({"runtime_env": 3}, TypeError, "runtime_env"),
        ({"runtime_env": {"env_var": {}}}, ValueError, "no field 'env_var'"),
        ({"runtime_env": {"env_vars": {"A": 1}}}, TypeError, "'A' must be text"),
        ({"runtime_env": {"working_dir": "/nowhere"}}, Exception, "no directory /nowhere"),
        ({"runtime_env": {"pip": ["no-such-package==1"]}}, Exception, "not installed here: no-such-package"),
        ({"runtime_env": {"conda": "base"}}, Exception, "'conda'.* is not provided"),
    ],
)
def test_init_that_is_refused_sets_nothing(options, error, part):
    before = defaults.current
    with pytest.raises(error, match=part):
        ray().init(**options)
    assert defaults.current is before and not ray().is_initialized()


def test_options_of_ray_s_daemons_do_no_harm():
    ray().init(
        include_dashboard=False,
        object_store_memory=10**9,
        log_to_driver=False,
        namespace="x",
        _temp_dir="/tmp",
    )
    assert ray().is_initialized()


def test_an_address_elsewhere_is_left_aside_with_a_warning(caplog):
    ray().init("auto")
    ray().shutdown()
    assert not caplog.records
    ray().init(address="ray://head:10001")
    assert "ray://head:10001" in caplog.text and "left aside" in caplog.text


def test_the_address_local_keeps_to_this_machine():
    ray().init("local")
    assert defaults.current.engine == "local"


def test_packages_that_are_installed_are_fine():
    ray().init(runtime_env={"pip": ["pytest>=1", "# comment", "-r other.txt"], "excludes": ["*.bin"]})


def test_runtime_env_objects():
    kind = importlib.import_module("ray.runtime_env").RuntimeEnv
    made = kind(env_vars={"A": "b"}, working_dir=".")
    assert made.env_vars() == {"A": "b"} and made.to_dict() == {"env_vars": {"A": "b"}, "working_dir": "."}
    importlib.import_module("ray.train").RunConfig(worker_runtime_env=made)
    ray().init(runtime_env=made)
    assert defaults.current.environment == {"A": "b"} and defaults.current.directory


def test_what_was_said_before_the_program_wins(place):
    defaults.init(num_gpus=8, runtime_env={"env_vars": {"A": "1", "B": "2"}})
    before = defaults.current
    ray().init(num_cpus=4, num_gpus=1, runtime_env={"env_vars": {"B": "3"}})
    assert (defaults.current.num_cpus, defaults.current.num_gpus) == (4, 8)
    assert defaults.current.environment == {"A": "1", "B": "3"}
    ray().shutdown()
    assert defaults.current is before
    (place / "nodes.yaml").write_text("nodes: [{name: 'n[1-2]', resources: {CPU: 2}, labels: {zone: a}}]")
    defaults.init(cluster=place / "nodes.yaml")
    ray().init(num_cpus=4)
    assert ray().cluster_resources() == {"CPU": 4.0, "node:n1": 1.0, "node:n2": 1.0}


def test_nodes_are_told_as_ray_does():
    ray().init(num_cpus=5, labels={"zone": "a"})
    (node,) = ray().nodes()
    assert node["Alive"] and node["Resources"]["CPU"] == 5.0 and node["Labels"]["zone"] == "a"
    assert len(node["NodeID"]) == 56 and node["NodeName"] == node["NodeManagerHostname"]


def test_asking_for_nodes_initializes():
    assert ray().nodes() and ray().is_initialized()


def test_a_test_cluster_is_a_cluster_file():
    cluster = importlib.import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0}
    )
    added = cluster.add_node(
        num_cpus=2, num_gpus=4, resources={"accelerator_type:A100": 1, "disk": 2}, labels={"zone": "b"}
    )
    ray().init(address=cluster.address)
    head, second = ray().nodes()
    assert second["Resources"]["GPU"] == 4.0 and second["Resources"]["accelerator_type:A100"] == 1.0
    assert second["NodeID"] == added.node_id and second["Labels"]["zone"] == "b"
    assert head["NodeName"] == "node-0"
    cluster.remove_node(added)
    assert len(ray().nodes()) == 1
    with pytest.raises(ValueError, match="no option 'gpus'"):
        cluster.add_node(gpus=1)
    ray().shutdown()
    cluster.shutdown()


def test_a_cluster_without_nodes_has_nothing():
    cluster = importlib.import_module("ray.cluster_utils").Cluster()
    ray().init(address=cluster.gcs_address)
    assert not {"CPU", "GPU"} & set(ray().cluster_resources()) and cluster.list_all_nodes() == []
    assert ray().nodes() == [] and ray().cluster_resources() == {}
    node = cluster.add_node(num_cpus=3)
    assert ray().cluster_resources()["CPU"] == 3 and len(ray().nodes()) == 1
    cluster.remove_node(node)
    assert "CPU" not in ray().cluster_resources() and cluster.remaining_processes_alive()
    ray().shutdown()
    cluster.shutdown()


def test_a_host_of_a_slice_is_told_by_its_environment(monkeypatch):
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v4-16")
    monkeypatch.setenv("TPU_NAME", "slice-a")
    cluster = importlib.import_module("ray.cluster_utils").Cluster()
    cluster.add_node(resources={"TPU": 4}, env_vars={"TPU_WORKER_ID": "0", "TPU_TOPOLOGY": "2x2x2"})
    cluster.add_node(resources={"TPU": 4}, env_vars={"TPU_WORKER_ID": "1"}, labels={"ray.io/tpu-slice-name": "b"})
    cluster.add_node(num_cpus=3)
    ray().init(address=cluster.address)
    first, second, third = ray().nodes()
    names = {"slice-name": "slice-a", "worker-id": "0", "topology": "2x2x2", "pod-type": "v4-16"}
    assert {name: first["Labels"][f"ray.io/tpu-{name}"] for name in names} == names
    assert first["Resources"]["accelerator_type:TPU-V4"] == 1.0
    assert second["Labels"]["ray.io/tpu-slice-name"] == "b" and second["Labels"]["ray.io/tpu-worker-id"] == "1"
    assert not any("tpu" in label for label in third["Labels"])
    ray().shutdown()
    cluster.shutdown()


# -- outside of a training function


def test_outside_of_a_worker():
    train, session = importlib.import_module("ray.train"), importlib.import_module("ray.air.session")
    assert ray().get_gpu_ids() == []
    context = ray().get_runtime_context()
    assert set(context.get_accelerator_ids().values().__iter__().__next__()) == set()
    assert context.get_assigned_resources() == {} and context.get_actor_id() is None
    assert context.get_node_id() == ray().nodes()[0]["NodeID"]
    for function in (
        train.get_context,
        train.get_checkpoint,
        train.get_preemption_info,
        session.get_world_rank,
    ):
        with pytest.raises(RuntimeError, match="outside of a Ray Train training function"):
            function()


# -- variables of the environment


SPEC_VARIABLES = """
RAY_TRAIN_V2_ENABLED RAY_TRAIN_HEALTH_CHECK_INTERVAL_S RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S
RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S
RAY_TRAIN_COLLECTIVE_TIMEOUT_S RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S RAY_TRAIN_REPORT_BARRIER_TIMEOUT_S
RAY_TRAIN_REPORT_BARRIER_WARN_INTERVAL_S RAY_TRAIN_CHECKPOINT_UPLOAD_WARN_INTERVAL_S RAY_TRAIN_ENABLE_PRINT_PATCH
RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING
RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION RAY_TRAIN_STATE_ACTOR_RECONCILIATION_INTERVAL_S RAY_TRAIN_CALLBACKS
RAY_TRAIN_METRICS_ENABLED RAY_TRAIN_ENABLE_STATE_TRACKING RAY_TRAIN_RUN_CONTROLLER_AS_ACTOR RAY_CHDIR_TO_TRIAL_DIR
TRAIN_ENABLE_SHARE_CUDA_VISIBLE_DEVICES TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S JAX_DISTRIBUTED_SHUTDOWN_TIMEOUT_S
TORCHFT_LIGHTHOUSE RAY_TPU_RESOURCE_PER_CHIP RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S RAY_WARN_BLOCKING_GET_INSIDE_ASYNC
RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS TRAIN_PLACEMENT_GROUP_TIMEOUT_S TRAIN_ENABLE_WORKER_SPREAD
RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS
""".split()


def test_every_variable_is_in_the_table_once():
    assert set(SPEC_VARIABLES) <= {*knobs.COUNTS, *knobs.NO_EFFECT}
    assert not set(knobs.COUNTS) & set(knobs.NO_EFFECT)


def test_runs_are_kept_where_ray_keeps_them():
    assert defaults.policy.storage_path == "~/ray_results" and defaults.policy.resume
    assert not defaults.policy.isolate_devices


@pytest.mark.parametrize("value, isolated", [("0", True), ("false", True), ("1", False), ("", False)])
def test_sharing_of_visible_devices(monkeypatch, value, isolated):
    monkeypatch.setenv("TRAIN_ENABLE_SHARE_CUDA_VISIBLE_DEVICES", value)
    knobs.apply()
    assert defaults.policy.isolate_devices is isolated


@pytest.mark.parametrize(
    "variable, kind",
    [("HIP_VISIBLE_DEVICES", "AMD GPU"), ("NEURON_CORES_ACCELERATOR", "neuron_cores"), ("ASCEND_RT_VISIBLE_DEVICES", "NPU")],
)
def test_a_variable_speaks_of_its_own_devices_alone(monkeypatch, variable, kind):
    monkeypatch.setenv(f"TRAIN_ENABLE_SHARE_{variable}", "0")
    knobs.apply()
    assert defaults.policy.sharing == {kind: False} and not defaults.policy.isolate_devices


def test_a_truth_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("TRAIN_ENABLE_SHARE_CUDA_VISIBLE_DEVICES", "maybe")
    with pytest.raises(ValueError, match="TRAIN_ENABLE_SHARE_CUDA_VISIBLE_DEVICES='maybe' must be 1 or 0"):
        knobs.apply()


def test_older_names_stand_for_the_newer(monkeypatch):
    monkeypatch.setenv("RAY_TRAIN_REPORT_BARRIER_TIMEOUT_S", "7")
    monkeypatch.delenv("RAY_TRAIN_COLLECTIVE_TIMEOUT_S", raising=False)
    knobs.apply()
    assert __import__("os").environ["RAY_TRAIN_COLLECTIVE_TIMEOUT_S"] == "7"


def test_a_list_of_selectors_is_compared_with_what_ray_compares_it_with():
    for workers in (2, (2, 3)):
        with pytest.raises(ValueError, match="must be the same length as `max_workers`: it .* 1"):
            importlib.import_module("ray.train").ScalingConfig(num_workers=workers, label_selector=[{"zone": "a"}])


def test_the_first_ray_train_s_trainer_holds_a_cpu(monkeypatch):
    config = importlib.import_module("ray.train").ScalingConfig
    assert config(num_workers=2).total_resources == {"CPU": 2}
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    assert config(num_workers=2).total_resources == {"CPU": 3}
    assert not importlib.import_module("ray.train.v2._internal.constants").is_v2_enabled()


def test_a_program_that_trainyard_run_started_calls_init_itself(monkeypatch):
    from trainyard import runtime

    monkeypatch.setenv("TRAINYARD_FD", "3")
    assert not ray().is_initialized()
    ray().init(num_cpus=2)
    assert ray().is_initialized()
    ray().shutdown()
    monkeypatch.setattr(runtime, "of_trainer", True)
    assert ray().is_initialized()


@pytest.mark.parametrize(
    "module, name",
    [
        ("torch", "TorchDetectionPredictor"),
        ("xgboost", "XGBoostPredictor"),
        ("lightgbm", "LightGBMPredictor"),
    ],
)
def test_predictors_that_are_not_provided_are_refused_when_used(module, name):
    found = getattr(importlib.import_module(f"ray.train.{module}"), name)
    with pytest.raises(absent.NotProvidedError):
        found()


def test_what_cannot_be_pickled_is_a_type_error_too():
    from trainyard import collective

    for kind in (TypeError, ValueError):
        with pytest.raises(kind, match="cannot be pickled"):
            collective._pickled(__import__("threading").Lock())


# -- what a program finds in a RunConfig, and what data sets raise


def test_a_run_config_has_ray_s_defaults():
    train = importlib.import_module("ray.train")
    made = train.RunConfig()
    assert made.logging_config == train.LoggingConfig() and made.worker_runtime_env == {}
    given = train.RunConfig(logging_config=train.LoggingConfig("debug"), worker_runtime_env={"env_vars": {"A": "b"}})
    assert given.logging_config.log_level == "DEBUG" and given.worker_runtime_env == {"env_vars": {"A": "b"}}


def breaks(value):
    raise LookupError("no such thing")


def yields_and_breaks(value):
    yield from ()
    breaks(value)


class BreaksLater:
    async def __call__(self, value):
        breaks(value)


class YieldsAndBreaks:
    async def __call__(self, value):
        for _ in ():
            yield
        breaks(value)


STEPS = [(step, breaks) for step in ("map", "map_batches", "filter", "flat_map")]
STEPS += [(step, made) for step in ("map_batches", "flat_map") for made in (yields_and_breaks, BreaksLater, YieldsAndBreaks)]


@pytest.mark.parametrize("step, breaks", STEPS)
def test_what_a_step_s_function_raises_is_a_user_code_exception(step, breaks):
    exceptions = importlib.import_module("ray.exceptions")
    data = importlib.import_module("ray.data")
    with pytest.raises(exceptions.UserCodeException, match="UDF failed to process") as caught:
        getattr(data.range(3), step)(breaks).take()
    assert isinstance(caught.value, exceptions.RayTaskError) and "LookupError: no such thing" in str(caught.value)
    assert "in breaks" in str(caught.value) and isinstance(caught.value.__cause__, LookupError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_data_context_asks_for_what_was_raised(monkeypatch):
    data = importlib.import_module("ray.data")
    monkeypatch.setattr(data.DataContext, "_current", data.DataContext())
    data.DataContext.get_current().raise_original_map_exception = True
    with pytest.raises(LookupError, match="^'?no such thing"):
        data.range(3).map(breaks).take()
