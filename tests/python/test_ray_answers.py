"""What Ray Train's users ask of a run and its result, answered as Ray answers; in a program of theirs, or of Trainyard's own."""

import os
import threading

import pytest
import trainyard
from conftest import fit
from trainyard import (
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    WorkerGroupError,
)

# -- what rank 0 returns


@pytest.mark.parametrize("start_method", ["spawn", "template", "fork"])
def test_the_result_has_what_rank_0_returned(storage, start_method):
    def train():
        return {"rank": trainyard.get_context().get_world_rank(), "large": b"x" * (40 << 20)}

    value = fit(storage, train, start_method=start_method).return_value
    assert value["rank"] == 0 and len(value["large"]) == 40 << 20


def test_the_result_of_a_later_attempt_is_that_one_s(storage):
    def train():
        if trainyard.get_context().get_attempt() == 2:
            return "short"
        if trainyard.get_context().get_world_rank() == 1:
            trainyard.collective.barrier()
            raise ValueError
        trainyard.collective.barrier()
        return "long" * 1000

    assert fit(storage, train, failure_config=FailureConfig(max_failures=1)).return_value == "short"
    assert Result.from_path(f"{storage}/run").return_value is None


def test_what_cannot_be_pickled_of_what_is_returned_is_named(storage):
    def train():
        return {"model": [1, threading.Lock()]}

    with pytest.raises(WorkerGroupError, match="returned.*was found to be non-serializable") as caught:
        fit(storage, train)
    assert list(caught.value.worker_failures) == [0]
    assert isinstance(caught.value.worker_failures[0], TypeError)
    assert "returned['model'][1]" in str(caught.value.worker_failures[0])


def test_tensors_are_not_returned(ray):
    pytest.importorskip("torch")
    program = """
        import torch
        def told(value):
            try:
                return DataParallelTrainer(lambda: value).fit().return_value
            except ray.train.WorkerGroupError as error:
                return type(error.worker_failures[0]).__name__, str(error.worker_failures[0]).partition(". ")[0]
        print(json.dumps([told(value) for value in ({"a": [1.5]}, {"a": (torch.ones(1),)}, [torch.nn.Linear(1, 1)])]))
    """
    told = "Returning objects containing Torch tensors from the training function is not supported as it will throw an exception on"
    refusal = ["ValueError", f"{told} deserialization"]
    assert ray(program) == [{"a": [1.5]}, refusal, refusal]


def test_a_checkpoint_of_which_nothing_is_there_is_a_placeholder(ray):
    program = """
        def train():
            mode = ray.train.CheckpointUploadMode.NO_UPLOAD
            place = ray.train.get_context().get_storage().build_checkpoint_path_from_name("placeholder")
            ray.train.report({"a": 1}, checkpoint=Checkpoint(place), checkpoint_upload_mode=mode)
            os.mkdir(place)
            open(place + "/model", "w").write("x")
            ray.train.report({"a": 2}, checkpoint=Checkpoint(place), checkpoint_upload_mode=mode)
        result = DataParallelTrainer(train, run_config=RunConfig(storage_path=os.getcwd())).fit()
        print(json.dumps([result.metrics, [(os.path.basename(c.path), m) for c, m in result.best_checkpoints]]))
    """
    assert ray(program) == [{"a": 2}, [["placeholder", {"a": 2}]]]


# -- the first Ray Train


def test_what_the_second_refuses_works_in_programs_of_the_first(ray, monkeypatch):
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    program = """
        import warnings
        from ray import air
        from ray.air import session
        def train():
            told = session.get_checkpoint()
            before = json.load(open(told.path + "/a"))["step"] if told else -1
            for step in range(before + 1, before + 3):
                with tempfile.TemporaryDirectory() as d:
                    json.dump({"step": step}, open(d + "/a", "w"))
                    session.report({"step": step, "of": session.get_metadata()}, checkpoint=Checkpoint(d))
            return lambda: None, open("a", "w")
        def config(name):
            return air.RunConfig(
                name=name, storage_path=os.getcwd(), verbose=1, log_to_file=True, sync_config=ray.train.SyncConfig(), stop=None,
                failure_config=air.FailureConfig(0, fail_fast=True),
                checkpoint_config=air.CheckpointConfig(num_to_keep=1, checkpoint_frequency=0, checkpoint_at_end=False),
            )
        with warnings.catch_warnings(record=True) as caught:
            first = DataParallelTrainer(train, run_config=config("first")).fit()
            again = dict(resume_from_checkpoint=first.checkpoint, metadata={"of": 1})
            second = DataParallelTrainer(train, run_config=config("second"), **again).fit()
            third = DataParallelTrainer(train, run_config=config("second"), **again).fit()
            assert not DataParallelTrainer.can_restore("second")
        from ray.util.annotations import RayDeprecationWarning
        told = {str(one.message).split("`")[1] for one in caught if one.category is RayDeprecationWarning}
        assert all(one.filename == __file__ for one in caught)
        try:
            air.RunConfig(stop={"step": 1})
        except DeprecationWarning as error:
            told.add(str(error).split(":")[0])
        kept = [one.checkpoint.get_metadata() for one in (first, third)]
        print(json.dumps([first.metrics, second.metrics, third.metrics, first.return_value, kept, sorted(told)]))
    """
    assert ray(program) == [
        {"step": 1, "of": {}},
        {"step": 3, "of": {"of": 1}},
        {"step": 5, "of": {"of": 1}},
        None,
        [{}, {"of": 1}],
        sorted(
            [
                "CheckpointConfig(checkpoint_at_end=...)",
                "CheckpointConfig(checkpoint_frequency=...)",
                "FailureConfig(fail_fast=...)",
                "RunConfig(log_to_file=...)",
                "RunConfig(stop=...)",
                "RunConfig(sync_config=...)",
                "RunConfig(verbose=...)",
                "`RunConfig(stop=...)` is deprecated",
                "can_restore",
                "metadata",
                "resume_from_checkpoint",
            ]
        ),
    ]


def test_checkpoints_that_nobody_makes_are_not_asked_for(ray, monkeypatch):
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    program = """
        def told(**asked):
            run = RunConfig(checkpoint_config=ray.train.CheckpointConfig(**asked))
            try:
                DataParallelTrainer(lambda: None, run_config=run).fit()
            except ValueError as error:
                return str(error).split(":")[0]
        print(json.dumps([told(checkpoint_frequency=2), told(checkpoint_at_end=True)]))
    """
    assert ray(program) == ["`CheckpointConfig.checkpoint_frequency`", "`CheckpointConfig.checkpoint_at_end`"]


def test_mixed_precision_of_the_first_ray_train_is_full_precision(ray, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    program = """
        import ray.train.torch, torch
        def train():
            ray.train.torch.accelerate(amp=True)
            model = ray.train.torch.prepare_model(torch.nn.Linear(1, 1, bias=False))
            before = float(model.weight)
            optimizer = ray.train.torch.prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.5))
            ray.train.torch.backward(model(torch.ones(1, 1)).sum())
            optimizer.step()
            ray.train.report({"moved": round(before - float(model.weight), 3)})
        print(json.dumps(ray.train.torch.TorchTrainer(train).fit().metrics))
    """
    assert ray(program) == {"moved": 0.5}


def test_contexts_of_the_first_ray_train(ray, monkeypatch):
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    monkeypatch.setenv("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", "0")
    program = """
        import warnings
        def train():
            warnings.simplefilter("error")
            context = ray.train.get_context()
            names = "trial_name", "trial_id", "trial_dir"
            told = [getattr(context, f"get_{name}")() for name in names]
            ray.train.report({"told": told, "bundles": context.get_trial_resources().bundles})
        run = RunConfig(name="run", storage_path=os.getcwd())
        result = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
        assert result.metrics["told"][2] == result.path
        print(json.dumps(result.metrics["told"][:2] + result.metrics["bundles"]))
    """
    assert ray(program) == ["run", "run", {"CPU": 1.0}, {"CPU": 1.0}]


# -- callbacks


def test_hooks_are_called_by_keyword(storage):
    seen = []

    class Callback(trainyard.UserCallback):
        def after_report(self, *, checkpoint, metrics, run_context):
            seen.append(metrics)

        def after_exception(self, *, worker_exceptions, **others):
            seen.append((list(worker_exceptions), sorted(others)))

    def train():
        trainyard.report({"a": 1})
        raise ValueError

    with pytest.raises(WorkerGroupError):
        fit(storage, train, 1, callbacks=[Callback()])
    assert seen == [[{"a": 1}], ([0], ["run_context"])]


# -- configs


def test_the_run_config_of_a_program_for_ray_has_its_name_and_place_from_the_start(ray):
    one, other, place, given = ray("""
        configs = [RunConfig(), RunConfig(name=""), RunConfig(name="mine", storage_path="here")]
        print(json.dumps([configs[0].name, configs[1].name, configs[0].storage_path, configs[2].name + configs[2].storage_path]))
    """)
    assert other.startswith("ray_train_run-20"), "no name is none"
    assert one.startswith("ray_train_run-20") and one != other
    assert place == os.path.expanduser("~/ray_results") and given == "minehere"


def test_a_run_config_says_where_its_run_is(storage):
    def train():
        return trainyard.get_context().get_storage().experiment_fs_path

    config = RunConfig(storage_path=storage, name="run")
    place = config.storage_context
    assert DataParallelTrainer(train, run_config=config).fit().return_value == place.experiment_fs_path == f"{storage}/run"
    assert place.build_checkpoint_path_from_name("mine") == f"{storage}/run/mine"
    with pytest.raises(ValueError, match="RunConfig.storage_context.*no name"):
        RunConfig(storage_path=storage).storage_context  # noqa: B018


def test_a_run_config_of_another_file_system_says_where_its_run_is():
    pytest.importorskip("pyarrow")
    place = RunConfig(storage_path="mock://bucket/runs", name="run").storage_context
    assert place.experiment_fs_path == "runs/run" and place.storage_filesystem.type_name == "mock"


def test_a_trainer_says_how_its_data_sets_are_divided():
    from trainyard.data import DataConfig

    given = DataConfig(datasets_to_split=["train"])
    assert DataParallelTrainer(print, dataset_config=given).data_config is given
    trainer = DataParallelTrainer(print)
    assert isinstance(trainer.data_config, DataConfig) and trainer.data_config is trainer.data_config


@pytest.mark.parametrize("workers", [0, 1])
def test_a_trainer_says_whether_its_function_runs_here(workers):
    trainer = DataParallelTrainer(os.getpid, scaling_config=ScalingConfig(num_workers=workers))
    assert trainer.running_in_local_mode == (workers == 0)


def test_a_run_config_used_twice_names_one_run(ray):
    assert ray("""
        def train():
            found = ray.train.get_checkpoint()
            with tempfile.TemporaryDirectory() as place:
                ray.train.report({"from": found and os.path.basename(found.path)}, checkpoint=Checkpoint(place))

        config = RunConfig(storage_path=os.path.abspath("runs"))
        paths = [DataParallelTrainer(train, run_config=config).fit() for _ in range(2)]
        print(json.dumps([result.metrics["from"] for result in paths] + [paths[0].path == paths[1].path]))
    """) == [None, "checkpoint_000001", True]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_may_be_in_a_group(ray, elsewhere):
    """Its name then is that of a directory below the storage path, and goes on as any other does."""
    start, name, storage, end = ray(f"""
        def train():
            found, context = ray.train.get_checkpoint(), ray.train.get_context()
            with tempfile.TemporaryDirectory() as place:
                ray.train.report({{"from": found and os.path.basename(found.path)}}, checkpoint=Checkpoint(place))
            storage = context.get_storage()
            above = os.path.relpath(storage.storage_fs_path, place_of_all)
            return context.get_experiment_name(), storage.experiment_dir_name, above

        class Seen(ray.train.UserCallback):
            def after_report(self, run_context, metrics, checkpoint):
                names.append(run_context.run_config.name)

        place_of_all, names = os.getcwd(), []
        where = dict(storage_path=os.path.abspath("runs"))
        if {elsewhere}:
            import pyarrow.fs
            there = pyarrow.fs.SubTreeFileSystem(place_of_all, pyarrow.fs.LocalFileSystem())
            where = dict(storage_path="runs", storage_filesystem=there)
            place_of_all = "."
        config = RunConfig(name="a/b/mine", callbacks=[Seen()], **where)
        results = [DataParallelTrainer(train, run_config=config).fit() for _ in range(2)]
        print(json.dumps([[result.metrics["from"] for result in results], results[1].return_value[:2],
                          results[1].return_value[2], [*names, os.path.relpath(results[0].path, place_of_all)]]))
    """)
    assert start == [None, "checkpoint_000001"]
    assert name == ["a/b/mine"] * 2 and storage == "runs" and end == ["a/b/mine"] * 2 + ["runs/a/b/mine"]


@pytest.mark.parametrize(
    "field, value", [("preemption_grace_s", -1), ("preemption_grace_s", True), ("relax_collectives_on_preemption", 1)]
)
def test_what_preemption_may_cost_is_checked(field, value):
    with pytest.raises(ValueError, match=f"FailureConfig.{field}"):
        FailureConfig(**{field: value})
    FailureConfig(preemption_grace_s=30, relax_collectives_on_preemption=True)


def test_the_grace_of_a_preemption_is_added_to_that_of_the_run(storage, monkeypatch):
    from trainyard.driver import Driver

    def asked(**run):
        config = RunConfig(storage_path=storage, failure_config=FailureConfig(preemption_grace_s=7), **run)
        return Driver(DataParallelTrainer(print, run_config=config)).request()["grace_s"]

    assert (asked(), asked(grace_s=1)) == (12, 8)


@pytest.mark.parametrize("field", ["checkpoint_config", "failure_config"])
def test_a_config_of_another_class_is_named(field):
    with pytest.raises(ValueError, match="Invalid `(Checkpoint|Failure)Config` type"):
        RunConfig(**{field: {}})


# -- metrics


def test_a_tensor_is_no_metric(storage):
    torch = pytest.importorskip("torch")

    def train(config):
        trainyard.report({"at": {"loss": config["tensor"]}})

    with pytest.raises(WorkerGroupError) as caught:
        fit(storage, train, config={"tensor": torch.ones(2)}, workers=1)
    why = str(caught.value.worker_failures[0])
    assert why.startswith("Passing objects containing Torch tensors as metrics is not supported") and "at/loss" in why


# -- validation


@pytest.mark.parametrize("workers", [0, 2])
def test_a_validation_may_fit_a_trainer(ray, workers):
    text = """
        from ray.train.v2.api.context import DistributedTrainContext, LocalTrainContext

        def evaluate():
            kind = LocalTrainContext if WORKERS == 0 else DistributedTrainContext
            return {"found": ray.train.get_context().get_world_size(), "kind": isinstance(ray.train.get_context(), kind)}

        def validate(checkpoint):
            return DataParallelTrainer(evaluate, scaling_config=ScalingConfig(num_workers=WORKERS)).fit().return_value

        def train():
            with tempfile.TemporaryDirectory() as place:
                ray.train.report({"loss": 1}, checkpoint=Checkpoint.from_directory(place), validation=True)

        config = ray.train.ValidationConfig(fn=validate)
        trainer = DataParallelTrainer(train, validation_config=config, run_config=RunConfig(storage_path=os.getcwd()))
        print(json.dumps(trainer.fit().metrics))
    """
    assert ray(text.replace("WORKERS", str(workers))) == {"loss": 1, "found": max(workers, 1), "kind": True}
