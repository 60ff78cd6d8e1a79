"""ScalingConfig, RunConfig and their company: fields, defaults, rules and messages of docs/spec/train-api.md 1 and 4.5."""

import copy
import dataclasses
import pathlib
import pickle
import warnings

import pytest
import trainyard
from trainyard import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, UserCallback
from trainyard.placement_group import PlacementGroupFactory


@pytest.mark.parametrize(
    "fields, per_worker, total",
    [
        ({}, {"CPU": 1}, {"CPU": 1}),
        ({"num_workers": 8}, {"CPU": 1}, {"CPU": 8}),
        ({"num_workers": 8, "use_gpu": True}, {"GPU": 1}, {"GPU": 8}),
        (
            {"num_workers": 2, "use_gpu": True, "resources_per_worker": {"CPU": 1}},
            {"CPU": 1, "GPU": 1},
            {"CPU": 2, "GPU": 2},
        ),
        (
            {"num_workers": 8, "use_gpu": True, "resources_per_worker": {"CPU": 4, "GPU": 0.5}},
            {"CPU": 4, "GPU": 0.5},
            {"CPU": 32, "GPU": 4},
        ),
        ({"use_gpu": True, "resources_per_worker": {"GPU": 2}}, {"GPU": 2}, {"GPU": 2}),
        ({"use_gpu": True, "resources_per_worker": {}}, {"GPU": 1}, {"GPU": 1}),
        (
            {"accelerator_type": "T4"},
            {"CPU": 1, "accelerator_type:T4": 0.001},
            {"CPU": 1, "accelerator_type:T4": 0.001},
        ),
        ({"use_gpu": True, "resources_per_worker": {"CPU": 0, "GPU": 1}}, {"GPU": 1}, {"GPU": 1}),
        ({"resources_per_worker": {"CPU": 0}}, {}, {}),
        ({"num_workers": (2, 8), "resources_per_worker": {"CPU": 1}}, {"CPU": 1}, {"CPU": 8}),
        ({"use_tpu": True}, {"TPU": 1}, {"TPU": 1}),
        (
            {"use_tpu": True, "resources_per_worker": {"TPU": 8}, "accelerator_type": "TPU-V6E"},
            {"TPU": 8, "accelerator_type:TPU-V6E": 0.001},
            {"TPU": 8, "accelerator_type:TPU-V6E": 0.001},
        ),
        (
            {"num_workers": 4, "use_tpu": True, "topology": "4x4", "accelerator_type": "TPU-V6E"},
            {"CPU": 1, "TPU": 4, "accelerator_type:TPU-V6E": 0.001},
            {"CPU": 4, "TPU": 16, "accelerator_type:TPU-V6E": 0.004},
        ),
        ({"num_workers": 0}, {"CPU": 1}, {}),
    ],
)
def test_resources(fields, per_worker, total):
    config = ScalingConfig(**fields)
    assert config._resources_per_worker_not_none == per_worker
    assert config.total_resources == total


def test_defaults_and_properties():
    config = ScalingConfig()
    assert (config.trainer_resources, config.num_workers, config.use_gpu, config.resources_per_worker) == (
        None,
        1,
        False,
        None,
    )
    assert (config.placement_strategy, config.accelerator_type, config.label_selector) == ("PACK", None, None)
    assert (config.use_tpu, config.topology, config.elastic_resize_monitor_interval_s) == (False, None, 60.0)
    assert (config.num_cpus_per_worker, config.num_gpus_per_worker, config.num_tpus_per_worker) == (1, 0, 0)
    assert ScalingConfig(use_gpu=True).num_cpus_per_worker == 0
    config = ScalingConfig(use_gpu=True, accelerator_type="A100")
    assert config.additional_resources_per_worker == {"accelerator_type:A100": 0.001}
    assert config._trainer_resources_not_none == {}


def test_bundle_of_a_worker():
    resources = {"GPU": 1, "memory": 1, "custom": 0.1}
    config = ScalingConfig(use_gpu=True, resources_per_worker=resources)
    assert (config.num_cpus_per_worker, config.num_gpus_per_worker) == (0, 1)
    assert config.additional_resources_per_worker == {"memory": 1, "custom": 0.1}


def test_elastic():
    config = ScalingConfig(num_workers=(2, 8))
    assert (config.min_workers, config.max_workers, config.elasticity_enabled) == (2, 8, True)
    assert ScalingConfig(num_workers=(3, 3)).elasticity_enabled
    config = ScalingConfig(num_workers=3)
    assert (config.min_workers, config.max_workers, config.elasticity_enabled) == (3, 3, False)


def test_positions():
    config = ScalingConfig(None, 4, True, {"GPU": 2}, "SPREAD", "A100", {"zone": "a"}, False, None, 5.0)
    assert (config.num_workers, config.resources_per_worker, config.placement_strategy) == (
        4,
        {"GPU": 2},
        "SPREAD",
    )
    assert (config.accelerator_type, config.label_selector, config.elastic_resize_monitor_interval_s) == (
        "A100",
        {"zone": "a"},
        5.0,
    )


def test_resolution_leaves_the_users_dict_alone():
    resources = {"CPU": 0, "custom": 2}
    config = ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker=resources, accelerator_type="T4")
    config.total_resources, config._resources_per_worker_not_none, config.as_placement_group_factory()
    assert resources == {"CPU": 0, "custom": 2} and config.resources_per_worker is resources


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"use_gpu": True, "use_tpu": True}, "Cannot specify both"),
        ({"resources_per_worker": {"TPU": 1}}, "`use_tpu` is False but `TPU` was found in"),
        ({"use_tpu": True, "resources_per_worker": {"TPU": 0}}, "`use_tpu` is True but `TPU` is set to 0 in"),
        ({"use_tpu": True, "resources_per_worker": {"CPU": 1}}, "`use_tpu` is True but `TPU` is set to 0 in"),
        ({"use_tpu": True, "num_workers": 2}, "`topology` must be specified"),
        ({"use_tpu": True, "num_workers": 2, "topology": "4x4"}, "`accelerator_type` must be specified"),
        (
            {
                "use_tpu": True,
                "num_workers": 4,
                "topology": "4x4",
                "accelerator_type": "TPU-V6E",
                "label_selector": {"a": "b"},
            },
            "Cannot set `label_selector`",
        ),
        (
            {"use_tpu": True, "num_workers": 3, "topology": "2x2x2", "accelerator_type": "TPU-V4"},
            "must be a multiple of",
        ),
        (
            {
                "use_tpu": True,
                "num_workers": 6,
                "topology": "2x2x1",
                "accelerator_type": "TPU-V4",
                "resources_per_worker": {"TPU": 1},
            },
            "must be a multiple of",
        ),
        ({"num_workers": 2, "label_selector": [{"zone": "a"}]}, "must be the same length as `num_workers`"),
        ({"num_workers": (1, 4), "label_selector": [{"zone": "a"}] * 3}, "max_workers=4"),
        ({"num_workers": (4, 2)}, "must be <="),
        ({"num_workers": "4"}, "must be an int or a tuple of two ints"),
        ({"num_workers": 2.0}, "must be an int or a tuple of two ints"),
        ({"num_workers": None}, "must be an int or a tuple of two ints"),
        ({"num_workers": (1, 2, 3)}, "must be an int or a tuple of two ints"),
        ({"num_workers": (1, 2.5)}, "must be an int or a tuple of two ints"),
        ({"num_workers": [1, 2]}, "must be an int or a tuple of two ints"),
        ({"num_workers": True}, "`num_workers`"),
        ({"num_workers": -1}, "`num_workers`"),
        ({"num_workers": (0, 2)}, "`num_workers`"),
        ({"elastic_resize_monitor_interval_s": -1}, "must be non-negative"),
        ({"elastic_resize_monitor_interval_s": float("nan")}, "elastic_resize_monitor_interval_s"),
        ({"resources_per_worker": {"GPU": 1}}, "`use_gpu` is False but `GPU` was found in"),
        ({"use_gpu": True, "resources_per_worker": {"GPU": 0}}, "`use_gpu` is True but `GPU` is set to 0"),
        ({"resources_per_worker": {"CPU": -1}}, "CPU"),
        ({"resources_per_worker": {"CPU": float("nan")}}, "CPU"),
        ({"resources_per_worker": {"CPU": "four"}}, "CPU"),
        ({"resources_per_worker": {1: 1}}, "resources_per_worker"),
        ({"resources_per_worker": 4}, "resources_per_worker"),
        ({"resources_per_worker": {"gpu": 1}}, "GPU"),
        ({"use_gpu": True, "resources_per_worker": {"GPU": 1.5}}, "GPU"),
        ({"placement_strategy": "TOGETHER"}, "placement_strategy"),
        ({"accelerator_type": "A1000"}, "A1000"),
        ({"label_selector": {"zone": 1}}, "label_selector"),
        ({"use_gpu": "yes"}, "use_gpu"),
        ({"use_gpu": 1}, "use_gpu"),
        ({"topology": 44}, "topology"),
        ({"topology_strategy": {"rack": "SPREAD"}}, "rack"),
        ({"accelerator_type": object()}, "accelerator_type"),
    ],
)
def test_refusals(fields, text):
    with pytest.raises(ValueError) as caught:
        ScalingConfig(**fields)
    assert text in str(caught.value)


def test_accepted():
    ScalingConfig(elastic_resize_monitor_interval_s=0)
    ScalingConfig(num_workers=2, label_selector=[{"zone": "a"}, {"zone": "b"}])
    ScalingConfig(
        num_workers=4,
        use_tpu=True,
        topology="4x4",
        accelerator_type="TPU-V6E",
        resources_per_worker={"TPU": 2},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ScalingConfig(trainer_resources=None)


def test_trainer_resources_warn_and_count():
    with pytest.warns(DeprecationWarning, match="49454") as caught:
        config = ScalingConfig(num_workers=2, trainer_resources={"CPU": 1})
    assert len(caught) == 1 and caught[0].filename == __file__
    assert config.total_resources == {"CPU": 3}


def test_the_first_ray_train_gave_its_trainer_a_cpu(monkeypatch):
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ScalingConfig(num_workers=8).total_resources == {"CPU": 9}
        assert ScalingConfig(num_workers=8, trainer_resources={"CPU": 0}).total_resources == {"CPU": 8}


def test_equality_is_of_bundles_and_strategy():
    assert ScalingConfig() == ScalingConfig(resources_per_worker={"CPU": 1})
    assert ScalingConfig(num_workers=2) != ScalingConfig(num_workers=3)
    assert ScalingConfig() != ScalingConfig(placement_strategy="SPREAD")
    assert ScalingConfig() != 1


@pytest.mark.parametrize(
    "config",
    [
        ScalingConfig(),
        ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"CPU": 2}),
        ScalingConfig(num_workers=(1, 4), label_selector={"zone": "a"}),
        RunConfig(),
        RunConfig(name="x", failure_config=FailureConfig(3)),
        FailureConfig(max_failures=2),
        CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="loss", checkpoint_score_order="min"),
    ],
)
def test_repr_is_what_differs_and_reads_back(config):
    assert eval(repr(config), vars(trainyard)) == config
    assert repr(ScalingConfig()) == "ScalingConfig()" and repr(RunConfig()) == "RunConfig()"
    assert repr(ScalingConfig(num_workers=2)) == "ScalingConfig(num_workers=2)"


def test_a_config_is_copied_and_pickled():
    for config in (
        RunConfig(name="x"),
        FailureConfig(2),
        CheckpointConfig(3),
        ScalingConfig(num_workers=(1, 2)),
    ):
        for twin in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config), dataclasses.replace(config)):
            assert twin == config and repr(twin) == repr(config)
            assert dataclasses.replace(twin) == config


def test_numbers_of_numpy():
    numpy = pytest.importorskip("numpy")
    assert ScalingConfig(num_workers=numpy.int64(3), use_gpu=numpy.bool_(True)).total_resources == {"GPU": 3}
    assert FailureConfig(max_failures=numpy.int32(2)) == FailureConfig(max_failures=2)
    assert repr(CheckpointConfig(num_to_keep=numpy.int64(2))) == "CheckpointConfig(num_to_keep=2)"
    assert repr(RunConfig(time_limit_s=numpy.float32(1.5))) == "RunConfig(time_limit_s=1.5)"
    with pytest.raises(ValueError, match="max_failures"):
        FailureConfig(max_failures=numpy.float64(2))
    with pytest.raises(ValueError, match="`RunConfig.progress`"):
        RunConfig(progress=numpy.array(["none", "auto"]))


@pytest.mark.parametrize(
    "fields",
    [
        {"num_workers": 10**400},
        {"num_workers": (1, 10**400)},
        {"resources_per_worker": {"disk": 10**400}},
        {"resources_per_worker": {"a\0b": 1}},
        {"accelerator_type": "A100\0"},
        {"elastic_resize_monitor_interval_s": 10**400},
    ],
)
def test_what_no_config_can_hold_names_its_field(fields):
    with pytest.raises(ValueError, match=f"`{next(iter(fields))}"):
        ScalingConfig(**fields)


def test_placement_group_factory():
    config = ScalingConfig(
        num_workers=3, use_gpu=True, resources_per_worker={"CPU": 2}, placement_strategy="SPREAD"
    )
    group = config.as_placement_group_factory()
    assert group.bundles == [{}, *[{"CPU": 2, "GPU": 1}] * 3]
    assert group.strategy == "SPREAD" and group.head_bundle_is_empty
    assert group.required_resources == {"CPU": 6, "GPU": 3}
    assert ScalingConfig.from_placement_group_factory(group) == config
    with pytest.warns(DeprecationWarning):
        config = ScalingConfig(num_workers=2, trainer_resources={"CPU": 1})
    group = config.as_placement_group_factory()
    assert group.bundles == [{}, {"CPU": 2}, {"CPU": 1}]
    with pytest.warns(DeprecationWarning):
        again = ScalingConfig.from_placement_group_factory(group)
    assert again.trainer_resources == {"CPU": 1} and again == config
    assert (
        ScalingConfig.from_placement_group_factory(
            PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])
        ).num_workers
        == 2
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"num_to_keep": 0},
        {"num_to_keep": -1},
        {"num_to_keep": 1.5},
        {"num_to_keep": True},
        {"checkpoint_score_order": "avg"},
        {"checkpoint_score_order": None},
        {"checkpoint_score_attribute": 3},
        {"on_checkpoint_error": "stop"},
        {"num_to_keep": 10**400},
    ],
)
def test_checkpoint_config_refusals(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        CheckpointConfig(**fields)


@pytest.mark.parametrize(
    "make",
    [
        lambda: CheckpointConfig(checkpoint_frequency=1),
        lambda: CheckpointConfig(checkpoint_at_end=True),
        lambda: FailureConfig(fail_fast=True),
        lambda: RunConfig(verbose=1),
        lambda: RunConfig(sync_config=object()),
        lambda: RunConfig(stop={"loss": 1}),
        lambda: RunConfig(progress_reporter=object()),
        lambda: RunConfig(log_to_file=True),
    ],
)
def test_what_is_deprecated_is_refused(make):
    with pytest.raises(DeprecationWarning):
        make()


def test_failure_config():
    config = FailureConfig()
    assert (config.max_failures, config.controller_failure_limit, config.max_preemption_failures) == (
        0,
        -1,
        -1,
    )
    for name in ("max_failures", "controller_failure_limit", "max_preemption_failures"):
        for value in (-2, 1.5, True, "3", None, 10**400):
            with pytest.raises(ValueError, match=name):
                FailureConfig(**{name: value})


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": 3},
        {"storage_path": 3},
        {"storage_path": ""},
        {"storage_filesystem": object()},
        {"failure_config": {}},
        {"checkpoint_config": FailureConfig()},
        {"callbacks": UserCallback()},
        {"resume": 1},
        {"start_method": "thread"},
        {"progress": "yes"},
        {"bind": "cores"},
        {"bind": None},
        {"quiet": None},
        {"no_wait": None},
        {"no_prefix": 1},
        {"grace_s": -1},
        {"chaos": 7},
        {"time_limit_s": float("inf")},
        {"time_limit_s": 10**400},
        {"name": "a\0b"},
        {"storage_path": "/a\0b"},
        {"storage_path": "/caf\udce9"},
        {"start_method": ["spawn"]},
        {"worker_runtime_env": []},
    ],
)
def test_run_config_refusals(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        RunConfig(**fields)


def test_a_runtime_env_tells_what_is_provided():
    with pytest.warns(UserWarning, match="'pip' is not provided .* only `env_vars` and `working_dir` are"):
        RunConfig(worker_runtime_env={"pip": ["x"]})
    with pytest.raises(ValueError, match="'LATIN' cannot be .* is no UTF-8"):
        RunConfig(worker_runtime_env={"env_vars": {"LATIN": "caf\udce9"}})


def test_run_config():
    assert RunConfig(storage_path=pathlib.Path("/tmp/x")).storage_path == "/tmp/x"
    assert RunConfig(storage_path="file:///tmp/x").storage_path == "/tmp/x"
    assert (
        RunConfig().failure_config == FailureConfig() and RunConfig().checkpoint_config == CheckpointConfig()
    )
    with pytest.raises(ValueError, match="instances of UserCallback"):
        RunConfig(callbacks=[object()])
    with pytest.raises(TypeError, match="A"):
        RunConfig(worker_runtime_env={"env_vars": {"A": 1}})
    with pytest.warns(UserWarning, match="pip"):
        RunConfig(worker_runtime_env={"pip": ["torch"]})


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"num_cpus": -1}, "num_cpus"),
        ({"num_gpus": "two"}, "num_gpus"),
        ({"resources": []}, "resources"),
        ({"resources": {"disk": -1}}, "disk"),
        ({"resources": {1: 1}}, "resources.*name 1"),
        ({"engine": "kubernetes"}, "engine"),
        ({"cluster": "/nowhere"}, "/nowhere"),
        ({"runtime_env": 3}, "runtime_env"),
        ({"hosts": ""}, "hosts"),
        ({"hosts": [1]}, "hosts"),
        ({"hosts": "a", "hostfile": "/etc/hosts"}, "one of the two"),
        ({"hostfile": "/nowhere"}, "/nowhere"),
        ({"copy": True}, "copy"),
        ({"copy": "no"}, r"`init\(copy=...\)` must be True or False, not 'no'"),
        ({"cluster": 5}, r"`init\(cluster=...\)` must be a path, not int"),
        ({"hostfile": b"/etc/hosts"}, r"`init\(hostfile=...\)` must be a path, not bytes"),
        ({"hosts": "a", "engine": "local"}, "engine='local'"),
        ({"hosts": "a", "cluster": "/etc/hosts"}, "cluster"),
    ],
)
def test_init_refusals(fields, text):
    with pytest.raises(ValueError, match=text):
        trainyard.init(**fields)


def test_init_sets_what_was_not_given_back():
    from trainyard import defaults

    trainyard.init(num_cpus=4, runtime_env={"env_vars": {"A": "b"}})
    assert defaults.current == defaults.Defaults(num_cpus=4, environment={"A": "b"})
    trainyard.init()
    assert defaults.current == defaults.Defaults()


def test_init_takes_numbers_of_numpy():
    from trainyard import defaults

    numpy = pytest.importorskip("numpy")
    trainyard.init(num_cpus=numpy.int64(4), resources={"x": numpy.float32(1.5)})
    assert repr(defaults.current.num_cpus) == "4"
    assert repr(defaults.current.resources) == "{'x': 1.5}"
    trainyard.init()


def test_import_is_light():
    import subprocess
    import sys

    heavy = "('torch', 'jax', 'numpy', 'cloudpickle')"
    code = f"import sys, trainyard; print([name for name in sys.modules if name.split('.')[0] in {heavy}])"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.stdout == "[]\n"


def test_files_of_settings_for_all_runs_say_what_a_config_does_not(tmp_path):
    """In a process of its own, since these files are read once: a second attempt is allowed, output is not shown, and checkpoints
    are ranked by the loss."""
    import os
    import subprocess
    import sys

    site = tmp_path / "site.yaml"
    ranked = "checkpoint_config: {num_to_keep: 2, checkpoint_score_attribute: loss, checkpoint_score_order: min}"
    site.write_text(f"run_config: {{quiet: true, failure_config: {{max_failures: 1}}, {ranked}}}\n")
    site.chmod(0o644)
    program = tmp_path / "program.py"
    program.write_text("""if True:
        import sys
        import tempfile
        import trainyard

        def train():
            print("of a worker")
            if trainyard.get_context().get_attempt() == 1:
                sys.exit(3)
            for loss in (3, 1, 2):
                with tempfile.TemporaryDirectory() as place:
                    trainyard.report({"loss": loss}, checkpoint=trainyard.Checkpoint(place))

        config = trainyard.RunConfig(storage_path=sys.argv[1])
        result = trainyard.DataParallelTrainer(train, run_config=config).fit()
        print(result.metrics, [metrics["loss"] for _, metrics in result.best_checkpoints])
    """)
    finished = subprocess.run(
        [sys.executable, program, tmp_path / "runs"],
        env={**os.environ, "TRAINYARD_CONFIG": str(site)},
        capture_output=True,
        text=True,
    )
    assert (finished.returncode, finished.stdout) == (0, "{'loss': 2} [2, 1]\n"), finished.stderr


def test_refusals_of_a_run_config_speak_python():
    with pytest.raises(ValueError, match="^`RunConfig.resume` must be True or False, not 'yes'$"):
        RunConfig(resume="yes")
    with pytest.raises(ValueError, match="^`CheckpointConfig.num_to_keep` must be a whole number from 1 to 1000000, not '2'$"):
        CheckpointConfig(num_to_keep="2")


def test_modules_are_there_without_an_import_of_their_own():
    import subprocess
    import sys

    code = "import trainyard; print(trainyard.data.range(3).count(), trainyard.collective.barrier, trainyard.integrations.Wandb, "
    code += "trainyard.jax.JaxTrainer, trainyard.torch.TorchTrainer)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.stdout.startswith("3 ") and finished.returncode == 0, finished.stderr


def test_every_name_is_there():
    for name in trainyard.__all__:
        assert getattr(trainyard, name) is not None
    assert set(trainyard.__all__) <= set(dir(trainyard))
    with pytest.raises(AttributeError, match="ScalingConfigs"):
        getattr(trainyard, "ScalingConfigs")  # noqa: B009


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"num_workers": (True, 2)}, "an int or a tuple of two ints (MIN, MAX), not (True, 2)"),
        ({"num_workers": None}, "an int or a tuple of two ints (MIN, MAX), not None"),
        ({"use_gpu": "null"}, "must be True or False, not 'null'"),
        ({"accelerator_type": {}}, "must be text or None, not {}"),
        ({"resources_per_worker": 3}, "must be a dict of names to amounts, or None, not 3"),
        ({"resources_per_worker": {"CPU": None}}, "the amount of CPU must be a number, not None"),
    ],
)
def test_refusals_speak_python(fields, message):
    with pytest.raises(ValueError) as caught:
        ScalingConfig(**fields)
    assert message in str(caught.value)


EDGES = [0, 1, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, -1, float("nan"), float("inf"), 1e300, 10**400]
COUNTS = EDGES[:2]  # up to a million
SECONDS = EDGES[:4]  # below a hundred years


@pytest.mark.parametrize(
    "make, good",
    [
        (lambda value: RunConfig(grace_s=value), SECONDS),
        (lambda value: RunConfig(time_limit_s=value), SECONDS),
        (lambda value: RunConfig(hang_timeout_s=value), SECONDS),
        (lambda value: FailureConfig(max_failures=value), [*COUNTS, -1]),
        (lambda value: FailureConfig(controller_failure_limit=value), [*COUNTS, -1]),
        (lambda value: FailureConfig(max_preemption_failures=value), [*COUNTS, -1]),
        (lambda value: CheckpointConfig(num_to_keep=value), COUNTS[1:]),
        (lambda value: ScalingConfig(num_workers=value), [0, 1]),
        (lambda value: ScalingConfig(num_workers=(1, value)), [1]),
        (lambda value: ScalingConfig(resources_per_worker={"CPU": value}), EDGES[:5]),
        (lambda value: trainyard.init(num_cpus=value), EDGES[:5]),
        (lambda value: trainyard.init(num_gpus=value), EDGES[:5]),
        (lambda value: trainyard.init(resources={"x": value}), EDGES[:5]),
    ],
)
def test_numbers_are_taken_or_refused(make, good):
    """None is cut, and none is an error of another kind; a refusal is one line that names the field."""
    try:
        for value in EDGES:
            if value in good:
                make(value)
                continue
            with pytest.raises(ValueError, match="`.*`.* (must|cannot|possible)") as refused:
                make(value)
            assert "\n" not in str(refused.value)
    finally:
        trainyard.init()


def test_a_long_grace_reaches_the_workers(tmp_path):
    """2^32 milliseconds: what was 0 in 32 bits is neither cut nor refused."""

    def train():
        trainyard.report({"up": 1})

    trainer = trainyard.DataParallelTrainer(
        train, run_config=RunConfig(storage_path=str(tmp_path), grace_s=4294967.296, hang_timeout_s=4294967.296)
    )
    assert trainer.fit().metrics["up"] == 1


@pytest.mark.parametrize(
    "name, value",
    [
        ("TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S", "nan"),
        ("JAX_DISTRIBUTED_SHUTDOWN_TIMEOUT_S", "-1"),
        ("RAY_TRAIN_COLLECTIVE_TIMEOUT_S", "soon"),
        ("TRAINYARD_TEMPLATE_LIMIT", "-1"),
    ],
)
def test_a_length_of_time_that_is_none_is_refused_before_anything_begins(tmp_path, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=name):
        trainyard.DataParallelTrainer(lambda: None, run_config=RunConfig(name="r", storage_path=str(tmp_path))).fit()
    assert list(tmp_path.iterdir()) == []
